//! Files of numbers as bytes: shared by the binary formats.

use std::fmt::Display;
use std::io::{self, BufRead, ErrorKind, Read as _};
use std::path::Path;

use crate::decompress::open;
use crate::error::DataError;

/// A file that is read from its beginning, plain or compressed.
pub(super) struct Bytes<'a> {
    path: &'a Path,
    bytes: Box<dyn BufRead + 'a>,
}

impl<'a> Bytes<'a> {
    pub(super) fn open(path: &'a Path) -> Result<Self, DataError> {
        let unread = |error| broken(path, format_args!("cannot be read: {error}"));
        Ok(Self { path, bytes: open(path).map_err(unread)?.bytes })
    }

    /// Bytes of a part of a file; `path` names it in errors.
    #[cfg(feature = "npz")]
    pub(super) fn of(path: &'a Path, bytes: impl BufRead + 'a) -> Self {
        Self { path, bytes: Box::new(bytes) }
    }

    /// The path.
    pub(super) const fn path(&self) -> &'a Path {
        self.path
    }

    /// Fills `buffer`; false if the file ends before its first byte.
    pub(super) fn fill(&mut self, buffer: &mut [u8]) -> Result<bool, DataError> {
        match self.bytes.fill_buf() {
            Ok([]) => return Ok(false),
            Ok(_) => {}
            Err(error) => return Err(self.unread(&error)),
        }
        self.bytes.read_exact(buffer).map_err(|error| self.unread(&error))?;
        Ok(true)
    }

    fn unread(&self, error: &io::Error) -> DataError {
        let problem = match error.kind() {
            ErrorKind::UnexpectedEof => "it ends early; fetch it again".to_owned(),
            _ => format!("cannot be read: {error}"),
        };
        broken(self.path, problem)
    }

    /// Reads the next `length` bytes into `record`; false if the file ends before the first. The
    /// buffer grows with what is read: a damaged header asks for no more memory than the file has.
    pub(super) fn record(
        &mut self,
        length: usize,
        record: &mut Vec<u8>,
    ) -> Result<bool, DataError> {
        if record.len() == length {
            return self.fill(record);
        }
        record.clear();
        let read = (&mut self.bytes).take(length as u64).read_to_end(record);
        match read.map_err(|error| self.unread(&error))? {
            0 => Ok(false),
            read if read < length => Err(self.unread(&ErrorKind::UnexpectedEof.into())),
            _ => Ok(true),
        }
    }

    /// Refuses bytes after the end of the contents.
    pub(super) fn end(&mut self, contents: &str) -> Result<(), DataError> {
        match self.fill(&mut [0])? {
            true => Err(broken(self.path, format!("it has more bytes than {contents}"))),
            false => Ok(()),
        }
    }

    /// Reads a line of at most `most` bytes.
    pub(super) fn line(&mut self, most: usize) -> Result<Vec<u8>, DataError> {
        let mut line = Vec::new();
        let mut limited = (&mut self.bytes).take(most as u64);
        let read = limited.read_until(b'\n', &mut line);
        read.map_err(|error| broken(self.path, format!("cannot be read: {error}")))?;
        Ok(line)
    }
}

/// The error of a file.
pub(super) fn broken(path: &Path, problem: impl Display) -> DataError {
    DataError::format(format!("{}: {problem}", path.display()))
}
