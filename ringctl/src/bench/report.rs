//! Figures as tables and as JSON.

use super::load::Measured;
use crate::output::{Format, Out, plain_table};
use serde::Serialize;
use std::time::Duration;

/// One measured kind of call.
#[derive(Serialize, Clone, PartialEq, Debug, Default)]
pub struct Figures {
    /// What was called.
    pub name: String,
    pub per_s: f64,
    pub count: u64,
    pub failed: u64,
    pub p50_ms: f64,
    pub p90_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
}

/// Cores that this process may use: figures mean little without them.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Rounds to a number of decimals: figures are read, not computed with.
pub fn rounded(value: f64, decimals: i32) -> f64 {
    let scale = 10_f64.powi(decimals);
    (value * scale).round() / scale
}

/// A length of time in milliseconds.
pub fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

impl Figures {
    /// Of one kind of call.
    pub fn of(name: &str, measured: &Measured) -> Self {
        Self {
            name: name.to_owned(),
            per_s: rounded(measured.per_second(), 1),
            count: measured.count,
            failed: measured.failed,
            p50_ms: rounded(measured.latency_ms(0.5), 3),
            p90_ms: rounded(measured.latency_ms(0.9), 3),
            p99_ms: rounded(measured.latency_ms(0.99), 3),
            max_ms: rounded(measured.latency_ms(1.0), 3),
        }
    }
}

/// Shows figures, one line each; as JSON the first alone when there is one.
pub fn show(figures: &[Figures], out: &mut Out) -> anyhow::Result<()> {
    if out.format() == Format::Json {
        match figures {
            [one] => out.json(one)?,
            many => out.json(&many)?,
        }
        return Ok(());
    }
    let mut table =
        plain_table(["CALL", "PER S", "P50 MS", "P90 MS", "P99 MS", "MAX MS", "COUNT", "FAILED"]);
    for it in figures {
        table.add_row([
            it.name.clone(),
            format!("{:.0}", it.per_s),
            format!("{:.2}", it.p50_ms),
            format!("{:.2}", it.p90_ms),
            format!("{:.2}", it.p99_ms),
            format!("{:.2}", it.max_ms),
            it.count.to_string(),
            it.failed.to_string(),
        ]);
    }
    Ok(out.table(&table)?)
}

/// Tells on stderr what went wrong, if anything did.
pub fn tell_mistakes(name: &str, measured: &Measured) {
    if measured.failed > 0 {
        eprintln!("{name}: {} calls failed: {}", measured.failed, measured.mistakes.join("; "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_kind_of_call_is_one_json_document() {
        let (mut out, written) = Out::captured(Format::Json);
        show(&[Figures { name: "open".to_owned(), ..Figures::default() }], &mut out).unwrap();
        let document: serde_json::Value = serde_json::from_str(&written.text()).unwrap();
        assert_eq!(document["name"], "open");
        for field in ["per_s", "p50_ms", "p90_ms", "p99_ms", "max_ms", "count", "failed"] {
            assert!(document[field].is_number(), "{field}");
        }
    }

    #[test]
    fn figures_are_rounded_for_reading() {
        assert!((rounded(1.23456, 2) - 1.23).abs() < 1e-12);
        assert!((rounded(12345.67, 0) - 12346.0).abs() < 1e-12);
    }
}
