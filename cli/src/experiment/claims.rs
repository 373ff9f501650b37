//! Claims: what a source says, decided by the runs.

use serde::Serialize;

use super::bounds::Bounds;
use super::expression;
use super::quantity::Quantity;
use super::runs::Runs;
use super::spec::Claim;

/// Whether a claim holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    Holds,
    DoesNotHold,
    CannotBeTold,
}

impl Verdict {
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::DoesNotHold => "does not hold",
            Self::CannotBeTold => "cannot be told",
        }
    }
}

/// A claim with what was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Finding {
    pub(crate) claim: String,
    pub(crate) reported: String,
    /// As people read it.
    pub(crate) measured: String,
    /// The number, where it is known.
    pub(crate) value: Option<f64>,
    pub(crate) expected: String,
    pub(crate) condition: String,
    pub(crate) verdict: Verdict,
    /// Why it cannot be told.
    pub(crate) why: String,
    pub(crate) note: String,
}

/// Decides all claims.
pub(crate) fn decide(runs: &Runs<'_>) -> Vec<Finding> {
    runs.spec.claim.iter().map(|claim| finding(runs, claim)).collect()
}

fn finding(runs: &Runs<'_>, claim: &Claim) -> Finding {
    let measured = evaluate(runs, &claim.measured, &[]);
    let expected = match claim.expected.as_str() {
        "" => None,
        text => Some(evaluate(runs, text, &[])),
    };
    let decided = decided(runs, claim, &measured, expected.as_ref());
    let (verdict, why) = match decided.map(Bounds::truth) {
        Ok(Some(true)) => (Verdict::Holds, String::new()),
        Ok(Some(false)) => (Verdict::DoesNotHold, String::new()),
        Ok(None) => (Verdict::CannotBeTold, undecided(&measured, expected.as_ref())),
        Err(why) => (Verdict::CannotBeTold, why),
    };
    let show = |value: &Result<Bounds, String>| match value {
        Ok(value) if claim.unit.is_empty() => value.to_string(),
        Ok(value) => format!("{value} {}", claim.unit),
        Err(_) => "unknown".into(),
    };
    Finding {
        claim: claim.text.clone(),
        reported: claim.reported.clone(),
        measured: show(&measured),
        value: measured.as_ref().ok().and_then(|value| value.exact()),
        expected: expected.as_ref().map(show).unwrap_or_default(),
        condition: claim.holds.clone(),
        verdict,
        why,
        note: claim.note.clone(),
    }
}

/// Why the numbers of the runs do not decide a claim.
fn undecided(
    measured: &Result<Bounds, String>,
    expected: Option<&Result<Bounds, String>>,
) -> String {
    let is_none =
        |value: &Result<Bounds, String>| value.as_ref().is_ok_and(|value| value.is_no_number());
    let what = if is_none(measured) {
        "what is measured"
    } else if expected.is_some_and(is_none) {
        "what is expected"
    } else if measured.as_ref().is_ok_and(|value| value.exact().is_some())
        && expected.is_none_or(|value| value.as_ref().is_ok_and(|value| value.exact().is_some()))
    {
        "a part of the condition"
    } else {
        return "runs ended before they reached what is asked for: the bounds that follow do not \
                decide it"
            .into();
    };
    format!("{what} is no number, as 1 / 0, sqrt(-1) and what is too large for one are not")
}

fn decided(
    runs: &Runs<'_>,
    claim: &Claim,
    measured: &Result<Bounds, String>,
    expected: Option<&Result<Bounds, String>>,
) -> Result<Bounds, String> {
    let mut own = vec![("measured", measured.clone()?)];
    if let Some(expected) = expected {
        own.push(("expected", expected.clone()?));
    }
    evaluate(runs, &claim.holds, &own)
}

/// A text in which an expression in brackets stands for its value, such as `the delay [t2 * 1000]`.
pub(super) fn filled(runs: &Runs<'_>, text: &str) -> String {
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, inner, after)) = bracketed(rest) {
        filled.push_str(before);
        let value = evaluate(runs, inner, &[]);
        filled.push_str(&value.map_or_else(|_| "unknown".into(), |value| value.to_string()));
        rest = after;
    }
    filled + rest
}

/// The expressions in the brackets of a text.
pub(super) fn expressions(text: &str) -> Vec<&str> {
    let mut rest = text;
    let next = || {
        let (_, inner, after) = bracketed(rest)?;
        rest = after;
        Some(inner)
    };
    std::iter::from_fn(next).collect()
}

/// What is before, in and after the first brackets.
fn bracketed(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once('[')?;
    let (inner, after) = rest.split_once(']')?;
    Some((before, inner, after))
}

/// The value of an expression: names are those in `own`, definitions, and quantities.
fn evaluate(runs: &Runs<'_>, text: &str, own: &[(&str, Bounds)]) -> Result<Bounds, String> {
    expression::evaluate(text, |name| {
        if let Some((_, value)) = own.iter().find(|(other, _)| *other == name) {
            return Ok(*value);
        }
        match runs.spec.define.get(name) {
            Some(text) => evaluate(runs, text, &[]),
            None => name.parse::<Quantity>()?.of(runs),
        }
    })
}
