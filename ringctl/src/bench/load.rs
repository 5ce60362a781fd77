//! The load generator: a closed loop of a fixed number of calls in flight.

use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressStyle};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Calls that are sent before anything counts: connections stand and caches are warm.
pub const WARM_UP: Duration = Duration::from_millis(300);
/// Longest latency that is told apart, in microseconds.
const LATENCY_US_MAX: u64 = 120_000_000;
/// How many different mistakes are kept to be told.
const MISTAKES_MAX: usize = 3;

/// How much and how long.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Calls in flight.
    pub concurrency: u32,
    /// How long counts.
    pub duration: Duration,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Calls that succeeded within the time.
    pub count: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Some of what went wrong.
    pub mistakes: Vec<String>,
    /// The time that counted.
    pub elapsed: Duration,
    /// Latencies in microseconds.
    pub latencies: Histogram<u64>,
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_US_MAX, 3).expect("bounds that the crate allows")
}

impl Default for Measured {
    fn default() -> Self {
        Self {
            count: 0,
            failed: 0,
            mistakes: Vec::new(),
            elapsed: Duration::ZERO,
            latencies: histogram(),
        }
    }
}

impl Measured {
    /// Calls per second.
    pub fn per_second(&self) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 { as_f64(self.count) / seconds } else { 0.0 }
    }

    /// A latency in milliseconds; `part` is 0 to 1.
    pub fn latency_ms(&self, part: f64) -> f64 {
        as_f64(self.latencies.value_at_quantile(part)) / 1000.0
    }

    /// Adds another round.
    pub fn add(&mut self, other: &Measured) {
        self.count += other.count;
        self.failed += other.failed;
        self.elapsed += other.elapsed;
        other.mistakes.iter().for_each(|it| self.remember(it.clone()));
        self.latencies.add(&other.latencies).expect("all have the same bounds");
    }

    fn succeeded(&mut self, latency: Duration) {
        self.count += 1;
        let us = u64::try_from(latency.as_micros()).unwrap_or(LATENCY_US_MAX);
        self.latencies.saturating_record(us.max(1));
    }

    fn mistake(&mut self, text: String) {
        self.failed += 1;
        self.remember(text);
    }

    fn remember(&mut self, text: String) {
        if self.mistakes.len() < MISTAKES_MAX && !self.mistakes.contains(&text) {
            self.mistakes.push(text);
        }
    }
}

/// A count as a floating point number; exact below 2^53.
#[expect(clippy::cast_precision_loss, reason = "counts and microseconds lie far below 2^53")]
pub fn as_f64(count: u64) -> f64 {
    count as f64
}

/// A bar on stderr that fills with time; nothing when stderr is no terminal.
pub fn bar(name: &str, length: u64) -> ProgressBar {
    let bar = ProgressBar::new(length.max(1));
    let style = ProgressStyle::with_template("{prefix:>10} {bar:40} {msg}");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar.set_prefix(name.to_owned());
    bar
}

/// Runs `call` again and again, `concurrency` at a time, and counts what ended within the time.
/// `call` gets a number that no other call of this run gets, and gives the moment at which the
/// part that is measured ended. Dropped, it stops.
pub async fn run<F, C>(name: &str, load: Load, call: F) -> Measured
where
    F: Fn(u64) -> C + Send + Sync + 'static,
    C: Future<Output = Result<Instant, String>> + Send + 'static,
{
    let began = Instant::now();
    let from = began + WARM_UP;
    let window = Window { from, until: from + load.duration };
    let (call, numbers) = (Arc::new(call), Arc::new(AtomicU64::new(0)));
    let mut workers = JoinSet::new();
    for _ in 0..load.concurrency {
        workers.spawn(work(window, call.clone(), numbers.clone()));
    }
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let progress = bar(name, millis(window.until - began));
    let mut tick = tokio::time::interval(Duration::from_millis(200));
    let mut measured = Measured::default();
    loop {
        tokio::select! {
            worker = workers.join_next() => match worker {
                Some(Ok(worker)) => measured.add(&worker),
                Some(Err(error)) => measured.mistake(error.to_string()),
                None => break,
            },
            _ = tick.tick() => {
                let per_second = as_f64(numbers.load(Ordering::Relaxed)) / began.elapsed().as_secs_f64();
                progress.set_position(millis(began.elapsed()));
                progress.set_message(format!("{per_second:.0}/s"));
            }
        }
    }
    progress.finish_and_clear();
    measured.elapsed = load.duration;
    measured
}

/// The time that counts.
#[derive(Clone, Copy)]
struct Window {
    from: Instant,
    until: Instant,
}

/// One call after the other until the time is over.
async fn work<F, C>(window: Window, call: Arc<F>, numbers: Arc<AtomicU64>) -> Measured
where
    F: Fn(u64) -> C,
    C: Future<Output = Result<Instant, String>>,
{
    let mut measured = Measured::default();
    let mut sent = Instant::now();
    while sent < window.until {
        match call(numbers.fetch_add(1, Ordering::Relaxed)).await {
            Ok(ended) if ended >= window.from && ended < window.until => {
                measured.succeeded(ended - sent);
            }
            Ok(_outside) => {}
            Err(text) => {
                measured.mistake(text);
                // A refused connection fails at once: do not turn that into a busy loop.
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        sent = Instant::now();
    }
    measured
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn calls_are_counted_only_after_the_warm_up_and_mistakes_are_kept() {
        let load = Load { concurrency: 2, duration: Duration::from_secs(1) };
        let measured = run("test", load, |number| async move {
            tokio::task::yield_now().await;
            if number == 0 { Err("first".to_owned()) } else { Ok(Instant::now()) }
        })
        .await;
        assert!(measured.count > 0);
        assert_eq!(measured.failed, 1);
        assert_eq!(measured.mistakes, ["first"]);
        assert_eq!(measured.latencies.len(), measured.count);
        assert!(measured.per_second() > 0.0);
    }

    #[test]
    fn rounds_add_up() {
        let mut one = Measured { elapsed: Duration::from_secs(1), ..Measured::default() };
        one.succeeded(Duration::from_millis(2));
        let mut sum = one.clone();
        sum.add(&one);
        assert_eq!((sum.count, sum.elapsed), (2, Duration::from_secs(2)));
        assert!((sum.per_second() - 1.0).abs() < 1e-9);
        assert!((sum.latency_ms(0.5) - 2.0).abs() < 0.01);
    }
}
