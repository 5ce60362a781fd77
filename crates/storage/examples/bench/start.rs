//! A folder with many documents: its size, how it opens after a kill, how fast it is streamed, and
//! what it costs to find that a document has not changed.

use crate::notes::{self, Bank, SLOTS};
use crate::{Options, label, median, rounded};
use rota_docstore::{Held, SlotId, Update};
use rota_storage::Settings;
use serde_json::Value;
use std::hint::black_box;
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Documents of the range that is streamed.
const STREAMED: u64 = 30_000;
/// Commits that the child makes beyond the fill before it may be killed.
const COMMITS: u64 = 300;
/// Synchronisations that are measured together.
const SYNCS: u64 = 20_000;

/// The child: fills the folder, says so, and runs one operation at a time until it is killed.
pub fn fill(folder: &Path, documents: u64) -> ! {
    let records = folder.join("records");
    if !records.exists() {
        let mut engine =
            rota_storage::open(&records, &label(), &Settings::default()).expect("opens");
        notes::fill(&mut *engine, documents);
    }
    let bank = Bank::open(folder, documents);
    for number in 1.. {
        bank.wait(number);
        if number % COMMITS == 0 {
            let mut out = std::io::stdout().lock();
            writeln!(out, "filled").and_then(|()| out.flush()).expect("the parent reads");
        }
    }
    unreachable!("numbers do not end")
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

/// Streams the slots that hold about so many documents, as bytes. Returns milliseconds for exactly
/// so many.
fn stream_ms(bank: &Bank, documents: u64) -> f64 {
    let most = STREAMED.min(documents);
    let slots = u32::try_from(u64::from(SLOTS) * most / documents).expect("part of the slots");
    let first = (SLOTS - slots) / 2;
    let began = Instant::now();
    let (mut seen, mut bytes) = (0u64, 0);
    for document in bank.store.stream(SlotId(first)..=SlotId(first + slots - 1)) {
        bytes += document.expect("reads").to_bytes().len();
        seen += 1;
    }
    black_box(bytes);
    began.elapsed().as_secs_f64() * 1e3 * most as f64 / seen as f64
}

/// Microseconds for a document that has not changed.
fn sync_us(bank: &Bank, documents: u64) -> f64 {
    let name = |number| notes::name(&notes::space(), notes::mixed(number) % documents);
    let held = |number| {
        let name = name(number);
        let document = bank.store.get(&name).expect("reads").expect("it is there");
        (name, Held::of(&document))
    };
    let asked: Vec<_> = (0..SYNCS).map(held).collect();
    let began = Instant::now();
    for (name, held) in &asked {
        let update = bank.store.update_for(name, Some(held)).expect("answers");
        assert!(matches!(black_box(update), Update::Unchanged { .. }), "nothing changed");
    }
    began.elapsed().as_secs_f64() * 1e6 / SYNCS as f64
}

/// Memory of this process, in bytes.
fn memory() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux says it");
    line.trim_end_matches("kB").trim().parse::<u64>().expect("a number") * 1024
}

pub fn measure(options: &Options) -> Vec<(String, Value)> {
    let folder = tempfile::tempdir_in(&options.folder).expect("a folder can be made");
    let (mut opens, mut streams, mut syncs) = (Vec::new(), Vec::new(), Vec::new());
    let documents = options.documents;
    let mut memory_bytes = 0;
    for round in 0..options.rounds {
        eprintln!("{documents} documents, kill {} of {}", round + 1, options.rounds);
        fill_and_kill(folder.path(), documents);
        let before = memory();
        let began = Instant::now();
        let bank = Bank::open(folder.path(), documents);
        opens.push(began.elapsed().as_secs_f64() * 1e3);
        // Later rounds use again what this one gives back.
        memory_bytes = memory_bytes.max(memory().saturating_sub(before));
        assert_eq!(bank.store.len() as u64, documents, "nothing is lost");
        streams.push(stream_ms(&bank, documents));
        syncs.push(sync_us(&bank, documents));
        bank.close();
    }
    let files = std::fs::read_dir(folder.path().join("records")).expect("a folder");
    let bytes: u64 = files.filter_map(|file| Some(file.ok()?.metadata().ok()?.len())).sum();
    [
        ("scan_30000_ms", median(streams)),
        ("open_after_kill_ms", median(opens)),
        ("sync_unchanged_us", median(syncs)),
        ("bytes_per_document", (bytes / documents.max(1)) as f64),
        ("memory_per_document", (memory_bytes / documents.max(1)) as f64),
    ]
    .map(|(name, figure)| (name.to_owned(), rounded(figure)))
    .into()
}
