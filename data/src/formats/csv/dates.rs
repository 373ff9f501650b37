//! Dates and times in text, as seconds.

/// Seconds of a day.
pub(super) const DAY: i64 = 86_400;

/// Days from `origin` to a date, both in seconds.
pub(super) fn days(seconds: i64, origin: i64) -> f32 {
    ((seconds - origin) as f64 / DAY as f64) as f32
}

/// A text that is a date, perhaps with a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Date {
    /// Seconds since the beginning of 1970 (UTC, unless the text has another zone).
    Seconds(i64),
    /// A date whose day and month cannot be told apart, such as 01/02/2024.
    Ambiguous,
}

/// Reads a date. The year is first (`2024-01-31`, `2024/1/31`, `20240131`), or the day with full
/// stops (`31.1.2024`). A time may follow (`12:30`, `12:30:05.25`), and a zone (`Z`, `+02:00`).
pub(super) fn date(text: &str) -> Option<Date> {
    let (day, time) = match text.find(['T', ' ']) {
        Some(at) => (&text[..at], text[at + 1..].trim_start()),
        None => (text, ""),
    };
    let seconds = if time.is_empty() { 0 } else { seconds_of(time)? };
    let year_first = |year, month, day| {
        let days = days_of(year, month, day)?;
        Some(Date::Seconds(days * DAY + seconds))
    };
    if day.len() == 8 && digits(day, 8).is_some() {
        let [year, month, day] = [&day[..4], &day[4..6], &day[6..]].map(|it| digits(it, 4));
        return year_first(year?, month?, day?);
    }
    let separator = day.chars().find(|char| !char.is_ascii_digit())?;
    let mut parts = day.split(separator);
    let (first, second, third) = (parts.next()?, parts.next()?, parts.next()?);
    let [one, two, three] = [first, second, third].map(|it| digits(it, 4));
    let (one, two, three) = (one?, two?, three?);
    match (separator, first.len(), third.len(), parts.next()) {
        ('-' | '/' | '.', 4, 1..=2, None) => year_first(one, two, three),
        ('.', 1..=2, 4, None) => year_first(three, two, one),
        ('-' | '/', 1..=2, 4, None) => {
            let is_one = |month, day| days_of(three, month, day).is_some();
            (is_one(one, two) || is_one(two, one)).then_some(Date::Ambiguous)
        }
        _ => None,
    }
}

/// Reads a date, or a number of seconds, milliseconds, microseconds or nanoseconds since 1970.
pub(super) fn seconds(text: &str) -> Option<i64> {
    match date(text) {
        Some(Date::Seconds(seconds)) => return Some(seconds),
        Some(Date::Ambiguous) => return None,
        None => {}
    }
    let since: f64 = text.parse().ok().filter(|value: &f64| value.is_finite())?;
    // From 1973 to 5138, each.
    let unit =
        [1.0, 1e3, 1e6, 1e9].into_iter().find(|unit| (1e8..1e11).contains(&(since / unit)))?;
    Some((since / unit) as i64)
}

/// Reads a number of at most `most` digits.
fn digits(text: &str, most: usize) -> Option<i64> {
    let are_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    (are_digits && text.len() <= most).then(|| text.parse().ok())?
}

/// The day of a date, counted from the beginning of 1970 (Hinnant, `days_from_civil`).
fn days_of(year: i64, month: i64, day: i64) -> Option<i64> {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        2 => 28 + i64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=9999).contains(&year) || !(1..=length).contains(&day) {
        return None;
    }
    // Years begin in March here, so that the day of a leap year is the last.
    let year = if month > 2 { year } else { year - 1 };
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    Some(era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468)
}

/// Reads a time of the day, less its zone.
fn seconds_of(text: &str) -> Option<i64> {
    let (time, zone) = match text.find(['Z', '+', '-']) {
        Some(at) => (text[..at].trim_end(), &text[at..]),
        None => (text, "Z"),
    };
    let clock = |text: &str| {
        let mut parts = text.split(':').map(|part| digits(part, 2));
        let hours = parts.next()??;
        let minutes = parts.next().unwrap_or(Some(0))?;
        let seconds = parts.next().unwrap_or(Some(0))?;
        let is_time = hours < 24 && minutes < 60 && seconds < 61 && parts.next().is_none();
        is_time.then_some(3600 * hours + 60 * minutes + seconds)
    };
    let (whole, fraction) = time.split_once('.').unwrap_or((time, "0"));
    digits(fraction, 9)?;
    let seconds = clock(whole).filter(|_| whole.contains(':'))?;
    let ahead = match zone.split_at(1) {
        ("Z", "") => 0,
        (sign, zone) => {
            let zone = match (zone.len(), zone.get(..2), zone.get(2..)) {
                (4, Some(hours), Some(minutes)) => clock(&format!("{hours}:{minutes}"))?,
                _ => clock(zone)?,
            };
            if sign == "+" { zone } else { -zone }
        }
    };
    Some(seconds - ahead)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_seconds_since_1970() {
        for (text, expected) in [
            ("1970-01-01", 0),
            ("2000-02-29", 951_782_400),
            ("2024-01-01 00:00", 1_704_067_200),
            ("2024/1/1", 1_704_067_200),
            ("20240101", 1_704_067_200),
            ("1.1.2024 00:00:01", 1_704_067_201),
            ("2024-01-01T01:02:03.5Z", 1_704_070_923),
            ("2024-01-01T02:00:00+02:00", 1_704_067_200),
            ("2023-12-31 22:30-0130", 1_704_067_200),
            ("1969-12-31 23:59:59", -1),
        ] {
            assert_eq!(date(text), Some(Date::Seconds(expected)), "{text}");
            assert_eq!(seconds(text), Some(expected), "{text}");
        }
        assert_eq!(date("01/02/2024"), Some(Date::Ambiguous));
        assert_eq!(date("13/02/2024 12:00"), Some(Date::Ambiguous));
        for text in [
            "",
            "abc",
            "12",
            "2024-13-01",
            "2023-02-29",
            "2024-01-01 25:00",
            "2024-01",
            "1-2-3",
            "2024-01-01 noon",
            "40/40/2024",
            "1.5",
            "99999999",
            "2024-01-01-01",
            "\u{661}\u{662}",
        ] {
            assert_eq!(date(text), None, "{text}");
        }
    }

    #[test]
    fn counted_seconds_are_read_in_each_unit() {
        for text in ["1700000000", "1700000000000", "1.7e15", "1700000000000000000", "1700000000.5"]
        {
            assert_eq!(seconds(text), Some(1_700_000_000), "{text}");
        }
        for text in ["5", "-1700000000", "1e30", "nan", "01/02/2024"] {
            assert_eq!(seconds(text), None, "{text}");
        }
    }
}
