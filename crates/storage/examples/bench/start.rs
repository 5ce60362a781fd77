//! A folder with many records: its size, how it opens after a kill, and how fast it is read.

use crate::{Options, label, median, record, rounded};
use rota_storage::{Engine, LogEngine, LogSettings, RealDisk};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write as _};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

/// Records of the range that is streamed.
const STREAMED: u64 = 30_000;
/// Commits that the child makes beyond the fill before it may be killed.
const COMMITS: u64 = 300;

fn open(folder: &Path) -> LogEngine {
    LogEngine::open(Arc::new(RealDisk), folder, &label(), LogSettings::default()).expect("opens")
}

/// The child: fills the folder, says so, and commits one record at a time until it is killed.
pub fn fill(folder: &Path, documents: u64) -> ! {
    let mut engine = open(folder);
    let mut there = 0;
    engine
        .scan_all(&mut |_, _| {
            there += 1;
            ControlFlow::Continue(())
        })
        .expect("reads");
    for number in (there..documents).step_by(1000) {
        let batch: Vec<_> = (number..documents.min(number + 1000)).map(record).collect();
        engine.commit(&batch).expect("commits");
    }
    engine.reading_is_over();
    for number in (0..documents).cycle() {
        engine.commit(&[record(number)]).expect("commits");
        if number % COMMITS == COMMITS - 1 {
            let mut out = std::io::stdout().lock();
            writeln!(out, "filled").and_then(|()| out.flush()).expect("the parent reads");
        }
    }
    unreachable!("there are documents")
}

/// Lets a child fill the folder (or go on with a full one) and kills it while it commits.
fn fill_and_kill(folder: &Path, documents: u64) {
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .arg("--fill")
        .arg(folder)
        .args(["--documents", &documents.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut line = String::new();
    let out = child.stdout.take().expect("piped");
    let read = BufReader::new(out).read_line(&mut line);
    child.kill().expect("kills");
    child.wait().expect("ends");
    assert!(read.is_ok() && line == "filled\n", "the child fills its folder");
}

/// Visits records from the middle of the slots on. Returns milliseconds.
fn stream_ms(engine: &mut LogEngine, most: u64) -> f64 {
    let began = Instant::now();
    let (mut seen, mut bytes) = (0, 0);
    let visit = &mut |key: &[u8], value: &[u8]| {
        seen += 1;
        bytes += key.len() + value.len();
        if seen == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    engine.scan(&[0x60], None, visit).expect("reads");
    std::hint::black_box(bytes);
    began.elapsed().as_secs_f64() * 1e3
}

pub fn measure(options: &Options) -> Vec<(String, Value)> {
    let folder = tempfile::tempdir_in(&options.folder).expect("a folder can be made");
    let (mut opens, mut loads, mut streams) = (Vec::new(), Vec::new(), Vec::new());
    let documents = options.documents;
    for round in 0..options.rounds {
        eprintln!("{documents} documents, kill {} of {}", round + 1, options.rounds);
        fill_and_kill(folder.path(), documents);
        let began = Instant::now();
        let mut engine = open(folder.path());
        opens.push(began.elapsed().as_secs_f64() * 1e3);
        let mut seen = 0;
        let visit = &mut |_: &[u8], _: &[u8]| {
            seen += 1;
            ControlFlow::Continue(())
        };
        engine.scan_all(visit).expect("reads");
        assert_eq!(seen, documents, "nothing is lost");
        loads.push(began.elapsed().as_secs_f64() * 1e3);
        streams.push(stream_ms(&mut engine, STREAMED));
    }
    let files = std::fs::read_dir(folder.path()).expect("a folder");
    let bytes: u64 = files.filter_map(|file| Some(file.ok()?.metadata().ok()?.len())).sum();
    [
        ("scan_30000_ms", median(streams)),
        ("open_after_kill_ms", median(opens)),
        ("open_and_read_after_kill_ms", median(loads)),
        ("bytes_per_document", (bytes / documents.max(1)) as f64),
    ]
    .map(|(name, figure)| (name.to_owned(), rounded(figure)))
    .into()
}
