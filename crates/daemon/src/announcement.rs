//! Standard output, which belongs to whoever started the process.

use serde::Serialize;
use std::io::Write;

/// Writes one JSON document on one line of standard output, as in `{"ready":true,...}`. A reader
/// that is gone misses nothing that it asked for. Panics on what is no JSON (a map whose keys are
/// not texts).
pub fn announce<T: Serialize>(document: &T) {
    let line = serde_json::to_string(document).expect("what is announced is made of names");
    let mut stdout = std::io::stdout().lock();
    // Whoever started this process may not read its output.
    let _told = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
}
