//! The certificates of a job. Use them for transports over TLS.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use pstrain_transports::{KeyAccess, Security};
use pstrain_wire::identity::Identity;
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use tempfile::TempDir;

/// A CA that signs the certificates of nodes, as `pstrain cert` does.
#[derive(Debug)]
pub struct Certificates {
    issuer: Issuer<'static, KeyPair>,
    /// The certificate of the CA.
    root: String,
}

impl Default for Certificates {
    fn default() -> Self {
        Self::new()
    }
}

#[expect(clippy::unwrap_used, reason = "a failure here fails the test")]
impl Certificates {
    /// A new CA.
    ///
    /// # Panics
    /// If the system has no randomness.
    #[must_use]
    pub fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let root = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), root }
    }

    /// The security of a node with a new certificate for `identity`. A server is dialled as
    /// 127.0.0.1; other nodes have no host name.
    ///
    /// # Panics
    /// If a temporary folder cannot be written to.
    #[must_use]
    pub fn security(&self, identity: Identity) -> Security {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        if identity.may_serve() {
            params.subject_alt_names.push(SanType::IpAddress([127, 0, 0, 1].into()));
            params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        }
        params.subject_alt_names.push(SanType::URI(identity.to_string().try_into().unwrap()));
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        let folder = TempDir::new().unwrap();
        for (name, text) in
            [("ca.pem", &self.root), ("node.pem", &certificate), ("node.key", &key.serialize_pem())]
        {
            let file = folder.path().join(name);
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        }
        Security::tls(folder.path(), KeyAccess::Owner).unwrap()
    }
}
