//! The first lines of a table: what separates its columns, and whether rows have names.

use std::cell::Cell;
use std::io::{self, BufRead, Cursor, ErrorKind, Read};
use std::rc::Rc;

use csv::{ByteRecord, ReaderBuilder, Trim};

use super::options::Dialect;
use super::spaces::Spaces;

/// Separators of columns that are found without an option, the likeliest last.
pub(super) const SEPARATORS: [u8; 3] = *b"\t;,";
/// Most bytes of a line, or of a record whose quoted values have several lines.
const LONGEST: usize = 8 << 20;
/// Lines, and bytes, that show how a table is written.
const ENOUGH: (usize, usize) = (32, 64 << 10);
/// Fewest lines that show it, unless the file has fewer.
const FEWEST: usize = 3;
/// Most columns of a table.
const MOST_COLUMNS: usize = 1 << 20;

/// The parser of a table's records.
pub(super) type Records = csv::Reader<Box<dyn Read>>;

/// The beginning of a table, from the line with the names on.
pub(super) struct Head {
    /// The bytes that were read: whole lines, unless the file ends in one.
    lines: Vec<u8>,
    rest: Box<dyn BufRead>,
    pub(super) separator: u8,
    comment: Option<u8>,
    /// Lines before these.
    pub(super) skipped: u64,
}

impl Head {
    /// Reads the first lines of a table, after the lines before its names.
    pub(super) fn read(
        mut rest: Box<dyn BufRead>,
        dialect: &Dialect,
        names: u64,
    ) -> Result<Self, String> {
        let unread = |error: io::Error| format!("cannot be read: {error}");
        let mut skipped = 0;
        let mut lines = first_lines(&mut rest).map_err(unread)?;
        if lines.starts_with("\u{feff}".as_bytes()) {
            lines.drain(..3);
        }
        while skipped + 1 < names {
            let Some(end) = end_of_line(&lines) else {
                return Err(format!("header={names}: it has {skipped} lines before its end"));
            };
            lines.drain(..end);
            skipped += 1;
            if lines.iter().filter(|&&byte| is_end(byte)).count() < FEWEST {
                lines.extend(first_lines(&mut rest).map_err(unread)?);
            }
        }
        if let Some(b'{' | b'[') = lines.trim_ascii_start().first() {
            return Err("it is JSON, and no table: write it as one, for lines of JSON by \
                        python3 -c 'import pandas, sys; pandas.read_json(sys.argv[1], \
                        lines=True).to_csv(sys.argv[2], index=False)' FILE FILE.csv"
                .into());
        }
        let named = named_separator(&lines);
        if let Some((_, end)) = named {
            lines.drain(..end);
            skipped += 1;
        }
        let comment = dialect.comment;
        let guess = || named.map_or_else(|| likeliest(&lines, dialect), |(separator, _)| separator);
        let separator = dialect.delimiter.unwrap_or_else(guess);
        let head = Self { lines, rest, separator, comment, skipped };
        let columns = head.first_line().iter().filter(|&&byte| byte == separator).count();
        if columns >= MOST_COLUMNS {
            return Err(format!(
                "its first line has {columns} columns or more, and at most {MOST_COLUMNS} are \
                 possible"
            ));
        }
        Ok(head)
    }

    /// The first line, without its end.
    pub(super) fn first_line(&self) -> &[u8] {
        self.lines.split(|&byte| is_end(byte)).next().unwrap_or_default()
    }

    /// True if the first line ends with CR and LF.
    pub(super) fn has_carriage_returns(&self) -> bool {
        self.lines[self.first_line().len()..].starts_with(b"\r\n")
    }

    /// The first records, without lines of comments.
    pub(super) fn records(&self) -> Vec<ByteRecord> {
        first_records(&self.lines, self.separator, self.comment, ENOUGH.0)
    }

    /// The parser of all records. It ends with an error once it reads more bytes than are left in
    /// the allowance, which [`Allowance::renew`] fills up before each record.
    pub(super) fn parser(self) -> (Records, Allowance) {
        let allowance = Allowance::default();
        let left = Rc::clone(&allowance.left);
        let bytes = Bounded { bytes: Cursor::new(self.lines).chain(self.rest), left };
        (parser(bytes, self.separator, self.comment), allowance)
    }
}

/// True if each row has a name before its first value: the first records, after the names of the
/// columns, have a value more than there are names, as R writes them.
pub(super) fn have_row_names(records: &[ByteRecord]) -> bool {
    let [names, first, others @ ..] = records else { return false };
    let is_longer = |row: &ByteRecord| row.len() == names.len() + 1;
    let lasts = |row: &ByteRecord| !row.iter().next_back().unwrap_or_default().is_empty();
    if !is_longer(first) || !others.iter().all(is_longer) || !lasts(first) {
        return false;
    }
    let text = |row: &ByteRecord| String::from_utf8_lossy(&row[0]).into_owned();
    let counts = |row: &ByteRecord| text(row).parse().ok();
    match (counts(first), others.first().map(counts)) {
        // A number that is not counted is a value: a decimal comma, for example.
        (Some(one @ 0..=1), next) => next.is_none_or(|next: Option<u64>| next == Some(one + 1)),
        (Some(_), _) => false,
        (None, _) => text(first).parse::<f64>().is_err(),
    }
}

/// Bytes that may be read until the end of a record.
#[derive(Default)]
pub(super) struct Allowance {
    left: Rc<Cell<usize>>,
}

impl Allowance {
    /// Allows a record as long as records may be, and what the parser reads ahead.
    pub(super) fn renew(&self) {
        self.left.set(LONGEST + ENOUGH.1);
    }
}

/// Bytes of records that are not too long.
struct Bounded<R> {
    bytes: R,
    left: Rc<Cell<usize>>,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.left.get();
        if left == 0 {
            return Err(too_long());
        }
        let most = into.len().min(left);
        let read = self.bytes.read(&mut into[..most])?;
        self.left.set(left - read);
        Ok(read)
    }
}

fn too_long() -> io::Error {
    let problem = format!(
        "a line has no end within {} MiB; is it a table in text, and does each quotation mark have \
         its second?",
        LONGEST >> 20
    );
    io::Error::new(ErrorKind::InvalidData, problem)
}

fn parser<'a>(
    bytes: impl Read + 'a,
    separator: u8,
    comment: Option<u8>,
) -> csv::Reader<Box<dyn Read + 'a>> {
    let bytes: Box<dyn Read> = match separator {
        b' ' => Box::new(Spaces::new(bytes)),
        _ => Box::new(bytes),
    };
    let builder = &mut ReaderBuilder::new();
    let builder = builder.delimiter(separator).comment(comment).trim(Trim::All);
    builder.has_headers(false).flexible(true).from_reader(bytes)
}

const fn is_end(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}

/// The place after the first line.
fn end_of_line(bytes: &[u8]) -> Option<usize> {
    let end = bytes.iter().position(|&byte| is_end(byte))?;
    Some(end + if bytes[end..].starts_with(b"\r\n") { 2 } else { 1 })
}

/// Reads whole lines that show how a table is written; all of a file that is shorter, and part of
/// a line that is too long.
fn first_lines(bytes: &mut dyn BufRead) -> io::Result<Vec<u8>> {
    let (mut lines, mut count) = (Vec::new(), 0);
    loop {
        let begin = bytes.fill_buf()?;
        if begin.is_empty() {
            return Ok(lines);
        }
        let is_enough =
            count >= ENOUGH.0 || (count >= FEWEST && lines.len() + begin.len() > ENOUGH.1);
        let last = begin.iter().position(|&byte| is_end(byte));
        if let (true, Some(last)) = (is_enough, last) {
            // The line that began ends here. The LF after its CR is read with the rest.
            lines.extend_from_slice(&begin[..=last]);
            bytes.consume(last + 1);
            return Ok(lines);
        }
        count += begin.iter().filter(|&&byte| is_end(byte)).count();
        let read = begin.len();
        lines.extend_from_slice(begin);
        bytes.consume(read);
        if lines.len() > LONGEST {
            return if count > 0 { Ok(lines) } else { Err(too_long()) };
        }
    }
}

/// The separator that Excel reads in a first line such as `sep=;`, and the place after that line.
fn named_separator(bytes: &[u8]) -> Option<(u8, usize)> {
    let end = end_of_line(bytes)?;
    let line = bytes[..end].trim_ascii_end();
    let line = line.strip_prefix(b"\"").and_then(|it| it.strip_suffix(b"\"")).unwrap_or(line);
    match line.split_at_checked(4)? {
        (word, &[separator]) if word.eq_ignore_ascii_case(b"sep=") => Some((separator, end)),
        // The line's own end was trimmed.
        (word, []) if word.eq_ignore_ascii_case(b"sep=") => Some((b'\t', end)),
        _ => None,
    }
}

/// The first records: whole ones, unless the bytes end in one.
fn first_records(bytes: &[u8], separator: u8, comment: Option<u8>, most: usize) -> Vec<ByteRecord> {
    let mut records = parser(bytes, separator, comment);
    records.byte_records().take(most).map_while(Result::ok).collect()
}

/// The separator by which the first lines have equally many columns, and most of them; if there is
/// none, the most frequent one in the first line. A comma before fractions is the last choice.
fn likeliest(lines: &[u8], dialect: &Dialect) -> u8 {
    let is_free = |separator: u8| !(dialect.notation.decimal_comma && separator == b',');
    let columns = |separator: u8| {
        let records = first_records(lines, separator, dialect.comment, FEWEST);
        let mut lengths = records.iter().map(ByteRecord::len);
        let first = lengths.next().filter(|&first| first > 1 && records.len() > 1)?;
        lengths.all(|length| length == first).then_some(first)
    };
    let even = SEPARATORS.into_iter().filter_map(|it| Some(((is_free(it), columns(it)?), it)));
    if let Some((_, separator)) = even.max_by_key(|&(key, _)| key) {
        return separator;
    }
    let first = lines.split(|&byte| is_end(byte)).next().unwrap_or_default();
    let count = |separator: u8| first.iter().filter(|&&byte| byte == separator).count();
    SEPARATORS.into_iter().max_by_key(|&it| (is_free(it), count(it))).unwrap_or(b',')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Head {
        let text = text.to_owned().into_bytes();
        Head::read(Box::new(Cursor::new(text)), &Dialect::default(), 1).unwrap()
    }

    #[test]
    fn the_separator_gives_the_first_lines_equally_many_columns() {
        for (text, separator) in [
            ("a,b\n1,2\n", b','),
            ("a;b\n0,5;1,5\n", b';'),
            ("a (x, y)\tb (x, y)\tc\n1\t2\t3\n", b'\t'),
            ("a;b,c\n", b','),
            ("a\tb\tc\n", b'\t'),
            ("sep=|\na|b\n1|2\n", b'|'),
            ("\"sep=;\"\r\na,b;c\r\n1;2\r\n", b';'),
        ] {
            assert_eq!(head(text).separator, separator, "{text}");
        }
    }

    #[test]
    fn rows_have_names_if_they_have_a_value_more_that_is_a_text_or_counted() {
        for (text, have) in [
            ("a,b\n1,5,6\n2,7,8\n", true),
            ("a,b\nx,5,6\ny,7,8\n", true),
            ("a,b\n1,5,6\n3,7,8\n", false),
            ("a,b\n5,6\n7,8\n", false),
            ("a,b\n1,6,\n2,8,\n", false),
            ("a,b\n1,5,6\n7,8\n", false),
        ] {
            assert_eq!(have_row_names(&head(text).records()), have, "{text}");
        }
    }

    #[test]
    fn a_line_without_an_end_is_read_no_further_than_a_line_may_be_long() {
        struct Endless(u64);
        impl Read for Endless {
            fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
                into.fill(b'x');
                self.0 += into.len() as u64;
                assert!(self.0 < 3 * LONGEST as u64, "too much is read");
                Ok(into.len())
            }
        }
        let bytes = Box::new(io::BufReader::new(Endless(0)));
        let told = Head::read(bytes, &Dialect::default(), 1).err().unwrap();
        assert!(told.contains("no end within 8 MiB"), "{told}");
        let begin = Cursor::new(b"a,b\n1,2\n3,4\n5,6\n\"").chain(Endless(0));
        let bytes = Box::new(io::BufReader::with_capacity(16, begin));
        let (mut records, allowance) = Head::read(bytes, &Dialect::default(), 1).unwrap().parser();
        let mut record = ByteRecord::new();
        let told = loop {
            allowance.renew();
            match records.read_byte_record(&mut record) {
                Ok(is_one) => assert!(is_one),
                Err(error) => break error.to_string(),
            }
        };
        assert!(told.contains("no end within 8 MiB"), "{told}");
    }
}
