//! A complete push-pull over TCP with encryption, compared with one in plain text.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context as _, ensure};
use indicatif::ProgressBar;
use pstrain_transports::{Address, KeyAccess, Security};

use super::cluster::Pushes;
use super::transport::{End, over_sockets};
use super::{Effort, Figure};
use crate::args::BenchPart;

/// Number of parameters, its name in the output, and push-pulls of a round.
const SIZES: [(u32, &str, u32); 2] = [(262_144, "1 MB", 40), (4_194_304, "16 MB", 10)];

pub(super) fn measure(effort: Effort, bar: &ProgressBar) -> anyhow::Result<Vec<Figure>> {
    let folder = tempfile::tempdir().context("cannot make a folder for keys")?;
    let place = folder.path();
    let sizes = if effort.long { &SIZES[..] } else { &SIZES[..1] };
    let mut figures = Vec::new();
    if cfg!(feature = "psk") {
        let key = place.join("key");
        fs::write(&key, "0123456789abcdef".repeat(4))?;
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600))?;
        let secured = |_| -> anyhow::Result<_> { Ok(Security::psk(&key, KeyAccess::Owner)?) };
        figures.extend(compare("a shared key", &secured, sizes, effort, bar)?);
    }
    if cfg!(feature = "cert") {
        certificates(place)?;
        let secured = |end| -> anyhow::Result<_> {
            let folder = place.join(if end == End::Server { "server" } else { "worker" });
            Ok(Security::tls(&folder, KeyAccess::Owner)?)
        };
        figures.extend(compare("TLS", &secured, sizes, effort, bar)?);
    }
    Ok(figures)
}

fn compare(
    name: &str,
    secured: &dyn Fn(End) -> anyhow::Result<Security>,
    sizes: &[(u32, &str, u32)],
    effort: Effort,
    bar: &ProgressBar,
) -> anyhow::Result<Vec<Figure>> {
    let at = Address::Tcp("127.0.0.1:0".into());
    let figure = |&(parameters, size, count): &(u32, &str, u32)| -> anyhow::Result<Figure> {
        let what = format!("push-pull of {size}, {name}");
        let (mut times, mut limits) = (Vec::new(), Vec::new());
        for _ in 0..effort.rounds {
            bar.set_message(what.clone());
            let plain = Pushes::new(1, parameters, count)?;
            limits.push(over_sockets(plain, &at, |_| Ok(Security::local()))?);
            times.push(over_sockets(Pushes::new(1, parameters, count)?, &at, secured)?);
        }
        let moved = 2.0 * f64::from(parameters) * size_of::<f32>() as f64;
        let figure = Figure::of_times(BenchPart::Secure, what, times).with_rate(moved, "B");
        Ok(figure.with_limit(&limits, "plain text"))
    };
    sizes.iter().map(figure).collect()
}

/// Makes a CA and the folders of a server and a worker, as a user does.
fn certificates(place: &Path) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let node =
        |name: &'static str, role: &'static [&str]| [&["node", "ca", name][..], role].concat();
    let commands = [
        vec!["ca", "ca"],
        node("server", &["--server", "127.0.0.1"]),
        node("worker", &["--worker"]),
    ];
    for arguments in commands {
        let mut command = std::process::Command::new(&program);
        let made = command.arg("cert").args(arguments).current_dir(place).output()?;
        let said = String::from_utf8_lossy(&made.stderr);
        ensure!(made.status.success(), "pstrain cert: {said}");
    }
    Ok(())
}
