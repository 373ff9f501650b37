//! Settings made of a word and numbers: `momentum:0.9`, `cosine:2000,0.001`.

use std::str::FromStr;
use std::time::Duration;

use pstrain_compute::id::Version;
use pstrain_compute::model::{Activation, Answers, Loss, ModelSpec, registered};
use pstrain_compute::named::NamedError;
use pstrain_compute::optim::{GroupSpec, OptimizerSpec};
use pstrain_compute::params::Blocks;
use pstrain_policy::job::ALL_EXAMPLES;
use pstrain_policy::mode::{Switch, SwitchAt};

fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| match text.parse::<f64>() {
        Ok(_) => format!("{text} must be a whole number, not negative, and not too large"),
        Err(_) => format!("{text:?} is no number"),
    })
}

/// Reads `model` and `activation`.
pub(super) fn model(text: &str, activation: Activation) -> Result<ModelSpec, String> {
    let added: String = registered().iter().map(|kind| format!(", or {}", kind.form)).collect();
    ModelSpec::read(text, activation).map_err(|error| format!("{error}{added}"))
}

/// Reads `loss`; `None` for the default of the data.
pub(super) fn loss(text: &str) -> Result<Option<Loss>, String> {
    if text == "auto" {
        return Ok(None);
    }
    let loss = text.parse().map(Some);
    loss.map_err(|error: NamedError| format!("{error}, or auto: nll for classes, else squared"))
}

/// Reads `batch-size`.
pub(super) fn batch_size(text: &str) -> Result<u32, String> {
    match text {
        "all" => Ok(ALL_EXAMPLES),
        _ => number(text),
    }
}

/// Reads `blocks`.
pub(super) fn blocks(text: &str) -> Result<Option<Blocks>, String> {
    if text == "none" { Ok(None) } else { text.parse().map(Some) }
}

/// Reads a value that may be missing: the word `absent`, or a number.
pub(super) fn optional<T: FromStr>(text: &str, absent: &str) -> Result<Option<T>, String> {
    if text == absent {
        return Ok(None);
    }
    number(text).map(Some).map_err(|error| format!("{error}; use a number or {absent}"))
}

/// Reads a real number that may be missing, `none`, and is not below `least`.
pub(super) fn at_least(text: &str, least: f64) -> Result<Option<f64>, String> {
    if text == "none" {
        return Ok(None);
    }
    let read = text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= least);
    read.map(Some).ok_or_else(|| format!("must be a number, {least} or more, or none"))
}

/// Reads a duration such as `500ms` or `1m 30s`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|error| format!("{error}; write a duration such as 500ms, 5s or 1m"))
}

/// Reads a duration that may be missing: `none`.
pub(super) fn optional_duration(text: &str) -> Result<Option<Duration>, String> {
    if text == "none" {
        return Ok(None);
    }
    duration(text).map(Some).map_err(|error| format!("{error}, or none"))
}

/// Reads `groups`: `none`, or items such as `*.bias:weight-decay=0`.
pub(super) fn groups(text: &str) -> Result<Vec<GroupSpec>, String> {
    if text == "none" {
        return Ok(Vec::new());
    }
    text.split_whitespace().map(str::parse).collect()
}

/// Reads `learning-rate`: a number, or `auto` for the rate that suits gradients or differences.
pub(super) fn learning_rate(
    text: &str,
    sends: Answers,
    optimizer: OptimizerSpec,
) -> Result<f32, String> {
    use OptimizerSpec::{Momentum, Nesterov, Sgd};
    let is_difference = sends == Answers::Difference;
    // Other optimisers divide by the size of the differences.
    let is_proportional = matches!(optimizer, Sgd | Momentum { .. } | Nesterov { .. });
    let usual = if is_difference && is_proportional { 1.0 } else { 0.1 };
    if text == "auto" {
        return Ok(usual);
    }
    text.parse().map_err(|_| format!("{text:?} is no number; use a number such as 0.1, or auto"))
}

/// Reads `switch`: `none`, or items such as `asp@1000` and `ssp:2@30s`.
pub(super) fn switches(text: &str) -> Result<Vec<Switch>, String> {
    if text == "none" {
        return Ok(Vec::new());
    }
    text.split_whitespace().map(switch).collect()
}

fn switch(item: &str) -> Result<Switch, String> {
    let Some((to, at)) = item.split_once('@') else {
        return Err(format!(
            "{item:?} does not say when: write CONSISTENCY@WHEN, with a number of updates or a \
             duration, such as asp@1000 or ssp:2@30s"
        ));
    };
    let to = to.parse().map_err(|error| format!("{item}: {error}"))?;
    let at = match at.parse() {
        Ok(version) => SwitchAt::Version(Version(version)),
        Err(_) => SwitchAt::Time(humantime::parse_duration(at).map_err(|error| {
            format!("{item}: {error}; write a number of updates, or a duration such as 30s")
        })?),
    };
    Ok(Switch { to, at })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_with_numbers_are_read() {
        let mlp = ModelSpec::Mlp { hidden: vec![64, 32], activation: Activation::Tanh };
        assert_eq!(model("mlp:64,32", Activation::Tanh), Ok(mlp));
        assert_eq!(model("softmax", Activation::Relu), Ok(ModelSpec::Softmax));
        assert_eq!(duration("1m 30s"), Ok(Duration::from_secs(90)));
        assert_eq!(optional::<u32>("auto", "auto"), Ok(None));
    }

    #[test]
    fn switches_are_read_in_their_order() {
        let at = |to: &str, at| Switch { to: to.parse().unwrap(), at };
        let read = switches("asp@1000  ssp:2@1m30s").unwrap();
        let time = SwitchAt::Time(Duration::from_secs(90));
        assert_eq!(read, [at("asp", SwitchAt::Version(Version(1000))), at("ssp:2", time)]);
        assert_eq!(switches("none"), Ok(Vec::new()));
        for (text, words) in [
            ("asp", "does not say when"),
            ("asap@10", "no consistency"),
            ("asp@soon", "asp@soon: "),
            ("asp@", "asp@: "),
            ("asp@-1", "a number of updates"),
        ] {
            let error = switches(text).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn other_words_say_what_is_allowed() {
        assert!(model("mlp", Activation::Relu).unwrap_err().contains("mlp:WIDTH[,WIDTH...]"));
        assert!(model("mlp:0", Activation::Relu).unwrap_err().contains("WIDTH must be 1 to"));
        assert!(model("mlp:x", Activation::Relu).unwrap_err().contains("\"mlp:x\" is no model"));
        assert!(duration("5").unwrap_err().contains("5s"));
    }
}
