//! Class files: lengths of time.

use super::source::{Fields, Mistakes};

/// A length of time that a file may set.
pub(super) struct Span {
    pub(super) default: u64,
    pub(super) min: u64,
    pub(super) max: u64,
    pub(super) text: &'static str,
}

/// A time that may be left out; a wrong one is a mistake, and counts as left out.
pub(super) fn read_time(
    fields: &mut Fields,
    name: &str,
    span: &Span,
    mistakes: &mut Mistakes,
) -> u64 {
    optional_time(fields, name, span, mistakes).unwrap_or(span.default)
}

/// The same, of a time without a default.
pub(super) fn optional_time(
    fields: &mut Fields,
    name: &str,
    span: &Span,
    mistakes: &mut Mistakes,
) -> Option<u64> {
    let path = fields.path(name);
    let text = fields.optional_text(name, mistakes)?;
    match duration_ms(&text) {
        Some(ms) if (span.min..=span.max).contains(&ms) => Some(ms),
        Some(_) => {
            mistakes.add(path, format!("is {text:?}; it must be {}", span.text));
            None
        }
        None => {
            let problem = format!(
                "is {text:?}; it must be a whole number with ms, s, m, h or d, like \"10s\" ({})",
                span.text
            );
            mistakes.add(path, problem);
            None
        }
    }
}

/// A length of time: a whole number and `ms`, `s`, `m`, `h` or `d`.
fn duration_ms(text: &str) -> Option<u64> {
    let digits = text.len() - text.trim_start_matches(|it: char| it.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}
