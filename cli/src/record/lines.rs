//! A file of lines that is written in blocks: numbers at a few nanoseconds each, nothing allocated.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;

/// Bytes that are written at once.
const BLOCK: usize = 128 * 1024;

/// A file that grows line by line. Only whole lines are handed to the system.
#[derive(Debug)]
pub(super) struct Lines {
    file: File,
    block: Vec<u8>,
}

impl Lines {
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        Ok(Self { file: File::create(path)?, block: Vec::with_capacity(BLOCK + BLOCK / 4) })
    }

    /// Goes on with a file after its first `length` bytes; what follows them is cut off.
    pub(super) fn go_on(path: &Path, length: u64) -> io::Result<Self> {
        Ok(Self { file: cut(path, length)?, block: Vec::with_capacity(BLOCK + BLOCK / 4) })
    }

    /// How long the file is once all lines so far are with the system, and the file.
    pub(super) fn so_far(&mut self) -> io::Result<(u64, File)> {
        self.flush()?;
        so_far(&self.file)
    }

    /// Appends a number.
    pub(super) fn number(&mut self, number: u64) {
        self.block.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    }

    /// Appends text.
    pub(super) fn text(&mut self, text: &[u8]) {
        self.block.extend_from_slice(text);
    }

    /// Where the rest of the line can be written to.
    pub(super) const fn writer(&mut self) -> &mut Vec<u8> {
        &mut self.block
    }

    /// Ends the line.
    pub(super) fn end(&mut self) -> io::Result<()> {
        self.block.push(b'\n');
        if self.block.len() >= BLOCK { self.flush() } else { Ok(()) }
    }

    /// Hands the lines so far to the system.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.file.write_all(&self.block)?;
        self.block.clear();
        Ok(())
    }

    /// Makes sure that everything is on disk.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.flush()?;
        self.file.sync_all()
    }
}

/// A file to go on with after its first `length` bytes; what follows them is cut off.
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

/// How much has been written to a file, and the file.
pub(super) fn so_far(mut file: &File) -> io::Result<(u64, File)> {
    Ok((file.stream_position()?, file.try_clone()?))
}
