//! Times on the command line.

use std::str::FromStr;
use std::time::Duration;

/// Parses a time other than 0.
pub(super) fn nonzero_time(text: &str) -> Result<humantime::Duration, String> {
    let time = humantime::Duration::from_str(text).map_err(|error| error.to_string())?;
    if time.is_zero() {
        return Err(String::from("must be more than 0, such as 100ms"));
    }
    Ok(time)
}

/// Period of something; `None`: never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Every(pub(crate) Option<Duration>);

/// Parses a time, or `never`; 0 is never, too.
pub(super) fn time_or_never(text: &str) -> Result<Every, String> {
    if text == "never" {
        return Ok(Every(None));
    }
    let time = humantime::Duration::from_str(text)
        .map_err(|error| format!("{error}; use a time such as 30s, or never"))?;
    Ok(Every(Some(time.into()).filter(|time: &Duration| !time.is_zero())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_time_is_never() {
        for text in ["never", "0s"] {
            assert_eq!(time_or_never(text), Ok(Every(None)), "{text}");
        }
        assert_eq!(time_or_never("90s"), Ok(Every(Some(Duration::from_secs(90)))));
        assert!(time_or_never("often").unwrap_err().contains("or never"));
    }
}
