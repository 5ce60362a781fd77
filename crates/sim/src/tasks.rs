//! Work beside the decisions of managers: what operations ask of workers, and the programs of tasks.

use crate::event::Event;
use crate::mutants::bug::Bug;
use crate::setup::WORK_MS;
use crate::site::AtManager;
use crate::writing::who_of;
use rota_docstore::Request;
use rota_model::ManagerNumber;
use rota_protocol::operate::Job;
use rota_protocol::{Input, TaskJob};
use std::sync::Arc;

/// One in so many thousand works takes longer than it may, up to that.
const WORKS_LONG_PERMILLE: u64 = 20;
const WORKS_LONG_US_MAX: u64 = 4_000_000;

impl AtManager<'_> {
    /// A worker does an operation's work. Some takes longer than it may.
    pub(crate) fn give_to_worker(&mut self, work: u64, job: Box<Job>) {
        let delay_us = if self.ground.rng.permille(WORKS_LONG_PERMILLE) {
            self.ground.rng.within(WORK_MS * 1_000, WORKS_LONG_US_MAX)
        } else {
            self.ground.rng.skewed(200, WORK_MS * 1_000)
        };
        let mut job = job;
        if self.bug() == Some(Bug::TaskEndApart) && job.request.task.is_some() {
            job.request = Arc::new(Request { task: None, ..(*job.request).clone() });
        }
        self.ground.queue.after(delay_us, Event::Worked(self.number, self.host.run, work, job));
    }

    /// Somebody runs the program of a task. It does its work more often than not, and may say that it failed although
    /// it did.
    pub(crate) fn run_program_of(&mut self, (part, work): (ManagerNumber, u64), job: &TaskJob) {
        let delay_us = self.ground.rng.skewed(500, 2_000_000);
        let dice = self.ground.rng.within(0, 9);
        if dice > 0 && self.bug() != Some(Bug::TaskUnrun) {
            self.ground.checker.ledger.tasks.ran.insert(who_of(&job.param));
        }
        let why = ("EXIT-1".to_owned(), "it says so".to_owned());
        let outcome = if dice > 1 { Ok(()) } else { Err(why) };
        let input = Input::TaskRan { part, work, outcome };
        let event = Event::TaskRan(self.number, self.host.run, Box::new(input));
        self.ground.queue.after(delay_us, event);
    }
}
