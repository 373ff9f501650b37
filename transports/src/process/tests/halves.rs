//! Processes that are slow, stop in the middle of a message, leave children, or leave mini-batches
//! out.

use std::time::Duration;

use pstrain_compute::source::{GradientSource, Rows};

use super::{gradient, has_python, source, source_told_of, told};

/// Its answer in two halves, with a fault in between.
fn halves(fault: &str) -> String {
    format!(
        r#"
def fault(m):
    if m["do"] == "gradient" and not os.path.exists(__file__ + ".once"):
        open(__file__ + ".once", "w").close()
        o.write(b'{{"id":%d,"loss":26,"values":2}}\n1234' % m["id"]); o.flush()
        {fault}
        o.write(array.array("f", [8]).tobytes()); o.flush(); return True
"#
    )
}

#[test]
fn an_answer_that_stops_in_the_middle_holds_up_no_caller_that_would_not_wait() {
    if !has_python() {
        return;
    }
    let within = Duration::from_millis(20);
    let began = |name: &str, fault: &str, timeout| {
        let silence = Duration::from_millis(300);
        let (source, folder) = source_told_of(name, &halves(fault), timeout, silence);
        let mut source = source.unwrap();
        source.begin(Rows::new(0, &[0]), &[3.0, 4.0]);
        assert!(!source.is_answered(within), "{name}");
        (gradient(&mut source, &[0]).unwrap(), told(name), folder)
    };
    let ((loss, values), told, _folder) = began("pauses", "time.sleep(2)", None);
    assert_eq!((loss, values[1]), (26.0, 8.0));
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("has not answered for 0.3 s: it computes, or"), "{told:?}");
    // The time for an answer ends with its last byte.
    let drips = "for _ in range(3): time.sleep(1.2); o.write(b'1'); o.flush()";
    let limit = Some(Duration::from_secs(3));
    let (found, told, _folder) = began("drips", drips, limit);
    assert_eq!(found, (26.0, vec![6.0, 8.0]));
    assert!(told.iter().any(|it| it.contains("did not answer in time")), "{told:?}");
    // The end of the process is seen although a child of it holds the connection.
    let forks = "if os.fork() == 0: time.sleep(600)\n        os._exit(7)";
    let (found, told, _folder) = began("forks", forks, None);
    assert_eq!(found, (26.0, vec![6.0, 8.0]));
    assert!(told.last().unwrap().contains("it ended with exit status: 7"), "{told:?}");
}

#[test]
fn a_process_ends_with_the_children_that_it_has_left() {
    if !has_python() {
        return;
    }
    let fault = r#"
def fault(m):
    if m["do"] == "gradient":
        child = os.fork()
        if child == 0: time.sleep(600)
        open(__file__ + ".child", "w").write(str(child))
"#;
    let (mut source, folder) = source("leaves", fault, None);
    gradient(source.as_mut().unwrap(), &[0]).unwrap();
    let child = std::fs::read_to_string(folder.path().join("leaves.py.child")).unwrap();
    drop(source);
    while std::fs::read_to_string(format!("/proc/{child}/stat")).is_ok_and(|it| !it.contains(") Z"))
    {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// More parameters than a socket holds, to a process that does not read them.
#[test]
fn a_request_that_the_process_does_not_read_holds_up_no_caller_that_would_not_wait() {
    if !has_python() {
        return;
    }
    let fault = r#"
many = 3_000_000
def fault(m):
    if m["do"] == "hello":
        say({"tensors": [{"name": "w", "shape": [many]}], "examples": 50000})
    elif m["do"] == "gradient":
        say({"id": m["id"], "loss": p[-1]}, p)
        if m["id"] == 1: time.sleep(1)
    else: return False
    return True
"#;
    let (source, _folder) = source("late-reader", fault, None);
    let mut source = source.unwrap();
    let (params, mut found) = (vec![4.0; 3_000_000], vec![0.0; 3_000_000]);
    let rows = || Rows::new(0, &[0]);
    assert_eq!(source.gradient(rows(), &params, &mut found), Ok(4.0));
    source.begin(rows(), &params);
    assert!(!source.is_answered(Duration::ZERO));
    found.fill(0.0);
    assert_eq!(source.gradient(rows(), &params, &mut found), Ok(4.0));
    assert!(found == params);
}

#[test]
fn a_mini_batch_that_is_left_out_is_told_with_the_rows_that_were_in_no_finite_one() {
    if !has_python() {
        return;
    }
    let fault = r#"
def fault(m):
    if m["do"] == "gradient" and 7 in rows: say({"id": m["id"], "loss": 1}, [0, float("nan")])
    elif m["do"] == "gradient" and 9 in rows: say({"id": m["id"], "skip": "overflow"})
    else: return False
    return True
"#;
    let (source, _folder) = source("leaves-out", fault, None);
    let mut source = source.unwrap();
    let mut is_left_out = |rows: &[u32]| gradient(&mut source, rows).unwrap().1[1].is_nan();
    assert!(is_left_out(&[5, 6, 7]) && !is_left_out(&[5, 6, 8]) && is_left_out(&[6, 7, 8]));
    assert!(is_left_out(&[7, 5]) && is_left_out(&[9]));
    let told = told("leaves-out");
    let words = [
        "a mini-batch is left out: its gradient is not finite; look at rows 5, 6, 7, which were",
        "mini-batch 2 is left out: its gradient is not finite; look at row 7, which was in no",
        "mini-batch 4 is left out: the process skips it: overflow; 16 in a row end the worker",
    ];
    assert_eq!(told.len(), words.len(), "{told:?}");
    for (told, words) in told.iter().zip(words) {
        assert!(told.contains(words), "{told}");
    }
}

#[test]
fn a_skip_may_have_values_and_is_no_evaluation() {
    if !has_python() {
        return;
    }
    let fault = r#"
def fault(m):
    if m["do"] == "gradient" and 9 in rows: say({"id": m["id"], "skip": "overflow"}, [1, 2])
    elif m["do"] == "evaluate": say({"id": m["id"], "skip": "no rows"})
    else: return False
    return True
"#;
    let (source, _folder) = source("skips", fault, None);
    let mut source = source.unwrap();
    for (rows, is_left_out) in [([9], true), ([8], false), ([9], true), ([8], false)] {
        assert_eq!(gradient(&mut source, &rows).unwrap().1[1].is_nan(), is_left_out, "{rows:?}");
    }
    let error = source.evaluate(0, &[3.0, 4.0]).unwrap_err().to_string();
    assert!(error.contains("no rows"), "{error}");
    assert_eq!(told("skips").len(), 2, "it was not started again");
}

#[test]
fn an_accuracy_in_percent_is_refused() {
    if !has_python() {
        return;
    }
    let fault = r#"
def fault(m):
    if m["do"] == "evaluate":
        say({"id": m["id"], "examples": 4, "loss": 1, "metrics": {"accuracy": 97}}); return True
"#;
    let (source, _folder) = source("percent", fault, None);
    let error = source.unwrap().evaluate(0, &[3.0, 4.0]).unwrap_err().to_string();
    assert!(error.contains("its accuracy 97 is no share of the rows, from 0 to 1"), "{error}");
}
