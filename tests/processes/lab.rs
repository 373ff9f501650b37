//! Harness: a CA, node folders and a shared key made with `pstrain cert`. Use [`Lab`] in tests of
//! secured connections.

use std::fs;
use std::path::PathBuf;

use rcgen::{
    CertificateParams, DistinguishedName, DnType, Issuer, KeyPair, SanType, date_time_ymd,
};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::cluster::path;
use crate::process::finish;

/// A folder with certificates and keys, deleted on drop.
pub(crate) struct Lab {
    folder: TempDir,
}

impl Lab {
    /// Creates a lab with a CA and a shared key.
    pub(crate) fn new() -> Self {
        let lab = Self { folder: TempDir::new().unwrap() };
        finish(&["cert", "ca", &lab.at("ca")]).with_code(0);
        finish(&["cert", "psk", &lab.at("key")]).with_code(0);
        lab
    }

    /// Creates a lab with a server, workers 1 to 3, and a client.
    pub(crate) fn with_nodes() -> Self {
        let lab = Self::new();
        lab.node("server", &["--server", "127.0.0.1", "localhost"]);
        lab.node("worker-1", &["--worker", "1"]);
        lab.node("worker-2", &["--worker", "2"]);
        lab.node("worker-3", &["--worker", "3"]);
        lab.node("client", &["--client"]);
        lab
    }

    pub(crate) fn place(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the path of a file or folder in the lab.
    pub(crate) fn at(&self, name: &str) -> String {
        path(&self.place(name)).to_owned()
    }

    /// Creates the folder of a node in the given role; returns its path.
    pub(crate) fn node(&self, name: &str, role: &[&str]) -> String {
        let (ca, out) = (self.at("ca"), self.at(name));
        finish(&[&["cert", "node", &ca, &out], role].concat()).with_code(0);
        out
    }

    /// Creates the folder of a node with the URI `identity` whose certificate has expired.
    pub(crate) fn expired(&self, name: &str, identity: &str) -> String {
        self.valid(name, identity, |params| params.not_after = date_time_ymd(2020, 1, 1))
    }

    /// Creates the folder of a node with the URI `identity` whose certificate is valid from `year`
    /// on.
    pub(crate) fn valid_from(&self, year: i32, name: &str, identity: &str) -> String {
        self.valid(name, identity, |params| params.not_before = date_time_ymd(year, 1, 1))
    }

    fn valid(
        &self,
        name: &str,
        identity: &str,
        when: impl FnOnce(&mut CertificateParams),
    ) -> String {
        let ca = KeyPair::from_pem(&fs::read_to_string(self.place("ca/ca.key")).unwrap()).unwrap();
        let digest = Sha256::digest(ca.public_key_raw());
        let digits: String = digest[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        let mut signer = CertificateParams::default();
        signer.distinguished_name = DistinguishedName::new();
        signer.distinguished_name.push(DnType::CommonName, format!("pstrain CA {digits}"));
        let mut params = CertificateParams::default();
        when(&mut params);
        params.subject_alt_names.push(SanType::URI(identity.try_into().unwrap()));
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        // A valid folder, except for the certificate that is replaced below.
        let folder = self.node(name, &["--client"]);
        let key =
            KeyPair::from_pem(&fs::read_to_string(self.place(name).join("node.key")).unwrap());
        let certificate = params.signed_by(&key.unwrap(), &Issuer::new(signer, ca)).unwrap();
        fs::write(self.place(name).join("node.pem"), certificate.pem()).unwrap();
        folder
    }
}
