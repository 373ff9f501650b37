//! Opens a plain or compressed file. The first bytes decide, not the name; they also tell files
//! that no format reads.

mod foreign;

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use lzma_rust2::XzReader;
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// Bytes per read from the disk.
const BUFFER: usize = 64 * 1024;
/// Endings of the names of compressed files, and of plain ones.
const ENDINGS: [&str; 4] = ["", ".gz", ".xz", ".zst"];
/// Memory limit of the xz decoder; the strongest ordinary setting needs 65 MiB.
const XZ_MEMORY_KIB: u32 = 256 * 1024;
/// The byte order mark that some programs write at the start of a text in UTF-8.
const MARK: &[u8] = "\u{feff}".as_bytes();

/// An opened file, and the name of its compression, if any.
pub(crate) struct Opened {
    pub(crate) bytes: Box<dyn BufRead>,
    pub(crate) compression: Option<&'static str>,
}

/// Opens `path` and decompresses it, if necessary.
///
/// # Errors
/// If it cannot be read, is no file, or its contents are of a kind that no format reads: the kind,
/// with a way to convert it.
pub(crate) fn open(path: &Path) -> io::Result<Opened> {
    let file = open_file(path)?;
    let mut opened = decompress(BufReader::with_capacity(BUFFER, file))?;
    match foreign::problem(opened.bytes.fill_buf()?) {
        Some(problem) => Err(io::Error::new(io::ErrorKind::InvalidData, problem)),
        None => Ok(opened),
    }
}

/// Opens a regular file: data are read several times, which pipes and devices do not allow.
pub(crate) fn open_file(path: &Path) -> io::Result<File> {
    let kind = fs::metadata(path)?.file_type();
    let problem = if kind.is_file() {
        return File::open(path);
    } else if kind.is_fifo() || kind.is_socket() {
        "a pipe cannot be read in passes; save it to a file first"
    } else if kind.is_dir() {
        "it is a folder; name a file"
    } else {
        "it is a device; name a file"
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, problem))
}

/// Returns the line with this number, from 1, without the byte order mark that the first may have.
pub(crate) fn without_mark(line: &[u8], number: u64) -> &[u8] {
    line.strip_prefix(MARK).filter(|_| number == 1).unwrap_or(line)
}

/// Returns the file called `name` in a folder, plain or compressed.
pub(crate) fn find(folder: &Path, name: &str) -> Option<PathBuf> {
    let files = ENDINGS.iter().map(|ending| folder.join(format!("{name}{ending}")));
    files.into_iter().find(|file| file.is_file())
}

fn decompress(mut packed: impl BufRead + 'static) -> io::Result<Opened> {
    let magic = packed.fill_buf()?;
    let (bytes, compression): (Box<dyn Read>, _) = if magic.starts_with(&[0x1f, 0x8b]) {
        (Box::new(MultiGzDecoder::new(packed)), "gzip")
    } else if magic.starts_with(&[0xfd, b'7', b'z', b'X', b'Z', 0]) {
        (Box::new(XzReader::new_mem_limit(packed, true, XZ_MEMORY_KIB)), "xz")
    } else if magic.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        (Box::new(ZstdReader::new(packed)), "zstd")
    } else {
        return Ok(Opened { bytes: Box::new(packed), compression: None });
    };
    let bytes = Box::new(BufReader::with_capacity(BUFFER, bytes));
    Ok(Opened { bytes, compression: Some(compression) })
}

/// Reader of all frames of a zstd file. It verifies the checksum of each frame that has one.
struct ZstdReader<R> {
    packed: R,
    frame: FrameDecoder,
    open: bool,
}

impl<R: BufRead> ZstdReader<R> {
    fn new(packed: R) -> Self {
        Self { packed, frame: FrameDecoder::new(), open: false }
    }
}

impl<R: BufRead> Read for ZstdReader<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.open {
                if self.packed.fill_buf()?.is_empty() {
                    return Ok(0);
                }
                self.frame.reset(&mut self.packed).map_err(io::Error::other)?;
                self.open = true;
            }
            while self.frame.can_collect() == 0 && !self.frame.is_finished() {
                self.frame
                    .decode_blocks(&mut self.packed, BlockDecodingStrategy::UptoBlocks(1))
                    .map_err(io::Error::other)?;
            }
            let read = self.frame.read(into)?;
            if read > 0 || into.is_empty() {
                return Ok(read);
            }
            let wanted = self.frame.get_checksum_from_data();
            if wanted.is_some() && wanted != self.frame.get_calculated_checksum() {
                return Err(io::Error::other("checksum of the frame does not match"));
            }
            self.open = false;
        }
    }
}
