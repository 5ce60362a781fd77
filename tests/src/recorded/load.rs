//! Clients whose calls are all recorded: some hundred calls a second.
//!
//! * *Contenders* open, read and close a few sessions that they share, so that the order of calls means
//!   something. Some of them wait only for a moment: what they asked for stays open for ever.
//! * *Keepers of order* have sessions of their own: open, read, close, read, and the next id. Each begins
//!   with a manager of its own, again and again, so that a third of them meet any manager that is silent,
//!   and the others go on.
//!
//! Whoever is patient repeats by the advice that comes with a refusal, and must be told no error.

use super::book::{Book, Shown, Told, Wish};
use crate::condition::{PATIENCE, eventually};
use crate::sessions::{CALL, close, get, open};
use rota_client::{CallError, Client, Entry, v1};
use rota_model::{Changed, Retry, SessionState};
use rota_sim::rng::SeededRng;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

/// Sessions that contenders share.
const SHARED: usize = 5;
/// After so many calls of all clients they share others: an owner remembers at most 1,024 requests for a
/// session.
const GENERATION: usize = 2_000;
/// Contenders with patience, and without.
const CONTENDERS: [usize; 2] = [5, 3];
/// Clients with sessions of their own.
const ORDERLY: usize = 24;
/// After so many sessions each of them is a new client, at the manager that it began with.
const SESSIONS: usize = 25;
/// How long the impatient wait.
const IMPATIENT: Duration = Duration::from_millis(150);
/// Between two calls of a client, if the first took less.
const PACE: Duration = Duration::from_millis(40);

/// Makes clients: of this kind, beginning with the manager of this index.
pub type Clients = Arc<dyn Fn(Entry, usize) -> Client + Send + Sync>;

/// A client that writes down what it asks and is told.
#[derive(Clone, Debug)]
pub struct Recording {
    client: Client,
    number: usize,
    book: Book,
    wait: Duration,
}

impl Recording {
    /// One with patience.
    pub fn new(client: Client, number: usize, book: &Book) -> Self {
        Self { client, number, book: book.clone(), wait: CALL }
    }

    /// Opens a session of that class; gives the life that it lives.
    pub async fn open(&self, id: &str, class: &str) -> Option<u64> {
        let call = self.client.open(open(id, class), self.wait);
        let shown = |answer: v1::OpenResponse| {
            let created = answer.outcome() == v1::Outcome::Created;
            shown(answer.session, created)
        };
        self.ask(id, Wish::Open, call, shown).await
    }

    /// Closes a session, or only that life of it.
    pub async fn close(&self, id: &str, life: Option<u64>) -> Option<u64> {
        let request = v1::CloseRequest { life: life.unwrap_or(0), ..close(id) };
        let call = self.client.close(request, self.wait);
        self.ask(id, Wish::Close(life), call, |answer| shown(answer.session, false)).await
    }

    /// Reads a session.
    pub async fn get(&self, id: &str) -> Option<u64> {
        let call = self.client.get(get(id), self.wait);
        let shown = |answer: v1::GetResponse| {
            assert!(!answer.stale, "{id}: nobody asked for what may be stale");
            shown(answer.session, false)
        };
        self.ask(id, Wish::Get, call, shown).await
    }

    async fn ask<A>(
        &self,
        id: &str,
        wish: Wish,
        call: impl Future<Output = Result<A, CallError>>,
        shown: impl FnOnce(A) -> Shown,
    ) -> Option<u64> {
        let number = self.book.invoke(self.number, id, wish);
        let told = match call.await {
            Ok(answer) => Told::Shown(shown(answer)),
            Err(error) => self.failed(id, wish, &error),
        };
        let life = if let Told::Shown(shown) = &told { Some(shown.life) } else { None };
        self.book.end(number, told);
        life
    }

    /// What an error says of the session. One that a client could not have avoided is a failure.
    fn failed(&self, id: &str, wish: Wish, error: &CallError) -> Told {
        let reason = error.reason().to_owned();
        let answer = match (wish, reason.as_str()) {
            (Wish::Open, "START_FAILED" | "CLOSED") => Some(Told::Overtaken),
            (Wish::Get | Wish::Close(_), "NOT_FOUND") => Some(Told::Absent),
            (Wish::Close(Some(_)), "LIFE_MISMATCH") => Some(Told::Unchanged(reason.clone())),
            (Wish::Open | Wish::Get | Wish::Close(_), _) => None,
        };
        let advised = !matches!(error.retry(), Retry::Never | Retry::WhenChanged);
        let is_patient = self.wait == CALL;
        if answer.is_none() && (is_patient || !advised) {
            let (number, wait) = (self.number, self.wait);
            self.book.fail(format!("client {number}, {wish:?} {id} within {wait:?}: {error:?}"));
        }
        match (answer, error.changed()) {
            // An earlier attempt may have done what the last one was refused.
            (Some(Told::Unchanged(_)) | None, Changed::Unknown) => Told::Unknown(reason),
            (None, Changed::No) => Told::Unchanged(reason),
            (Some(told), Changed::No | Changed::Unknown) => told,
        }
    }

    async fn contend(self, classes: Classes, stop: Arc<AtomicBool>) {
        let mut rng = SeededRng::new(self.number as u64);
        let mut lives = [None; SHARED];
        let (mut pace, mut generation) = (pace(), 0);
        while !stop.load(Ordering::Relaxed) {
            let now = self.book.ended() / GENERATION;
            if now != generation {
                // Whoever goes last leaves nothing open.
                for which in 0..SHARED {
                    pace.tick().await;
                    self.close(&shared(generation, which), None).await;
                }
                (generation, lives) = (now, [None; SHARED]);
            }
            pace.tick().await;
            let which = rng.index(SHARED);
            let id = shared(generation, which);
            let life = match rng.within(0, 99) {
                0..40 => self.open(&id, classes.of(which)).await,
                40..70 => self.get(&id).await,
                70..85 => self.close(&id, None).await,
                _ => self.close(&id, lives[which]).await,
            };
            lives[which] = life.or(lives[which]);
        }
    }

    async fn keep_order(mut self, clients: Clients, classes: Classes, stop: Arc<AtomicBool>) {
        let mut pace = pace();
        for round in 0.. {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            if round % SESSIONS == 0 {
                self.client = clients(Entry::Sticky, self.number);
            }
            let id = format!("client {} session {round}", self.number);
            pace.tick().await;
            let life = self.open(&id, classes.of(self.number)).await;
            pace.tick().await;
            self.get(&id).await;
            pace.tick().await;
            self.close(&id, life).await;
            pace.tick().await;
            self.get(&id).await;
        }
    }
}

fn pace() -> tokio::time::Interval {
    let mut pace = interval(PACE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pace
}

fn shared(generation: usize, which: usize) -> String {
    format!("shared {generation}.{which}")
}

fn shown(session: Option<v1::Session>, created: bool) -> Shown {
    let session = session.expect("the client checks it");
    let reason = session.reason().as_str_name().to_owned();
    let is_its = |it: &&SessionState| v1::SessionState::from(**it) == session.state();
    let state = *SessionState::ALL.iter().find(is_its).expect("the client checks it");
    Shown { life: session.life, state, reason, address: session.address, created }
}

/// What the sessions of a load are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Classes {
    /// Machines, which live in their node's agent.
    Machines,
    /// Every fourth is a program under a keeper.
    AlsoPrograms,
}

impl Classes {
    fn of(self, number: usize) -> &'static str {
        match self {
            Classes::AlsoPrograms if number.is_multiple_of(4) => "sleeper",
            Classes::Machines | Classes::AlsoPrograms => "counter",
        }
    }
}

/// The clients at work.
#[derive(Debug)]
pub struct Load {
    /// Where they write down.
    pub book: Book,
    clients: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
}

impl Load {
    /// Starts them.
    pub fn start(book: Book, clients: &Clients, classes: Classes) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let [patient, impatient] = CONTENDERS;
        // Half of the contenders go to each manager in turn. Whoever stays with one loses less time when
        // another one is silent.
        let entry = |number| if number % 2 == 1 { Entry::RoundRobin } else { Entry::Sticky };
        let contenders = (0..patient + impatient).map(|number| {
            let wait = if number < patient { CALL } else { IMPATIENT };
            let recording = Recording::new(clients(entry(number), number / 2), number, &book);
            tokio::spawn(Recording { wait, ..recording }.contend(classes, stop.clone()))
        });
        let orderly = (patient + impatient..patient + impatient + ORDERLY).map(|number| {
            let recording = Recording::new(clients(Entry::Sticky, number), number, &book);
            tokio::spawn(recording.keep_order(clients.clone(), classes, stop.clone()))
        });
        let clients = contenders.chain(orderly).collect();
        Self { book, clients, stop }
    }

    /// Waits until so many calls more have ended.
    pub async fn more(&self, calls: usize) {
        let wanted = self.book.ended() + calls;
        eventually(&format!("{wanted} calls"), PATIENCE * 2, async || {
            let ended = self.book.ended();
            // One that ended has panicked: that is told when it is stopped.
            let failed = self.clients.iter().any(JoinHandle::is_finished);
            if ended >= wanted || failed { Ok(()) } else { Err(format!("{ended} calls")) }
        })
        .await;
    }

    /// Ends them, each after the call that it is in.
    pub async fn stop(self) -> Book {
        self.stop.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.await.expect("a client sees what it may see");
        }
        self.book
    }
}
