//! Pushes of 8 KB at one server of many workers. Another process plays the workers, so that the
//! figures of this process are the server's.

use std::process::Command;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, ensure};
use indicatif::ProgressBar;
use pstrain_roles::node::Event;
use pstrain_transports::{Address, Mailbox, SocketTransport, allow_more_files};

use super::cluster::{Pushes, serve};
use super::crowd::Crowd;
use super::{Effort, Figure};
use crate::args::{BenchPart, CrowdSize};
use crate::messages;
use crate::record::{jain, peak_rss_mib};

const PARAMETERS: u32 = 2_084;
/// Pushes of a round: of all workers together, and at least per busy worker.
const PUSHES: (u32, u32) = (12_000, 10);
/// Open files of a process besides connections, with a margin.
const OTHER_FILES: u64 = 100;

/// Workers that connect, and how many of them push.
type Size = (u32, u32);

/// Result of a round.
#[derive(Clone, Copy, Debug)]
struct RoundResult {
    /// Time per push.
    seconds: f64,
    /// Jain's index of the pushes of the busy workers.
    fairness: f64,
    /// Peak memory of this process, where the system reports it.
    mib: Option<f64>,
}

pub(super) fn measure(effort: Effort, bar: &ProgressBar) -> anyhow::Result<Vec<Figure>> {
    let crowds: &[Size] = if effort.long {
        &[
            (1, 1),
            (8, 8),
            (64, 64),
            (1000, 1),
            (1000, 8),
            (1000, 1000),
            (10_000, 8),
            (10_000, 10_000),
        ]
    } else {
        &[(1, 1), (8, 8), (64, 64), (1000, 8), (1000, 1000)]
    };
    let allowed = allow_more_files().unwrap_or(u64::MAX);
    let files = |workers: u32| u64::from(workers) + OTHER_FILES;
    let (crowds, too_many): (Vec<Size>, Vec<Size>) =
        crowds.iter().partition(|&&(workers, _)| files(workers) <= allowed);
    for &(workers, busy) in &too_many {
        messages::warn(&format!(
            "left out: {}. That takes {} open files, and a process may have {allowed}; raise the \
             hard limit (ulimit -Hn)",
            what(workers, busy),
            files(workers)
        ));
    }
    ensure!(
        !crowds.is_empty(),
        "a process may not even have the open files of a server of one worker"
    );
    let mut told = vec![Vec::new(); crowds.len()];
    for _ in 0..effort.rounds {
        for (&(workers, busy), told) in crowds.iter().zip(&mut told) {
            bar.set_message(what(workers, busy));
            let pushes = PUSHES.0.max(PUSHES.1 * busy);
            told.push(round(CrowdSize { workers, busy, pushes }, play_elsewhere)?);
        }
    }
    Ok(crowds.iter().zip(told).flat_map(|(&crowd, told)| figures(crowd, &told)).collect())
}

fn figures((workers, busy): Size, told: &[RoundResult]) -> Vec<Figure> {
    let (part, what) = (BenchPart::Server, what(workers, busy));
    let times = told.iter().map(|told| told.seconds).collect();
    let mut figures = vec![Figure::of_times(part, what, times).with_rate(1.0, "pushes")];
    if workers >= 1000 {
        let fairness = told.iter().map(|told| told.fairness).collect();
        let of_what = format!("  Jain's index of their pushes, {busy} busy");
        figures.push(Figure::of_values(part, of_what, "", fairness));
        // The minimum: in later rounds the allocator still holds memory of larger crowds.
        let memory = told.iter().filter_map(|told| told.mib).reduce(f64::min);
        if let Some(memory) = memory {
            let of_what = format!("  memory of the server, {workers} workers");
            figures.push(Figure::of_values(part, of_what, "MiB", vec![memory]));
        }
    }
    figures
}

fn what(workers: u32, busy: u32) -> String {
    if workers == busy {
        format!("push of one of {workers} workers")
    } else {
        format!("push of one of {busy} workers, {} idle", workers - busy)
    }
}

/// Serves a crowd whose workers `play` plays.
fn round(
    crowded: CrowdSize,
    play: impl FnOnce(CrowdSize, &Address) -> anyhow::Result<()> + Send + 'static,
) -> anyhow::Result<RoundResult> {
    let pushes = Pushes::new(crowded.workers, PARAMETERS, crowded.pushes)?;
    let (job, data) = pushes.parts();
    let server = SocketTransport::listen(&Address::Tcp("127.0.0.1:0".into()))?;
    let address = server.local_address().context("the server listens nowhere")?;
    forget_peak();
    let pushed = Arc::new(Mutex::new(vec![0.0; crowded.busy as usize]));
    let applied = Arc::clone(&pushed);
    let count = move |_, event| {
        if let Event::Applied { worker, .. } = event
            && let Ok(mut applied) = applied.lock()
            && let Some(pushes) = applied.get_mut(worker.0 as usize)
        {
            *pushes += 1.0;
        }
    };
    let (tell, ends) = channel();
    let tell_too = tell.clone();
    // Both threads report to one channel, so that the failure of either ends the round at once.
    // Waiting for the other would last until its lease expires.
    std::thread::spawn(move || tell.send(play(crowded, &address).map(|()| None)));
    std::thread::spawn(move || {
        let mailbox = Mailbox::new(&server);
        let served = serve(job, server, data.evaluation, &mailbox, count);
        tell_too.send(served.map(|seconds| Some((seconds, peak_rss_mib()))))
    });
    let both = [
        ends.recv().context("the crowd broke down")??,
        ends.recv().context("and so did its server")??,
    ];
    let (seconds, mib) = both.into_iter().flatten().next().context("the server broke down")?;
    let pushed = pushed.lock().ok().context("the server broke down")?;
    let fairness = jain(&pushed).context("nobody pushed")?;
    Ok(RoundResult { seconds, fairness, mib })
}

/// Plays a crowd in this process.
pub(super) fn play(crowded: CrowdSize, server: &Address) -> anyhow::Result<()> {
    let pushes = Pushes::new(crowded.workers, PARAMETERS, crowded.pushes)?;
    let (job, data) = pushes.parts();
    let crowd = Crowd::new(&job, &data, crowded.busy, SocketTransport::dialer(server.clone())?)?;
    crowd.play().with_context(|| format!("cannot play the workers of the server at {server}"))
}

/// Plays a crowd in a separate process.
fn play_elsewhere(crowded: CrowdSize, server: &Address) -> anyhow::Result<()> {
    let this = std::env::current_exe().context("cannot find this program again")?;
    let CrowdSize { workers, busy, pushes } = crowded;
    let ended = Command::new(&this)
        .args(["crowd", &server.to_string()])
        .args(["--workers", &workers.to_string()])
        .args(["--busy", &busy.to_string()])
        .args(["--pushes", &pushes.to_string()])
        .status()
        .with_context(|| format!("cannot start {}", this.display()))?;
    ensure!(ended.success(), "the process that plays the workers ended with {ended}");
    Ok(())
}

/// Resets the peak memory of this process to its present memory. Where the system does not allow
/// that, the peak includes earlier measurements.
fn forget_peak() {
    // 5: proc_pid_clear_refs(5).
    let _still_there = std::fs::write("/proc/self/clear_refs", "5");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_idle_takes_part_and_leaves_with_the_others() {
        for (workers, busy) in [(1, 1), (40, 2), (40, 40)] {
            let told = round(CrowdSize { workers, busy, pushes: 300 }, play).unwrap();
            let seconds = told.seconds;
            assert!(seconds > 0.0 && seconds.is_finite(), "{workers} {busy}: {seconds}");
            assert!(told.fairness > 0.5 && told.fairness <= 1.0, "{told:?}");
        }
    }

    #[test]
    fn a_crowd_that_breaks_down_ends_the_round() {
        let crowded = CrowdSize { workers: 2, busy: 1, pushes: 300 };
        let said = round(crowded, |_, _| anyhow::bail!("no such crowd")).unwrap_err();
        assert_eq!(said.to_string(), "no such crowd");
    }
}
