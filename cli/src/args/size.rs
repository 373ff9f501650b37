//! Sizes of files on the command line.

/// Size limit of a file, in bytes; `None`: limited only by the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SizeLimit(pub(crate) Option<u64>);

/// Smallest limit, in bytes: the first lines of a record need part of it.
const LEAST: u64 = 16 * 1024;

const UNITS: [(&str, u64); 7] = [
    ("B", 1),
    ("kB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

/// Parses a size with its unit, or `none`.
pub(super) fn size_or_none(text: &str) -> Result<SizeLimit, String> {
    if text == "none" {
        return Ok(SizeLimit(None));
    }
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, name) = text.split_at(end);
    let unit = UNITS.iter().find(|(unit, _)| unit.eq_ignore_ascii_case(name));
    let bytes =
        number.parse::<u64>().ok().zip(unit).and_then(|(n, (_, unit))| n.checked_mul(*unit));
    match bytes {
        Some(bytes) if bytes >= LEAST => Ok(SizeLimit(Some(bytes))),
        Some(_) => Err(String::from("must be 16KiB or more, or none")),
        None => {
            Err(String::from("must be a whole number with a unit, such as 200MB or 1GiB, or none"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(size_or_none("none"), Ok(SizeLimit(None)));
        assert_eq!(size_or_none("16KiB"), Ok(SizeLimit(Some(16_384))));
        assert_eq!(size_or_none("20kb"), Ok(SizeLimit(Some(20_000))));
        assert_eq!(size_or_none("3GiB"), Ok(SizeLimit(Some(3 << 30))));
        for wrong in ["", "1", "1.5GB", "-1GB", "1 GB", "GB", "99999999999999GiB", "1KiB"] {
            assert!(size_or_none(wrong).unwrap_err().contains("or none"), "{wrong}");
        }
    }
}
