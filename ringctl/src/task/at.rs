//! Moments on the command line.

use rota_client::docstore::Stamp;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How a moment is written.
const FORMS: &str = "a moment is written as 2026-11-28T04:25:00Z, as a stamp of 15 digits \
    (YYMMDDhhmmssmmm, UTC), or from now on as +10m";

/// A moment, perhaps seen from the present one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum At {
    /// That moment.
    Stamp(Stamp),
    /// So long from now on.
    Later(Duration),
    /// So long ago.
    Earlier(Duration),
}

/// The clock of this machine.
pub fn now() -> Stamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Stamp::from_epoch_ms(millis(since))
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A moment: a stamp, RFC 3339 in UTC, `+10m`, or `-10m`.
pub fn at(text: &str) -> Result<At, String> {
    let length = |text| humantime::parse_duration(text).map_err(|it| format!("{it}; {FORMS}"));
    if let Some(text) = text.strip_prefix('+') {
        return length(text).map(At::Later);
    }
    if let Some(text) = text.strip_prefix('-') {
        return length(text).map(At::Earlier);
    }
    if text.bytes().all(|it| it.is_ascii_digit()) {
        let stamp = crate::document::stamp(text);
        return stamp.map(At::Stamp).map_err(|it| format!("{it}; {FORMS}"));
    }
    let time = humantime::parse_rfc3339(text).map_err(|it| format!("{it}; {FORMS}"))?;
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let stamp = Stamp::try_from_epoch_ms(millis(since));
    stamp.map(At::Stamp).map_err(|_| "the years are 2000 to 2099".to_owned())
}

/// A moment that may be ahead: what begins with `-` is none.
pub fn ahead(text: &str) -> Result<At, String> {
    match at(text)? {
        At::Earlier(_) => Err(format!("is over; {FORMS}")),
        it @ (At::Stamp(_) | At::Later(_)) => Ok(it),
    }
}

impl At {
    /// The stamp of it.
    pub fn stamp(self, now: Stamp) -> Stamp {
        match self {
            At::Stamp(it) => it,
            At::Later(time) => now.plus_ms(millis(time)),
            At::Earlier(time) => now.minus_ms(millis(time)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_has_three_forms() {
        let now = Stamp::parse(261_128_000_000_000).unwrap();
        let of = |text: &str| at(text).unwrap().stamp(now).as_u64();
        assert_eq!(of("261128042500000"), 261_128_042_500_000);
        assert_eq!(of("2026-11-28T04:25:00Z"), 261_128_042_500_000);
        assert_eq!(of("+10m"), 261_128_001_000_000);
        assert_eq!(of("-1s"), 261_127_235_959_000);
    }

    #[test]
    fn what_is_no_moment_is_told_with_what_is_expected() {
        for wrong in ["", "soon", "+", "+10", "261328042500000", "2026-13-01T00:00:00Z", "7"] {
            let told = at(wrong).unwrap_err();
            assert!(told.contains("a moment is written as"), "{wrong}: {told}");
        }
        assert_eq!(at("2100-01-01T00:00:00Z").unwrap_err(), "the years are 2000 to 2099");
        assert!(ahead("-10m").unwrap_err().starts_with("is over"));
        assert!(ahead("+10m").is_ok());
    }
}
