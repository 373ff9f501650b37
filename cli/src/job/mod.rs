//! The job as users write it: settings by name, from a file, flags and the environment, resolved
//! into a checked job.

mod init;
mod layers;
mod resolve;
mod settings;
mod suggest;
mod values;

#[cfg(feature = "pictures")]
pub(crate) use layers::{ENVIRONMENT, OF_PROCESS};
pub(crate) use layers::{JobFlags, Layers};
#[cfg(feature = "pictures")]
pub(crate) use resolve::{DATA, absolute_data};
pub(crate) use resolve::{Resolved, source_of};
#[cfg(feature = "pictures")]
pub(crate) use settings::{SETTINGS, find, nearest};
pub(crate) use suggest::suggestion;
