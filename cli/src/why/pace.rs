//! How long a worker takes, next to its own past and to the others.

use std::time::Duration;

use pstrain_wire::{MemberState, MemberStatus, Status};

use super::Usual;

/// So many times the usual time, and a gradient is overdue.
const OVERDUE: u32 = 5;
/// Less than this is never overdue: busy machines stutter.
pub(super) const STUTTER: Duration = Duration::from_millis(200);

/// Whether a worker has been silent for longer than a living one, which is heard at least every
/// fifth of its lease.
pub(super) fn is_silent(status: &Status, member: &MemberStatus) -> bool {
    member.silent > (status.lease * 2 / 5).max(STUTTER)
}

/// The usual time of a gradient of this busy worker, if it is overdue. Before the worker's first
/// step the time of the others counts.
pub(super) fn overdue(status: &Status, member: &MemberStatus) -> Option<Duration> {
    let usual =
        Usual::of(member).map(|usual| usual.own()).or_else(|| median(status, Usual::own))?;
    (member.since > OVERDUE * usual + STUTTER).then_some(usual)
}

/// Whether the run still has a worker.
pub(super) const fn is_there(member: &MemberStatus) -> bool {
    use MemberState::{Computing, CutOff, Finished, Preparing, Waiting};
    matches!(member.state, Computing | CutOff | Finished | Preparing | Waiting)
}

/// The lower median of a time over the workers that are there and have made a step.
pub(super) fn median(status: &Status, of: fn(&Usual) -> Duration) -> Option<Duration> {
    let there = status.members.iter().filter(|member| is_there(member));
    let mut times: Vec<Duration> = there.filter_map(Usual::of).map(|usual| of(&usual)).collect();
    times.sort_unstable();
    times.get(times.len().checked_sub(1)? / 2).copied()
}

/// The share of all gradients that a worker brings at its present pace.
pub(super) fn share(status: &Status, member: &MemberStatus) -> f64 {
    let rate = |member: &MemberStatus| {
        let step = Usual::of(member).map_or(0.0, |usual| usual.step().as_secs_f64());
        if step > 0.0 { 1.0 / step } else { 0.0 }
    };
    let all: f64 = status.members.iter().filter(|member| is_there(member)).map(rate).sum();
    if all > 0.0 { rate(member) / all } else { 0.0 }
}
