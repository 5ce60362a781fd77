//! How a run ends: well, with a checkpoint, badly, or by nobody who says so.

use crate::task::{LOST, Run, Task};
use rota_model::Stamp;
use serde::{Deserialize, Serialize};

/// Most bytes of a report; what is longer is cut.
pub const REPORT_BYTES_MAX: usize = 4_096;
/// Most bytes of an exception's code; what is longer is cut.
pub const CODE_BYTES_MAX: usize = 64;

/// How patient a task is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Patience {
    /// The delay before the first repetition, in milliseconds. Each later one is twice the one before.
    pub first_ms: u64,
    /// The longest delay, in milliseconds.
    pub most_ms: u64,
    /// After so many repetitions that failed a task is given up.
    pub retries: u32,
}

impl Default for Patience {
    /// 10 s, 20 s, 40 s up to 1 h; given up after 16 repetitions, some 8 hours.
    fn default() -> Self {
        Self { first_ms: 10_000, most_ms: 3_600_000, retries: 16 }
    }
}

impl Patience {
    /// The delay before that repetition (1: the first one), in milliseconds; `None`: no more.
    pub fn delay_ms(self, retry: u32) -> Option<u64> {
        if retry > self.retries {
            return None;
        }
        let factor = 1_u64.checked_shl(retry.saturating_sub(1)).unwrap_or(u64::MAX);
        Some(self.first_ms.saturating_mul(factor).min(self.most_ms))
    }
}

/// What is to be written of the task, in the commit of its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// Nothing: it is gone, or another run has it.
    Nothing,
    /// The record is removed, and the document of its parameters unless `next` names it. The same commit writes
    /// `next`: the next run of a periodic task.
    Remove {
        /// The next run.
        next: Option<Box<Task>>,
    },
    /// The record becomes this one.
    Put {
        /// The record.
        task: Box<Task>,
        /// It was given up: an administrator is told.
        gave_up: bool,
    },
}

/// A run ended well: its record goes in the commit of its last cycle, also if the run was taken for lost and even if
/// another one is under way. That one finds nothing at its end. A periodic task is registered again as `next_id`.
///
/// A cycle that leaves a checkpoint is no end: it commits its documents, and the record stays as it is.
pub fn succeed(stored: Option<&Task>, next_id: &str, now: Stamp) -> Change {
    let Some(task) = stored else { return Change::Nothing };
    let next = task.cron.and_then(|cron| cron.next(now)).map(|at| {
        let next = Task {
            taskid: next_id.to_owned(),
            retry: 0,
            start_at: Some(at),
            start_time: None,
            exc: None,
            report: None,
            progress: None,
            ..task.clone()
        };
        Box::new(next)
    });
    Change::Remove { next }
}

/// A run ended badly. If the record is no longer that of this run, nothing is written: a lost task stays LOST.
pub fn fail(
    stored: Option<&Task>,
    run: Run,
    (code, report): (&str, &str),
    patience: Patience,
    now: Stamp,
) -> Change {
    let Some(task) = stored.filter(|it| it.run() == Some(run)) else {
        return Change::Nothing;
    };
    let retry = task.retry.saturating_add(1);
    let start_at = patience.delay_ms(retry).map(|delay| now.plus_ms(delay));
    let task = Task {
        retry,
        start_at,
        start_time: None,
        exc: Some(cut(code, CODE_BYTES_MAX)),
        report: Some(cut(report, REPORT_BYTES_MAX)),
        ..task.clone()
    };
    Change::Put { gave_up: start_at.is_none(), task: Box::new(task) }
}

/// Nobody runs it any more: a failure with the code [`LOST`].
pub fn lose(stored: Option<&Task>, run: Run, patience: Patience, now: Stamp) -> Change {
    let report = "no worker runs this task, and none told its end";
    fail(stored, run, (LOST, report), patience, now)
}

/// At most so many bytes, whole characters.
fn cut(text: &str, bytes_max: usize) -> String {
    let end = text.floor_char_boundary(bytes_max);
    text[..end].to_owned()
}
