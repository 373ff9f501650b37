//! Filters of a worker's pushes.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use super::work::Grant;
use super::{Member, Worker};
use crate::node::{Effect, Event, Outbox};
use pstrain_compute::decided::Decided;
use pstrain_compute::filter::FilterChain;
use pstrain_compute::model::Model;
use pstrain_compute::time::Time;
use pstrain_wire::worker::{Push, PushHeader};

impl Worker {
    /// Starts the filters of a new incarnation. The residual of the previous one is lost, like the
    /// pushes without an answer.
    pub(super) fn begin_filtering(&mut self, member: &Member, model: &Model, out: &mut Outbox) {
        let carried = self.filter_chain.as_ref().map_or(0.0, FilterChain::carried);
        if carried > 0.0 {
            out.push(Effect::Report(Event::Forgot { carried }));
        }
        self.filter_chain = member.job.filter_chain(member.worker, model.layout());
    }

    /// Filters a gradient into a push, not encoded yet: each server's part is encoded separately.
    pub(super) fn filtered(
        filter_chain: &mut Option<FilterChain>,
        grant: Grant,
        header: PushHeader,
        (gradient, block): (Vec<f32>, Option<Range<usize>>),
        parameters: &[f32],
    ) -> Push {
        let gradient = match filter_chain {
            Some(filter_chain) => {
                filter_chain.turn_to(grant.version);
                filter_chain
                    .filter(gradient, grant.sequence, grant.task, block, parameters)
                    .gradient
            }
            None => Arc::new(gradient),
        };
        Push::new(header, gradient)
    }

    /// Records decisions about pushes; returns true if they are news.
    pub(super) fn on_decided(&mut self, now: Time, decided: Decided) -> bool {
        if let Some(filter_chain) = &mut self.filter_chain {
            filter_chain.decided(&decided);
        }
        self.work.decided(now, decided.sequence)
    }
}
