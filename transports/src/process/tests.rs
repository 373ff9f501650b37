//! A compute process that answers wrongly, late, twice or not at all is named, and a failed one is
//! started again with the same request.

mod halves;

use std::io::Cursor;
use std::sync::Mutex;
use std::time::Duration;

use pstrain_compute::evaluation::Figures;
use pstrain_compute::rng::{Random, Stream};
use pstrain_compute::source::{GradientSource, Rows};

use super::protocol::{
    Answer, Description, Evaluated, Hello, Order, ProtocolError, Request, read_line, read_rows,
    read_values, write_message,
};
use super::{ProcessAddress, ProcessConfig, ProcessSource};

/// The loss `x^2 + y^2`, in Python, with hooks for faults: `line` has the request as text.
const PROCESS: &str = r#"
import sys, json, array, os, time
i, o = sys.stdin.buffer, sys.stdout.buffer
def say(message, values=()):
    values = array.array("f", values)
    o.write(json.dumps({**message, "values": len(values)}).encode() + b"\n" + values.tobytes())
    o.flush()
def fault(m): pass
FAULT
for line in i:
    m = json.loads(line)
    p = array.array("f", i.read(4 * m.get("values", 0)))
    rows = m.get("rows")
    if "rows_after" in m:
        rows = array.array("I", i.read(4 * m["rows_after"])).tolist()
    if fault(m): continue
    if m["do"] == "hello": say({"tensors": [{"name": "w", "shape": [2]}], "examples": 50000})
    if m["do"] == "start": say({}, [1, 2])
    if m["do"] == "gradient": say({"id": m["id"], "loss": sum(x * x for x in p) + len(rows)}, [2 * x for x in p])
    if m["do"] == "evaluate": say({"id": m["id"], "examples": 4, "loss": .5, "metrics": {"accuracy": .75}})
    if m["do"] == "bye": break
"#;

/// Messages for the user, of all tests.
static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn tell(message: &str) {
    TOLD.lock().unwrap().push(message.to_owned());
}

/// True if there is Python for the processes; says so if not.
fn has_python() -> bool {
    let found = std::process::Command::new("python3").arg("--version").output().is_ok();
    if !found {
        eprintln!("SKIPPED: there is no python3 for compute processes");
    }
    found
}

/// The source of a process with this fault, in a file that names the test.
fn source(
    name: &str,
    fault: &str,
    timeout: Option<Duration>,
) -> (Result<ProcessSource, String>, tempfile::TempDir) {
    source_told_of(name, fault, timeout, Duration::from_secs(60))
}

/// The same; the user is told of an answer that takes so long.
fn source_told_of(
    name: &str,
    fault: &str,
    timeout: Option<Duration>,
    silence: Duration,
) -> (Result<ProcessSource, String>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(format!("{name}.py"));
    std::fs::write(&path, PROCESS.replace("FAULT", fault)).unwrap();
    let address = ProcessAddress::Command(format!("exec python3 {}", path.display()));
    let config = ProcessConfig { address, restarts: 2, silence, timeout, threads: None, tell };
    let source = ProcessSource::start(config, Hello::default());
    let parts = vec![(0..50_000).collect()];
    (source.map(|source| source.with_parts(parts)).map_err(|error| error.to_string()), folder)
}

fn gradient(source: &mut ProcessSource, rows: &[u32]) -> Result<(f32, Vec<f32>), String> {
    let mut gradient = vec![0.0; 2];
    let rows = Rows::new(0, rows);
    let loss = source.gradient(rows, &[3.0, 4.0], &mut gradient);
    loss.map(|loss| (loss, gradient)).map_err(|error| error.to_string())
}

/// The messages about restarts of the process that the test `name` started.
fn told(name: &str) -> Vec<String> {
    TOLD.lock().unwrap().iter().filter(|it| it.contains(&format!("{name}.py"))).cloned().collect()
}

#[test]
fn gradients_evaluations_and_initial_parameters_come_from_the_process() {
    if !has_python() {
        return;
    }
    let (source, _folder) = source("plain", "", None);
    let mut source = source.unwrap();
    assert_eq!((source.parameters(), source.description().examples), (2, 50_000));
    assert_eq!(source.initial().unwrap(), Some(vec![1.0, 2.0]));
    assert_eq!(gradient(&mut source, &[0, 7]), Ok((27.0, vec![6.0, 8.0])));
    // More rows than a line has.
    let many: Vec<u32> = (0..20_000).collect();
    assert_eq!(gradient(&mut source, &many), Ok((20_025.0, vec![6.0, 8.0])));
    let evaluation = source.with_parts(vec![Vec::new()]).evaluate(0, &[3.0, 0.0]).unwrap();
    assert_eq!((evaluation.examples, evaluation.loss), (4, 0.5));
    assert_eq!(evaluation.of_classes().unwrap().correct, 3);
    assert_eq!((evaluation.non_zeros, evaluation.l1), (1, 3.0));
    assert_eq!(told("plain"), [""; 0]);
}

#[test]
fn a_process_that_dies_is_started_again_with_the_same_request() {
    if !has_python() {
        return;
    }
    let fault = r#"
def fault(m):
    # The first process dies at its second gradient.
    if m["do"] == "gradient" and m["id"] == 2 and not os.path.exists(__file__ + ".died"):
        open(__file__ + ".died", "w").close()
        os._exit(3)
"#;
    let (source, _folder) = source("dies", fault, None);
    let mut source = source.unwrap();
    for _ in 0..3 {
        assert_eq!(gradient(&mut source, &[0]), Ok((26.0, vec![6.0, 8.0])));
    }
    let told = told("dies");
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].contains("it ended with exit status: 3; starting it again (1 of 2)"),
        "{told:?}"
    );
}

#[test]
fn a_process_that_keeps_failing_is_given_up_with_the_reason() {
    if !has_python() {
        return;
    }
    for (name, fault, why) in [
        (
            "short",
            r#"
def fault(m):
    if m["do"] == "gradient": say({"id": m["id"], "loss": 1}, [1]); return True
"#,
            "it announced 1 values where the model has 2",
        ),
        (
            "ahead",
            r#"
def fault(m):
    if m["do"] == "gradient": say({"id": m["id"] + 1, "loss": 1}, [1, 1]); return True
"#,
            "it answered id 4 where 3 was asked; send the id of the request back",
        ),
        (
            "cut",
            r#"
def fault(m):
    if m["do"] == "gradient":
        o.write(b'{"id":%d,"loss":1,"values":2}\n1234' % m["id"]); o.flush(); os._exit(0)
"#,
            "it ended with exit status: 0",
        ),
    ] {
        let (source, _folder) = source(name, fault, None);
        let found = source.and_then(|mut source| gradient(&mut source, &[0]).map(|_| ()));
        let error = found.unwrap_err();
        assert!(error.contains(why), "{name}: {error}");
        assert_eq!(told(name).len(), 2, "{name}");
    }
}

#[test]
fn a_process_that_never_described_itself_is_not_started_again() {
    if !has_python() {
        return;
    }
    for (name, fault, why) in [
        ("exits", "sys.exit(4)", "it ended with exit status: 4, before it answered hello"),
        ("imports", "import no_such_module", "exit status: 1, before it answered hello"),
        ("prints", "print('Epoch 1', flush=True)", "it wrote \"Epoch 1\" where"),
    ] {
        let (source, _folder) = source(name, fault, None);
        let error = source.unwrap_err();
        assert!(error.contains(why), "{name}: {error}");
        assert_eq!(told(name), [""; 0], "{name}");
    }
}

#[test]
fn a_process_that_hangs_is_started_again_when_its_time_is_up() {
    if !has_python() {
        return;
    }
    let fault = r#"
def fault(m):
    if m["do"] == "gradient" and not os.path.exists(__file__ + ".hung"):
        open(__file__ + ".hung", "w").close()
        time.sleep(600)
"#;
    let (source, _folder) = source("hangs", fault, Some(Duration::from_secs(3)));
    assert_eq!(gradient(&mut source.unwrap(), &[0]), Ok((26.0, vec![6.0, 8.0])));
    assert!(told("hangs")[0].contains("it did not answer in time"), "{:?}", told("hangs"));
}

#[test]
fn an_error_that_the_process_names_is_final() {
    if !has_python() {
        return;
    }
    let fault = r#"
def fault(m):
    if m["do"] in ("gradient", "evaluate"):
        say({"id": m["id"], "error": "row 3 has no label"}); return True
"#;
    let (source, _folder) = source("names", fault, None);
    let mut source = source.unwrap();
    assert!(gradient(&mut source, &[0]).unwrap_err().contains("failed: row 3 has no label"));
    assert!(source.evaluate(0, &[0.0; 2]).unwrap_err().0.contains("row 3 has no label"));
    assert_eq!(told("names"), [""; 0]);
}

/// A late answer and a process that always sends the same number look alike, and the second never
/// sends the right one: neither is waited for.
#[test]
fn an_answer_with_no_number_or_another_one_is_an_error() {
    if !has_python() {
        return;
    }
    let back = "send the id of the request back";
    // Requests 1 and 2 are answered rightly; 4 and 5 are the third's after restarts.
    for (name, id, why) in [
        ("noid", "{}", format!("it answered without id where 4 was asked; {back}")),
        ("sameid", r#"{"id": 1}"#, format!("it answered id 1 where 4 was asked; {back}")),
        ("lateid", r#"{"id": m["id"] - 1}"#, format!("it answered id 3 where 4 was asked; {back}")),
    ] {
        for (asked, answer) in
            [("gradient", r#""loss": 1}, [1, 1]"#), ("evaluate", r#""examples": 4, "loss": .5}"#)]
        {
            let name = format!("{name}-{asked}");
            let fault = format!(
                r#"
def fault(m):
    if m["do"] == "{asked}" and m["id"] > 2:
        say({{**{id}, {answer}); return True
"#
            );
            let (source, _folder) = source(&name, &fault, None);
            let mut source = source.unwrap().with_parts(vec![vec![0]]);
            let mut ask = || match asked {
                "gradient" => gradient(&mut source, &[0]).map(|_| ()),
                _ => source.evaluate(0, &[0.0; 2]).map(|_| ()).map_err(|error| error.to_string()),
            };
            assert_eq!((ask(), ask()), (Ok(()), Ok(())), "{name}");
            let error = ask().unwrap_err();
            let why_last = why.replace("4 was", "5 was").replace("id 3", "id 4");
            assert!(error.contains(&why_last), "{name}: {error}");
            assert!(error.contains(&format!("{name}.py")), "{error}");
            let told = told(&name);
            assert_eq!(told.len(), 2, "{told:?}");
            assert!(told[1].contains(&format!("{why}; starting it again (2 of 2)")), "{told:?}");
        }
    }
}

/// A process with a counter beside its parameters, which is `count` at the start and `after` after
/// each mini-batch.
fn counting(name: &str, count: &str, after: &str) -> (ProcessSource, tempfile::TempDir) {
    let fault = format!(
        r#"
def fault(m):
    if m["do"] == "hello":
        state = {{"name": "seen", "shape": [], "combine": "first", "type": "i64"}}
        say({{"tensors": [{{"name": "w", "shape": [1]}}], "state": [state], "examples": 50000}})
    elif m["do"] == "start": say({{}}, [1, {count}])
    elif m["do"] == "gradient": say({{"id": m["id"], "loss": 1}}, [2, {after}])
    else: return False
    return True
"#
    );
    let (source, folder) = source(name, &fault, None);
    (source.unwrap(), folder)
}

#[test]
fn state_that_is_not_finite_or_counts_no_further_is_named_once_with_the_cure() {
    if !has_python() {
        return;
    }
    for (name, after, why) in [
        ("counted", "16777216", "is 16777216: messages count whole numbers to 16777216"),
        ("below", "-16777217", "is -16777216: messages count whole numbers to 16777216"),
        ("nan", "float('nan')", "is not finite (value 0 is NaN), and such a gradient does not"),
        ("most", "16777215", ""),
    ] {
        let (mut source, _folder) = counting(name, "0", after);
        assert_eq!(source.initial(), Ok(Some(vec![1.0, 0.0])));
        for _ in 0..2 {
            gradient(&mut source, &[0]).unwrap();
        }
        let told = told(name);
        if why.is_empty() {
            assert_eq!(told, [""; 0]);
            continue;
        }
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains(&format!("state \"seen\" {why}")), "{told:?}");
        assert!(told[0].contains("keep this state in the process"), "{told:?}");
    }
    for count in ["20000000", "float('inf')"] {
        let (mut source, _folder) = counting("begins", count, "0");
        let error = source.initial().unwrap_err().to_string();
        assert!(error.contains("failed: at the start, state \"seen\" is"), "{error}");
    }
}

#[test]
fn a_process_receives_row_numbers_after_the_values_if_it_asks_for_that() {
    if !has_python() {
        return;
    }
    let fault = r#"
def fault(m):
    if m["do"] == "hello":
        say({"tensors": [{"name": "w", "shape": [2]}], "examples": 50000, "rows": "after"})
        return True
    if m["do"] == "gradient":
        given = m["rows_after"] if rows else len(m["rows"])
        say({"id": m["id"], "loss": sum(rows), "values": 2}, [len(rows), given]); return True
"#;
    let (source, _folder) = source("after", fault, None);
    let mut source = source.unwrap();
    for numbers in [&[][..], &[49_999], &[7, 7, 3]] {
        let given = numbers.len() as f32;
        let loss = numbers.iter().sum::<u32>() as f32;
        assert_eq!(gradient(&mut source, numbers), Ok((loss, vec![given, given])));
    }
    assert_eq!(told("after"), [""; 0]);
}

/// A worker announces a gradient while it sends the last one.
#[test]
fn a_gradient_that_was_begun_is_the_same_and_no_other_request_takes_its_answer() {
    if !has_python() {
        return;
    }
    let fault = r#"
def fault(m):
    with open(__file__ + ".asked", "a") as asked: asked.write(m["do"][0])
    # The first process dies at its third gradient.
    if m["do"] == "gradient" and m["id"] == 5 and not os.path.exists(__file__ + ".died"):
        open(__file__ + ".died", "w").close()
        os._exit(3)
"#;
    let (source, folder) = source("begun", fault, None);
    let mut source = source.unwrap();
    let begin = |source: &mut ProcessSource, numbers: &[u32]| {
        source.begin(Rows::new(0, numbers), &[3.0, 4.0]);
    };
    begin(&mut source, &[0, 7]);
    assert_eq!(gradient(&mut source, &[0, 7]), Ok((27.0, vec![6.0, 8.0])));
    assert_eq!(gradient(&mut source, &[0]), Ok((26.0, vec![6.0, 8.0])));
    begin(&mut source, &[0]);
    assert_eq!(source.evaluate(0, &[3.0, 4.0]).unwrap().examples, 4);
    begin(&mut source, &[0, 1, 2]);
    assert_eq!(gradient(&mut source, &[0, 1, 2]), Ok((28.0, vec![6.0, 8.0])));
    begin(&mut source, &[0]);
    assert_eq!(source.initial(), Ok(Some(vec![1.0, 2.0])));
    assert_eq!(gradient(&mut source, &[0]), Ok((26.0, vec![6.0, 8.0])));
    let asked = std::fs::read_to_string(folder.path().join("begun.py.asked")).unwrap();
    assert_eq!(asked, "hgggeghggsg");
    assert_eq!(told("begun").len(), 1);
}

#[test]
fn a_process_with_another_model_after_its_restart_is_refused() {
    if !has_python() {
        return;
    }
    let fault = r#"
def fault(m):
    if m["do"] == "hello" and os.path.exists(__file__ + ".died"):
        say({"tensors": [{"name": "w", "shape": [3]}], "examples": 50000}); return True
    if m["do"] == "gradient":
        open(__file__ + ".died", "w").close()
        os._exit(3)
"#;
    let (source, _folder) = source("changes", fault, None);
    let error = gradient(&mut source.unwrap(), &[0]).unwrap_err();
    assert!(error.contains("after its restart it has another model"), "{error}");
}

#[test]
fn losses_that_are_not_finite_are_read() {
    for text in ["NaN", "Infinity", "-Infinity", "null"] {
        let line = format!("{{\"id\":3,\"loss\":{text},\"values\":2}}\n");
        let answer: Answer = read_line(&mut line.as_bytes(), "an answer").unwrap().unwrap();
        assert_eq!(answer, Answer { id: Some(3), values: 2, ..Answer::default() });
    }
}

#[test]
fn messages_come_back_with_their_values_and_rows() {
    let mut bytes = Vec::new();
    let values: Vec<f32> = (0..40_000).map(|value| value as f32 / 7.0).collect();
    let order = Order { id: 9, rows: None, rows_after: 3, values: values.len() };
    write_message(&mut bytes, &Request::Gradient(order.clone()), &values, &[1, 2, u32::MAX])
        .unwrap();
    let mut from = Cursor::new(bytes);
    assert_eq!(read_line(&mut from, "a request").unwrap(), Some(Request::Gradient(order)));
    let mut found = vec![0.0; values.len()];
    read_values(&mut from, &mut found).unwrap();
    assert_eq!(found, values);
    assert_eq!(read_rows(&mut from, 3).unwrap(), [1, 2, u32::MAX]);
    assert!(read_line::<Request>(&mut from, "a request").unwrap().is_none());
}

#[test]
fn addresses_are_read_as_they_are_written() {
    for text in ["python3 x.py --a b", "unix:/run/x.sock", "description:net.json", "-"] {
        assert_eq!(text.parse::<ProcessAddress>().unwrap().to_string(), text);
    }
    for wrong in ["", "  ", "unix:"] {
        wrong.parse::<ProcessAddress>().unwrap_err();
    }
}

/// Changes some bytes of a line: a flip, a cut, a repetition.
fn damaged(rng: &mut Random, line: &str) -> Vec<u8> {
    let mut bytes = line.as_bytes().to_vec();
    for _ in 0..1 + rng.below(3) {
        let place = rng.below(bytes.len() as u64) as usize;
        match rng.below(3) {
            0 => bytes[place] = rng.below(256) as u8,
            1 => bytes.truncate(place + 1),
            _ => bytes.insert(place, bytes[rng.below(bytes.len() as u64) as usize]),
        }
    }
    bytes.retain(|byte| *byte != b'\n');
    bytes.push(b'\n');
    bytes
}

/// A process's metrics are figures of classes only if it names an accuracy; none becomes 0.
#[test]
fn metrics_keep_their_names_unless_they_are_of_classes() {
    let figures = |answer: &str| {
        let line = format!("{{\"id\":1,\"examples\":4,\"loss\":0.5{answer}}}\n");
        let mut from = line.as_bytes();
        read_line::<Evaluated>(&mut from, "an evaluation").unwrap().unwrap().figures()
    };
    let named = |values: &[(&str, f64)]| {
        Figures::Named(values.iter().map(|&(name, value)| (name.into(), value)).collect())
    };
    assert_eq!(figures(""), named(&[]));
    assert_eq!(figures(r#","metrics":{"accuracy":NaN}"#), named(&[]));
    assert_eq!(figures(r#","recall":[0.5,1.0],"f1":[0.25,0.75]"#), named(&[("macro_f1", 0.5)]));
    let perplexity = figures(r#","metrics":{"perplexity":54.5,"accuracy":0.75}"#);
    assert_eq!(perplexity, named(&[("accuracy", 0.75), ("perplexity", 54.5)]));
    let classes = figures(r#","metrics":{"accuracy":0.75,"auc":0.875},"recall":[0.5,null]"#);
    let Figures::Classes(classes) = classes else { panic!("{classes:?}") };
    assert_eq!((classes.correct, classes.auc), (3, Some(0.875)));
    assert_eq!(classes.recall, [Some(0.5), None]);
}

/// What a process says goes to a terminal as one short line.
#[test]
fn the_words_of_a_process_are_short_and_have_no_control_characters() {
    if !has_python() {
        return;
    }
    let fault = r#"
def fault(m):
    if m["do"] == "gradient":
        say({"id": m["id"], "error": "\x1b[31mred\x1b]0;title\x07\n" + "no " * 100000})
        return True
"#;
    let (source, _folder) = source("hostile", fault, None);
    let error = gradient(&mut source.unwrap(), &[1]).unwrap_err();
    assert!(error.contains("failed:  [31mred ]0;title  no no"), "{error}");
    assert!(!error.chars().any(char::is_control) && error.chars().count() < 1_000, "{error}");
}

/// No line of a process does harm: it is a message, or an error that quotes it.
#[test]
fn a_million_hostile_lines_are_messages_or_errors() {
    let lines = [
        r#"{"tensors":[{"name":"w","shape":[3,4]},{"name":"b","shape":[]}],"examples":100}"#,
        r#"{"id":17,"loss":0.25,"values":12}"#,
        r#"{"id":17,"error":"why"}"#,
        r#"{"id":9,"examples":4,"loss":0.5,"metrics":{"accuracy":0.75},"recall":[0.5,null]}"#,
        r#"{"do":"gradient","id":1,"rows":[1,2,3],"values":12}"#,
        r#"{"do":"hello","protocol":1,"worker":0,"workers":2,"seed":1}"#,
    ];
    let mut rng = Stream::new(7).fork("lines", 0).rng();
    let (mut read, mut refused) = (0, 0);
    for case in 0..1_000_000 {
        let bytes = damaged(&mut rng, lines[case % lines.len()]);
        let mut from = bytes.as_slice();
        let error = match case % lines.len() {
            0 => read_line::<Description>(&mut from, "a description").err(),
            1 | 2 => read_line::<Answer>(&mut from, "an answer").err(),
            3 => read_line::<Evaluated>(&mut from, "an evaluation").err(),
            _ => read_line::<Request>(&mut from, "a request").err(),
        };
        match error {
            None => read += 1,
            Some(ProtocolError::Line { .. }) => refused += 1,
            Some(other) => panic!("{other}: {:?}", String::from_utf8_lossy(&bytes)),
        }
    }
    assert!(read > 50_000 && refused > 500_000, "{read} read, {refused} refused");
}
