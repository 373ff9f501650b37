//! A file of checked records: what was appended before a [`Log::commit`] that succeeded is there
//! after a crash.
//!
//! It knows neither what a record means nor who writes it. Records go out in blocks, one for each
//! commit, and no block is begun before the one before is on the disk. So what a crash left
//! half-written is the last block, and it is cut off when the file is opened again; a bad block
//! that others follow is damage, and an error, for it was promised to be kept.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use pstrain_wire::crc32c;

use super::disk::{Disk, ordinary, replace};

/// What a log begins with: its name and the version of its form. Its mark follows.
const MAGIC: [u8; 8] = *b"PSTRLOG4";
/// Bytes before the first block.
const BEGIN: usize = MAGIC.len() + size_of::<u64>();
/// What a block begins with.
const MARK: [u8; 4] = *b"\xb1ock";

/// A log that records are appended to.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    file: File,
    /// Records that were appended and not committed.
    pending: Vec<u8>,
    /// Blocks that are committed.
    blocks: u64,
    /// Their bytes, and the file's own head.
    committed: u64,
}

/// What opening a log found.
#[derive(Debug)]
pub struct Opened {
    /// The log, ready for what comes next.
    pub log: Log,
    /// Records in it.
    pub records: u64,
    /// Bytes that were never committed, which were cut off.
    pub torn: u64,
}

/// What stands before the records of a block.
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

    /// None if these are not the bytes of a head.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let number = u64::from_le_bytes(bytes.get(4..12)?.try_into().ok()?);
        let length = u32::from_le_bytes(bytes.get(12..16)?.try_into().ok()?);
        let checksum = u32::from_le_bytes(bytes.get(16..20)?.try_into().ok()?);
        let head = Self { number, length, checksum };
        (bytes.get(..Self::BYTES)? == head.encode()).then_some(head)
    }
}

impl Log {
    /// A new, empty log. Whoever opens it must know its `mark`.
    ///
    /// # Errors
    /// [`LogError`] if there is a file already, or it cannot be written.
    pub fn create(disk: &impl Disk, path: &Path, mark: u64) -> Result<Self, LogError> {
        let failed = |why| LogError::new(path, Problem::Io("cannot be created", why));
        if path.exists() {
            return Err(failed(io::ErrorKind::AlreadyExists.into()));
        }
        replace(disk, path, &begin(mark)).map_err(failed)?;
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(failed)?;
        let committed = BEGIN as u64;
        Ok(Self { path: path.to_owned(), file, pending: Vec::new(), blocks: 0, committed })
    }

    /// Opens the log with this `mark`, hands each of its records to `take` in order, and cuts off
    /// what was never committed. There is no such thing in one that `has_successor`: it was left
    /// when it was whole.
    ///
    /// # Errors
    /// [`LogError`] if the file cannot be read or written, is no log or another one, or is damaged;
    /// and what `take` finds wrong with a record.
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
        let log = Self { path: path.to_owned(), file, pending: Vec::new(), blocks, committed };
        Ok(Opened { log, records, torn })
    }

    /// Adds a record made of these parts; it is kept once [`Self::commit`] has succeeded.
    pub fn append(&mut self, parts: &[&[u8]]) {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        self.pending.extend_from_slice(&(length as u32).to_le_bytes());
        parts.iter().for_each(|part| self.pending.extend_from_slice(part));
    }

    /// Bytes that are committed.
    #[must_use]
    pub const fn committed(&self) -> u64 {
        self.committed
    }

    /// Puts everything that was appended on the disk. If that does not succeed nothing is lost: it
    /// may be tried again, and the file stays as it was.
    ///
    /// # Errors
    /// [`LogError`] if it cannot be written, as on a full disk.
    pub fn commit(&mut self) -> Result<(), LogError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let written = self.write_block();
        if written.is_err() {
            // Half a block must not stand between this one and the next.
            let back = self.file.set_len(self.committed);
            let back = back.and_then(|()| self.file.seek(SeekFrom::Start(self.committed)));
            drop(back); // what is not cut off is overwritten, or cut off at the next start
        }
        written.map_err(|why| LogError::new(&self.path, Problem::Io("cannot be written", why)))?;
        self.committed += (Head::BYTES + self.pending.len()) as u64;
        self.blocks += 1;
        self.pending.clear();
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

/// What a log with this mark begins with.
fn begin(mark: u64) -> [u8; BEGIN] {
    let mut bytes = [0; BEGIN];
    bytes[..MAGIC.len()].copy_from_slice(&MAGIC);
    bytes[MAGIC.len()..].copy_from_slice(&mark.to_le_bytes());
    bytes
}

/// The next block, if there is a whole one of that number.
fn read_block(reader: &mut impl Read, number: u64, body: &mut Vec<u8>) -> io::Result<Option<Head>> {
    let mut bytes = Vec::with_capacity(Head::BYTES);
    reader.by_ref().take(Head::BYTES as u64).read_to_end(&mut bytes)?;
    let Some(head) = Head::decode(&bytes).filter(|head| head.number == number) else {
        return Ok(None);
    };
    body.clear();
    // No more memory than there are bytes, whatever the head says.
    reader.by_ref().take(u64::from(head.length)).read_to_end(body)?;
    let is_whole = body.len() == head.length as usize && crc32c(body) == head.checksum;
    Ok(is_whole.then_some(head))
}

/// The records of a block; none in place of what is cut short.
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

/// Whether any block after that `number` begins in the next `length` bytes.
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

/// What is wrong with a log.
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

impl std::error::Error for LogError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        None // the text has it already
    }
}

#[cfg(test)]
mod tests;
