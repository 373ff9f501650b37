use alloc::vec;

use super::*;

#[derive(Clone, Debug, PartialEq)]
enum Toy {
    Plain,
    Two { count: u8, rate: f32 },
    Bound { limit: Option<u64> },
    Many(Vec<f64>),
    Pair { first: u32, second: u64, third: u64 },
}

named!(Toy: "toy", ',' {
    Plain = Word::new("plain", &[], "nothing"),
    Two { count, rate } = Word::new(
        "two",
        &[
            Number::whole("COUNT", 1..=200),
            Number::real("RATE", Limits::POSITIVE).with(Presence::Implied("0.1")),
        ],
        "two numbers",
    ),
    Bound { limit } = Word::new("bound", &[Number::real("N", Limits::WholeOrInf)], "a bound"),
    Many(sizes) =
        Word::new(
            "many",
            &[Number::real("SIZE", Limits::SHARE).with(Presence::Repeated)],
            "several",
        ),
    Pair { first, second, third } = Word::new(
        "pair",
        &[
            Number::whole("A", 0..=9).usual("1"),
            Number::any("B").with(Presence::Joined("2")),
            Number::any("C").usual("3"),
        ],
        "defaults",
    ),
});

#[test]
fn texts_are_read_with_defaults_and_written_back() {
    for (text, toy, written) in [
        ("plain", Toy::Plain, "plain"),
        ("two:7", Toy::Two { count: 7, rate: 0.1 }, "two:7"),
        ("two:7, 0.25", Toy::Two { count: 7, rate: 0.25 }, "two:7,0.25"),
        ("bound:inf", Toy::Bound { limit: None }, "bound:inf"),
        ("bound:4", Toy::Bound { limit: Some(4) }, "bound:4"),
        ("many:1,0.5", Toy::Many(vec![1.0, 0.5]), "many:1,0.5"),
        ("pair", Toy::Pair { first: 1, second: 2, third: 3 }, "pair:1,2,3"),
        ("pair:4,5", Toy::Pair { first: 4, second: 5, third: 3 }, "pair:4,5,3"),
    ] {
        assert_eq!(text.parse(), Ok(toy.clone()), "{text}");
        assert_eq!(toy.to_string(), written);
        assert_eq!(out_of_range(&toy), None);
    }
}

#[test]
fn other_texts_are_told_all_forms() {
    let forms = "is no toy: use plain, two:COUNT[,RATE], bound:N|inf, many:SIZE[,SIZE...] or \
                 pair[:A,B[,C]]";
    for text in
        ["", "Plain", "plain:1", "two", "two:", "two:x", "two:-1", "two:1,2,3", "bound:infinite"]
            .into_iter()
            .chain(["many", "many:", "many:1,", "pair:1", "pair:1,2,3,4", "two:1.5"])
    {
        let error = text.parse::<Toy>().unwrap_err().to_string();
        assert_eq!(error, format!("{text:?} {forms}"));
    }
}

#[test]
fn a_number_out_of_range_is_named_with_the_range() {
    for (text, says) in [
        ("two:0", "COUNT must be 1 to 200"),
        ("two:201", "COUNT must be 1 to 200"),
        ("two:256", "COUNT must be 1 to 200"),
        ("two:1,0", "RATE must be finite and above 0"),
        ("two:1,NaN", "RATE must be finite and above 0"),
        ("two:1,inf", "RATE must be finite and above 0"),
        ("bound:18446744073709551616", "N must be 0 to 2^64 - 1, or inf"),
        ("many:1,2", "SIZE must be above 0 and up to 1"),
        ("pair:1,99999999999999999999", "B must be 0 to 2^64 - 1"),
    ] {
        let error = text.parse::<Toy>().unwrap_err().to_string();
        assert_eq!(error, format!("{text}: {says}"));
    }
    let toy = Toy::Two { count: 0, rate: 1.0 };
    assert_eq!(out_of_range(&toy).unwrap().must(), "COUNT must be 1 to 200");
}

#[test]
fn limits_are_checked_as_they_are_written() {
    for (limits, words, inside, outside) in [
        (Limits::FINITE, "finite", [-1e300, 1e300], [f64::NAN, f64::INFINITY]),
        (Limits::NOT_NEGATIVE, "finite and at least 0", [0.0, 9.0], [-1e-9, f64::INFINITY]),
        (Limits::PART, "at least 0 and below 1", [0.0, 0.9], [-0.1, 1.0]),
        (Limits::SHARE, "above 0 and up to 1", [1e-9, 1.0], [0.0, 1.1]),
        (Limits::Real(0.0, 8.0), "from 0 to 8", [0.0, 8.0], [-0.1, 8.1]),
    ] {
        assert_eq!(limits.to_string(), words);
        assert!(inside.into_iter().all(|it| limits.contain(Value::Double(it))), "{words}");
        assert!(!outside.into_iter().any(|it| limits.contain(Value::Double(it))), "{words}");
    }
}
