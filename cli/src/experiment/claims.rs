//! Claims: statements of a source, decided by the runs.

use serde::Serialize;

use super::expression;
use super::quantity::Quantity;
use super::runs::{Place, Runs};
use super::sampled::{Interval, Sampled, Truth};
use super::spec::{Claim, Worst};

/// Decision about a claim.
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

/// A claim with its measurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Finding {
    /// The claim.
    pub(crate) claim: String,
    /// What the source reports.
    pub(crate) reported: String,
    /// The measured value as text.
    pub(crate) measured: String,
    /// The measured value, if it is known exactly.
    pub(crate) value: Option<f64>,
    /// 95 % confidence interval, if repetitions differ; with `each`, at the worst place.
    pub(crate) interval: Option<Interval>,
    /// The expected value as text.
    pub(crate) expected: String,
    /// The condition under which the claim holds.
    pub(crate) condition: String,
    /// `holds`, `does-not-hold` or `cannot-be-told`.
    pub(crate) verdict: Verdict,
    /// Reason why the claim cannot be decided.
    pub(crate) why: String,
    /// A note.
    pub(crate) note: String,
    /// True if the claim follows from the modelled times, so that it says nothing about training.
    pub(crate) self_check: bool,
}

impl Finding {
    /// The interval as text.
    pub(crate) fn confidence(&self) -> String {
        self.interval.map_or_else(String::new, |interval| format!("95 %: {interval}"))
    }
}

/// Decides all claims.
pub(crate) fn decide(runs: &Runs<'_>) -> Vec<Finding> {
    runs.spec.claim.iter().map(|claim| finding(runs, claim)).collect()
}

/// Decision about a claim at one place.
struct Decision {
    measured: Result<Sampled, String>,
    expected: Option<Result<Sampled, String>>,
    verdict: Verdict,
    why: String,
}

fn finding(runs: &Runs<'_>, claim: &Claim) -> Finding {
    let show = |value: &Result<Sampled, String>| match value.as_ref().map(Sampled::observed) {
        Ok(value) if claim.unit.is_empty() => value.to_string(),
        Ok(value) => format!("{value} {}", claim.unit),
        Err(_) => "unknown".into(),
    };
    let finding = |measured: String, found: Decision| Finding {
        claim: claim.text.clone(),
        reported: claim.reported.clone(),
        measured,
        value: found.measured.as_ref().ok().and_then(|value| value.observed().exact()),
        interval: found.measured.as_ref().ok().and_then(Sampled::interval),
        expected: found.expected.as_ref().map(show).unwrap_or_default(),
        condition: claim.holds.clone(),
        verdict: found.verdict,
        why: found.why,
        note: claim.note.clone(),
        self_check: claim.self_check,
    };
    if claim.each.is_empty() {
        let found = decision(runs, claim, &Place::default());
        return finding(show(&found.measured), found);
    }
    let places = runs.places(&claim.each);
    let found = places.iter().map(|place| (place, decision(runs, claim, place)));
    let found: Vec<_> = found.collect();
    let count = |verdict| found.iter().filter(|(_, one)| one.verdict == verdict).count();
    let (held, failed) = (count(Verdict::Holds), count(Verdict::DoesNotHold));
    let needed = claim.share.unwrap_or(1.0) * found.len() as f64;
    let verdict = if found.is_empty() {
        Verdict::CannotBeTold
    } else if held as f64 >= needed {
        Verdict::Holds
    } else if ((found.len() - failed) as f64) < needed {
        Verdict::DoesNotHold
    } else {
        Verdict::CannotBeTold
    };
    let why = elsewhere(runs, &found);
    let among = format!("holds in {held} of {}", found.len());
    let Some((place, worst)) = worst(claim.worst, found) else {
        let measured = Err("there are no such cells".to_owned());
        let found = Decision { measured, expected: None, verdict, why };
        return finding("unknown".into(), found);
    };
    let at = runs.place_label(place);
    let measured = format!("{among}; at worst {} ({at})", show(&worst.measured));
    finding(measured, Decision { verdict, why, ..worst })
}

/// Most places that are named where a claim does not hold.
const NAMED: usize = 4;

/// Names the places where a claim does not hold, with the reasons.
fn elsewhere(runs: &Runs<'_>, found: &[(&Place, Decision)]) -> String {
    let others = || found.iter().filter(|(_, one)| one.verdict != Verdict::Holds);
    let mut named: Vec<String> = others()
        .take(NAMED)
        .map(|(place, one)| {
            let at = runs.place_label(place);
            if one.why.is_empty() { at } else { format!("{at}: {}", one.why) }
        })
        .collect();
    match others().count() {
        0 => return String::new(),
        count if count > NAMED => named.push(format!("{} more", count - NAMED)),
        _ => {}
    }
    format!("not at {}", named.join("; "))
}

/// The place with the worst of the known values, else any place.
fn worst(wanted: Worst, mut found: Vec<(&Place, Decision)>) -> Option<(&Place, Decision)> {
    let observed =
        |one: &Decision| one.measured.as_ref().map(Sampled::observed).map_err(String::clone);
    let key = |(_, one): &(&Place, Decision)| match observed(one) {
        Ok(value) if value.is_no_number() => f64::NEG_INFINITY,
        Ok(value) if wanted == Worst::Most => value.low,
        Ok(value) => -value.high,
        Err(_) => f64::NEG_INFINITY,
    };
    let at = (0..found.len()).max_by(|&a, &b| key(&found[a]).total_cmp(&key(&found[b])))?;
    Some(found.swap_remove(at))
}

fn decision(runs: &Runs<'_>, claim: &Claim, place: &Place) -> Decision {
    let measured = evaluate(runs, &claim.measured, &[], place);
    let expected = match claim.expected.as_str() {
        "" => None,
        text => Some(evaluate(runs, text, &[], place)),
    };
    let decided = decided(runs, claim, (&measured, expected.as_ref()), place);
    let (verdict, why) = match decided.map(|decided| decided.truth()) {
        Ok(Truth::Is(true)) => (Verdict::Holds, String::new()),
        Ok(Truth::Is(false)) => (Verdict::DoesNotHold, String::new()),
        Ok(Truth::Varies(share)) => (Verdict::CannotBeTold, varies(share)),
        Ok(Truth::Unknown) => (Verdict::CannotBeTold, undecided(&measured, expected.as_ref())),
        Err(why) => (Verdict::CannotBeTold, why),
    };
    Decision { measured, expected, verdict, why }
}

/// A text, followed by the non-empty parts of `more` in brackets.
pub(crate) fn with(text: &str, more: &[&str]) -> String {
    let more: Vec<&str> = more.iter().copied().filter(|more| !more.is_empty()).collect();
    if more.is_empty() { text.to_owned() } else { format!("{text} ({})", more.join("; ")) }
}

/// Reason for an undecided claim: the repetitions differ, and it is true in this share of the
/// draws.
fn varies(share: f64) -> String {
    format!(
        "the repetitions differ too much: it holds in {:.0} % of the draws, and 97.5 % or 2.5 % \
         decide it; more repetitions (--reps) tell more",
        100.0 * share
    )
}

/// Reason for an undecided claim: numbers of the runs do not exist, or only bounds are known.
fn undecided(
    measured: &Result<Sampled, String>,
    expected: Option<&Result<Sampled, String>>,
) -> String {
    let is_none = |value: &Result<Sampled, String>| {
        value.as_ref().is_ok_and(|value| value.observed().is_no_number())
    };
    let is_exact = |value: &Result<Sampled, String>| {
        value.as_ref().is_ok_and(|value| value.observed().exact().is_some())
    };
    let what = if is_none(measured) {
        "what is measured"
    } else if expected.is_some_and(is_none) {
        "what is expected"
    } else if is_exact(measured) && expected.is_none_or(is_exact) {
        "a part of the condition"
    } else {
        return "runs ended before they reached what is asked for, or several values of an axis are \
                equally good: the bounds that follow do not decide it"
            .into();
    };
    format!("{what} is no number, as 1 / 0, sqrt(-1) and what is too large for one are not")
}

fn decided(
    runs: &Runs<'_>,
    claim: &Claim,
    (measured, expected): (&Result<Sampled, String>, Option<&Result<Sampled, String>>),
    place: &Place,
) -> Result<Sampled, String> {
    let mut own = vec![("measured", measured.clone()?)];
    if let Some(expected) = expected {
        own.push(("expected", expected.clone()?));
    }
    evaluate(runs, &claim.holds, &own, place)
}

/// Replaces each expression in brackets by its value, as in `the delay [t2 * 1000]`.
pub(super) fn filled(runs: &Runs<'_>, text: &str) -> String {
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, inner, after)) = bracketed(rest) {
        filled.push_str(before);
        let value = evaluate(runs, inner, &[], &Place::default());
        filled.push_str(
            &value.map_or_else(|_| "unknown".into(), |value| value.observed().to_string()),
        );
        rest = after;
    }
    filled + rest
}

/// The expressions in brackets within a text.
pub(super) fn expressions(text: &str) -> Vec<&str> {
    let mut rest = text;
    let next = || {
        let (_, inner, after) = bracketed(rest)?;
        rest = after;
        Some(inner)
    };
    std::iter::from_fn(next).collect()
}

/// The text before, within and after the first brackets.
fn bracketed(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once('[')?;
    let (inner, after) = rest.split_once(']')?;
    Some((before, inner, after))
}

/// The value of an expression at a place. Its names are those of `own`, definitions, or quantities.
pub(super) fn evaluate(
    runs: &Runs<'_>,
    text: &str,
    own: &[(&str, Sampled)],
    place: &Place,
) -> Result<Sampled, String> {
    expression::evaluate(text, |name| {
        if let Some((_, value)) = own.iter().find(|(other, _)| *other == name) {
            return Ok(value.clone());
        }
        match runs.spec.define.get(name) {
            Some(text) => evaluate(runs, text, &[], place),
            None => name.parse::<Quantity>()?.at(place).of(runs),
        }
    })
}
