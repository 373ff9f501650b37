//! A worker allocates no memory for a step once it has warmed up: mini-batch, gradient, frame.

#![expect(clippy::unwrap_used, reason = "a failure here fails the test")]

use pstrain_compute::id::PartId;
use pstrain_compute::model::{Activation, ModelSpec};
use pstrain_data::{Prepared, Settings, SyntheticNslKdd};
use pstrain_tests::Stepping;
use stats_alloc::Region;

use crate::MEMORY;

const BATCH: u32 = 32;

pub(crate) fn allocates_nothing_for_a_step() {
    let source = SyntheticNslKdd { rows: 2_000, seed: 1 };
    let data = Prepared::load(&source, &Settings::default()).unwrap();
    let rows = data.partition(PartId(0)).len() as u32;
    // So the mini-batches of a pass have two sizes.
    assert_ne!(rows % BATCH, 0);
    let batches = rows.div_ceil(BATCH);
    let mlp = ModelSpec::Mlp { hidden: vec![21], activation: Activation::Relu };
    for spec in [mlp, ModelSpec::Softmax] {
        let mut worker = Stepping::new(&data, &spec, BATCH);
        (0..batches).for_each(|_| worker.step());
        let counted = Region::new(MEMORY);
        (0..9 * batches).for_each(|_| worker.step());
        let asked = counted.change();
        assert_eq!((asked.allocations, asked.reallocations), (0, 0), "9 passes of {spec:?}");
    }
}
