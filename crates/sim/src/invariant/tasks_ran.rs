//! Tasks: each that was registered has run, unless it was given up; what its operation writes is there, and
//! [`written_once`](super::written_once) sees that it is there once.

use super::{Verdict, Violation};
use crate::ledger::Ledger;

/// Checks the whole history.
pub fn check(ledger: &Ledger) -> Verdict {
    let must = ledger.tasks.deferred.iter().filter(|it| it.is_told);
    for task in must.filter(|it| !ledger.tasks.given_up.contains(&it.who)) {
        let who = &task.who;
        if task.is_outside {
            if !ledger.tasks.ran.contains(who) {
                let text = format!("the program of task {who} never ran");
                return Err(Violation::new("tasks", text));
            }
            continue;
        }
        let late = |sent_us: u64| ledger.tasks.done_us > 0 && sent_us >= ledger.tasks.done_us;
        let seen = ledger.seen.iter().filter(|it| late(it.sent_us));
        for shown in seen.filter(|it| task.docids.iter().any(|docid| docid == it.name.docid())) {
            if !shown.log.added.contains_key(who) {
                let text = format!("task {who} was registered, and left nothing in {}", shown.name);
                return Err(Violation::new("tasks", text));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::TaskBook;
    use crate::writing::{Deferred, Log, SPACE, SeenDocument, name};

    fn ledger(is_outside: bool) -> Ledger {
        let docids = vec!["b".to_owned()];
        let deferred = Deferred { who: "t0".to_owned(), docids, is_outside, is_told: true };
        let (version, log) = (None, Log::default());
        let shown = SeenDocument { name: name(SPACE, "b"), sent_us: 7, came_us: 8, version, log };
        Ledger {
            tasks: TaskBook { deferred: vec![deferred], done_us: 6, ..TaskBook::default() },
            seen: vec![shown],
            ..Ledger::default()
        }
    }

    #[test]
    fn a_task_that_left_nothing_and_a_program_that_never_ran_are_found() {
        let mut lost = ledger(false);
        assert!(check(&lost).unwrap_err().text.contains("left nothing in"));
        lost.tasks.given_up.insert("t0".to_owned());
        assert_eq!(check(&lost), Ok(()));
        let mut unrun = ledger(true);
        assert!(check(&unrun).unwrap_err().text.contains("never ran"));
        unrun.tasks.ran.insert("t0".to_owned());
        assert_eq!(check(&unrun), Ok(()));
        let mut early = ledger(false);
        early.tasks.done_us = 9;
        assert_eq!(check(&early), Ok(()));
    }
}
