//! Random encoded gradients: of filters, and forms that fit nothing.

use std::sync::Arc;

use pstrain_compute::filter::{Filters, Form, KeyForm, PieceForm, ValueForm};
use pstrain_compute::id::WorkerId;
use pstrain_compute::params::{Combine, KeyRange, Layout, Role};
use pstrain_wire::worker::{Push, PushHeader};

use super::Messages;

impl Messages {
    pub(super) fn form(&mut self, keys: u64) -> Form {
        let count = if self.coin() { self.rng.below(8) as u32 } else { self.small() };
        let chosen = match self.rng.below(3) {
            0 => KeyForm::All,
            1 => KeyForm::Gaps(count),
            _ => KeyForm::Bitmap(count),
        };
        let (block, first) = (self.small(), self.rng.below(4) as u32);
        let values = match self.rng.below(6) {
            0 => ValueForm::Single,
            1 => ValueForm::Half,
            2 => ValueForm::Brain,
            3 => ValueForm::Multiples { bits: self.rng.below(12) as u8, block, first },
            4 => ValueForm::SignBits { block, first },
            _ => {
                let mut piece = || PieceForm {
                    values: if self.coin() { keys as u32 } else { self.small() },
                    rank: self.rng.below(3) as u8,
                    columns: self.small(),
                    first,
                };
                ValueForm::Pieces(vec![piece(); 1 + usize::from(count % 7 == 0)])
            }
        };
        Form { keys: chosen, values, state: if self.coin() { 0 } else { self.small() } }
    }

    /// Returns a push encoded by a random chain of filters, if they make it shorter.
    pub(super) fn encoded(&mut self, mut header: PushHeader) -> Push {
        const CHAINS: [&str; 8] = [
            "zero-skip",
            "random-k:0.3,fp16",
            "top-k:0.2",
            "random-skip:0.5,qsgd:4",
            "one-bit",
            "qsgd:1",
            "int8",
            "powersgd:1",
        ];
        let mut job = self.job.clone();
        let chain = CHAINS[self.rng.below(CHAINS.len() as u64) as usize];
        job.filters.chain = Filters::read_chain(chain).unwrap_or_default();
        let (rows, columns) = (self.count() + 1, self.count() + 1);
        let mut layout = Layout::new();
        layout.push("matrix".into(), vec![rows, columns]);
        let role = Role::State { combine: Combine::Mean, whole: false };
        layout.push_as(role, "mean".into(), vec![self.count()]);
        let gradient = (0..layout.len()).map(|_| (self.rng.below(5) as f32 - 2.0) * 0.7);
        let gradient = gradient.collect();
        if let Some(mut filter_chain) = job.filter_chain(WorkerId(0), &layout)
            && let Ok(keys) = KeyRange::new(0, layout.len() as u64)
        {
            let filtered = filter_chain.filter(gradient, header.sequence, header.task, None, &[]);
            header.keys = keys;
            let encoded = filtered.encode(keys).map(Arc::new);
            return Push { encoded, ..Push::new(header, filtered.gradient) };
        }
        Push::new(header, self.values())
    }
}
