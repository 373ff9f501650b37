//! Certificates of this node, and verification of its peers' certificates.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use pstrain_wire::identity::Identity;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName, UnixTime,
};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, ServerConfig,
    SignatureScheme,
};

use super::super::{Broken, KeyAccess, SecurityError, files};

/// Protocol name; a connection requires the same on both sides.
const ALPN: &[u8] = b"pstrain";
const REVOKED: &str = "revoked.pem";

/// The certificates of a node.
#[derive(Debug)]
pub(in super::super) struct Tls {
    folder: PathBuf,
    access: KeyAccess,
    /// Modification time of the list of revoked certificates.
    revoked_at: Option<SystemTime>,
    /// Identity in this node's certificate.
    identity: Identity,
    accepted: Arc<ServerConfig>,
    /// For connections to servers, whose certificates have host names.
    to_servers: Arc<ClientConfig>,
    /// For connections to workers, whose certificates have none.
    to_workers: Arc<ClientConfig>,
}

impl Tls {
    pub(in super::super) fn load(folder: &Path, access: KeyAccess) -> Result<Self, SecurityError> {
        let list = folder.join(REVOKED);
        let revoked_at = written_at(&list);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let roots = Arc::new(roots(&folder.join("ca.pem"))?);
        let revoked = revoked(&list)?;
        let own = Own::load(folder, access)?;
        let wrong = |error: String| SecurityError(format!("{}: {error}", folder.display()));
        let members =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
                .with_crls(revoked.clone())
                .build()
                .map_err(|error| match error {
                    VerifierBuilderError::InvalidCrl(_) => wrong_list(&list, &error.to_string()),
                    _ => wrong(error.to_string()),
                })?;
        own.check_lists(&*members).map_err(|why| wrong_list(&list, why))?;
        let servers = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider))
            .with_crls(revoked)
            .build()
            .map_err(|error| wrong(error.to_string()))?;
        let workers = Arc::new(WorkerVerifier(Arc::clone(&members)));
        let accepted = own.server(&provider, members).map_err(wrong)?;
        let to_servers = own.client(&provider, servers).map_err(wrong)?;
        let mut to_workers = own.client(&provider, workers).map_err(wrong)?;
        to_workers.enable_sni = false;
        Ok(Self {
            folder: folder.to_path_buf(),
            access,
            revoked_at,
            identity: own.identity,
            accepted: Arc::new(accepted),
            to_servers: Arc::new(to_servers),
            to_workers: Arc::new(to_workers),
        })
    }

    pub(in super::super) const fn identity(&self) -> Identity {
        self.identity
    }

    pub(super) const fn for_accepted(&self) -> &Arc<ServerConfig> {
        &self.accepted
    }

    pub(super) const fn to_servers(&self) -> &Arc<ClientConfig> {
        &self.to_servers
    }

    pub(super) const fn to_workers(&self) -> &Arc<ClientConfig> {
        &self.to_workers
    }

    /// Reloads all files if the list of revoked certificates has changed. If the new list is
    /// invalid or missing, the previous list stays in force.
    pub(in super::super) fn refresh(&mut self) -> Result<(), SecurityError> {
        let list = self.folder.join(REVOKED);
        let written_at = written_at(&list);
        if written_at == self.revoked_at {
            return Ok(());
        }
        // Set first, so that an invalid list is reported only once.
        self.revoked_at = written_at;
        let stays = "the list before stays in force until there is a new one, or this process ends";
        if written_at.is_none() {
            return Err(SecurityError(format!("{}: it is gone; {stays}", list.display())));
        }
        *self = Self::load(&self.folder, self.access)
            .map_err(|SecurityError(why)| SecurityError(format!("{why}; {stays}")))?;
        Ok(())
    }
}

fn written_at(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|file| file.modified()).ok()
}

fn roots(path: &Path) -> Result<RootCertStore, SecurityError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots
            .add(certificate)
            .map_err(|error| SecurityError(format!("{}: {error}", path.display())))?;
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, SecurityError> {
    let text = files::read(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(SecurityError(format!("{}: there is no certificate in it", path.display()))),
        Err(error) => Err(SecurityError(format!("{}: {error}", path.display()))),
    }
}

fn revoked(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, SecurityError> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = files::read(path)?;
    let found: Result<Vec<_>, _> =
        CertificateRevocationListDer::pem_slice_iter(text.as_bytes()).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        // Copying to a full disk leaves an empty file, which must not admit revoked certificates.
        Ok(_) => Err(wrong_list(path, "it holds no list of revoked certificates")),
        Err(error) => Err(wrong_list(path, &error.to_string())),
    }
}

fn wrong_list(path: &Path, why: &str) -> SecurityError {
    SecurityError(format!(
        "{}: {why}; copy revoked.pem from the folder of the CA again, or remove it if no \
         certificate was revoked",
        path.display()
    ))
}

/// This node's certificate and key.
struct Own {
    chain: Vec<CertificateDer<'static>>,
    /// Identity in the certificate.
    identity: Identity,
    key: PrivateKeyDer<'static>,
}

impl Own {
    fn load(folder: &Path, access: KeyAccess) -> Result<Self, SecurityError> {
        let chain = certificates(&folder.join("node.pem"))?;
        let wrong = |broken: Broken| {
            SecurityError(format!("{}: {}", folder.join("node.pem").display(), broken.why))
        };
        let own = chain.first().map(identity).transpose().map_err(wrong)?;
        let identity = own.unwrap_or_default();
        let path = folder.join("node.key");
        let key = PrivateKeyDer::from_pem_slice(files::read_secret(&path, access)?.as_bytes())
            .map_err(|error| SecurityError(format!("{}: {error}", path.display())))?;
        Ok(Self { chain, identity, key })
    }

    /// Checks that the revocation lists of `members` come from this node's CA. With any other list
    /// peers would be refused, and told a wrong reason.
    fn check_lists(&self, members: &dyn ClientCertVerifier) -> Result<(), &'static str> {
        let Some((certificate, chain)) = self.chain.split_first() else { return Ok(()) };
        match members.verify_client_cert(certificate, chain, UnixTime::now()) {
            Err(
                Error::InvalidCertificate(CertificateError::UnknownRevocationStatus)
                | Error::InvalidCertRevocationList(_),
            ) => Err("its list is damaged, or of another CA than ca.pem"),
            // Peers verify the certificate itself.
            _ => Ok(()),
        }
    }

    fn server(
        &self,
        provider: &Arc<CryptoProvider>,
        members: Arc<dyn ClientCertVerifier>,
    ) -> Result<ServerConfig, String> {
        let mut config = ServerConfig::builder_with_provider(Arc::clone(provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| error.to_string())?
            .with_client_cert_verifier(members)
            .with_single_cert(self.chain.clone(), self.key.clone_key())
            .map_err(|error| error.to_string())?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        // No session resumption: a full handshake each time keeps revoked peers from returning.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }

    fn client(
        &self,
        provider: &Arc<CryptoProvider>,
        verifier: Arc<dyn ServerCertVerifier>,
    ) -> Result<ClientConfig, String> {
        let mut config = ClientConfig::builder_with_provider(Arc::clone(provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| error.to_string())?
            .dangerous() // a verifier of our own, for workers
            .with_custom_certificate_verifier(verifier)
            .with_client_auth_cert(self.chain.clone(), self.key.clone_key())
            .map_err(|error| error.to_string())?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.resumption = Resumption::disabled();
        Ok(config)
    }
}

/// Verifies a worker that was dialled as one that dials: its certificate must be of the CA, valid
/// and not revoked. It has no host name, and is not for a server, so no worker can pose as one.
#[derive(Debug)]
struct WorkerVerifier(Arc<dyn ClientCertVerifier>);

impl ServerCertVerifier for WorkerVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.0.verify_client_cert(certificate, chain, now)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// Returns the identity of a certificate's owner: its only URI name that begins with `pstrain:`.
pub(super) fn identity(certificate: &CertificateDer<'_>) -> Result<Identity, Broken> {
    let parsed = webpki::EndEntityCert::try_from(certificate)
        .map_err(|error| Broken::permanent(format!("its certificate cannot be read: {error}")))?;
    let mut names = parsed.valid_uri_names().filter(|name| name.starts_with("pstrain:"));
    let name = names.next().ok_or_else(|| {
        Broken::permanent(
            "its certificate does not say who it is; make it with `pstrain cert node`".into(),
        )
    })?;
    if names.next().is_some() {
        return Err(Broken::permanent("its certificate says more than one name".into()));
    }
    name.parse().map_err(|error| Broken::permanent(format!("its certificate says {error}")))
}
