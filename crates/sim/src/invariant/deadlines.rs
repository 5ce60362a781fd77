//! Every pending entry has a deadline: a manager that runs answers each request by then, and nothing
//! waits in any of its tables for longer.

use super::{Verdict, Violation};
use rota_model::ManagerNumber;
use rota_protocol::Wait;
use std::collections::BTreeMap;

/// How long after its deadline a request may still wait, in ms: a tick and a batch.
pub const GRACE_MS: u64 = 1_500;

/// Requests that a manager was given and has not answered.
#[derive(Clone, Debug, Default)]
pub struct Deadlines {
    waiting: BTreeMap<(ManagerNumber, u64, u64), u64>,
}

impl Deadlines {
    /// A run of a manager was given a request, to be answered by `deadline_us`.
    pub fn on_asked(&mut self, who: ManagerNumber, run: u64, call: u64, deadline_us: u64) {
        self.waiting.insert((who, run, call), deadline_us);
    }

    /// It answered.
    ///
    /// # Errors
    /// It was not asked, or answered before.
    pub fn on_answered(&mut self, who: ManagerNumber, run: u64, call: u64) -> Verdict {
        if self.waiting.remove(&(who, run, call)).is_some() {
            return Ok(());
        }
        let text = format!("M{who} answers call {call}, which it does not owe an answer");
        Err(Violation::new("deadlines", text))
    }

    /// A run ended: nobody waits for it any more.
    pub fn on_gone(&mut self, who: ManagerNumber, run: u64) {
        self.waiting.retain(|(manager, of, _), _| (*manager, *of) != (who, run));
    }

    /// A run was paused: it may be late by that.
    pub fn on_paused(&mut self, who: ManagerNumber, run: u64, until_us: u64) {
        for ((manager, of, _), deadline_us) in &mut self.waiting {
            if (*manager, *of) == (who, run) {
                *deadline_us = (*deadline_us).max(until_us);
            }
        }
    }

    /// How many requests a run owes an answer.
    pub fn count(&self, who: ManagerNumber, run: u64) -> usize {
        self.waiting.range((who, run, 0)..=(who, run, u64::MAX)).count()
    }

    /// Checks all.
    ///
    /// # Errors
    /// A request that waits longer than its deadline and the grace.
    pub fn check(&self, now_us: u64) -> Verdict {
        for ((who, run, call), deadline_us) in &self.waiting {
            if now_us > deadline_us + GRACE_MS * 1000 {
                let text = format!(
                    "M{who} (run {run}) still owes an answer to call {call}, due at {deadline_us} us"
                );
                return Err(Violation::new("deadlines", text));
            }
        }
        Ok(())
    }
}

/// Checks every table in which something waits at a manager.
///
/// # Errors
/// An entry that is still there when its deadline and the grace are over.
pub fn check_waits(who: ManagerNumber, waits: &[Wait]) -> Verdict {
    match waits.iter().find(|it| it.overdue_ms > GRACE_MS) {
        None => Ok(()),
        Some(wait) => {
            let text = format!("at M{who}: {wait:?}");
            Err(Violation::new("deadlines", text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_with_an_entry_beyond_its_deadline_is_found() {
        let wait = |overdue_ms| Wait { table: "queue", count: 1, overdue_ms };
        assert_eq!(check_waits(ManagerNumber(10), &[wait(0), wait(GRACE_MS)]), Ok(()));
        assert!(check_waits(ManagerNumber(10), &[wait(0), wait(GRACE_MS + 1)]).is_err());
    }

    #[test]
    fn a_request_that_waits_beyond_its_deadline_is_found() {
        let who = ManagerNumber(10);
        let mut book = Deadlines::default();
        book.on_asked(who, 1, 7, 1_000);
        let late_us = 1_001 + GRACE_MS * 1000;
        assert_eq!(book.check(late_us - 1), Ok(()));
        assert_eq!(book.check(late_us).unwrap_err().rule, "deadlines");
        book.on_paused(who, 1, 2_000);
        assert_eq!(book.check(late_us), Ok(()));
        assert_eq!(book.on_answered(who, 1, 7), Ok(()));
        assert_eq!(book.check(u64::MAX), Ok(()));
        assert!(book.on_answered(who, 1, 7).is_err());
    }
}
