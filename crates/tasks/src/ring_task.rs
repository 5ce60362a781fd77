//! Tasks whose work goes around the ring: the copying of what changed in a document, and closing many sessions. What they
//! did may be done again.

use crate::task::end::{CODE_BYTES_MAX, Change, REPORT_BYTES_MAX};
use crate::task::register::INFO_BYTES_MAX;
use crate::task::{ACT, COPY, Param, Task, TaskState};
use rota_model::{FieldError, GRACE_MS_MAX, Namespace, Stamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What is copied: all that changed in a document since a moment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CopyWork {
    /// The class of the document.
    pub class: String,
    /// Its id.
    pub docid: String,
    /// What was written from this version on.
    pub from: Stamp,
    /// How many operations changed it since the task was registered.
    pub changes: u64,
    /// The first of them during a run, which may have read before it.
    pub next_from: Option<Stamp>,
}

/// Which sessions are closed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CloseWork {
    /// A filter of sessions.
    #[serde(rename = "where")]
    pub filter: String,
    /// Milliseconds that each program is given to end; that of its class when it is not given.
    #[serde(default)]
    pub grace_ms: Option<u64>,
    /// What was opened later stays. Set when a task is registered that is not periodic.
    #[serde(default)]
    pub before: Option<Stamp>,
}

/// Which action of a session is run again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ActWork {
    /// The session's id; its namespace is that of the task.
    pub id: String,
    /// Its chain of lives.
    pub origin: Stamp,
    /// The life cycle.
    pub life_cycle: String,
    /// The last word of the item.
    pub word: String,
    /// How often it is tried again.
    pub retries: u32,
}

impl ActWork {
    /// From the parameters of a task. Field `param`.
    pub fn read(param: &Value) -> Result<Self, FieldError> {
        let wrong = |it: serde_json::Error| FieldError::new("param", it.to_string());
        serde_json::from_value(param.clone()).map_err(wrong)
    }

    /// The record of its task: namespace, place, id and queue, when it starts, and why the last run failed.
    pub fn into_task(
        self,
        (ns, place, taskid, qn): (Namespace, String, String, u8),
        start_at: Option<Stamp>,
        (code, report): (&str, &str),
    ) -> Task {
        let info = format!("{} {} {}", self.id, self.life_cycle, self.word);
        Task {
            ns,
            place,
            taskid,
            op_name: ACT.to_owned(),
            param: Param::Json(
                serde_json::to_value(self).expect("texts and numbers can be written"),
            ),
            info: cut(&info, INFO_BYTES_MAX).to_owned(),
            retry: 0,
            start_at,
            start_time: None,
            qn,
            exc: Some(cut(code, CODE_BYTES_MAX).to_owned()),
            report: Some(cut(report, REPORT_BYTES_MAX).to_owned()),
            cron: None,
            paused: false,
            progress: None,
        }
    }
}

/// The beginning of a text, at a boundary of a character.
fn cut(text: &str, bytes_max: usize) -> &str {
    let end = (0..=bytes_max.min(text.len())).rev().find(|it| text.is_char_boundary(*it));
    text.get(..end.unwrap_or_default()).unwrap_or_default()
}

impl CloseWork {
    /// From the parameters of a task. Field `param`. The filter is read by whoever knows the fields of sessions.
    pub fn read(param: &Value) -> Result<Self, FieldError> {
        let wrong = |problem: String| FieldError::new("param", problem);
        let work: Self =
            serde_json::from_value(param.clone()).map_err(|it| wrong(it.to_string()))?;
        if let Some(ms) = work.grace_ms.filter(|it| *it > GRACE_MS_MAX) {
            return Err(wrong(format!("grace_ms is {ms}; the limit is {GRACE_MS_MAX}")));
        }
        Ok(work)
    }
}

impl CopyWork {
    /// Of a record. `None`: it is no copying.
    pub fn of(task: &Task) -> Option<Self> {
        match &task.param {
            Param::Json(value) if task.op_name == COPY => {
                serde_json::from_value(value.clone()).ok()
            }
            Param::Json(_) | Param::Document(_) => None,
        }
    }

    fn into_param(self) -> Param {
        Param::Json(serde_json::to_value(self).expect("names, stamps and numbers can be written"))
    }
}

/// A document that is copied was changed by an operation whose version is `now` or later: gives the record to write.
/// `new` makes the task where there is none.
pub fn note_change(
    stored: Option<&Task>,
    (ns, place, taskid, qn): (&Namespace, &str, &str, u8),
    (class, docid): (&str, &str),
    now: Stamp,
) -> Task {
    let Some((task, work)) = stored.and_then(|it| Some((it, CopyWork::of(it)?))) else {
        let (class, docid) = (class.to_owned(), docid.to_owned());
        let info = format!("{class}/{docid}");
        let work = CopyWork { class, docid, from: now, changes: 1, next_from: None };
        return Task {
            ns: ns.clone(),
            place: place.to_owned(),
            taskid: taskid.to_owned(),
            op_name: COPY.to_owned(),
            param: work.into_param(),
            info,
            retry: 0,
            start_at: Some(now),
            start_time: None,
            qn,
            exc: None,
            report: None,
            cron: None,
            paused: false,
            progress: None,
        };
    };
    let is_parked = task.state() == TaskState::Parked;
    let next_from = work.next_from.or(Some(now));
    let work = CopyWork { changes: work.changes + 1, next_from, ..work };
    // What was given up may work now.
    let start_at = if is_parked { Some(now) } else { task.start_at };
    let retry = if is_parked { 0 } else { task.retry };
    Task { param: work.into_param(), start_at, retry, ..task.clone() }
}

/// A run that copied what had changed up to so many changes ended well. What changed since is copied by another run.
pub fn copied(stored: Option<&Task>, changes: u64, now: Stamp) -> Change {
    let Some((task, work)) = stored.and_then(|it| Some((it, CopyWork::of(it)?))) else {
        return Change::Nothing;
    };
    if work.changes <= changes {
        return Change::Remove { next: None };
    }
    let from = work.next_from.unwrap_or(work.from);
    let param = CopyWork { from, next_from: None, ..work }.into_param();
    let task = Task {
        param,
        retry: 0,
        start_at: Some(now),
        start_time: None,
        progress: None,
        ..task.clone()
    };
    Change::Put { task: Box::new(task), gave_up: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::TaskIndex;
    use crate::task::start;

    fn at(ms: u64) -> Stamp {
        Stamp::from_epoch_ms(1_800_000_000_000 + ms)
    }

    fn changed(stored: Option<&Task>, ms: u64) -> Task {
        let ns = Namespace::default_space();
        note_change(stored, (&ns, "A1", "copy", 0), ("Asso", "A1"), at(ms))
    }

    fn work(task: &Task) -> CopyWork {
        CopyWork::of(task).expect("it copies")
    }

    #[test]
    fn changes_before_a_run_are_copied_by_one_run_from_the_first_of_them_on() {
        let task = changed(Some(&changed(None, 5)), 7);
        assert_eq!((work(&task).from, work(&task).changes), (at(5), 2));
        let running = start(Some(&task), at(8)).expect("it is due");
        assert_eq!(copied(Some(&running), 2, at(9)), Change::Remove { next: None });
    }

    #[test]
    fn a_change_during_a_run_is_copied_by_another_one() {
        let running = start(Some(&changed(None, 5)), at(6)).expect("it is due");
        let running = changed(Some(&changed(Some(&running), 7)), 8);
        let Change::Put { task, gave_up: false } = copied(Some(&running), 1, at(9)) else {
            panic!("two changes are not copied")
        };
        assert_eq!(task.state(), TaskState::Waiting);
        let next = work(&task);
        assert_eq!((next.from, next.changes, next.next_from), (at(7), 3, None));
    }

    #[test]
    fn the_index_tells_the_oldest_change_that_is_not_copied() {
        let mut index = TaskIndex::default();
        let first = changed(None, 5);
        index.change(None, Some(&first));
        let running = start(Some(&first), at(8)).expect("it is due");
        let more = changed(Some(&running), 9);
        index.change(Some(&first), Some(&more));
        assert_eq!(index.copies_since(), Some(at(5)));
        let Change::Put { task: rest, gave_up: false } = copied(Some(&more), 1, at(10)) else {
            panic!("the second change is not copied")
        };
        index.change(Some(&more), Some(&rest));
        assert_eq!(index.copies_since(), Some(at(9)));
        index.change(Some(&rest), None);
        assert_eq!((index.copies_since(), index.is_empty()), (None, true));
    }

    #[test]
    fn a_change_goes_on_with_what_was_given_up() {
        let parked = Task { start_at: None, retry: 17, ..changed(None, 5) };
        let task = changed(Some(&parked), 9);
        assert_eq!((task.state(), task.retry), (TaskState::Waiting, 0));
        assert_eq!(work(&task).from, at(5));
    }

    #[test]
    fn what_is_closed_has_a_filter_and_perhaps_a_bounded_grace() {
        let read = |text: &str| CloseWork::read(&serde_json::from_str(text).expect("it is JSON"));
        assert_eq!(read(r#"{"where":"state = READY"}"#).map(|it| it.grace_ms), Ok(None));
        for wrong in [r#"{}"#, r#"{"where":"","grace":1}"#, r#"{"where":"","grace_ms":300001}"#] {
            assert_eq!(read(wrong).expect_err(wrong).field, "param");
        }
    }
}
