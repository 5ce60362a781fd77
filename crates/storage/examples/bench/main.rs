//! Measures the storage of documents without the documents: durable writes of one record under a
//! number of callers, reading, opening after a kill, and attachments. Beside each stands what the
//! machine gives without this crate. Runs take turns, and medians are shown: compare inside one run
//! only.
//!
//! `cargo run --release -p rota-storage --example bench -- [-o json] [--help]`

mod bodies;
mod callers;
mod start;

use clap::{Parser, ValueEnum};
use rota_model::{ClusterName, ManagerId, ManagerNumber};
use rota_storage::{KvWrite, Label};
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::time::Duration;

const VALUE_BYTES: usize = 600;

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

/// Records of random order, as slots of hashed ids are.
fn record(number: u64) -> KvWrite {
    let mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut key = (mixed >> 48).to_be_bytes()[6..].to_vec();
    key.extend_from_slice(format!("default/session-{number:012}").as_bytes());
    let value = mixed.to_le_bytes().into_iter().cycle().take(VALUE_BYTES).collect::<Vec<u8>>();
    KvWrite::put(key, value)
}

/// The middle one of some figures.
fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
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
    for kind in callers::KINDS {
        let by_callers: Map<String, Value> = table
            .iter()
            .map(|row| (row.callers.to_string(), rounded(row.median(kind, |run| run.per_s))))
            .collect();
        result.insert(kind.figure().to_owned(), Value::Object(by_callers));
    }
    if let Some(most) = table.last() {
        let raw = most.median(callers::Kind::Append, |run| run.per_s);
        result.insert("raw_append_per_s".to_owned(), rounded(raw));
        let ratio = most.ratio(callers::Kind::Writer, callers::Kind::ByHand);
        result.insert(format!("ratio_{}", most.callers), rounded(ratio));
    }
    result.extend(start::measure(&options));
    result.extend(bodies::measure(&options));
    match options.output {
        Output::Json => println!("{}", Value::Object(result)),
        Output::Text => {
            callers::print(&table);
            for (name, value) in result.iter().filter(|(_, value)| value.is_number()) {
                println!("{name}: {value}");
            }
        }
    }
}
