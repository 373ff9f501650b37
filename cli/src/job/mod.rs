//! The job as users write it: settings by name, from a file, flags and the environment, resolved
//! into a checked job.

mod energy;
mod graph_file;
mod init;
mod layers;
mod resolve;
mod setting;
mod settings;
mod suggest;
mod values;

#[cfg(feature = "pictures")]
pub(crate) use layers::{ENVIRONMENT, OF_PROCESS};
pub(crate) use layers::{JobFlags, Layers};
#[cfg(feature = "pictures")]
pub(crate) use resolve::{DATA, absolute_data};
pub(crate) use resolve::{Resolved, source_of};
pub(crate) use settings::nearest;
#[cfg(feature = "pictures")]
pub(crate) use settings::{find, settings, unknown};
pub(crate) use suggest::suggestion;
