//! Files of kinds that no data format reads, by their first bytes, and ways to convert them.

/// A kind of file.
struct Kind {
    /// The bytes at its begin.
    begin: &'static [u8],
    name: &'static str,
    /// The cure.
    way: Way,
}

/// How a file becomes one that is read.
enum Way {
    /// By this command.
    Command(&'static str),
    /// By the function of pandas that reads it.
    Pandas(&'static str),
}

/// All kinds. None begins with a byte that begins a file of a data format: a digit, a sign, a
/// brace, a byte below 10, or the mark of an array of numpy.
const KINDS: [Kind; 17] = [
    Kind { begin: b"PAR1", name: "a Parquet file", way: Way::Pandas("read_parquet") },
    Kind { begin: b"ARROW1", name: "a Feather (Arrow) file", way: Way::Pandas("read_feather") },
    Kind { begin: b"FEA1", name: "a Feather file", way: Way::Pandas("read_feather") },
    Kind { begin: b"\x89HDF\r\n\x1a\n", name: "an HDF5 file", way: Way::Pandas("read_hdf") },
    Kind { begin: b"ORC", name: "an ORC file", way: Way::Pandas("read_orc") },
    Kind { begin: b"\x80\x02", name: "a pickle of Python", way: Way::Pandas("read_pickle") },
    Kind { begin: b"\x80\x03", name: "a pickle of Python", way: Way::Pandas("read_pickle") },
    Kind { begin: b"\x80\x04", name: "a pickle of Python", way: Way::Pandas("read_pickle") },
    Kind { begin: b"\x80\x05", name: "a pickle of Python", way: Way::Pandas("read_pickle") },
    Kind {
        begin: b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
        name: "a workbook of Excel",
        way: Way::Pandas("read_excel"),
    },
    Kind {
        begin: b"PK\x03\x04",
        name: "a ZIP archive",
        way: Way::Command(
            "name a .npz file of numpy by npz:FILE, save a workbook of Excel (.xlsx) as CSV, or \
             extract the file with unzip",
        ),
    },
    Kind { begin: b"BZh", name: "compressed by bzip2", way: Way::Command("run bunzip2 -k FILE") },
    Kind {
        begin: b"SQLite format 3\0",
        name: "a database of SQLite",
        way: Way::Command("run sqlite3 -header -csv FILE 'SELECT * FROM TABLE' > FILE.csv"),
    },
    Kind {
        begin: b"MATLAB 5.0 MAT-file",
        name: "a file of MATLAB",
        way: Way::Command("save its arrays with scipy.io.loadmat and numpy.save"),
    },
    Kind {
        begin: b"version https://git-lfs",
        name: "a pointer of Git LFS",
        way: Way::Command("run git lfs pull, which fetches the file itself"),
    },
    Kind {
        begin: b"\xff\xfe",
        name: "text in UTF-16",
        way: Way::Command("run iconv -f UTF-16 -t UTF-8 FILE > FILE.csv"),
    },
    Kind {
        begin: b"\xfe\xff",
        name: "text in UTF-16",
        way: Way::Command("run iconv -f UTF-16 -t UTF-8 FILE > FILE.csv"),
    },
];

/// The place of the name of the kind in an archive of tar, and the name.
const TAR: (usize, &[u8]) = (257, b"ustar");

/// The problem of a file that begins with these bytes, if no format reads it.
pub(super) fn problem(bytes: &[u8]) -> Option<String> {
    if let Some(kind) = KINDS.iter().find(|kind| bytes.starts_with(kind.begin)) {
        let Kind { name, .. } = kind;
        return Some(match kind.way {
            Way::Command(command) => format!("it is {name}: {command}"),
            Way::Pandas(reader) => format!(
                "it is {name}: write it as a table by python3 -c 'import pandas, sys; \
                 pandas.{reader}(sys.argv[1]).to_csv(sys.argv[2], index=False)' FILE FILE.csv"
            ),
        });
    }
    if bytes.get(TAR.0..).is_some_and(|rest| rest.starts_with(TAR.1)) {
        return Some("it is an archive of tar: extract its files with tar xf FILE".into());
    }
    let begins = |line: &[u8], word: &[u8]| {
        line.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word))
    };
    let mut lines = bytes.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
    // Comments of ARFF begin with %.
    let first = lines.find(|line| !line.is_empty() && !line.starts_with(b"%"))?;
    if begins(first, b"@relation") {
        return Some(
            "it is an ARFF file: run sed '1,/@data/Id' FILE > FILE.csv, and read \
             csv:FILE.csv,header=no,comment=%"
                .into(),
        );
    }
    let is_page = begins(first, b"<!doctype html") || begins(first, b"<html");
    is_page.then(|| "it is a page of HTML, and no data: fetch the file itself".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_other_kinds_are_named_and_those_of_data_formats_are_not() {
        for kind in &KINDS {
            let told = problem(&[kind.begin, b"more"].concat()).unwrap();
            assert!(told.contains(kind.name) && told.contains(": "), "{told}");
        }
        for (text, words) in [
            ("% a comment\n\n@RELATION iris\n", "ARFF"),
            ("@relation iris", "ARFF"),
            ("\n<!DOCTYPE HTML>", "HTML"),
        ] {
            assert!(problem(text.as_bytes()).unwrap().contains(words));
        }
        let mut tar = vec![b'a'; 300];
        tar[257..262].copy_from_slice(b"ustar");
        assert!(problem(&tar).unwrap().contains("tar xf"));
        for bytes in [
            &b""[..],
            b"%",
            b"a,b\n1,2\n",
            b"% 1\n% 2\n",
            b"-1 3:1\n",
            b"\0\0\x08\x03",
            b"\x93NUMPY",
            b"{\"columns\": 1}",
            b"\x09PAR1",
            b"\x89PNG",
        ] {
            assert_eq!(problem(bytes), None);
        }
    }
}
