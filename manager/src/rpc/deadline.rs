//! How long a caller waits: from its `grpc-timeout` header.

use std::time::Duration;
use tokio::time::Instant;
use tonic::metadata::MetadataMap;

/// For callers that do not say.
pub const DEFAULT: Duration = Duration::from_secs(10);

/// Longer waits are cut to this: what is under way here is bounded by it.
pub const LONGEST: Duration = Duration::from_millis(rota_protocol::REQUEST_MS);

/// When the caller gives up. A header that cannot be read counts as none, as gRPC says.
pub fn deadline_of(metadata: &MetadataMap) -> Instant {
    let header = metadata.get("grpc-timeout").and_then(|it| it.to_str().ok());
    let wait = header.and_then(parse).unwrap_or(DEFAULT).min(LONGEST);
    Instant::now() + wait
}

/// At most eight digits and a unit.
fn parse(text: &str) -> Option<Duration> {
    let unit_at = text.len().checked_sub(1).filter(|it| (1..=8).contains(it))?;
    let (digits, unit) = text.split_at_checked(unit_at)?;
    let amount: u64 =
        digits.bytes().all(|it| it.is_ascii_digit()).then(|| digits.parse().ok())??;
    Some(match unit {
        "H" => Duration::from_secs(amount * 3600),
        "M" => Duration::from_secs(amount * 60),
        "S" => Duration::from_secs(amount),
        "m" => Duration::from_millis(amount),
        "u" => Duration::from_micros(amount),
        "n" => Duration::from_nanos(amount),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_of_the_header_is_read() {
        for (text, wait) in [
            ("2H", Duration::from_secs(7200)),
            ("3M", Duration::from_secs(180)),
            ("5S", Duration::from_secs(5)),
            ("250m", Duration::from_millis(250)),
            ("99999999u", Duration::from_micros(99_999_999)),
            ("1n", Duration::from_nanos(1)),
        ] {
            assert_eq!(parse(text), Some(wait), "{text}");
        }
    }

    #[test]
    fn what_is_no_timeout_counts_as_none() {
        for text in ["", "5", "S", "-5S", "5s", "123456789S", "5é", "+5S"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn waits_have_a_default_and_a_most() {
        let mut metadata = MetadataMap::new();
        assert_eq!(deadline_of(&metadata), Instant::now() + DEFAULT);
        metadata.insert("grpc-timeout", "1H".parse().unwrap());
        assert_eq!(deadline_of(&metadata), Instant::now() + LONGEST);
        metadata.insert("grpc-timeout", "30m".parse().unwrap());
        assert_eq!(deadline_of(&metadata), Instant::now() + Duration::from_millis(30));
    }
}
