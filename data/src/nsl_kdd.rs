//! The NSL-KDD intrusion detection data set: columns, records and files.
//!
//! Cite: the NSL-KDD data set of the Canadian Institute for Cybersecurity,
//! <https://www.unb.ca/cic/datasets/nsl.html>; and M. Tavallaee, E. Bagheri, W. Lu,
//! A. A. Ghorbani, "A Detailed Analysis of the KDD CUP 99 Data Set", Second IEEE Symposium on
//! Computational Intelligence for Security and Defense Applications (CISDA), 2009.
//!
//! The files have one record per line and no header: 41 features, the name of the attack (or
//! `normal`), and a difficulty level that this crate does not use and that may be missing.

mod error;
mod reader;
mod recipe;
mod record;
mod schema;
mod writer;

pub use error::{Problem, ReadError};
pub(crate) use reader::begins;
pub use reader::{read, read_file};
pub use recipe::{RecipeName, UnknownRecipe};
pub use record::{Columns, Record};
pub use schema::{
    Attack, CLASSES, COLUMN_NAMES, FLAGS, NUMERIC, PROTOCOLS, SERVICES, category_groups,
    numeric_name,
};
pub use writer::{DIFFICULTY, write};
