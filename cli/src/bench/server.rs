//! Pushes of 8 KB at one server of many workers, which one thread plays.

use anyhow::Context as _;
use pstrain_transports::{Address, SocketTransport, allow_more_files};

use super::cluster::{Pushes, serve};
use super::crowd::Crowd;
use indicatif::ProgressBar;

use super::{Effort, Figure};
use crate::args::BenchWhat;
use crate::messages;

const PARAMETERS: u32 = 2_084;
const PUSHES: u32 = 12_000;

pub(super) fn measure(effort: Effort, bar: &ProgressBar) -> anyhow::Result<Vec<Figure>> {
    // Connected, and pushing.
    let crowds: &[(u32, u32)] = if effort.long {
        &[(1, 1), (8, 8), (64, 64), (1000, 1), (1000, 8), (1000, 1000), (10_000, 10_000)]
    } else {
        &[(1, 1), (8, 8), (64, 64), (1000, 8), (1000, 1000)]
    };
    let allowed = allow_more_files().unwrap_or(u64::MAX);
    let (crowds, too_many): (Vec<_>, Vec<_>) =
        crowds.iter().partition(|&&(workers, _)| files(workers) <= allowed);
    for (workers, _) in too_many {
        messages::warn(&format!(
            "{workers} workers are left out: their connections are {} open files, and this process \
             may have {allowed}; raise the hard limit (ulimit -Hn)",
            files(workers)
        ));
    }
    let mut times = vec![Vec::new(); crowds.len()];
    for _ in 0..effort.rounds {
        for (&(workers, busy), times) in crowds.iter().zip(&mut times) {
            bar.set_message(what(workers, busy));
            times.push(round(workers, busy, PUSHES)?);
        }
    }
    Ok(crowds
        .iter()
        .zip(times)
        .map(|(&(workers, busy), times)| {
            Figure::of_times(BenchWhat::Server, what(workers, busy), times).with_rate(1.0, "pushes")
        })
        .collect())
}

/// The files that a process opens for both ends of so many connections, and for all else.
fn files(workers: u32) -> u64 {
    2 * u64::from(workers) + 100
}

fn what(workers: u32, busy: u32) -> String {
    if workers == busy {
        format!("push of one of {workers} workers")
    } else {
        format!("push of one of {busy} workers, {} idle", workers - busy)
    }
}

/// The seconds that a push takes, of so many.
fn round(workers: u32, busy: u32, pushes: u32) -> anyhow::Result<f64> {
    let pushes = Pushes::new(workers, PARAMETERS, pushes)?;
    let (job, data) = pushes.parts();
    let server = SocketTransport::listen(&Address::Tcp("127.0.0.1:0".into()))?;
    let address = server.local_address().context("the server listens nowhere")?;
    let crowd = Crowd::new(&job, &data, busy, SocketTransport::dialer(address)?)?;
    let crowd = std::thread::spawn(move || crowd.play());
    let seconds = serve(job, server, data.evaluation)?;
    crowd.join().ok().context("the workers broke down")??;
    Ok(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_idle_takes_part_and_leaves_with_the_others() {
        for (workers, busy) in [(1, 1), (40, 2), (40, 40)] {
            let seconds = round(workers, busy, 300).unwrap();
            assert!(seconds > 0.0 && seconds.is_finite(), "{workers} {busy}: {seconds}");
        }
    }
}
