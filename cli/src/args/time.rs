//! Times on the command line.

use std::str::FromStr;

/// A time that is not 0.
pub(super) fn some_time(text: &str) -> Result<humantime::Duration, String> {
    let time = humantime::Duration::from_str(text).map_err(|error| error.to_string())?;
    if time.is_zero() {
        return Err(String::from("must be more than 0, such as 100ms"));
    }
    Ok(time)
}
