//! Server and worker allocate no memory once they have warmed up.
//!
//! The allocator counts for the whole process. The usual test harness would be counted, too, since
//! its own thread may still be busy when a test begins; so this test has none.

mod server;
mod worker;

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static MEMORY: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() {
    server::allocates_nothing_for_a_push();
    worker::allocates_nothing_for_a_step();
}
