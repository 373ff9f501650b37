//! A server asks for no memory once it has warmed up: from the bytes of a push that came to those of
//! the answer.

use std::alloc::System;

use pstrain_core::consistency::ConsistencySpec;
use pstrain_tests::Driven;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

/// Counts for the whole process. The usual harness would be counted, too: its own thread may still be busy with
/// the beginning of the test, so there is none.
#[global_allocator]
static MEMORY: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const WORKERS: u32 = 4;

fn main() {
    let all = [ConsistencySpec::Bsp, ConsistencySpec::Asp, ConsistencySpec::Ssp { slack: 3 }];
    for consistency in all {
        let mut server = Driven::new(consistency, WORKERS);
        (0..2000).for_each(|_| server.turn(WORKERS));
        let (version, bytes) = (server.version(), server.bytes());
        let counted = Region::new(MEMORY);
        (0..1000).for_each(|_| server.turn(WORKERS));
        let asked = counted.change();
        assert!(server.version() >= version + 1000 && server.bytes() > bytes);
        assert_eq!((asked.allocations, asked.reallocations), (0, 0), "{consistency:?}");
    }
}
