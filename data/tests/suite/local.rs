//! Rows of workers that each have their own: all nodes encode them alike, whichever rows they have.

#![expect(clippy::unwrap_used, reason = "a failing helper fails its test")]

use std::fs;
use std::path::Path;
use std::sync::Arc;

use pstrain_compute::id::PartId;
use pstrain_data::{DataSpec, Dataset, Local, Outline, PartitionSpec, Prepared, Settings, open};

fn opened(text: &str) -> Arc<dyn Dataset> {
    open(text, 1).unwrap()
}

/// Writes rows with a class and a number to predict.
fn table(folder: &Path, name: &str, rows: std::ops::Range<u32>) -> String {
    let row = |row| format!("{},{},{}\n", row * row % 37, ["a", "b"][row as usize % 2], row * 3);
    let text: String = rows.map(row).collect();
    fs::write(folder.join(name), format!("x,state,price\n{text}")).unwrap();
    format!("csv:{}", folder.join(name).display())
}

#[test]
fn server_and_workers_encode_rows_as_a_node_that_has_all_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let parts = [table(folder.path(), "1.csv", 0..20), table(folder.path(), "2.csv", 20..30)];
    let test = table(folder.path(), "test.csv", 30..60);
    for options in [",label=state", ",target=price", ",target=price,standardise=no"] {
        let profile = opened(&format!("{}{options}", parts[0])).profile().unwrap();
        let other = opened(&format!("{}{options}", parts[1])).profile().unwrap();
        let merged = folder.path().join("profile.toml");
        fs::write(&merged, profile.merged(other).unwrap().to_string()).unwrap();
        let profiled = format!(",profile={}", merged.display());
        for (its, evaluation) in
            [(options, Some(options)), (&*profiled, None), (&*profiled, Some(options))]
        {
            let workers: Vec<_> =
                parts.iter().map(|part| opened(&format!("{part}{its}"))).collect();
            let evaluation = evaluation.map(|options| opened(&format!("{test}{options}")));
            let settings = Settings {
                evaluation_share: 0.0,
                evaluation_data: evaluation.clone(),
                partition: PartitionSpec::Local,
                ..Settings::default()
            };
            let all = Local::new(workers.clone(), evaluation.as_ref()).unwrap();
            let all = Prepared::load(&all, &settings).unwrap();
            // A server has no worker's rows.
            let gone = vec![opened(&format!("csv:gone.csv{its}"))];
            let server = Local::new(gone, evaluation.as_ref()).unwrap();
            let server = Outline::read(&server, &settings).unwrap();
            let json = serde_json::to_string(&server.spec).unwrap();
            assert_eq!(json, serde_json::to_string(&all.spec).unwrap());
            assert_eq!(
                (&server.evaluation, &server.evaluation_rows),
                (&all.evaluation, &all.evaluation_rows)
            );
            assert!(server.fingerprint.is_unknown() && all.fingerprint.is_unknown());
            let spec: DataSpec = serde_json::from_str(&json).unwrap();
            for (worker, source) in (0..).zip(&workers) {
                let (own, fingerprint) = spec.prepare_parts(&**source, &[PartId(worker)]).unwrap();
                assert_eq!(own, [all.partition(PartId(worker))]);
                assert_eq!(fingerprint.rows, [20, 10][worker as usize]);
            }
        }
    }
}

#[test]
fn columns_that_the_job_lacks_are_refused_unless_they_are_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let part = table(folder.path(), "1.csv", 0..20);
    let evaluation = opened(&format!("{part},label=state,drop=price"));
    let settings = Settings {
        evaluation_share: 0.0,
        evaluation_data: Some(Arc::clone(&evaluation)),
        partition: PartitionSpec::Local,
        ..Settings::default()
    };
    let local = Local::new(Vec::new(), Some(&evaluation)).unwrap();
    let Outline { spec, .. } = Outline::read(&local, &settings).unwrap();
    let read = |options: &str| {
        let read = spec.prepare_parts(&*opened(&format!("{part}{options}")), &[PartId(0)]);
        read.map(|(parts, _)| parts[0].len()).map_err(|error| error.to_string())
    };
    let refused = read("").unwrap_err();
    assert!(refused.contains("no column \"price\", but x, state: leave it out with"), "{refused}");
    assert_eq!(read(",drop=price"), Ok(20));
    fs::write(folder.path().join("1.csv"), "x,state\n").unwrap();
    assert!(read("").unwrap_err().contains("0 rows, but at least one is needed"));
}
