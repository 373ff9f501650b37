//! The reader accepts the original format, compressed or not, and names the error in a bad file.

#![expect(clippy::unwrap_used, reason = "a failing helper fails its test")]

use std::fs::File;
use std::io::Write as _;

use flate2::write::GzEncoder;
use lzma_rust2::{XzOptions, XzWriter};
use proptest::prelude::*;
use pstrain_data::nsl_kdd::{Columns, ReadError, Record, read, read_file, write};
use pstrain_data::write_csv;
use ruzstd::encoding::CompressionLevel;

const LINE: &str = "0,tcp,http,SF,232,8153,0,0,0,0,0,1,0,0,0,0,0,0,0,0,0,0,5,5,0.20,0.20,0.00,0.00,\
    1.00,0.00,0.00,30,255,1.00,0.00,0.03,0.04,0.03,0.01,0.00,0.01,normal,21";

fn records(bytes: &[u8]) -> Result<Vec<Record>, ReadError> {
    let mut records = Vec::new();
    read(bytes, "some.txt", Columns::ALL, |record| {
        records.push(*record);
        Ok(())
    })?;
    Ok(records)
}

fn refused(text: &str) -> String {
    records(text.as_bytes()).unwrap_err().to_string()
}

/// [`LINE`] with the given column (counted from 1) replaced by `value`.
fn with(column: usize, value: &str) -> String {
    let mut fields: Vec<&str> = LINE.split(',').collect();
    fields[column - 1] = value;
    fields.join(",")
}

#[test]
fn a_line_survives_reading_and_writing() {
    let all = records(LINE.as_bytes()).unwrap();
    assert_eq!(all.len(), 1);
    assert_eq!((all[0].protocol, all[0].service, all[0].flag), (1, 24, 9));
    assert_eq!((all[0].numbers[1], all[0].numbers[21], all[0].attack.class()), (232.0, 0.2, 0));
    let mut written = Vec::new();
    write(&all[0], &mut written).unwrap();
    assert_eq!(String::from_utf8(written).unwrap(), format!("{LINE}\n"));
}

#[test]
fn the_difficulty_column_is_optional_and_lines_may_end_with_crlf() {
    let short = LINE.trim_end_matches(",21");
    assert_eq!(records(format!("{short}\r\n{short}\r\n").as_bytes()).unwrap().len(), 2);
    assert_eq!(
        refused(&format!("{LINE}\n{short}\n")),
        "some.txt:2: 42 columns, but the lines before have 43; repair this line"
    );
}

#[test]
fn a_byte_order_mark_is_skipped_at_the_start_only() {
    assert_eq!(records(format!("\u{feff}{LINE}\n{LINE}\n").as_bytes()).unwrap().len(), 2);
    let later = refused(&format!("{LINE}\n\u{feff}{LINE}\n"));
    assert!(later.starts_with("some.txt:2: column 1 (duration)"), "{later}");
}

#[test]
fn errors_name_line_column_and_value() {
    let third = |line: &str| refused(&format!("{LINE}\n{LINE}\n{line}\n{LINE}\n"));
    assert!(third(&with(3, "foo")).starts_with(
        "some.txt:3: column 3 (service): unknown service \"foo\"; allowed are IRC, X11"
    ));
    assert_eq!(
        third(&with(2, "TCP")),
        "some.txt:3: column 2 (protocol_type): unknown protocol \"TCP\"; allowed are icmp, tcp, udp"
    );
    assert_eq!(third(&with(23, "5x")), "some.txt:3: column 23 (count): \"5x\" is not a number");
    assert_eq!(third(&with(1, "")), "some.txt:3: column 1 (duration): \"\" is not a number");
    assert_eq!(
        third(&with(5, "1e99")),
        "some.txt:3: column 5 (src_bytes): \"1e99\" is not a finite number; repair or remove the \
         record"
    );
    assert_eq!(
        third(&with(42, "ddos")),
        "some.txt:3: column 42 (label): unknown attack \"ddos\"; expected normal or one of the \
         data set's 39 attacks, such as neptune"
    );
    assert!(third(&with(42, "smurf.")).ends_with("this may be a KDD Cup 1999 file"));
    assert!(third(&with(43, "hard")).contains("column 43 (difficulty): \"hard\" is not a number"));
    assert_eq!(
        third("1,2,3"),
        "some.txt:3: 3 columns, but the lines before have 43; repair this line"
    );
}

#[test]
fn error_line_numbers_count_blank_lines_and_crlf_like_an_editor() {
    let bad = with(3, "foo");
    for (text, line) in [
        (format!("{LINE}\r\n{LINE}\r\n{bad}\r\n"), 3),
        (format!("\n\n{LINE}\n\n\n{bad}"), 6),
        (bad, 1),
    ] {
        assert!(refused(&text).starts_with(&format!("some.txt:{line}: ")), "{}", refused(&text));
    }
}

#[test]
fn numbers_outside_the_requested_columns_are_validated() {
    let bad = with(5, "nan");
    let result = read(bad.as_bytes(), "f", Columns::NONE, |_| Ok::<(), ReadError>(()));
    assert!(result.unwrap_err().to_string().contains("column 5 (src_bytes): \"nan\""));
}

#[test]
fn files_of_another_format_are_refused() {
    assert!(refused("").starts_with("some.txt: empty file; expected NSL-KDD records"));
    assert!(refused("label\n").starts_with("some.txt:1: 1 column, but a record of NSL-KDD has 43"));
    assert_eq!(
        refused(&format!("{}\n{LINE}\n", with(1, "duration"))),
        "some.txt:1: the first line names the columns, but NSL-KDD files have no header; remove \
         that line"
    );
    let binary = records(b"\x89PNG\r\n\x1a\n\0\0").unwrap_err().to_string();
    assert!(binary.contains("not text; expected a plain NSL-KDD file"), "{binary}");
}

/// Compresses `plain` with `packer`.
fn packed(plain: &[u8], packer: &str) -> Vec<u8> {
    match packer {
        "gzip" => {
            let mut packer = GzEncoder::new(Vec::new(), flate2::Compression::fast());
            packer.write_all(plain).unwrap();
            packer.finish().unwrap()
        }
        "xz" => {
            let mut packer = XzWriter::new(Vec::new(), XzOptions::with_preset(1)).unwrap();
            packer.write_all(plain).unwrap();
            packer.finish().unwrap()
        }
        _ => ruzstd::encoding::compress_to_vec(plain, CompressionLevel::Fastest),
    }
}

#[test]
fn compressed_files_are_recognised_by_their_magic_bytes_and_damage_is_reported() {
    for packer in ["gzip", "xz", "zstd"] {
        let folder = tempfile::tempdir().unwrap();
        let plain = folder.path().join("plain.csv");
        write_csv(2000, 3, &mut File::create(&plain).unwrap()).unwrap();
        let text = std::fs::read(&plain).unwrap();
        let all = records(&text).unwrap();
        let bytes = packed(&text, packer);
        let odd_name = folder.path().join("data");
        let from_disk = |bytes: &[u8]| {
            File::create(&odd_name).unwrap().write_all(bytes).unwrap();
            let mut records = Vec::new();
            read_file(&odd_name, Columns::ALL, |record| {
                records.push(*record);
                Ok::<(), ReadError>(())
            })?;
            Ok::<_, ReadError>(records)
        };
        assert_eq!(from_disk(&bytes).unwrap(), all, "{packer}");
        // A concatenation of compressed files reads as one file.
        assert_eq!(from_disk(&[&bytes[..], &bytes[..]].concat()).unwrap().len(), 4000, "{packer}");

        let mut flipped = bytes.clone();
        flipped[bytes.len() / 2] ^= 0x10;
        for broken in [&bytes[..bytes.len() - 20], &bytes[..bytes.len() / 2], &flipped] {
            let told = from_disk(broken).unwrap_err().to_string();
            let damaged = format!("data: {packer}-compressed file is damaged or ends early");
            // Damage may also show as malformed text before the decompressor detects it.
            assert!(told.contains(&damaged) || told.contains("data:"), "{packer}: {told}");
        }
        let told = from_disk(&bytes[..bytes.len() - 20]).unwrap_err().to_string();
        assert!(told.contains("is damaged or ends early; fetch or pack it again"), "{told}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        let _ = records(&bytes);
        for magic in [&[0x1f, 0x8b, 8][..], b"\xfd7zXZ\0", &[0x28, 0xb5, 0x2f, 0xfd]] {
            let file = tempfile::NamedTempFile::new().unwrap();
            file.as_file().write_all(&[magic, &bytes[..]].concat()).unwrap();
            prop_assert!(read_file(file.path(), Columns::ALL, |_| Ok::<(), ReadError>(())).is_err());
        }
    }

    #[test]
    fn any_field_in_any_column_is_read_or_refused(column in 1_usize..=43, field in "[^,\r\n]{0,60}") {
        if let Err(error) = records(with(column, &field).as_bytes()) {
            let told = error.to_string();
            prop_assert!(told.starts_with("some.txt:1: "), "{told}");
            prop_assert!(told.contains(&format!("column {column} (")) || told.contains("not \
                text"), "{told}");
        }
    }
}
