//! Callers that are threads: whoever finds nobody at work does the work of all who wait.
//!
//! ```text
//!  caller: take a seat ──▶ somebody serves? ── no ──▶ serve all seats under one hold of the books,
//!                               │ yes                 hand their writes to the disk together
//!                               ▼                                    │
//!                 sleep until settled and durable ◀── one commit ◀───┘
//! ```
//! A thread sleeps and wakes once for each operation, and the lock does not go from thread to thread:
//! that, and not the work, would be most of the cost with many callers.

use super::Shared;
use super::durable::Durable;
use super::pending::Stage;
use super::{Answer, Exception, Phase, Run, Unanswered, codes};
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::Instant;

#[derive(Debug)]
struct Seat {
    thread: Thread,
    deadline: Instant,
    // A lock, because another thread may serve this seat. It is held to take or to put one value.
    state: Mutex<State>,
}

/// With neither, somebody works on it, or its owner has left.
#[derive(Debug, Default)]
struct State {
    /// It waits for its turn.
    run: Option<Run>,
    /// What came of it.
    settled: Option<Stage>,
}

#[derive(Debug, Default)]
struct Seats {
    /// One for each thread that calls, at most.
    waiting: Vec<Arc<Seat>>,
    is_served: bool,
}

/// Who waits for what.
#[derive(Debug)]
pub(super) struct Turns {
    durable: Arc<Durable>,
    // A lock, because callers come on many threads. It is held to move seats.
    seats: Mutex<Seats>,
    // A lock, because callers sleep and the writer's thread wakes them. In order of positions.
    sleepers: Mutex<VecDeque<(u64, Thread)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Turns {
    pub fn new(durable: Arc<Durable>) -> Self {
        Self { durable, seats: Mutex::default(), sleepers: Mutex::default() }
    }

    /// Everything up to `position` is on the disk: wakes whoever waits for it.
    pub fn advance(&self, position: u64) {
        self.durable.advance(position);
        let mut sleepers = lock(&self.sleepers);
        let ready = sleepers.partition_point(|(it, _)| *it <= position);
        let awake: Vec<_> = sleepers.drain(..ready).collect();
        drop(sleepers);
        awake.into_iter().for_each(|(_, thread)| thread.unpark());
    }

    /// Puts what came of a seat's attempt where its owner finds it. The writes of the attempt are
    /// not on their way yet.
    fn settle(&self, seat: &Seat, stage: Stage) {
        let position = stage.position();
        lock(&seat.state).settled = Some(stage);
        if let Some(position) = position {
            lock(&self.sleepers).push_back((position, seat.thread.clone()));
        }
        if position.is_none_or(|it| self.durable.position() >= it) {
            seat.thread.unpark();
        }
    }
}

/// Gives the service up, and wakes the one who goes on.
struct Service<'a>(&'a Turns);

impl Drop for Service<'_> {
    fn drop(&mut self) {
        let mut seats = lock(&self.0.seats);
        seats.is_served = false;
        let next = seats.waiting.first().map(|it| it.thread.clone());
        drop(seats);
        if let Some(thread) = next {
            thread.unpark();
        }
    }
}

impl Shared {
    /// Runs to the end, on the caller's thread or on that of another caller.
    pub(super) fn run_in_turn(&self, run: Run, deadline: Instant) -> Result<Answer, Unanswered> {
        let mut run = run;
        loop {
            let stage = self.attempt_in_turn(run, deadline)?;
            run = match self.go_on(stage, deadline)? {
                ControlFlow::Continue(run) => run,
                ControlFlow::Break(answer) => return Ok(answer),
            };
        }
    }

    fn attempt_in_turn(&self, run: Run, deadline: Instant) -> Result<Stage, Exception> {
        let state = Mutex::new(State { run: Some(run), settled: None });
        let seat = Arc::new(Seat { thread: thread::current(), deadline, state });
        lock(&self.turns.seats).waiting.push(Arc::clone(&seat));
        loop {
            self.serve();
            let mut state = lock(&seat.state);
            let is_over = deadline <= Instant::now();
            // Who is about to be late waits on: it is known what it waits for.
            if let Some(stage) = state.settled.take_if(|it| is_over || self.is_ready(it)) {
                return Ok(stage);
            }
            if is_over && state.run.take().is_some() {
                drop(state);
                // Nobody wakes it any more as the next one.
                lock(&self.turns.seats).waiting.retain(|it| !Arc::ptr_eq(it, &seat));
                self.serve();
                let message = "too many operations wait for their turn";
                return Err(Exception::new(codes::BUSY, message).at(Phase::Before));
            }
            drop(state);
            // Past the deadline only while another thread is at this very operation.
            let left = deadline.saturating_duration_since(Instant::now());
            thread::park_timeout(left.max(SERVED_SOON));
        }
    }

    fn is_ready(&self, stage: &Stage) -> bool {
        stage.position().is_none_or(|it| self.durable.position() >= it)
    }

    /// Serves all seats, unless somebody does.
    fn serve(&self) {
        let mut seats = lock(&self.turns.seats);
        if seats.is_served || seats.waiting.is_empty() {
            return;
        }
        seats.is_served = true;
        let waiting = std::mem::take(&mut seats.waiting);
        drop(seats);
        let service = Service(&self.turns);
        let mut held = None;
        for seat in waiting {
            let run = lock(&seat.state).run.take();
            if let Some(run) = run {
                let stage = self.attempt(run, seat.deadline, &mut held);
                self.turns.settle(&seat, stage);
            }
        }
        // First the writes, then the next one's turn.
        drop(held);
        drop(service);
    }
}

/// How long to wait for a thread that is at an operation: it takes microseconds.
const SERVED_SOON: std::time::Duration = std::time::Duration::from_millis(1);
