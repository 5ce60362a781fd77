//! From conditions to their text.

use super::lexer::is_of_word;
use crate::value::{Condition, Test, Value};
use std::fmt::{Formatter, Result, Write};
use std::ops::Bound;
use std::time::{Duration, UNIX_EPOCH};

pub(super) fn filter(f: &mut Formatter<'_>, conditions: &[Condition]) -> Result {
    for (at, it) in conditions.iter().enumerate() {
        if at > 0 {
            f.write_str(" and ")?;
        }
        condition(f, it)?;
    }
    Ok(())
}

pub(super) fn condition(f: &mut Formatter<'_>, it: &Condition) -> Result {
    use Bound::{Excluded, Included, Unbounded};
    text(f, &it.field)?;
    let (sign, of) = match &it.test {
        Test::Eq(of) => (" = ", of),
        Test::Starts(begin) => {
            f.write_str(" starts ")?;
            return text(f, begin);
        }
        Test::Within(Unbounded, Excluded(of)) => (" < ", of),
        Test::Within(Unbounded, Included(of)) => (" <= ", of),
        Test::Within(Excluded(of), Unbounded) => (" > ", of),
        Test::Within(Included(of), Unbounded) => (" >= ", of),
        // No text and no query has it.
        Test::Within(Unbounded, Unbounded) => return f.write_str(" is there"),
        Test::Within(Included(low) | Excluded(low), Included(high) | Excluded(high)) => {
            let Test::Within(begin, end) = &it.test else { return Ok(()) };
            f.write_str(if matches!(begin, Included(_)) { " in [" } else { " in (" })?;
            value(f, low)?;
            f.write_str(", ")?;
            value(f, high)?;
            return f.write_char(if matches!(end, Included(_)) { ']' } else { ')' });
        }
    };
    f.write_str(sign)?;
    value(f, of)
}

fn value(f: &mut Formatter<'_>, value: &Value) -> Result {
    match value {
        Value::Text(it) => text(f, it),
        Value::Integer(it) => write!(f, "{it}"),
        Value::Number(it) => write!(f, "{:?}", it.get()),
        Value::Time(it) => {
            let time = UNIX_EPOCH + Duration::from_millis(it.to_epoch_ms());
            write!(f, "{}", humantime::format_rfc3339_millis(time))
        }
        Value::Age(ms) => {
            let units =
                [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")];
            let whole = units.into_iter().find(|it| *ms > 0 && ms.is_multiple_of(it.0));
            let (unit, name) = whole.unwrap_or((1_000, "s"));
            write!(f, "{}{name}", ms / unit)
        }
    }
}

/// A word if it is one, else in quotes.
fn text(f: &mut Formatter<'_>, text: &str) -> Result {
    if !text.is_empty() && text.chars().all(is_of_word) {
        return f.write_str(text);
    }
    f.write_char('"')?;
    for letter in text.chars() {
        match letter {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            '\n' => f.write_str("\\n")?,
            '\r' => f.write_str("\\r")?,
            '\t' => f.write_str("\\t")?,
            it if rota_model::text::misleads(it) => write!(f, "\\u{{{:x}}}", u32::from(it))?,
            it => f.write_char(it)?,
        }
    }
    f.write_char('"')
}
