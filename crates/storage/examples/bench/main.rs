//! Measures the document store: durable operations on documents of one record (600 bytes) under a
//! number of callers, a stream of a range of slots, an open after a kill, the synchronisation of a
//! document that has not changed, and attachments. Beside each stands what the machine gives without
//! this crate. Runs take turns, and medians are shown: compare inside one run only.
//!
//! `ops_per_s`: operations of `DocumentStore`; callers are threads, each of which waits for its answer.
//! `by_hand_per_s`: records of the same keys and lengths in the same engine, through a group commit
//! of a few lines, for the same threads. They are copies of one that is ready: what it takes to encode a
//! note is an operation's alone, a quarter of the instructions of its work. The table shows both also
//! with one loop that stands for all callers: without the threads' switching, what the document store
//! itself costs shows most.
//!
//! `cargo run --release -p rota-storage --example bench -- [-o json] [--help]`

mod bodies;
mod callers;
mod notes;
mod start;
mod threads;

use crate::callers::{Kind, Row};
use clap::{Parser, ValueEnum};
use rota_model::{ClusterName, ManagerId, ManagerNumber};
use rota_storage::Label;
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::time::Duration;

// What managers allocate with.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
}

/// Durable writes per second, and what else the storage of documents costs.
#[derive(Parser)]
struct Options {
    /// How to print the result.
    #[arg(short, long, value_enum, default_value = "text")]
    output: Output,
    /// Length of one run of callers, in milliseconds.
    #[arg(long, default_value_t = 400)]
    millis: u64,
    /// Runs of each kind; their median is shown.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Numbers of callers that each wait for their record before they send the next.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 256])]
    callers: Vec<usize>,
    /// What commits.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_values_t = [
            Kind::Documents, Kind::ByHand, Kind::DocumentsLoop, Kind::Writer, Kind::ByHandLoop,
            Kind::Redb, Kind::Append
        ]
    )]
    kinds: Vec<Kind>,
    /// Records in the folder before the callers begin.
    #[arg(long, default_value_t = 30_000)]
    before: u64,
    /// Records in the folder that is killed, opened and read.
    #[arg(long, default_value_t = 300_000)]
    documents: u64,
    /// Bytes of an attachment.
    #[arg(long, default_value_t = 32 * 1024 * 1024)]
    body_bytes: u64,
    /// Where the data folders are made: on the disk that is to be measured.
    #[arg(long, default_value = ".")]
    folder: PathBuf,
    /// Commits to this folder until it is killed: the child of the measure of opening.
    #[arg(long, hide = true)]
    fill: Option<PathBuf>,
}

fn label() -> Label {
    Label {
        cluster: ClusterName::parse("bench").expect("a good name"),
        manager: ManagerId::parse("m").expect("a good name"),
        number: ManagerNumber(0),
    }
}

/// The middle one of some figures; 0 when there are none.
fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(0.0)
}

/// A figure with about four digits.
fn rounded(figure: f64) -> Value {
    let digits = if figure.abs() >= 100.0 { 1.0 } else { 1000.0 };
    json!((figure * digits).round() / digits)
}

fn main() {
    let options = Options::parse();
    if let Some(folder) = &options.fill {
        start::fill(folder, options.documents);
    }
    let mut result = Map::new();
    let until = Duration::from_millis(options.millis);
    let table = callers::measure(&options, until);
    for (name, kind) in [("ops_per_s", Kind::Documents), ("by_hand_per_s", Kind::ByHand)] {
        let of = |row: &Row| (row.callers.to_string(), rounded(row.median(kind, |it| it.per_s)));
        result.insert(name.to_owned(), Value::Object(table.iter().map(of).collect()));
    }
    if let Some(most) = table.last() {
        let raw = most.median(Kind::Append, |run| run.per_s);
        result.insert("raw_append_per_s".to_owned(), rounded(raw));
        let ratio = most.ratio(Kind::Documents, Kind::ByHand);
        result.insert(format!("ratio_{}", most.callers), rounded(ratio));
    }
    result.extend(start::measure(&options));
    match options.output {
        Output::Json => println!("{}", Value::Object(result)),
        Output::Text => {
            callers::print(&table);
            result.extend(bodies::measure(&options));
            for (name, value) in result.iter().filter(|(_, value)| value.is_number()) {
                println!("{name}: {value}");
            }
        }
    }
}
