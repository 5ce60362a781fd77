//! Tasks on the wire: of operators, and between managers.

use crate::mistakes::Mistakes;
use crate::position::{TokenKind, open_token, seal_token};
use crate::v1;
use crate::wire::{WireError, count, each, named, optional, required};
use prost::Message;
use rota_docstore::request::OPERATION_BYTES_MAX;
use rota_messages::{DocumentCursor, QueueRow, TasksOp, TasksPage};
use rota_model::{FieldError, Namespace, Refusal, Stamp};
use rota_tasks::{
    Backlog, Cron, Filter, INFO_BYTES_MAX, Param, Progress, Task, TaskCounts, TaskState,
};
use std::collections::BTreeMap;

/// Tasks of a page, unless the request says how many.
const PAGE_SIZE: u32 = 100;
/// Most tasks of a page.
pub const TASKS_PAGE_MAX: u32 = 200;

impl From<TaskState> for v1::TaskState {
    fn from(state: TaskState) -> Self {
        match state {
            TaskState::Waiting => Self::Waiting,
            TaskState::Running => Self::Running,
            TaskState::Lost => Self::Lost,
            TaskState::Parked => Self::Parked,
            TaskState::Paused => Self::Paused,
        }
    }
}

fn state_from(number: i32) -> Result<TaskState, FieldError> {
    let wrong = || FieldError::new("states", format!("has {number}, which is no state of a task"));
    match v1::TaskState::try_from(number).map_err(|_| wrong())? {
        v1::TaskState::Unspecified => Err(wrong()),
        v1::TaskState::Waiting => Ok(TaskState::Waiting),
        v1::TaskState::Running => Ok(TaskState::Running),
        v1::TaskState::Lost => Ok(TaskState::Lost),
        v1::TaskState::Parked => Ok(TaskState::Parked),
        v1::TaskState::Paused => Ok(TaskState::Paused),
    }
}

fn stamp(field: &str, number: u64) -> Result<Option<Stamp>, FieldError> {
    let parsed = (number > 0).then(|| Stamp::parse(number)).transpose();
    parsed.map_err(|it| FieldError::new(field, it.problem))
}

fn given(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

impl From<&Filter> for v1::TaskFilter {
    fn from(it: &Filter) -> Self {
        Self {
            namespace: it.ns.as_ref().map_or("", |it| it.as_str()).into(),
            operation: it.op_name.clone().unwrap_or_default(),
            info_prefix: it.info_prefix.clone().unwrap_or_default(),
            started_from: it.started_from.map_or(0, Stamp::as_u64),
            started_before: it.started_before.map_or(0, Stamp::as_u64),
            retry_min: it.retry_min.unwrap_or(0),
            states: it.states.iter().map(|it| v1::TaskState::from(*it).into()).collect(),
            periodic: it.periodic,
        }
    }
}

fn filter_from(it: v1::TaskFilter) -> Result<Filter, Vec<FieldError>> {
    let mut mistakes = Mistakes::default();
    let ns = mistakes
        .note_in("namespace", given(it.namespace).map(|it| Namespace::parse(&it)).transpose());
    let from = mistakes.note(stamp("started_from", it.started_from));
    let before = mistakes.note(stamp("started_before", it.started_before));
    let states = mistakes.note(it.states.into_iter().map(state_from).collect());
    for (field, text, most) in [
        ("operation", &it.operation, OPERATION_BYTES_MAX),
        ("info_prefix", &it.info_prefix, INFO_BYTES_MAX),
    ] {
        if text.len() > most {
            let problem = format!("has {} bytes; no task has more than {most}", text.len());
            mistakes.note::<()>(Err(FieldError::new(field, problem)));
        }
    }
    let filter = (|| {
        Some(Filter {
            ns: ns?,
            op_name: given(it.operation),
            info_prefix: given(it.info_prefix),
            started_from: from?,
            started_before: before?,
            retry_min: (it.retry_min > 0).then_some(it.retry_min),
            states: states?,
            periodic: it.periodic,
        })
    })();
    mistakes.found(filter)
}

/// Checks what a client asks: from where, how many, which.
///
/// # Errors
/// A refusal that names every wrong field.
pub fn list_tasks(request: v1::ListTasksRequest) -> Result<TasksOp, Refusal> {
    let mut mistakes = Mistakes::default();
    let filter = match filter_from(request.filter.unwrap_or_default()) {
        Ok(filter) => Some(filter),
        Err(wrong) => {
            for it in wrong {
                let field = format!("filter.{}", it.field);
                mistakes.note::<()>(Err(FieldError::new(field, it.problem)));
            }
            None
        }
    };
    let limit = match request.page_size {
        0 => PAGE_SIZE,
        it => it,
    };
    if limit > TASKS_PAGE_MAX {
        let problem = format!("is {limit}; the limit is {TASKS_PAGE_MAX}");
        mistakes.note::<()>(Err(FieldError::new("page_size", problem)));
    }
    let from = match (&filter, request.page_token.is_empty()) {
        (_, true) => Some(DocumentCursor::default()),
        (Some(filter), false) => mistakes.note(cursor_of(&request.page_token, filter)),
        (None, false) => None,
    };
    let op = from.and_then(|from| Some(TasksOp { from, limit, filter: filter? }));
    mistakes.finish(op)
}

/// A page of a list.
pub fn list_response(page: &TasksPage, filter: &Filter) -> v1::ListTasksResponse {
    let next = page.next.as_ref();
    v1::ListTasksResponse {
        tasks: page.tasks.iter().map(Into::into).collect(),
        next_page_token: next.map_or_else(String::new, |it| tasks_token(it, filter)),
    }
}

/// What the queues of several partitions have together.
pub fn backlog_response(pages: &[TasksPage]) -> v1::GetTaskBacklogResponse {
    let mut queues: BTreeMap<(u8, &str), Backlog> = BTreeMap::new();
    let mut counts: BTreeMap<u8, TaskCounts> = BTreeMap::new();
    for page in pages {
        for QueueRow { queue, space, backlog } in &page.queues {
            let sum = queues.entry((*queue, space.as_str())).or_default();
            sum.waiting += backlog.waiting;
            sum.due += backlog.due;
            sum.busy += backlog.busy;
        }
        for (queue, count) in &page.counts {
            let sum = counts.entry(*queue).or_default();
            *sum = sum.plus(*count);
        }
    }
    let row = |((queue, space), backlog): ((u8, &str), Backlog)| v1::TaskQueue {
        queue: queue.into(),
        namespace: space.into(),
        waiting: count(backlog.waiting),
        due: count(backlog.due),
        busy: count(backlog.busy),
    };
    v1::GetTaskBacklogResponse {
        queues: queues.into_iter().map(row).collect(),
        counts: counts.iter().map(|(queue, it)| counts_to_wire(&(*queue, *it))).collect(),
    }
}

/// The sum of a token covers the filter, so it continues only the list that gave it.
fn list_of(filter: &Filter) -> Vec<u8> {
    let mut list = b"tasks\0".to_vec();
    list.extend(v1::TaskFilter::from(filter).encode_to_vec());
    list
}

/// The page token that continues a list of tasks.
pub fn tasks_token(cursor: &DocumentCursor, filter: &Filter) -> String {
    let body = v1::DocumentCursor::from(cursor).encode_to_vec();
    seal_token(TokenKind::Documents, &body, &list_of(filter))
}

fn cursor_of(token: &str, filter: &Filter) -> Result<DocumentCursor, FieldError> {
    let body = open_token(TokenKind::Documents, token, &list_of(filter))?;
    let garbled = || FieldError::new("page_token", "is garbled");
    let cursor = v1::DocumentCursor::decode(&*body).map_err(|_| garbled())?;
    DocumentCursor::try_from(cursor).map_err(|_| garbled())
}

impl From<&Task> for v1::Task {
    fn from(it: &Task) -> Self {
        let param = match &it.param {
            Param::Json(value) => v1::task::Param::Json(value.to_string()),
            Param::Document(docid) => v1::task::Param::Document(docid.clone()),
        };
        Self {
            namespace: it.ns.as_str().into(),
            place: it.place.clone(),
            task_id: it.taskid.clone(),
            operation: it.op_name.clone(),
            param: Some(param),
            info: it.info.clone(),
            retry: it.retry,
            start_at: it.start_at.map_or(0, Stamp::as_u64),
            start_time: it.start_time.map_or(0, Stamp::as_u64),
            queue: it.qn.into(),
            exception: it.exc.clone().unwrap_or_default(),
            report: it.report.clone().unwrap_or_default(),
            cron: it.cron.map_or_else(String::new, |it| it.to_string()),
            paused: it.paused,
            state: v1::TaskState::from(it.state()).into(),
            progress: it.progress.map(|it| v1::TaskProgress { done: it.done, failed: it.failed }),
        }
    }
}

impl TryFrom<v1::Task> for Task {
    type Error = WireError;
    fn try_from(it: v1::Task) -> Result<Self, WireError> {
        let param = match required("Task.param", it.param)? {
            v1::task::Param::Json(text) => {
                let value = serde_json::from_str(&text);
                Param::Json(value.map_err(|it| WireError::new("Task.json", it.to_string()))?)
            }
            v1::task::Param::Document(docid) => Param::Document(docid),
        };
        let cron = given(it.cron).map(|it| Cron::parse(&it)).transpose();
        Ok(Self {
            ns: named("Task.namespace", Namespace::parse(&it.namespace))?,
            place: it.place,
            taskid: it.task_id,
            op_name: it.operation,
            param,
            info: it.info,
            retry: it.retry,
            start_at: named("Task.start_at", stamp("start_at", it.start_at))?,
            start_time: named("Task.start_time", stamp("start_time", it.start_time))?,
            qn: queue_from(it.queue)?,
            exc: given(it.exception),
            report: given(it.report),
            cron: named("Task.cron", cron)?,
            paused: it.paused,
            progress: it.progress.map(|it| Progress { done: it.done, failed: it.failed }),
        })
    }
}

fn queue_from(number: u32) -> Result<u8, WireError> {
    u8::try_from(number).map_err(|_| WireError::new("queue", format!("is {number}, above 255")))
}

impl From<TasksOp> for v1::TasksOp {
    fn from(op: TasksOp) -> Self {
        Self { from: Some((&op.from).into()), limit: op.limit, filter: Some((&op.filter).into()) }
    }
}

impl TryFrom<v1::TasksOp> for TasksOp {
    type Error = WireError;
    fn try_from(op: v1::TasksOp) -> Result<Self, WireError> {
        let filter = filter_from(op.filter.unwrap_or_default()).map_err(|wrong| {
            let all: Vec<String> = wrong.iter().map(ToString::to_string).collect();
            WireError::new("TasksOp.filter", all.join("; "))
        })?;
        let from = required("TasksOp.from", op.from)?.try_into()?;
        Ok(Self { from, limit: op.limit, filter })
    }
}

impl From<&QueueRow> for v1::TaskQueue {
    fn from(it: &QueueRow) -> Self {
        let Backlog { waiting, due, busy } = it.backlog;
        Self {
            queue: it.queue.into(),
            namespace: it.space.as_str().into(),
            waiting: count(waiting),
            due: count(due),
            busy: count(busy),
        }
    }
}

fn size(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

impl TryFrom<v1::TaskQueue> for QueueRow {
    type Error = WireError;
    fn try_from(it: v1::TaskQueue) -> Result<Self, WireError> {
        let (waiting, due, busy) = (size(it.waiting), size(it.due), size(it.busy));
        Ok(Self {
            queue: queue_from(it.queue)?,
            space: named("TaskQueue.namespace", Namespace::parse(&it.namespace))?,
            backlog: Backlog { waiting, due, busy },
        })
    }
}

/// How many tasks of a queue are in which state.
pub fn counts_to_wire((queue, it): &(u8, TaskCounts)) -> v1::TaskCounts {
    v1::TaskCounts {
        queue: (*queue).into(),
        waiting: count(it.waiting),
        running: count(it.running),
        parked: count(it.parked),
        paused: count(it.paused),
    }
}

fn counts_from(it: &v1::TaskCounts) -> Result<(u8, TaskCounts), WireError> {
    let counts = TaskCounts {
        waiting: size(it.waiting),
        running: size(it.running),
        parked: size(it.parked),
        paused: size(it.paused),
    };
    Ok((queue_from(it.queue)?, counts))
}

impl From<TasksPage> for v1::peer_answer::Tasks {
    fn from(page: TasksPage) -> Self {
        Self {
            tasks: page.tasks.iter().map(Into::into).collect(),
            next: page.next.as_ref().map(Into::into),
            queues: page.queues.iter().map(Into::into).collect(),
            counts: page.counts.iter().map(counts_to_wire).collect(),
        }
    }
}

impl TryFrom<v1::peer_answer::Tasks> for TasksPage {
    type Error = WireError;
    fn try_from(it: v1::peer_answer::Tasks) -> Result<Self, WireError> {
        Ok(Self {
            tasks: each(it.tasks)?,
            next: optional(it.next)?,
            queues: each(it.queues)?,
            counts: it.counts.iter().map(counts_from).collect::<Result<_, _>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_docstore::DocName;
    use rota_model::SlotId;

    fn task() -> Task {
        Task {
            ns: Namespace::parse("shop").unwrap(),
            place: "cart-7".into(),
            taskid: "4f1c".into(),
            op_name: "bill".into(),
            param: Param::Json(serde_json::json!({"count": 2})),
            info: "carts/7".into(),
            retry: 3,
            start_at: Some(Stamp::from_epoch_ms(1_795_000_000_000)),
            start_time: Some(Stamp::from_epoch_ms(1_795_000_000_001)),
            qn: 2,
            exc: Some("LOST".into()),
            report: Some("gone".into()),
            cron: Some(Cron::parse("D0425").unwrap()),
            paused: true,
            progress: Some(Progress { done: 7, failed: 1 }),
        }
    }

    #[test]
    fn a_page_comes_over_whole() {
        let name = DocName::new(&Namespace::parse("shop").unwrap(), "Task", "{a}b").unwrap();
        let backlog = Backlog { waiting: 1, due: 2, busy: 3 };
        let page = TasksPage {
            tasks: vec![
                task(),
                Task { param: Param::Document("{a}b".into()), cron: None, exc: None, ..task() },
            ],
            next: Some(DocumentCursor { slot: SlotId(7), after: Some(name) }),
            queues: vec![QueueRow { queue: 9, space: task().ns, backlog }],
            counts: vec![(1, TaskCounts { waiting: 1, running: 2, parked: 3, paused: 4 })],
        };
        let wire = v1::peer_answer::Tasks::from(page.clone());
        assert_eq!(TasksPage::try_from(wire), Ok(page));
    }

    #[test]
    fn a_filter_comes_over_whole_and_each_mistake_of_one_is_named() {
        let filter = Filter {
            ns: Some(task().ns),
            op_name: Some("bill".into()),
            info_prefix: Some("c".into()),
            started_from: task().start_at,
            started_before: task().start_time,
            retry_min: Some(1),
            states: [TaskState::Lost, TaskState::Paused].into(),
            periodic: true,
        };
        let op = TasksOp { from: DocumentCursor::default(), limit: 5, filter: filter.clone() };
        assert_eq!(TasksOp::try_from(v1::TasksOp::from(op.clone())), Ok(op));
        let wrong = v1::TaskFilter {
            namespace: "a/b".into(),
            operation: "o".repeat(65),
            info_prefix: "i".repeat(1_025),
            started_from: 7,
            states: vec![0],
            ..v1::TaskFilter::from(&filter)
        };
        let request = |filter, page_token: &str| v1::ListTasksRequest {
            filter: Some(filter),
            page_size: 201,
            page_token: page_token.into(),
        };
        let refusal = list_tasks(request(wrong, "")).unwrap_err();
        let fields: Vec<&str> = refusal.fields.iter().map(|it| it.field.as_str()).collect();
        let expected = [
            "filter.namespace",
            "filter.started_from",
            "filter.states",
            "filter.operation",
            "filter.info_prefix",
            "page_size",
        ];
        assert_eq!(fields, expected);
        let token = tasks_token(&DocumentCursor::default(), &filter);
        let other = v1::TaskFilter { periodic: false, ..v1::TaskFilter::from(&filter) };
        let refusal = list_tasks(v1::ListTasksRequest { page_size: 1, ..request(other, &token) });
        assert_eq!(refusal.unwrap_err().fields[0].field, "page_token");
        let own = v1::ListTasksRequest { page_size: 1, ..request((&filter).into(), &token) };
        assert_eq!(list_tasks(own).map(|it| it.from), Ok(DocumentCursor::default()));
    }
}
