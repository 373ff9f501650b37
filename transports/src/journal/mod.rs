//! What a node must not forget: its inputs, in order, on the disk.

mod log;

pub use log::{Log, LogError, Opened};
