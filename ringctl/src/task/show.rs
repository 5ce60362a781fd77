//! Tasks as they are shown.

use super::suspended::{AllSuspended, ShownSuspended};
use crate::output::plain_table;
use comfy_table::Table;
use rota_client::docstore::Stamp;
use rota_client::tasks::{Param, Progress, Task, TaskState};
use rota_client::v1;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Characters of a text that a list shows.
const LISTED_MAX: usize = 40;

/// A task. Times are stamps.
#[derive(Serialize, PartialEq, Debug)]
pub struct Shown {
    pub namespace: String,
    /// Of its document.
    pub id: String,
    pub operation: String,
    pub state: &'static str,
    /// None: a document has them.
    pub param: Option<Value>,
    /// The id of the document of class `TaskParam` that has them.
    pub param_document: Option<String>,
    pub info: String,
    pub retry: u32,
    /// None: it was given up.
    pub start_at: Option<u64>,
    /// None: it does not run.
    pub start_time: Option<u64>,
    pub queue: u8,
    pub exception: Option<String>,
    pub report: Option<String>,
    pub cron: Option<String>,
    pub paused: bool,
    /// None: it is no run that goes around the ring, or nothing is known yet.
    pub progress: Option<Progress>,
    /// None: it does not wait for its start. The run after the present one is known when that ends.
    pub next_run: Option<u64>,
}

/// `task list`.
#[derive(Serialize, PartialEq, Debug)]
pub struct ShownAll {
    pub tasks: Vec<Shown>,
    /// Whether further tasks were left out.
    pub more: bool,
}

/// `task create`, `task retry` and the like: what the task is now.
#[derive(Serialize, PartialEq, Debug)]
pub struct Ordered {
    pub namespace: String,
    pub id: String,
    /// None: it was deleted.
    pub task: Option<Shown>,
}

/// What a queue has of a namespace.
#[derive(Serialize, PartialEq, Eq, Debug)]
pub struct ShownQueue {
    pub queue: u32,
    pub namespace: String,
    pub waiting: u64,
    pub due: u64,
    pub busy: u64,
}

/// How many tasks of a queue are in which state.
#[derive(Serialize, PartialEq, Eq, Debug)]
pub struct ShownCounts {
    pub queue: u32,
    pub waiting: u64,
    pub running: u64,
    pub parked: u64,
    pub paused: u64,
}

/// `task backlog`.
#[derive(Serialize, PartialEq, Eq, Debug)]
pub struct Backlog {
    pub queues: Vec<ShownQueue>,
    pub counts: Vec<ShownCounts>,
    /// What is suspended, also where no task is. None: nobody could say.
    pub suspended: Option<Vec<ShownSuspended>>,
}

fn next_run(task: &Task) -> Option<Stamp> {
    match task.state() {
        TaskState::Waiting | TaskState::Lost => task.start_at,
        TaskState::Running | TaskState::Parked | TaskState::Paused => None,
    }
}

impl Shown {
    /// Of a task.
    pub fn of(task: &Task) -> Self {
        let (param, param_document) = match &task.param {
            Param::Json(value) => (Some(value.clone()), None),
            Param::Document(docid) => (None, Some(docid.clone())),
        };
        Self {
            namespace: task.ns.as_str().to_owned(),
            id: task.docid(),
            operation: task.op_name.clone(),
            state: task.state().as_str(),
            param,
            param_document,
            info: task.info.clone(),
            retry: task.retry,
            start_at: task.start_at.map(Stamp::as_u64),
            start_time: task.start_time.map(Stamp::as_u64),
            queue: task.qn,
            exception: task.exc.clone(),
            report: task.report.clone(),
            cron: task.cron.map(|it| it.to_string()),
            paused: task.paused,
            progress: task.progress,
            next_run: next_run(task).map(Stamp::as_u64),
        }
    }
}

impl Backlog {
    /// Of an answer, with what is suspended if that is known.
    pub fn of(answer: v1::GetTaskBacklogResponse, suspended: Option<&AllSuspended>) -> Self {
        let queue = |queue: v1::TaskQueue| ShownQueue {
            queue: queue.queue,
            namespace: queue.namespace,
            waiting: queue.waiting,
            due: queue.due,
            busy: queue.busy,
        };
        let counts = |counts: v1::TaskCounts| ShownCounts {
            queue: counts.queue,
            waiting: counts.waiting,
            running: counts.running,
            parked: counts.parked,
            paused: counts.paused,
        };
        Self {
            queues: answer.queues.into_iter().map(queue).collect(),
            counts: answer.counts.into_iter().map(counts).collect(),
            suspended: suspended.map(AllSuspended::shown),
        }
    }
}

fn progress(it: &Progress) -> String {
    format!("{} done, {} failed", it.done, it.failed)
}

fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |it| it.to_string())
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(LISTED_MAX) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None if text.is_empty() => "-".to_owned(),
        None => text.to_owned(),
    }
}

/// Tasks of a list.
pub fn many(all: &[Shown]) -> Table {
    let mut table = plain_table([
        "TASK",
        "OPERATION",
        "STATE",
        "RETRY",
        "QUEUE",
        "NEXT RUN",
        "CRON",
        "INFO",
        "EXCEPTION",
    ]);
    for it in all {
        table.add_row([
            format!("{}/{}", it.namespace, it.id),
            it.operation.clone(),
            it.state.to_owned(),
            it.retry.to_string(),
            it.queue.to_string(),
            or_dash(it.next_run),
            or_dash(it.cron.as_ref()),
            cut(&it.info),
            or_dash(it.exception.as_ref()),
        ]);
    }
    table
}

/// One task, a field on each line.
pub fn one(it: &Shown) -> Table {
    let mut table = plain_table(["FIELD", "VALUE"]);
    let param = match (&it.param, &it.param_document) {
        (Some(value), _) => value.to_string(),
        (None, Some(docid)) => format!("document {}/TaskParam/{docid}", it.namespace),
        (None, None) => "-".to_owned(),
    };
    let fields = [
        ("task", format!("{}/{}", it.namespace, it.id)),
        ("operation", it.operation.clone()),
        ("state", it.state.to_owned()),
        ("retry", it.retry.to_string()),
        ("queue", it.queue.to_string()),
        ("start_at", or_dash(it.start_at)),
        ("start_time", or_dash(it.start_time)),
        ("next_run", or_dash(it.next_run)),
        ("cron", or_dash(it.cron.as_ref())),
        ("paused", it.paused.to_string()),
        ("progress", it.progress.as_ref().map_or_else(|| "-".to_owned(), progress)),
        ("info", or_dash(Some(&it.info).filter(|it| !it.is_empty()))),
        ("param", param),
        ("exception", or_dash(it.exception.as_ref())),
        ("report", or_dash(it.report.as_ref())),
    ];
    for (field, value) in fields {
        table.add_row([field.to_owned(), value]);
    }
    table
}

/// What queues have: by state, then by namespace. What is suspended is there also without tasks.
pub fn backlog(it: &Backlog, suspended: Option<&AllSuspended>) -> [Table; 2] {
    let mut counts = plain_table(["QUEUE", "WAITING", "RUNNING", "PARKED", "PAUSED", "SUSPENDED"]);
    let mut rows = BTreeMap::new();
    for queue in suspended.map(AllSuspended::queues).unwrap_or_default() {
        rows.insert(u32::from(queue), [0; 4]);
    }
    rows.extend(
        it.counts.iter().map(|it| (it.queue, [it.waiting, it.running, it.parked, it.paused])),
    );
    for (queue, numbers) in rows {
        let stopped = suspended.zip(u8::try_from(queue).ok());
        let stopped = stopped.map(|(all, queue)| all.namespaces(queue));
        let numbers = numbers.map(|it| it.to_string());
        let row = std::iter::once(queue.to_string()).chain(numbers);
        counts.add_row(row.chain([stopped.unwrap_or_else(|| "?".to_owned())]));
    }
    if let Some(names) = suspended.and_then(AllSuspended::with_every_queue) {
        counts.add_row(["all", "-", "-", "-", "-", &names]);
    }
    let mut queues = plain_table(["QUEUE", "NAMESPACE", "WAITING", "DUE", "BUSY"]);
    for it in &it.queues {
        let names = [it.queue.to_string(), it.namespace.clone()];
        let numbers = [it.waiting, it.due, it.busy].map(|it| it.to_string());
        queues.add_row(names.into_iter().chain(numbers));
    }
    [counts, queues]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::suspended::tests::some;

    #[test]
    fn a_backlog_tells_of_each_queue_for_which_namespaces_it_is_suspended() {
        let answer = v1::GetTaskBacklogResponse {
            queues: Vec::new(),
            counts: vec![v1::TaskCounts { queue: 1, waiting: 5, ..Default::default() }],
        };
        let rows = |suspended: Option<&AllSuspended>| -> Vec<Vec<String>> {
            let shown = Backlog::of(answer.clone(), suspended);
            let [counts, _] = backlog(&shown, suspended);
            let text = counts.to_string();
            let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
            text.lines().skip(1).map(words).collect()
        };
        let told = rows(Some(&some()));
        assert_eq!(told[0], ["0", "0", "0", "0", "0", "all"]);
        assert_eq!(told[1], ["1", "5", "0", "0", "0", "mill,shop"]);
        assert_eq!(told[3], ["all", "-", "-", "-", "-", "mill"]);
        assert_eq!(rows(Some(&AllSuspended::default())), [["1", "5", "0", "0", "0", "-"]]);
        assert_eq!(rows(None), [["1", "5", "0", "0", "0", "?"]]);
        assert_eq!(Backlog::of(answer.clone(), None).suspended, None);
    }
}
