//! The original data files are read as published; ignored where the files are missing.
//!
//! [`pstrain_tests::real_data`] says where the files are searched.

use pstrain_compute::id::PartId;
use pstrain_data::{Cifar, CifarSet, Dataset, NslKdd, Prepared, Settings};
use pstrain_tests::real_data;

#[test]
#[cfg_attr(not(nsl_kdd), ignore = "needs NSL-KDD: set PSTRAIN_DATA")]
fn the_original_training_file_has_the_published_counts() {
    let folder = real_data("nsl-kdd");
    let facts = NslKdd { path: folder }.info().unwrap();
    assert_eq!(facts.rows, 125_973);
    let counts: Vec<u64> = facts.classes.iter().map(|class| class.count).collect();
    assert_eq!(counts, [67_343, 45_927, 11_656, 995, 52]);
    assert_eq!(facts.attacks.len(), 23);
    let sizes: Vec<usize> = facts.categories.iter().map(|column| column.values.len()).collect();
    assert_eq!(sizes, [3, 70, 11]);
    for (name, mean) in [
        ("count", 84.107_554_793_5),
        ("same_srv_rate", 0.660_927_659_102),
        ("num_outbound_cmds", 0.0),
    ] {
        let column = facts.columns.iter().find(|column| column.name == name).unwrap();
        assert!((column.mean - mean).abs() < 1e-6, "{column:?}");
    }
}

#[test]
#[cfg_attr(not(nsl_kdd), ignore = "needs NSL-KDD: set PSTRAIN_DATA")]
fn the_original_test_files_have_the_published_class_counts() {
    let folder = real_data("nsl-kdd");
    let server = Prepared::load(&NslKdd { path: folder.clone() }, &Settings::default()).unwrap();
    for (name, counts) in [
        ("KDDTest+.txt.xz", [9711, 7458, 2421, 2754, 200]),
        ("KDDTest-21.txt.xz", [2152, 4342, 2402, 2754, 200]),
    ] {
        let all = server.spec.encode_all(&NslKdd { path: folder.join(name) }).unwrap();
        assert_eq!(all.class_counts(), counts, "{name}");
    }
}

#[test]
#[cfg_attr(not(nsl_kdd), ignore = "needs NSL-KDD: set PSTRAIN_DATA")]
fn the_papers_split_has_the_precomputed_skew() {
    let folder = real_data("nsl-kdd");
    let wish = Settings { partition: "paper-non-iid".parse().unwrap(), ..Settings::default() };
    let source = NslKdd { path: folder };
    let server = Prepared::load(&source, &wish).unwrap();
    assert_eq!((server.train.len(), server.evaluation.len()), (94_480, 31_493));
    let skew = server.skew();
    // Columns: rows (expected over all draws of the split), share, L1, Hellinger, Jensen-Shannon.
    let expected =
        [(60_445.0, 0.640, 0.4195, 0.248, 0.068), (34_035.0, 0.360, 0.745, 0.464, 0.228)];
    for (worker, (rows, share, l1, hellinger, jensen_shannon)) in skew.workers.iter().zip(expected)
    {
        assert!((worker.rows as f64 - rows).abs() < 300.0, "{worker:?}");
        assert!((worker.share - share).abs() < 0.003, "{worker:?}");
        assert!((worker.l1 - l1).abs() < 0.005, "{worker:?}");
        assert!((worker.hellinger - hellinger).abs() < 0.003, "{worker:?}");
        assert!((worker.jensen_shannon - jensen_shannon).abs() < 0.002, "{worker:?}");
    }
    assert!((skew.mean_l1 - 0.537).abs() < 0.005, "{}", skew.mean_l1);

    let (mine, fingerprint) = server.spec.prepare_parts(&source, &[PartId(1)]).unwrap();
    assert_eq!(mine, [server.partition(PartId(1))]);
    assert_eq!(fingerprint, server.fingerprint);
}

#[test]
#[cfg_attr(not(cifar10), ignore = "needs CIFAR-10: set PSTRAIN_DATA")]
fn the_test_batch_of_cifar_10_has_a_thousand_images_of_each_class() {
    let file = real_data("cifar10").join("test_batch.bin.xz");
    let facts = Cifar { set: CifarSet::Ten, files: vec![file] }.info().unwrap();
    let counts: Vec<_> = facts.classes.iter().map(|it| (it.name.as_str(), it.count)).collect();
    assert_eq!((counts.len(), counts[0], counts[9]), (10, ("airplane", 1000), ("truck", 1000)));
    assert!(counts.iter().all(|&(_, count)| count == 1000), "{counts:?}");
    let channel = |first: usize| {
        let means = facts.columns[first..].iter().step_by(3).map(|column| column.mean);
        means.sum::<f64>() / 1024.0
    };
    // Mean red, green and blue of the test images, of 255 (.4942, .4851, .4504), from -1 to 1.
    for (first, mean) in [(0, -0.0116), (1, -0.0298), (2, -0.0992)] {
        assert!((channel(first) - mean).abs() < 5e-4, "{} {mean}", channel(first));
    }
}
