//! Measures the folder of numbers: how long it takes to open one with many entries, to make all of them
//! invalid, and to persist the number of one more. The files are in the cache of the operating system.
//!
//! `cargo run --release -p rota-storage --example numbers -- [-o json] [--help]`

use clap::{Parser, ValueEnum};
use rota_ids::{Key, Kind, Policy, Uuid, uuid_of};
use rota_storage::numbers::{NumbersFolder, Opened};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Parents of the entries.
const PARENTS: usize = 100;
/// Milliseconds of an hour, and some moment.
const HOUR: u64 = 3_600_000;
const NOW: u64 = 1_795_000_000_000;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
}

/// What it costs to keep numbers in a folder.
#[derive(Parser)]
struct Options {
    /// How to print the result.
    #[arg(short, long, value_enum, default_value = "text")]
    output: Output,
    /// Entries in the folder.
    #[arg(long, default_value_t = 100_000)]
    entries: usize,
    /// Runs of each kind; their median is shown.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Where the folder is made: on the disk that is to be measured.
    #[arg(long, default_value = ".")]
    folder: PathBuf,
}

fn session(it: usize) -> Key {
    let node = Kind::parse("Node").expect("a good name");
    let session = Kind::parse("Session").expect("a good name");
    let parent = uuid_of(&node, "bench", &(it % PARENTS).to_string());
    let uuid: Uuid = uuid_of(&session, "bench", &it.to_string());
    Policy::Local.key(session, Some(parent), uuid)
}

fn open(folder: &Path) -> Opened {
    NumbersFolder::open(folder, HOUR).expect("opens")
}

/// Milliseconds that something takes, and what it gives.
fn timed<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let began = Instant::now();
    let result = work();
    (began.elapsed().as_secs_f64() * 1e3, result)
}

/// The middle one of some figures.
fn median(mut figures: Vec<f64>) -> Value {
    figures.sort_by(f64::total_cmp);
    let middle = figures.get(figures.len() / 2).copied().unwrap_or(0.0);
    json!((middle * 100.0).round() / 100.0)
}

fn main() {
    let options = Options::parse();
    let made = tempfile::tempdir_in(&options.folder).expect("makes a folder");
    let mut result = Map::new();

    let mut opened = open(made.path());
    let mut changes = Vec::new();
    for it in 0..options.entries {
        changes.extend(opened.numbers.assign(&session(it), NOW).expect("a number is free").changes);
    }
    let (fill, ()) = timed(|| opened.folder.persist(&changes).expect("persists"));
    result.insert("fill_ms".to_owned(), median(vec![fill]));

    let (mut opens, mut stops, mut starts) = (Vec::new(), Vec::new(), Vec::new());
    let mut ones = Vec::new();
    for round in 0..options.rounds {
        let stopped = opened.numbers.stop(NOW + 1);
        stops.push(timed(|| opened.folder.persist(&stopped.changes).expect("persists")).0);
        drop(opened);
        let found;
        (found, opened) = timed(|| open(made.path()));
        opens.push(found);
        assert!(opened.numbers.entries().count() >= options.entries, "every entry is found");
        let mut reported = Vec::new();
        for it in 0..options.entries {
            let again = opened.numbers.assign(&session(it), NOW + 2);
            reported.extend(again.expect("it has one").changes);
        }
        starts.push(timed(|| opened.folder.persist(&reported).expect("persists")).0);
        let one = session(options.entries + round as usize);
        let one = opened.numbers.assign(&one, NOW + 3).expect("a number is free");
        ones.push(timed(|| opened.folder.persist(&one.changes).expect("persists")).0);
    }
    result.insert("open_ms".to_owned(), median(opens));
    result.insert("make_all_invalid_ms".to_owned(), median(stops));
    result.insert("make_all_valid_ms".to_owned(), median(starts));
    result.insert("one_more_ms".to_owned(), median(ones));
    match options.output {
        Output::Json => println!("{}", Value::Object(result)),
        Output::Text => result.iter().for_each(|(name, value)| println!("{name}: {value}")),
    }
}
