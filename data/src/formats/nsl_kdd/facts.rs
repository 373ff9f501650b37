//! Facts about records that no other rows have: attacks and symbolic columns.

use std::collections::BTreeMap;

use super::CLASSES;
use crate::info::{Category, Info, Occurrence, Tally};
use crate::nsl_kdd::{Attack, NUMERIC, RecipeName, Record, category_groups, numeric_name};
use pstrain_compute::examples::{Label, Row};

/// Collects facts about records.
pub(super) struct Facts {
    all: Tally,
    attacks: BTreeMap<Attack, u64>,
    categories: [BTreeMap<u8, u64>; 3],
}

impl Facts {
    /// The recipe with all features: the fingerprint covers them.
    const RECIPE: RecipeName = RecipeName::NslKdd122;

    pub(super) fn new() -> Self {
        let all = Tally::new(Self::RECIPE.shape());
        Self { all, attacks: BTreeMap::new(), categories: Default::default() }
    }

    pub(super) fn add(&mut self, record: &Record) {
        *self.attacks.entry(record.attack).or_default() += 1;
        let values = [record.protocol, record.service, record.flag];
        for (counts, value) in self.categories.iter_mut().zip(values) {
            *counts.entry(value).or_default() += 1;
        }
        let mut dense = [0.0; NUMERIC];
        let hot = Self::RECIPE.encode(record, &mut dense);
        let label = Label::Class(record.attack.class().into());
        self.all.add(Row { dense: &dense, hot: &hot, columns: &[], values: &[], label });
    }

    pub(super) fn finish(self, source: String) -> Info {
        let names = (0..NUMERIC).map(|column| numeric_name(column).to_owned()).collect();
        let info = self.all.finish(source, &CLASSES.map(String::from), names);
        let rows = info.rows;
        let category = |((name, values), counts): ((&str, &[&str]), &BTreeMap<u8, u64>)| {
            let value = |(&value, &count): (&u8, &u64)| {
                Occurrence::new(values[usize::from(value)], count, rows)
            };
            Category { name: name.to_owned(), values: counts.iter().map(value).collect() }
        };
        let attack =
            |(attack, &count): (&Attack, &u64)| Occurrence::new(attack.name(), count, rows);
        Info {
            attacks: self.attacks.iter().map(attack).collect(),
            categories: category_groups().into_iter().zip(&self.categories).map(category).collect(),
            ..info
        }
    }
}
