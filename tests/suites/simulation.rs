//! Tests of virtual time: runs driven by `pstrain_transports::simulation`, each observed by
//! checkers that are independent of the code under test.

#![expect(clippy::expect_used, reason = "a failure here fails the test")]

mod closed_forms;
mod equivalence;
mod evaluations;
mod fault_schedules;
mod layers;
mod links;
mod restarts;
mod round_robin;
mod standby;
mod time_spent;
mod traffic;
