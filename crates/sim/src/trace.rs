//! The trace of a run: a hash of everything that happened, and its text when asked for.

use crate::network::Place;
use std::hash::{DefaultHasher, Hash, Hasher};

/// A trace in the making.
#[derive(Clone, Debug)]
pub struct Trace {
    hasher: DefaultHasher,
    lines: Option<Vec<String>>,
}

impl Trace {
    /// A trace that keeps its text only if `keep`.
    pub fn new(keep: bool) -> Self {
        Self { hasher: DefaultHasher::new(), lines: keep.then(Vec::new) }
    }

    /// Whether text is kept.
    pub fn keeps_text(&self) -> bool {
        self.lines.is_some()
    }

    /// Adds a fact to the hash.
    pub fn mark(&mut self, fact: impl Hash) {
        fact.hash(&mut self.hasher);
    }

    /// Adds a line, when text is kept.
    pub fn line(&mut self, now_us: u64, place: Place, text: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            let (ms, us) = (now_us / 1000, now_us % 1000);
            lines.push(format!("{ms:>7}.{us:03} {:<6} {}", place.to_string(), text()));
        }
    }

    /// The hash of everything marked.
    pub fn hash(&self) -> u64 {
        self.hasher.finish()
    }

    /// The lines, if text is kept.
    pub fn into_lines(self) -> Vec<String> {
        self.lines.unwrap_or_default()
    }
}
