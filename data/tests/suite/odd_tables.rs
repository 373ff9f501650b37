//! Tables that are not what they look like: read where the meaning is certain, and otherwise
//! refused with the line and a way to read them. Nothing becomes something else in silence.

#![expect(clippy::unwrap_used, reason = "a failing helper fails its test")]

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use pstrain_compute::examples::Examples;
use pstrain_data::{Dataset, Features, Prepared, Schema, Settings, open};

/// Rows of a table whose column x has 60 different numbers, except where `change` replaces them.
fn numbers(change: impl Fn(u32) -> Option<&'static str>) -> String {
    let row = |row: u32| {
        let value = change(row).map_or_else(|| format!("{}.5", row * 7 % 60), str::to_owned);
        format!("{value},{},{}\n", row * 3 % 11, ["no", "yes"][row as usize % 2])
    };
    format!("x,z,y\n{}", (0..60).map(row).collect::<String>())
}

struct Table {
    folder: tempfile::TempDir,
}

impl Table {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn open(&self, text: &str, options: &str) -> Arc<dyn Dataset> {
        fs::write(self.path("table.csv"), text).unwrap();
        open(&format!("csv:{}{options}", self.path("table.csv")), 1).unwrap()
    }

    fn schema(&self, text: &str, options: &str) -> Schema {
        self.open(text, options).schema(&Features::default()).unwrap()
    }

    /// The error of reading the table, after the path of its folder.
    fn refused(&self, text: &str, options: &str) -> String {
        let loaded = Prepared::load(&*self.open(text, options), &Settings::default());
        let told = loaded.unwrap_err().to_string();
        told.replace(&self.path(""), "")
    }

    /// Number of dense columns and of one-hot columns, and what is said.
    fn read(&self, text: &str, options: &str) -> (u32, u32, Vec<String>) {
        let data = self.open(text, options);
        let shape = Prepared::load(&*data, &Settings::default()).unwrap().spec.shape();
        let remarks = data.remarks(None);
        let remarks = remarks.iter().map(|told| told.replace(&self.path(""), "")).collect();
        (shape.dense, shape.inputs - shape.dense, remarks)
    }
}

/// Encodes all rows, not standardised.
fn encoded(data: &dyn Dataset) -> Examples {
    let schema = data.schema(&Features::default()).unwrap();
    let mut all = Examples::new(schema.shape);
    data.visit(&schema, &mut |row| Ok(all.push(row.dense, row.hot, row.label)?)).unwrap();
    all
}

#[test]
fn a_column_of_numbers_with_a_blemish_is_refused_with_line_value_and_ways_out() {
    let table = Table::new();
    for (blemish, is) in [
        ("abc", "no finite number"),
        ("inf", "no finite number"),
        ("--", "no finite number"),
        ("#DIV/0!", "no finite number"),
        ("1e39", "too large for a 32-bit number"),
        ("12.5 kg", "a number with the unit \"kg\""),
        ("12 %", "a number with the unit \"%\""),
        ("$7", "a number with the unit \"$\""),
        ("0x1f", "no finite number"),
        ("(3.5)", "no finite number"),
    ] {
        for rows in [1, 5, 25] {
            let text = numbers(|row| (row >= 60 - rows).then_some(blemish));
            let line = 62 - rows;
            let told = table.refused(&text, "");
            let all = 60 - rows;
            let wanted = format!(
                "table.csv:{line}: column x: {blemish:?} is {is}, but {all} of 60 values are \
                 numbers: repair it, or say na={blemish} if it is a missing value, drop=x to leave \
                 the column out, or one-hot=x if its values are names"
            );
            assert_eq!(told, wanted);
            // The ways out are ways.
            let (dense, hot, _) = table.read(&text, &format!(",na={blemish}"));
            assert_eq!((dense, hot), (2, 0));
            assert_eq!(table.read(&text, ",drop=x").0, 1);
            assert!(table.read(&text, ",one-hot=x").1 > 30);
        }
    }
}

#[test]
fn words_for_missing_values_leave_a_column_of_numbers_one() {
    let table = Table::new();
    for word in ["", "?", "None", "none", "#N/A", "<NA>", "NaT", "-nan", "1.#QNAN", "NULL", "n/a"] {
        let text = numbers(|row| (row % 5 == 3).then_some(word));
        assert_eq!(table.read(&text, ""), (2, 0, vec![]), "{word}");
    }
    let text = numbers(|row| (row % 5 == 3).then_some("-999"));
    let mean = |options: &str| {
        let data = table.open(&text, options);
        encoded(&*data).row(3).dense[0]
    };
    assert!(mean("") < -900.0 && mean(",na=-999.0") > 0.0);
}

#[test]
fn numbers_in_another_notation_are_read_by_the_option_that_the_error_offers() {
    let table = Table::new();
    let plain = encoded(&*table.open(&numbers(|_| None), ""));
    let quoted = |text: &str, number: &dyn Fn(&str) -> String| {
        let line = |line: &str| match line.split_once(',') {
            Some(("x", _)) | None => format!("{line}\n"),
            Some((x, rest)) => format!("\"{}\",{rest}\n", number(x)),
        };
        text.lines().map(line).collect::<String>()
    };
    for (number, option) in [
        (&(|x: &str| x.replace('.', ",")) as &dyn Fn(&str) -> String, "decimal=comma"),
        (&|x: &str| format!("{}_000", x.replace('.', "_00")), "thousands=underscore"),
        (&|x: &str| format!("{}\u{a0}000.5", x.replace('.', "\u{a0}00")), "thousands=space"),
        (&|x: &str| format!("{}.000,5", x.replace('.', ".00")), "thousands=dot"),
    ] {
        let text = quoted(&numbers(|_| None), number);
        let told = table.refused(&text, "");
        assert!(told.starts_with("table.csv:2: column x: ") && told.contains(option), "{told}");
        let said = told.split("say ").nth(1).unwrap().split(", drop=").next().unwrap();
        let (dense, hot, _) = table.read(&text, &format!(",{said}"));
        assert_eq!((dense, hot), (2, 0), "{told}");
    }
    let comma = quoted(&numbers(|_| None), &|x| x.replace('.', ","));
    assert_eq!(encoded(&*table.open(&comma, ",decimal=comma")), plain);
    let semicolons = numbers(|_| None).replace(',', ";").replace('.', ",");
    assert_eq!(encoded(&*table.open(&semicolons, ",decimal=comma")), plain);
    // Forms without another meaning.
    for certain in [
        &(|x: &str| format!("\u{2212}{x}")) as &dyn Fn(&str) -> String,
        &|x: &str| format!("'-{x}'"),
        &|x: &str| format!("-{x}D+00"),
        &|x: &str| format!("\u{a0}-{x}"),
    ] {
        let text = quoted(&numbers(|_| None), certain);
        let read = encoded(&*table.open(&text, ""));
        assert!((0..60).all(|row| read.row(row).dense[0] == -plain.row(row).dense[0]));
    }
    for (options, told) in [
        (",decimal=point", "decimal=point: write dot or comma"),
        (",thousands=x", "thousands=x: write one of comma, dot"),
        (",thousands=dot", "decimal and thousands are the same character"),
        (",header=0", "header=0: write yes, no, or the number of the line"),
        (",comment=ab", "comment=ab: write the character"),
    ] {
        let refused = open(&format!("csv:a{options}"), 1).unwrap_err();
        assert!(refused.contains(told), "{refused}");
    }
}

#[test]
fn a_column_of_texts_with_nearly_a_text_a_row_is_refused_with_the_ways_to_read_it() {
    let table = Table::new();
    let with = |name: &str, value: &dyn Fn(u32) -> String| {
        let row = |row| format!("{},{},{}\n", value(row), row % 7, ["a", "b"][row as usize % 2]);
        format!("{name},z,y\n{}", (0..60).map(row).collect::<String>())
    };
    let names = with("id", &|row| format!("user{row}"));
    let told = table.refused(&names, "");
    assert!(told.starts_with("table.csv:2: column id: \"user0\" is one of 60 different"), "{told}");
    assert!(told.contains("drop=id") && told.contains("one-hot=id"), "{told}");
    assert_eq!(table.read(&names, ",one-hot=id").1, 61);
    let units = with("w", &|row| format!("{row}.5 kg"));
    let told = table.refused(&units, "");
    assert!(told.contains("is a number with the unit \"kg\": write it without the unit"), "{told}");
    let places = with("place", &|row| format!("place{}", row % 25));
    assert_eq!(table.read(&places, ""), (1, 26, vec![]));

    let day = |row: u32| format!("2024-{:02}-{:02} 06:00", 1 + row / 28, 1 + row % 28);
    let dates = with("day", &day);
    let told = table.refused(&dates, "");
    assert!(told.contains("is a date: say date=day for its number of days, drop=day"), "{told}");
    let rows = encoded(&*table.open(&dates, ",date=day"));
    assert_eq!([0, 1, 28].map(|row| rows.row(row).dense[0]), [0.25, 1.25, 31.25]);
    let seconds = with("t", &|row| (1_700_000_000 + 43_200 * row).to_string());
    let rows = encoded(&*table.open(&seconds, ",date=t"));
    assert!((rows.row(3).dense[0] - rows.row(1).dense[0] - 1.0).abs() < 1e-5);
    let milliseconds = with("t", &|row| (1_700_000_000_000_u64 + u64::from(row)).to_string());
    let told = table.refused(&milliseconds, "");
    assert!(told.contains("subtract") && told.contains("date=t"), "{told}");
    let unclear = with("day", &|row| format!("{}/{}/2024", 1 + row % 12, 1 + row % 28));
    let told = table.refused(&unclear, "");
    assert!(told.contains("does not say which number is the month"), "{told}");
    let told = table.refused(&unclear, ",date=day");
    assert!(told.contains("is no date: write it as 2024-01-31"), "{told}");
    let told = table.refused(&dates, ",date=y,label=z");
    assert!(told.starts_with("table.csv:2: column y: \"a\" is no date"), "{told}");
}

#[test]
fn few_different_values_are_names_and_odd_ones_are_said() {
    let table = Table::new();
    let with = |value: &dyn Fn(u32) -> &'static str| {
        let row = |row| format!("{},{},{}\n", value(row), row % 7, ["a", "b"][row as usize % 2]);
        format!("x,z,y\n{}", (0..60).map(row).collect::<String>())
    };
    let (dense, hot, said) = table.read(&with(&|row| ["0", "1", "2", "3+"][row as usize % 4]), "");
    assert_eq!((dense, hot), (1, 5));
    let told = "table.csv: column x: 45 of 60 values are numbers, but one is \"3+\": its 4 different \
                values are taken for names";
    assert_eq!(said, [told]);
    let (_, hot, said) = table.read(&with(&|row| ["5 %", "7 %"][row as usize % 2]), "");
    assert_eq!(hot, 3);
    assert!(said[0].contains("have the unit \"%\", and are taken for names"), "{said:?}");
    let (_, hot, said) = table.read(&with(&|row| ["red", "blue"][row as usize % 2]), "");
    assert_eq!((hot, said), (3, vec![]));
    let (dense, _, said) = table.read(&with(&|_| ""), "");
    assert_eq!(
        (dense, &said[..]),
        (2, &["table.csv: column x: it has no value in any row".into()][..])
    );
    let counted: String = (0..60).map(|row| format!("{row},{}\n", ["a", "A"][row % 2])).collect();
    let (_, _, said) = table.read(&format!("n,y\n{counted}"), "");
    assert_eq!(
        said,
        [
            "table.csv: column n: it counts the rows from 0: leave it out with drop=n",
            "table.csv: column y: the classes \"A\" and \"a\" differ in their case alone"
        ]
    );
}

#[test]
fn classes_that_are_numbers_to_predict_are_refused_with_target_and_label() {
    let table = Table::new();
    let with = |value: &dyn Fn(u32) -> String| {
        let row = |row| format!("{},{},{}\n", row % 2, row * 7 % 13, value(row));
        format!("y,x,gamma\n{}", (0..60).map(row).collect::<String>())
    };
    let fractions = with(&|row| format!("{}.25", row));
    let told = table.refused(&fractions, "");
    let wanted = "table.csv: column gamma: it has 60 different values in 60 rows, too many for \
                  classes (the last column): if it has numbers to predict, say target=gamma; if \
                  another column has the classes, name it with label=COLUMN (\"y\" has 2, \"x\" has \
                  13)";
    assert_eq!(told, wanted);
    assert!(table.refused(&fractions, ",label=gamma").contains("(label=gamma): if it has numbers"));
    assert_eq!(table.schema(&fractions, ",label=y").classes, ["0", "1"]);
    assert!(table.schema(&fractions, ",target=gamma").classes.is_empty());
    // Halves are classes if they come again.
    assert_eq!(table.schema(&with(&|row| format!("{}.5", row % 9)), "").classes.len(), 9);
    let names = table.refused(&with(&|row| format!("user{row}")), "");
    assert!(names.contains("too many for classes") && !names.contains("target="), "{names}");
    let whole = table.refused(&with(&|row| (row * row).to_string()), "");
    assert!(whole.contains("say target=gamma"), "{whole}");
    assert_eq!(table.schema(&with(&|row| (row % 12).to_string()), "").classes.len(), 12);

    let missing = with(&|row| ["NA", "EU", "US"][row as usize % 3].to_owned());
    let told = table.refused(&missing, "");
    let wanted = "table.csv:2: column gamma: \"NA\" is a missing class, as 20 of 60 are: say keep=NA \
                  if that is a class, remove the line, or say missing=skip";
    assert_eq!(told, wanted);
    assert_eq!(table.schema(&missing, ",keep=NA").classes, ["EU", "NA", "US"]);
    assert_eq!(table.schema(&missing, ",missing=skip").classes, ["EU", "US"]);
}

#[test]
fn spellings_of_a_whole_number_are_one_class_and_one_text() {
    let table = Table::new();
    let row = |row: usize| {
        format!("{},{}\n", ["2", "3.0", "2.0", "3"][row % 4], ["1", "1.0", "0", "0.0"][row / 2 % 4])
    };
    let text = format!("kind,y\n{}", (0..16).map(row).collect::<String>());
    let data = table.open(&text, ",one-hot=kind");
    assert_eq!(data.schema(&Features::default()).unwrap().classes, ["0", "1"]);
    let rows = encoded(&*data);
    assert_eq!(rows.shape().inputs, 3);
    assert_eq!([0, 1, 2, 3].map(|at| rows.row(at).hot[0]), [0, 1, 0, 1]);
    assert_eq!([0, 2, 4, 6].map(|at| rows.row(at).class()), [1, 1, 0, 0]);
    // Another copy, in which all of them have another spelling.
    let schema = table.schema("kind,y\n2,1\n3,0\n3,1\n2,0\n", ",one-hot=kind");
    let other = table.open("kind,y\n2.0,1.0\n3.0,0.0\n", "");
    let mut seen = Vec::new();
    let take = &mut |row: pstrain_compute::examples::Row<'_>| {
        seen.push((row.hot[0], row.class()));
        Ok(())
    };
    other.visit(&schema, take).unwrap();
    assert_eq!(seen, [(0, 1), (1, 0)]);
    assert_eq!(other.remarks(Some(&schema)), [] as [String; 0]);
    // Texts that are no whole numbers stay apart.
    let texts = table.open("kind,y\n1.1,a\n1.10,b\n01,a\n1,b\n", ",one-hot=kind");
    assert_eq!(encoded(&*texts).shape().inputs, 5);
}

#[test]
fn the_share_of_texts_that_a_job_does_not_know_is_said() {
    let table = Table::new();
    let schema = table.schema("kind,place,y\na,n,1\nb,s,0\na,,1\nb,s,0\n", "");
    let other = table.open("kind,place,y\na,n,1\nc,n,0\nA,?,1\nd,s,1\n", "");
    let told: Vec<_> =
        other.remarks(Some(&schema)).iter().map(|it| it.replace(&table.path(""), "")).collect();
    let wanted = "table.csv: column kind: 3 of 4 texts (75.0 %) are unknown to the job, such as \
                  \"c\" in line 3: to the model they are one other text";
    assert_eq!(told, [wanted]);
}

#[test]
fn tables_without_a_header_have_numbered_columns() {
    let table = Table::new();
    let rows: String = numbers(|_| None).lines().skip(1).map(|line| format!("{line}\n")).collect();
    let data = table.open(&rows, ",header=no");
    let schema = data.schema(&Features::default()).unwrap();
    assert_eq!((data.columns(&schema), schema.classes.len()), (vec!["1".into(), "2".into()], 2));
    assert_eq!(encoded(&*data), encoded(&*table.open(&numbers(|_| None), "")));
    assert_eq!(data.remarks(None), [] as [String; 0]);
    assert_eq!(table.read(&rows, ",header=no,drop=2,label=3").0, 1);
    let (_, _, said) = table.read(&rows, "");
    assert!(said[0].contains("2 of 3 names are numbers") && said[0].ends_with("say header=no"));
    for (text, words) in [
        ("1,1,a\n2,3,b\n", "two columns are called \"1\" in the first line; if the first line is"),
        ("1,,a\n2,3,b\n", "column 2 has no name in the first line; if the first line is a row"),
    ] {
        assert!(table.refused(text, "").contains(words));
    }
    for text in ["5,6,a\n7,8\n", "5,6,a\r\n7,8\r\n"] {
        let told = table.refused(text, ",header=no");
        assert_eq!(
            told,
            "table.csv:2: the line has 2 values, and the first line 3: repair or remove the line"
        );
    }
}

#[test]
fn lines_that_are_no_rows_are_left_out_by_an_option_that_the_error_offers() {
    let table = Table::new();
    let plain = encoded(&*table.open(&numbers(|_| None), ""));
    let lines = numbers(|_| None);
    let insert = |at: usize, line: &str| {
        let mut all: Vec<&str> = lines.lines().collect();
        all.insert(at, line);
        all.join("\n") + "\n"
    };
    for (text, error, option) in [
        (insert(0, "# exported by a logger"), "no table", "comment=#"),
        (insert(0, "% exported, by a logger"), "the line has 3 values", "comment=%"),
        (insert(30, "# restart"), "table.csv:31: the line has 1 values", "comment=#"),
        (insert(0, "Station 5"), "no table", "header=2"),
        (format!("Station 5\n\nMay\n{lines}"), "no table", "header=4"),
        (lines.replace(',', "   "), "no table", "delimiter=space"),
        (lines.replace(',', "|"), "no table", "delimiter=|"),
    ] {
        let told = table.refused(&text, "");
        assert!(told.contains(error) && told.contains(&format!("say {option}")), "{told}");
        assert_eq!(encoded(&*table.open(&text, &format!(",{option}"))), plain, "{option}");
    }
    let told = table.refused(&insert(30, "x,z,y"), "");
    assert!(
        told.starts_with("table.csv:31: the line has the names of the columns again"),
        "{told}"
    );
    let told = table.refused(&insert(61, "Total: 60"), "");
    assert!(told.starts_with("table.csv:62: the line has 1 values"), "{told}");
    let told = table.refused("{\"x\": 1}\n{\"x\": 2}\n", "");
    assert!(told.contains("it is JSON") && told.contains("read_json"), "{told}");
    assert!(table.refused(&lines, ",header=99").contains("header=99: it has 61 lines"));
    // Read without an option: what Excel writes, a separator at the end of each line, blank lines.
    let excel = format!("sep=;\n{}", lines.replace(',', ";"));
    let trailing = lines.replace('\n', ",\n");
    let rows_alone = trailing.replacen(",\n", "\n", 1);
    for text in [excel, trailing, rows_alone, insert(20, "  "), insert(20, "")] {
        assert_eq!(encoded(&*table.open(&text, "")), plain);
    }
    // Lines are counted as an editor counts them.
    for (before, end) in
        [("", "\n"), ("# one\n# two\n", "\n"), ("\n\n", "\n"), ("", "\r\n"), ("# one\n\n", "\r\n")]
    {
        let text = insert(30, &format!("{before}bad")).replace('\n', end);
        let line = 31 + before.lines().count();
        let told = table.refused(&text, ",comment=#");
        assert!(told.starts_with(&format!("table.csv:{line}: ")), "{line} {told}");
    }
}

#[test]
fn an_index_without_a_name_is_left_out_and_said() {
    let table = Table::new();
    let plain = encoded(&*table.open(&numbers(|_| None), ""));
    let indexed = |first: &str, index: &dyn Fn(usize) -> String| {
        let line = |(at, line): (usize, &str)| match at {
            0 => format!("{first}{line}\n"),
            at => format!("{},{line}\n", index(at)),
        };
        numbers(|_| None).lines().enumerate().map(line).collect::<String>()
    };
    let count = |at: usize| (at - 1).to_string();
    for (text, name) in [
        (indexed(",", &count), ""),
        (indexed("\"\",", &|at| format!("r{at}")), ""),
        (indexed("", &|at| at.to_string()), ""),
        (indexed("", &|at| format!("\"car {at}\"")), ""),
        (indexed("Unnamed: 0,", &count), "Unnamed: 0"),
    ] {
        let data = table.open(&text, "");
        assert_eq!(encoded(&*data), plain);
        let said = data.remarks(None);
        assert!(said[0].contains("left out as an index of the rows"), "{said:?}");
        let roles = data.info().unwrap().roles;
        assert_eq!((&*roles[0].column, &*roles[0].role), (name, "dropped"));
        // Rows of the same job without an index, and with one.
        let schema = data.schema(&Features::default()).unwrap();
        table.open(&numbers(|_| None), "").visit(&schema, &mut |_| Ok(())).unwrap();
        table.open(&text, "").check_columns(&schema).unwrap();
    }
    assert_eq!(table.read(&indexed("Unnamed: 0,", &count), ",drop=Unnamed: 0").2, [] as [&str; 0]);
}

#[test]
fn wide_tables_are_read_in_time_that_is_linear_in_their_columns() {
    let table = Table::new();
    let wide = |columns: usize| {
        let mut text: String = (0..columns).map(|column| format!("c{column},")).collect();
        text += "y\n";
        for row in 0..4 {
            text.extend((0..columns).map(|column| format!("{},", (column + row) % 3)));
            text += ["no\n", "yes\n"][row % 2];
        }
        text
    };
    // With a look at all columns for each, 40,000 take a minute.
    let data = table.open(&wide(40_000), "");
    assert_eq!(encoded(&*data).shape().inputs, 40_000);
    assert_eq!(data.info().unwrap().roles.len(), 40_001);
    data.profile().unwrap();
    let told = table.refused(&"a,".repeat(2 << 20), "");
    assert!(told.contains("at most 1048576 are possible"), "{told}");
}

#[test]
fn files_of_other_kinds_and_pipes_are_named_with_a_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let told = |words: &str, path: &Path| {
        let data = open(&words.replace("FILE", &path.display().to_string()), 1).unwrap();
        let read = data
            .schema(&Features::default())
            .and_then(|schema| data.visit(&schema, &mut |_| Ok(())));
        let error = read.unwrap_err();
        let mut told = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            told += &format!(": {error}");
            cause = error.source();
        }
        told
    };
    for (bytes, kind, way) in [
        (&b"PAR1\x15\x04"[..], "Parquet", "read_parquet"),
        (b"ARROW1\0\0", "Feather", "read_feather"),
        (b"\x89HDF\r\n\x1a\n\0", "HDF5", "read_hdf"),
        (b"BZh91AY&SY", "bzip2", "bunzip2"),
        (b"PK\x03\x04\x14\0", "ZIP", "npz:FILE"),
        (b"% iris\n@RELATION iris\n", "ARFF", "header=no,comment=%"),
    ] {
        let path = file("data", bytes);
        for words in
            ["csv:FILE", "libsvm:FILE", "npy:FILE,FILE", "raw:FILE", "idx:FILE,FILE", "FILE"]
        {
            let told = told(words, &path);
            assert!(told.contains(kind) && told.contains(way), "{words}: {told}");
        }
    }
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for words in ["csv:FILE", "libsvm:FILE", "npy:FILE,FILE", "raw:FILE", "idx:FILE,FILE", "FILE"] {
        let piped = told(words, &pipe);
        assert!(piped.contains("a pipe cannot be read in passes; save it"), "{words}: {piped}");
        assert!(told(words, Path::new("/dev/zero")).contains("it is a device"), "{words}");
    }
}
