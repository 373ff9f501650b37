use std::collections::BTreeSet;

use super::scale::Scale;
use super::*;

fn axis(label: &str, unit: &str, log: bool) -> Axis {
    Axis { label: label.into(), unit: unit.into(), log }
}

fn names(label: &str, unit: &str, names: &[&str]) -> Names {
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    Names { label: label.into(), unit: unit.into(), names }
}

/// Learning curves: many points, each with a band.
fn curves() -> Picture {
    let series = [("sync, IID", 8.0), ("sync, non-IID", 9.0), ("async, IID", 8.5)];
    let mut series: Vec<Series> =
        series.into_iter().map(|(name, slow)| learning(name, slow, 0.3)).collect();
    series.push(learning("async, non-IID", 30.0, 2.0));
    Picture::Chart(Chart {
        x_names: Vec::new(),
        legend: String::new(),
        title: "Accuracy over epochs & <delay>".into(),
        x: axis("epoch", "", false),
        y: axis("accuracy", "%", false),
        series,
    })
}

fn learning(name: &str, slow: f64, spread: f64) -> Series {
    let marks = (1..=100).map(|epoch| {
        let x = f64::from(epoch);
        let y = 98.0 - 14.0 * (-x / slow).exp() + 0.15 * (x * 1.7).sin();
        let half = spread * (0.3 + (-x / 30.0).exp());
        Mark { x, y, low: y - half, high: y + half }
    });
    Series { name: name.into(), marks: marks.collect() }
}

/// Few points, with markers and error bars.
fn sweep(log: bool) -> Picture {
    let series = ["IID", "non-IID", "control"].into_iter().enumerate().map(|(number, name)| {
        let marks = [1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 60.0, 80.0, 100.0].map(|x: f64| {
            let y = 40.0 + 40.0 * x / (x + 12.0) + 6.0 * number as f64;
            Mark { x, y, low: y - 2.5, high: y + 2.5 }
        });
        Series { name: name.into(), marks: marks.to_vec() }
    });
    Picture::Chart(Chart {
        x_names: Vec::new(),
        legend: String::new(),
        title: "Training time against the difference in delay".into(),
        x: axis("difference in delay", "ms", log),
        y: axis("training time", "s", log),
        series: series.collect(),
    })
}

fn map() -> Picture {
    let values = (0..6).map(|row| {
        let cell = |column: i32| {
            let value = 0.98 - 0.02 * f64::from(row * column) / 5.0 - 0.01 * f64::from(row);
            (row != 5 || column != 8).then_some(100.0 * value)
        };
        (0..9).map(cell).collect()
    });
    Picture::HeatMap(HeatMap {
        span: None,
        title: "Accuracy after 20 epochs, asynchronous".into(),
        x: names(
            "difference in delay",
            "ms",
            &["1", "5", "10", "20", "30", "40", "60", "80", "100"],
        ),
        y: names("degree of non-IID", "", &["0", "0.2", "0.4", "0.6", "0.8", "1"]),
        value: axis("accuracy", "%", false),
        values: values.collect(),
    })
}

fn bars() -> Picture {
    let bar = |value: f64| Some(Bar { value, low: value * 0.9, high: value * 1.1 });
    let series = [("compute", 4.5), ("send", 2.0), ("wait", 7.0)].into_iter();
    Picture::Bars(Bars {
        legend: String::new(),
        title: "Where the time goes".into(),
        x: names("consistency", "", &["bsp", "ssp, slack 3", "asp"]),
        y: axis("time", "ms", false),
        from: None,
        series: series
            .map(|(name, value)| BarSeries {
                name: name.into(),
                bars: vec![bar(value), bar(value / 2.0), None],
            })
            .collect(),
    })
}

/// Returns the texts of a picture; fails if the SVG is not well-formed.
fn texts(picture: &Picture) -> BTreeSet<String> {
    let svg = picture.svg().unwrap();
    let document = roxmltree::Document::parse(&svg).unwrap();
    for value in document.descendants().flat_map(|node| node.attributes()) {
        assert!(!value.value().contains("NaN") && !value.value().contains("inf"), "{value:?}");
    }
    let texts = document.descendants().filter(|node| node.has_tag_name("text"));
    texts.filter_map(|node| Some(node.text()?.trim().to_owned())).collect()
}

fn has(picture: &Picture, wanted: &[&str]) {
    let texts = texts(picture);
    for text in wanted {
        assert!(texts.contains(*text), "`{text}` is not among {texts:?}");
    }
}

fn elements(picture: &Picture, tag: &str) -> usize {
    let svg = picture.svg().unwrap();
    let document = roxmltree::Document::parse(&svg).unwrap();
    document.descendants().filter(|node| node.has_tag_name(tag)).count()
}

fn one_line(marks: Vec<Mark>, log: bool) -> Picture {
    let series = vec![Series { name: "a".into(), marks }];
    let (x, y) = (axis("x", "", log), axis("y", "", log));
    Picture::Chart(Chart { series, x, y, ..Chart::default() })
}

#[test]
fn titles_labels_units_and_legends_are_texts() {
    has(&curves(), &["Accuracy over epochs & <delay>", "epoch", "accuracy (%)", "async, non-IID"]);
    has(&sweep(true), &["difference in delay (ms)", "training time (s)", "10", "control"]);
    has(&map(), &["accuracy (%)", "degree of non-IID", "98.0", "0.6", "100"]);
    has(&bars(), &["time (ms)", "consistency", "ssp, slack 3", "wait"]);
}

#[test]
fn one_series_needs_no_legend() {
    assert!(!texts(&one_line(vec![Mark::at(0.0, 1.0), Mark::at(1.0, 2.0)], false)).contains("a"));
}

#[test]
fn intervals_are_bands_on_long_lines_and_error_bars_on_short_ones() {
    // Four bands, their four samples, and the markers of series 2, 3 and 4.
    let markers: usize = elements(&curves(), "polygon");
    assert!(markers >= 8, "{markers}");
    let with = elements(&sweep(false), "polyline");
    let Picture::Chart(mut chart) = sweep(false) else { panic!("a chart") };
    for mark in chart.series.iter_mut().flat_map(|series| &mut series.marks) {
        *mark = Mark::at(mark.x, mark.y);
    }
    let without = elements(&Picture::Chart(chart), "polyline");
    assert!(with >= without + 3 * 9 * 3, "three strokes a mark: {with} against {without}");
}

#[test]
fn what_cannot_be_drawn_is_left_out() {
    let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 0.0, 1e308, -1e308];
    for log in [false, true] {
        let mut marks: Vec<Mark> = odd.map(|value| Mark::at(value, 1.0)).to_vec();
        marks.extend(odd.map(|value| Mark::at(1.0, value)));
        marks.extend(odd.map(|value| Mark { x: 2.0, y: 2.0, low: -value, high: value }));
        marks.extend([Mark::at(3.0, 1.0), Mark::at(4.0, 2.0)]);
        texts(&one_line(marks, log));
    }
    let values = vec![odd.map(Some).to_vec(), vec![None], vec![]];
    let x = names("x", "", &["1", "2", "3", "4", "5", "6", "7"]);
    let y = names("y", "", &["1", "2", "3"]);
    texts(&Picture::HeatMap(HeatMap { x, y, values, ..HeatMap::default() }));
    let bars = odd.map(|value| Some(Bar { value, low: value, high: -value })).to_vec();
    let series = vec![BarSeries { name: "a".into(), bars }];
    let x = names("x", "", &["1", "2", "3", "4", "5", "6", "7"]);
    texts(&Picture::Bars(Bars { x, series, ..Bars::default() }));
}

#[test]
fn a_line_stops_where_a_value_is_missing() {
    let mut marks: Vec<Mark> = (0..9).map(|x| Mark::at(f64::from(x), 1.0)).collect();
    let whole = elements(&one_line(marks.clone(), false), "polyline");
    marks[4].y = f64::NAN;
    assert_eq!(elements(&one_line(marks, false), "polyline"), whole + 1);
}

#[test]
fn nothing_and_one_point_can_be_drawn() {
    for log in [false, true] {
        texts(&one_line(Vec::new(), log));
        let one = one_line(vec![Mark { x: 3.0, y: 2.0, low: 1.0, high: 3.0 }], log);
        assert_eq!(elements(&one, "circle"), 1);
    }
    texts(&Picture::Chart(Chart::default()));
    texts(&Picture::Bars(Bars::default()));
    texts(&Picture::HeatMap(HeatMap::default()));
}

#[test]
fn maps_that_are_compared_have_the_same_colours_and_numbers_that_differ() {
    let (x, y) = (names("x", "", &["a", "b", "c"]), names("y", "", &["d"]));
    let values = vec![vec![Some(0.957), Some(0.964), None]];
    let alone = HeatMap { x, y, values, ..HeatMap::default() };
    let among = HeatMap { span: Some((0.5, 0.99)), ..alone.clone() };
    has(&Picture::HeatMap(alone), &["0.9570", "0.9640", "–", "0.958"]);
    has(&Picture::HeatMap(among), &["0.9570", "0.5", "0.9", "–"]);
}

#[test]
fn any_text_leaves_the_document_well_formed() {
    let odd = "<&>\"'\u{0}\u{1b}\u{ffff}]]>--\u{7f}é";
    let Picture::Chart(mut chart) = sweep(false) else { panic!("a chart") };
    chart.title = odd.into();
    chart.x = axis(odd, odd, false);
    chart.series[0].name = format!("{odd}{}", "long ".repeat(60));
    has(&Picture::Chart(chart), &["<&>\"']]>--é (<&>\"']]>--é)"]);
}

#[test]
fn a_png_has_the_size_that_is_stated_and_is_not_empty() {
    for picture in [curves(), sweep(true), map(), bars()] {
        let png = picture.png().unwrap();
        let pixels = tiny_skia::Pixmap::decode_png(&png).unwrap();
        assert_eq!((pixels.width(), pixels.height()), (1920, 1280));
        let inked = pixels.pixels().iter().filter(|pixel| pixel.green() < 128).count();
        assert!(inked > 10_000, "{inked} dark pixels");
    }
}

#[test]
fn the_same_picture_gives_the_same_bytes() {
    assert_eq!(curves().svg().unwrap(), curves().svg().unwrap());
}

/// More names than fit, some of them long.
fn crowded() -> Picture {
    let Picture::Bars(mut crowded) = bars() else { panic!("bars") };
    crowded.x.names = ["synchronous, backup workers 2", "asynchronous", "bounded delay of 3"]
        .map(String::from)
        .to_vec();
    crowded.x.names.extend((0..7).map(|number| format!("policy {number}")));
    for series in &mut crowded.series {
        series.bars = series.bars[..1].repeat(10);
    }
    Picture::Bars(crowded)
}

/// More series than colours.
fn many() -> Picture {
    let series = (0..9)
        .map(|number| learning(&format!("series {number}"), 5.0 + 9.0 * f64::from(number), 0.1));
    let (x, y) = (axis("time", "s", false), axis("accuracy", "%", false));
    let (title, legend) = (String::new(), "seed".into());
    Picture::Chart(Chart { series: series.collect(), x, y, title, legend, ..Chart::default() })
}

/// A sweep with a target that some runs never reached, and two lines that are one.
fn unreached() -> Picture {
    let Picture::Chart(mut chart) = sweep(false) else { panic!("a chart") };
    for (series, place) in [(0, 8), (1, 8), (1, 7), (2, 8)] {
        chart.series[series].marks[place].y = f64::INFINITY;
    }
    let again = chart.series[0].marks.clone();
    chart.series.push(Series { name: "again".into(), marks: again });
    Picture::Chart(chart)
}

fn bars_with_gaps(log: bool) -> Picture {
    let Picture::Bars(mut bars) = bars() else { panic!("bars") };
    bars.y.log = log;
    bars.series[1].bars[0] =
        Some(Bar { value: f64::INFINITY, low: f64::INFINITY, high: f64::INFINITY });
    Picture::Bars(bars)
}

fn map_with_gaps() -> Picture {
    let Picture::HeatMap(mut map) = map() else { panic!("a map") };
    map.values[4][8] = Some(f64::INFINITY);
    Picture::HeatMap(map)
}

#[test]
fn lines_that_coincide_are_named_in_the_legend() {
    has(&unreached(), &["IID", "again (the same line as IID)", "control"]);
    assert!(!texts(&sweep(false)).iter().any(|text| text.contains("same line")));
    // Lines without any point are not the same line.
    let empty = |name: &str| Series { name: name.into(), marks: Vec::new() };
    let series = vec![empty("a"), empty("b")];
    has(&Picture::Chart(Chart { series, ..Chart::default() }), &["a", "b"]);
}

#[test]
fn what_was_never_reached_is_marked() {
    for picture in [unreached(), bars_with_gaps(false), bars_with_gaps(true), map_with_gaps()] {
        has(&picture, &["never"]);
    }
    for picture in [sweep(false), bars(), map()] {
        assert!(!texts(&picture).contains("never"));
    }
    has(&map_with_gaps(), &["never", "–"]);
}

#[test]
fn a_logarithmic_axis_has_points_instead_of_bars() {
    let blocks = |picture: &Picture| {
        let svg = picture.svg().unwrap();
        let document = roxmltree::Document::parse(&svg).unwrap();
        let blocks = document.descendants().filter(|node| node.has_tag_name("rect"));
        blocks.filter(|node| node.attribute("fill") == Some("#0072B2")).count()
    };
    // Two bars and the sample in the legend.
    assert_eq!(blocks(&bars()), 3);
    assert_eq!(blocks(&bars_with_gaps(true)), 0);
    assert_eq!(elements(&bars_with_gaps(true), "circle"), 3);
}

#[test]
fn ticks_stand_at_the_data() {
    has(&sweep(false), &["10", "20", "30", "40", "60", "80", "100"]);
    let scale = Scale::new([1.0, 100.0], false, 0.0).at([1.0, 100.0]);
    assert_eq!(scale.ticks, [1.0, 100.0], "no tick between two points");
}

#[test]
fn a_pdf_has_the_shapes_and_the_texts() {
    for picture in [curves(), sweep(true), map(), bars(), unreached()] {
        let pdf = picture.pdf().unwrap();
        assert!(pdf.starts_with(b"%PDF-1.") && pdf.ends_with(b"%%EOF"), "not a PDF file");
        assert!(pdf.len() < 150_000, "{} bytes", pdf.len());
        assert_eq!(pdf, picture.pdf().unwrap());
        let text = String::from_utf8_lossy(&pdf);
        for part in ["/FontFile2", "/ToUnicode", "/MediaBox [0 0 360 240]"] {
            assert!(text.contains(part), "no {part}");
        }
        let begin = pdf.windows(7).position(|at| at == b"stream\n").unwrap() + 7;
        let end = pdf.windows(10).position(|at| at == b"\nendstream").unwrap();
        let content = miniz_oxide::inflate::decompress_to_vec_zlib(&pdf[begin..end]).unwrap();
        let content = String::from_utf8_lossy(&content);
        let letters: usize = {
            let svg = picture.svg().unwrap();
            let document = roxmltree::Document::parse(&svg).unwrap();
            let texts = document.descendants().filter(|node| node.has_tag_name("text"));
            let texts = texts.filter_map(|node| Some(node.text()?.trim().to_owned()));
            texts.map(|text| text.chars().count()).sum()
        };
        assert_eq!(content.matches(" Tj").count(), letters, "a glyph for each letter");
        let shapes = ["\nS", "\nf"].map(|painted| content.matches(painted).count());
        assert!(shapes[0] + shapes[1] > 20, "{shapes:?}");
    }
}

#[test]
#[ignore = "for eyes: writes the pictures of these tests to the folder named by PSTRAIN_PICTURES"]
fn look() {
    let folder = std::env::var_os("PSTRAIN_PICTURES").map(std::path::PathBuf::from).unwrap();
    let pictures = [
        ("curves", curves()),
        ("sweep", sweep(false)),
        ("log", sweep(true)),
        ("map", map()),
        ("bars", bars()),
        ("crowded", crowded()),
        ("many", many()),
        ("unreached", unreached()),
        ("points", bars_with_gaps(true)),
        ("gaps", bars_with_gaps(false)),
        ("map-gaps", map_with_gaps()),
    ];
    for (name, picture) in pictures {
        std::fs::write(folder.join(name).with_extension("svg"), picture.svg().unwrap()).unwrap();
        std::fs::write(folder.join(name).with_extension("png"), picture.png().unwrap()).unwrap();
        std::fs::write(folder.join(name).with_extension("pdf"), picture.pdf().unwrap()).unwrap();
    }
}

#[test]
fn names_that_do_not_fit_are_turned_and_shortened() {
    let svg = crowded().svg().unwrap();
    assert!(svg.contains("rotate(270") && svg.contains("synchronous, back…"));
    assert_eq!(elements(&many(), "text"), texts(&many()).len());
    has(&many(), &["seed:", "series 8"]);
}
