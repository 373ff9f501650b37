//! Pushes that arrive in parts, one at each server.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::Server;
use super::roster::Slot;
use crate::node::Outbox;
use pstrain_compute::filter::Encoded;
use pstrain_compute::id::{PeerId, Sequence, ServerId, Version, WorkerId};
use pstrain_compute::saved::{Archive, SavedError};
use pstrain_compute::sum::ExactSum;
use pstrain_compute::time::Time;
use pstrain_wire::Refusal;
use pstrain_wire::group::{Arrived, Fault};
use pstrain_wire::worker::{Push, PushHeader, Seen};

/// A push that is split over all servers, and has not arrived whole.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Arriving {
    /// The part of this server.
    own: Option<Own>,
    /// The other servers that have received their parts.
    others: BTreeMap<ServerId, Part>,
    fault: Option<Fault>,
}

/// Another server's report about its part of a push.
#[derive(Debug, Serialize, Deserialize)]
struct Part {
    base: Version,
    squares: Option<ExactSum>,
}

/// The reports of all other servers about their parts of a push, combined.
#[derive(Debug, Default)]
pub(super) struct Elsewhere {
    pub(super) fault: Option<Fault>,
    /// The sum of the squares of the values in their parts.
    pub(super) squares: ExactSum,
}

/// This server's part of a push.
#[derive(Debug, Serialize, Deserialize)]
struct Own {
    peer: PeerId,
    header: PushHeader,
    #[serde(skip)]
    gradient: Arc<Vec<f32>>,
    encoded: Option<Encoded>,
    #[serde(skip)]
    seen: Seen,
}

impl Server {
    /// Receives this server's part of a push.
    pub(super) fn on_own_part(
        &mut self,
        now: Time,
        peer: PeerId,
        worker: WorkerId,
        push: Push,
        out: &mut Outbox,
    ) {
        let sequence = push.header.sequence;
        let slot = &mut self.members.roster[worker];
        if !slot.pushes.grants.iter().any(|grant| grant.sequence == sequence) {
            // Not granted: `judge_push` refuses it.
            return self.judge_push(now, peer, worker, push, Elsewhere::default(), out);
        }
        let Push { header, gradient, encoded, seen } = push;
        let encoded = encoded.map(Arc::unwrap_or_clone);
        let own = Own { peer, header, gradient, encoded, seen };
        slot.pushes.arriving.entry(sequence).or_default().own = Some(own);
        self.take_whole(now, worker, out);
    }

    /// Records that another server has received its part of a push.
    pub(super) fn on_arrived(
        &mut self,
        now: Time,
        peer: PeerId,
        server: ServerId,
        arrived: Arrived,
        out: &mut Outbox,
    ) {
        let Arrived { worker, incarnation, sequence, base, fault, squares } = arrived;
        let workers = self.job.membership.workers;
        if worker.0 >= workers {
            let what = alloc::format!(
                "a push of worker {worker} came to server {server}, but the job has {workers} \
                 workers"
            );
            return self.refuse(now, peer, Refusal::Unexpected { what }, out);
        }
        let slot = &mut self.members.roster[worker];
        let is_granted = slot.pushes.grants.iter().any(|grant| grant.sequence == sequence);
        if slot.incarnation != incarnation || !is_granted {
            return; // decided already, or of a departed worker
        }
        let arriving = slot.pushes.arriving.entry(sequence).or_default();
        arriving.others.insert(server, Part { base, squares });
        arriving.fault = arriving.fault.or(fault);
        self.take_whole(now, worker, out);
    }

    /// Decides the pushes of `worker` whose parts have all arrived, one after the other. While a
    /// measurement is open nothing else about the open round is decided.
    pub(super) fn take_whole(&mut self, now: Time, worker: WorkerId, out: &mut Outbox) {
        let wanted = self.group.others();
        loop {
            if self.is_measuring() {
                return self.take_later(worker);
            }
            let slot = &mut self.members.roster[worker];
            let Some((sequence, peer, push, elsewhere)) = next_whole(slot, wanted) else { return };
            slot.pushes.arriving.remove(&sequence);
            self.judge_push(now, peer, worker, push, elsewhere, out);
        }
    }
}

/// Returns the next push that is due, if all of its parts have arrived.
fn next_whole(slot: &mut Slot, wanted: usize) -> Option<(Sequence, PeerId, Push, Elsewhere)> {
    let sequence = slot.pushes.grants.front()?.sequence;
    let arriving = slot.pushes.arriving.get_mut(&sequence)?;
    // A push repeated after a reconnect may have been computed on another version: parts with
    // different bases are not parts of one gradient.
    let base = arriving.own.as_ref()?.header.base;
    let all = arriving.others.values().filter(|part| part.base == base).count() == wanted;
    let Own { peer, header, gradient, encoded, seen } = arriving.own.take_if(|_| all)?;
    let push = Push { header, gradient, encoded: encoded.map(Arc::new), seen };
    let mut elsewhere = Elsewhere { fault: arriving.fault, ..Elsewhere::default() };
    let squares = arriving.others.values().filter_map(|part| part.squares.as_ref());
    squares.for_each(|squares| elsewhere.squares += squares);
    Some((sequence, peer, push, elsewhere))
}

impl Arriving {
    /// Saves or restores the gradient, which serde skips.
    pub(super) fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        let save = |own: &mut Own| {
            let mut values = own.gradient.len();
            archive.small(&mut values)?;
            archive.shared_of("arriving", &mut own.gradient, values)
        };
        self.own.iter_mut().try_for_each(save)
    }

    /// Returns this server's part, if it has arrived.
    pub(super) fn into_own(self) -> Option<Push> {
        let Own { header, gradient, encoded, seen, .. } = self.own?;
        Some(Push { header, gradient, encoded: encoded.map(Arc::new), seen })
    }

    /// Drops this server's part, since its connection is lost: the worker sends it again.
    pub(super) fn cut_off(&mut self) {
        self.own = None;
    }
}
