//! Parameter groups: tensors, chosen by name, whose updates have a rate or a weight decay of their
//! own.

use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::params::{KeyRange, Layout};

/// A group as users write it: `PATTERN:rate=FACTOR,weight-decay=NUMBER`, with one of both or both.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct GroupSpec {
    /// The names of its tensors; `*` stands for any characters.
    pub pattern: String,
    /// Factor of the learning rate, 0 or more; 0 keeps the tensors as they are.
    pub rate: f32,
    /// The weight decay in place of the job's, 0 or more.
    pub weight_decay: Option<f32>,
}

impl GroupSpec {
    fn has(&self, name: &str) -> bool {
        matches(self.pattern.as_bytes(), name.as_bytes())
    }
}

/// True if `name` fits `pattern`, in which `*` stands for any characters.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let Some((first, rest)) = pattern.split_first() else { return name.is_empty() };
    match first {
        b'*' => (0..=name.len()).any(|skipped| matches(rest, &name[skipped..])),
        _ => name.split_first().is_some_and(|(own, after)| own == first && matches(rest, after)),
    }
}

impl FromStr for GroupSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = |why: &str| {
            alloc::format!(
                "{text}: {why}; write PATTERN:rate=FACTOR or PATTERN:weight-decay=NUMBER, or both \
                 with a comma, such as *.bias:weight-decay=0"
            )
        };
        let (pattern, settings) =
            text.rsplit_once(':').ok_or_else(|| refused("it has no colon"))?;
        if pattern.bytes().filter(|byte| *byte == b'*').count() > MOST_STARS {
            return Err(refused("it has more than 8 asterisks"));
        }
        let mut spec = Self { pattern: pattern.into(), rate: 1.0, weight_decay: None };
        for setting in settings.split(',') {
            let (key, value) = setting.split_once('=').ok_or_else(|| refused("it sets nothing"))?;
            let number = value.parse().ok().filter(|it: &f32| it.is_finite() && *it >= 0.0);
            let number =
                number.ok_or_else(|| refused(&alloc::format!("{key} must be 0 or more")))?;
            match key {
                "rate" => spec.rate = number,
                "weight-decay" => spec.weight_decay = Some(number),
                _ => return Err(refused(&alloc::format!("there is no {key}"))),
            }
        }
        Ok(spec)
    }
}

impl TryFrom<String> for GroupSpec {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<GroupSpec> for String {
    fn from(group: GroupSpec) -> Self {
        group.to_string()
    }
}

/// The most asterisks of a pattern: each multiplies the time that a match may take.
const MOST_STARS: usize = 8;

impl fmt::Display for GroupSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pattern, rate, weight_decay } = self;
        write!(f, "{pattern}:rate={rate}")?;
        weight_decay.map_or(Ok(()), |decay| write!(f, ",weight-decay={decay}"))
    }
}

/// Groups that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GroupsError {
    /// A group has no tensor.
    #[error("groups: no tensor of the model is called {pattern}; it has {tensors}")]
    NoTensor {
        /// The pattern of the group.
        pattern: String,
        /// Some names of tensors.
        tensors: String,
    },
    /// Each tensor of the group with this pattern is in an earlier group.
    #[error(
        "groups: {0} has no tensor left, since the first group that fits a tensor counts; put it \
         first"
    )]
    Hidden(String),
}

/// Checks that each group has a tensor of parameters.
///
/// # Errors
/// [`GroupsError`] for the first group without one.
pub fn check_groups(groups: &[GroupSpec], layout: &Layout) -> Result<(), GroupsError> {
    let trained = layout.trained() as u64;
    let tensors = || layout.tensors().iter().filter(|tensor| tensor.keys.end() <= trained);
    let names = || tensors().map(|tensor| tensor.name.as_str());
    for (place, group) in groups.iter().enumerate() {
        let is_hidden = |name: &str| groups[..place].iter().any(|earlier| earlier.has(name));
        let mut its = names().filter(|name| group.has(name)).peekable();
        let pattern = || group.pattern.to_string();
        if its.peek().is_none() {
            let some: Vec<_> = names().take(8).collect();
            return Err(GroupsError::NoTensor { pattern: pattern(), tensors: some.join(", ") });
        }
        if its.all(is_hidden) {
            return Err(GroupsError::Hidden(pattern()));
        }
    }
    Ok(())
}

/// Consecutive keys with a rate or a weight decay of their own.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct KeyGroup {
    /// The keys, counted from the first key of the server.
    pub(super) keys: Range<usize>,
    /// Factor of the learning rate.
    pub(super) rate: f32,
    pub(super) weight_decay: f32,
}

/// Returns the groups of the keys `own` of a model, in key order. The first group that has a tensor
/// counts for it; tensors in no group are left out.
pub(super) fn of_keys(
    groups: &[GroupSpec],
    weight_decay: f32,
    layout: &Layout,
    own: KeyRange,
) -> Vec<KeyGroup> {
    let mut found: Vec<KeyGroup> = Vec::new();
    for tensor in layout.tensors() {
        let Some(group) = groups.iter().find(|group| group.has(&tensor.name)) else { continue };
        let keys = tensor.keys.overlap(own).and_then(|keys| keys.within(own));
        let Some(keys) = keys else { continue };
        let weight_decay = group.weight_decay.unwrap_or(weight_decay);
        let next = KeyGroup { keys, rate: group.rate, weight_decay };
        match found.last_mut() {
            Some(last)
                if last.keys.end == next.keys.start
                    && (last.rate, last.weight_decay) == (next.rate, next.weight_decay) =>
            {
                last.keys.end = next.keys.end;
            }
            _ => found.push(next),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_read_and_written() {
        for (text, written) in [
            ("*.bias:weight-decay=0", "*.bias:rate=1,weight-decay=0"),
            ("head.*:rate=10", "head.*:rate=10"),
            ("a:b:rate=0,weight-decay=0.5", "a:b:rate=0,weight-decay=0.5"),
        ] {
            let group: GroupSpec = text.parse().unwrap();
            assert_eq!(group.to_string(), written);
            assert_eq!(written.parse(), Ok(group));
        }
        for (text, words) in [
            ("*.bias", "no colon"),
            ("*.bias:", "sets nothing"),
            ("x:rate", "sets nothing"),
            ("x:rate=-1", "rate must be 0 or more"),
            ("x:rate=inf", "rate must be 0 or more"),
            ("x:momentum=1", "there is no momentum"),
            ("*********:rate=1", "more than 8 asterisks"),
        ] {
            let error = text.parse::<GroupSpec>().unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn an_asterisk_is_any_characters() {
        for (pattern, name, fits) in [
            ("*", "", true),
            ("*.bias", "0.bias", true),
            ("*.bias", "bias", false),
            ("*bn*", "layer.bn1.weight", true),
            ("*bn*", "layer.conv.weight", false),
            ("a*b*c", "abbc", true),
            ("a*b*c", "abb", false),
            ("", "a", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), fits, "{pattern} {name}");
        }
    }

    #[test]
    fn the_first_group_of_a_tensor_counts_and_neighbours_are_joined() {
        let layout = Layout::of([("a.w", &[4]), ("a.b", &[2]), ("b.w", &[3]), ("b.b", &[1])]);
        let groups = ["a.w:rate=0", "*.b:weight-decay=0", "*:rate=1,weight-decay=0"];
        let groups = groups.map(|text| text.parse::<GroupSpec>().unwrap());
        let own = KeyRange::new(1, 10).unwrap();
        let group = |keys, rate, weight_decay| KeyGroup { keys, rate, weight_decay };
        assert_eq!(
            of_keys(&groups, 0.5, &layout, own),
            [group(0..3, 0.0, 0.5), group(3..9, 1.0, 0.0)]
        );
        assert_eq!(check_groups(&groups, &layout), Ok(()));
        let lost = check_groups(&["c*:rate=1".parse().unwrap()], &layout);
        let tensors = "a.w, a.b, b.w, b.b".into();
        assert_eq!(lost, Err(GroupsError::NoTensor { pattern: "c*".into(), tensors }));
        let hidden = ["*.b:rate=0", "a.*:rate=1", "b.b:rate=2"].map(|text| text.parse().unwrap());
        assert_eq!(check_groups(&hidden, &layout), Err(GroupsError::Hidden("b.b".into())));
    }
}
