//! A light load of a bounded rate in the background of something that happens to the cluster: counts
//! what failed, and how long any client had to wait.

use super::load::as_f64;
use super::report::rounded;
use super::target;
use rota_client::{CallError, Client, v1};
use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

/// How many different mistakes are kept to be told.
const MISTAKES_MAX: usize = 3;

/// What the clients do.
#[derive(Clone, Debug)]
pub struct Beat {
    /// How many clients. Each has one request under way at most.
    pub clients: u32,
    /// Requests a second of all together.
    pub per_second: u32,
    /// Class of the sessions that are opened.
    pub class: String,
    /// Sessions that are read, each request another one. When there are none, all requests open new
    /// sessions, and else every other one.
    pub reads: Arc<Vec<String>>,
}

/// What a load came to since a moment.
#[derive(Serialize, Clone, PartialEq, Debug, Default)]
pub struct Background {
    pub concurrency: u32,
    pub opened: u64,
    pub read: u64,
    /// Requests that failed, although the client follows the advice that it is given.
    pub failed: u64,
    /// The longest time that any client waited for its request, and the next ones if it failed.
    pub longest_gap_ms: f64,
}

#[derive(Debug, Default)]
struct Shared {
    stops: watch::Sender<bool>,
    opened: AtomicU64,
    read: AtomicU64,
    failed: AtomicU64,
    /// Locks because all clients share what is in them.
    waits: Mutex<Waits>,
    acknowledged: Mutex<Vec<String>>,
    mistakes: Mutex<Vec<String>>,
}

/// How long clients wait, and the longest wait since the count began.
#[derive(Debug, Default)]
struct Waits {
    /// Since when, by client; `None` while it has what it asked for.
    since: Vec<Option<Instant>>,
    longest: Duration,
}

impl Waits {
    fn begin(&mut self, client: usize, now: Instant) {
        if let Some(since) = self.since.get_mut(client) {
            since.get_or_insert(now);
        }
    }

    fn end(&mut self, client: usize, now: Instant) {
        let since = self.since.get_mut(client).and_then(Option::take);
        self.longest = self.longest.max(since.map_or(Duration::ZERO, |it| now - it));
    }

    /// Counts anew: what is under way has waited since now.
    fn restart(&mut self, now: Instant) {
        self.since.iter_mut().flatten().for_each(|it| *it = now);
        self.longest = Duration::ZERO;
    }

    fn longest(&self, now: Instant) -> Duration {
        let under_way = self.since.iter().flatten().map(|it| now.saturating_duration_since(*it));
        under_way.fold(self.longest, Duration::max)
    }
}

fn locked<T>(it: &Mutex<T>) -> MutexGuard<'_, T> {
    it.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A load that runs until it is stopped. Dropped, it ends in the middle of its requests.
#[derive(Debug)]
pub struct Pulse {
    shared: Arc<Shared>,
    clients: JoinSet<()>,
    concurrency: u32,
}

impl Pulse {
    /// Begins.
    pub fn start(client: &Client, beat: &Beat) -> Self {
        let shared = Arc::new(Shared::default());
        locked(&shared.waits).since = vec![None; beat.clients as usize];
        let prefix = target::prefix();
        let mut clients = JoinSet::new();
        for index in 0..beat.clients {
            let one = One {
                client: client.clone(),
                shared: shared.clone(),
                beat: beat.clone(),
                prefix: format!("{prefix}-{index}"),
                index: index as usize,
            };
            clients.spawn(one.run());
        }
        Self { shared, clients, concurrency: beat.clients }
    }

    /// Counts anew from here on.
    pub fn restart(&self) {
        let it = &self.shared;
        for counter in [&it.opened, &it.read, &it.failed] {
            counter.store(0, Ordering::Relaxed);
        }
        locked(&it.waits).restart(Instant::now());
    }

    /// What it came to since the last [`Pulse::restart`].
    fn background(&self) -> Background {
        let it = &self.shared;
        let gap = locked(&it.waits).longest(Instant::now());
        let us = u64::try_from(gap.as_micros()).unwrap_or(u64::MAX);
        Background {
            concurrency: self.concurrency,
            opened: it.opened.load(Ordering::Relaxed),
            read: it.read.load(Ordering::Relaxed),
            failed: it.failed.load(Ordering::Relaxed),
            longest_gap_ms: rounded(as_f64(us) / 1000.0, 1),
        }
    }

    /// Ids of all sessions that it opened so far and was told so.
    pub fn acknowledged(&self) -> Vec<String> {
        locked(&self.shared.acknowledged).clone()
    }

    /// Lets each client end its request, and tells on stderr what went wrong, if anything did. Gives what it
    /// came to since the last [`Pulse::restart`], with what those clients waited, and the ids of all
    /// sessions that were opened.
    pub async fn stop(mut self) -> (Background, Vec<String>) {
        self.shared.stops.send_replace(true);
        while self.clients.join_next().await.is_some() {}
        let mistakes = locked(&self.shared.mistakes);
        if !mistakes.is_empty() {
            eprintln!("background: calls failed: {}", mistakes.join("; "));
        }
        (self.background(), self.acknowledged())
    }
}

/// One client.
struct One {
    client: Client,
    shared: Arc<Shared>,
    beat: Beat,
    prefix: String,
    index: usize,
}

impl One {
    async fn run(self) {
        let period = f64::from(self.beat.clients) / f64::from(self.beat.per_second.max(1));
        let mut stops = self.shared.stops.subscribe();
        // Not all at once.
        let first = period * as_f64(self.index as u64) / f64::from(self.beat.clients.max(1));
        let first = tokio::time::Instant::now() + Duration::from_secs_f64(first);
        let mut ticks = tokio::time::interval_at(first, Duration::from_secs_f64(period));
        // After a pause they go on at the same rate and do not catch up.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for number in 0_usize.. {
            tokio::select! {
                _ = ticks.tick() => {}
                _ = stops.wait_for(|stops| *stops) => return,
            }
            locked(&self.shared.waits).begin(self.index, Instant::now());
            match self.ask(number).await {
                Ok(()) => locked(&self.shared.waits).end(self.index, Instant::now()),
                Err(error) => self.failed(&error),
            }
        }
    }

    async fn ask(&self, number: usize) -> Result<(), CallError> {
        let reads = &self.beat.reads;
        if number % 2 == 1 && !reads.is_empty() {
            let at = (self.index + number / 2 * self.beat.clients as usize) % reads.len();
            let id = reads.get(at).cloned().unwrap_or_default();
            let request = v1::GetRequest { id, ..Default::default() };
            self.client.get(request, target::CALL_WAIT).await?;
            self.shared.read.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        let id = format!("{}-{number}", self.prefix);
        let request = target::open_request(id.clone(), &self.beat.class);
        self.client.open(request, target::CALL_WAIT).await?;
        self.shared.opened.fetch_add(1, Ordering::Relaxed);
        locked(&self.shared.acknowledged).push(id);
        Ok(())
    }

    fn failed(&self, error: &CallError) {
        tracing::debug!("background: {error}");
        self.shared.failed.fetch_add(1, Ordering::Relaxed);
        let text = error.to_string();
        let mut mistakes = locked(&self.shared.mistakes);
        if mistakes.len() < MISTAKES_MAX && !mistakes.contains(&text) {
            mistakes.push(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_wait_is_that_of_one_client_and_goes_on_over_failures() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut waits = Waits { since: vec![None; 2], ..Waits::default() };
        waits.begin(0, at(0));
        waits.begin(1, at(5));
        waits.end(0, at(10));
        assert_eq!(waits.longest(at(10)), Duration::from_millis(10));
        // It failed, and asks again: it has waited since its first request.
        waits.begin(1, at(20));
        waits.end(1, at(40));
        assert_eq!(waits.longest(at(99)), Duration::from_millis(35), "nobody waits");
        waits.begin(0, at(100));
        waits.restart(at(200));
        assert_eq!(waits.longest(at(230)), Duration::from_millis(30));
    }
}
