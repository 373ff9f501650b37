//! Recipes: which features of a record a model sees, and in which order.

use std::fmt;
use std::str::FromStr;

use pstrain_compute::examples::{Shape, Target};
use serde::{Deserialize, Serialize};

use super::record::{Columns, Record};
use super::schema::{CLASSES, FLAGS, NUMERIC, PROTOCOLS, SERVICES, category_groups, numeric_name};

/// One-hot columns of every recipe: protocol, service and flag.
const HOT: usize = PROTOCOLS.len() + SERVICES.len() + FLAGS.len();

/// Numeric features whose absolute correlation with the class exceeds 0.5, the weakest first:
/// `count`, `logged_in`, `srv_serror_rate`, `serror_rate`, `dst_host_serror_rate`,
/// `dst_host_same_srv_rate`, `dst_host_srv_serror_rate`, `dst_host_srv_count`, `same_srv_rate`.
const CORRELATED: [u8; 9] = [19, 8, 22, 21, 34, 30, 35, 29, 25];

const EVERY: [u8; NUMERIC] = {
    let mut all = [0; NUMERIC];
    let mut index = 0;
    while index < NUMERIC {
        all[index] = index as u8;
        index += 1;
    }
    all
};

/// The name of a recipe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum RecipeName {
    /// `nsl-kdd-93`: the 9 numeric features that correlate most with the class, and 84 one-hot
    /// columns.
    #[default]
    #[serde(rename = "nsl-kdd-93")]
    NslKdd93,
    /// `nsl-kdd-122`: all 38 numeric features, and 84 one-hot columns.
    #[serde(rename = "nsl-kdd-122")]
    NslKdd122,
}

impl RecipeName {
    /// All recipes.
    pub const ALL: [Self; 2] = [Self::NslKdd93, Self::NslKdd122];

    /// Returns the name, as users write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NslKdd93 => "nsl-kdd-93",
            Self::NslKdd122 => "nsl-kdd-122",
        }
    }

    /// Returns the numeric features, in the order of the dense columns.
    #[must_use]
    pub const fn numerics(self) -> &'static [u8] {
        match self {
            Self::NslKdd93 => &CORRELATED,
            Self::NslKdd122 => &EVERY,
        }
    }

    /// Returns the numeric features as a set.
    #[must_use]
    pub fn columns(self) -> Columns {
        Columns::of(self.numerics())
    }

    /// Returns the shape of an encoded record.
    #[must_use]
    pub const fn shape(self) -> Shape {
        let dense = self.numerics().len() as u32;
        let target = Target::Classes(CLASSES.len() as u32);
        Shape { inputs: dense + HOT as u32, dense, hot: 3, target, picture: None }
    }

    /// Returns the names of all input columns, in order.
    #[must_use]
    pub fn input_names(self) -> Vec<String> {
        let numerics = self.numerics().iter().map(|&numeric| numeric_name(numeric.into()).into());
        let categories = category_groups()
            .into_iter()
            .flat_map(|(group, values)| values.iter().map(move |value| format!("{group}_{value}")));
        numerics.chain(categories).collect()
    }

    /// Writes the dense columns of `record`, not yet standardised, to `dense`. Returns the indices
    /// of the one-hot columns that are 1.
    pub(crate) fn encode(self, record: &Record, dense: &mut [f32]) -> [u16; 3] {
        let numerics = self.numerics();
        for (value, &numeric) in dense.iter_mut().zip(numerics) {
            *value = record.numbers[usize::from(numeric)];
        }
        let begin = numerics.len() as u16;
        let services = begin + PROTOCOLS.len() as u16;
        [
            begin + u16::from(record.protocol),
            services + u16::from(record.service),
            services + SERVICES.len() as u16 + u16::from(record.flag),
        ]
    }
}

impl fmt::Display for RecipeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Error for a text that is not the name of a recipe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownRecipe(String);

impl fmt::Display for UnknownRecipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown recipe {:?}; allowed are ", self.0)?;
        f.write_str(&RecipeName::ALL.map(RecipeName::name).join(", "))
    }
}

impl std::error::Error for UnknownRecipe {}

impl FromStr for RecipeName {
    type Err = UnknownRecipe;

    fn from_str(text: &str) -> Result<Self, UnknownRecipe> {
        let found = Self::ALL.into_iter().find(|recipe| recipe.name() == text);
        found.ok_or_else(|| UnknownRecipe(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_in_the_documented_order() {
        let names = RecipeName::NslKdd93.input_names();
        assert_eq!(names.len(), 93);
        assert_eq!(
            names[..11],
            [
                "count",
                "logged_in",
                "srv_serror_rate",
                "serror_rate",
                "dst_host_serror_rate",
                "dst_host_same_srv_rate",
                "dst_host_srv_serror_rate",
                "dst_host_srv_count",
                "same_srv_rate",
                "protocol_type_icmp",
                "protocol_type_tcp",
            ]
        );
        assert_eq!((names[12].as_str(), names[92].as_str()), ("service_IRC", "flag_SH"));
        assert_eq!(RecipeName::NslKdd122.input_names().len(), 122);
        for recipe in RecipeName::ALL {
            assert_eq!(recipe.shape().inputs as usize, recipe.input_names().len());
            assert_eq!(recipe.name().parse(), Ok(recipe));
        }
        let refused = "mnist".parse::<RecipeName>().unwrap_err().to_string();
        assert_eq!(refused, "unknown recipe \"mnist\"; allowed are nsl-kdd-93, nsl-kdd-122");
    }

    #[test]
    fn a_record_turns_on_its_three_columns() {
        let mut record = Record { protocol: 1, service: 24, flag: 9, ..Record::default() };
        record.numbers[19] = 5.0;
        let mut dense = [0.0; 9];
        let hot = RecipeName::NslKdd93.encode(&record, &mut dense);
        assert_eq!(dense[0], 5.0);
        let names = RecipeName::NslKdd93.input_names();
        let on = hot.map(|index| names[usize::from(index)].as_str());
        assert_eq!(on, ["protocol_type_tcp", "service_http", "flag_SF"]);
    }
}
