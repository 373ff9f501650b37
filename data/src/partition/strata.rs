//! The groups of rows that a partition distinguishes: classes, or deciles of a number to predict.

use pstrain_compute::examples::{Label, Target};

/// Groups of rows with a number to predict, of equal size.
const DECILES: u16 = 10;

/// Returns the number of groups of a target.
#[must_use]
pub fn groups(target: Target) -> u32 {
    target.classes().unwrap_or_else(|| DECILES.into())
}

/// Returns the group of each row, which is below [`groups`] of the target: its class, or the decile
/// of its number, where 0 has the lowest numbers. Of equal numbers the first row comes first.
#[must_use]
pub fn groups_of(labels: &[Label], target: Target) -> Vec<u16> {
    if target != Target::Value {
        return labels.iter().map(|label| label.class().unwrap_or_default()).collect();
    }
    let value = |row: usize| match labels[row] {
        Label::Value(value) => value,
        Label::Class(class) => class.into(),
    };
    let mut ranked: Vec<usize> = (0..labels.len()).collect();
    ranked.sort_by(|&one, &other| value(one).total_cmp(&value(other)));
    let mut groups = vec![0; labels.len()];
    for (rank, row) in ranked.into_iter().enumerate() {
        groups[row] = (rank * usize::from(DECILES) / labels.len()) as u16;
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_stay_and_numbers_are_ranked_into_deciles() {
        let classes = [Label::Class(2), Label::Class(0)];
        assert_eq!(groups_of(&classes, Target::Classes(3)), [2, 0]);
        assert_eq!((groups(Target::Classes(3)), groups(Target::Value)), (3, 10));
        let values: Vec<Label> = (0..20).rev().map(|value| Label::Value(value as f32)).collect();
        let found = groups_of(&values, Target::Value);
        assert_eq!((&found[..4], &found[18..]), (&[9, 9, 8, 8][..], &[0, 0][..]));
        let equal = [Label::Value(1.0); 10];
        assert_eq!(groups_of(&equal, Target::Value), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert!(groups_of(&[], Target::Value).is_empty());
    }
}
