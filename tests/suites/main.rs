//! Whole-system tests: server, workers and standbys in one process, over every transport and in
//! virtual time. One binary, so that slow and quick tests share all cores.

mod conformance;
mod durability;
mod enumeration;
mod equivalence;
mod faults;
mod federated;
mod filters;
mod pauses;
mod peers;
mod protocol;
mod real_data;
mod redundancy;
mod reference_task;
mod replicas;
mod ring;
mod schedules;
mod simulation;
mod sparse;
mod work;
