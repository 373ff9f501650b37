//! Address at which workers reach a server that another server announces to them.

use anyhow::bail;
use pstrain_transports::Address;

use crate::args::ServerArgs;
use crate::messages;

/// The address that the server at `teller` announces to workers for a server that listens at
/// `local`.
pub(super) fn advertised(
    args: &ServerArgs,
    local: &Address,
    teller: &Address,
) -> anyhow::Result<Address> {
    let Some(address) = &args.advertise else {
        if local.is_unspecified() {
            bail!(
                "--listen {local}: say with --advertise HOST:PORT where workers reach this server"
            );
        }
        return Ok(local.clone());
    };
    if address.is_unspecified() {
        bail!(
            "--advertise {address}: nobody can dial that; give a name or an address of this machine"
        );
    }
    match address.is_same(teller) {
        Ok(true) => bail!(
            "--advertise {address}: there is the other server already; give the address of this \
             one, or leave it out: it listens at {local}"
        ),
        Ok(false) => {}
        Err(error) => bail!("--advertise {address}: workers will not find it: {error}"),
    }
    // Only a warning: in some networks a host cannot reach its own public address.
    if let Err(error) = address.try_dial() {
        messages::warn(&format!(
            "--advertise {address}: it cannot be reached from here ({error}); if workers cannot \
             either, the run stands still once it needs this server"
        ));
    }
    Ok(address.clone())
}
