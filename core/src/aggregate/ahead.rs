//! What of an update is added up while its gradients are still coming.
//!
//! Once it is known which gradients a round is made of, a block of keys can be combined as soon as all of
//! them have come that far: to the same bits as at the end of the round, but for the most part before it.
//! Nothing depends on that. What was added up counts only if the update turns out to be of the very
//! values that were looked at, whole and in order, and each with the factor that it was given; otherwise
//! it is combined as if nothing had been done.

use alloc::vec::Vec;

use super::blocks::add_up;
use super::plan::{Plan, Term};
use super::weights::Weights;
use super::{Aggregator, Combination, Gradient, ParticipationSpec, StalenessSpec};
use crate::consistency::ConsistencySpec;
use crate::id::BodyId;
use crate::optim::BLOCK;

/// Keys that are added up in one go, so that gradients are looked up seldom and the sums stay at hand.
const STRETCH: usize = 16 * BLOCK;

/// Values that are added up before it is asked whether there is something else to do: a few milliseconds.
const MOST_AT_ONCE: usize = 4 * 1024 * 1024;

/// A combined gradient, as far as it has come.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// The values that it is made of, and how often.
    terms: Vec<(BodyId, f32)>,
    /// The keys that are combined, from the first on: whole blocks.
    keys: usize,
}

impl Ahead {
    /// Forgets all.
    pub(super) fn forget(&mut self) {
        self.terms.clear();
        self.keys = 0;
    }

    /// The keys that are combined already if the update is as planned; nothing is remembered after that.
    pub(super) fn take<'a>(
        &mut self,
        plan: &Plan,
        gradients: impl Iterator<Item = Gradient<'a>>,
    ) -> usize {
        let planned = gradients.zip(&plan.gradients).map(|(gradient, planned)| {
            let Term::Add(factor) = planned.term else { return None };
            Some((gradient.body?, factor.to_bits()))
        });
        let added = self.terms.iter().map(|&(body, factor)| Some((body, factor.to_bits())));
        let keys = if planned.eq(added) { self.keys } else { 0 };
        self.forget();
        keys
    }
}

impl Aggregator {
    /// The keys for which what [`Self::add_ahead`] was given is combined.
    #[must_use]
    pub const fn keys_ahead(&self) -> usize {
        self.ahead.keys
    }

    /// Whether it is known what an update will be made of, and what gradients do is a sum in which the factor of
    /// each is known before they have come.
    fn can_add_ahead(&self) -> bool {
        let is_sum =
            matches!(self.combination, Combination::Round) && !self.aggregation.is_robust();
        let is_known = self.mode.consistency == ConsistencySpec::Bsp;
        let is_plain = self.mode.staleness == StalenessSpec::Plain
            && self.mode.participation != ParticipationSpec::Share;
        is_sum && is_known && is_plain && !self.scattered.is_cut()
    }

    /// Combines, as far as their values have come, the gradients that the next update is going to be made
    /// of, in their order. [`Self::combine`] and [`Self::update`] then do the rest, if it is of those: the
    /// bodies that their values come as say so, and a body always is of the same values. So this changes
    /// how long they take and nothing else, whatever is given here.
    ///
    /// Returns whether more values have come than were added up: it does not take much longer than it
    /// takes to add up four million.
    pub fn add_ahead<'a>(&mut self, gradients: impl Iterator<Item = Gradient<'a>> + Clone) -> bool {
        if !self.can_add_ahead() {
            return false;
        }
        let bodies = || gradients.clone().map(|gradient| gradient.body);
        if !bodies().eq(self.ahead.terms.iter().map(|&(body, _)| Some(body))) {
            self.ahead.forget();
            let weights = Weights::of_round(self.aggregation, gradients.clone());
            for gradient in gradients.clone() {
                let Some(body) = gradient.body.filter(|_| gradient.keys.is_none()) else {
                    self.ahead.forget();
                    return false;
                };
                let rows = self.shares.rows(gradient.worker);
                self.ahead.terms.push((body, weights.of(&gradient, rows) as f32));
            }
        }
        let come = gradients.clone().map(|gradient| gradient.values.len()).min().unwrap_or(0);
        let whole = if come < self.parameters { come - come % BLOCK } else { self.parameters };
        let gradients_due = self.ahead.terms.len();
        if gradients_due < 2 || whole <= self.ahead.keys {
            return false; // one alone is not added to anything
        }
        self.combined.reserve_exact(self.parameters - self.combined.len());
        let most = (MOST_AT_ONCE / gradients_due / BLOCK).max(1) * BLOCK;
        let until = whole.min(self.ahead.keys + most);
        while self.ahead.keys < until {
            let stretch = self.ahead.keys..until.min(self.ahead.keys + STRETCH);
            self.ahead.keys = stretch.end;
            // Not all at once: to clear it takes longer than there may be.
            self.combined.resize(self.combined.len().max(stretch.end), 0.0);
            let terms = gradients.clone().zip(&self.ahead.terms);
            let scaled = terms.map(|(it, &(_, factor))| (factor, &it.values[stretch.clone()]));
            add_up(&mut self.combined[stretch.clone()], scaled);
        }
        self.ahead.keys < whole
    }
}
