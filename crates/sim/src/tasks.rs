//! Work beside the decisions of managers: what operations ask of workers, and the programs of tasks. And what tasks
//! still wait.

use crate::event::Event;
use crate::mutants::Bug;
use crate::setup::WORK_MS;
use crate::world::World;
use crate::writing::who_of;
use rota_docstore::Request;
use rota_model::{ManagerNumber, Stamp};
use rota_protocol::operate::{self, Job};
use rota_protocol::task_records::{Param, Task, TaskState};
use rota_protocol::{Input, TaskJob};
use std::sync::Arc;

/// One in so many thousand works takes longer than it may, up to that.
const WORKS_LONG_PERMILLE: u64 = 20;
const WORKS_LONG_US_MAX: u64 = 4_000_000;

impl World {
    /// A worker does an operation's work. Some takes longer than it may.
    pub fn work(&mut self, number: ManagerNumber, run: u64, work: u64, job: Box<Job>) {
        let delay_us = if self.ground.rng.permille(WORKS_LONG_PERMILLE) {
            self.ground.rng.within(WORK_MS * 1_000, WORKS_LONG_US_MAX)
        } else {
            self.ground.rng.skewed(200, WORK_MS * 1_000)
        };
        let mut job = job;
        if self.bug() == Some(Bug::TaskEndApart) && job.request.task.is_some() {
            job.request = Arc::new(Request { task: None, ..(*job.request).clone() });
        }
        self.ground.queue.after(delay_us, Event::Worked(number, run, work, job));
    }

    /// Somebody runs the program of a task. It does its work more often than not, and may say that it failed although
    /// it did.
    pub fn run_task(
        &mut self,
        number: ManagerNumber,
        run: u64,
        (part, work): (ManagerNumber, u64),
        job: &TaskJob,
    ) {
        let delay_us = self.ground.rng.skewed(500, 2_000_000);
        let dice = self.ground.rng.within(0, 9);
        if dice > 0 && self.bug() != Some(Bug::TaskUnrun) {
            self.ground.checker.ledger.ran.insert(who_of(&job.param));
        }
        let why = ("EXIT-1".to_owned(), "it says so".to_owned());
        let outcome = if dice > 1 { Ok(()) } else { Err(why) };
        let input = Input::TaskRan { part, work, outcome };
        self.ground.queue.after(delay_us, Event::TaskRan(number, run, Box::new(input)));
    }

    /// The tasks on the disks of those who own them: which have nothing to wait for.
    fn tasks(&self) -> Vec<(Task, bool)> {
        let Some(view) = &self.store.state().view else { return Vec::new() };
        let mut tasks = Vec::new();
        for (number, host) in &self.managers {
            let now = Stamp::from_epoch_ms(host.wall_ms(self.ground.now_us()));
            for (key, doc) in &host.disk.durable().docs {
                let is_owned = view.part_of(key.slot).1.owner == *number;
                let doc = doc.of_application().filter(|_| is_owned);
                let Some(task) = doc.and_then(|it| operate::task_of(it)) else { continue };
                // The clock of a former owner was ahead: its start is still to come.
                let comes_later = task.start_at.is_some_and(|it| it > now.plus_ms(1_000));
                let rests = match task.state() {
                    TaskState::Parked => true,
                    TaskState::Waiting | TaskState::Lost => comes_later,
                    TaskState::Running | TaskState::Paused => false,
                };
                tasks.push((task, rests));
            }
        }
        tasks
    }

    /// Whether a task that runs an action of a session again has not been given up.
    pub fn actions_are_tried_again(&self) -> bool {
        let is_parked = |it: &Task| it.state() == TaskState::Parked;
        self.tasks().iter().any(|(it, _)| it.op_name == "session.action" && !is_parked(it))
    }

    /// A task that waits or runs.
    pub fn task_waits(&self) -> Option<String> {
        let mut all = self.tasks().into_iter();
        let waiting = all.find(|it| !it.1).map(|it| it.0);
        waiting.map(|it| format!("task {} is {:?}", it.docid(), it.state()))
    }

    /// No task waits any more. Those that were given up stay; of some nobody was told, as their owner died then.
    pub fn note_tasks_done(&mut self) {
        let who = |(task, _): (Task, bool)| match task.param {
            Param::Json(value) => who_of(&value),
            Param::Document(docid) => docid,
        };
        let resting: Vec<String> = self.tasks().into_iter().map(who).collect();
        self.ground.checker.ledger.given_up.extend(resting);
        self.ground.checker.ledger.tasks_done_us = self.ground.now_us();
    }
}
