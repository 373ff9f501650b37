//! Analysis of a server's status: who waits for whom, where the workers' time goes, and what causes
//! it.
//!
//! Works on a [`Status`] alone, independent of how it is requested and displayed.

mod absent;
mod architecture;
mod connection_flags;
mod pace;
mod process;
mod run_waits;
mod slow;
mod verdict;

#[cfg(test)]
pub(crate) mod tests;

use std::time::Duration;

use pstrain_compute::id::{ServerId, WorkerId};
use pstrain_wire::{
    Endpoint, MemberState, MemberStatus, Phase, Status, Unreached, Wait, WaitReason,
};
use serde::Serialize;

use crate::figures::{list, shortened};

pub(crate) use connection_flags::ConnectionFlags;
pub(crate) use slow::CROWDED;
pub(crate) use verdict::{Finding, verdict};

/// The event that a worker waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub(crate) enum WaitsFor {
    /// The start of its process.
    Start,
    /// Its data.
    Data,
    /// Other workers, without which the run does not begin or continue.
    Others,
    /// Parameters, which the server holds back until the gradients of these workers arrive.
    Barrier { workers: Vec<WorkerId> },
    /// A server's share of the norm that the update depends on.
    Server { server: ServerId },
    /// Its turn: the server sends parameters to one worker after another.
    Turn,
    /// Parameters that are on their way.
    Parameters,
    /// Its own computation, as far as its usual times tell.
    Compute,
    /// The transfer of its gradient to the server, as far as its usual times tell.
    Gradient,
    /// Its gradient, which is overdue.
    Overdue,
    /// The standby's confirmation or return.
    Standby,
    /// A connection to one of the other servers.
    Way { server: ServerId },
    /// A sign of life: it has been silent for longer than a live worker is.
    Sign,
    /// The return of its connection.
    Link,
    /// Its own return: the worker is lost.
    Return,
    /// Nothing: it has finished or left.
    Nothing,
}

/// The longest time for which TCP on Linux delays an acknowledgement (TCP_DELACK_MAX).
const LATEST_ACKNOWLEDGEMENT: Duration = Duration::from_millis(200);

impl WaitsFor {
    /// Determines what `member` waits for.
    pub(crate) fn of(status: &Status, member: &MemberStatus) -> Self {
        if let Some((Unreached { node: Endpoint::Server(server), .. }, _)) = member.unreached {
            return Self::Way { server };
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
            MemberState::Waiting | MemberState::Computing if run_waits::needs_standby(status) => {
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

    /// The server does not see the position of a mini-batch that it has assigned: infer it from the
    /// worker's mean times and from unacknowledged bytes.
    fn of_busy(status: &Status, member: &MemberStatus) -> Self {
        let under_way = member.link.is_some_and(|link| {
            // A receiver may acknowledge late, and a worker's gradient acknowledges its parameters.
            let is_old = member.since >= LATEST_ACKNOWLEDGEMENT;
            link.queued > 0 || is_old && link.tcp.is_some_and(|tcp| tcp.unacknowledged > 0)
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

    /// Describes the wait.
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

/// Mean times of a worker's recent steps.
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

    /// Time from parameters to gradient, which no other worker affects.
    pub(crate) fn own(&self) -> Duration {
        self.compute + self.network
    }

    /// Time of a whole step.
    pub(crate) fn step(&self) -> Duration {
        self.own() + self.barrier
    }

    /// Returns the shares of compute, network and barrier in a step, in percent.
    pub(crate) fn shares(&self) -> [f64; 3] {
        let all = self.step().as_secs_f64();
        [self.compute, self.network, self.barrier]
            .map(|part| if all > 0.0 { 100.0 * part.as_secs_f64() / all } else { 0.0 })
    }
}

/// Most characters of a name in a finding.
const NAME: usize = 24;

/// Returns the number of a worker, with its name if it has one.
fn named(member: &MemberStatus) -> String {
    match member.name.as_str() {
        "" => member.worker.to_string(),
        name => format!("{} ({})", member.worker, shortened(name, NAME)),
    }
}

/// Formats workers by number.
pub(crate) fn workers_in_words(workers: &[WorkerId]) -> String {
    let noun = if workers.len() == 1 { "worker" } else { "workers" };
    format!("{noun} {}", list(workers.iter().map(|worker| worker.number())))
}
