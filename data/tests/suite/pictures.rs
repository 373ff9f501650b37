//! Synthetic pictures.

#![expect(clippy::unwrap_used, reason = "a failing helper fails its test")]

use pstrain_compute::examples::{Label, Picture};
use pstrain_data::{Dataset, Features, SyntheticPictures, open};

const PICTURES: SyntheticPictures = SyntheticPictures { rows: 2000, size: 16, seed: 3 };

/// The pixels and the class of each row.
fn rows(pictures: SyntheticPictures) -> Vec<(Vec<f32>, usize)> {
    let schema = pictures.schema(&Features::default()).unwrap();
    let mut rows = Vec::new();
    let mut visit = |row: pstrain_compute::examples::Row<'_>| {
        rows.push((row.dense.to_vec(), row.class()));
        Ok(())
    };
    pictures.visit(&schema, &mut visit).unwrap();
    rows
}

#[test]
fn pictures_have_their_size_ten_even_classes_and_pixels_from_minus_one_to_one() {
    let schema = PICTURES.schema(&Features::default()).unwrap();
    let size = Picture { height: 16, width: 16, channels: 3 };
    assert_eq!((schema.shape.picture, schema.shape.dense), (Some(size), 768));
    assert!(!schema.standardised);
    let mut counts = [0; 10];
    for (pixels, class) in rows(PICTURES) {
        assert_eq!(pixels.len(), 768);
        assert!(pixels.iter().all(|pixel| (-1.0..=1.0).contains(pixel)));
        counts[class] += 1;
    }
    assert!(counts.iter().all(|count| (150..250).contains(count)), "{counts:?}");
}

#[test]
fn a_picture_depends_on_the_seed_and_its_number_alone() {
    let few = rows(SyntheticPictures { rows: 50, ..PICTURES });
    assert_eq!(few, rows(PICTURES)[..50]);
    assert_ne!(few, rows(SyntheticPictures { rows: 50, seed: 4, ..PICTURES }));
}

#[test]
fn the_mean_picture_of_a_class_hardly_tells_it_from_the_others() {
    // What tells is the shape, wherever it is: a model of single pixels is near chance.
    let (train, test) = (rows(PICTURES), rows(SyntheticPictures { seed: 9, ..PICTURES }));
    let mut means = vec![vec![0.0; 768]; 10];
    for (pixels, class) in &train {
        means[*class].iter_mut().zip(pixels).for_each(|(mean, pixel)| *mean += pixel / 200.0);
    }
    let nearest = |pixels: &[f32]| {
        let apart = |mean: &[f32]| {
            mean.iter().zip(pixels).map(|(mean, pixel)| (mean - pixel).powi(2)).sum::<f32>()
        };
        (0..10).min_by(|&a, &b| apart(&means[a]).total_cmp(&apart(&means[b]))).unwrap()
    };
    let right = test.iter().filter(|(pixels, class)| nearest(pixels) == *class).count();
    assert!(right < 500, "{right} of 2000");
}

#[test]
fn sizes_that_show_no_shape_are_refused() {
    for text in ["pictures:9,7", "pictures:9,65", "pictures:9,16,1,1"] {
        let refused = open(text, 1).unwrap_err();
        assert!(refused.contains("write pictures[:ROWS[,SIZE[,SEED]]]"), "{refused}");
    }
    let mut classes = Vec::new();
    let opened = open("pictures:40,8", 1).unwrap();
    let schema = opened.schema(&Features::default()).unwrap();
    opened.visit_labels(&schema, &mut |label| classes.push(label)).unwrap();
    assert!(classes.len() == 40 && classes.iter().all(|it| matches!(it, Label::Class(..10))));
}
