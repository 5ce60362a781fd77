//! How many connections there are, and whether one more may come in.

use super::FIRST_BYTES;
use super::answers::{Answers, Budget};
use super::connection::{Connection, Pass, Standing};
use crate::http::HttpLimits;
use rustix::process::{Resource, getrlimit};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::sync::Notify;

/// Most places for strangers: a connection costs some 100 KiB when its windows are full.
const STRANGERS_MAX: usize = 8_192;

/// Most places for members: a hundred managers and a thousand nodes, each with a few.
const MEMBERS_MAX: usize = 4_096;

/// What answers may fill in all unless told otherwise: those of 32 connections that read nothing.
pub const ANSWERS_BYTES_MAX: usize = 256 * 1024 * 1024;

/// At most one line about connections that were turned away in this time.
const TOLD_EVERY: Duration = Duration::from_secs(10);

/// How many connections a listener bears.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Places {
    /// Most connections of strangers, those included that say nothing yet.
    pub strangers: usize,
    /// Most connections of members.
    pub members: usize,
    /// Bytes that end the silence of a connection: 24 for HTTP/2, whose preface is so long.
    pub first_bytes: usize,
    /// How long they may take.
    pub silence: Duration,
    /// What happens to a newcomer that finds no place: it waits for one, or is turned away, so that it can
    /// go elsewhere.
    pub full_waits: bool,
    /// What the answers to strangers may fill until they are sent, in bytes. Default 256 MiB. Too low: calls
    /// of those who read wait for those who do not. Too high: the process runs out of memory.
    pub answers_bytes_max: usize,
}

impl Places {
    /// Those of a gRPC listener: half of the files that this process may open for strangers, a quarter for
    /// members; a quarter is left for the disk and for what this process dials.
    pub fn for_grpc() -> Self {
        let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        Self::for_grpc_within(usize::try_from(files).unwrap_or(usize::MAX))
    }

    pub(super) fn for_grpc_within(files: usize) -> Self {
        Self {
            strangers: (files / 2).clamp(1, STRANGERS_MAX),
            members: (files / 4).clamp(1, MEMBERS_MAX),
            first_bytes: 24,
            silence: FIRST_BYTES,
            full_waits: false,
            answers_bytes_max: ANSWERS_BYTES_MAX,
        }
    }

    /// Those of an HTTP listener, which has no members.
    pub fn for_http(limits: HttpLimits) -> Self {
        let silence = limits.idle.min(FIRST_BYTES);
        let strangers = limits.connections;
        let answers_bytes_max = ANSWERS_BYTES_MAX;
        Self { strangers, members: 0, first_bytes: 1, silence, full_waits: true, answers_bytes_max }
    }
}

/// Connections of a listener: now, and turned away since its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Counts {
    /// Of strangers, those included that say nothing yet.
    pub strangers: usize,
    /// Most of these.
    pub strangers_max: usize,
    /// Of members, those on probation included.
    pub members: usize,
    /// Most of these.
    pub members_max: usize,
    /// Cut because they said nothing.
    pub silent_total: u64,
    /// Turned away because there was no place.
    pub refused_total: u64,
    /// Ended because they did not read what they had asked for.
    pub unread_total: u64,
    /// What answers to strangers fill that are not sent yet, and shares of calls that are under way, in bytes.
    pub answers_bytes: usize,
}

/// What may come in at a listener. Clones are the same gate.
#[derive(Clone, Debug)]
pub struct Gate {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    places: Places,
    /// Held for some lines, and never across an await.
    state: Mutex<State>,
    /// Told when a place becomes free.
    freed: Notify,
    answers: Arc<Budget>,
}

#[derive(Debug, Default)]
struct State {
    strangers: usize,
    members: usize,
    /// Strangers that have said nothing, the oldest first.
    silent: BTreeMap<u64, Arc<Pass>>,
    newest: u64,
    silent_total: u64,
    refused_total: u64,
    unread_total: u64,
    told: Option<Instant>,
}

impl Gate {
    /// A gate with nobody in it.
    pub fn new(places: Places) -> Self {
        let (state, freed) = (Mutex::default(), Notify::new());
        let answers = Budget::new(places.answers_bytes_max);
        Self { inner: Arc::new(Inner { places, state, freed, answers }) }
    }

    /// Its places.
    pub fn places(&self) -> Places {
        self.inner.places
    }

    /// How many connections there are.
    pub fn counts(&self) -> Counts {
        let (state, places) = (self.state(), self.inner.places);
        Counts {
            strangers: state.strangers,
            strangers_max: places.strangers,
            members: state.members,
            members_max: places.members,
            silent_total: state.silent_total,
            refused_total: state.refused_total,
            unread_total: state.unread_total,
            answers_bytes: self.inner.answers.taken(),
        }
    }

    /// Takes a connection in. `Err` gives it back when there is no place.
    pub(super) fn admit(&self, stream: TcpStream) -> Result<Connection, TcpStream> {
        let places = self.inner.places;
        let mut state = self.state();
        let is_stranger = state.strangers < places.strangers || state.cut_oldest_silent();
        if !is_stranger && state.members >= places.members {
            return Err(stream);
        }
        state.newest += 1;
        let standing = if is_stranger { Standing::Stranger } else { Standing::Probation };
        let pass = Arc::new(Pass::new(self.clone(), state.newest, standing));
        if is_stranger {
            state.strangers += 1;
            state.silent.insert(pass.order(), pass.clone());
        } else {
            state.members += 1;
        }
        drop(state);
        Ok(Connection::new(stream, pass, places))
    }

    /// Resolves when a place may have become free since the future was made.
    pub(super) fn freed(&self) -> impl Future<Output = ()> + '_ {
        self.inner.freed.notified()
    }

    /// The connection has said something.
    pub(super) fn spoke(&self, order: u64) {
        self.state().silent.remove(&order);
    }

    /// Somebody was turned away.
    pub(super) fn refused(&self) {
        let is_due = {
            let mut state = self.state();
            state.refused_total += 1;
            let is_due = state.told.is_none_or(|at| at.elapsed() >= TOLD_EVERY);
            if is_due {
                state.told = Some(Instant::now());
            }
            is_due
        };
        if is_due {
            let Counts { strangers, strangers_max, refused_total, .. } = self.counts();
            tracing::warn!(
                strangers,
                strangers_max,
                refused_total,
                "connections are turned away, because there is no place for more"
            );
        }
    }

    /// A connection did not read its answers.
    pub(super) fn was_unread(&self) {
        self.state().unread_total += 1;
    }

    /// The answers of a new connection.
    pub(super) fn answers(&self) -> Arc<Answers> {
        Answers::new(self.inner.answers.clone())
    }

    /// A connection was silent for too long.
    pub(super) fn was_silent(&self) {
        self.state().silent_total += 1;
    }

    /// Makes a member of a stranger. False when there is no place for one.
    pub(super) fn promote(&self, pass: &Pass) -> bool {
        let mut state = self.state();
        let is_free = state.members < self.inner.places.members;
        if is_free && pass.stands(Standing::Stranger) {
            state.members += 1;
            state.strangers -= 1;
            pass.becomes(Standing::Member);
            self.inner.freed.notify_one();
        }
        is_free
    }

    /// A connection is over.
    pub(super) fn left(&self, pass: &Pass) {
        let mut state = self.state();
        if pass.stands(Standing::Stranger) {
            state.strangers -= 1;
            state.silent.remove(&pass.order());
        } else if !pass.stands(Standing::Cut) {
            state.members -= 1;
        }
        self.inner.freed.notify_one();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Counters stay right whoever panicked.
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Gives the place of the oldest connection that says nothing away; false when there is none.
    fn cut_oldest_silent(&mut self) -> bool {
        let Some((_, pass)) = self.silent.pop_first() else { return false };
        pass.cut();
        self.strangers -= 1;
        self.silent_total += 1;
        true
    }
}
