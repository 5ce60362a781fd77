//! The Queue Manager of a partition: which task a worker takes next.
//!
//! ```text
//!   records ──▶ TaskIndex ── due, and a worker is free ──▶ taken ──▶ busy ── the last answer came ──▶ ended
//! ```
//!
//! It knows only which workers it gave what, and documents stay the truth: whoever gets a task from
//! [`QueueManager::take`] starts it with [`start`](crate::start), which may find nothing to start.

use crate::index::TaskIndex;
use crate::task::{Run, Task};
use rota_model::{Namespace, Stamp};
use std::collections::BTreeMap;

/// The settings of a Queue Manager.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct QueueSettings {
    /// The queues, each with its count of workers.
    pub queues: BTreeMap<u8, usize>,
    /// A run beside the manager that is this old, in milliseconds, without a worker here is lost. It must be longer
    /// than the quota of a task. Shorter, and a run that a former owner began is doubled. Longer, and a lost task waits
    /// longer. Other runs are lost as soon as no worker here has them: their results could not be committed.
    pub lost_ms: u64,
}

impl Default for QueueSettings {
    /// Queues 0 (fast, 4 workers), 1 (standard, 2) and 2 (background, 1).
    fn default() -> Self {
        Self { queues: [(0, 4), (1, 2), (2, 1)].into(), lost_ms: 900_000 }
    }
}

/// Which task: its namespace and the id of its document.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TaskKey {
    /// The namespace.
    pub ns: Namespace,
    /// The id of its document.
    pub docid: String,
}

impl TaskKey {
    /// The key of a task.
    pub fn of(task: &Task) -> Self {
        Self { ns: task.ns.clone(), docid: task.docid() }
    }
}

/// What a queue has, for one namespace or for all.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Backlog {
    /// Tasks that wait for their start.
    pub waiting: usize,
    /// Those of them that are due.
    pub due: usize,
    /// Tasks that workers have.
    pub busy: usize,
}

/// The Queue Manager of one partition.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct QueueManager {
    /// What workers have, with the queue.
    busy: BTreeMap<TaskKey, u8>,
    /// The namespace that each queue served last.
    served: BTreeMap<u8, Namespace>,
}

impl QueueManager {
    /// Gives free workers what is due: in each queue the namespaces take turns, and each gives its earliest task.
    /// What is suspended starts nothing. A task that is given is busy until [`Self::ended`].
    pub fn take(
        &mut self,
        settings: &QueueSettings,
        index: &TaskIndex,
        is_suspended: impl Fn(u8, &Namespace) -> bool,
        now: Stamp,
    ) -> Vec<TaskKey> {
        let mut taken = Vec::new();
        for qn in index.queues() {
            // Tasks of a queue that lost its workers are not left behind.
            let workers = settings.queues.get(&qn).copied().unwrap_or(0).max(1);
            let mut free = workers.saturating_sub(self.busy_of(qn));
            while free > 0
                && let Some(key) = self.next_of(qn, index, &is_suspended, now)
            {
                self.served.insert(qn, key.ns.clone());
                self.busy.insert(key.clone(), qn);
                taken.push(key);
                free -= 1;
            }
        }
        taken
    }

    fn busy_of(&self, qn: u8) -> usize {
        self.busy.values().filter(|it| **it == qn).count()
    }

    /// The earliest due task of the namespace whose turn it is: the first one after that which was served last.
    fn next_of(
        &self,
        qn: u8,
        index: &TaskIndex,
        is_suspended: &impl Fn(u8, &Namespace) -> bool,
        now: Stamp,
    ) -> Option<TaskKey> {
        let served = self.served.get(&qn);
        let earliest = |(ns, set): (&Namespace, &std::collections::BTreeSet<(Stamp, String)>)| {
            // No more are passed over than workers are busy.
            let due = set.iter().take_while(|(at, _)| *at <= now);
            let mut keys = due.map(|(_, docid)| TaskKey { ns: ns.clone(), docid: docid.clone() });
            keys.find(|it| !self.busy.contains_key(it))
        };
        let mut first = None;
        for (ns, set) in index.due(qn).filter(|(ns, _)| !is_suspended(qn, ns)) {
            let is_after = served.is_none_or(|it| ns > it);
            if first.is_some() && !is_after {
                continue;
            }
            match earliest((ns, set)) {
                Some(key) if is_after => return Some(key),
                Some(key) => first = Some(key),
                None => {}
            }
        }
        first
    }

    /// A worker is free: its run ended, and what that came to is committed, or nobody knows more of it.
    pub fn ended(&mut self, key: &TaskKey) {
        self.busy.remove(key);
    }

    /// Runs that nobody ends any more, for [`lose`](crate::lose): the records say that they run, and no worker here has
    /// them. At most so many. `owned_ms`: for how long this manager has owned the partition. The clock of a former owner
    /// may have been ahead, so that counts, too. Nothing is written in namespaces that are closed.
    pub fn lost(
        &self,
        settings: &QueueSettings,
        index: &TaskIndex,
        is_closed: impl Fn(&Namespace) -> bool,
        (now, owned_ms): (Stamp, u64),
        most: usize,
    ) -> Vec<(TaskKey, Run)> {
        let is_lost = |(key, run, is_outside): &(&TaskKey, Run, bool)| {
            let age = now.ms_since(run.start_time).unwrap_or(0).max(owned_ms);
            let is_ended = !self.busy.contains_key(*key) && !is_closed(&key.ns);
            is_ended && (!is_outside || age >= settings.lost_ms)
        };
        let lost = index.running().filter(is_lost).take(most);
        lost.map(|(key, run, _)| (key.clone(), run)).collect()
    }

    /// What there is, by queue and namespace.
    pub fn backlog(&self, index: &TaskIndex, now: Stamp) -> BTreeMap<(u8, Namespace), Backlog> {
        let mut backlog: BTreeMap<(u8, Namespace), Backlog> = BTreeMap::new();
        for (qn, _) in index.counts() {
            for (ns, set) in index.due(qn) {
                let counts = backlog.entry((qn, ns.clone())).or_default();
                counts.waiting += set.len();
                counts.due += set.iter().take_while(|(at, _)| *at <= now).count();
            }
        }
        for (key, qn) in &self.busy {
            backlog.entry((*qn, key.ns.clone())).or_default().busy += 1;
        }
        backlog
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::start;
    use crate::task::{EXEC, Param};
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn at(ms: u64) -> Stamp {
        Stamp::from_epoch_ms(1_795_000_000_000 + ms)
    }

    fn task(ns: &str, id: usize, qn: u8, start_ms: u64) -> Task {
        Task {
            ns: Namespace::parse(ns).unwrap(),
            place: "p".into(),
            taskid: format!("t{id}"),
            op_name: "bill".into(),
            param: Param::Json(serde_json::json!({})),
            info: String::new(),
            retry: 0,
            start_at: Some(at(start_ms)),
            start_time: None,
            qn,
            exc: None,
            report: None,
            cron: None,
            paused: false,
            progress: None,
        }
    }

    fn settings(workers: usize) -> QueueSettings {
        QueueSettings { queues: [(1, workers)].into(), lost_ms: 5_000 }
    }

    fn index(tasks: &[Task]) -> TaskIndex {
        let mut index = TaskIndex::default();
        tasks.iter().for_each(|it| index.change(None, Some(it)));
        index
    }

    /// Takes, and ends at once, until nothing is due.
    fn run_all(queue: &mut QueueManager, tasks: &[Task], now: Stamp) -> Vec<String> {
        let mut names = Vec::new();
        let mut index = index(tasks);
        loop {
            let taken = queue.take(&settings(1), &index, |_, ns| ns.as_str() == "off", now);
            if taken.is_empty() {
                return names;
            }
            for key in taken {
                let task = tasks.iter().find(|it| TaskKey::of(it) == key).unwrap();
                index.change(Some(task), None);
                queue.ended(&key);
                names.push(key.ns.to_string());
            }
        }
    }

    #[test]
    fn namespaces_take_turns_whatever_each_has() {
        let mut tasks: Vec<_> = (0..5).map(|it| task("a", it, 1, 0)).collect();
        tasks.extend([task("b", 0, 1, 5), task("c", 0, 1, 5), task("b", 1, 1, 5)]);
        let mut queue = QueueManager::default();
        assert_eq!(run_all(&mut queue, &tasks, at(10)), ["a", "b", "c", "a", "b", "a", "a", "a"]);
    }

    #[test]
    fn what_is_suspended_starts_nothing() {
        let tasks = [task("off", 0, 1, 0), task("on", 0, 1, 5)];
        assert_eq!(run_all(&mut QueueManager::default(), &tasks, at(10)), ["on"]);
    }

    #[test]
    fn a_task_is_taken_at_its_time_and_not_twice() {
        let index = index(&[task("a", 0, 1, 900)]);
        let mut queue = QueueManager::default();
        let mut take = |ms| queue.take(&settings(2), &index, |_, _| false, at(ms));
        assert_eq!(take(899), []);
        assert_eq!(take(900).len(), 1);
        assert_eq!(take(901), []);
    }

    #[test]
    fn tasks_of_a_queue_that_lost_its_workers_are_not_left_behind() {
        let index = index(&[task("a", 0, 7, 0), task("a", 1, 7, 0)]);
        let mut queue = QueueManager::default();
        assert_eq!(queue.take(&settings(1), &index, |_, _| false, at(1)).len(), 1);
    }

    #[test]
    fn a_run_without_a_worker_is_lost_at_once_inside_and_after_a_while_outside() {
        let waiting = task("a", 0, 1, 0);
        let outside = Task { op_name: EXEC.into(), ..task("a", 1, 1, 0) };
        let both = [waiting, outside].map(|it| start(Some(&it), at(0)).unwrap());
        let index = index(&both);
        let mut queue = QueueManager::default();
        let lost =
            |queue: &QueueManager, ms| queue.lost(&settings(1), &index, |_| false, (at(ms), 0), 10);
        let runs = both.map(|it| (TaskKey::of(&it), it.run().unwrap()));
        assert_eq!(lost(&queue, 4_999), runs[..1]);
        assert_eq!(lost(&queue, 5_000), runs);
        let owned = |owned_ms| queue.lost(&settings(1), &index, |_| false, (at(0), owned_ms), 10);
        assert_eq!((owned(4_999).len(), owned(5_000).len()), (1, 2));
        queue.busy.insert(runs[1].0.clone(), 1);
        assert_eq!(lost(&queue, 5_000), runs[..1]);
    }

    proptest! {
        /// Against all records as the model: each step takes as many as are due and workers are free.
        #[test]
        fn nothing_due_is_forgotten_while_workers_are_free_and_nothing_runs_twice(
            starts in prop::collection::vec((0..3usize, 1..3u8, 0..5_000u64), 0..40),
            workers in 1..4usize,
            ends in prop::collection::vec(any::<bool>(), 60),
        ) {
            let queues = [(1, workers), (2, workers)].into();
            let settings = QueueSettings { queues, lost_ms: 5_000 };
            let (mut queue, mut index) = (QueueManager::default(), TaskIndex::default());
            let mut waiting: BTreeMap<TaskKey, Task> = BTreeMap::new();
            for (id, (space, qn, start)) in starts.iter().enumerate() {
                let task = task(["a", "b", "c"][*space], id, *qn, *start);
                index.change(None, Some(&task));
                waiting.insert(TaskKey::of(&task), task);
            }
            let mut busy = BTreeSet::new();
            for (step, ends) in (0_u64..).zip(ends) {
                let now = at(step * 100);
                if ends && let Some((_, key)) = busy.pop_first() {
                    queue.ended(&key);
                }
                for key in queue.take(&settings, &index, |_, _| false, now) {
                    let task = waiting.remove(&key);
                    prop_assert!(task.is_some(), "{:?} was taken twice", key);
                    let started = start(task.as_ref(), now);
                    prop_assert!(started.is_ok());
                    index.change(task.as_ref(), started.ok().as_ref());
                    let qn = task.map_or(0, |it| it.qn);
                    prop_assert!(busy.insert((qn, key)));
                }
                for qn in [1, 2] {
                    let due = waiting.values().filter(|it| it.qn == qn && it.start_at <= Some(now));
                    let (due, busy) = (due.count(), busy.iter().filter(|it| it.0 == qn).count());
                    prop_assert!(busy == workers || (busy < workers && due == 0));
                    prop_assert_eq!(index.late(qn, now), due);
                }
                let counts: usize = index.counts().map(|(_, it)| it.waiting).sum();
                prop_assert_eq!(counts, waiting.len());
            }
        }
    }
}
