//! Transport security from the command's flags, and the refusal of insecure remote addresses.

use std::path::Path;

use anyhow::bail;
use pstrain_transports::{Address, KeyAccess, Security};
use pstrain_wire::Refusal;
use pstrain_wire::identity::Identity;

use crate::args::SecurityArgs;
use crate::messages;

/// Returns the security of connections at or to `address`. Plain text to a remote address needs
/// `--insecure`.
pub(crate) fn security(args: &SecurityArgs, address: &Address) -> anyhow::Result<Security> {
    let access = match args.group_readable_key {
        true => KeyAccess::RootsGroup,
        false => KeyAccess::Owner,
    };
    if let Some(folder) = &args.tls {
        return Ok(Security::tls(folder, access)?);
    }
    if let Some(file) = &args.psk {
        return Ok(Security::psk(file, access)?);
    }
    if args.group_readable_key {
        bail!("--group-readable-key: there is no key; give one with --tls FOLDER or --psk FILE");
    }
    if args.insecure {
        if !address.is_local() {
            messages::warn(&format!(
                "--insecure: all goes in plain text; whoever can reach {address} can read it, \
                 change it and take part"
            ));
        }
        return Ok(Security::insecure());
    }
    if !address.is_local() {
        bail!(
            "{address} is not on this machine alone, and plain text is for one machine only: give \
             --tls FOLDER with certificates from `pstrain cert`, or --psk FILE with a key from \
             `pstrain cert psk`, or allow everybody to read, change and take part with --insecure"
        );
    }
    Ok(Security::local())
}

/// Like [`security`], for a server: also checks that the certificate may serve.
pub(crate) fn of_server(args: &SecurityArgs, address: &Address) -> anyhow::Result<Security> {
    let security = security(args, address)?;
    let is = security.identity();
    if !is.may_serve() {
        let folder = args.tls.as_deref().unwrap_or_else(|| Path::new("")).display();
        bail!("--tls {folder}: {}", Refusal::Identity { is, wanted: Identity::Server });
    }
    Ok(security)
}

/// Describes the security of the address, for the message that prints it.
pub(crate) fn in_words(args: &SecurityArgs, address: &Address) -> &'static str {
    match args {
        SecurityArgs { tls: Some(_), .. } => " with TLS 1.3",
        SecurityArgs { psk: Some(_), .. } => " with a shared key",
        _ if address.is_local() => "",
        _ => " in plain text without authentication: whoever can reach it can take part",
    }
}
