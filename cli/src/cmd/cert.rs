//! `pstrain cert`: a small CA for a lab, certificates for its nodes, pre-shared keys.

use std::fmt;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, bail, ensure};
use pstrain_transports::calendar_time;
use pstrain_wire::identity::Identity;
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertificateRevocationListParams, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    RevokedCertParams, SanType, SerialNumber,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde::Serialize;
use sha2::{Digest, Sha256};
use time::{Duration, OffsetDateTime};

use crate::args::{CertArgs, CertCommand, NodeArgs};
use crate::exit::Ending;

/// Validity of a certificate before its creation: clocks of small devices may be off by hours.
const SLACK: Duration = Duration::DAY;
/// Validity of a revocation list in days: it must never expire in use.
const LIST_DAYS: i64 = 3650;

pub(crate) fn run(args: &CertArgs) -> anyhow::Result<Ending> {
    let done = match &args.command {
        CertCommand::Ca { folder, days } => make_ca(folder, *days)?,
        CertCommand::Node(args) => make_node(args)?,
        CertCommand::Revoke { ca, certificate } => revoke(ca, certificate)?,
        CertCommand::Psk { file } => make_psk(file)?,
    };
    args.form.report(&done, || done.to_string())?;
    Ok(Ending::Done)
}

/// The result of a command.
#[derive(Serialize)]
#[serde(tag = "made", rename_all = "kebab-case")]
enum Done<'a> {
    Ca { folder: &'a Path, days: u32 },
    Node { folder: &'a Path, identity: String, days: u32 },
    Revocation { certificate: &'a Path, list: PathBuf },
    Psk { file: &'a Path },
}

impl fmt::Display for Done<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ca { folder, .. } => write!(
                f,
                "made a CA in {0}; keep {0}/ca.key where no node is: its owner can pose as any node",
                folder.display()
            ),
            Self::Node { folder, identity, .. } => write!(
                f,
                "made {} for {identity}: take the folder to the node and give it to --tls there",
                folder.display()
            ),
            Self::Revocation { certificate, list } => write!(
                f,
                "revoked {}; copy {} into the folder of every node: servers look for it again by \
                 themselves and refuse the nodes in it, though a node that is connected stays so \
                 until its connection ends",
                certificate.display(),
                list.display()
            ),
            Self::Psk { file } => write!(
                f,
                "made {}: take it to every node and give it to --psk there; its owner can pose as \
                 any node",
                file.display()
            ),
        }
    }
}

fn make_ca(folder: &Path, days: u32) -> anyhow::Result<Done<'_>> {
    let key = KeyPair::generate()?;
    let mut params = ca_params(&key);
    valid_for(&mut params, days)?;
    let certificate = params.self_signed(&key)?;
    create_folder(folder)?;
    write_new(&folder.join("ca.key"), &key.serialize_pem(), SECRET)?;
    write_new(&folder.join("ca.pem"), &certificate.pem(), OPEN)?;
    Ok(Done::Ca { folder, days })
}

/// Parameters that a CA's certificate and lists share. The name, from a digest of the key, tells
/// CAs apart.
fn ca_params(key: &KeyPair) -> CertificateParams {
    let digest = Sha256::digest(key.public_key_raw());
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, format!("pstrain CA {}", hex(&digest[..8])));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

/// Reads the signing CA from its folder.
fn issuer(folder: &Path) -> anyhow::Result<Issuer<'static, KeyPair>> {
    let path = folder.join("ca.key");
    let text = fs::read_to_string(&path).with_context(|| {
        format!("{}: make a CA first with `pstrain cert ca FOLDER`", path.display())
    })?;
    let key = KeyPair::from_pem(&text).with_context(|| path.display().to_string())?;
    Ok(Issuer::new(ca_params(&key), key))
}

fn make_node(args: &NodeArgs) -> anyhow::Result<Done<'_>> {
    let issuer = issuer(&args.ca)?;
    let role = &args.role;
    let identity = match role.worker {
        Some(worker) => Identity::Worker(worker),
        None if role.client => Identity::Client,
        None => Identity::Server,
    };
    let key = KeyPair::generate()?;
    let certificate = sign(&issuer, &key, identity, &role.server, args.days)?;
    create_folder(&args.out)?;
    write_new(&args.out.join("node.key"), &key.serialize_pem(), SECRET)?;
    write_new(&args.out.join("node.pem"), &certificate.pem(), OPEN)?;
    copy(&args.ca.join("ca.pem"), &args.out.join("ca.pem"))?;
    if args.ca.join(REVOKED).exists() {
        copy(&args.ca.join(REVOKED), &args.out.join(REVOKED))?;
    }
    Ok(Done::Node { folder: &args.out, identity: identity.to_string(), days: args.days })
}

fn sign(
    issuer: &Issuer<'_, KeyPair>,
    key: &KeyPair,
    identity: Identity,
    hosts: &[String],
    days: u32,
) -> anyhow::Result<Certificate> {
    let mut params = CertificateParams::new(hosts.to_vec()).context("--server")?;
    valid_for(&mut params, days)?;
    let name = identity.to_string();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name.clone());
    params.subject_alt_names.push(SanType::URI(name.try_into()?));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    if identity == Identity::Server {
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
    }
    params.use_authority_key_identifier_extension = true;
    Ok(params.signed_by(key, issuer)?)
}

const REVOKED: &str = "revoked.pem";

fn revoke<'a>(ca: &Path, certificate: &'a Path) -> anyhow::Result<Done<'a>> {
    let issuer = issuer(ca)?;
    let read = |path: &Path| {
        let named = || path.display().to_string();
        CertificateDer::from_pem_file(path).with_context(named)
    };
    let (own, other) = (read(&ca.join("ca.pem"))?, read(certificate)?);
    let parse = |der| webpki::EndEntityCert::try_from(der).map_err(anyhow::Error::from);
    let (own, other) = (parse(&own)?, parse(&other)?);
    ensure!(
        own.subject() == other.issuer(),
        "{}: this certificate is not of the CA in {}",
        certificate.display(),
        ca.display()
    );
    // Serial numbers, one a line: the list is made from them.
    let path = ca.join("revoked.txt");
    let mut serials = fs::read_to_string(&path).unwrap_or_default();
    let serial = hex(other.serial());
    if !serials.lines().any(|line| line == serial) {
        serials.push_str(&serial);
        serials.push('\n');
    }
    let list = list(&issuer, &serials).with_context(|| path.display().to_string())?;
    replace(&path, &serials)?;
    replace(&ca.join(REVOKED), &list)?;
    Ok(Done::Revocation { certificate, list: ca.join(REVOKED) })
}

/// A signed revocation list of these serial numbers.
fn list(issuer: &Issuer<'_, KeyPair>, serials: &str) -> anyhow::Result<String> {
    let now = now()?;
    let revoked = serials.lines().map(|serial| {
        Ok(RevokedCertParams {
            serial_number: SerialNumber::from_slice(&bytes(serial)?),
            revocation_time: now,
            reason_code: None,
            invalidity_date: None,
        })
    });
    let params = CertificateRevocationListParams {
        this_update: now,
        next_update: now + Duration::days(LIST_DAYS),
        crl_number: SerialNumber::from(serials.lines().count() as u64),
        issuing_distribution_point: None,
        revoked_certs: revoked.collect::<anyhow::Result<_>>()?,
        key_identifier_method: KeyIdMethod::Sha256,
    };
    Ok(params.signed_by(issuer)?.pem()?)
}

fn make_psk(file: &Path) -> anyhow::Result<Done<'_>> {
    let mut key = [0; 32];
    getrandom::fill(&mut key).context("no randomness to be had")?;
    write_new(file, &format!("{}\n", hex(&key)), SECRET)?;
    Ok(Done::Psk { file })
}

fn now() -> anyhow::Result<OffsetDateTime> {
    let since = calendar_time().duration_since(SystemTime::UNIX_EPOCH)?;
    Ok(OffsetDateTime::from_unix_timestamp(i64::try_from(since.as_secs())?)?)
}

fn valid_for(params: &mut CertificateParams, days: u32) -> anyhow::Result<()> {
    if days == 0 || days > 36_500 {
        bail!("--days {days}: use 1 to 36500");
    }
    let now = now()?;
    params.not_before = now - SLACK;
    params.not_after = now + Duration::days(i64::from(days));
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> anyhow::Result<Vec<u8>> {
    let (digits, rest) = hex.as_bytes().as_chunks::<2>();
    ensure!(rest.is_empty(), "{hex:?} is no serial number");
    digits.iter().map(|digits| Ok(u8::from_str_radix(std::str::from_utf8(digits)?, 16)?)).collect()
}

const SECRET: u32 = 0o600;
const OPEN: u32 = 0o644;

fn create_folder(folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))
}

/// Writes a file that must not exist yet: an overwritten key would be lost.
fn write_new(path: &Path, text: &str, mode: u32) -> anyhow::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let file = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("cannot write {}", path.display()))
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    let text = fs::read_to_string(from).with_context(|| from.display().to_string())?;
    write_new(to, &text, OPEN)
}

/// Replaces a file atomically, so that no reader sees half of it.
fn replace(path: &Path, text: &str) -> anyhow::Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, text)
        .and_then(|()| fs::rename(&new, path))
        .with_context(|| format!("cannot write {}", path.display()))
}
