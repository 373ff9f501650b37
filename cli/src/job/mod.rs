//! The job as users write it: settings by name, from a file, flags and the environment, resolved
//! into a checked job.

mod layers;
mod meant;
mod resolve;
mod settings;
mod words;

#[cfg(feature = "pictures")]
pub(crate) use layers::ENVIRONMENT;
pub(crate) use layers::{JobFlags, Layers};
pub(crate) use meant::meant;
#[cfg(feature = "pictures")]
pub(crate) use resolve::{DATA, absolute_data};
pub(crate) use resolve::{Resolved, evaluation_source_of, source_of};
#[cfg(feature = "pictures")]
pub(crate) use settings::{SETTINGS, find, nearest};
