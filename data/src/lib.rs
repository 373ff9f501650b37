//! Training data: files, synthetic generators, recipes and partitions.
//!
//! The path of a row: a [`Dataset`] (a file or a generator) yields rows, encoded by its [`Schema`];
//! [`mod@split`] holds out the evaluation rows; [`Standardisation`] is fitted to the training rows;
//! a [`PartitionSpec`] assigns every training row to one worker.
//!
//! [`Prepared::load`] follows this path on the server. Its result, a [`DataSpec`], travels to the
//! workers as JSON, and [`DataSpec::prepare_parts`] makes a worker's partition from the worker's
//! own copy of the data. A [`Fingerprint`](pstrain_compute::fingerprint::Fingerprint) shows whether
//! that copy equals the server's.
//!
//! ```
//! use pstrain_compute::id::PartId;
//! use pstrain_data::{DataSpec, Prepared, Settings, SyntheticNslKdd};
//!
//! let source = SyntheticNslKdd { rows: 1000, seed: 7 };
//! let server = Prepared::load(&source, &Settings::default())?;
//! let json = serde_json::to_string(&server.spec)?;
//!
//! let spec: DataSpec = serde_json::from_str(&json)?;
//! let (partitions, fingerprint) = spec.prepare_parts(&source, &[PartId(1)])?;
//! assert_eq!(partitions, [server.partition(PartId(1))]);
//! assert_eq!(fingerprint.difference(&server.fingerprint), None);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! To add a data format, see [`mod@formats`].
//!
//! This crate does not depend on networks, nodes or the command line. The data sets themselves are
//! not part of it; [`nsl_kdd`] says what to cite.

mod dataset;
mod decompress;
mod error;
mod evaluation;
mod experiments;
pub mod formats;
mod grouped;
pub mod info;
mod local;
mod memory;
pub mod nsl_kdd;
mod outline;
pub mod partition;
mod prepared;
mod profile;
pub mod sparse;
mod spec;
pub mod split;
mod standardise;
pub mod synthetic;

pub use dataset::{Dataset, Features, Schema, Visit};
pub use error::DataError;
pub use evaluation::EvaluationRows;
pub use experiments::{Shipped, experiments};
#[cfg(feature = "npz")]
pub use formats::Npz;
pub use formats::{
    Cifar, CifarSet, Csv, Dialect, Format, Header, Idx, Libsvm, Notation, Npy, NslKdd, Paths,
    Predict, Raw, Roles, SyntheticNslKdd, SyntheticPictures, SyntheticRegression, SyntheticSparse,
    Thousands, Words, open, write_csv,
};
pub use info::Info;
pub use local::Local;
pub use memory::Shortage;
pub use nsl_kdd::{CLASSES, RecipeName, UnknownRecipe};
pub use outline::Outline;
pub use partition::{PartitionSpec, Skew};
pub use prepared::{Encoded, Prepared};
pub use profile::{Missing, Profile};
pub use sparse::{Hashing, SparseSpec};
pub use spec::{DataSpec, Settings};
pub use standardise::{Standard, Standardisation};
