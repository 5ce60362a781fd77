//! Tasks, as operations see them: work that an operation leaves for later, and the run of a task that an
//! operation is.
//!
//! A task is a document in the slot of the operation that registers it, so one commit has both. Who keeps tasks says
//! what stands in that document: a [`TaskKeeper`] of the [`crate::Rules`]. A store without one has no tasks.

use crate::attempt::Transaction;
use crate::content::JsonText;
use crate::exception::{Exception, Phase, codes};
use crate::json::to_json;
use crate::name::DocName;
use rota_model::{FieldError, Stamp};
use serde::Serialize;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The run of a task that a request is. Only who keeps tasks makes such requests.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TaskRun {
    /// The id of the task's document.
    pub docid: String,
    /// When this run was started.
    pub start_time: Stamp,
    /// How often the task was started again; 0: its first run.
    pub retry: u32,
    /// What the last cycle of this run left; `None`: this is its first one.
    pub checkpoint: Option<JsonText>,
    /// Whether this is its work. What only keeps the record begins and ends nothing.
    pub is_work: bool,
}

/// What an operation leaves for later.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewTask {
    /// The operation that is to run.
    pub operation: String,
    /// The part in braces of the ids of documents that it works on: it says the slot.
    pub place: String,
    /// Its parameters.
    pub parameters: Option<JsonText>,
    /// Text by which administrators find it.
    pub info: String,
    /// Not before, as YYMMDDhhmmssmmm; `None`: at once, or at the next run of `cron`.
    pub start_at: Option<u64>,
    /// When it runs again after each success, as `D0425`.
    pub cron: Option<String>,
}

impl NewTask {
    /// A task without parameters that starts at once.
    pub fn new(operation: &str, place: &str) -> Self {
        Self {
            operation: operation.to_owned(),
            place: place.to_owned(),
            parameters: None,
            info: String::new(),
            start_at: None,
            cron: None,
        }
    }

    /// Sets the parameters from a value.
    pub fn with<T: Serialize + ?Sized>(mut self, value: &T) -> Result<Self, FieldError> {
        self.parameters = Some(JsonText::of(value)?);
        Ok(self)
    }

    /// Sets the text for administrators.
    #[must_use]
    pub fn info(mut self, info: &str) -> Self {
        info.clone_into(&mut self.info);
        self
    }

    /// Starts no earlier than that.
    #[must_use]
    pub fn at(mut self, start_at: Stamp) -> Self {
        self.start_at = Some(start_at.as_u64());
        self
    }

    /// Runs again and again.
    #[must_use]
    pub fn every(mut self, cron: &str) -> Self {
        self.cron = Some(cron.to_owned());
        self
    }
}

/// Who keeps tasks.
pub trait TaskKeeper: Send + Sync {
    /// Writes the document of a new task, and gives its id. Each mistake is told with its field.
    fn register(
        &self,
        transaction: &mut Transaction<'_>,
        task: &NewTask,
    ) -> Result<String, Exception>;

    /// Refuses a queue that there is not, with those that there are: field `queue`.
    fn check_queue(&self, queue: u8) -> Result<(), FieldError>;

    /// Items of that document that are copied to others were written: leaves the copying for later. What is left for one
    /// document is done once.
    fn copy(&self, transaction: &mut Transaction<'_>, name: &DocName) -> Result<(), Exception>;

    /// The work of a run begins: refuses one that has nothing to do any more.
    fn begin(&self, transaction: &mut Transaction<'_>, run: &TaskRun) -> Result<(), Exception>;

    /// The work of a run ended well. `goes_on`: it left a checkpoint, and another cycle follows.
    fn end(
        &self,
        transaction: &mut Transaction<'_>,
        run: &TaskRun,
        goes_on: bool,
    ) -> Result<(), Exception>;
}

/// Most bytes of a checkpoint.
pub const CHECKPOINT_BYTES_MAX: usize = 64 * 1024;

impl Transaction<'_> {
    /// The run of a task that this is; `None`: somebody asked for the operation.
    pub fn task(&self) -> Option<&TaskRun> {
        self.request()?.task.as_deref()
    }

    /// Leaves work for later: the commit of this operation registers it. Gives the id of its document.
    ///
    /// # Errors
    ///
    /// Each mistake, with its field; B-MISUSE at a store without tasks.
    pub fn register_task(&mut self, task: &NewTask) -> Result<String, Exception> {
        let keeper = self.keeper()?;
        keeper.register(self, task)
    }

    /// Refuses a queue of tasks that there is not, with those that there are: field `queue`.
    ///
    /// # Errors
    ///
    /// A-INVALID; B-MISUSE at a store without tasks.
    pub fn check_queue(&self, queue: u8) -> Result<(), Exception> {
        Ok(self.keeper()?.check_queue(queue)?)
    }

    /// Lets the run of a task go on with another cycle after this commit, which sees this value.
    ///
    /// # Errors
    ///
    /// B-MISUSE where no task runs; A-LIMIT for a value of more than [`CHECKPOINT_BYTES_MAX`].
    pub fn go_on_with<T: Serialize + ?Sized>(&mut self, checkpoint: &T) -> Result<(), Exception> {
        if self.task().is_none() {
            let text = "only the run of a task may go on with a checkpoint";
            return Err(Exception::new(codes::MISUSE, text));
        }
        let wrong = |it| FieldError::new("checkpoint", format!("cannot be written: {it}"));
        let text = to_json(checkpoint).map_err(wrong)?;
        if text.len() > CHECKPOINT_BYTES_MAX {
            let problem =
                format!("is {} bytes long; the limit is {CHECKPOINT_BYTES_MAX}", text.len());
            return Err(Exception::of_field(codes::LIMIT, FieldError::new("checkpoint", problem)));
        }
        self.set_checkpoint(JsonText::parse(&text)?);
        Ok(())
    }

    /// Refuses whoever asked for this operation and may not ask for that one (S-REFUSED). What runs as a task may do what
    /// is registered.
    pub fn check_caller(&self, operation: &str) -> Result<(), Exception> {
        let Some(request) = self.request().filter(|it| it.task.is_none()) else { return Ok(()) };
        let verdict = self.rules().checker.check(&request.who, self.space().as_str(), operation);
        verdict.map_err(|why| Exception::new(codes::REFUSED, why))
    }

    /// A number to name something by: each call gives another one, and each attempt others. It is no secret.
    pub fn draw(&mut self) -> u64 {
        let (salt, count) = self.next_draw();
        let mut hasher = DefaultHasher::new();
        (salt, count, self.now()).hash(&mut hasher);
        hasher.finish()
    }

    pub(crate) fn keeper(&self) -> Result<std::sync::Arc<dyn TaskKeeper>, Exception> {
        let missing = || Exception::new(codes::MISUSE, "this store keeps no tasks");
        self.rules().tasks.clone().ok_or_else(missing)
    }

    /// The request is looked at before its operation works.
    pub(crate) fn begin_task(&mut self) -> Result<(), Exception> {
        let Some(run) = self.task().filter(|it| it.is_work).cloned() else { return Ok(()) };
        self.keeper()?.begin(self, &run).map_err(|it| it.at(Phase::Before))
    }

    /// The operation worked: its task ends in the same commit, or goes on. A task has no result but its checkpoint.
    pub(crate) fn end_task(&mut self) -> Result<(), Exception> {
        let Some(run) = self.task().filter(|it| it.is_work).cloned() else { return Ok(()) };
        let goes_on = self.settle_checkpoint();
        self.keeper()?.end(self, &run, goes_on)
    }
}
