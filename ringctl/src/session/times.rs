//! How long sessions live, and when something happens, for people.

use super::Shown;
use crate::output::counted;
use rota_model::Stamp;
use std::time::{Duration, UNIX_EPOCH};

/// A length of time as options take it, from milliseconds.
pub fn length(ms: u64) -> String {
    humantime::format_duration(Duration::from_millis(ms)).to_string()
}

/// A number that says something; empty for none.
pub fn number(it: u64) -> String {
    if it == 0 { String::new() } else { it.to_string() }
}

/// A stamp as a time for people; empty for none.
pub fn time(stamp: u64) -> String {
    if stamp == 0 {
        return String::new();
    }
    let Ok(at) = Stamp::parse(stamp) else { return stamp.to_string() };
    let at = UNIX_EPOCH + Duration::from_millis(at.to_epoch_ms());
    humantime::format_rfc3339_millis(at).to_string()
}

/// How long it lives and what comes after it, in the words of the options; empty where nothing is said.
pub fn life_text(shown: &Shown) -> String {
    let mut said = Vec::new();
    said.extend(shown.idle_ms.map(|ms| format!("idle {}", length(ms))));
    said.extend(shown.max_life_ms.map(|ms| format!("max {}", length(ms))));
    if shown.restarts > 0 {
        said.push(counted(shown.restarts, "restart"));
    }
    if shown.restart_at > 0 {
        said.push(format!("again at {}", time(shown.restart_at)));
    }
    if shown.failed_actions > 0 {
        said.push(counted(shown.failed_actions, "failed action"));
    }
    said.join(", ")
}
