//! Virtual time, proved: the nodes of a run driven by `pstrain_transports::simulation`, with
//! checkers outside the code under test looking on in every run.

#![expect(clippy::expect_used, reason = "a failure here fails the test")]

mod closed_forms;
mod equivalence;
mod fault_schedules;
mod links;
mod restarts;
mod round_robin;
mod standby;
mod time_spent;
mod traffic;
