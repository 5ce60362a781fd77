//! Operations of the Queue Manager: `task.start`, `task.end`, `task.fail`. Nobody else may ask for them.

use crate::contents::tasks::{ParamItem, TaskItem};
use crate::documents::tasks::keeper::{Keeper, found, gone, wanted};
use crate::ports::task_work::{END, Ending, FAIL, PROGRESS, Progressing, START, Started, Starting};
use rota_docstore::{Exception, Namespace, Operation, Place, Transaction, Wanted, codes};
use rota_tasks::{NoStart, PARAM_CLASS, Param, Run, TASK_CLASS, Task, fail, lose, start};
use serde_json::Value;

/// Refuses everybody but the Queue Manager.
fn check_keeper(transaction: &Transaction<'_>) -> Result<(), Exception> {
    if transaction.task().is_none() {
        let text = "only the Queue Manager of a manager starts and ends tasks";
        return Err(Exception::new(codes::REFUSED, text));
    }
    Ok(())
}

/// Starts a task: its record says since when it runs.
pub(crate) struct TaskStart(Starting);

impl Operation for TaskStart {
    const NAME: &'static str = START;
    const PLACE: Place = Place::Inline;
    type Parameters = Starting;

    fn new(starting: Starting) -> Result<Self, Exception> {
        Ok(Self(starting))
    }

    fn documents(&self, space: &Namespace) -> Result<Vec<Wanted>, Exception> {
        wanted(space, &self.0.docid)
    }

    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
        check_keeper(transaction)?;
        let name = transaction.name(TASK_CLASS, &self.0.docid)?;
        let stored = found(transaction, &name)?;
        let task = start(stored.as_ref(), transaction.now()).map_err(|why| match why {
            NoStart::Gone => gone(&self.0.docid),
            NoStart::Postponed | NoStart::Running | NoStart::Parked | NoStart::Paused => {
                let text = format!("task {} has nothing to start: {why:?}", self.0.docid);
                Exception::new(codes::TASK, text)
            }
        })?;
        let param = match &task.param {
            Param::Json(value) => value.clone(),
            Param::Document(docid) => {
                let name = transaction.name(PARAM_CLASS, docid)?;
                let param = transaction.current(&name)?.one::<ParamItem>()?;
                param.map_or(Value::Null, |it| it.0)
            }
        };
        let started = Started {
            start_time: task.start_time.unwrap_or(transaction.now()),
            retry: task.retry,
            operation: task.op_name.clone(),
            param,
            is_outside: task.works_outside(),
            goes_around: task.goes_around(),
            progress: task.progress.unwrap_or_default(),
        };
        transaction.current(&name)?.put_one(&TaskItem(task))?;
        transaction.answer_json(&started)
    }
}

/// Ends a task well whose work was no operation.
pub(crate) struct TaskEnd(Ending);

impl Operation for TaskEnd {
    const NAME: &'static str = END;
    const PLACE: Place = Place::Inline;
    type Parameters = Ending;

    fn new(ending: Ending) -> Result<Self, Exception> {
        Ok(Self(ending))
    }

    fn documents(&self, space: &Namespace) -> Result<Vec<Wanted>, Exception> {
        wanted(space, &self.0.docid)
    }

    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
        check_keeper(transaction)?;
        let Ending { docid, start_time, retry, changes, .. } = &self.0;
        let run = Run { start_time: *start_time, retry: *retry };
        match changes {
            Some(changes) => Keeper::end_copy(transaction, docid, run, *changes),
            None => Keeper::end_well(transaction, docid),
        }
    }
}

/// Says how far a run that goes around the ring has come.
pub(crate) struct TaskProgress(Progressing);

impl Operation for TaskProgress {
    const NAME: &'static str = PROGRESS;
    const PLACE: Place = Place::Inline;
    type Parameters = Progressing;

    fn new(progressing: Progressing) -> Result<Self, Exception> {
        Ok(Self(progressing))
    }

    fn documents(&self, space: &Namespace) -> Result<Vec<Wanted>, Exception> {
        wanted(space, &self.0.docid)
    }

    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
        check_keeper(transaction)?;
        let Progressing { docid, start_time, retry, progress } = &self.0;
        let name = transaction.name(TASK_CLASS, docid)?;
        let own = Run { start_time: *start_time, retry: *retry };
        let task = found(transaction, &name)?.filter(|it| it.run() == Some(own));
        let task = task.ok_or_else(|| gone(docid))?;
        let task = Task { progress: Some(*progress), ..task };
        transaction.current(&name)?.put_one(&TaskItem(task))
    }
}

/// Ends a run badly.
pub(crate) struct TaskFail(Ending);

impl Operation for TaskFail {
    const NAME: &'static str = FAIL;
    const PLACE: Place = Place::Inline;
    type Parameters = Ending;

    fn new(ending: Ending) -> Result<Self, Exception> {
        Ok(Self(ending))
    }

    fn documents(&self, space: &Namespace) -> Result<Vec<Wanted>, Exception> {
        wanted(space, &self.0.docid)
    }

    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
        check_keeper(transaction)?;
        let Ending { docid, start_time, retry, code, report, is_lost, patience, .. } = &self.0;
        let name = transaction.name(TASK_CLASS, docid)?;
        let (stored, now) = (found(transaction, &name)?, transaction.now());
        let run = Run { start_time: *start_time, retry: *retry };
        let patience = patience.unwrap_or_default();
        let change = if *is_lost {
            lose(stored.as_ref(), run, patience, now)
        } else {
            fail(stored.as_ref(), run, (code, report), patience, now)
        };
        Keeper::apply(transaction, &name, stored.as_ref(), &change)
    }
}
