//! A file of lines, written in blocks. A number costs a few nanoseconds and no allocation.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use pstrain_transports::journal::Space;
use serde::{Deserialize, Serialize};

/// Bytes written to the file at once.
const BLOCK: usize = 128 * 1024;

/// Bytes at the end of a file reserved for its last line.
const FLUSH_LIMIT: u64 = 64;

/// Space that records leave free on a disk: this many bytes, or this share (1 / `SHARE`) if that is
/// less.
const RESERVE: u64 = 64 * 1024 * 1024;
const SHARE: u64 = 16;

/// Why a file ends before the run does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Full {
    /// The file has reached its size limit.
    Limit,
    /// Little space on the disk is free.
    Disk,
}

/// The length of a file, and why it is full, if it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Written {
    length: u64,
    full: Option<Full>,
}

/// A file that grows line by line until it is full. Only complete lines reach the system.
#[derive(Debug)]
pub(super) struct Lines {
    path: PathBuf,
    file: File,
    block: Vec<u8>,
    /// Offset in the block of the line that is not complete yet.
    line: usize,
    /// Bytes written to the file.
    length: u64,
    most: Option<u64>,
    full: Option<Full>,
}

impl Lines {
    /// Creates a file of at most `most` bytes.
    pub(super) fn create(path: &Path, most: Option<u64>) -> io::Result<Self> {
        Ok(Self::new(path, File::create(path)?, most))
    }

    /// Reopens a file at the length that was `written`; the rest is cut off.
    pub(super) fn go_on(path: &Path, written: Written, most: Option<u64>) -> io::Result<Self> {
        let Written { length, full } = written;
        Ok(Self { length, full, ..Self::new(path, cut(path, length)?, most) })
    }

    fn new(path: &Path, file: File, most: Option<u64>) -> Self {
        let block = Vec::with_capacity(BLOCK + BLOCK / 4);
        Self { path: path.to_owned(), file, block, line: 0, length: 0, most, full: None }
    }

    /// Flushes; returns how far the file goes, and the file.
    pub(super) fn so_far(&mut self) -> io::Result<(Written, File)> {
        self.flush()?;
        Ok((Written { length: self.length, full: self.full }, self.file.try_clone()?))
    }

    /// Returns why the file takes no more lines, or None.
    pub(super) const fn full(&self) -> Option<Full> {
        self.full
    }

    /// Appends a number.
    pub(super) fn number(&mut self, number: u64) {
        self.block.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    }

    /// Appends text.
    pub(super) fn text(&mut self, text: &[u8]) {
        self.block.extend_from_slice(text);
    }

    /// Returns a buffer for the rest of the line.
    pub(super) const fn writer(&mut self) -> &mut Vec<u8> {
        &mut self.block
    }

    /// Ends the line; discards it if the file is full or would exceed its limit.
    pub(super) fn end(&mut self) -> io::Result<()> {
        self.block.push(b'\n');
        let length = self.length + self.block.len() as u64 + FLUSH_LIMIT;
        if self.full.is_none() && self.most.is_some_and(|most| length > most) {
            self.full = Some(Full::Limit);
        }
        if self.full.is_some() {
            self.block.truncate(self.line);
            return self.flush();
        }
        self.line = self.block.len();
        if self.line >= BLOCK { self.flush() } else { Ok(()) }
    }

    /// Writes the complete lines to the file.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if self.line == 0 {
            return Ok(());
        }
        self.file.write_all(&self.block[..self.line])?;
        self.length += self.line as u64;
        self.block.drain(..self.line);
        self.line = 0;
        if self.full.is_none() && !has_room(&self.path) {
            self.full = Some(Full::Disk);
        }
        Ok(())
    }

    /// Writes the last line of the file, for which space is reserved; it must be short.
    pub(super) fn last_words(&mut self, line: &str) -> io::Result<()> {
        self.flush()?;
        self.file.write_all(line.as_bytes())?;
        self.length += line.len() as u64;
        Ok(())
    }

    /// Flushes, and syncs the file to disk.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.flush()?;
        self.file.sync_all()
    }
}

/// True if the disk of `path` has space for the next blocks of all files of a record.
fn has_room(path: &Path) -> bool {
    Space::of(path)
        .map_or(true, |Space { total, free }| free >= RESERVE.min(total / SHARE) + 4 * BLOCK as u64)
}

/// Opens a file for writing after its first `length` bytes; the rest is cut off.
pub(super) fn cut(path: &Path, length: u64) -> io::Result<File> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    let found = file.metadata()?.len();
    if found < length {
        let why = format!("it has {found} bytes where {length} were written");
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
    }
    file.set_len(length)?;
    file.seek(SeekFrom::End(0))?;
    Ok(file)
}

/// Returns the length written so far, and the file.
pub(super) fn so_far(mut file: &File) -> io::Result<(u64, File)> {
    Ok((file.stream_position()?, file.try_clone()?))
}

/// Parses a number of a line; the error is in words.
pub(super) fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text:?} is no such number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(lines: &mut Lines, number: u64) {
        lines.number(number);
        lines.end().unwrap();
    }

    #[test]
    fn a_full_file_has_whole_lines_its_last_words_and_nothing_after_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        let mut lines = Lines::create(&path, Some(20_000)).unwrap();
        (1000..2000).for_each(|number| line(&mut lines, number));
        assert_eq!(lines.full(), None);
        (2000..9000).for_each(|number| line(&mut lines, number));
        assert_eq!(lines.full(), Some(Full::Limit));
        lines.last_words("full\n").unwrap();
        let (written, _) = lines.so_far().unwrap();
        line(&mut lines, 9999);
        lines.finish().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.len() > 19_900 && text.len() <= 20_000, "{}", text.len());
        let wanted: Vec<String> = (1000..9000).map(|number| number.to_string()).collect();
        let found: Vec<&str> = text.lines().collect();
        let (last, before) = found.split_last().unwrap();
        assert_eq!(*last, "full");
        assert!(before.iter().eq(wanted.iter().take(before.len())), "{before:?}");
        // A resumed run writes nothing after it, either.
        let mut lines = Lines::go_on(&path, written, Some(1_000_000)).unwrap();
        line(&mut lines, 9999);
        lines.finish().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }
}
