//! Callers that each wait for their record before they send the next.

use crate::notes::{self, Bank};
use crate::threads;
use crate::{Options, label, median};
use clap::ValueEnum;
use rota_storage::{
    Engine, EngineError, KvWrite, LogEngine, LogSettings, RealDisk, RedbEngine, RedbSettings,
    Visit, Writer,
};
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What commits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Kind {
    /// Operations of the document store over the log; callers are threads.
    Documents,
    /// The log, with a group commit of a few lines; callers are threads.
    ByHand,
    /// Operations of the document store; callers are one loop.
    DocumentsLoop,
    /// [`Writer`] over the log; callers are one loop, here and below.
    Writer,
    /// The log, with a group commit of a few lines.
    ByHandLoop,
    /// The same few lines over redb.
    Redb,
    /// The same few lines, which append the same bytes to one file and call fdatasync.
    Append,
}

impl Kind {
    /// Its name in a table.
    fn name(self) -> &'static str {
        match self {
            Self::Documents => "docs",
            Self::ByHand => "by hand",
            Self::DocumentsLoop => "docs loop",
            Self::Writer => "writer",
            Self::ByHandLoop => "hand loop",
            Self::Redb => "redb",
            Self::Append => "append",
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
        Kind::Documents | Kind::DocumentsLoop | Kind::Writer | Kind::ByHand | Kind::ByHandLoop => {
            let settings = LogSettings::default();
            Box::new(LogEngine::open(disk, folder, &label, settings).expect("opens"))
        }
    }
}

/// What one run came to.
#[derive(Clone, Copy, Default)]
pub struct Run {
    pub count: f64,
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
    match kind {
        Kind::Documents => {
            let bank = Bank::filled(folder.path(), before);
            let run = threads::run(callers, until, &|number| bank.wait(number));
            let batch = run.count / bank.store.counters().commits() as f64;
            bank.close();
            return Run { batch, ..run };
        }
        Kind::DocumentsLoop => {
            let bank = Bank::filled(folder.path(), before);
            let run = run_documents(&bank, callers, until);
            bank.close();
            return run;
        }
        Kind::ByHand | Kind::Writer | Kind::ByHandLoop | Kind::Redb | Kind::Append => {}
    }
    let mut engine = open(kind, folder.path());
    notes::fill(&mut *engine, before);
    if kind == Kind::ByHand {
        return threads::run_by_hand(engine, callers, until, before);
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
            committer.submit(lsn, notes::record(notes::mixed(lsn) % before, lsn));
        }
        if sent.len() == done {
            break;
        }
        let lsn = committed.recv().expect("the thread lives");
        let lsn = usize::try_from(lsn).expect("64 bits");
        latencies.extend(sent[done..lsn].iter().map(Instant::elapsed));
        (done, commits) = (lsn, commits + 1);
    }
    let took = began.elapsed();
    let cpu = cpu_s() - cpu;
    committer.end();
    Run::of(latencies, took, commits, cpu)
}

/// The same loop over operations: it begins one for each caller that has its answer.
fn run_documents(bank: &Bank, callers: usize, until: Duration) -> Run {
    let commits = bank.store.counters().commits();
    let cpu = cpu_s();
    let began = Instant::now();
    let mut waiting = VecDeque::with_capacity(callers);
    let mut latencies = Vec::with_capacity(1 << 20);
    let mut number = 0;
    loop {
        if began.elapsed() < until {
            let more = (callers - waiting.len()) as u64;
            let begun = Instant::now();
            let all = bank.begin_all(number..number + more);
            waiting.extend(all.into_iter().map(|pending| (begun, pending)));
            number += more;
        }
        // Who waited for the same commit has his answer, too.
        let mut is_first = true;
        while waiting.front().is_some_and(|(_, it)| is_first || it.is_ready()) {
            let Some((sent, pending)) = waiting.pop_front() else { break };
            pending.wait().expect("the operation is valid");
            latencies.push(sent.elapsed());
            is_first = false;
        }
        if is_first {
            break;
        }
    }
    let took = began.elapsed();
    let commits = bank.store.counters().commits() - commits;
    Run::of(latencies, took, commits, cpu_s() - cpu)
}

impl Run {
    pub fn of(mut latencies: Vec<Duration>, took: Duration, commits: u64, cpu_s: f64) -> Self {
        latencies.sort();
        let count = latencies.len() as f64;
        // Nothing was answered in a run that was too short for the disk.
        let last = latencies.len().saturating_sub(1);
        let at =
            |part: usize| latencies.get(last * part / 100).map_or(0.0, Duration::as_secs_f64) * 1e3;
        Self {
            count,
            per_s: count / took.as_secs_f64(),
            p50_ms: at(50),
            p99_ms: at(99),
            max_ms: at(100),
            batch: count / commits.max(1) as f64,
            cpu_us: cpu_s * 1e6 / count.max(1.0),
        }
    }
}

/// Seconds of processor time of this process, all threads.
pub fn cpu_s() -> f64 {
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
    kinds: Vec<Kind>,
    /// One entry per round, in the order of the kinds.
    rounds: Vec<Vec<Run>>,
}

impl Row {
    fn of<'a>(&self, round: &'a [Run], kind: Kind) -> Option<&'a Run> {
        round.get(self.kinds.iter().position(|it| *it == kind)?)
    }

    /// The median of one figure of one kind; 0 when it did not run.
    pub fn median(&self, kind: Kind, figure: impl Fn(&Run) -> f64) -> f64 {
        let figures = self.rounds.iter().filter_map(|round| Some(figure(self.of(round, kind)?)));
        median(figures.collect())
    }

    /// The median over the rounds of one kind's speed against another's in the same round.
    pub fn ratio(&self, kind: Kind, to: Kind) -> f64 {
        let ratio =
            |round: &Vec<Run>| Some(self.of(round, kind)?.per_s / self.of(round, to)?.per_s);
        median(self.rounds.iter().filter_map(ratio).collect())
    }
}

/// Runs everything, kinds in turn.
pub fn measure(options: &Options, until: Duration) -> Vec<Row> {
    let row = |&callers: &usize| {
        let round = |round: u32| {
            eprintln!("{callers} callers, round {} of {}", round + 1, options.rounds);
            let run = |&kind: &Kind| run(kind, callers, until, options);
            options.kinds.iter().map(run).collect()
        };
        let rounds = (0..options.rounds).map(round).collect();
        Row { callers, kinds: options.kinds.clone(), rounds }
    };
    options.callers.iter().map(row).collect()
}

/// Prints a table of medians.
pub fn print(table: &[Row]) {
    println!(
        "{:>7} {:>9} {:>9} {:>6} {:>8} {:>8} {:>8} {:>6} {:>8}",
        "callers", "kind", "durable/s", "ratio", "p50 ms", "p99 ms", "max ms", "batch", "cpu us"
    );
    for row in table {
        for &kind in &row.kinds {
            println!(
                "{:>7} {:>9} {:>9.0} {:>6.2} {:>8.2} {:>8.2} {:>8.2} {:>6.1} {:>8.1}",
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
