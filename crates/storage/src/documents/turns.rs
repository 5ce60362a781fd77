//! Callers that are threads: one thread works for all of them.
//!
//! ```text
//!  caller: take a seat ──▶ nobody works, the disk is at rest? ── yes ──▶ work oneself
//!                               │ no                                          │
//!                               ▼                                             ▼
//!                 sleep until settled and durable ◀── one commit ◀── all writes together
//!                               │                                             ▲
//!                               └──▶ the server: all seats under one hold ────┘
//! ```
//! With many callers a thread sleeps and wakes once for each operation, documents stay in one
//! processor's cache, and memory is given back by the thread that took it: that, and not the work,
//! would be most of the cost. A lone caller does without the server: another thread's wake is a third
//! of what his operation takes.

use super::Shared;
use super::durable::Durable;
use super::pending::Stage;
use super::{Answer, Exception, Phase, Run, Unanswered, codes};
use crate::writer::{Failure, end_process};
use std::collections::VecDeque;
use std::io;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, Thread};
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
    /// Somebody works, or was woken to. Who is at work looks for more before he stops.
    is_served: bool,
    is_over: bool,
    /// `None`: it has not begun to look, and will.
    server: Option<Thread>,
}

/// Who waits for what.
#[derive(Debug)]
pub(super) struct Turns {
    durable: Arc<Durable>,
    // A lock, because callers come on many threads. It is held to move seats.
    seats: Mutex<Seats>,
    // A lock, because callers sleep and the writer's thread wakes them. In order of positions.
    sleepers: Mutex<VecDeque<(u64, Arc<Seat>)>>,
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
        awake.into_iter().for_each(|(_, seat)| seat.thread.unpark());
    }

    /// Puts what came of a seat's attempt where its owner finds it. The writes of the attempt are
    /// not on their way yet.
    fn settle(&self, seat: Arc<Seat>, stage: Stage) {
        let position = stage.position();
        lock(&seat.state).settled = Some(stage);
        let mut sleepers = lock(&self.sleepers);
        // The disk may get there meanwhile; it is told before the sleepers are looked through.
        match position.filter(|it| self.durable.position() < *it) {
            Some(position) => sleepers.push_back((position, seat)),
            None => {
                drop(sleepers);
                seat.thread.unpark();
            }
        }
    }
}

/// Gives the work up when nobody waits, else to the server.
struct Service<'a>(&'a Turns);

impl Drop for Service<'_> {
    fn drop(&mut self) {
        let mut seats = lock(&self.0.seats);
        seats.is_served = !seats.waiting.is_empty();
        let server = seats.server.clone().filter(|_| seats.is_served);
        drop(seats);
        if let Some(server) = server {
            server.unpark();
        }
    }
}

/// Handle of the thread that works for callers; dropping it ends the thread.
#[derive(Debug)]
pub(super) struct Server {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts the thread. A panic on it, which no operation can cause, ends the process: nobody
    /// could tell how far the work had come.
    pub fn start(shared: Arc<Shared>) -> io::Result<Self> {
        let inside = Arc::clone(&shared);
        let work = move || {
            if catch_unwind(AssertUnwindSafe(|| inside.serve_until_over())).is_err() {
                end_process(&Failure::Panic);
            }
        };
        let thread = thread::Builder::new().name("rota-operations".into()).spawn(work)?;
        Ok(Self { shared, thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        lock(&self.shared.turns.seats).is_over = true;
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // Nobody calls any more, so it has nothing left to do.
            let _ = thread.join();
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
        self.ask_for_service(&seat);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let is_over = left.is_zero();
            let mut state = lock(&seat.state);
            // Who is about to be late waits on: it is known what it waits for.
            if let Some(stage) = state.settled.take_if(|it| is_over || self.is_ready(it)) {
                return Ok(stage);
            }
            if is_over && state.run.take().is_some() {
                drop(state);
                lock(&self.turns.seats).waiting.retain(|it| !Arc::ptr_eq(it, &seat));
                let message = "too many operations wait for their turn";
                return Err(Exception::new(codes::BUSY, message).at(Phase::Before));
            }
            drop(state);
            // Past the deadline only while the server is at this very operation.
            thread::park_timeout(left.max(SERVED_SOON));
        }
    }

    fn is_ready(&self, stage: &Stage) -> bool {
        stage.position().is_none_or(|it| self.durable.position() >= it)
    }

    /// Takes a seat, and works on it at once when nobody else does and no commit is on its way.
    fn ask_for_service(&self, seat: &Arc<Seat>) {
        let mut seats = lock(&self.turns.seats);
        let is_served = std::mem::replace(&mut seats.is_served, true);
        if is_served || !lock(&self.turns.sleepers).is_empty() {
            seats.waiting.push(Arc::clone(seat));
            let server = seats.server.clone().filter(|_| !is_served);
            drop(seats);
            if let Some(server) = server {
                server.unpark();
            }
            return;
        }
        drop(seats);
        let service = Service(&self.turns);
        self.serve([Arc::clone(seat)]);
        drop(service);
    }

    /// Makes an attempt for each of these, and hands their writes to the disk together.
    fn serve(&self, waiting: impl IntoIterator<Item = Arc<Seat>>) {
        let mut held = None;
        for seat in waiting {
            let run = lock(&seat.state).run.take();
            if let Some(run) = run {
                let stage = self.attempt(run, seat.deadline, &mut held);
                self.turns.settle(seat, stage);
            }
        }
    }

    fn serve_until_over(&self) {
        lock(&self.turns.seats).server = Some(thread::current());
        // Changes places with the list of the seats, so that neither is allocated again.
        let mut waiting = Vec::new();
        loop {
            let mut seats = lock(&self.turns.seats);
            std::mem::swap(&mut seats.waiting, &mut waiting);
            if waiting.is_empty() && seats.is_over {
                return;
            }
            if waiting.is_empty() {
                seats.is_served = false;
                drop(seats);
                thread::park();
            } else {
                drop(seats);
                self.serve(waiting.drain(..));
            }
        }
    }
}

/// How long to wait for a thread that is at an operation: it takes microseconds.
const SERVED_SOON: std::time::Duration = std::time::Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use crate::Label;
    use crate::documents::{DocumentStore, Setup};
    use rota_docstore::{DocName, Namespace, Operations, Rules, Schema};
    use rota_model::{ClusterName, ManagerId, ManagerNumber};

    #[test]
    fn an_operation_that_waits_for_no_commit_is_remembered_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let label = Label {
            cluster: ClusterName::parse("c").unwrap(),
            manager: ManagerId::parse("m").unwrap(),
            number: ManagerNumber(0),
        };
        let setup = Setup::new(Rules::new(Schema::new().open()), Operations::new());
        let store = DocumentStore::open(folder.path(), &label, setup).unwrap();
        let space = Namespace::default_space();
        let name = DocName::new(&space, "Page", "home").unwrap();
        let made = name.clone();
        store
            .change(&space, move |transaction| {
                transaction.current(&made)?.ensure();
                Ok(())
            })
            .unwrap();
        for _ in 0..100 {
            let read = name.clone();
            store
                .change(&space, move |transaction| transaction.current(&read).map(|_| ()))
                .unwrap();
        }
        assert_eq!(super::lock(&store.shared.turns.sleepers).len(), 0);
        store.close(std::time::Duration::from_secs(60)).unwrap();
    }
}
