//! What a caller sends: an operation by name, its parameters, who asks, and which documents to
//! bring up to date; and the checks before anything begins.

use crate::checker::Credentials;
use crate::content::JsonText;
use crate::documents::Documents;
use crate::exception::{Exception, Phase, codes};
use crate::name::{DocName, check_word};
use crate::rules::{Rules, unserved};
use crate::space::Spaces;
use crate::sync::Held;
use crate::task::TaskRun;
use rota_model::{FieldError, Namespace, RequestId, Stamp};
use std::sync::Arc;

/// Most documents that one request may ask to bring up to date.
pub const SYNCS_MAX: usize = 256;
/// Longest name of an operation, in bytes.
pub const OPERATION_BYTES_MAX: usize = 64;
/// Who asks, and with which program. Every request has this.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Caller {
    /// The caller's build, if it says one.
    pub build: Option<u64>,
    /// Who asks.
    pub who: Credentials,
}

impl Caller {
    /// What is refused before any work, whatever is asked for, in this order: limits, the namespace
    /// (O), the caller's build (D), who asks (S). `asked`: what the checker hears, beside the
    /// namespace. Operations check it themselves.
    pub fn check(
        &self,
        rules: &Rules,
        spaces: &Spaces,
        space: &Namespace,
        asked: &str,
    ) -> Result<(), Exception> {
        let checked = check_caller(self.build, &self.who, (space, asked), rules, spaces);
        checked.map_err(|it| it.at(Phase::Before))
    }
}

fn check_caller(
    build: Option<u64>,
    who: &Credentials,
    (space, asked): (&Namespace, &str),
    rules: &Rules,
    spaces: &Spaces,
) -> Result<(), Exception> {
    who.check_limits()?;
    spaces.check_open(space)?;
    if let Some(build) = build.filter(|it| *it < rules.build) {
        let problem = format!("is {build}; the server's is {}", rules.build);
        return Err(Exception::of_field(codes::BUILD, FieldError::new("build", problem)));
    }
    let verdict = rules.checker.check(who, space.as_str(), asked);
    verdict.map_err(|why| Exception::new(codes::REFUSED, why))
}

/// A document to bring up to date after the operation.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SyncRequest {
    /// Which.
    pub name: DocName,
    /// What the caller has of it; `None`: nothing.
    pub held: Option<Held>,
}

/// A request to run an operation.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Request {
    /// The namespace that it works in.
    pub space: Namespace,
    /// The operation's name.
    pub operation: String,
    /// Its parameters; `None` is read as an empty JSON object.
    pub parameters: Option<JsonText>,
    /// The caller's time of the operation: how long a repetition is known.
    pub operation_time: Option<Stamp>,
    /// The caller's name for this very request, the same when it is repeated and for no other one. Goes
    /// with an operation time.
    pub request_id: Option<RequestId>,
    /// The caller's build, if it says one.
    pub build: Option<u64>,
    /// Who asks.
    pub who: Credentials,
    /// Documents to bring up to date, at most [`SYNCS_MAX`]; of slots that
    /// [`crate::Territory::serves`] allows, else A-SLOT.
    pub syncs: Vec<SyncRequest>,
    /// The run of a task that this is. Who registered the task was checked then, so nobody is checked now.
    pub task: Option<Arc<TaskRun>>,
}

impl Request {
    /// A request without parameters, times and documents to bring up to date.
    pub fn new(space: Namespace, operation: &str) -> Self {
        Self {
            space,
            operation: operation.to_owned(),
            parameters: None,
            operation_time: None,
            request_id: None,
            build: None,
            who: Credentials::default(),
            syncs: Vec::new(),
            task: None,
        }
    }

    /// Sets the parameters from a value.
    pub fn with<T: serde::Serialize + ?Sized>(mut self, value: &T) -> Result<Self, FieldError> {
        self.parameters = Some(JsonText::of(value)?);
        Ok(self)
    }

    /// Whether a repetition of it is known as one: it has an operation time, and says whose it is by a request id or
    /// at least an account. Two callers that say neither may ask for the same in the same millisecond.
    pub fn is_repeatable(&self) -> bool {
        let is_named = self.request_id.is_some() || !self.who.account.is_empty();
        self.operation_time.is_some() && is_named
    }

    /// Everything that is refused before any work (phase 0), in this order: limits, the namespace
    /// (O), the caller's build (D), who asks (S), the caller's time, versions from the future.
    pub(crate) fn check(
        &self,
        rules: &Rules,
        documents: &dyn Documents,
        now: Stamp,
    ) -> Result<(), Exception> {
        let check = || {
            self.check_limits()?;
            if self.task.is_some() {
                return documents.spaces().check_open(&self.space);
            }
            let asked = (&self.space, &*self.operation);
            check_caller(self.build, &self.who, asked, rules, documents.spaces())?;
            self.check_operation_time(rules, now, documents.high_water())?;
            self.check_syncs(rules, documents, now)
        };
        check().map_err(|it: Exception| it.at(Phase::Before))
    }

    fn check_limits(&self) -> Result<(), Exception> {
        check_word("operation", &self.operation, OPERATION_BYTES_MAX)?;
        let count = self.syncs.len();
        if count > SYNCS_MAX {
            let problem = format!("are {count} documents; the limit is {SYNCS_MAX}");
            return Err(Exception::of_field(codes::LIMIT, FieldError::new("syncs", problem)));
        }
        Ok(())
    }

    /// What was committed before may be later than the clock: one that was put back must not refuse
    /// the repetition of what is done, nor find too old what it is asked now. Clocks are a little apart: who
    /// is ahead by no more than the age that is allowed is told when to come again.
    fn check_operation_time(
        &self,
        rules: &Rules,
        now: Stamp,
        committed: Stamp,
    ) -> Result<(), Exception> {
        let Some(operation_time) = self.operation_time else {
            if self.request_id.is_some() {
                let problem = "is missing: a request_id goes with the caller's time of the request";
                return Err(FieldError::new("operation_time", problem).into());
            }
            return Ok(());
        };
        let limit = rules.operation_time_age_ms_max;
        let latest = now.max(committed);
        let refused =
            |problem| Exception::of_field(codes::TIME, FieldError::new("operation_time", problem));
        match now.ms_since(operation_time) {
            None if operation_time <= latest => Ok(()),
            None => {
                let refused =
                    refused(format!("{operation_time} is in the future; the limit is {latest}"));
                let ahead = operation_time.ms_since(now).filter(|ahead| *ahead <= limit);
                Err(ahead.into_iter().fold(refused, |it, ahead| it.after(ahead + 1)))
            }
            Some(age) if age > limit => {
                Err(refused(format!("is {age} ms ago; the limit is {limit} ms")))
            }
            Some(_) => Ok(()),
        }
    }

    fn check_syncs(
        &self,
        rules: &Rules,
        documents: &dyn Documents,
        now: Stamp,
    ) -> Result<(), Exception> {
        for (at, sync) in self.syncs.iter().enumerate() {
            let name = &sync.name;
            let in_field = |part: &str| format!("syncs[{at}].{part}");
            let wrong = |part: &str, problem| FieldError::new(in_field(part), problem);
            rules.schema.check_class(name.class()).map_err(|it| wrong("class", it.problem))?;
            documents.spaces().check_reads(self.space.as_str(), name)?;
            let slot = rules.territory.slot_of(name);
            if !rules.territory.serves(slot) {
                return Err(Exception::of_field(codes::SLOT, wrong("name", unserved(name, slot))));
            }
            if let Some(held) = &sync.held {
                held.check_not_after(now.max(documents.high_water()))
                    .map_err(|it| wrong("version", it.problem))?;
            }
        }
        Ok(())
    }
}
