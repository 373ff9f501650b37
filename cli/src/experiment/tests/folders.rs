//! Results folders and reports: refusals and messages, with made-up runs.

use super::*;

#[test]
fn a_folder_of_another_experiment_is_refused_but_other_claims_and_more_repetitions_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let before = spec("");
    make(folder.path(), &before, 2, &MadeUp::default());
    let mut other = before.clone();
    other.job.insert("epochs".into(), spec::Text("3".into()));
    let refused = Store::create(folder.path(), &other, &about(), false).unwrap_err().to_string();
    assert!(refused.contains("another experiment") && refused.contains("--overwrite"), "{refused}");
    let real = About { mode: Mode::RealTime, ..about() };
    assert!(Store::create(folder.path(), &before, &real, false).is_err());

    let mut more = spec(&claim("{time_s; consistency=bsp, delay=1}", "measured > 0"));
    more.reps = 4;
    let execute = MadeUp::default();
    assert_eq!(make(folder.path(), &more, 2, &execute), 0);
    assert_eq!(execute.asked.into_inner().unwrap().len(), 6, "one more of each cell");

    Store::create(folder.path(), &other, &about(), true).unwrap();
    let (store, _) = Store::open(folder.path()).unwrap();
    assert!(store.records(6, 4).unwrap().is_empty());
}

#[test]
fn a_folder_of_something_else_is_refused_and_one_without_runs_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let before = spec("");
    for name in ["summary.json", "spec.toml"] {
        std::fs::write(path.join(name), "mine").unwrap();
        let refused = Store::create(path, &before, &about(), false).unwrap_err().to_string();
        assert!(refused.contains("holds no experiment"), "{refused}");
        assert_eq!(std::fs::read_to_string(path.join(name)).unwrap(), "mine");
        std::fs::remove_file(path.join(name)).unwrap();
    }
    std::fs::write(path.join("summary.json"), "mine").unwrap();
    Store::create(path, &before, &about(), true).unwrap();
    // No run was made: another experiment may use the folder.
    let mut other = before;
    other.job.insert("epochs".into(), spec::Text("3".into()));
    let real = About { mode: Mode::RealTime, ..about() };
    Store::create(path, &other, &real, false).unwrap();
    let (store, kept) = Store::open(path).unwrap();
    assert_eq!((store.about().unwrap().mode, &kept.job["epochs"].0[..]), (Mode::RealTime, "3"));
}

#[test]
fn runs_that_ended_early_and_unknown_metrics_are_told() {
    let spec = spec("");
    let folder = tempfile::tempdir().unwrap();
    make(folder.path(), &spec, 1, &MadeUp::default());
    let (store, _) = Store::open(folder.path()).unwrap();
    assert_eq!(report(&store, &spec).unwrap().warning, None);
    let mut early = store.records(6, 3).unwrap().remove(&(4, 1)).unwrap();
    early.texts.insert("ended".into(), "training diverged".into());
    early.texts.insert("consistency".into(), "asp".into());
    store.save(&early).unwrap();
    let told = report(&store, &spec).unwrap();
    let warning = told.warning.unwrap();
    let words = "1 of 18 runs ended without reaching their goal: consistency=asp delay=10, \
                 repetition 2: training diverged";
    assert_eq!(warning, words);
    assert_eq!(told.json["not_reached"][0]["ended"], "training diverged");
    let read = |name| std::fs::read_to_string(folder.path().join(name)).unwrap();
    assert!(read("report.html").contains(words));
    let header = read("runs.csv").lines().next().unwrap().to_owned();
    assert_eq!(header, "consistency,delay,rep,seed,accuracy,time_s,ended");

    let mut other = spec;
    other.picture[0].y = "tim_s".into();
    let said = report(&store, &other).unwrap_err().to_string();
    let words =
        "picture \"line\": y = \"tim_s\": there is no metric \"tim_s\"; did you mean \"time_s\"";
    assert!(said.contains(words), "{said}");
    other.picture[0].y = "time_s".into();
    other.picture[1].y = "bleu".into();
    let said = report(&store, &other).unwrap_err().to_string();
    let words = "picture \"curve\": y = \"bleu\": the curves have no \"bleu\", but accuracy";
    assert!(said.contains(words), "{said}");
    // Runs that a picture does not show need not have its numbers.
    let mut records = store.records(6, 3).unwrap();
    let cells = cells(&other);
    let is_asp = |at: usize| cells[at].value(&other, 0) == "asp";
    records.retain(|(at, _), _| is_asp(*at));
    let unknown =
        |spec: &Spec| draw::unknown_metrics(&Runs::new(spec, &cells, records.clone())).len();
    assert_eq!(unknown(&other), 1);
    other.picture[1]
        .among
        .insert("consistency".into(), spec::Values(vec![spec::Text("bsp".into())]));
    assert_eq!(unknown(&other), 0);
}
