//! Tasks: work that an operation leaves for later. Pure: whoever calls says what time it is.
//!
//! ```text
//!   register ──▶ WAITING ── start ──▶ RUNNING ── succeed ──▶ gone (periodic: the next run is registered)
//!                  ▲  ▲                 │  │
//!                  │  └──── fail ───────┤  └── lose ──▶ LOST ── start ──▶ RUNNING
//!                  │                    ▼
//!                  └── retry_now ── PARKED (given up)
//! ```
//!
//! * [`Task`]: the record of a task, as its document holds it, and what administrators order.
//! * [`Registration`]: what is registered, and every check of it.
//! * [`start`], [`succeed`], [`fail`], [`lose`]: from a record to what the commit writes.
//! * [`TaskIndex`]: the tasks of a partition by queue, namespace and start.
//! * [`QueueManager`]: which task a worker takes next, and which runs are lost.
//! * [`Outside`]: what programs and calls are given, and every check of it.
//! * [`CopyWork`], [`CloseWork`], [`ActWork`]: work that goes around the ring.
//! * [`Filter`]: which tasks an administrator means.
//! * [`Cron`]: the short text that says when a periodic task runs.
//!
//! **Invariant:** a run that is not the record's own never changes the record, except that it removes it.

mod filter;
mod index;
mod outside;
mod queue;
mod ring_task;
mod task;

pub use filter::Filter;
pub use index::{TaskCounts, TaskIndex};
pub use outside::{ARGS_BYTES_MAX, GrpcCall, HEADERS_MAX, HttpCall, Outside, ProgramRun};
pub use queue::{Backlog, QueueManager, QueueSettings, TaskKey};
pub use ring_task::{ActWork, CloseWork, CopyWork, copied, note_change};
pub use rota_model::Cron;
pub use task::end::{CODE_BYTES_MAX, Change, Patience, REPORT_BYTES_MAX, fail, lose, succeed};
pub use task::register::{
    Config, DOCID_BYTES_MAX, INFO_BYTES_MAX, PARAM_BYTES_MAX, PARAM_INLINE_BYTES_MAX, PAST_MS_MAX,
    Registered, Registration, TASKID_BYTES_MAX, check_start_at,
};
pub use task::{
    ACT, CLOSE, COPY, EARLY_MS, EXEC, GRPC, HTTP, LOST, NoStart, PARAM_CLASS, Param, Progress, Run,
    TASK_CLASS, Task, TaskState, start,
};
