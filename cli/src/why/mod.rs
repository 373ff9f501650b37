//! Who waits for whom, and where everybody's time goes: a server's status, read for its causes.
//!
//! Knows a [`Status`] and nothing else: who asks for it, and how it is shown, it does not.

mod gone;
mod pace;
mod slow;
mod stops;
mod verdict;
mod way;

#[cfg(test)]
pub(crate) mod tests;

use std::time::Duration;

use pstrain_compute::id::{ServerId, WorkerId};
use pstrain_wire::{MemberState, MemberStatus, Phase, Status, Wait, WaitReason};
use serde::Serialize;

pub(crate) use verdict::{Finding, verdict};
pub(crate) use way::Way;

/// What a worker waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub(crate) enum WaitsFor {
    /// Somebody has to start it.
    Start,
    /// Its data.
    Data,
    /// Other workers have to come before the run begins or goes on.
    Others,
    /// The server gives it no parameters before these workers' gradients have come.
    Barrier { workers: Vec<WorkerId> },
    /// A server has to say its part of what the update goes by.
    Server { server: ServerId },
    /// Its turn: the server gives parameters out one after another.
    Turn,
    /// Parameters are on their way to it.
    Parameters,
    /// Its own computing, as far as its usual times tell.
    Compute,
    /// Its gradient is on its way to the server, as far as its usual times tell.
    Gradient,
    /// Its gradient should have come long ago.
    Overdue,
    /// The standby has to confirm what the server has done, or to come back.
    Standby,
    /// It has to reach one of the other servers.
    Way { server: ServerId },
    /// It has to be heard again: it is silent for longer than a living worker is.
    Sign,
    /// Its link has to come back.
    Link,
    /// It is lost, and has to come back.
    Return,
    /// Nothing: its part is done, or it has left.
    Nothing,
}

impl WaitsFor {
    /// What `member` waits for.
    pub(crate) fn of(status: &Status, member: &MemberStatus) -> Self {
        if let Some((unreached, _)) = &member.unreached {
            return Self::Way { server: unreached.server };
        }
        match member.state {
            MemberState::Awaited => Self::Start,
            MemberState::CutOff => Self::Link,
            MemberState::Lost => Self::Return,
            MemberState::Preparing | MemberState::Waiting | MemberState::Computing
                if pace::is_silent(status, member) =>
            {
                Self::Sign
            }
            MemberState::Waiting | MemberState::Computing if stops::needs_standby(status) => {
                Self::Standby
            }
            MemberState::Preparing => Self::Data,
            MemberState::Waiting => Self::of_waiting(status, member.worker),
            MemberState::Computing => Self::of_busy(status, member),
            _ => Self::Nothing,
        }
    }

    fn of_waiting(status: &Status, worker: WorkerId) -> Self {
        match &status.wait {
            _ if status.phase == Phase::Gathering => Self::Others,
            Some(Wait { reason: WaitReason::Workers | WaitReason::Server(_), .. }) => Self::Others,
            Some(Wait { reason: WaitReason::Primary, .. }) => Self::Others,
            &Some(Wait { reason: WaitReason::Part(server), .. }) => Self::Server { server },
            Some(wait) => {
                let workers = wait.workers.iter().copied().filter(|&other| other != worker);
                match workers.collect::<Vec<_>>() {
                    none if none.is_empty() => Self::Turn,
                    workers => Self::Barrier { workers },
                }
            }
            None => Self::Turn,
        }
    }

    /// The server does not see where a mini-batch is that it has given out; the worker's own last
    /// steps and the bytes that are not acknowledged tell.
    fn of_busy(status: &Status, member: &MemberStatus) -> Self {
        let under_way = member.link.is_some_and(|link| {
            link.queued > 0 || link.tcp.is_some_and(|tcp| tcp.unacknowledged > 0)
        });
        if pace::overdue(status, member).is_some() {
            return Self::Overdue;
        }
        let Some(usual) = Usual::of(member) else {
            return if under_way { Self::Parameters } else { Self::Compute };
        };
        let down = usual.network / 2;
        if under_way || member.since < down {
            Self::Parameters
        } else if member.since < down + usual.compute {
            Self::Compute
        } else {
            Self::Gradient
        }
    }

    /// In words.
    pub(crate) fn in_words(&self) -> String {
        match self {
            Self::Start => "its start".into(),
            Self::Data => "its data".into(),
            Self::Others => "other workers to come".into(),
            Self::Barrier { workers } => format!("barrier: {}", workers_in_words(workers)),
            Self::Server { server } => format!("server {server}: its part of a norm"),
            Self::Turn => "its turn".into(),
            Self::Parameters => "network: its parameters".into(),
            Self::Compute => "compute: its mini-batch".into(),
            Self::Gradient => "network: its gradient".into(),
            Self::Overdue => "its gradient, overdue".into(),
            Self::Standby => "the standby".into(),
            Self::Way { server } => format!("a way to server {server}"),
            Self::Sign => "a sign of life".into(),
            Self::Link => "its link to come back".into(),
            Self::Return => "its return".into(),
            Self::Nothing => "nothing".into(),
        }
    }
}

/// The means of a worker's last steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usual {
    pub(crate) compute: Duration,
    pub(crate) network: Duration,
    pub(crate) barrier: Duration,
}

impl Usual {
    /// None before its first step.
    pub(crate) fn of(member: &MemberStatus) -> Option<Self> {
        let (steps, spent) = (member.recent.steps, member.recent.spent);
        (steps > 0).then(|| Self {
            compute: spent.compute / steps,
            network: spent.network / steps,
            barrier: spent.barrier / steps,
        })
    }

    /// From parameters to gradient: no other worker has a part in it.
    pub(crate) fn own(&self) -> Duration {
        self.compute + self.network
    }

    /// All of a step.
    pub(crate) fn step(&self) -> Duration {
        self.own() + self.barrier
    }

    /// Of each of the three, its share of a step, in percent.
    pub(crate) fn shares(&self) -> [f64; 3] {
        let all = self.step().as_secs_f64();
        [self.compute, self.network, self.barrier]
            .map(|part| if all > 0.0 { 100.0 * part.as_secs_f64() / all } else { 0.0 })
    }
}

/// Workers by number.
pub(crate) fn workers_in_words(workers: &[WorkerId]) -> String {
    let names: Vec<String> = workers.iter().map(ToString::to_string).collect();
    let noun = if workers.len() == 1 { "worker" } else { "workers" };
    format!("{noun} {}", names.join(", "))
}

/// A duration with three digits that matter.
pub(crate) fn span(span: Duration) -> String {
    let seconds = span.as_secs_f64();
    let digits = |value: f64, unit: &str| match value {
        value if value >= 100.0 => format!("{value:.0} {unit}"),
        value if value >= 10.0 => format!("{value:.1} {unit}"),
        value => format!("{value:.2} {unit}"),
    };
    match seconds {
        0.0 => "0 s".into(),
        seconds if seconds < 1e-3 => digits(seconds * 1e6, "us"),
        seconds if seconds < 1.0 => digits(seconds * 1e3, "ms"),
        seconds if seconds < 600.0 => digits(seconds, "s"),
        seconds => format!("{:.0} min", seconds / 60.0),
    }
}
