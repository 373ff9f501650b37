//! Columns that are aligned by spaces.

use std::io::{self, Read};

/// Text in which each run of spaces and tabs outside quotation marks is one space, and lines
/// neither begin nor end with one.
pub(super) struct Spaces<R> {
    bytes: R,
    /// Bytes that are ready, from `given` on.
    ready: Vec<u8>,
    given: usize,
    /// True if spaces were read since the last other byte of the line.
    is_apart: bool,
    begins: bool,
    is_quoted: bool,
}

impl<R> Spaces<R> {
    pub(super) const fn new(bytes: R) -> Self {
        let (is_apart, begins, is_quoted) = (false, true, false);
        Self { bytes, ready: Vec::new(), given: 0, is_apart, begins, is_quoted }
    }

    fn add(&mut self, byte: u8) {
        match byte {
            b' ' | b'\t' if !self.is_quoted => {
                self.is_apart = true;
                return;
            }
            b'\n' | b'\r' if !self.is_quoted => self.begins = true,
            _ => {
                if self.is_apart && !self.begins {
                    self.ready.push(b' ');
                }
                self.begins = false;
            }
        }
        self.is_quoted ^= byte == b'"';
        self.is_apart = false;
        self.ready.push(byte);
    }
}

impl<R: Read> Read for Spaces<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.given == self.ready.len() {
            let mut bytes = [0; 4096];
            let read = self.bytes.read(&mut bytes)?;
            if read == 0 {
                return Ok(0);
            }
            self.ready.clear();
            self.given = 0;
            bytes[..read].iter().for_each(|&byte| self.add(byte));
        }
        let read = (&self.ready[self.given..]).read(into)?;
        self.given += read;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_spaces_are_one_space() {
        let text = "  a   b\t c  \n1  \"x  y\"  3\n\n 4 5 6";
        for size in 1..8 {
            let mut read = Vec::new();
            let mut spaces = Spaces::new(text.as_bytes());
            loop {
                let mut some = vec![0; size];
                let count = spaces.read(&mut some).unwrap();
                if count == 0 {
                    break;
                }
                read.extend_from_slice(&some[..count]);
            }
            assert_eq!(String::from_utf8(read).unwrap(), "a b c\n1 \"x  y\" 3\n\n4 5 6");
        }
    }
}
