use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::decided::{Decided, DropReason};
use crate::id::{BatchId, Sequence, Version, WorkerId};
use crate::optim::Schedule;
use crate::params::{Combine, KeyRange, Layout, Role};
use crate::rng::Stream;
use crate::task::Task;

mod chains;
mod error_feedback;
mod wire;

const CHAINS: [&str; 16] = [
    "zero-skip",
    "significant:0.5",
    "random-skip:0.5",
    "random-k:0.25",
    "top-k:0.1",
    "fp16",
    "bf16",
    "int8",
    "one-bit",
    "qsgd:1",
    "qsgd:4",
    "powersgd:2",
    "top-k:0.2,fp16",
    "zero-skip,int8",
    "significant:0.25,random-skip:0.5,one-bit",
    "random-k:0.5,qsgd:1",
];

/// The layout of a matrix and a vector with `values` values in total.
fn layout(values: usize) -> Layout {
    let mut layout = Layout::new();
    let columns = 7;
    layout.push("weight".into(), vec![values / columns, columns]);
    layout.push("bias".into(), vec![values % columns]);
    layout
}

fn filters(chain: &str, error_feedback: ErrorFeedback) -> Filters {
    let chain = Filters::read_chain(chain).unwrap();
    Filters { chain, error_feedback, ..Filters::default() }
}

fn filter_chain(chain: &str, error_feedback: ErrorFeedback, values: usize) -> FilterChain {
    let filters = filters(chain, error_feedback);
    filters.validate().unwrap();
    FilterChain::of(&filters, Stream::new(3), WorkerId(0), &layout(values)).unwrap()
}

fn task(batch: u64) -> Task {
    Task::own(WorkerId(0), BatchId(batch))
}

/// Random values of many magnitudes, a quarter of them 0.
fn gradient(random: &mut Random, values: usize) -> Vec<f32> {
    let value = |_| match random.below(4) {
        0 => 0.0,
        1 => (random.unit() - 0.5) as f32,
        2 => (random.unit() * 4.0 - 2.0) as f32,
        _ => libm::exp(random.unit() * 20.0 - 15.0) as f32,
    };
    (0..values).map(value).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}
