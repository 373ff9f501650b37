//! The rows of each part.

/// The rows of each part, grouped, so that a part is handed out without going through all rows.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    /// All rows, part by part, and in order within a part.
    rows: Vec<u32>,
    /// The place in `rows` where each part ends.
    ends: Vec<u32>,
}

impl Parts {
    /// Groups rows; `owners` has the part of each row, below `parts`.
    pub(crate) fn of(owners: &[u32], parts: u32) -> Self {
        // First the number of rows of each part, then the place of its next row.
        let mut ends = vec![0_u32; parts as usize];
        for &owner in owners {
            ends[owner as usize] += 1;
        }
        let mut begin = 0;
        for count in &mut ends {
            begin += std::mem::replace(count, begin);
        }
        let mut rows = vec![0; owners.len()];
        for (row, &owner) in (0..).zip(owners) {
            let next = &mut ends[owner as usize];
            rows[*next as usize] = row;
            *next += 1;
        }
        Self { rows, ends }
    }

    /// The rows of a part, ascending; none of a part that does not exist.
    pub(crate) fn rows(&self, part: u32) -> &[u32] {
        let Some(&end) = self.ends.get(part as usize) else { return &[] };
        let begin = part.checked_sub(1).map_or(0, |before| self.ends[before as usize]);
        &self.rows[begin as usize..end as usize]
    }

    /// The part of each row.
    pub(crate) fn owners(&self) -> Vec<u32> {
        let mut owners = vec![0; self.rows.len()];
        for part in 0..self.ends.len() as u32 {
            self.rows(part).iter().for_each(|&row| owners[row as usize] = part);
        }
        owners
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_part_has_the_rows_of_its_owner_in_order(
            owners in prop::collection::vec(0_u32..9, 0..200),
            more in 0_u32..3,
        ) {
            let parts = Parts::of(&owners, 9 + more);
            for part in 0..15 {
                let rows = (0..).zip(&owners).filter(|(_, owner)| **owner == part);
                let rows: Vec<u32> = rows.map(|(row, _)| row).collect();
                prop_assert_eq!(parts.rows(part), rows);
            }
            prop_assert_eq!(parts.owners(), owners);
        }
    }
}
