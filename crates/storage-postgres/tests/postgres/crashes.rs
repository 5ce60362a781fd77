//! Servers that are killed, connections that are lost, processes that are killed.

use crate::proxy::{Cut, Proxy};
use crate::server::PostgresServer;
use crate::workload::{Expected, newest, writes};
use crate::{open_at, opening, told};
use rota_storage::{EXIT_STATUS, Engine, KvWrite, NotQueued, Writer};
use rota_storage_postgres::{PostgresEngine, Waits};
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
/// How many submissions wait in the child.
const QUEUE: NonZeroUsize = NonZeroUsize::new(32).expect("not zero");

#[test]
fn a_commit_whose_answer_was_lost_is_found_and_not_done_twice() {
    let server = PostgresServer::start();
    let proxy = Proxy::start(server.port());
    let folder = tempfile::tempdir().expect("a folder");
    let mut engine = open_at(&server.url_at(proxy.port), folder.path()).expect("opens");
    let mut expected = Expected::default();
    for lsn in 1..=6 {
        let cut = if lsn % 2 == 0 { Cut::BehindCommit } else { Cut::BeforeCommit };
        proxy.cut_at_commit(cut);
        engine.commit(&writes(lsn)).expect("it is known in the end");
        expected.check(&mut engine, lsn..=lsn);
    }
    assert_eq!(proxy.cuts(), 6, "each commit was cut off once");
    assert_eq!(server.psql(r#"SELECT batch, opened FROM "rota/test/m7".meta"#), "6|1");
}

#[test]
fn a_commit_that_nobody_can_be_asked_about_fails_in_time_and_ends_the_engine() {
    let server = PostgresServer::start();
    let proxy = Proxy::start(server.port());
    let folder = tempfile::tempdir().expect("a folder");
    let mut opening = opening(&server.url_at(proxy.port));
    opening.waits = Waits { commit: Duration::from_secs(2), ..opening.waits };
    let mut engine = PostgresEngine::open(folder.path(), opening).expect("opens");
    engine.commit(&writes(1)).expect("commits");
    proxy.cut_at_commit(Cut::BehindCommit);
    proxy.shut();
    let began = Instant::now();
    let error = told(engine.commit(&writes(2)));
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert!(error.contains("no answer within 2 s") && error.contains("rota/test/m7"), "{error}");
    assert!(told(engine.get(b"a")).contains("given up"), "it refuses everything");
    drop(engine);
    // Only a new start tells: it was there.
    let mut engine = open_at(&server.url(), folder.path()).expect("opens");
    Expected::default().check(&mut engine, 1..=2);
}

#[test]
fn a_server_that_hangs_is_given_up_in_time() {
    let server = PostgresServer::start();
    let proxy = Proxy::start(server.port());
    let folder = tempfile::tempdir().expect("a folder");
    let mut opening = opening(&server.url_at(proxy.port));
    opening.waits = Waits { commit: Duration::from_secs(2), ..opening.waits };
    let mut engine = PostgresEngine::open(folder.path(), opening).expect("opens");
    engine.commit(&writes(1)).expect("commits");
    proxy.mute();
    let began = Instant::now();
    let error = told(engine.commit(&writes(2)));
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert!(error.contains("no answer within 2 s"), "{error}");
}

#[test]
fn a_role_that_would_not_wait_for_the_sync_is_made_to() {
    let mut server = PostgresServer::start();
    server.psql("ALTER ROLE rota SET synchronous_commit = off");
    let folder = tempfile::tempdir().expect("a folder");
    for lsn in 1..=5 {
        let mut engine = open_at(&server.url(), folder.path()).expect("opens");
        engine.commit(&writes(lsn)).expect("commits");
        server.kill();
        server.begin();
        drop(engine);
        let mut engine = open_at(&server.url(), folder.path()).expect("opens");
        Expected::default().check(&mut engine, lsn..=lsn);
    }
}

#[test]
fn a_server_that_is_killed_and_starts_again_loses_nothing_and_the_engine_goes_on() {
    let mut server = PostgresServer::start();
    let folder = tempfile::tempdir().expect("a folder");
    let mut engine = open_at(&server.url(), folder.path()).expect("opens");
    let mut expected = Expected::default();
    let (sender, committed) = sync_channel::<u64>(10_000);
    let worker = thread::spawn(move || {
        for lsn in 1..=400 {
            engine.commit(&writes(lsn)).expect("the server comes back in time");
            sender.send(lsn).expect("the test listens");
        }
        engine
    });
    for _ in 0..4 {
        for _ in 0..60 {
            committed.recv_timeout(PATIENCE).expect("it goes on");
        }
        server.kill();
        server.begin();
    }
    let mut engine = worker.join().expect("it ends well");
    expected.check(&mut engine, 400..=400);
    drop(engine);
    let mut engine = open_at(&server.url(), folder.path()).expect("opens");
    Expected::default().check(&mut engine, 400..=400);
}

#[test]
fn a_scan_goes_on_behind_the_last_record_when_its_connection_is_lost() {
    let mut server = PostgresServer::start();
    let folder = tempfile::tempdir().expect("a folder");
    let mut engine = open_at(&server.url(), folder.path()).expect("opens");
    // More than the buffers on the way hold.
    let batch: Vec<_> =
        (0..400u32).map(|it| KvWrite::put(it.to_be_bytes(), vec![7; 100_000])).collect();
    engine.commit(&batch).expect("commits");
    let mut keys = Vec::new();
    let visit = &mut |key: &[u8], _: &[u8]| {
        keys.push(u32::from_be_bytes(key.try_into().expect("four bytes")));
        if keys.len() == 5 {
            server.kill();
            server.begin();
        }
        std::ops::ControlFlow::Continue(())
    };
    engine.scan_all(visit).expect("it goes on");
    assert_eq!(keys, (0..400).collect::<Vec<_>>());
}

/// Not a test: the child's program. It commits for ever.
#[test]
#[ignore = "run as a child by the tests of this program"]
fn child() {
    let variable = |name| std::env::var(name).expect("the parent sets it");
    let mut opening = opening(&variable("ROTA_TEST_URL"));
    opening.waits.commit = Duration::from_secs(5);
    let engine = PostgresEngine::open(Path::new(&variable("ROTA_TEST_FOLDER")), opening);
    let mut engine = engine.unwrap_or_else(|error| {
        eprintln!("{}", told::<()>(Err(error)));
        std::process::exit(3)
    });
    let mut lsn = newest(&mut engine);
    say(&format!("open {lsn}"));
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

/// The child. It does not outlive this.
pub struct Running {
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
    pub fn start(url: &str, folder: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", "crashes::child", "--ignored", "--nocapture"]);
        command.env("ROTA_TEST_URL", url).env("ROTA_TEST_FOLDER", folder);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("starts");
        let out = BufReader::new(child.stdout.take().expect("piped"));
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

    pub fn wait_for_open(&self) -> u64 {
        loop {
            let line = self.lines.recv_timeout(PATIENCE).expect("the child opens");
            if let Some(newest) = line.strip_prefix("open ") {
                return newest.parse().expect("a number");
            }
        }
    }

    /// Waits for so many acknowledgements. Gives the last.
    pub fn wait_for(&self, count: u32) -> u64 {
        let mut last = None;
        for _ in 0..count {
            let line = self.lines.recv_timeout(PATIENCE).expect("the child works");
            last = acknowledged(&line).or(last);
        }
        last.expect("one at least")
    }

    /// The last acknowledgement until the child ended.
    pub fn rest(&self) -> Option<u64> {
        let until = Instant::now() + PATIENCE;
        let left = || until.saturating_duration_since(Instant::now());
        let lines = std::iter::from_fn(|| self.lines.recv_timeout(left()).ok());
        lines.filter_map(|line| acknowledged(&line)).last()
    }

    pub fn kill(&mut self) {
        self.child.kill().expect("kills");
        self.child.wait().expect("ends");
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its own end: how, and what it said.
    pub fn ended(&mut self) -> (ExitStatus, String) {
        let until = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                break status;
            }
            assert!(Instant::now() < until, "the child goes on");
            thread::yield_now();
        };
        let mut why = String::new();
        let mut err = self.child.stderr.take().expect("piped");
        err.read_to_string(&mut why).expect("text");
        (status, why)
    }
}

fn acknowledged(line: &str) -> Option<u64> {
    line.strip_prefix("acknowledged ").map(|number| number.parse().expect("a number"))
}

#[test]
fn a_process_that_is_killed_again_and_again_loses_nothing_acknowledged() {
    let server = PostgresServer::start();
    let folder = tempfile::tempdir().expect("a folder");
    let mut acknowledged = 0;
    for round in 1..=8 {
        let mut running = Running::start(&server.url(), folder.path());
        let began = running.wait_for_open();
        assert!(began >= acknowledged, "round {round}: {began} of {acknowledged}");
        let before = running.wait_for(5 * round);
        running.kill();
        acknowledged = running.rest().unwrap_or(before);
    }
    let mut engine = open_at(&server.url(), folder.path()).expect("opens");
    let most = acknowledged + 2 * QUEUE.get() as u64;
    Expected::default().check(&mut engine, acknowledged..=most);
    assert!(acknowledged > 40, "hardly anything was written");
}

#[test]
fn a_process_whose_server_is_gone_ends_in_time_and_nothing_acknowledged_is_lost() {
    let mut server = PostgresServer::start();
    let folder = tempfile::tempdir().expect("a folder");
    let mut running = Running::start(&server.url(), folder.path());
    running.wait_for_open();
    let before = running.wait_for(10);
    server.kill();
    let acknowledged = running.rest().unwrap_or(before);
    let (status, why) = running.ended();
    assert_eq!(status.code(), Some(EXIT_STATUS), "{why}");
    assert!(why.contains("a commit failed") && why.contains("no answer within 5 s"), "{why}");
    server.begin();
    let mut engine = open_at(&server.url(), folder.path()).expect("opens");
    let most = acknowledged + 2 * QUEUE.get() as u64;
    Expected::default().check(&mut engine, acknowledged..=most);
}
