//! Messages between pstrain and a compute process: a line of JSON, then the values as 32-bit
//! floating-point numbers, then row numbers as 32-bit integers, all little-endian.
//!
//! docs/compute-process.md is the same for authors of processes.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read, Write};

use pstrain_compute::model::Answers;
use serde::{Deserialize, Serialize};

/// The version of this protocol.
pub const PROCESS_PROTOCOL: u32 = 1;

/// The most row numbers in a line; more follow the values.
const MOST_ROWS_IN_LINE: usize = 8192;

/// Values up to this size travel in one write with their line, which costs a process one wake-up
/// instead of two.
const ONE_WRITE: usize = 64 * 1024;

/// The longest line of a process, in bytes: it names all tensors of a model.
pub(super) const MOST_LINE: u64 = 4 * 1024 * 1024;

/// A request to the process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase")]
pub enum Request {
    /// The first request; answered by a [`Description`].
    Hello(Hello),
    /// Asks for the initial parameters; answered by an [`Answer`] with values.
    Start,
    /// Asks for a gradient at parameters, which follow; answered by an [`Answer`] with values.
    Gradient(Order),
    /// Asks for an evaluation of parameters, which follow; answered by an [`Evaluated`].
    Evaluate(Order),
    /// The process is no longer needed; not answered.
    Bye,
}

/// The role of the process in the job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROCESS_PROTOCOL`].
    pub protocol: u32,
    /// The worker that the process computes for, counted from 0; none for evaluations, and where
    /// only the description is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<u32>,
    /// Number of workers of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<u32>,
    /// The seed of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

/// A gradient or an evaluation to compute.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The number of the request, repeated in the answer.
    pub id: u64,
    /// The examples, by number; none if they follow the values, and for all examples that the
    /// process evaluates on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<Vec<u32>>,
    /// The number of row numbers that follow the values.
    #[serde(default, skip_serializing_if = "is_default")]
    pub rows_after: usize,
    /// The number of parameters that follow the line.
    pub values: usize,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The model and the data of a process: its answer to [`Request::Hello`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// The tensors of parameters, in the order of their values.
    pub tensors: Vec<TensorOf>,
    /// State besides the parameters; its values follow those of the parameters, except local state,
    /// which stays in the process.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub state: Vec<StateOf>,
    /// The answer of the process to [`Request::Gradient`].
    #[serde(default)]
    pub answers: Answers,
    /// The number of examples that the process can compute gradients of.
    pub examples: u32,
    /// Where the process wants the numbers of rows.
    #[serde(default, skip_serializing_if = "is_default")]
    pub rows: RowsIn,
    /// Tells datasets with different rows apart. All processes of a job must have the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

/// Where a process receives the numbers of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RowsIn {
    /// In the line, up to 8,192 of them; more follow the values.
    #[default]
    Line,
    /// After the values, where they are read in less time than JSON.
    After,
}

/// A tensor of the model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorOf {
    /// The name.
    pub name: String,
    /// The dimensions, the slowest first; none for a single number.
    pub shape: Vec<u32>,
}

/// A tensor of state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateOf {
    /// The name.
    pub name: String,
    /// The dimensions, the slowest first; none for a single number.
    pub shape: Vec<u32>,
    /// How the states of several workers become one.
    pub combine: CombineOf,
    /// The type in files.
    #[serde(default, rename = "type")]
    pub kind: StateType,
}

/// How the states of several workers become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CombineOf {
    /// They do not: each process keeps its own.
    Local,
    /// By the mean of their changes.
    Mean,
    /// The change of the first part of the data in an update counts, which is its first worker's.
    First,
}

/// The type of a tensor of state in files; in messages it is 32-bit floating point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StateType {
    /// 32-bit floating point.
    #[default]
    F32,
    /// 64-bit integers, such as counters; exact up to 16,777,216.
    I64,
}

/// The answer to [`Request::Start`] and [`Request::Gradient`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The number of the request; none in the answer to [`Request::Start`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// The mean loss of the rows; none if it is not finite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// The number of values that follow the line.
    #[serde(default)]
    pub values: usize,
    /// Why the mini-batch is to be left out: no values need follow, and the process goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip: Option<String>,
    /// Why there is no answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The answer to [`Request::Evaluate`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Evaluated {
    /// The number of the request.
    #[serde(default)]
    pub id: Option<u64>,
    /// The number of examples that were evaluated.
    #[serde(default)]
    pub examples: u64,
    /// Their mean loss; none if it is not finite.
    #[serde(default)]
    pub loss: Option<f64>,
    /// Metrics by name; none if one is not finite.
    #[serde(default)]
    pub metrics: BTreeMap<String, Option<f64>>,
    /// Recall of each class; none for a class without examples.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recall: Vec<Option<f64>>,
    /// F1 of each class.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub f1: Vec<Option<f64>>,
    /// Why there is no evaluation. A process that skips it has none either.
    #[serde(default, alias = "skip", skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// An answer of the process to a request.
pub(super) trait Reply: for<'de> Deserialize<'de> {
    /// Names it in errors.
    const WANTED: &'static str;

    /// The number of the request.
    fn id(&self) -> Option<u64>;

    /// Why there is no answer.
    fn error(&self) -> Option<&str>;

    /// The number of values that follow the line, if it announces one.
    fn values(&self) -> Option<usize> {
        None
    }

    /// Checks the answer to request `asked`, 0 for one without a number. Returns the number of
    /// values that follow, where `wanted` are due.
    ///
    /// A connection has one request at a time, so any other number is an error, also one from
    /// before: another answer may never come.
    fn check(&self, asked: u64, wanted: usize) -> Result<usize, ProtocolError> {
        let (given, is_refusal) = (self.id(), self.error().is_some());
        match given {
            None if asked == 0 || is_refusal => {}
            Some(given) if given == asked => {}
            _ => return Err(ProtocolError::Id { given, asked }),
        }
        match self.values() {
            None => Ok(0),
            Some(given) if given == wanted => Ok(given),
            Some(given) => Err(ProtocolError::Values { given, wanted }),
        }
    }
}

impl Reply for Answer {
    const WANTED: &'static str = "an answer";

    fn id(&self) -> Option<u64> {
        self.id
    }

    fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    fn values(&self) -> Option<usize> {
        let Self { id, values, skip, error, .. } = self;
        // The start cannot be left out, and values that are announced are read all the same.
        let is_skipped = skip.is_some() && id.is_some() && *values == 0;
        (error.is_none() && !is_skipped).then_some(*values)
    }
}

impl Reply for Evaluated {
    const WANTED: &'static str = "an evaluation";

    fn id(&self) -> Option<u64> {
        self.id
    }

    fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }
}

/// A [`Description`], or why there is none.
impl Reply for serde_json::Value {
    const WANTED: &'static str = "a description";

    fn id(&self) -> Option<u64> {
        None
    }

    fn error(&self) -> Option<&str> {
        self.get("error")?.as_str()
    }
}

/// A request or an answer that cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The other end is gone.
    #[error("it has ended, or closed its output")]
    Ended,
    /// Nothing arrived in time.
    #[error("it did not answer in time")]
    Late,
    /// The connection failed.
    #[error("its input or output failed: {0}")]
    Io(io::Error),
    /// A line is longer than any message.
    #[error("it wrote a line of more than {MOST_LINE} bytes")]
    Long,
    /// A line is no message of the protocol.
    #[error(
        "it wrote {line:?} where {wanted} was expected ({why}); standard output is for the \
         protocol alone, print to standard error"
    )]
    Line {
        /// The beginning of the line.
        line: String,
        /// The expected message.
        wanted: &'static str,
        /// The error of the JSON reader.
        why: String,
    },
    /// The number of values is not the number of parameters.
    #[error("it announced {given} values where the model has {wanted}")]
    Values {
        /// The number in the line.
        given: usize,
        /// The number of parameters.
        wanted: usize,
    },
    /// An answer to another request than the one that waits for it.
    #[error("{}", wrong_id(*.given, *.asked))]
    Id {
        /// The number in the answer, if it has one.
        given: Option<u64>,
        /// The number of the request; 0 for the start, which has none.
        asked: u64,
    },
}

fn wrong_id(given: Option<u64>, asked: u64) -> String {
    match (given, asked) {
        (Some(given), 0) => {
            format!("it answered id {given} to start, which has no id; leave it out")
        }
        (Some(given), asked) => {
            format!(
                "it answered id {given} where {asked} was asked; send the id of the request back"
            )
        }
        (None, asked) => {
            format!(
                "it answered without id where {asked} was asked; send the id of the request back"
            )
        }
    }
}

impl From<io::Error> for ProtocolError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset => Self::Ended,
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::Late,
            _ => Self::Io(error),
        }
    }
}

/// Writes a message: a line and the values after it.
///
/// # Errors
/// The error of `to`.
pub fn write_message(
    to: &mut dyn Write,
    line: &impl Serialize,
    values: &[f32],
    rows: &[u32],
) -> Result<(), ProtocolError> {
    let mut bytes = serde_json::to_vec(line).map_err(io::Error::from)?;
    bytes.push(b'\n');
    if size_of_val(values) > ONE_WRITE && cfg!(target_endian = "little") {
        to.write_all(&bytes)?;
        to.write_all(bytemuck::cast_slice(values))?;
        bytes.clear();
    } else {
        append(values, &mut bytes);
    }
    bytes.extend(rows.iter().flat_map(|row| row.to_le_bytes()));
    to.write_all(&bytes)?;
    Ok(to.flush()?)
}

fn append(values: &[f32], bytes: &mut Vec<u8>) {
    if cfg!(target_endian = "little") {
        bytes.extend_from_slice(bytemuck::cast_slice(values));
    } else {
        bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    }
}

/// Reads a line, which is a message of type `M`; `wanted` names it in errors. Returns none at the
/// end of the input.
///
/// # Errors
/// [`ProtocolError`] if there is no such message.
pub fn read_line<M: for<'de> Deserialize<'de>>(
    from: &mut impl BufRead,
    wanted: &'static str,
) -> Result<Option<M>, ProtocolError> {
    let mut line = Vec::new();
    from.take(MOST_LINE).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.last() != Some(&b'\n') {
        let is_long = line.len() as u64 == MOST_LINE;
        return Err(if is_long { ProtocolError::Long } else { ProtocolError::Ended });
    }
    let first = match serde_json::from_slice(&line) {
        Ok(message) => return Ok(Some(message)),
        Err(error) => error,
    };
    // Python's and other writers of JSON write numbers that are not finite as words.
    let text = String::from_utf8_lossy(&line);
    let finite =
        text.replace("-Infinity", "null").replace("Infinity", "null").replace("NaN", "null");
    serde_json::from_str(&finite).map(Some).map_err(|_same| ProtocolError::Line {
        line: text.trim_end().chars().take(80).collect(),
        wanted,
        why: first.to_string(),
    })
}

/// Reads as many values as `values` has.
///
/// # Errors
/// [`ProtocolError`] if the input ends before.
pub fn read_values(from: &mut impl Read, values: &mut [f32]) -> Result<(), ProtocolError> {
    from.read_exact(bytemuck::cast_slice_mut(values))?;
    if cfg!(target_endian = "big") {
        values.iter_mut().for_each(|value| *value = f32::from_bits(value.to_bits().swap_bytes()));
    }
    Ok(())
}

/// Reads `count` row numbers.
///
/// # Errors
/// [`ProtocolError`] if the input ends before.
pub fn read_rows(from: &mut impl Read, count: usize) -> Result<Vec<u32>, ProtocolError> {
    let mut rows = Vec::new();
    let mut bytes = [0; size_of::<u32>()];
    for _ in 0..count {
        from.read_exact(&mut bytes)?;
        rows.push(u32::from_le_bytes(bytes));
    }
    Ok(rows)
}

impl Order {
    /// An order with `values` parameters; the rows to send after the values, if `rows` are too many
    /// for the line or the process does not want them there.
    pub(super) fn of(
        id: u64,
        (rows, place): (Option<&[u32]>, RowsIn),
        values: usize,
    ) -> (Self, &[u32]) {
        let most = match place {
            RowsIn::Line => MOST_ROWS_IN_LINE,
            RowsIn::After => 0,
        };
        match rows {
            Some(rows) if rows.len() > most => {
                (Self { id, rows: None, rows_after: rows.len(), values }, rows)
            }
            rows => (Self { id, rows: rows.map(Into::into), rows_after: 0, values }, &[]),
        }
    }
}
