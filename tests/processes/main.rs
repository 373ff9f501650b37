//! End-to-end tests of the binary with real processes: whole runs over every transport, processes
//! that die or stop at the worst moment, signals, mistyped settings and broken input. Each error
//! message that a user can cause is checked for the thing that it names and the remedy that it
//! advises.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a failure here fails the test")]

mod books;
mod checkpoints;
mod cluster;
mod compute;
#[cfg(feature = "pictures")]
mod compute_experiments;
mod compute_hangs;
mod compute_parents;
mod compute_peers;
mod control;
#[cfg(target_os = "linux")]
mod cuts;
mod damage;
mod data_files;
mod deaths;
mod departures;
#[cfg(all(feature = "cert", feature = "pictures"))]
mod documented;
mod durable;
mod energy;
#[cfg(feature = "pictures")]
mod experiments;
mod flood;
mod group;
mod intruders;
mod json;
mod kept_runs;
mod lab;
mod local_rows;
mod local_training;
mod logs;
#[cfg(feature = "metrics")]
mod metrics;
mod moving;
mod network;
mod networks;
mod own_data;
mod pauses;
mod peers;
mod process;
mod quality;
mod ranks;
mod redundancy;
mod regression;
mod replay;
mod results;
mod scenario;
mod secured_peers;
mod security;
mod settings;
mod signals;
mod small_disk;
mod sparse;
mod standby;
mod standbys;
mod starts;
mod state;
mod status;
mod stopping;
mod stops;
mod strangers;
mod tools;
mod training;
mod trials;
mod troubleshooting;
#[cfg(feature = "pictures")]
mod validation;
mod watching;
mod why;
