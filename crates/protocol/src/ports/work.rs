//! An operation of an application that works beside the decisions.

use crate::ports::slots::Slots;
use rota_docstore::{
    Cache, DocName, Document, Documents, Exception, Next, Operations, Progress, Remembered,
    Request, Rules, Run, Spaces, Territory, Usage, codes,
};
use rota_messages::Doc;
use rota_model::{SlotId, Stamp};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

/// What an operation that works sees of the documents of this manager: those of one moment.
pub(crate) struct Snapshot {
    pub(crate) slots: Slots,
    /// All documents of that slot are here.
    pub(crate) whole: Option<SlotId>,
    pub(crate) docs: BTreeMap<DocName, Option<Arc<Doc>>>,
    pub(crate) spaces: Spaces,
    pub(crate) remembered: Remembered,
    pub(crate) high_water: Stamp,
}

impl Documents for Snapshot {
    fn get(&self, name: &DocName) -> Option<Arc<Document>> {
        self.docs.get(name)?.as_ref().map(|doc| doc.document().clone())
    }

    fn is_at_hand(&self, name: &DocName) -> bool {
        self.docs.contains_key(name) || self.whole == Some(self.slots.slot_of(name))
    }

    fn high_water(&self) -> Stamp {
        self.high_water
    }

    fn spaces(&self) -> &Spaces {
        &self.spaces
    }

    /// Only a validation asks for it, and that is not done on a snapshot.
    fn usage(&self, _: &str) -> Usage {
        Usage::default()
    }

    fn remembered(&self) -> Remembered {
        self.remembered
    }
}

/// An attempt at an operation that is to work beside the decisions.
#[derive(Clone)]
pub struct Job {
    /// What was asked for.
    pub request: Arc<Request>,
    pub(crate) progress: Progress,
    pub(crate) operations: Operations,
    pub(crate) rules: Rules,
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) cache: Cache,
    pub(crate) now: Stamp,
}

impl Job {
    /// Lets it work: checks who asks, runs the application's code, and comes back when that returns,
    /// however long it takes. The same job always comes to the same, as far as the application's code
    /// does.
    pub fn run(&self) -> Worked {
        let mut run = Run::resume(Arc::clone(&self.request), self.progress.clone());
        let mut cache = self.cache.clone();
        let (operations, snapshot) = (&self.operations, &*self.snapshot);
        let next = run.work(operations, &self.rules, snapshot, Some(&mut cache), self.now);
        Worked(Arc::new(Mutex::new(Some((run, next)))))
    }

    /// What to give back when [`Job::run`] did not return: code of the application panicked where nobody
    /// can go on, as while it was dropped.
    pub fn failed(&self) -> Worked {
        let run = Run::resume(Arc::clone(&self.request), self.progress.clone());
        let message = "code of the application panicked beside its work";
        let exception = run.given_up(Exception::new(codes::PANIC, message));
        Worked(Arc::new(Mutex::new(Some((run, Next::Failed(exception))))))
    }

    /// The name of the operation.
    pub fn operation(&self) -> &str {
        &self.request.operation
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("operation", &self.operation()).finish_non_exhaustive()
    }
}

/// What [`Job::run`] came to. It is used once: clones share it.
#[derive(Clone)]
pub struct Worked(Arc<Mutex<Option<(Run, Next)>>>);

impl Worked {
    pub(crate) fn take(&self) -> Option<(Run, Next)> {
        self.0.lock().ok()?.take()
    }
}

impl fmt::Debug for Worked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worked").finish_non_exhaustive()
    }
}
