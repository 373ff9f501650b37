use super::*;
use crate::fingerprint::Fingerprint;

fn digest(examples: &Examples) -> [u8; 32] {
    Fingerprint::of(examples).digest
}

fn some() -> Examples {
    let mut examples = Examples::new(Shape {
        inputs: 7,
        dense: 2,
        hot: 2,
        target: Target::Classes(3),
        picture: None,
    });
    examples.push(&[1.5, -2.0], &[2, 5], 0).unwrap();
    examples.push(&[0.0, 3.25], &[4, 6], 2).unwrap();
    examples
}

#[test]
fn packed_examples_come_back_unchanged() {
    let examples = some();
    let mut bytes = Vec::new();
    examples.pack(0..2, &mut bytes);
    assert_eq!(bytes.len(), 2 * examples.row(0).packed_bytes());
    assert_eq!([1, 27, 28, 99].map(|most| examples.packed_rows(0, most)), [1, 1, 2, 2]);
    let mut back = Examples::new(examples.shape());
    back.unpack(&bytes).unwrap();
    assert_eq!(back, examples);
    assert_eq!(digest(&back), digest(&examples));
    assert!(matches!(back.unpack(&bytes[1..]), Err(ShapeError::Packed { .. })));
}

#[test]
fn examples_that_do_not_fit_are_refused() {
    let mut examples = some();
    assert!(matches!(examples.push(&[0.0], &[2, 5], 0), Err(ShapeError::Width { .. })));
    for index in [1, 7] {
        let refused = examples.push(&[0.0, 0.0], &[2, index], 0);
        assert_eq!(refused, Err(ShapeError::Column { index, inputs: 7 }));
    }
    assert!(matches!(examples.push(&[0.0, 0.0], &[2, 5], 3), Err(ShapeError::Label { .. })));
    let refused = examples.push(&[0.0, f32::NAN], &[2, 5], 0);
    assert_eq!(refused, Err(ShapeError::NotFinite { column: 1 }));
    assert_eq!(examples, some());
}

#[test]
fn the_digest_sees_every_part() {
    let examples = some();
    let swapped = examples.select(&[1, 0]);
    assert_ne!(digest(&examples), digest(&swapped));
    assert_eq!(digest(&examples), digest(&swapped.select(&[1, 0])));
    assert_eq!(examples.class_counts(), [1, 0, 1]);
}

#[test]
fn numbers_to_predict_are_stored_and_packed_with_their_rows() {
    for (dense, hot) in [(2, 2), (1, 1), (3, 0), (0, 1)] {
        let shape = Shape { inputs: dense + 4, dense, hot, target: Target::Value, picture: None };
        let mut examples = Examples::new(shape);
        for row in 0..3_u16 {
            let values: Vec<f32> = (0..dense).map(|column| column as f32 - 0.5).collect();
            let columns: Vec<u16> =
                (0..hot).map(|group| (dense + group) as u16 + row % 2).collect();
            examples.push(&values, &columns, f32::from(row) * 1e5 + 0.25).unwrap();
        }
        let mut bytes = Vec::new();
        examples.pack(0..3, &mut bytes);
        assert_eq!(bytes.len(), 3 * examples.row(0).packed_bytes());
        let mut back = Examples::new(shape);
        back.unpack(&bytes).unwrap();
        assert_eq!(back, examples);
        assert_eq!(back.label(2), Label::Value(200_000.25));
        assert_eq!(back.row(1).hot.len(), hot as usize);
        let chosen = examples.select(&[2, 0]);
        assert_eq!(chosen.labels().last(), Some(Label::Value(0.25)));
        assert_eq!(examples.extract(&[1]).label(0), Label::Value(100_000.25));
        assert_eq!(chosen.class_counts(), []);
    }
    let mut examples = Examples::new(Shape::sparse(9, Target::Value));
    examples.push_sparse(&[3], &[1.5], -2.0).unwrap();
    let mut bytes = Vec::new();
    examples.pack(0..1, &mut bytes);
    let mut back = Examples::new(examples.shape());
    back.unpack(&bytes).unwrap();
    assert_eq!((back.label(0), &back), (Label::Value(-2.0), &examples));
}

#[test]
fn labels_of_another_kind_and_ones_that_are_not_finite_are_refused() {
    let refused = Err(ShapeError::Target(Target::Value));
    let mut values = Examples::new(Shape::sparse(9, Target::Value));
    assert_eq!(values.push_sparse(&[], &[], 1_u16), refused);
    assert_eq!(values.push_sparse(&[], &[], f32::NAN), refused);
    let mut classes = some();
    let refused = Err(ShapeError::Target(Target::Classes(3)));
    assert_eq!(classes.push(&[0.0, 3.25], &[4, 6], 1.0), refused);
}

#[test]
fn a_shape_is_serialised_with_its_target() {
    let of_classes =
        Shape { inputs: 7, dense: 2, hot: 2, target: Target::Classes(3), picture: None };
    let of_values = Shape { target: Target::Value, ..of_classes };
    for shape in [of_classes, of_values] {
        let bytes = crate::saved::to_bytes(&shape);
        assert_eq!(crate::saved::from_bytes(&bytes), Ok(shape));
    }
}

fn sparse() -> Examples {
    let mut examples = Examples::new(Shape::sparse(100, Target::Classes(2)));
    examples.push_sparse(&[3, 70], &[1.5, -2.0], 0).unwrap();
    examples.push_sparse(&[], &[], 1).unwrap();
    examples.push_sparse(&[5, 70, 99], &[0.5, 1.0, 2.0], 1).unwrap();
    examples
}

#[test]
fn sparse_rows_come_back_unchanged_and_cut_ones_are_refused() {
    let examples = sparse();
    let mut bytes = Vec::new();
    examples.pack(0..3, &mut bytes);
    let mut back = Examples::new(examples.shape());
    back.unpack(&bytes).unwrap();
    assert_eq!(back, examples);
    assert_eq!(digest(&back), digest(&examples));
    for end in 0..bytes.len() {
        let mut cut = Examples::new(examples.shape());
        let whole = cut.unpack(&bytes[..end]).is_ok();
        assert_eq!(whole, [0, 22, 28].contains(&end), "{end}");
    }
    assert_eq!(examples.select(&[2, 0]).row(1), examples.row(0));
    assert_ne!(digest(&examples), digest(&examples.select(&[2, 1, 0])));
}

#[test]
fn sparse_rows_keep_their_values_over_the_columns_they_touch() {
    let examples = sparse();
    assert_eq!(examples.touched(), [3, 5, 70, 99]);
    let over = examples.clone().over(&[3, 4, 5, 70, 99]);
    assert_eq!(over.shape(), Shape::sparse(5, Target::Classes(2)));
    assert_eq!(over.row(2).columns, [2, 3, 4]);
    assert_eq!(over.row(2).values, examples.row(2).values);
}

#[test]
fn sparse_rows_that_do_not_fit_are_refused() {
    let mut examples = sparse();
    for columns in [&[4, 4][..], &[5, 4], &[4], &[4, 100]] {
        let refused = examples.push_sparse(columns, &[1.0, 1.0], 0);
        assert!(matches!(refused, Err(ShapeError::Entries { .. })), "{columns:?}");
    }
    let refused = examples.push_sparse(&[1, 9], &[0.0, f32::NAN], 0);
    assert_eq!(refused, Err(ShapeError::NotFinite { column: 9 }));
    assert!(matches!(examples.push_sparse(&[], &[], 2), Err(ShapeError::Label { .. })));
    assert_eq!(examples, sparse());
}

#[test]
fn examples_that_are_taken_out_and_those_that_stay_are_what_selecting_them_gives() {
    for examples in [some().select(&[0, 1, 1, 0, 1]), sparse()] {
        let all = 0..examples.len() as u32;
        for chosen in 0..1_u32 << all.len() {
            let (taken, stay): (Vec<u32>, Vec<u32>) =
                all.clone().partition(|row| chosen >> row & 1 == 1);
            let mut rest = examples.clone();
            assert_eq!(rest.extract(&taken), examples.select(&taken));
            assert_eq!(rest, examples.select(&stay));
        }
    }
}
