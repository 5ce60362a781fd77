//! A length of time on the command line.

use std::time::Duration;

/// A length of time as people write it: `10s`, `1m 30s`, `250ms`; above zero.
pub fn length_of_time(text: &str) -> Result<Duration, String> {
    let length = humantime::parse_duration(text)
        .map_err(|error| format!("{error}; a length of time is written as in 10s or 500ms"))?;
    if length.is_zero() { Err("must be longer than 0".to_owned()) } else { Ok(length) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_and_are_not_zero() {
        assert_eq!(length_of_time("1m 30s"), Ok(Duration::from_secs(90)));
        assert!(length_of_time("0s").is_err());
        assert!(length_of_time("10").is_err());
    }
}
