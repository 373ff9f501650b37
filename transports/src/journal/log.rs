//! Append-only file of checksummed records: after [`Log::commit`] has succeeded, a crash loses none
//! of the records appended before it.
//!
//! The log knows neither the meaning nor the writer of a record. Each commit writes one block, and
//! no block begins before the previous one is on disk. A crash can therefore leave only the last
//! block incomplete, and opening the file cuts that off. A bad block with others after it is
//! damage, and an error, since its records were promised to be kept.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use pstrain_wire::crc32c;

use super::disk::{Disk, ordinary, replace};

/// Magic number of a log: name and format version. The log's mark follows.
const MAGIC: [u8; 8] = *b"PSTRLOG6";
/// Bytes before the first block.
const BEGIN: usize = MAGIC.len() + size_of::<u64>();
/// Magic number of a block.
const MARK: [u8; 4] = *b"\xb1ock";

/// A log to which records are appended.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    file: File,
    /// Records that were appended but not committed.
    pending: Vec<u8>,
    /// Where the last of them begins.
    last: usize,
    /// Number of committed blocks.
    blocks: u64,
    /// Bytes of the committed blocks, plus the file's header.
    committed: u64,
}

/// Result of opening a log.
#[derive(Debug)]
pub struct Opened {
    /// The log, ready to append.
    pub log: Log,
    /// Number of records in the log.
    pub records: u64,
    /// Bytes that were cut off because they were never committed.
    pub torn: u64,
}

/// Header of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    number: u64,
    length: u32,
    checksum: u32,
}

impl Head {
    const BYTES: usize = 24;
    const CHECKED: usize = Self::BYTES - 4;

    fn encode(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&MARK);
        bytes[4..12].copy_from_slice(&self.number.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.length.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.checksum.to_le_bytes());
        let own = crc32c(&bytes[..Self::CHECKED]);
        bytes[Self::CHECKED..].copy_from_slice(&own.to_le_bytes());
        bytes
    }

    /// Returns `None` if the bytes are not a valid header.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let number = u64::from_le_bytes(bytes.get(4..12)?.try_into().ok()?);
        let length = u32::from_le_bytes(bytes.get(12..16)?.try_into().ok()?);
        let checksum = u32::from_le_bytes(bytes.get(16..20)?.try_into().ok()?);
        let head = Self { number, length, checksum };
        (bytes.get(..Self::BYTES)? == head.encode()).then_some(head)
    }
}

impl Log {
    /// Creates an empty log. [`Log::open`] requires the same `mark`.
    ///
    /// # Errors
    /// [`LogError`] if the file exists, or cannot be written.
    pub fn create(disk: &dyn Disk, path: &Path, mark: u64) -> Result<Self, LogError> {
        let failed = |why| LogError::new(path, Problem::Io("cannot be created", why));
        if path.exists() {
            return Err(failed(io::ErrorKind::AlreadyExists.into()));
        }
        replace(disk, path, &begin(mark)).map_err(failed)?;
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(failed)?;
        let committed = BEGIN as u64;
        Ok(Self { path: path.to_owned(), file, pending: Vec::new(), last: 0, blocks: 0, committed })
    }

    /// Opens the log with this `mark`, passes its records to `take` in order, and cuts off bytes
    /// that were never committed. A log that `has_successor` must not have any: it was complete
    /// when its successor was created.
    ///
    /// # Errors
    /// [`LogError`] if the file cannot be read or written, is not a log, has another mark or is
    /// damaged, or if `take` rejects a record.
    pub fn open(
        path: &Path,
        mark: u64,
        has_successor: bool,
        mut take: impl FnMut(&[u8]) -> Result<(), String>,
    ) -> Result<Opened, LogError> {
        let failed = |why| LogError::new(path, Problem::Io("cannot be read", why));
        ordinary(path).map_err(failed)?;
        let mut file = OpenOptions::new().read(true).write(true).open(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        let mut bytes = [0; BEGIN];
        if file.read_exact(&mut bytes).is_err() || !bytes.starts_with(&MAGIC) {
            return Err(LogError::new(path, Problem::NoLog));
        }
        if bytes != begin(mark) {
            return Err(LogError::new(path, Problem::Another));
        }
        let mut reader = io::BufReader::new(&mut file);
        let (mut blocks, mut records, mut committed) = (0, 0, BEGIN as u64);
        let mut body = Vec::new();
        while let Some(head) = read_block(&mut reader, blocks, &mut body).map_err(failed)? {
            for record in split(&body) {
                let damaged = || LogError::new(path, Problem::Damaged { at: committed });
                take(record.ok_or_else(damaged)?)
                    .map_err(|why| LogError::new(path, Problem::Record { at: committed, why }))?;
                records += 1;
            }
            blocks += 1;
            committed += Head::BYTES as u64 + u64::from(head.length);
        }
        let torn = length - committed;
        if torn > 0 {
            file.seek(SeekFrom::Start(committed)).map_err(failed)?;
            if has_successor || is_followed(&mut file, blocks, torn).map_err(failed)? {
                return Err(LogError::new(path, Problem::Damaged { at: committed }));
            }
            file.set_len(committed).map_err(failed)?;
            file.sync_all().map_err(failed)?;
        }
        file.seek(SeekFrom::Start(committed)).map_err(failed)?;
        let log =
            Self { path: path.to_owned(), file, pending: Vec::new(), last: 0, blocks, committed };
        Ok(Opened { log, records, torn })
    }

    /// Appends a record made of these parts; it is durable once [`Self::commit`] has succeeded.
    pub fn append(&mut self, parts: &[&[u8]]) {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        self.last = self.pending.len();
        self.pending.extend_from_slice(&(length as u32).to_le_bytes());
        parts.iter().for_each(|part| self.pending.extend_from_slice(part));
    }

    /// Removes the record appended last, unless it is committed.
    pub fn withdraw(&mut self) {
        self.pending.truncate(self.last);
    }

    /// Returns the size of the committed part of the file, in bytes.
    #[must_use]
    pub const fn committed(&self) -> u64 {
        self.committed
    }

    /// Writes all appended records to disk. A failure loses nothing: the file stays as it was, and
    /// the commit can be repeated.
    ///
    /// # Errors
    /// [`LogError`] if the file cannot be written, for example on a full disk.
    pub fn commit(&mut self) -> Result<(), LogError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let written = self.write_block();
        if written.is_err() {
            // A partial block must not stay between this block and the next.
            let back = self.file.set_len(self.committed);
            let back = back.and_then(|()| self.file.seek(SeekFrom::Start(self.committed)));
            drop(back); // the next commit overwrites the remainder, or the next start cuts it off
        }
        written.map_err(|why| LogError::new(&self.path, Problem::Io("cannot be written", why)))?;
        self.committed += (Head::BYTES + self.pending.len()) as u64;
        self.blocks += 1;
        self.pending.clear();
        self.last = 0;
        Ok(())
    }

    fn write_block(&mut self) -> io::Result<()> {
        let length = u32::try_from(self.pending.len()).map_err(io::Error::other)?;
        let checksum = crc32c(&self.pending);
        let head = Head { number: self.blocks, length, checksum };
        self.file.seek(SeekFrom::Start(self.committed))?;
        self.file.write_all(&head.encode())?;
        self.file.write_all(&self.pending)?;
        self.file.sync_data()
    }
}

/// Returns the header of a log with this mark.
fn begin(mark: u64) -> [u8; BEGIN] {
    let mut bytes = [0; BEGIN];
    bytes[..MAGIC.len()].copy_from_slice(&MAGIC);
    bytes[MAGIC.len()..].copy_from_slice(&mark.to_le_bytes());
    bytes
}

/// Reads the next block. Returns `None` if it is incomplete, invalid or not block `number`.
fn read_block(reader: &mut impl Read, number: u64, body: &mut Vec<u8>) -> io::Result<Option<Head>> {
    let mut bytes = Vec::with_capacity(Head::BYTES);
    reader.by_ref().take(Head::BYTES as u64).read_to_end(&mut bytes)?;
    let Some(head) = Head::decode(&bytes).filter(|head| head.number == number) else {
        return Ok(None);
    };
    body.clear();
    // Allocates no more than the file holds, even if the length is wrong.
    reader.by_ref().take(u64::from(head.length)).read_to_end(body)?;
    let is_whole = body.len() == head.length as usize && crc32c(body) == head.checksum;
    Ok(is_whole.then_some(head))
}

/// Splits a block into its records; `None` stands for a truncated record.
fn split(mut body: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    core::iter::from_fn(move || {
        if body.is_empty() {
            return None;
        }
        let record = body
            .split_first_chunk()
            .and_then(|(length, rest)| rest.split_at_checked(u32::from_le_bytes(*length) as usize));
        let (record, rest) = record.map_or((None, &[][..]), |(record, rest)| (Some(record), rest));
        body = rest;
        Some(record)
    })
}

/// True if a block with a number above `number` begins in the next `length` bytes.
fn is_followed(file: &mut File, number: u64, length: u64) -> io::Result<bool> {
    const STRIDE: usize = 1 << 20;
    let mut window = Vec::with_capacity(STRIDE + Head::BYTES);
    let mut left = length;
    while left > 0 {
        let read = Read::by_ref(file).take(left.min(STRIDE as u64)).read_to_end(&mut window)?;
        if read == 0 {
            break;
        }
        left -= read as u64;
        let starts = window.windows(MARK.len()).enumerate().filter(|(_, bytes)| *bytes == MARK);
        let mut heads = starts.filter_map(|(at, _)| Head::decode(&window[at..]));
        if heads.any(|head| head.number > number) {
            return Ok(true);
        }
        let keep = window.len().saturating_sub(Head::BYTES);
        window.drain(..keep);
    }
    Ok(false)
}

/// Error of a log, with the file's path. The text contains the inner error, so `source` returns
/// none.
#[derive(Debug)]
pub struct LogError {
    path: PathBuf,
    problem: Problem,
}

#[derive(Debug)]
enum Problem {
    Io(&'static str, io::Error),
    NoLog,
    Another,
    Damaged { at: u64 },
    Record { at: u64, why: String },
}

impl LogError {
    fn new(path: &Path, problem: Problem) -> Self {
        Self { path: path.to_owned(), problem }
    }
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.problem {
            Problem::Io(what, why) => write!(f, "{path} {what}: {why}"),
            Problem::NoLog => write!(f, "{path} is no log of this release of pstrain"),
            Problem::Another => write!(
                f,
                "{path} is not the log that belongs there, but that of another run or of another \
                 checkpoint; restore the right one from a backup"
            ),
            Problem::Damaged { at } => write!(
                f,
                "{path} is damaged at byte {at}, and what follows was promised to be kept: the \
                 disk or a copy of the file is faulty; restore it from a backup"
            ),
            Problem::Record { at, why } => write!(f, "{path}, block at byte {at}: {why}"),
        }
    }
}

impl std::error::Error for LogError {}

#[cfg(test)]
mod tests;
