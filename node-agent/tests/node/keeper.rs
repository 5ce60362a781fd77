//! A keeper alone, with the test as its agent.

use crate::waiting::{LIMIT, numbers_in, runs, until, until_gone};
use rota_model::{Epoch, LogPos, Namespace, Seq, SessionId, SessionKey, Token};
use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Stdio;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// What a pipe holds, as the kernel makes it.
const PIPE_BYTES: usize = 64 * 1024;

fn boottime_ms() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    u64::try_from(now.tv_sec * 1000 + now.tv_nsec / 1_000_000).unwrap()
}

/// A keeper that this test started.
struct Keeper {
    child: Child,
    input: ChildStdin,
    news: Lines<BufReader<ChildStdout>>,
    folder: TempDir,
}

impl Keeper {
    /// Starts `sh -c script` under a keeper; `change` alters the order.
    async fn of(script: &str, change: impl FnOnce(&mut Value)) -> Self {
        let folder = TempDir::new().unwrap();
        let log = File::create(folder.path().join("keeper.log")).unwrap();
        Self::with_log(folder, log, script, change).await
    }

    /// The same with its log there.
    async fn with_log(
        folder: TempDir,
        log: File,
        script: &str,
        change: impl FnOnce(&mut Value),
    ) -> Self {
        let path = folder.path();
        write_lease(path.join("lease"), 60_000, 60_000);
        let session = SessionKey::new(Namespace::default_space(), SessionId::parse("s").unwrap());
        let token = Token(LogPos::new(Epoch(3), Seq(4)));
        let mut order = json!({
            "session": session, "token": token, "slot": 7, "request": "the-request-of-mine",
            "folder": path, "argv": ["sh", "-c", script], "cwd": path,
            "env": { "PATH": std::env::var("PATH").unwrap() },
            "grace_ms": 200, "stop": { "signal": 15, "main_only": false }, "lease": path.join("lease"), "lease_ms_max": 100_000, "output_bytes_max": 1_000_000, "disk_reserve_bytes": 0,
            "ready_line": null, "agent": std::process::id(), "bounds": {"groups": []},
        });
        change(&mut order);
        let mut keeper = Self::without_order(folder, log);
        keeper.input.write_all(format!("{order}\n").as_bytes()).await.unwrap();
        keeper
    }

    /// One that waits for its order.
    fn without_order(folder: TempDir, log: File) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_rota-node-agent"))
            .args(["keeper", "--log", "debug", "--log-format", "json"])
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let news = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, input, news, folder }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    async fn news(&mut self) -> Value {
        let line = tokio::time::timeout(LIMIT, self.news.next_line()).await;
        let line = line.expect("news in time").unwrap().expect("news before the end");
        serde_json::from_str(&line).unwrap()
    }

    async fn started(&mut self) -> i32 {
        let news = self.news().await;
        let pid = news["started"]["pid"].as_i64().unwrap_or_else(|| panic!("{news}"));
        i32::try_from(pid).unwrap()
    }

    async fn stop(&mut self, grace_ms: u64) {
        let line = format!("{}\n", json!({ "stop": { "grace_ms": grace_ms } }));
        self.input.write_all(line.as_bytes()).await.unwrap();
    }

    /// The keeper's last words; it must be gone by itself after them.
    async fn ended(mut self) -> Value {
        let news = self.news().await;
        let status = tokio::time::timeout(LIMIT, self.child.wait()).await;
        assert!(status.expect("an end in time").unwrap().success());
        assert!(!self.file("pids.json").exists(), "the pid file is removed");
        news["ended"].clone()
    }
}

/// What a keeper logged, each with the request that caused its session.
fn logged(log: &str) -> Vec<Value> {
    let line = |line: &str| -> Value {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"));
        let span = &line["span"];
        assert_eq!(
            (&span["request"], &span["session"]),
            (&json!("the-request-of-mine"), &json!("default/s"))
        );
        line
    };
    log.lines().map(line).collect()
}

fn write_lease(path: PathBuf, term_in_ms: u64, kill_in_ms: u64) {
    let now = boottime_ms();
    let fresh = path.with_extension("test");
    let (term_at, kill_at) = (now + term_in_ms, now + kill_in_ms);
    // Slot 7 is the session's; the other slots are granted for long.
    let far = now + 90_000;
    let text = format!("0 6 {far} {far}\n7 7 {term_at} {kill_at}\n8 1023 {far} {far}\n");
    fs::write(&fresh, text).unwrap();
    fs::rename(fresh, path).unwrap();
}

fn kill(pid: i32) {
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
}

#[tokio::test]
async fn a_stop_ends_the_group_with_grandchildren_that_ignore_it() {
    let script = r#"
        trap "" TERM
        (trap "" TERM; echo $(exec sh -c 'echo $PPID') >> pids; while :; do sleep 1; done) &
        sleep 1000 & echo $! >> pids
        echo $$ >> pids; wait; wait"#;
    let mut keeper = Keeper::of(script, |_| {}).await;
    let pid = keeper.started().await;
    let pids = numbers_in(&keeper.file("pids"), 3).await;
    assert!(pids.contains(&pid) && pids.iter().all(|it| runs(*it)));
    keeper.stop(100).await;
    let ended = keeper.ended().await;
    assert_eq!(ended, json!({ "exit": { "signal": 9 }, "cause": "stop" }));
    assert!(!pids.iter().any(|it| runs(*it)), "told only when all are gone");
}

#[tokio::test]
async fn a_program_that_obeys_is_not_killed() {
    let script = "trap 'exit 7' TERM; echo $$ > pids; while :; do sleep 0.05; done";
    let mut keeper = Keeper::of(script, |_| {}).await;
    keeper.started().await;
    numbers_in(&keeper.file("pids"), 1).await;
    keeper.stop(60_000).await;
    assert_eq!(keeper.ended().await, json!({ "exit": { "code": 7 }, "cause": "stop" }));
}

#[tokio::test]
async fn what_a_program_leaves_behind_is_ended_with_it_even_outside_its_group() {
    let script = r#"
        sleep 1000 & echo $! >> pids
        setsid sh -c 'echo $$ >> pids; exec sleep 1000' &
        setsid sh -c 'trap "" TERM; echo $$ >> pids; while :; do sleep 1; done' &
        while [ "$(wc -l < pids)" -lt 3 ]; do sleep 0.01; done
        exit 3"#;
    let mut keeper = Keeper::of(script, |_| {}).await;
    keeper.started().await;
    let pids = numbers_in(&keeper.file("pids"), 3).await;
    assert_eq!(keeper.ended().await, json!({ "exit": { "code": 3 }, "cause": "own" }));
    assert!(!pids.iter().any(|it| runs(*it)), "told only when all are gone");
}

#[tokio::test]
async fn a_program_that_cannot_be_run_is_told_with_its_name() {
    let change = |order: &mut Value| order["argv"] = json!(["no-such-program-here", "x"]);
    let mut keeper = Keeper::of("", change).await;
    let news = keeper.news().await;
    let detail = news["failed"]["detail"].as_str().unwrap();
    assert!(detail.contains("no-such-program-here") && detail.contains("No such file"), "{detail}");
    assert!(keeper.child.wait().await.unwrap().success());
}

#[tokio::test]
async fn a_program_dies_with_its_keeper() {
    let mut keeper = Keeper::of("trap '' TERM HUP; while :; do sleep 1; done", |_| {}).await;
    let pid = keeper.started().await;
    keeper.child.start_kill().unwrap();
    until_gone(pid).await;
}

#[tokio::test]
async fn without_a_renewed_lease_a_program_is_asked_and_then_killed() {
    let script = "trap 'echo term' TERM; while :; do sleep 0.02; done";
    let change = |order: &mut Value| {
        write_lease(order["lease"].as_str().unwrap().into(), 700, 1_400);
    };
    let began = boottime_ms();
    let mut keeper = Keeper::of(script, change).await;
    keeper.started().await;
    let out = keeper.file("stdout.log");
    let asked = || fs::read_to_string(&out).is_ok_and(|it| it.contains("term")).then_some(());
    until("the polite signal", asked).await;
    let asked_after_ms = boottime_ms() - began;
    let ended = keeper.ended().await;
    let ended_after_ms = boottime_ms() - began;
    assert_eq!(ended, json!({ "exit": { "signal": 9 }, "cause": "lease" }));
    assert!(asked_after_ms >= 700, "asked after {asked_after_ms} ms");
    assert!(ended_after_ms >= 1_400, "ended after {ended_after_ms} ms");
}

#[tokio::test]
async fn a_renewed_lease_keeps_a_program_running_past_the_old_deadline() {
    let change = |order: &mut Value| {
        write_lease(order["lease"].as_str().unwrap().into(), 500, 600);
    };
    let began = boottime_ms();
    let mut keeper = Keeper::of("while :; do sleep 0.05; done", change).await;
    let pid = keeper.started().await;
    write_lease(keeper.file("lease"), 60_000, 60_000);
    until("the old deadline", || (boottime_ms() > began + 900).then_some(())).await;
    assert!(runs(pid));
    keeper.stop(0).await;
    assert_eq!(keeper.ended().await["cause"], "stop");
}

#[tokio::test]
async fn a_keeper_whose_agent_is_gone_goes_on_until_the_lease_passes() {
    let change = |order: &mut Value| {
        write_lease(order["lease"].as_str().unwrap().into(), 500, 600);
    };
    let mut keeper = Keeper::of("while :; do sleep 0.05; done", change).await;
    let pid = keeper.started().await;
    let began = boottime_ms();
    let Keeper { mut child, input, news, folder } = keeper;
    // Closed pipes are all that a keeper sees of an agent's death.
    drop((input, news));
    assert!(runs(pid));
    assert!(tokio::time::timeout(LIMIT, child.wait()).await.unwrap().unwrap().success());
    assert!(!runs(pid));
    assert!(boottime_ms() <= began + 30_000);
    assert!(folder.path().join("stdout.log").exists());
}

#[tokio::test]
async fn a_keeper_starts_nothing_for_an_agent_that_is_gone_or_without_a_lease() {
    let mut keeper = Keeper::of("exit 0", |order| order["agent"] = json!(1)).await;
    assert_eq!(keeper.news().await["failed"]["detail"], "the agent is gone");
    let change = |order: &mut Value| write_lease(order["lease"].as_str().unwrap().into(), 0, 0);
    let mut keeper = Keeper::of("exit 0", change).await;
    assert_eq!(keeper.news().await["failed"]["detail"], "the lease of its slot has passed");
}

#[tokio::test]
async fn the_newest_output_is_kept_within_its_limit_and_a_ready_line_is_told() {
    let script = "i=0; while [ $i -lt 4000 ]; do echo line $i; i=$((i+1)); done; \
                  echo it is up >&2; while [ ! -e go ]; do sleep 0.01; done; echo the last";
    let change = |order: &mut Value| {
        order["output_bytes_max"] = json!(8192);
        order["ready_line"] = json!("is up");
    };
    let mut keeper = Keeper::of(script, change).await;
    keeper.started().await;
    assert_eq!(keeper.news().await, json!("ready_line"));
    fs::write(keeper.file("go"), "").unwrap();
    let folder = keeper.folder.path().to_owned();
    let (out, old) = (folder.join("stdout.log"), folder.join("stdout.log.1"));
    let news = keeper.news().await;
    assert_eq!(news["ended"]["exit"], json!({ "code": 0 }));
    let (out, old) = (fs::read_to_string(out).unwrap(), fs::read_to_string(old).unwrap());
    assert!(out.ends_with("the last\n"));
    assert!(old.len() + out.len() <= 8192);
    assert_eq!(fs::read_to_string(folder.join("stderr.log")).unwrap(), "it is up\n");
}

#[tokio::test]
async fn a_killed_program_is_told_with_its_signal() {
    let mut keeper = Keeper::of("while :; do sleep 1; done", |_| {}).await;
    let pid = keeper.started().await;
    kill(pid);
    assert_eq!(keeper.ended().await, json!({ "exit": { "signal": 9 }, "cause": "own" }));
}

#[tokio::test]
async fn a_keepers_log_tells_its_request_and_how_its_program_came_to_its_end() {
    let mut keeper = Keeper::of("trap '' TERM; echo up; while :; do sleep 0.02; done", |order| {
        write_lease(order["lease"].as_str().unwrap().into(), 500, 600);
        order["ready_line"] = json!("up");
    })
    .await;
    keeper.started().await;
    assert_eq!(keeper.news().await, json!("ready_line"));
    let file = keeper.file("keeper.log");
    let Keeper { mut child, input, news, folder } = keeper;
    // Nobody reads what it tells any more.
    drop((input, news));
    assert!(tokio::time::timeout(LIMIT, child.wait()).await.unwrap().unwrap().success());
    let log = logged(&fs::read_to_string(file).unwrap());
    let told: Vec<&str> = log.iter().map(|it| it["message"].as_str().unwrap()).collect();
    let wanted = [
        "started",
        "the line that was waited for came",
        "the agent is gone, and the lease decides",
        "asked to end",
        "the time to end is over, and what is left is killed",
        "nothing of it is left",
    ];
    assert_eq!(told, wanted);
    assert_eq!((&log[3]["cause"], &log[5]["exit"]), (&json!("Lease"), &json!("signal 9")));
    drop(folder);
}

#[tokio::test]
async fn a_keeper_whose_log_cannot_be_written_keeps_its_program() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let script = "while [ ! -e go ]; do sleep 0.01; done; exit 3";
    let mut keeper = Keeper::with_log(TempDir::new().unwrap(), full, script, |_| {}).await;
    keeper.started().await;
    fs::write(keeper.file("go"), "").unwrap();
    assert_eq!(keeper.ended().await, json!({ "exit": { "code": 3 }, "cause": "own" }));
}

#[tokio::test]
async fn a_keeper_whose_log_takes_no_more_ends_its_program_all_the_same() {
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(&[0; PIPE_BYTES]).unwrap();
    let stands_still = File::from(OwnedFd::from(writer));
    let script = "trap '' TERM; echo up; while :; do sleep 0.02; done";
    let up = |order: &mut Value| order["ready_line"] = json!("up");
    let mut keeper = Keeper::with_log(TempDir::new().unwrap(), stands_still, script, up).await;
    keeper.started().await;
    assert_eq!(keeper.news().await, json!("ready_line"));
    keeper.stop(100).await;
    assert_eq!(keeper.ended().await, json!({ "exit": { "signal": 9 }, "cause": "stop" }));
    drop(reader);
}

#[tokio::test]
async fn a_keeper_without_an_order_that_it_can_use_says_why_and_ends() {
    let nothing = "no order came within 5 s";
    for (line, why) in [("", nothing), ("no order\n", "expected ident at line 1 column 2")] {
        let folder = TempDir::new().unwrap();
        let log = File::create(folder.path().join("keeper.log")).unwrap();
        let mut keeper = Keeper::without_order(folder, log);
        keeper.input.write_all(line.as_bytes()).await.unwrap();
        let news = keeper.news().await;
        assert_eq!(news["failed"]["detail"], why, "{news}");
        let status = tokio::time::timeout(LIMIT, keeper.child.wait()).await;
        assert!(!status.expect("an end in time").unwrap().success());
    }
}

/// A later agent's connection to a keeper.
struct Later {
    news: Lines<BufReader<OwnedReadHalf>>,
    commands: OwnedWriteHalf,
}

impl Later {
    async fn connect(folder: &TempDir) -> Self {
        let stream = UnixStream::connect(folder.path().join("keeper.sock")).await.unwrap();
        let (reads, commands) = stream.into_split();
        Self { news: BufReader::new(reads).lines(), commands }
    }

    /// `None`: the keeper has let it go.
    async fn news(&mut self) -> Option<Value> {
        let line = tokio::time::timeout(LIMIT, self.news.next_line()).await;
        let line = line.expect("news in time").unwrap()?;
        Some(serde_json::from_str(&line).unwrap())
    }
}

/// What a keeper wrote down.
fn written(folder: &TempDir) -> Vec<Value> {
    let text = fs::read_to_string(folder.path().join("news")).unwrap();
    text.lines().map(|it| serde_json::from_str(it).unwrap()).collect()
}

#[tokio::test]
async fn a_later_agent_hears_everything_again_and_ends_the_program() {
    let script = "echo up; while :; do sleep 0.02; done";
    let mut keeper = Keeper::of(script, |order| order["ready_line"] = json!("up")).await;
    let pid = keeper.started().await;
    assert_eq!(keeper.news().await, json!("ready_line"));
    let Keeper { mut child, input, news, folder } = keeper;
    drop((input, news));
    let told = [json!({ "started": { "pid": pid } }), json!("ready_line")];
    let (mut second, mut third) = (Later::connect(&folder).await, None);
    for number in 0..2 {
        let later = third.as_mut().unwrap_or(&mut second);
        for expected in &told {
            assert_eq!(later.news().await.as_ref(), Some(expected));
        }
        if number == 0 {
            third = Some(Later::connect(&folder).await);
        }
    }
    assert_eq!(second.news().await, None, "the newest takes the place of the one before");
    let mut third = third.unwrap();
    let lines = "{\"lease\":{\"ms_max\":60000}}\n{\"stop\":{\"grace_ms\":60000}}\n";
    third.commands.write_all(lines.as_bytes()).await.unwrap();
    let ended = json!({ "ended": { "exit": { "signal": 15 }, "cause": "stop" } });
    assert_eq!(third.news().await.as_ref(), Some(&ended));
    assert!(tokio::time::timeout(LIMIT, child.wait()).await.unwrap().unwrap().success());
    assert!(!runs(pid));
    assert_eq!(written(&folder), [&told[..], &[ended]].concat(), "each once");
    for name in ["keeper.sock", "pids.json"] {
        assert!(!folder.path().join(name).exists(), "{name} is removed");
    }
}

#[tokio::test]
async fn what_a_keeper_tells_while_no_agent_is_there_is_written_down() {
    let mut keeper = Keeper::of("while [ ! -e go ]; do sleep 0.01; done; exit 3", |_| {}).await;
    let pid = keeper.started().await;
    let Keeper { mut child, input, news, folder } = keeper;
    drop((input, news));
    fs::write(folder.path().join("go"), "").unwrap();
    assert!(tokio::time::timeout(LIMIT, child.wait()).await.unwrap().unwrap().success());
    let ended = json!({ "ended": { "exit": { "code": 3 }, "cause": "own" } });
    assert_eq!(written(&folder), [json!({ "started": { "pid": pid } }), ended]);

    let mut keeper = Keeper::of("exit 0", |order| order["agent"] = json!(1)).await;
    let failed = keeper.news().await;
    assert!(keeper.child.wait().await.unwrap().success());
    assert_eq!(written(&keeper.folder), [failed]);
}

#[tokio::test]
async fn a_later_agent_may_have_a_longer_lease_than_the_one_that_started_the_keeper() {
    let change = |order: &mut Value| {
        write_lease(order["lease"].as_str().unwrap().into(), 500, 600);
        // The other slots go on for 90 s.
        order["lease_ms_max"] = json!(100_000);
    };
    let began = boottime_ms();
    let mut keeper = Keeper::of("while :; do sleep 0.05; done", change).await;
    let pid = keeper.started().await;
    let mut later = Later::connect(&keeper.folder).await;
    later.commands.write_all(b"{\"lease\":{\"ms_max\":400000}}\n").await.unwrap();
    assert!(later.news().await.unwrap()["started"].is_object());
    write_lease(keeper.file("lease"), 300_000, 300_000);
    until("the old deadline", || (boottime_ms() > began + 900).then_some(())).await;
    assert!(runs(pid));
    later.commands.write_all(b"{\"stop\":{\"grace_ms\":0}}\n").await.unwrap();
    assert_eq!(later.news().await.unwrap()["ended"]["cause"], "stop");
}
