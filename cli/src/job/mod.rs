//! The job as users write it: settings by name, from a file, flags and the environment, resolved
//! into a checked job.

mod energy;
mod graph_file;
mod init;
mod layers;
mod resolve;
mod setting;
mod settings;
mod source;
mod suggest;
mod values;

#[cfg(feature = "pictures")]
pub(crate) use layers::{ENVIRONMENT, OF_PROCESS};
pub(crate) use layers::{JobFlags, Layers};
pub(crate) use resolve::Resolved;
pub(crate) use settings::nearest;
#[cfg(feature = "pictures")]
pub(crate) use settings::{find, settings, unknown};
#[cfg(feature = "pictures")]
pub(crate) use source::{DATA, absolute_data};
pub(crate) use source::{source_of, warn_of};
pub(crate) use suggest::suggestion;
