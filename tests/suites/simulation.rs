//! Virtual time, proved.

#[path = "simulation/fault_schedules.rs"]
mod fault_schedules;
