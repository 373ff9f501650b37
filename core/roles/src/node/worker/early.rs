//! Values of the next version that the server sends before its update.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use pstrain_compute::id::Version;
use pstrain_compute::params::{Coverage, KeyRange};
use pstrain_wire::worker::Parameters;

/// The values of one version that have come over the current connection.
#[derive(Debug, Default)]
pub(super) struct EarlyValues {
    version: Version,
    came: Coverage,
    /// One value for each key of the server.
    values: Vec<f32>,
}

impl EarlyValues {
    /// Adds early values of some of the keys `all`.
    pub(super) fn add(&mut self, early: &Parameters, all: KeyRange) -> Result<(), String> {
        let header = &early.header;
        if self.version != header.version {
            (self.version, self.came) = (header.version, Coverage::default());
        }
        let places = header.keys.within(all);
        let Some(places) = places.filter(|places| places.len() == early.values.len()) else {
            return Err(alloc::format!("it sent early values for keys {} of {all}", header.keys));
        };
        if !self.came.add(header.keys) {
            return Err(alloc::format!("it sent early values for keys {} twice", header.keys));
        }
        self.values.resize(all.len() as usize, 0.0);
        self.values[places].copy_from_slice(&early.values);
        Ok(())
    }

    /// Completes parameters of the keys `all` by the early values that they leave out. Parameters
    /// that leave out nothing replace the early values.
    pub(super) fn complete(&mut self, mut parameters: Parameters, all: KeyRange) -> Parameters {
        let Self { version, came, values } = core::mem::take(self);
        let is_rest = parameters.header.keys == all && parameters.header.version == version;
        let gaps: Vec<KeyRange> = came.gaps(all).collect();
        let rest = gaps.iter().map(|gap| gap.len()).sum::<u64>();
        if came.is_empty() || !is_rest || parameters.values.len() as u64 != rest {
            return parameters;
        }
        let (mut whole, mut rest) = (values, parameters.values.as_slice());
        for places in gaps.into_iter().filter_map(|gap| gap.within(all)) {
            let (next, later) = rest.split_at(places.len());
            whole[places].copy_from_slice(next);
            rest = later;
        }
        parameters.values = Arc::new(whole);
        parameters
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use pstrain_compute::id::Sequence;

    fn range(begin: u64, end: u64) -> KeyRange {
        KeyRange::new(begin, end).unwrap()
    }

    fn early(version: u64, keys: KeyRange, value: f32) -> Parameters {
        let values = Arc::new(vec![value; keys.len() as usize]);
        Parameters::early(Version(version), keys, values)
    }

    fn given(version: u64, values: Vec<f32>) -> Parameters {
        let mut given = early(version, range(0, 6), 0.0);
        (given.header.sequence, given.values) = (Sequence(7), Arc::new(values));
        given
    }

    #[test]
    fn the_rest_completes_early_values_of_its_version() {
        let (all, mut values) = (range(0, 6), EarlyValues::default());
        for version in 1..3 {
            values.add(&early(version, range(3, 5), 3.0), all).unwrap();
            values.add(&early(version, range(1, 2), 1.0), all).unwrap();
            let mut whole = given(version, vec![0.0, 2.0, 5.0]);
            whole = values.complete(whole, all);
            assert_eq!(*whole.values, [0.0, 1.0, 2.0, 3.0, 3.0, 5.0]);
        }
    }

    #[test]
    fn whole_parameters_replace_early_values() {
        let (all, mut values) = (range(0, 6), EarlyValues::default());
        values.add(&early(1, range(3, 5), 3.0), all).unwrap();
        assert_eq!(*values.complete(given(1, vec![9.0; 6]), all).values, [9.0; 6]);
        assert_eq!(values.complete(given(1, vec![9.0; 4]), all).values.len(), 4, "they are gone");
    }

    #[test]
    fn early_values_of_another_version_are_not_used() {
        let (all, mut values) = (range(0, 6), EarlyValues::default());
        values.add(&early(1, range(3, 5), 3.0), all).unwrap();
        assert_eq!(values.complete(given(2, vec![9.0; 4]), all).values.len(), 4);
        values.add(&early(3, range(3, 5), 3.0), all).unwrap();
        values.add(&early(4, range(2, 5), 4.0), all).unwrap();
        let whole = values.complete(given(4, vec![0.0; 3]), all);
        assert_eq!(*whole.values, [0.0, 0.0, 4.0, 4.0, 4.0, 0.0]);
    }

    #[test]
    fn early_values_that_do_not_fit_are_named() {
        let (all, mut values) = (range(0, 6), EarlyValues::default());
        assert!(values.add(&early(1, range(5, 7), 3.0), all).unwrap_err().contains("[5, 7)"));
        values.add(&early(1, range(3, 5), 3.0), all).unwrap();
        assert!(values.add(&early(1, range(4, 6), 3.0), all).unwrap_err().contains("twice"));
    }
}
