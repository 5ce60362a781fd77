//! Callers that each wait for their record before they send the next.

use crate::{Options, label, median, record};
use rota_storage::{
    Engine, EngineError, KvWrite, LogEngine, LogSettings, RealDisk, RedbEngine, RedbSettings,
    Visit, Writer,
};
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What commits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// [`Writer`] over the log: what a manager uses.
    Writer,
    /// The log, with a group commit of a few lines.
    ByHand,
    /// The same few lines over redb.
    Redb,
    /// The same few lines, which append the same bytes to one file and call fdatasync.
    Append,
}

pub const KINDS: [Kind; 4] = [Kind::Writer, Kind::ByHand, Kind::Redb, Kind::Append];

impl Kind {
    /// Its name in a table.
    fn name(self) -> &'static str {
        match self {
            Self::Writer => "writer",
            Self::ByHand => "by hand",
            Self::Redb => "redb",
            Self::Append => "append",
        }
    }

    /// Its name in JSON.
    pub fn figure(self) -> &'static str {
        match self {
            Self::Writer => "ops_per_s",
            Self::ByHand => "by_hand_per_s",
            Self::Redb => "redb_by_hand_per_s",
            Self::Append => "raw_append_by_callers_per_s",
        }
    }
}

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

fn open(kind: Kind, folder: &Path) -> Box<dyn Engine> {
    let (disk, label) = (Arc::new(RealDisk), label());
    match kind {
        Kind::Append => {
            let file = OpenOptions::new().create(true).append(true).open(folder.join("raw"));
            Box::new(Append(file.expect("the folder is there"), Vec::new()))
        }
        Kind::Redb => {
            let settings = RedbSettings::default();
            Box::new(RedbEngine::open(disk, folder, &label, settings).expect("opens"))
        }
        Kind::Writer | Kind::ByHand => {
            let settings = LogSettings::default();
            Box::new(LogEngine::open(disk, folder, &label, settings).expect("opens"))
        }
    }
}

/// What one run came to.
#[derive(Clone, Copy, Default)]
pub struct Run {
    pub per_s: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
    pub batch: f64,
    pub cpu_us: f64,
}

/// Takes records and says how many are durable.
enum Committer {
    Writer(Writer),
    ByHand(SyncSender<KvWrite>, JoinHandle<()>),
}

impl Committer {
    /// Starts one. Each message is the number of records that one commit ended at.
    fn start(kind: Kind, mut engine: Box<dyn Engine>, callers: usize) -> (Self, Receiver<u64>) {
        // One place per caller: a commit never waits for the receiver.
        let (sender, committed) = sync_channel(callers);
        if kind == Kind::Writer {
            let bound = NonZeroUsize::new(callers).expect("at least one caller");
            let writer = Writer::spawn(engine, bound, move |lsn| {
                sender.send(lsn).expect("the bench listens until the writer ends");
            });
            return (Self::Writer(writer.expect("a thread")), committed);
        }
        let (queue, waiting) = sync_channel::<KvWrite>(callers);
        let thread = std::thread::spawn(move || {
            engine.reading_is_over();
            let (mut batch, mut total) = (Vec::new(), 0);
            while let Ok(first) = waiting.recv() {
                batch.push(first);
                batch.extend(waiting.try_iter());
                engine.commit(&batch).expect("the disk works");
                total += batch.len() as u64;
                batch.clear();
                sender.send(total).expect("the bench listens until this ends");
            }
        });
        (Self::ByHand(queue, thread), committed)
    }

    fn submit(&self, lsn: u64, write: KvWrite) {
        match self {
            Self::Writer(writer) => writer.try_submit(lsn, vec![write]).expect("there is room"),
            Self::ByHand(queue, _) => queue.send(write).expect("the thread lives"),
        }
    }

    fn end(self) {
        match self {
            Self::Writer(writer) => {
                writer.shutdown(Duration::from_secs(60)).expect("the disk works");
            }
            Self::ByHand(queue, thread) => {
                drop(queue);
                thread.join().expect("the disk works");
            }
        }
    }
}

fn run(kind: Kind, callers: usize, until: Duration, options: &Options) -> Run {
    let folder = tempfile::tempdir_in(&options.folder).expect("a folder can be made");
    let before = options.before;
    let mut engine = open(kind, folder.path());
    for number in (0..before).step_by(1000) {
        let batch: Vec<_> = (number..before.min(number + 1000)).map(record).collect();
        engine.commit(&batch).expect("commits");
    }
    let (committer, committed) = Committer::start(kind, engine, callers);
    let cpu = cpu_s();
    let began = Instant::now();
    let mut sent = Vec::with_capacity(1 << 20);
    let (mut done, mut commits) = (0, 0u64);
    let mut latencies = Vec::with_capacity(1 << 20);
    loop {
        while sent.len() - done < callers && began.elapsed() < until {
            sent.push(Instant::now());
            let lsn = sent.len() as u64;
            committer.submit(lsn, record(before + lsn));
        }
        if sent.len() == done {
            break;
        }
        let lsn = committed.recv().expect("the thread lives");
        let lsn = usize::try_from(lsn).expect("64 bits");
        latencies.extend(sent[done..lsn].iter().map(Instant::elapsed));
        (done, commits) = (lsn, commits + 1);
    }
    let took = began.elapsed().as_secs_f64();
    let cpu = cpu_s() - cpu;
    committer.end();
    latencies.sort();
    let count = done as f64;
    let at = |part: usize| latencies[(done - 1) * part / 100].as_secs_f64() * 1e3;
    Run {
        per_s: count / took,
        p50_ms: at(50),
        p99_ms: at(99),
        max_ms: at(100),
        batch: count / commits as f64,
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

/// All runs with one number of callers.
pub struct Row {
    pub callers: usize,
    /// One entry per round, in the order of [`KINDS`].
    rounds: Vec<[Run; KINDS.len()]>,
}

impl Row {
    fn of(round: &[Run; KINDS.len()], kind: Kind) -> &Run {
        let at = KINDS.iter().position(|it| *it == kind).expect("all kinds are listed");
        &round[at]
    }

    /// The median of one figure of one kind.
    pub fn median(&self, kind: Kind, figure: impl Fn(&Run) -> f64) -> f64 {
        median(self.rounds.iter().map(|round| figure(Self::of(round, kind))).collect())
    }

    /// The median over the rounds of one kind's speed against another's in the same round.
    pub fn ratio(&self, kind: Kind, to: Kind) -> f64 {
        let ratio = |round| Self::of(round, kind).per_s / Self::of(round, to).per_s;
        median(self.rounds.iter().map(ratio).collect())
    }
}

/// Runs everything, kinds in turn.
pub fn measure(options: &Options, until: Duration) -> Vec<Row> {
    let row = |&callers: &usize| {
        let round = |round: u32| {
            eprintln!("{callers} callers, round {} of {}", round + 1, options.rounds);
            KINDS.map(|kind| run(kind, callers, until, options))
        };
        Row { callers, rounds: (0..options.rounds).map(round).collect() }
    };
    options.callers.iter().map(row).collect()
}

/// Prints a table of medians.
pub fn print(table: &[Row]) {
    println!(
        "{:>7} {:>7} {:>9} {:>6} {:>8} {:>8} {:>8} {:>6} {:>8}",
        "callers", "kind", "durable/s", "ratio", "p50 ms", "p99 ms", "max ms", "batch", "cpu us"
    );
    for row in table {
        for kind in KINDS {
            println!(
                "{:>7} {:>7} {:>9.0} {:>6.2} {:>8.2} {:>8.2} {:>8.2} {:>6.1} {:>8.1}",
                row.callers,
                kind.name(),
                row.median(kind, |run| run.per_s),
                row.ratio(kind, Kind::Append),
                row.median(kind, |run| run.p50_ms),
                row.median(kind, |run| run.p99_ms),
                row.median(kind, |run| run.max_ms),
                row.median(kind, |run| run.batch),
                row.median(kind, |run| run.cpu_us),
            );
        }
    }
    println!("ratio: to append in the same round");
}
