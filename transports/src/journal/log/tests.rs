//! Logs after a crash, and logs with damage.

use std::fs;

use proptest::prelude::*;

use super::super::disk::Files;
use super::*;

const MARK_OF_RUN: u64 = 0x0123_4567_89ab_cdef;

/// Writes a log of `blocks`, each of them committed.
fn written(folder: &Path, blocks: &[Vec<Vec<u8>>]) -> PathBuf {
    let path = folder.join("log");
    drop(fs::remove_file(&path));
    let mut log = Log::create(&Files, &path, MARK_OF_RUN).unwrap();
    for block in blocks {
        block.iter().for_each(|record| log.append(&[record]));
        log.commit().unwrap();
    }
    path
}

fn read(path: &Path) -> Result<(Vec<Vec<u8>>, Opened), LogError> {
    let mut records = Vec::new();
    let opened = Log::open(path, MARK_OF_RUN, false, |record| {
        records.push(record.to_vec());
        Ok(())
    })?;
    Ok((records, opened))
}

fn sample() -> Vec<Vec<Vec<u8>>> {
    let record = |seed: u8, length: usize| (0..length).map(|at| seed ^ at as u8).collect();
    vec![
        vec![record(1, 0), record(2, 30)],
        vec![record(3, 300)],
        // Record bytes that look like the start of a block.
        vec![MARK.repeat(3), record(4, 1)],
        vec![record(5, 70), record(6, 7)],
    ]
}

#[test]
fn what_was_committed_comes_back_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = written(folder.path(), &sample());
    let (records, opened) = read(&path).unwrap();
    assert_eq!(records, sample().concat());
    assert_eq!((opened.records, opened.torn), (7, 0));
    let mut log = opened.log;
    log.append(&[b"more", b" of it"]);
    log.commit().unwrap();
    drop(log);
    assert_eq!(read(&path).unwrap().0.last().unwrap(), b"more of it");
}

#[test]
fn a_log_cut_anywhere_in_its_last_block_keeps_all_before_it_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let blocks = sample();
    let whole = fs::read(written(folder.path(), &blocks)).unwrap();
    let kept = fs::metadata(written(folder.path(), &blocks[..3])).unwrap().len();
    for cut in kept..whole.len() as u64 {
        let path = written(folder.path(), &[]);
        fs::write(&path, &whole[..cut as usize]).unwrap();
        let (records, opened) = read(&path).unwrap();
        assert_eq!(records, blocks[..3].concat(), "cut at {cut}");
        assert_eq!(opened.torn, cut - kept);
        let mut log = opened.log;
        log.append(&[b"next"]);
        log.commit().unwrap();
        let (records, opened) = read(&path).unwrap();
        assert_eq!((records.len(), opened.torn), (6, 0), "cut at {cut}");
    }
}

#[test]
fn a_flipped_bit_is_never_taken_for_what_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let blocks = sample();
    let whole = fs::read(written(folder.path(), &blocks)).unwrap();
    let last = fs::metadata(written(folder.path(), &blocks[..3])).unwrap().len() as usize;
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << bit;
            let path = folder.path().join("flipped");
            fs::write(&path, &bytes).unwrap();
            match read(&path) {
                // The log may treat a bad last block as one that was never committed.
                Ok((records, _)) => {
                    assert!(at >= last, "byte {at}, bit {bit}");
                    assert_eq!(records, blocks[..3].concat(), "byte {at}, bit {bit}");
                }
                Err(error) => assert!(at < last, "byte {at}, bit {bit}: {error}"),
            }
        }
    }
}

#[test]
fn what_another_log_goes_on_from_must_be_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = written(folder.path(), &sample());
    let whole = fs::read(&path).unwrap();
    let open = || Log::open(&path, MARK_OF_RUN, true, |_| Ok(())).map(|opened| opened.records);
    assert_eq!(open().unwrap(), 7);
    fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    assert!(open().unwrap_err().to_string().contains("is damaged"));
}

#[test]
fn a_block_of_zeros_after_a_crash_is_cut_off() {
    // Some file systems write the length to disk before the bytes.
    let folder = tempfile::tempdir().unwrap();
    let path = written(folder.path(), &sample());
    let length = fs::metadata(&path).unwrap().len();
    OpenOptions::new().write(true).open(&path).unwrap().set_len(length + 3_000_000).unwrap();
    let (records, opened) = read(&path).unwrap();
    assert_eq!((records.len(), opened.torn), (7, 3_000_000));
}

#[test]
fn errors_name_the_file_and_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    fs::write(&path, "something else").unwrap();
    assert!(read(&path).unwrap_err().to_string().contains("is no log"));
    let error = Log::create(&Files, &path, MARK_OF_RUN).unwrap_err().to_string();
    assert!(error.contains("cannot be created"), "{error}");
    let path = written(folder.path(), &sample());
    let error = Log::open(&path, MARK_OF_RUN + 1, false, |_| Ok(())).unwrap_err().to_string();
    assert!(error.contains("another run or of another checkpoint"), "{error}");
    let error =
        Log::open(&path, MARK_OF_RUN, false, |_| Err("nonsense".into())).unwrap_err().to_string();
    assert!(error.ends_with("block at byte 16: nonsense"), "{error}");
}

proptest! {
    #[test]
    fn any_bytes_are_opened_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let log = [&begin(MARK_OF_RUN)[..], &bytes].concat();
        fs::write(&path, log).unwrap();
        let (records, opened) = read(&path).unwrap();
        prop_assert_eq!((records.len(), opened.torn), (0, bytes.len() as u64));
    }
}
