//! Mini-batches that are left out, with their rows, in words for the user.

use std::collections::BTreeSet;

use pstrain_roles::node::MOST_IN_A_ROW;
use pstrain_wire::reason::as_reason;

use super::ProcessConfig;

/// The most rows that a message names.
const MOST_NAMED: usize = 20;

/// The mini-batches of a process that are left out, and the rows that are not to blame.
#[derive(Debug, Default)]
pub(super) struct LeftOut {
    count: u64,
    /// True for each row of a finite gradient, by number.
    finite: Vec<bool>,
}

impl LeftOut {
    /// Notes that the gradient of these rows is finite.
    pub(super) fn finite(&mut self, rows: &[u32]) {
        for &row in rows {
            let row = row as usize;
            if row >= self.finite.len() {
                self.finite.resize(row + 1, false);
            }
            self.finite[row] = true;
        }
    }

    /// Notes that the mini-batch of these rows is left out: the process says why, or its gradient
    /// is not finite. Tells the user at the first one, and whenever their number has doubled.
    pub(super) fn note(&mut self, rows: &[u32], why: Option<&str>, config: &ProcessConfig) {
        self.count += 1;
        if !self.count.is_power_of_two() {
            return;
        }
        let ProcessConfig { address, tell, .. } = config;
        let count = match self.count {
            1 => "a mini-batch is left out".into(),
            count => format!("mini-batch {count} is left out"),
        };
        let why = match why {
            Some(why) => format!("the process skips it: {}", as_reason(why)),
            None => format!("its gradient is not finite; {}", self.blame(rows)),
        };
        tell(&format!(
            "the compute process ({address}): {count}: {why}; {MOST_IN_A_ROW} in a row end the \
             worker"
        ));
    }

    /// The rows that no finite gradient was of.
    fn blame(&self, rows: &[u32]) -> String {
        let is_suspect = |row: &u32| self.finite.get(*row as usize) != Some(&true);
        let suspects: BTreeSet<u32> = rows.iter().copied().filter(is_suspect).collect();
        let named: Vec<String> = suspects.iter().take(MOST_NAMED).map(u32::to_string).collect();
        let more = match suspects.len().saturating_sub(MOST_NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        match suspects.len() {
            0 => "each of its rows was in a finite one before: try a smaller learning-rate".into(),
            1 => format!("look at row {}, which was in no finite one", named[0]),
            _ => format!("look at rows {}{more}, which were in no finite one", named.join(", ")),
        }
    }
}
