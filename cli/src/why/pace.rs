//! A worker's pace, compared with its own past and with the other workers.

use std::time::Duration;

use pstrain_wire::{MemberState, MemberStatus, Status};

use super::Usual;

/// A gradient is overdue after this multiple of its usual time plus [`STUTTER`].
const OVERDUE: u32 = 5;
/// A busy machine may pause that long: a shorter delay is never overdue.
pub(super) const STUTTER: Duration = Duration::from_millis(200);

/// True if a worker has been silent for longer than a live worker, which sends at least every fifth
/// of its lease.
pub(super) fn is_silent(status: &Status, member: &MemberStatus) -> bool {
    member.silent > (status.lease * 2 / 5).max(STUTTER)
}

/// Returns the usual time of a gradient of this busy worker, if the gradient is overdue. Before the
/// worker's first step, the median of the others is used.
pub(super) fn overdue(status: &Status, member: &MemberStatus) -> Option<Duration> {
    let usual =
        Usual::of(member).map(|usual| usual.own()).or_else(|| median(status, Usual::own))?;
    (member.since > OVERDUE * usual + STUTTER).then_some(usual)
}

/// True if the worker still belongs to the run.
pub(super) const fn is_there(member: &MemberStatus) -> bool {
    use MemberState::{Computing, CutOff, Finished, Preparing, Waiting};
    matches!(member.state, Computing | CutOff | Finished | Preparing | Waiting)
}

/// Returns the lower median of a time over the present workers that have made a step.
pub(super) fn median(status: &Status, of: fn(&Usual) -> Duration) -> Option<Duration> {
    let there = status.members.iter().filter(|member| is_there(member));
    let mut times: Vec<Duration> = there.filter_map(Usual::of).map(|usual| of(&usual)).collect();
    times.sort_unstable();
    times.get(times.len().checked_sub(1)? / 2).copied()
}

/// Returns the share of all gradients that a worker contributes at its present pace.
pub(super) fn share(status: &Status, member: &MemberStatus) -> f64 {
    let rate = |member: &MemberStatus| {
        let step = Usual::of(member).map_or(0.0, |usual| usual.step().as_secs_f64());
        if step > 0.0 { 1.0 / step } else { 0.0 }
    };
    let all: f64 = status.members.iter().filter(|member| is_there(member)).map(rate).sum();
    if all > 0.0 { rate(member) / all } else { 0.0 }
}
