//! A file of lines that is written in blocks: numbers at a few nanoseconds each, nothing allocated.

use std::fs::File;
use std::io::{self, Write};
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
