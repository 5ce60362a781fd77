//! The story of four tasks, told by the functions that decide and a clock that only counts.
//!
//! `cargo run --release -p rota-tasks --example story`

use rota_model::{Namespace, SlotId, Stamp};
use rota_tasks::{
    Change, Config, Patience, QueueManager, QueueSettings, Registration, Run, Task, TaskIndex,
    TaskKey, fail, lose, start, succeed,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A manager with its documents.
struct World {
    now: Stamp,
    records: BTreeMap<TaskKey, Task>,
    index: TaskIndex,
    queue: QueueManager,
    patience: Patience,
    drawn: u32,
}

impl World {
    fn tell(&self, text: &str) {
        let clock = self.now.as_u64() / 1_000;
        println!("{:06} {:06}  {text}", clock / 1_000_000, clock % 1_000_000);
    }

    fn write(&mut self, task: Task) {
        let key = TaskKey::of(&task);
        self.index.change(self.records.get(&key), Some(&task));
        self.records.insert(key, task);
    }

    fn register(&mut self, op_name: &str, cron: Option<&str>, param: Value) {
        self.drawn += 1;
        let registration = Registration {
            ns: Namespace::default_space(),
            place: "story".into(),
            taskid: format!("t{}", self.drawn),
            op_name: op_name.into(),
            param,
            info: String::new(),
            start_at: None,
            cron: cron.map(Into::into),
        };
        let config = Config {
            operations: [(op_name.into(), 1)].into(),
            queues: [(1, 2)].into(),
            ..Config::default()
        };
        let slots = (SlotId(0), SlotId(0));
        let checked = registration.check(&config, slots, self.now);
        let task = checked.expect("the registrations of this story are right").task;
        self.tell(&format!("{op_name} is registered for {}", times(&task)));
        self.write(task);
    }

    /// Time passes until the Queue Manager gives a task, which then runs.
    fn next_run(&mut self) -> (TaskKey, Run) {
        loop {
            let settings = QueueSettings::default();
            for (key, run) in self.queue.lost(&settings, &self.index, |_| false, (self.now, 0), 10)
            {
                let change = lose(self.records.get(&key), run, self.patience, self.now);
                self.apply(&key, change);
            }
            let taken = self.queue.take(&settings, &self.index, |_, _| false, self.now).pop();
            if let Some(key) = taken {
                let started = start(self.records.get(&key), self.now).expect("its time has come");
                let run = started.run().expect("a started task has a run");
                self.tell(&format!("{} runs, retry {}", started.op_name, run.retry));
                self.write(started);
                return (key, run);
            }
            self.now = self.now.plus_ms(1_000);
        }
    }

    /// Commits the end of a run.
    fn apply(&mut self, key: &TaskKey, change: Change) {
        match change {
            Change::Nothing => self.tell("nothing is written: that run is not the record's own"),
            Change::Remove { next } => {
                self.index.change(self.records.remove(key).as_ref(), None);
                self.tell("the record is removed");
                if let Some(next) = next {
                    self.tell(&format!("its next run is registered for {}", times(&next)));
                    self.write(*next);
                }
            }
            Change::Put { task, gave_up } => {
                let code = task.exc.as_deref().unwrap_or_default();
                let then = if gave_up {
                    "is PARKED".into()
                } else {
                    format!("waits for {}", times(&task))
                };
                self.tell(&format!("{} failed with {code} and {then}", task.op_name));
                self.write(*task);
            }
        }
    }

    fn end_well(&mut self, key: &TaskKey) {
        self.now = self.now.plus_ms(5_000);
        self.drawn += 1;
        let change = succeed(self.records.get(key), &format!("t{}", self.drawn), self.now);
        self.apply(key, change);
        self.queue.ended(key);
    }

    fn end_badly(&mut self, key: &TaskKey, run: Run) {
        self.now = self.now.plus_ms(5_000);
        let why = ("REFUSED", "the bank is closed");
        let change = fail(self.records.get(key), run, why, self.patience, self.now);
        self.apply(key, change);
        self.queue.ended(key);
    }
}

/// When it starts, as a date and a clock.
fn times(task: &Task) -> String {
    let clock = task.start_at.map_or(0, |it| it.as_u64() / 1_000);
    format!("{:06} {:06}", clock / 1_000_000, clock % 1_000_000)
}

fn main() {
    let now = Stamp::parse(261_127_042_400_000).expect("27 November 2026, 04:24");
    let patience = Patience { retries: 2, ..Patience::default() };
    let (index, queue) = (TaskIndex::default(), QueueManager::default());
    let mut world = World { now, records: BTreeMap::new(), index, queue, patience, drawn: 0 };

    world.register("report", Some("D0425"), json!({}));
    let (key, _) = world.next_run();
    world.end_well(&key);

    world.register("pay", None, json!({"cart": 7}));
    for _ in 0..3 {
        let (key, run) = world.next_run();
        world.end_badly(&key, run);
    }

    world.register("sweep", None, json!({"lists": 3}));
    let (key, _) = world.next_run();
    for checkpoint in 1..3 {
        world.tell(&format!("sweep commits a cycle, its checkpoint is {checkpoint}"));
    }
    world.end_well(&key);

    world.register("mail", None, json!({}));
    let (key, first) = world.next_run();
    world.tell("the worker of mail loses contact");
    world.queue.ended(&key);
    let (key, _) = world.next_run();
    world.tell("the first run of mail ends after all, badly");
    let late = fail(world.records.get(&key), first, ("LATE", ""), world.patience, world.now);
    world.apply(&key, late);
    world.end_well(&key);
}
