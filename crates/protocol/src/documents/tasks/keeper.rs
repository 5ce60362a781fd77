//! Writes the records of tasks for operations that register some, and for runs that end.

use crate::contents::tasks::{ParamItem, TaskItem};
use crate::documents::form::all_of;
use crate::settings::tasks::TasksConfig;
use rota_docstore::{
    DocName, Exception, FieldError, Namespace, NewTask, Operations, TaskKeeper, TaskRun,
    Transaction, Wanted, codes,
};
use rota_messages::documents::session_fields;
use rota_ring::together;
use rota_search::{DOCID, Filter, Kind};
use rota_tasks::{
    CLOSE, COPY, Change, CloseWork, Config, DOCID_BYTES_MAX, EXEC, GRPC, HTTP, PARAM_CLASS, Param,
    Registered, Registration, Run, TASK_CLASS, Task, copied, note_change, succeed,
};
use serde_json::Value;
use std::collections::BTreeMap;
use xxhash_rust::xxh3::xxh3_64;

/// Keeps the records of tasks.
#[derive(Clone, Debug)]
pub(crate) struct Keeper {
    config: Config,
    /// Queues of operations that are not 0.
    queue_of: BTreeMap<String, u8>,
}

/// An id that nobody else draws.
fn draw_id(transaction: &mut Transaction<'_>) -> String {
    format!("{:016x}", transaction.draw())
}

/// Refuses a task that would register what its parameters say: who may do that was checked for the task, and not for
/// what is in its parameters.
pub(crate) fn check_no_task(transaction: &Transaction<'_>, field: &str) -> Result<(), Exception> {
    if transaction.task().is_none() {
        return Ok(());
    }
    let problem = "cannot be registered by a task that is built in; an operation of your own may register some";
    Err(Exception::of_field(codes::REFUSED, FieldError::new(field, problem)))
}

/// The record of a task that is there.
pub(crate) fn found(
    transaction: &mut Transaction<'_>,
    name: &DocName,
) -> Result<Option<Task>, Exception> {
    Ok(transaction.current(name)?.one::<TaskItem>()?.map(|it| it.0))
}

/// The document of a task, which an operation reads and changes.
pub(crate) fn wanted(space: &Namespace, docid: &str) -> Result<Vec<Wanted>, Exception> {
    Ok(vec![Wanted::current(DocName::new(space, TASK_CLASS, docid)?)])
}

/// N-TASK.
pub(crate) fn gone(docid: &str) -> Exception {
    Exception::new(codes::TASK, format!("task {docid} is not there: it ended, or was deleted"))
}

/// Refuses sessions to close that nobody can select.
fn check_close(param: &Value) -> Result<(), Exception> {
    let work = CloseWork::read(param)?;
    if work.filter.trim().is_empty() {
        let problem = "where: is empty, and would select all; say `age >= 0s` if that is meant";
        return Err(FieldError::new("param", problem).into());
    }
    let filter = Filter::parse(&work.filter, &session_fields().with(DOCID, Kind::Text));
    let in_param = |it: FieldError| FieldError::new("param", format!("where: {}", it.problem));
    filter.map(drop).map_err(|it| in_param(it).into())
}

impl Keeper {
    /// Tasks may run these operations, and the programs and targets that are allowed.
    pub fn new(tasks: &TasksConfig, operations: &Operations) -> Self {
        let config = Config {
            queues: tasks.queues.queues.clone(),
            programs: tasks.programs.clone(),
            targets: tasks.targets.clone(),
            operations: BTreeMap::new(),
        };
        Self { config, queue_of: tasks.queue_of.clone() }.offering(operations)
    }

    /// The same for other operations.
    pub fn offering(&self, operations: &Operations) -> Self {
        let names = operations.names().chain([EXEC, HTTP, GRPC, CLOSE]);
        let queue = |name: &str| self.queue_of.get(name).copied().unwrap_or(0);
        let operations = names.map(|it| (it.to_owned(), queue(it))).collect();
        let config = Config { operations, ..self.config.clone() };
        Self { config, queue_of: self.queue_of.clone() }
    }

    /// Ends a task well: its record goes, and the next run of a periodic one comes.
    pub fn end_well(transaction: &mut Transaction<'_>, docid: &str) -> Result<(), Exception> {
        let name = transaction.name(TASK_CLASS, docid)?;
        let task = found(transaction, &name)?;
        let next_id = draw_id(transaction);
        let change = succeed(task.as_ref(), &next_id, transaction.now());
        Self::apply(transaction, &name, task.as_ref(), &change)
    }

    /// A run that copied what had changed up to so many changes ends.
    pub fn end_copy(
        transaction: &mut Transaction<'_>,
        docid: &str,
        run: Run,
        changes: u64,
    ) -> Result<(), Exception> {
        let name = transaction.name(TASK_CLASS, docid)?;
        let task = found(transaction, &name)?.filter(|it| it.run() == Some(run));
        let change = copied(task.as_ref(), changes, transaction.now());
        Self::apply(transaction, &name, task.as_ref(), &change)
    }

    /// Writes what became of a record.
    pub fn apply(
        transaction: &mut Transaction<'_>,
        name: &DocName,
        was: Option<&Task>,
        change: &Change,
    ) -> Result<(), Exception> {
        match change {
            Change::Nothing => {}
            Change::Put { task, .. } => {
                transaction.current(name)?.put_one(&TaskItem((**task).clone()))?;
            }
            Change::Remove { next } => {
                transaction.current(name)?.destroy();
                let param = was.and_then(|task| match &task.param {
                    Param::Document(docid) => Some(docid),
                    Param::Json(_) => None,
                });
                if let (Some(docid), None) = (param, next) {
                    let name = transaction.name(PARAM_CLASS, docid)?;
                    transaction.current(&name)?.destroy();
                }
                if let Some(next) = next {
                    let name = transaction.name(TASK_CLASS, &next.docid())?;
                    let edited = transaction.current(&name)?;
                    edited.create()?;
                    edited.put_one(&TaskItem((**next).clone()))?;
                }
            }
        }
        Ok(())
    }
}

impl TaskKeeper for Keeper {
    fn register(
        &self,
        transaction: &mut Transaction<'_>,
        task: &NewTask,
    ) -> Result<String, Exception> {
        transaction.check_caller(&task.operation)?;
        let param = task.parameters.as_ref().map_or("{}", |it| it.as_str());
        let param: Value =
            serde_json::from_str(param).map_err(|it| FieldError::new("param", it.to_string()))?;
        let registration = Registration {
            ns: transaction.space().clone(),
            place: task.place.clone(),
            taskid: draw_id(transaction),
            op_name: task.operation.clone(),
            param,
            info: task.info.clone(),
            start_at: task.start_at,
            cron: task.cron.clone(),
        };
        let docid = format!("{{{}}}{}", registration.place, registration.taskid);
        let name = transaction.name(TASK_CLASS, &docid);
        let name = name.map_err(|it| FieldError::new("place", it.problem))?;
        let slot = transaction.slot_of(&name);
        let slots = (slot, transaction.slot().unwrap_or(slot));
        let mut registration = registration;
        if registration.op_name == CLOSE {
            check_close(&registration.param)?;
            // What is opened later stays, however often the task runs. A periodic one means other sessions each time.
            if registration.cron.is_none() {
                registration.param["before"] = transaction.now().as_u64().into();
            }
        }
        let checked = registration.check(&self.config, slots, transaction.now());
        let Registered { task, param_document } = checked.map_err(all_of)?;
        let edited = transaction.current(&name)?;
        edited.create()?;
        edited.put_one(&TaskItem(task))?;
        if let Some(param) = param_document {
            let name = transaction.name(PARAM_CLASS, &docid)?;
            let edited = transaction.current(&name)?;
            edited.create()?;
            edited.put_one(&ParamItem(param))?;
        }
        Ok(docid)
    }

    fn check_queue(&self, queue: u8) -> Result<(), FieldError> {
        if self.config.queues.contains_key(&queue) {
            return Ok(());
        }
        let queues: Vec<String> = self.config.queues.keys().map(u8::to_string).collect();
        let problem = format!("is {queue}; the queues are {}", queues.join(", "));
        Err(FieldError::new("queue", problem))
    }

    fn copy(&self, transaction: &mut Transaction<'_>, of: &DocName) -> Result<(), Exception> {
        let place = together(of.docid()).to_owned();
        let taskid = format!("copy-{:016x}", xxh3_64(of.as_text().as_bytes()));
        let wrong = || {
            let problem = format!(
                "of {of}, which has copied items, must have no lone brace, and at most {} bytes",
                DOCID_BYTES_MAX - taskid.len() - 2
            );
            Exception::of_field(codes::INVALID, FieldError::new("docid", problem))
        };
        let name = transaction.name(TASK_CLASS, &format!("{{{place}}}{taskid}"));
        let name = name.map_err(|_| wrong())?;
        if transaction.slot_of(&name) != transaction.slot_of(of) {
            return Err(wrong());
        }
        let stored = found(transaction, &name)?;
        let (ns, now) = (transaction.space().clone(), transaction.now());
        let qn = self.queue_of.get(COPY).copied().unwrap_or(0);
        let document = (of.class(), of.docid());
        let task = note_change(stored.as_ref(), (&ns, &place, &taskid, qn), document, now);
        let edited = transaction.current(&name)?;
        edited.ensure();
        edited.put_one(&TaskItem(task))
    }

    fn begin(&self, transaction: &mut Transaction<'_>, run: &TaskRun) -> Result<(), Exception> {
        let name = transaction.name(TASK_CLASS, &run.docid)?;
        let task = found(transaction, &name)?.ok_or_else(|| gone(&run.docid))?;
        let own = Run { start_time: run.start_time, retry: run.retry };
        if task.run() != Some(own) {
            let text = format!("task {} has another run by now", run.docid);
            return Err(Exception::new(codes::TASK, text));
        }
        Ok(())
    }

    fn end(
        &self,
        transaction: &mut Transaction<'_>,
        run: &TaskRun,
        goes_on: bool,
    ) -> Result<(), Exception> {
        if goes_on { Ok(()) } else { Self::end_well(transaction, &run.docid) }
    }
}
