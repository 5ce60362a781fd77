//! The committed tasks of a copy, in the order in which its owner needs them. So a take-over reads no document to know
//! what is due.

use rota_docstore::{Document, Namespace, Singleton};
use rota_messages::{Doc, DocKey};
use rota_tasks::{PARAM_CLASS, TASK_CLASS, Task, TaskIndex};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeSet;

/// The item of a task's document.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskItem(pub Task);

impl Singleton for TaskItem {
    const CLASS: &'static str = "task";
}

/// The item of the document of large parameters.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ParamItem(pub Value);

impl Singleton for ParamItem {
    const CLASS: &'static str = "param";
}

/// Adds the classes of tasks, and of their large parameters.
pub fn with_tasks(schema: rota_docstore::Schema) -> rota_docstore::Schema {
    schema
        .class(TASK_CLASS, |it| it.singleton::<TaskItem>())
        .class(PARAM_CLASS, |it| it.singleton::<ParamItem>())
        .traceless(TASK_CLASS)
        .traceless(PARAM_CLASS)
}

/// The task that a document holds. One that does not read as a task is none: nobody can run it.
pub fn task_of(document: &Document) -> Option<Task> {
    if document.name().class() != TASK_CLASS || document.is_deleted() {
        return None;
    }
    // An import may have brought it into another namespace.
    let ns = Namespace::parse(document.name().space()).ok()?;
    let task = Task { ns, ..document.one::<TaskItem>().ok()??.0 };
    (task.docid() == document.name().docid()).then_some(task)
}

/// The tasks of a copy.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Tasks {
    /// By queue, namespace and start.
    pub index: TaskIndex,
    /// All of them, in the order of a list.
    pub keys: BTreeSet<DocKey>,
}

impl Tasks {
    /// A document was written, or has gone.
    pub fn change(&mut self, key: &DocKey, before: Option<&Doc>, after: Option<&Doc>) {
        if key.name.class() != TASK_CLASS {
            return;
        }
        let [was, is] =
            [before, after].map(|it| it.and_then(Doc::of_application).and_then(|it| task_of(it)));
        match is.is_some() {
            true => drop(self.keys.insert(key.clone())),
            false => drop(self.keys.remove(key)),
        }
        self.index.change(was.as_ref(), is.as_ref());
    }
}
