//! Durable commits per second: each engine, and beside it a bare append with fdatasync of the same
//! bytes. Callers are a closed loop: each waits for its record before it sends the next.
//!
//! `cargo run --release -p rota-storage --example bench -- [MILLISECONDS [RECORDS [ROUNDS]]]`

use rota_model::{ClusterName, ManagerId, ManagerNumber};
use rota_storage::{
    Engine, EngineError, KvWrite, Label, LogEngine, LogSettings, RealDisk, RedbEngine,
    RedbSettings, Visit, Writer,
};
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

const VALUE_BYTES: usize = 600;
const CALLERS: [usize; 4] = [1, 16, 64, 256];
const KINDS: [&str; 3] = ["append", "redb", "log"];

/// Appends keys and values and syncs. It is the yardstick and keeps nothing that could be read.
struct Append(File, Vec<u8>);

impl Engine for Append {
    fn commit(&mut self, batch: &[KvWrite]) -> Result<(), EngineError> {
        self.1.clear();
        for write in batch {
            self.1.extend_from_slice(write.key());
            self.1.extend_from_slice(write.value().unwrap_or_default());
        }
        self.0.write_all(&self.1).expect("the disk works");
        self.0.sync_data().expect("the disk works");
        Ok(())
    }
    fn get(&mut self, _key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        unreachable!("the bench only writes")
    }
    fn scan(&mut self, _: &[u8], _: Option<&[u8]>, _: &mut Visit<'_>) -> Result<(), EngineError> {
        unreachable!("the bench only writes")
    }
}

fn open(kind: &str, folder: &Path) -> Box<dyn Engine> {
    let label = Label {
        cluster: ClusterName::parse("bench").expect("a good name"),
        manager: ManagerId::parse("m").expect("a good name"),
        number: ManagerNumber(0),
    };
    let disk = Arc::new(RealDisk);
    match kind {
        "append" => {
            let file = OpenOptions::new().create(true).append(true).open(folder.join("raw"));
            Box::new(Append(file.expect("the folder is there"), Vec::new()))
        }
        "redb" => Box::new(
            RedbEngine::open(disk, folder, &label, RedbSettings::default()).expect("opens"),
        ),
        _ => {
            Box::new(LogEngine::open(disk, folder, &label, LogSettings::default()).expect("opens"))
        }
    }
}

/// Records of random order, as slots of hashed ids are.
fn record(number: u64) -> KvWrite {
    let mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut key = (mixed >> 48).to_be_bytes()[6..].to_vec();
    key.extend_from_slice(format!("default/session-{number:012}").as_bytes());
    let value = mixed.to_le_bytes().into_iter().cycle().take(VALUE_BYTES).collect::<Vec<u8>>();
    KvWrite::put(key, value)
}

#[derive(Clone, Default)]
struct Run {
    per_s: f64,
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    batch: f64,
    cpu_us: f64,
}

fn run(kind: &str, callers: usize, until: Duration, records: u64) -> Run {
    let folder = tempfile::tempdir_in(".").expect("a folder in the working folder");
    let mut engine = open(kind, folder.path());
    let mut number = 0;
    while number < records {
        let batch: Vec<_> = (number..records.min(number + 1000)).map(record).collect();
        engine.commit(&batch).expect("commits");
        number += 1000;
    }
    // One place per caller: a commit never waits for the receiver.
    let (sender, committed) = sync_channel(callers);
    let bound = NonZeroUsize::new(callers).expect("at least one caller");
    let writer = Writer::spawn(engine, bound, move |lsn| {
        sender.send(lsn).expect("the bench listens until the writer ends");
    });
    let writer = writer.expect("a thread");
    let cpu = cpu_s();
    let began = Instant::now();
    let mut sent = Vec::with_capacity(1 << 20);
    let mut done = 0;
    let mut latencies = Vec::with_capacity(1 << 20);
    loop {
        while sent.len() - done < callers && began.elapsed() < until {
            sent.push(Instant::now());
            let lsn = sent.len() as u64;
            writer.try_submit(lsn, vec![record(records + lsn)]).expect("there is room");
        }
        if sent.len() == done {
            break;
        }
        let lsn = committed.recv().expect("the writer lives");
        let lsn = usize::try_from(lsn).expect("64 bits");
        latencies.extend(sent[done..lsn].iter().map(Instant::elapsed));
        done = lsn;
    }
    let took = began.elapsed().as_secs_f64();
    let counters = writer.counters();
    let cpu = cpu_s() - cpu;
    writer.shutdown(Duration::from_secs(60)).expect("the disk works");
    latencies.sort();
    let count = done as f64;
    let at = |part: usize| latencies[(done - 1) * part / 100].as_secs_f64() * 1e3;
    Run {
        per_s: count / took,
        p50_ms: at(50),
        p99_ms: at(99),
        max_ms: at(100),
        batch: count / counters.commits() as f64,
        cpu_us: cpu * 1e6 / count,
    }
}

/// Seconds of processor time of this process, all threads.
fn cpu_s() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux");
    tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok())
        .filter_map(|text| text.split(' ').next()?.parse::<f64>().ok())
        .sum::<f64>()
        / 1e9
}

/// How long a start takes and how much disk the records need.
fn start(kind: &str, records: u64) {
    let folder = tempfile::tempdir_in(".").expect("a folder in the working folder");
    let mut engine = open(kind, folder.path());
    for number in (0..records).step_by(1000) {
        let batch: Vec<_> = (number..records.min(number + 1000)).map(record).collect();
        engine.commit(&batch).expect("commits");
    }
    drop(engine);
    let began = Instant::now();
    let mut engine = open(kind, folder.path());
    let mut seen = 0;
    let visit = &mut |_: &[u8], _: &[u8]| {
        seen += 1;
        ControlFlow::Continue(())
    };
    engine.scan_all(visit).expect("reads");
    assert_eq!(seen, records);
    let took = began.elapsed().as_secs_f64() * 1e3;
    let files = std::fs::read_dir(folder.path()).expect("a folder");
    let bytes: u64 = files.filter_map(|file| Some(file.ok()?.metadata().ok()?.len())).sum();
    println!(
        "{kind}: open and scan {records} records {took:.0} ms, {} B per record",
        bytes / records
    );
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter_map(|text| text.parse::<u64>().ok());
    let millis = arguments.next().unwrap_or(400);
    let records = arguments.next().unwrap_or(30_000);
    let rounds = arguments.next().unwrap_or(11);
    for kind in &KINDS[1..] {
        start(kind, records);
    }
    println!("{VALUE_BYTES}-byte values, {records} records before, the fastest of {rounds} rounds");
    println!(
        "{:>7} {:>7} {:>9} {:>6} {:>8} {:>8} {:>8} {:>6} {:>8}",
        "callers", "engine", "durable/s", "ratio", "p50 ms", "p99 ms", "max ms", "batch", "cpu us"
    );
    for callers in CALLERS {
        // The kinds take turns, and the fastest turn of each counts: what else runs on the machine
        // only ever slows.
        let mut fastest: [Run; KINDS.len()] = Default::default();
        for _ in 0..rounds {
            for (kind, fastest) in KINDS.iter().zip(&mut fastest) {
                let run = run(kind, callers, Duration::from_millis(millis), records);
                if run.per_s > fastest.per_s {
                    *fastest = run;
                }
            }
        }
        let bare = fastest[0].per_s;
        for (kind, run) in KINDS.iter().zip(&fastest) {
            let Run { per_s, p50_ms, p99_ms, max_ms, batch, cpu_us } = run;
            let ratio = per_s / bare;
            println!(
                "{callers:>7} {kind:>7} {per_s:>9.0} {ratio:>6.2} {p50_ms:>8.2} {p99_ms:>8.2} \
                 {max_ms:>8.2} {batch:>6.1} {cpu_us:>8.1}"
            );
        }
    }
}
