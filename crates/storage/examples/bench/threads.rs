//! Callers that are threads, each of which sleeps until its record is durable.

use crate::callers::{Run, cpu_s};
use crate::notes;
use rota_storage::{Engine, KvWrite};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// Lets so many threads call `wait` with one number after the other.
pub fn run(callers: usize, until: Duration, wait: &(dyn Fn(u64) + Sync)) -> Run {
    let next = AtomicU64::new(0);
    let before = cpu_s();
    let began = Instant::now();
    let caller = || {
        let mut latencies = Vec::with_capacity(1 << 12);
        while began.elapsed() < until {
            let sent = Instant::now();
            wait(next.fetch_add(1, Relaxed));
            latencies.push(sent.elapsed());
        }
        latencies
    };
    let (latencies, cpu_of_one) = thread::scope(|scope| {
        let threads: Vec<_> = (0..callers).map(|_| scope.spawn(caller)).collect();
        // While the threads are there: those that ended are not counted.
        thread::sleep((until / 2).saturating_sub(began.elapsed()));
        let cpu_of_one = (cpu_s() - before) / next.load(Relaxed).max(1) as f64;
        let all = threads.into_iter().flat_map(|it| it.join().expect("no caller panics"));
        (all.collect::<Vec<_>>(), cpu_of_one)
    });
    let cpu = cpu_of_one * latencies.len() as f64;
    Run::of(latencies, began.elapsed(), 1, cpu)
}

/// The same engine, the same group commit, a few lines.
pub fn run_by_hand(
    mut engine: Box<dyn Engine>,
    callers: usize,
    until: Duration,
    before: u64,
) -> Run {
    let (queue, waiting) = sync_channel::<(KvWrite, SyncSender<()>)>(callers);
    let committer = thread::spawn(move || {
        engine.reading_is_over();
        let (mut batch, mut answers, mut commits) = (Vec::new(), Vec::new(), 0u64);
        while let Ok(first) = waiting.recv() {
            for (write, answer) in std::iter::once(first).chain(waiting.try_iter()) {
                batch.push(write);
                answers.push(answer);
            }
            engine.commit(&batch).expect("the disk works");
            batch.clear();
            commits += 1;
            for answer in answers.drain(..) {
                answer.send(()).expect("the caller waits");
            }
        }
        commits
    });
    let run = run(callers, until, &|number| {
        let write = notes::record(notes::mixed(number) % before, number);
        let (answer, answered) = sync_channel(1);
        queue.send((write, answer)).expect("the thread lives");
        answered.recv().expect("it is committed");
    });
    drop(queue);
    let commits = committer.join().expect("no panic");
    Run { batch: run.count / commits as f64, ..run }
}
