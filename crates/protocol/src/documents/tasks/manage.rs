//! What administrators order about tasks: `task.create`, `task.delete`, `task.advance`, `task.postpone`, `task.retry`,
//! `task.pause`, `task.resume`.

use crate::contents::tasks::TaskItem;
use crate::documents::tasks::about;
use crate::documents::tasks::form::TaskForm;
use crate::documents::tasks::keeper::{Keeper, check_no_task, found, gone, wanted};
use crate::documents::write::answer_once;
use rota_docstore::{
    About, Exception, FieldError, Namespace, Operation, Place, Transaction, Wanted,
};
use rota_tasks::{Change, TASK_CLASS, Task, check_start_at};
use serde::{Deserialize, Serialize};

/// The answer to every order: which task, and what it is now.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Ordered {
    docid: String,
    /// The record; none of one that was deleted.
    task: Option<Task>,
}

/// Registers a task.
pub(crate) struct TaskCreate(TaskForm);

impl Operation for TaskCreate {
    const NAME: &'static str = "task.create";
    const PLACE: Place = Place::Inline;
    type Parameters = TaskForm;

    fn about() -> About {
        about::TASK_CREATE
    }

    fn new(form: TaskForm) -> Result<Self, Exception> {
        Ok(Self(form))
    }

    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
        check_no_task(transaction, "operation")?;
        let place = format!("{{{}}}", self.0.place);
        let beside = transaction.name(TASK_CLASS, &place);
        let beside = beside.map_err(|it| FieldError::new("place", it.problem))?;
        if let Some(done) = transaction.repeated::<Ordered>(&beside)? {
            return transaction.answer_json(&done);
        }
        let docid = transaction.register_task(&self.0.new_task()?)?;
        let name = transaction.name(TASK_CLASS, &docid)?;
        let task = found(transaction, &name)?;
        answer_once(transaction, &beside, &Ordered { docid, task })
    }
}

/// Which task.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Which {
    docid: String,
}

/// Which task, and when.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WhichAndWhen {
    docid: String,
    at: u64,
}

/// Carries an order about one task out, once. `change`: the record that comes of it, or none for one that is deleted.
fn order(
    transaction: &mut Transaction<'_>,
    docid: &str,
    change: impl FnOnce(&Task, &Transaction<'_>) -> Result<Option<Task>, FieldError>,
) -> Result<(), Exception> {
    let name = transaction.name(TASK_CLASS, docid)?;
    if let Some(done) = transaction.repeated::<Ordered>(&name)? {
        return transaction.answer_json(&done);
    }
    let task = found(transaction, &name)?.ok_or_else(|| gone(docid))?;
    let changed = change(&task, transaction)?;
    match &changed {
        Some(changed) => transaction.current(&name)?.put_one(&TaskItem(changed.clone()))?,
        None => {
            let removed = Change::Remove { next: None };
            Keeper::apply(transaction, &name, Some(&task), &removed)?;
        }
    }
    answer_once(transaction, &name, &Ordered { docid: docid.to_owned(), task: changed })
}

/// An order about one task without a time.
macro_rules! plain_order {
    ($(#[$doc:meta])* $name:ident, $text:literal, $about:ident, $change:expr) => {
        $(#[$doc])*
        pub(crate) struct $name(Which);

        impl Operation for $name {
            const NAME: &'static str = $text;
            const PLACE: Place = Place::Inline;
            type Parameters = Which;

            fn about() -> About {
                about::$about
            }

            fn new(which: Which) -> Result<Self, Exception> {
                Ok(Self(which))
            }

            fn documents(&self, space: &Namespace) -> Result<Vec<Wanted>, Exception> {
                wanted(space, &self.0.docid)
            }

            fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
                order(transaction, &self.0.docid, $change)
            }
        }
    };
}

plain_order!(
    /// Deletes a task. A run that is under way finds nothing at its end.
    TaskDelete, "task.delete", TASK_DELETE, |_, _| Ok(None)
);
plain_order!(
    /// Runs a task now, also one that was given up.
    TaskRetry, "task.retry", TASK_RETRY, |task, transaction| {
        task.retry_now(transaction.now()).map(Some)
    }
);
plain_order!(
    /// Holds a periodic task back.
    TaskPause, "task.pause", TASK_PAUSE, |task, _| task.pause().map(Some)
);
plain_order!(
    /// Lets a periodic task go on.
    TaskResume, "task.resume", TASK_RESUME, |task, transaction| {
        task.resume(transaction.now()).map(Some)
    }
);

/// An order about one task with a time.
macro_rules! timed_order {
    ($(#[$doc:meta])* $name:ident, $text:literal, $about:ident, $change:path) => {
        $(#[$doc])*
        pub(crate) struct $name(WhichAndWhen);

        impl Operation for $name {
            const NAME: &'static str = $text;
            const PLACE: Place = Place::Inline;
            type Parameters = WhichAndWhen;

            fn about() -> About {
                about::$about
            }

            fn new(which: WhichAndWhen) -> Result<Self, Exception> {
                Ok(Self(which))
            }

            fn documents(&self, space: &Namespace) -> Result<Vec<Wanted>, Exception> {
                wanted(space, &self.0.docid)
            }

            fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
                let at = self.0.at;
                order(transaction, &self.0.docid, |task, transaction| {
                    let at = check_start_at(at, transaction.now());
                    let at = at.map_err(|it| FieldError::new("at", it.problem))?;
                    $change(task, at).map(Some)
                })
            }
        }
    };
}

timed_order!(
    /// Starts a task earlier.
    TaskAdvance, "task.advance", TASK_ADVANCE, Task::advance
);
timed_order!(
    /// Starts a task later.
    TaskPostpone, "task.postpone", TASK_POSTPONE, Task::postpone
);
