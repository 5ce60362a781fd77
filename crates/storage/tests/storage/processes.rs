//! A child process commits and prints what is acknowledged, until it is killed or its disk fails.

use crate::failing_disk::{FailingDisk, Fault};
use crate::workload::{Expected, newest, writes};
use crate::{ENGINES, open};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rota_storage::{EXIT_STATUS, Engine, EngineError, EngineKind, NotQueued, RealDisk, Writer};
use std::io::{BufRead, BufReader, Read, Write as _};
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
/// How many submissions wait in the child.
const QUEUE: NonZeroUsize = NonZeroUsize::new(32).expect("not zero");

/// Not a test: the child's program. It commits for ever.
#[test]
#[ignore = "run as a child by the tests of this file"]
fn child() {
    let variable = |name: &str| std::env::var(name).expect("the parent sets it");
    let folder = variable("ROTA_TEST_FOLDER");
    let kind = EngineKind::parse(&variable("ROTA_TEST_ENGINE")).expect("an engine");
    let disk = match variable("ROTA_TEST_FAULT").split_once(' ') {
        Some((fault, calls)) => {
            FailingDisk::new(Fault::parse(fault), calls.parse().expect("a number"))
        }
        None => FailingDisk::sound(),
    };
    let mut engine = match open(std::sync::Arc::new(disk), Path::new(&folder), kind) {
        Ok(engine) => engine,
        Err(error) => {
            eprintln!("{error}: {:?}", std::error::Error::source(&error));
            std::process::exit(3);
        }
    };
    let mut lsn = newest(&mut engine);
    say(&format!("open {lsn}"));
    // One wake-up is enough: it says that there is room again.
    let (sender, room) = sync_channel(1);
    let writer = Writer::spawn(engine, QUEUE, move |lsn| {
        say(&format!("acknowledged {lsn}"));
        let _ = sender.try_send(());
    });
    let writer = writer.expect("a thread");
    loop {
        lsn += 1;
        let mut waiting = writes(lsn);
        while let Err(refused) = writer.try_submit(lsn, waiting) {
            let NotQueued::Full(back) = refused else { return };
            waiting = back;
            let _ = room.recv_timeout(PATIENCE);
        }
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // Nobody listens any more when the parent failed; it kills this process.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

struct Running {
    child: Child,
    lines: Receiver<String>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    fn start(folder: &Path, kind: EngineKind, fault: Option<(Fault, u64)>) -> Self {
        let fault = fault.map(|(fault, calls)| format!("{} {calls}", fault.as_str()));
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "processes::child", "--ignored", "--nocapture"])
            .env("ROTA_TEST_FOLDER", folder)
            .env("ROTA_TEST_ENGINE", kind.as_str())
            .env("ROTA_TEST_FAULT", fault.unwrap_or_default())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        // The child is to be held up by its disk and not by this reader.
        let (sender, lines) = sync_channel(100_000);
        thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self { child, lines }
    }

    fn wait_for_open(&self) -> u64 {
        loop {
            let line = self.lines.recv_timeout(PATIENCE).expect("the child opens its folder");
            if let Some(lsn) = line.strip_prefix("open ") {
                return lsn.parse().expect("a number");
            }
        }
    }

    /// Waits for a number of acknowledgements. Returns the last.
    fn wait_for(&self, acknowledgements: u32) -> Option<u64> {
        let mut last = None;
        for _ in 0..acknowledgements {
            let line = self.lines.recv_timeout(PATIENCE).expect("the child works");
            last = acknowledged(&line).or(last);
        }
        last
    }

    /// Everything that was acknowledged before the child ended.
    fn rest(&self) -> Option<u64> {
        let deadline = Instant::now() + PATIENCE;
        let mut last = None;
        while let Ok(line) =
            self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            last = acknowledged(&line).or(last);
        }
        last
    }

    fn ended(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status;
            }
            assert!(Instant::now() < deadline, "the child goes on");
            thread::yield_now();
        }
    }
}

fn acknowledged(line: &str) -> Option<u64> {
    line.strip_prefix("acknowledged ").map(|lsn| lsn.parse().expect("a number"))
}

fn open_real(folder: &Path, kind: EngineKind) -> Box<dyn Engine> {
    open(std::sync::Arc::new(RealDisk), folder, kind).expect("opens")
}

fn survives_kills(kind: EngineKind, rounds: u32) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut random = ChaCha8Rng::seed_from_u64(5);
    let mut expected = Expected::default();
    let mut acknowledged = 0;
    for round in 0..rounds {
        let mut running = Running::start(folder.path(), kind, None);
        let began = running.wait_for_open();
        assert!(began >= acknowledged, "round {round}: {began} of {acknowledged}");
        let before = running.wait_for(random.random_range(1..60));
        running.child.kill().expect("kills");
        running.ended();
        acknowledged = running.rest().or(before).unwrap_or(acknowledged);
        // The child may have submitted a full queue and a batch beyond the last acknowledgement.
        let most = acknowledged + 2 * QUEUE.get() as u64;
        // Every other round the child itself is the next to open the folder.
        if round % 2 == 0 {
            expected.check(&mut *open_real(folder.path(), kind), acknowledged..=most);
        }
    }
    expected.check(&mut *open_real(folder.path(), kind), acknowledged..=u64::MAX);
    assert!(acknowledged > u64::from(rounds), "hardly anything was written");
}

#[test]
fn the_log_loses_nothing_acknowledged_when_its_process_is_killed() {
    survives_kills(ENGINES[0], 16);
}

#[test]
fn redb_loses_nothing_acknowledged_when_its_process_is_killed() {
    survives_kills(ENGINES[1], 12);
}

fn ends_when_the_disk_fails(kind: EngineKind) {
    for fault in [Fault::Sync, Fault::Write] {
        for calls in [20, 45, 90, 200, 333] {
            let folder = tempfile::tempdir().expect("a folder");
            let mut running = Running::start(folder.path(), kind, Some((fault, calls)));
            let acknowledged = running.rest().unwrap_or(0);
            let status = running.ended();
            let mut why = String::new();
            let mut err = running.child.stderr.take().expect("piped");
            err.read_to_string(&mut why).expect("text");
            assert_eq!(status.code(), Some(EXIT_STATUS), "{kind} {fault:?} {calls}: {why}");
            assert!(why.contains("a commit failed"), "{why}");
            let folder_text = folder.path().to_str().expect("text");
            assert!(why.contains(folder_text), "it names the file: {why}");
            let most = acknowledged + 2 * QUEUE.get() as u64;
            let mut engine = open_real(folder.path(), kind);
            Expected::default().check(&mut *engine, acknowledged..=most);
            engine.commit(&writes(1)).expect("the mended disk takes commits");
        }
    }
}

#[test]
fn a_process_over_the_log_ends_when_its_disk_fails_and_nothing_acknowledged_is_lost() {
    ends_when_the_disk_fails(ENGINES[0]);
}

#[test]
fn a_process_over_redb_ends_when_its_disk_fails_and_nothing_acknowledged_is_lost() {
    ends_when_the_disk_fails(ENGINES[1]);
}

#[test]
fn a_folder_that_another_process_has_open_is_refused_until_that_one_ends() {
    for kind in ENGINES {
        let folder = tempfile::tempdir().expect("a folder");
        let mut running = Running::start(folder.path(), kind, None);
        running.wait_for_open();
        let error = open(std::sync::Arc::new(RealDisk), folder.path(), kind).map(drop);
        assert!(matches!(error, Err(EngineError::InUse { .. })), "{error:?}");
        running.child.kill().expect("kills");
        running.ended();
        drop(open_real(folder.path(), kind));
    }
}
