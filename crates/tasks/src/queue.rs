//! The Queue Manager of one manager: which task a worker takes next.
//!
//! ```text
//!   commits (near tasks), scans (the rest) ──▶ noted ──▶ near ── a worker is free ──▶ taken ──▶ busy ──▶ ended
//! ```
//!
//! It knows only what it was told, and documents stay the truth: whoever gets a task from [`QueueManager::take`]
//! starts it with [`start`](crate::start), which may find nothing to start. So a note that is old costs a look only.

use crate::task::{Run, Task, TaskState};
use rota_model::{Namespace, Stamp};
use std::collections::{BTreeMap, BTreeSet};

/// The settings of a Queue Manager.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueSettings {
    /// The queues, each with its count of workers.
    pub queues: BTreeMap<u8, usize>,
    /// From one scan to the next, in milliseconds. Tasks that start within it are near. Shorter, and records are read
    /// more often. Longer, and more tasks lie in memory, and lost ones wait longer.
    pub scan_ms: u64,
    /// Most near tasks in memory, at least one for each queue and namespace that has some. Fewer, and a busy manager scans more often. More, and it takes more memory.
    pub near_max: usize,
    /// A run this old, in milliseconds, without a worker here is lost. It must be longer than the quota of a task.
    /// Shorter, and a run that a former owner began is doubled. Longer, and a lost task waits longer.
    pub lost_ms: u64,
}

impl Default for QueueSettings {
    /// Queues 0 (fast, 4 workers), 1 (standard, 2) and 2 (background, 1); a scan each minute.
    fn default() -> Self {
        let queues = [(0, 4), (1, 2), (2, 1)].into();
        Self { queues, scan_ms: 60_000, near_max: 10_000, lost_ms: 900_000 }
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

/// What a queue has in memory, for one namespace or for all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Backlog {
    /// Tasks that start soon or are due.
    pub near: usize,
    /// Those of them that are due.
    pub due: usize,
    /// Tasks that workers run.
    pub busy: usize,
}

/// When, which: the earliest first.
type Near = BTreeSet<(Stamp, TaskKey)>;

/// The Queue Manager of one manager, for the slots that it serves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueManager {
    settings: QueueSettings,
    /// By queue and namespace; no set is empty.
    near: BTreeMap<u8, BTreeMap<Namespace, Near>>,
    /// Where each near task stands.
    index: BTreeMap<TaskKey, (u8, Stamp)>,
    /// What workers run, with the queue.
    busy: BTreeMap<TaskKey, u8>,
    /// The namespace that each queue served last.
    served: BTreeMap<u8, Namespace>,
    suspended_queues: BTreeSet<u8>,
    suspended_spaces: BTreeSet<Namespace>,
    /// When the next scan is due.
    scan_at: Stamp,
    /// Of which queues and namespaces near tasks were left out, for lack of room.
    left_out: BTreeSet<(u8, Namespace)>,
    /// Near tasks whose worker has not told its end yet, with where they will stand.
    behind: BTreeMap<TaskKey, (u8, Stamp)>,
}

impl QueueManager {
    /// One that knows nothing: its first scan is due at once.
    pub fn new(settings: QueueSettings) -> Self {
        Self {
            settings,
            near: BTreeMap::new(),
            index: BTreeMap::new(),
            busy: BTreeMap::new(),
            served: BTreeMap::new(),
            suspended_queues: BTreeSet::new(),
            suspended_spaces: BTreeSet::new(),
            scan_at: Stamp::MIN,
            left_out: BTreeSet::new(),
            behind: BTreeMap::new(),
        }
    }

    /// Notes a record as it was committed or scanned, and forgets what was noted of it before.
    pub fn note(&mut self, task: &Task) {
        let key = TaskKey::of(task);
        self.forget(&key);
        let Some(at) = task.due_at().filter(|at| *at < self.scan_at) else { return };
        if self.busy.contains_key(&key) {
            self.behind.insert(key, (task.qn, at));
        } else {
            self.put(task.qn, at, key);
        }
    }

    fn put(&mut self, qn: u8, at: Stamp, key: TaskKey) {
        let spaces = self.near.entry(qn).or_default();
        spaces.entry(key.ns.clone()).or_default().insert((at, key.clone()));
        self.index.insert(key, (qn, at));
        if self.index.len() > self.settings.near_max {
            self.leave_one_out();
        }
    }

    /// The queue and namespace with most near tasks loses its latest one, so that none starves another that has few.
    /// A scan finds it again.
    fn leave_one_out(&mut self) {
        let sets = self.near.iter().flat_map(|(qn, spaces)| spaces.values().map(|it| (*qn, it)));
        let largest = sets.max_by_key(|(_, set)| set.len());
        if let Some((qn, (_, key))) = largest.and_then(|(qn, set)| Some((qn, set.last()?.clone())))
        {
            self.left_out.insert((qn, key.ns.clone()));
            self.forget(&key);
        }
    }

    /// Forgets a task that is gone.
    pub fn forget(&mut self, key: &TaskKey) {
        self.behind.remove(key);
        let Some((qn, at)) = self.index.remove(key) else { return };
        let Some(spaces) = self.near.get_mut(&qn) else { return };
        if let Some(set) = spaces.get_mut(&key.ns) {
            set.remove(&(at, key.clone()));
            if set.is_empty() {
                spaces.remove(&key.ns);
            }
        }
    }

    /// When the next scan of all records is due. At once, if a queue and namespace whose tasks were left out has none
    /// left in memory.
    pub fn scan_at(&self) -> Stamp {
        let sets: usize = self.near.values().map(BTreeMap::len).sum();
        // With room for one task of each at least, a scan leaves none without tasks. So no scan follows another.
        let helps = sets < self.settings.near_max;
        let is_empty = |(qn, ns): &(u8, Namespace)| {
            self.near.get(qn).is_none_or(|spaces| !spaces.contains_key(ns))
        };
        if helps && self.left_out.iter().any(is_empty) { Stamp::MIN } else { self.scan_at }
    }

    /// A scan: all records of the slots that this manager serves. Gives the runs that are lost, for
    /// [`lose`](crate::lose): they are old, and no worker here has them.
    pub fn scan<'a>(
        &mut self,
        records: impl IntoIterator<Item = &'a Task>,
        now: Stamp,
    ) -> Vec<(TaskKey, Run)> {
        self.scan_at = now.plus_ms(self.settings.scan_ms);
        self.left_out.clear();
        self.behind.clear();
        (self.near, self.index) = (BTreeMap::new(), BTreeMap::new());
        let mut lost = Vec::new();
        for task in records {
            self.note(task);
            let Some(run) = task.run().filter(|_| task.state() == TaskState::Running) else {
                continue;
            };
            let is_old = now.ms_since(run.start_time).is_some_and(|it| it >= self.settings.lost_ms);
            let key = TaskKey::of(task);
            if is_old && !self.busy.contains_key(&key) {
                lost.push((key, run));
            }
        }
        lost
    }

    /// Gives free workers what is due: in each queue the namespaces take turns, and each gives its earliest task.
    /// A task that is given is busy until [`Self::ended`].
    pub fn take(&mut self, now: Stamp) -> Vec<(u8, TaskKey)> {
        let mut taken = Vec::new();
        let queues: Vec<_> = self.settings.queues.iter().map(|(qn, it)| (*qn, *it)).collect();
        for (qn, workers) in queues {
            if self.suspended_queues.contains(&qn) {
                continue;
            }
            let mut free = workers.saturating_sub(self.busy_of(qn));
            while free > 0
                && let Some(key) = self.next_of(qn, now)
            {
                self.forget(&key);
                self.served.insert(qn, key.ns.clone());
                self.busy.insert(key.clone(), qn);
                taken.push((qn, key));
                free -= 1;
            }
        }
        taken
    }

    fn busy_of(&self, qn: u8) -> usize {
        self.busy.values().filter(|it| **it == qn).count()
    }

    /// The earliest due task of the namespace whose turn it is: the first one after that which was served last.
    fn next_of(&self, qn: u8, now: Stamp) -> Option<TaskKey> {
        let served = self.served.get(&qn);
        let due = self.near.get(&qn)?.iter().filter_map(|(ns, set)| {
            let (at, key) = set.first()?;
            (*at <= now && !self.suspended_spaces.contains(ns)).then_some((ns, key))
        });
        let due: Vec<_> = due.collect();
        let after = due.iter().find(|(ns, _)| served.is_none_or(|it| *ns > it));
        after.or(due.first()).map(|(_, key)| (*key).clone())
    }

    /// A worker ended, or lost contact with the run: it is free. How the run ended stands in the record, which is
    /// noted at its commit.
    pub fn ended(&mut self, key: &TaskKey) {
        self.busy.remove(key);
        if let Some((qn, at)) = self.behind.remove(key) {
            self.put(qn, at, key.clone());
        }
    }

    /// Starts nothing of a queue, until it is resumed. What runs goes on.
    pub fn suspend_queue(&mut self, qn: u8) {
        self.suspended_queues.insert(qn);
    }

    /// Lets a queue go on.
    pub fn resume_queue(&mut self, qn: u8) {
        self.suspended_queues.remove(&qn);
    }

    /// Starts nothing of a namespace, until it is resumed. What runs goes on.
    pub fn suspend_space(&mut self, ns: Namespace) {
        self.suspended_spaces.insert(ns);
    }

    /// Lets a namespace go on.
    pub fn resume_space(&mut self, ns: &Namespace) {
        self.suspended_spaces.remove(ns);
    }

    /// What it has in memory, by queue and namespace.
    pub fn backlog(&self, now: Stamp) -> BTreeMap<(u8, Namespace), Backlog> {
        let mut backlog: BTreeMap<(u8, Namespace), Backlog> = BTreeMap::new();
        for (key, (qn, at)) in &self.index {
            let counts = backlog.entry((*qn, key.ns.clone())).or_default();
            counts.near += 1;
            counts.due += usize::from(*at <= now);
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
    use crate::task::end::{Patience, fail};
    use crate::task::{Param, start};
    use proptest::prelude::*;

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
        }
    }

    fn manager(workers: usize, near_max: usize) -> QueueManager {
        let queues = [(1, workers)].into();
        let settings = QueueSettings { queues, near_max, scan_ms: 1_000, lost_ms: 5_000 };
        QueueManager::new(settings)
    }

    /// Takes, and ends at once, until nothing is due.
    fn run_all(queue: &mut QueueManager, now: Stamp) -> Vec<String> {
        let mut names = Vec::new();
        loop {
            let taken = queue.take(now);
            if taken.is_empty() {
                return names;
            }
            for (_, key) in taken {
                queue.ended(&key);
                names.push(key.ns.to_string());
            }
        }
    }

    #[test]
    fn namespaces_take_turns_whatever_each_has() {
        let mut queue = manager(1, 100);
        let mut tasks: Vec<_> = (0..5).map(|it| task("a", it, 1, 0)).collect();
        tasks.extend([task("b", 0, 1, 5), task("c", 0, 1, 5), task("b", 1, 1, 5)]);
        queue.scan(&tasks, at(10));
        assert_eq!(run_all(&mut queue, at(10)), ["a", "b", "c", "a", "b", "a", "a", "a"]);
    }

    #[test]
    fn a_near_task_is_taken_at_its_time_and_a_far_one_after_a_scan() {
        let mut queue = manager(1, 100);
        let (near, far) = (task("a", 0, 1, 900), task("a", 1, 1, 1_100));
        queue.scan([], at(0));
        queue.note(&near);
        queue.note(&far);
        assert_eq!(queue.take(at(899)), []);
        assert_eq!(queue.take(at(900)), [(1, TaskKey::of(&near))]);
        queue.ended(&TaskKey::of(&near));
        assert_eq!(queue.scan_at(), at(1_000));
        queue.scan([&far], at(1_000));
        assert_eq!(queue.take(at(1_100)), [(1, TaskKey::of(&far))]);
    }

    #[test]
    fn suspended_queues_and_namespaces_start_nothing_until_they_are_resumed() {
        let mut queue = manager(2, 100);
        let (a, b) = (task("a", 0, 1, 0), task("b", 0, 1, 0));
        queue.scan([&a, &b], at(0));
        queue.suspend_queue(1);
        assert_eq!(queue.take(at(1)), []);
        queue.suspend_space(a.ns.clone());
        queue.resume_queue(1);
        assert_eq!(queue.take(at(1)), [(1, TaskKey::of(&b))]);
        let backlog = queue.backlog(at(1));
        assert_eq!(backlog[&(1, a.ns.clone())], Backlog { near: 1, due: 1, busy: 0 });
        assert_eq!(backlog[&(1, b.ns.clone())], Backlog { near: 0, due: 0, busy: 1 });
        queue.resume_space(&a.ns);
        assert_eq!(queue.take(at(1)), [(1, TaskKey::of(&a))]);
    }

    #[test]
    fn an_old_run_is_lost_if_its_worker_is_gone_and_not_if_it_lives() {
        let mut queue = manager(1, 100);
        let waiting = task("a", 0, 1, 0);
        queue.scan([&waiting], at(0));
        let (_, key) = queue.take(at(0)).remove(0);
        let running = start(Some(&waiting), at(0)).unwrap();
        assert_eq!(queue.scan([&running], at(9_000)), []);
        queue.ended(&key);
        assert_eq!(queue.scan([&running], at(4_999)), []);
        let run = running.run().unwrap();
        assert_eq!(queue.scan([&running], at(9_000)), [(key, run)]);
    }

    #[test]
    fn a_record_that_comes_before_the_end_of_its_worker_waits_for_that_end() {
        let mut queue = manager(1, 100);
        let waiting = task("a", 0, 1, 0);
        queue.scan([&waiting], at(0));
        let (_, key) = queue.take(at(0)).remove(0);
        let running = start(Some(&waiting), at(0)).unwrap();
        let (run, patience) =
            (running.run().unwrap(), Patience { first_ms: 10, ..Patience::default() });
        let change = fail(Some(&running), run, ("E", ""), patience, at(0));
        let crate::Change::Put { task: failed, .. } = change else { panic!("it is written") };
        queue.note(&failed);
        assert_eq!(queue.scan_at(), at(1_000));
        assert_eq!(queue.take(at(10)), []);
        queue.ended(&key);
        assert_eq!(queue.take(at(10)), [(1, key)]);
    }

    #[test]
    fn a_suspended_namespace_with_many_tasks_takes_no_room_from_others() {
        let mut queue = manager(1, 4);
        let mut tasks: Vec<_> = (0..10).map(|it| task("a", it, 1, 0)).collect();
        tasks.extend((10..14).map(|it| task("b", it, 1, 5)));
        queue.suspend_space(tasks[0].ns.clone());
        queue.scan(&tasks, at(5));
        assert_eq!(run_all(&mut queue, at(5)), ["b", "b"]);
        assert_eq!(queue.scan_at(), Stamp::MIN);
        queue.scan(&tasks, at(6));
        assert_eq!(queue.scan_at(), at(1_006));
        assert_eq!(queue.index.len(), 4);
    }

    proptest! {
        /// Against all records as the model: each step takes as many as are due and workers are free.
        #[test]
        fn nothing_due_is_forgotten_while_workers_are_free_and_nothing_runs_twice(
            starts in prop::collection::vec((0..3usize, 0..5_000u64), 0..40),
            workers in 1..4usize,
            near_max in 4..20usize,
            ends in prop::collection::vec(any::<bool>(), 60),
        ) {
            let mut queue = manager(workers, near_max);
            let mut waiting: BTreeMap<TaskKey, Task> = BTreeMap::new();
            for (id, (space, start)) in starts.iter().enumerate() {
                let task = task(["a", "b", "c"][*space], id, 1, *start);
                waiting.insert(TaskKey::of(&task), task);
            }
            let mut busy = BTreeSet::new();
            for (step, ends) in (0_u64..).zip(ends) {
                let now = at(step * 100);
                if ends && let Some(key) = busy.pop_first() {
                    queue.ended(&key);
                }
                loop {
                    if queue.scan_at() <= now {
                        queue.scan(waiting.values(), now);
                    }
                    let taken = queue.take(now);
                    if taken.is_empty() {
                        break;
                    }
                    for (_, key) in taken {
                        prop_assert!(waiting.remove(&key).is_some(), "{:?} was taken twice", key);
                        prop_assert!(busy.insert(key));
                    }
                    prop_assert!(queue.index.len() <= near_max);
                }
                let due = waiting.values().filter(|it| it.start_at <= Some(now)).count();
                prop_assert!(busy.len() == workers || (busy.len() < workers && due == 0));
            }
        }
    }
}
