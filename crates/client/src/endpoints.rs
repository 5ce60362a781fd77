//! Where calls begin: the managers' addresses, the connections to them, and which of them is awake.
//!
//! A process that hangs takes connections and answers nothing for as long as it
//! hangs, and a broken connection is found out after four seconds only.
//!
//! An endpoint that nobody heard for a while is asked for its health before a call begins there; when it is
//! silent for a moment, the next one is asked, too, and whoever answers first gets the call. So a call is
//! never sent twice for this, and one that may not be repeated is not lost at a process that hangs. A
//! busy client hears its endpoints all the time, and asks nothing.

use crate::connections::{Borrowed, Connections};
use crate::error::{CallError, causes};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

/// Silence after which the next endpoint is asked, too. Longer than an answer takes over any network, and
/// than a busy process stands still as a rule.
const HEDGE: Duration = Duration::from_millis(300);

/// An endpoint that was heard so recently is not asked: as long as managers are silent before they are
/// missed.
const HEARD: Duration = Duration::from_secs(2);

/// One that was silent is passed over for so long, if another one answers: for the rest of a command.
const SILENT: Duration = Duration::from_secs(5);

/// At which endpoint a call begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Entry {
    /// The one that answered last; the first at the beginning.
    #[default]
    Sticky,
    /// Each call at the next one: load over all managers.
    RoundRobin,
}

/// The endpoints of a client. Its clones share them.
#[derive(Debug)]
pub(crate) struct Endpoints {
    list: Vec<Arc<str>>,
    begins: Entry,
    next: AtomicUsize,
    connections: Connections,
    known: Known,
}

/// What is known of each endpoint.
#[derive(Debug)]
struct Known {
    since: Instant,
    /// When each was heard, and was found silent, in milliseconds since then; 0: never.
    heard: Vec<AtomicU64>,
    silent: Vec<AtomicU64>,
}

impl Known {
    /// Nothing is known of these yet. Call it inside a tokio runtime.
    fn new(count: usize) -> Self {
        let none = || (0..count).map(|_| AtomicU64::new(0)).collect();
        Self { since: Instant::now(), heard: none(), silent: none() }
    }

    fn now_ms(&self) -> u64 {
        1 + u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX - 1)
    }

    fn is_within(&self, at_ms: u64, most: Duration) -> bool {
        at_ms > 0 && u128::from(self.now_ms().saturating_sub(at_ms)) < most.as_millis()
    }

    fn note(&self, list: &[AtomicU64], at: usize) {
        if let Some(it) = list.get(at) {
            it.store(self.now_ms(), Ordering::Relaxed);
        }
    }

    fn was(&self, list: &[AtomicU64], at: usize, within: Duration) -> bool {
        list.get(at).is_some_and(|it| self.is_within(it.load(Ordering::Relaxed), within))
    }

    /// Somebody answered there.
    fn note_heard(&self, at: usize) {
        self.note(&self.heard, at);
        if let Some(it) = self.silent.get(at) {
            it.store(0, Ordering::Relaxed);
        }
    }
}

impl Endpoints {
    /// Calls begin at these as `begins` says. Call it inside a tokio runtime.
    pub(crate) fn new(list: &[String], begins: Entry, connections: Connections) -> Self {
        Self {
            list: list.iter().map(|it| it.as_str().into()).collect(),
            begins,
            next: AtomicUsize::new(0),
            connections,
            known: Known::new(list.len()),
        }
    }

    /// Their addresses, in the order given.
    pub(crate) fn list(&self) -> &[Arc<str>] {
        &self.list
    }

    /// The address of an entry; entries go round.
    pub(crate) fn at(&self, entry: usize) -> Arc<str> {
        let count = self.list.len();
        self.list.get(entry % count).expect("an index below the length").clone()
    }

    /// The entry at which the next call begins.
    pub(crate) fn next_entry(&self) -> usize {
        match self.begins {
            Entry::Sticky => self.next.load(Ordering::Relaxed),
            Entry::RoundRobin => self.next.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Makes later calls begin elsewhere, unless another call already did.
    pub(crate) fn leave(&self, entry: usize) {
        if self.begins == Entry::Sticky {
            let (now, next) = (entry, entry.wrapping_add(1));
            let (done, seen) = (Ordering::Relaxed, Ordering::Relaxed);
            let _another_was_first = self.next.compare_exchange(now, next, done, seen);
        }
    }

    /// A connection to an endpoint, or to another address.
    pub(crate) fn connect_to(&self, address: &str) -> Result<Borrowed, CallError> {
        self.connections.to(address).map_err(|_| CallError::Address(address.to_owned()))
    }

    /// The first endpoint from this one on that is awake, without wrapping; this one when none is.
    pub(crate) async fn awake(self: &Arc<Self>, entry: usize, deadline: Instant) -> usize {
        let (count, known) = (self.list.len(), &self.known);
        if count < 2 || known.was(&known.heard, entry % count, HEARD) {
            return entry;
        }
        let all = entry..entry + count;
        let is_silent = |it: &usize| known.was(&known.silent, it % count, SILENT);
        let (silent, others): (Vec<usize>, Vec<usize>) = all.partition(is_silent);
        let chosen = self.first_awake(others.into_iter().chain(silent), deadline).await;
        let Some(chosen) = chosen else { return entry };
        for passed in entry..chosen {
            self.leave(passed);
        }
        chosen
    }

    async fn first_awake(
        self: &Arc<Self>,
        entries: impl Iterator<Item = usize>,
        deadline: Instant,
    ) -> Option<usize> {
        let (count, known) = (self.list.len(), &self.known);
        let mut asked = JoinSet::new();
        for entry in entries {
            let (endpoints, endpoint) = (self.clone(), self.at(entry));
            asked.spawn(async move { endpoints.is_awake(&endpoint).await.then_some(entry) });
            let until = (Instant::now() + HEDGE).min(deadline);
            // Who refuses has said so: the next one is asked at once.
            if let Ok(Some(Ok(Some(awake)))) = timeout_at(until, asked.join_next()).await {
                known.note_heard(awake % count);
                return Some(awake);
            }
            known.note(&known.silent, entry % count);
            if Instant::now() >= deadline {
                return None;
            }
        }
        // All were asked; whoever is only slow may yet answer.
        let until = (Instant::now() + HEARD).min(deadline);
        while let Ok(Some(answered)) = timeout_at(until, asked.join_next()).await {
            if let Ok(Some(awake)) = answered {
                known.note_heard(awake % count);
                return Some(awake);
            }
        }
        None
    }

    /// Whether anything of Rota answers there, whatever it says.
    async fn is_awake(&self, endpoint: &Arc<str>) -> bool {
        let Ok(borrowed) = self.connect_to(endpoint) else { return false };
        let mut health = HealthClient::new(borrowed.channel.clone());
        let answer = timeout(HEARD, health.check(HealthCheckRequest::default())).await;
        match answer {
            Ok(Ok(_)) => true,
            // A server that has no such service is one that answers.
            Ok(Err(status)) => causes(&status).next().is_none(),
            Err(_elapsed) => false,
        }
    }

    /// Somebody answered at that address.
    pub(crate) fn heard_at(&self, endpoint: &str) {
        let at = self.list.iter().position(|it| **it == *endpoint);
        if let Some(at) = at {
            self.known.note_heard(at);
        }
    }
}
