//! Whether any manager answers the signs of life, for the log: a node that lost all of them says so while its
//! lease still runs.

use crate::lease::boottime_ms;
use std::collections::BTreeMap;

/// A renewal that nobody has answered for so long is worth a word. Managers answer within milliseconds, and
/// one that restarts is back within a second.
const SILENCE_MS: u64 = 1_500;

/// How often it is said again.
const SAID_EVERY_MS: u64 = 10_000;

/// What the log is to say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Word {
    /// No manager answers.
    Silent {
        /// Since when, in milliseconds.
        for_ms: u64,
        /// Each manager, and why it did not answer if that is known: `host:port (why)`.
        managers: String,
    },
    /// One answers again.
    Heard {
        /// After how many milliseconds.
        after_ms: u64,
    },
}

/// Who answered, and who did not.
#[derive(Debug, Default)]
pub struct Hearing {
    /// When the first renewal was sent that nobody has answered, on [`boottime_ms`].
    unanswered_ms: Option<u64>,
    /// Who was asked since, and what became of it.
    asked: BTreeMap<String, String>,
    said_ms: Option<u64>,
}

impl Hearing {
    /// A renewal is sent to these.
    pub fn asked<'a>(&mut self, now_ms: u64, managers: impl Iterator<Item = &'a String>) {
        self.unanswered_ms.get_or_insert(now_ms);
        let before = std::mem::take(&mut self.asked);
        self.asked =
            managers.map(|it| (it.clone(), before.get(it).cloned().unwrap_or_default())).collect();
    }

    /// One of them did not answer.
    pub fn failed(&mut self, manager: &str, why: String) {
        if let Some(known) = self.asked.get_mut(manager) {
            *known = why;
        }
    }

    /// Some manager answered.
    pub fn heard(&mut self, now_ms: u64) -> Option<Word> {
        let since_ms = self.unanswered_ms.take()?;
        self.asked.clear();
        self.said_ms.take()?;
        Some(Word::Heard { after_ms: now_ms.saturating_sub(since_ms) })
    }

    /// When [`Hearing::due`] has something to say, unless somebody answers before.
    pub fn wake_at(&self) -> Option<u64> {
        let since_ms = self.unanswered_ms?;
        Some(self.said_ms.map_or(since_ms + SILENCE_MS, |it| it + SAID_EVERY_MS))
    }

    /// What is to be said now.
    pub fn due(&mut self, now_ms: u64) -> Option<Word> {
        if self.wake_at().is_none_or(|at| now_ms < at) {
            return None;
        }
        self.said_ms = Some(now_ms);
        let for_ms = now_ms.saturating_sub(self.unanswered_ms?);
        let each = self.asked.iter().map(|(manager, why)| match why.as_str() {
            "" => format!("{manager} (no answer)"),
            why => format!("{manager} ({why})"),
        });
        Some(Word::Silent { for_ms, managers: each.collect::<Vec<_>>().join(", ") })
    }
}

impl Word {
    /// Writes it into the log. `term_at_ms`: when programs are told to end, on [`boottime_ms`].
    pub fn log(&self, term_at_ms: Option<u64>) {
        let left_ms = term_at_ms.map(|at| at.saturating_sub(boottime_ms()));
        match self {
            Self::Silent { for_ms, managers } => match left_ms {
                Some(left_ms) if left_ms > 0 => tracing::warn!(
                    for_ms,
                    managers,
                    lease_left_ms = left_ms,
                    "no manager answers; what runs here is told to end when the lease is over"
                ),
                Some(_) | None => tracing::warn!(
                    for_ms,
                    managers,
                    "no manager answers, and the lease is over: nothing runs here"
                ),
            },
            Self::Heard { after_ms } => {
                tracing::info!(after_ms, lease_left_ms = left_ms, "a manager answers again");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn managers() -> [String; 2] {
        ["a:1", "b:2"].map(str::to_owned)
    }

    #[test]
    fn that_nobody_answers_is_said_soon_with_names_and_again_and_that_one_is_back_once() {
        let mut hearing = Hearing::default();
        hearing.asked(1_000, managers().iter());
        hearing.failed("a:1", "refused".to_owned());
        assert_eq!((hearing.due(2_499), hearing.wake_at()), (None, Some(2_500)));
        hearing.asked(2_000, managers().iter());
        let expected = "a:1 (refused), b:2 (no answer)".to_owned();
        let said = Word::Silent { for_ms: 1_500, managers: expected };
        assert_eq!(hearing.due(2_500), Some(said));
        assert_eq!((hearing.due(12_499), hearing.due(12_500).is_some()), (None, true));
        assert_eq!(hearing.heard(13_000), Some(Word::Heard { after_ms: 12_000 }));
        assert_eq!((hearing.heard(13_001), hearing.wake_at()), (None, None));
    }

    #[test]
    fn an_answer_in_time_is_not_worth_a_word() {
        let mut hearing = Hearing::default();
        hearing.asked(1_000, managers().iter());
        assert_eq!((hearing.heard(1_010), hearing.due(9_000)), (None, None));
    }
}
