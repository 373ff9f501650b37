//! The commands, one per file.

pub(crate) mod bench;
pub(crate) mod calibrate;
#[cfg(feature = "cert")]
pub(crate) mod cert;
mod client;
pub(crate) mod compute;
pub(crate) mod control;
pub(crate) mod data;
pub(crate) mod eval;
#[cfg(feature = "pictures")]
pub(crate) mod experiment;
pub(crate) mod pull;
pub(crate) mod replay;
pub(crate) mod run;
pub(crate) mod server;
#[cfg(feature = "shell")]
pub(crate) mod shell;
pub(crate) mod simulate;
pub(crate) mod status;
#[cfg(feature = "pictures")]
pub(crate) mod validate;
pub(crate) mod why;
pub(crate) mod worker;
