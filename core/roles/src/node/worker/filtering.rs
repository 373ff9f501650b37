//! What a worker's filters do to its pushes.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use super::work::Grant;
use super::{Member, Worker};
use crate::node::{Effect, Event, Outbox};
use pstrain_compute::decided::Decided;
use pstrain_compute::filter::Carrier;
use pstrain_compute::model::Model;
use pstrain_wire::worker::{Push, PushHeader};

impl Worker {
    /// Begins a new incarnation's filters. What those of the one before had not sent yet is lost
    /// with it, like the pushes that had no answer.
    pub(super) fn begin_filtering(&mut self, member: &Member, model: &Model, out: &mut Outbox) {
        let carried = self.carrier.as_ref().map_or(0.0, Carrier::carried);
        if carried > 0.0 {
            out.push(Effect::Report(Event::Forgot { carried }));
        }
        self.carrier = member.job.carrier(member.worker, model.layout());
    }

    /// The push of a gradient, in no form yet: each server's part has its own.
    pub(super) fn filtered(
        carrier: &mut Option<Carrier>,
        grant: Grant,
        header: PushHeader,
        (gradient, block): (Vec<f32>, Option<Range<usize>>),
        parameters: &[f32],
    ) -> Push {
        let gradient = match carrier {
            Some(carrier) => {
                carrier.turn_to(grant.version);
                carrier.filter(gradient, grant.sequence, grant.task, block, parameters).gradient
            }
            None => Arc::new(gradient),
        };
        Push::new(header, gradient)
    }

    /// Takes note of what became of pushes; whether that is news.
    pub(super) fn on_decided(&mut self, decided: Decided) -> bool {
        if let Some(carrier) = &mut self.carrier {
            carrier.decided(&decided);
        }
        self.work.decided(decided.sequence)
    }
}
