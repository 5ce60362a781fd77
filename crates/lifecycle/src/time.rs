//! Times as people write them: stamps, RFC 3339, and at entry from now on.

use crate::item::wrong;
use rota_model::{FieldError, Stamp};
use smol_str::SmolStr;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

const ABSOLUTE: &str = "a time as 261128093000000 (YYMMDDhhmmssmmm) or 2026-11-28T09:30:00Z";
const RELATIVE: &str = "a time from now on as +2h, +1d12h or +500ms";
const CENTURY: &str = "a time of the years 2000 to 2099";
/// Units of a time from now on. Months and years differ in length, so they are none.
const UNITS: [&str; 5] = ["d", "h", "m", "s", "ms"];
const NS_PER_MS: i128 = 1_000_000;
/// Digits of a stamp.
const STAMP_DIGITS: usize = 15;

/// A time, and the text that prints it.
pub(crate) struct Time {
    pub(crate) at: Stamp,
    pub(crate) text: SmolStr,
}

/// Reads a time whose first character stands in that column. `now` is given at entry, where times from now on are
/// allowed.
pub(crate) fn parse(text: &str, column: usize, now: Option<Stamp>) -> Result<Time, FieldError> {
    if let Some(rest) = text.strip_prefix('+') {
        let Some(now) = now else {
            let problem = format!("{text:?}, a time from now on");
            return Err(wrong(column, &problem, ABSOLUTE));
        };
        let at = from_now(rest, column + 1, now)?;
        return Ok(Time { at, text: print(at) });
    }
    let expected = || match now {
        Some(_) => format!("{ABSOLUTE}, or {RELATIVE}"),
        None => ABSOLUTE.to_owned(),
    };
    let stands = || if text.is_empty() { "nothing".to_owned() } else { format!("{text:?}") };
    let is_stamp = text.len() == STAMP_DIGITS && text.bytes().all(|it| it.is_ascii_digit());
    let at = if is_stamp {
        text.parse().map_err(|_| wrong(column, &stands(), &expected()))?
    } else {
        let read = OffsetDateTime::parse(text, &Rfc3339);
        let read = read.map_err(|_| wrong(column, &stands(), &expected()))?;
        // A part of a millisecond is rounded up: nothing fires early.
        let ns = read.unix_timestamp_nanos();
        let ms = u64::try_from((ns + NS_PER_MS - 1).div_euclid(NS_PER_MS)).ok();
        let at = ms.and_then(|ms| Stamp::try_from_epoch_ms(ms).ok());
        at.ok_or_else(|| wrong(column, &stands(), CENTURY))?
    };
    Ok(Time { at, text: SmolStr::new(text) })
}

/// The moment that is so much later than `now`.
fn from_now(text: &str, column: usize, now: Stamp) -> Result<Stamp, FieldError> {
    let column_of = |byte: usize| column + text[..byte].chars().count();
    let mut at = 0;
    for unit in text.split(|it: char| it.is_ascii_digit()) {
        if !unit.is_empty() && !UNITS.contains(&unit) {
            let expected = format!("one of the units {}", UNITS.join(", "));
            return Err(wrong(column_of(at), &format!("{unit:?}"), &expected));
        }
        at += unit.len() + 1;
    }
    let later = humantime::parse_duration(text).map_err(|error| {
        let byte = match error {
            humantime::DurationError::InvalidCharacter(at)
            | humantime::DurationError::NumberExpected(at) => at,
            humantime::DurationError::UnknownUnit { start, .. } => start,
            humantime::DurationError::NumberOverflow | humantime::DurationError::Empty => 0,
        };
        let stands = if text.is_empty() { "nothing".to_owned() } else { format!("{text:?}") };
        wrong(column_of(byte), &stands, RELATIVE)
    })?;
    let ms = u64::try_from(later.as_millis()).ok();
    let ms = ms.and_then(|ms| now.to_epoch_ms().checked_add(ms));
    let at = ms.and_then(|ms| Stamp::try_from_epoch_ms(ms).ok());
    at.ok_or_else(|| wrong(column, &format!("{text:?}"), CENTURY))
}

/// RFC 3339 in UTC with milliseconds.
fn print(at: Stamp) -> SmolStr {
    let digits = at.to_string();
    let part = |from: usize, to: usize| &digits[from..to];
    let (year, month, day) = (part(0, 2), part(2, 4), part(4, 6));
    let (hour, minute, second, ms) = (part(6, 8), part(8, 10), part(10, 12), part(12, 15));
    smol_str::format_smolstr!("20{year}-{month}-{day}T{hour}:{minute}:{second}.{ms}Z")
}
