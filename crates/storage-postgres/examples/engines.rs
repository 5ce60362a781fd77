//! Measures durable records per second: a PostgreSQL server of its own, with and without columns, beside the log
//! engine and a bare append with fdatasync, on one disk. Runs take turns, and medians are shown: compare inside one
//! run only. The folder for temporary files (TMPDIR) is on the disk that is measured.
//!
//! `cargo run --release -p rota-storage-postgres --example engines -- [--help]`

#[expect(dead_code, reason = "tests use more of it")]
#[path = "../../../tests/src/postgres.rs"]
mod server;

use clap::{Parser, ValueEnum};
use rota_docstore::{Content, DocName, Document, DocumentParts, Item, ItemName, Namespace, Stamp};
use rota_model::{ClusterName, ManagerId, ManagerNumber};
use rota_storage::{Engine, KvWrite, Label, LogEngine, LogSettings, RealDisk};
use rota_storage_postgres::{Address, DocumentRow, Opening, PostgresEngine, Waits};
use server::PostgresServer;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

/// What commits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Kind {
    /// The log engine.
    Log,
    /// PostgreSQL, records alone.
    Records,
    /// PostgreSQL with the columns of documents and their indexes, as managers have it.
    Columns,
    /// Appends the same bytes to one file and calls fdatasync.
    Append,
}

/// Durable records per second.
#[derive(Parser)]
struct Options {
    /// Length of one run, in milliseconds.
    #[arg(long, default_value_t = 1_000)]
    millis: u64,
    /// Runs of each kind; their median is shown.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Numbers of callers that each wait for their record before they send the next.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 64, 256])]
    callers: Vec<usize>,
    /// What commits.
    #[arg(long, value_enum, value_delimiter = ',',
        default_values_t = [Kind::Append, Kind::Log, Kind::Records, Kind::Columns])]
    kinds: Vec<Kind>,
    /// Records before the callers begin.
    #[arg(long, default_value_t = 30_000)]
    before: u64,
}

fn label(manager: &str) -> Label {
    Label {
        cluster: ClusterName::parse("bench").expect("a good name"),
        manager: ManagerId::parse(manager).expect("a good name"),
        number: ManagerNumber(0),
    }
}

/// A document of one item, about 600 bytes with its key.
fn record(number: u64, turn: u64) -> KvWrite {
    let space = Namespace::default_space();
    let docid = format!("n{number:011}");
    let now = Stamp::from_epoch_ms(1_700_000_000_000 + turn);
    let json = format!(r#"{{"number":{turn},"text":"{}"}}"#, "x".repeat(500));
    let item = ItemName::singleton("Nt").expect("a good name");
    let item = Item::existing(item, now, now, Content::json(&json).expect("JSON"));
    let document = Document::from_parts(DocumentParts {
        name: DocName::new(&space, "Note", &docid).expect("a good name"),
        ctime: now,
        version: now,
        dtime: now,
        is_deleted: false,
        items: vec![item.expect("a good item")],
    });
    KvWrite::put(docid, document.expect("a good document").to_bytes())
}

fn row_of(_: &[u8], value: &[u8]) -> Option<DocumentRow> {
    Some(DocumentRow::of(0, &Document::from_bytes(value).ok()?))
}

enum Committer {
    Engine(Box<dyn Engine>),
    Append(File),
}

impl Committer {
    fn open(kind: Kind, folder: &Path, server: &PostgresServer, turn: u32) -> Self {
        let postgres = |row_of| {
            let address = Address::parse("url", &server.url_of_socket(), false);
            let address = address.expect("a good address");
            let label = label(&format!("{kind:?}-{turn}"));
            let opening = Opening { address, label, row_of, waits: Waits::default() };
            Box::new(PostgresEngine::open(folder, opening).expect("opens"))
        };
        match kind {
            Kind::Append => {
                let file = OpenOptions::new().create(true).append(true).open(folder.join("raw"));
                Self::Append(file.expect("the folder is there"))
            }
            Kind::Log => {
                let (disk, label) = (Arc::new(RealDisk), label("log"));
                let engine = LogEngine::open(disk, folder, &label, LogSettings::default());
                Self::Engine(Box::new(engine.expect("opens")))
            }
            Kind::Records => Self::Engine(postgres(|_, _| None)),
            Kind::Columns => Self::Engine(postgres(row_of)),
        }
    }

    fn commit(&mut self, batch: &[KvWrite]) {
        match self {
            Self::Engine(engine) => engine.commit(batch).expect("the disk works"),
            Self::Append(file) => {
                let mut bytes = Vec::new();
                for write in batch {
                    bytes.extend_from_slice(write.key());
                    bytes.extend_from_slice(write.value().unwrap_or_default());
                }
                file.write_all(&bytes).expect("the disk works");
                file.sync_data().expect("the disk works");
            }
        }
    }
}

#[derive(Clone, Copy)]
struct Run {
    per_s: f64,
    p50_ms: f64,
    p99_ms: f64,
}

fn run(mut committer: Committer, callers: usize, options: &Options) -> Run {
    let records: Vec<_> = (0..options.before).map(|it| record(it, 0)).collect();
    records.chunks(2_000).for_each(|it| committer.commit(it));
    let until = Duration::from_millis(options.millis);
    let (queue, waiting) = sync_channel::<KvWrite>(callers);
    let (sender, committed) = sync_channel(callers);
    let thread = std::thread::spawn(move || {
        while let Ok(first) = waiting.recv() {
            let mut batch = vec![first];
            batch.extend(waiting.try_iter());
            committer.commit(&batch);
            sender.send(batch.len()).expect("the bench listens until this ends");
        }
    });
    let began = Instant::now();
    let (mut sent, mut latencies) = (Vec::<Instant>::new(), Vec::new());
    loop {
        while sent.len() - latencies.len() < callers && began.elapsed() < until {
            let turn = sent.len() as u64;
            let number = turn.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16;
            let record = record(number % options.before.max(1), turn);
            sent.push(Instant::now());
            queue.send(record).expect("the thread lives");
        }
        if sent.len() == latencies.len() {
            break;
        }
        let count = committed.recv().expect("the thread lives");
        let done = latencies.len();
        latencies
            .extend(sent[done..done + count].iter().map(|it| it.elapsed().as_secs_f64() * 1e3));
    }
    let per_s = latencies.len() as f64 / began.elapsed().as_secs_f64();
    drop(queue);
    thread.join().expect("the disk works");
    latencies.sort_by(f64::total_cmp);
    let at = |part: usize| latencies[latencies.len().saturating_sub(1) * part / 100];
    Run { per_s, p50_ms: at(50), p99_ms: at(99) }
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(0.0)
}

fn main() {
    let options = Options::parse();
    let server = PostgresServer::start();
    println!(
        "{:>7} {:>8} {:>9} {:>6} {:>8} {:>8}",
        "callers", "kind", "durable/s", "ratio", "p50 ms", "p99 ms"
    );
    let mut turn = 0;
    for &callers in &options.callers {
        let mut rounds = Vec::new();
        for _ in 0..options.rounds {
            let one = |&kind: &Kind| {
                turn += 1;
                let folder = tempfile::tempdir().expect("a folder can be made");
                run(Committer::open(kind, folder.path(), &server, turn), callers, &options)
            };
            rounds.push(options.kinds.iter().map(one).collect::<Vec<Run>>());
        }
        for (at, kind) in options.kinds.iter().enumerate() {
            let of =
                |figure: fn(&Run) -> f64| median(rounds.iter().map(|it| figure(&it[at])).collect());
            let ratio = median(rounds.iter().map(|it| it[at].per_s / it[0].per_s).collect());
            println!(
                "{callers:>7} {:>8} {:>9.0} {ratio:>6.2} {:>8.2} {:>8.2}",
                format!("{kind:?}").to_lowercase(),
                of(|it| it.per_s),
                of(|it| it.p50_ms),
                of(|it| it.p99_ms)
            );
        }
    }
    println!("ratio: to the first kind in the same round");
}
