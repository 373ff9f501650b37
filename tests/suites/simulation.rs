//! Virtual time, proved: the nodes of a run driven by `pstrain_transports::simulation`, with
//! checkers outside the code under test looking on in every run.

#![expect(clippy::expect_used, reason = "a failure here fails the test")]

#[path = "simulation/closed_forms.rs"]
mod closed_forms;
#[path = "simulation/equivalence.rs"]
mod equivalence;
#[path = "simulation/fault_schedules.rs"]
mod fault_schedules;
#[path = "simulation/links.rs"]
mod links;
#[path = "simulation/round_robin.rs"]
mod round_robin;
#[path = "simulation/standby.rs"]
mod standby;
#[path = "simulation/time_spent.rs"]
mod time_spent;
#[path = "simulation/traffic.rs"]
mod traffic;
