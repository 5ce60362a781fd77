//! What is registered, and every check of it. All mistakes come together.

use crate::outside::Outside;
use crate::ring_task::CloseWork;
use crate::task::{CLOSE, EXEC, GRPC, HTTP, Param, Task, docid};
use rota_model::{Cron, FieldError, Namespace, SlotId, Stamp};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Most bytes of parameters as JSON: what one item of a document holds.
pub const PARAM_BYTES_MAX: usize = 1024 * 1024;
/// Parameters of more bytes get a document of their own. Lower, and a task costs two documents more often.
/// Higher, and each start and each failure writes all of that again.
pub const PARAM_INLINE_BYTES_MAX: usize = 16 * 1024;
/// Most bytes of `info`.
pub const INFO_BYTES_MAX: usize = 1_024;
/// Most bytes of a task's id.
pub const TASKID_BYTES_MAX: usize = 64;
/// Most bytes of the id of a task's document.
pub const DOCID_BYTES_MAX: usize = 255;
/// How far `startAt` may lie in the past, in milliseconds. Lower, and callers whose clocks are late are refused.
/// Higher, and a wrong date is taken for "at once".
pub const PAST_MS_MAX: u64 = 60_000;

/// What the configuration says of tasks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Config {
    /// The operations that tasks may run, each with its queue. `exec`, `http` and `grpc` stand here too.
    pub operations: BTreeMap<String, u8>,
    /// The queues, each with its count of workers.
    pub queues: BTreeMap<u8, usize>,
    /// What `exec` may run (`program` of its parameters). None unless flags say so.
    pub programs: BTreeSet<String>,
    /// What `http` and `grpc` may reach (`target` of their parameters). None unless flags say so.
    pub targets: BTreeSet<String>,
}

/// What somebody wants to register.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Registration {
    /// The namespace.
    pub ns: Namespace,
    /// The part of document ids in braces, which says the slot.
    pub place: String,
    /// An id that is drawn anew for each task.
    pub taskid: String,
    /// The operation.
    pub op_name: String,
    /// What the operation is given.
    pub param: Value,
    /// Text for administrators.
    pub info: String,
    /// Not before, as YYMMDDhhmmssmmm; `None`: at once, or at the next run of `cron`.
    pub start_at: Option<u64>,
    /// The text of a periodic task.
    pub cron: Option<String>,
}

/// What the commit of the registering operation writes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Registered {
    /// The record.
    pub task: Task,
    /// The content of the document of [`PARAM_CLASS`](crate::PARAM_CLASS) that `task.param` names.
    pub param_document: Option<Value>,
}

impl Registration {
    /// Checks everything, and gives what is to be written.
    ///
    /// `slot` is that of the task's place, `operation_slot` that of the operation that registers it: one commit
    /// writes one slot. At an administrator's registration both are the same.
    ///
    /// # Errors
    ///
    /// Each mistake, with its field: `place`, `taskid`, `opName`, `param`, `info`, `startAt`, `cron`, `qn`.
    pub fn check(
        &self,
        config: &Config,
        (slot, operation_slot): (SlotId, SlotId),
        now: Stamp,
    ) -> Result<Registered, Vec<FieldError>> {
        let mut mistakes = self.names();
        let mut wrong =
            |field: &str, problem: String| mistakes.push(FieldError::new(field, problem));
        if slot != operation_slot {
            let problem =
                "lies in another slot than the operation; take the place of its documents";
            wrong("place", problem.to_owned());
        }
        let param_bytes = self.param.to_string().len();
        if param_bytes > PARAM_BYTES_MAX {
            let limit = format!("has {param_bytes} bytes; the limit is {PARAM_BYTES_MAX}");
            wrong("param", limit + "; put it into documents and name these");
        }
        let qn = config.queue_of(&self.op_name).unwrap_or_else(|error| {
            wrong(&error.field, error.problem);
            0
        });
        if let Err(it) = config.check_work(&self.op_name, &self.param) {
            wrong(&it.field, it.problem);
        }
        let times = self.times(now);
        if let Err(of_times) = &times {
            mistakes.extend(of_times.iter().cloned());
        }
        match times {
            Ok((start_at, cron)) if mistakes.is_empty() => {
                Ok(self.registered(qn, start_at, cron, param_bytes))
            }
            Ok(_) | Err(_) => Err(mistakes),
        }
    }

    fn registered(
        &self,
        qn: u8,
        start_at: Stamp,
        cron: Option<Cron>,
        param_bytes: usize,
    ) -> Registered {
        let is_large = param_bytes > PARAM_INLINE_BYTES_MAX;
        let docid = docid(&self.place, &self.taskid);
        let task = Task {
            ns: self.ns.clone(),
            place: self.place.clone(),
            taskid: self.taskid.clone(),
            op_name: self.op_name.clone(),
            param: if is_large { Param::Document(docid) } else { Param::Json(self.param.clone()) },
            info: self.info.clone(),
            retry: 0,
            start_at: Some(start_at),
            start_time: None,
            qn,
            exc: None,
            report: None,
            cron,
            paused: false,
            progress: None,
        };
        Registered { task, param_document: is_large.then(|| self.param.clone()) }
    }

    fn names(&self) -> Vec<FieldError> {
        let mut mistakes = Vec::new();
        let mut wrong =
            |field: &str, problem: String| mistakes.push(FieldError::new(field, problem));
        let is_odd = |it: char| it.is_control() || it == '{' || it == '}';
        if self.place.is_empty() || self.place.contains(is_odd) {
            wrong("place", "must be text without braces and control characters".to_owned());
        }
        let id_fits = (1..=TASKID_BYTES_MAX).contains(&self.taskid.len());
        if !id_fits || !self.taskid.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-') {
            let limit = format!("must have 1 to {TASKID_BYTES_MAX} letters, digits and dashes");
            wrong("taskid", limit);
        }
        let bytes = docid(&self.place, &self.taskid).len();
        if bytes > DOCID_BYTES_MAX {
            let problem = format!("makes an id of {bytes} bytes; the limit is {DOCID_BYTES_MAX}");
            wrong("place", problem);
        }
        if self.info.len() > INFO_BYTES_MAX {
            let problem = format!("has {} bytes; the limit is {INFO_BYTES_MAX}", self.info.len());
            wrong("info", problem);
        }
        mistakes
    }

    /// When it starts, and how often.
    fn times(&self, now: Stamp) -> Result<(Stamp, Option<Cron>), Vec<FieldError>> {
        let cron = self.cron.as_deref().map(Cron::parse).transpose();
        let start_at = self.start_at.map(|it| check_start_at(it, now)).transpose();
        let (cron, start_at) = match (cron, start_at) {
            (Ok(cron), Ok(start_at)) => (cron, start_at),
            (cron, start_at) => {
                return Err(cron.err().into_iter().chain(start_at.err()).collect());
            }
        };
        let next = cron.map_or(Some(now), |it| it.next(now));
        match start_at.or(next) {
            Some(at) => Ok((at, cron)),
            None => Err(vec![FieldError::new("cron", "has no run before the year 2100")]),
        }
    }
}

/// A time that somebody gives, as YYMMDDhhmmssmmm: a moment of this century that is not over. The field is
/// `startAt`.
pub fn check_start_at(number: u64, now: Stamp) -> Result<Stamp, FieldError> {
    let at = Stamp::parse(number).map_err(|error| {
        FieldError::new("startAt", format!("{}; years are 2000 to 2099", error.problem))
    })?;
    if at < now.minus_ms(PAST_MS_MAX) {
        let problem =
            format!("is {at}, which is over (it is {now}); leave it out to start at once");
        return Err(FieldError::new("startAt", problem));
    }
    Ok(at)
}

impl Config {
    /// The queue of an operation, which has workers.
    fn queue_of(&self, op_name: &str) -> Result<u8, FieldError> {
        let Some(qn) = self.operations.get(op_name) else {
            let told = "which is no operation for tasks: `ringctl document operations` lists them";
            let problem = format!("is {op_name:?}, {told}");
            return Err(FieldError::new("opName", problem));
        };
        if self.queues.get(qn).is_none_or(|workers| *workers == 0) {
            let problem = format!("is {qn} for {op_name:?}, a queue without workers; give it some");
            return Err(FieldError::new("qn", problem));
        }
        Ok(*qn)
    }

    /// Whether a program or a call is one that flags allow.
    fn check_work(&self, op_name: &str, param: &Value) -> Result<(), FieldError> {
        let (part, allowed) = match op_name {
            EXEC => ("program", &self.programs),
            HTTP | GRPC => ("target", &self.targets),
            CLOSE => return CloseWork::read(param).map(drop),
            _ => return Ok(()),
        };
        let Some(named) = param.get(part).and_then(Value::as_str) else {
            return Err(FieldError::new("param", format!("lacks the text {part:?}")));
        };
        if !allowed.contains(named) {
            let problem = format!("names the {part} {named:?}, which no flag allows");
            return Err(FieldError::new("param", problem));
        }
        Outside::parse(op_name, param).map(drop)
    }
}
