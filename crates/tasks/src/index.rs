//! The records of a partition in the order in which they are needed: by queue, namespace and start.
//!
//! Whoever keeps the records tells of each change. So nothing is ever scanned: a manager that takes over knows at once
//! what is due, and which runs its predecessor began.

use crate::queue::TaskKey;
use crate::ring_task::CopyWork;
use crate::task::{Run, Task, TaskState};
use rota_model::{Namespace, Stamp};
use std::collections::{BTreeMap, BTreeSet};

/// How many tasks are in which state.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct TaskCounts {
    /// Those that wait for their start, lost ones included.
    pub waiting: usize,
    /// Those that run.
    pub running: usize,
    /// Those that were given up.
    pub parked: usize,
    /// Those that an administrator holds back.
    pub paused: usize,
}

impl TaskCounts {
    fn of(&mut self, state: TaskState) -> &mut usize {
        match state {
            TaskState::Waiting | TaskState::Lost => &mut self.waiting,
            TaskState::Running => &mut self.running,
            TaskState::Parked => &mut self.parked,
            TaskState::Paused => &mut self.paused,
        }
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            waiting: self.waiting + other.waiting,
            running: self.running + other.running,
            parked: self.parked + other.parked,
            paused: self.paused + other.paused,
        }
    }

    fn is_empty(self) -> bool {
        self == Self::default()
    }
}

/// A run that is under way by its record.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Running {
    retry: u32,
    is_outside: bool,
}

/// When, and the id of the document: the earliest first.
type Due = BTreeSet<(Stamp, String)>;

/// The tasks of a partition.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct TaskIndex {
    /// By queue and namespace; no set is empty.
    due: BTreeMap<u8, BTreeMap<Namespace, Due>>,
    running: BTreeMap<(Stamp, TaskKey), Running>,
    counts: BTreeMap<u8, TaskCounts>,
    /// Copyings, each with the first change that it has not copied.
    copying: BTreeSet<(Stamp, TaskKey)>,
}

impl TaskIndex {
    /// A record changed: what it was, and what it is.
    pub fn change(&mut self, before: Option<&Task>, after: Option<&Task>) {
        if let Some(task) = before {
            self.forget(task);
        }
        if let Some(task) = after {
            self.note(task);
        }
    }

    fn note(&mut self, task: &Task) {
        if let Some(work) = CopyWork::of(task) {
            self.copying.insert((work.from, TaskKey::of(task)));
        }
        *self.counts.entry(task.qn).or_default().of(task.state()) += 1;
        if let Some(at) = task.due_at() {
            let spaces = self.due.entry(task.qn).or_default();
            spaces.entry(task.ns.clone()).or_default().insert((at, task.docid()));
        }
        if let Some(run) = task.run() {
            let running = Running { retry: run.retry, is_outside: task.works_outside() };
            self.running.insert((run.start_time, TaskKey::of(task)), running);
        }
    }

    fn forget(&mut self, task: &Task) {
        if let Some(work) = CopyWork::of(task) {
            self.copying.remove(&(work.from, TaskKey::of(task)));
        }
        if let Some(counts) = self.counts.get_mut(&task.qn) {
            let count = counts.of(task.state());
            *count = count.saturating_sub(1);
            if counts.is_empty() {
                self.counts.remove(&task.qn);
            }
        }
        if let (Some(at), Some(spaces)) = (task.due_at(), self.due.get_mut(&task.qn)) {
            if let Some(set) = spaces.get_mut(&task.ns) {
                set.remove(&(at, task.docid()));
                if set.is_empty() {
                    spaces.remove(&task.ns);
                }
            }
            if spaces.is_empty() {
                self.due.remove(&task.qn);
            }
        }
        if let Some(run) = task.run() {
            self.running.remove(&(run.start_time, TaskKey::of(task)));
        }
    }

    /// Whether there is no task at all.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Queues that have tasks to start.
    pub(crate) fn queues(&self) -> impl Iterator<Item = u8> {
        self.due.keys().copied()
    }

    /// How many there are, by queue.
    pub fn counts(&self) -> impl Iterator<Item = (u8, TaskCounts)> {
        self.counts.iter().map(|(qn, it)| (*qn, *it))
    }

    /// The oldest change of a document that is copied and has not reached all copies, if there is one.
    pub fn copies_since(&self) -> Option<Stamp> {
        self.copying.first().map(|it| it.0)
    }

    /// How many of a queue should have been started at that time, and are not.
    pub fn late(&self, qn: u8, at: Stamp) -> usize {
        let sets = self.due.get(&qn).into_iter().flat_map(BTreeMap::values);
        sets.map(|it| it.iter().take_while(|(due, _)| *due <= at).count()).sum()
    }

    /// Those of a queue that are to be started, by namespace, the earliest first.
    pub(crate) fn due(&self, qn: u8) -> impl Iterator<Item = (&Namespace, &Due)> {
        self.due.get(&qn).into_iter().flatten()
    }

    /// Those of which the records say that they run: since when, which, and whether beside the manager.
    pub(crate) fn running(&self) -> impl Iterator<Item = (&TaskKey, Run, bool)> {
        self.running.iter().map(|((start_time, key), running)| {
            (key, Run { start_time: *start_time, retry: running.retry }, running.is_outside)
        })
    }
}
