//! Programs that try to run on after their session, and to reach what judges them.

mod clean_start;
mod node;

use node::{Kind, Ring, cannot};
use rota_client::v1::SessionState;
use rota_tests::processes::{self, Process};
use rota_tests::sessions::{becomes, read};
use rota_tests::{Launched, PATIENCE, eventually, ringctl, run_to_end, skipped};
use rustix::process::Signal;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

/// Leaves a child in a session of its own without any environment, waits for a file `go`, and then kills
/// whatever it can kill that stands above it. The child's last argument is that of this program.
const KILLS_ITS_KEEPER: &str = r#"
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    line = [sys.executable, "-c", "import time; time.sleep(1000)", sys.argv[1]]
    os.execve(sys.executable, line, {})
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
while not os.path.exists("go"):
    time.sleep(0.02)
try:
    os.kill(os.getppid(), signal.SIGKILL)
except OSError as error:
    print("refused", error, flush=True)
print("tried", flush=True)
time.sleep(1000)
"#;

/// Waits for a file `go`, kills agent and guardian, and writes that it may run for ever.
const WRITES_THE_LEASE: &str = r#"
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
while not os.path.exists("go"):
    time.sleep(0.02)
data = os.environ["ROTA_NODE_DATA"]
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        line = open(f"/proc/{pid}/cmdline", "rb").read().split(b"\0")
        words = open(f"/proc/{pid}/environ", "rb").read().split(b"\0")
    except OSError:
        words = []
    # An agent names its folder in its command line, a guardian in its environment.
    of_agent = line[1:2] == [b"run"] and data.encode() in line
    of_guardian = line[1:2] == [b"guardian"] and b"ROTA_NODE_DATA=" + data.encode() in words
    if of_agent or of_guardian:
        try:
            os.kill(int(pid), signal.SIGKILL)
            print("killed", pid, flush=True)
        except OSError as error:
            print("refused", error, flush=True)
try:
    with open(data + "/forged", "w") as forged:
        forged.write("9000000000000 9000000000000\n")
    os.rename(data + "/forged", data + "/lease")
    print("wrote", flush=True)
except OSError as error:
    print("refused", error, flush=True)
print("tried", flush=True)
time.sleep(1000)
"#;

#[tokio::test]
async fn a_program_that_kills_its_keeper_leaves_nothing_behind_when_it_is_told_failed() {
    let ring = Ring::start().await;
    ring.class("escape", Kind::None, KILLS_ITS_KEEPER);
    let node = ring.node(Kind::None, &[]).await;
    let mark = ring.folder.at("mark");
    ring.opened("e", "escape", &mark).await;
    assert!(ring.with_mark(&mark).len() >= 2, "the program and its child");
    fs::write(ring.session("e").join("work/go"), "").unwrap();
    let ended = becomes(&ring.client, "e", SessionState::Failed).await;
    assert_eq!(ring.with_mark(&mark), vec![], "told {ended:?}");
    assert_eq!(node.end().await, Some(0));
    ring.end().await;
}

async fn cannot_kill_its_keeper_and_ends_with_it(kind: Kind, name: &str) {
    if cannot(kind, name) {
        return;
    }
    let ring = Ring::start().await;
    ring.class("escape", kind, KILLS_ITS_KEEPER);
    let node = ring.node(kind, &["--sandbox-min", "basic"]).await;
    assert_eq!(node.told("sandbox"), "basic");
    let mark = ring.folder.at("mark");
    ring.opened("e", "escape", &mark).await;
    let list = ringctl(ring.manager.told("grpc"), &["node", "list", "-o", "json"]).await.json();
    assert_eq!(list["nodes"][0]["sandbox"], "basic", "{list}");
    ring.tries("e").await;
    let all = processes::of_folder(ring.folder.path());
    let keeper = all.into_iter().find(Process::is_keeper).expect("its keeper runs");
    assert_eq!(read(&ring.client, "e").await.unwrap().state(), SessionState::Ready);
    // Somebody else does it: nothing of the program lives on.
    keeper.signal(Signal::KILL);
    let ended = becomes(&ring.client, "e", SessionState::Failed).await;
    assert_eq!(ring.with_mark(&mark), vec![], "told {ended:?}");

    // And asked to end, it does within its grace, with its child.
    ring.opened("f", "escape", &mark).await;
    assert!(ring.with_mark(&mark).len() >= 2);
    ring.closed("f").await;
    assert_eq!(ring.with_mark(&mark), vec![]);

    // Agent and keeper are killed: by the guardian.
    ring.opened("g", "escape", &mark).await;
    let mut victims = processes::of_folder(ring.folder.path());
    victims.retain(|it| it.is_keeper() || it.is_agent());
    assert_eq!(victims.len(), 2, "{victims:?}");
    processes::cut_power(&victims).await;
    eventually("nothing of the program runs", PATIENCE, async || {
        let left = ring.with_mark(&mark);
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
    drop(node);
    ring.end().await;
}

#[tokio::test]
async fn a_program_with_a_user_of_its_own_cannot_kill_its_keeper_and_ends_with_it() {
    let name = "a_program_with_a_user_of_its_own_cannot_kill_its_keeper_and_ends_with_it";
    cannot_kill_its_keeper_and_ends_with_it(Kind::Basic, name).await;
}

#[tokio::test]
async fn a_program_with_a_user_and_no_namespace_of_its_own_ends_with_its_keeper_all_the_same() {
    let name =
        "a_program_with_a_user_and_no_namespace_of_its_own_ends_with_its_keeper_all_the_same";
    cannot_kill_its_keeper_and_ends_with_it(Kind::BasicAlone, name).await;
}

#[tokio::test]
async fn the_next_agent_ends_what_a_user_left_when_all_that_knew_of_it_was_killed() {
    let name = "the_next_agent_ends_what_a_user_left_when_all_that_knew_of_it_was_killed";
    if cannot(Kind::BasicAlone, name) {
        return;
    }
    let ring = Ring::start().await;
    ring.class("escape", Kind::BasicAlone, KILLS_ITS_KEEPER);
    let node = ring.node(Kind::BasicAlone, &[]).await;
    let mark = ring.folder.at("mark");
    ring.opened("e", "escape", &mark).await;
    let mut victims = processes::of_folder(ring.folder.path());
    victims.retain(is_of_the_node);
    assert_eq!(victims.len(), 3, "{victims:?}");
    processes::cut_power(&victims).await;
    let child = ring.with_mark(&mark);
    assert!(!child.is_empty(), "without a namespace nobody is left who could end it");
    drop(node);
    let node = ring.node(Kind::BasicAlone, &[]).await;
    eventually("nothing of the program runs", PATIENCE, async || {
        let left = ring.with_mark(&mark);
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
    assert_eq!(node.end().await, Some(0));
    ring.end().await;
}

/// A process of the node itself.
fn is_of_the_node(it: &Process) -> bool {
    it.is_keeper() || it.is_agent() || it.line.get(1).is_some_and(|word| word == "guardian")
}

#[tokio::test]
async fn a_program_with_a_user_of_its_own_ends_with_keeper_agent_and_guardian_at_once() {
    let name = "a_program_with_a_user_of_its_own_ends_with_keeper_agent_and_guardian_at_once";
    if cannot(Kind::Basic, name) {
        return;
    }
    let ring = Ring::start().await;
    ring.class("escape", Kind::Basic, KILLS_ITS_KEEPER);
    let node = ring.node(Kind::Basic, &["--log", "info"]).await;
    if fs::read_to_string(&node.log).unwrap().contains("pid_namespace=false") {
        skipped(name, "this machine lets nobody make a pid namespace");
        assert_eq!(node.end().await, Some(0));
        return ring.end().await;
    }
    let mark = ring.folder.at("mark");
    ring.opened("e", "escape", &mark).await;
    assert!(ring.with_mark(&mark).len() >= 2);
    let mut victims = processes::of_folder(ring.folder.path());
    victims.retain(is_of_the_node);
    assert_eq!(victims.len(), 3, "{victims:?}");
    processes::cut_power(&victims).await;
    // Nobody of Rota is left: the kernel does it.
    eventually("nothing of the program runs", PATIENCE, async || {
        let left = ring.with_mark(&mark);
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
    drop(node);
    ring.end().await;
}

#[tokio::test]
async fn a_lease_that_a_program_wrote_is_not_believed() {
    let ring = Ring::start().await;
    ring.class("forger", Kind::None, WRITES_THE_LEASE);
    let node = ring.node(Kind::None, &[]).await;
    let mark = ring.folder.at("mark");
    ring.opened("f", "forger", &mark).await;
    let said = ring.tries("f").await;
    assert!(said.contains("killed") && said.contains("wrote"), "{said}");
    assert!(
        !ring.with_mark(&mark).is_empty(),
        "it runs on until the lease that it began with ends"
    );
    becomes(&ring.client, "f", SessionState::Lost).await;
    assert_eq!(ring.with_mark(&mark), vec![], "a second life could begin");
    drop(node);
    ring.end().await;
}

async fn reaches_neither_agent_nor_guardian_nor_lease(kind: Kind, name: &str) {
    if cannot(kind, name) {
        return;
    }
    let ring = Ring::start().await;
    ring.class("forger", kind, WRITES_THE_LEASE);
    let node = ring.node(kind, &[]).await;
    let mark = ring.folder.at("mark");
    ring.opened("f", "forger", &mark).await;
    let said = ring.tries("f").await;
    assert!(said.contains("refused") && !said.contains("killed"), "{said}");
    assert!(!said.contains("wrote"), "{said}");
    assert_eq!(read(&ring.client, "f").await.unwrap().state(), SessionState::Ready);
    ring.closed("f").await;
    assert_eq!(ring.with_mark(&mark), vec![]);
    assert_eq!(node.end().await, Some(0));
    ring.end().await;
}

#[tokio::test]
async fn a_program_with_a_user_of_its_own_reaches_neither_agent_nor_guardian_nor_lease() {
    let name = "a_program_with_a_user_of_its_own_reaches_neither_agent_nor_guardian_nor_lease";
    reaches_neither_agent_nor_guardian_nor_lease(Kind::Basic, name).await;
}

#[tokio::test]
async fn a_program_with_a_user_and_no_namespace_of_its_own_reaches_none_of_them_either() {
    let name = "a_program_with_a_user_and_no_namespace_of_its_own_reaches_none_of_them_either";
    reaches_neither_agent_nor_guardian_nor_lease(Kind::BasicAlone, name).await;
}

#[tokio::test]
async fn a_node_refuses_what_it_cannot_keep_a_program_from_and_names_the_way() {
    let ring = Ring::start().await;
    ring.class("escape", Kind::Basic, KILLS_ITS_KEEPER);
    // Below a home that is its owner's alone.
    let home = ring.folder.path().join("home");
    fs::create_dir(&home).unwrap();
    fs::set_permissions(&home, Permissions::from_mode(0o700)).unwrap();
    let root = rustix::process::getuid().is_root();
    let why = if root { "home is of mode 0700" } else { "start it as root" };
    let line = ring.agent("home/n1", &[]);
    let ended = run_to_end("rota-node-agent", &line[1..]).await;
    ended.expect_refusal(2, &["class escape: sandbox is \"basic\"", why]);
    fs::remove_file(ring.folder.at("classes/escape.toml")).unwrap();
    let line = ring.agent("home/n1", &["--sandbox-min", "basic"]);
    let ended = run_to_end("rota-node-agent", &line[1..]).await;
    ended.expect_refusal(2, &["--sandbox-min is basic, which this node cannot do", why]);
    // Without either it runs, and says what it cannot do.
    let line = ring.agent("home/n1", &[]);
    let node = Launched::again(&ring.folder, "n1", &line).await;
    assert_eq!(node.told("sandbox"), "none");
    assert!(fs::read_to_string(&node.log).unwrap().contains(why));
    assert_eq!(node.end().await, Some(0));

    let strict = ring.folder.at("classes/strict.toml");
    let text = "name = \"s\"\nkind = \"program\"\nargv = [\"sh\"]\nsandbox = \"strict\"\n";
    fs::write(&strict, text).unwrap();
    let classes = ring.folder.at("classes");
    let ended = run_to_end("rota-node-agent", &["check", "--classes", &classes]).await;
    ended.expect_refusal(2, &["strict.toml: sandbox is \"strict\", which no node can do yet"]);
    if root {
        fs::write(home.join("tool"), "#!/bin/sh\n").unwrap();
        fs::set_permissions(home.join("tool"), Permissions::from_mode(0o755)).unwrap();
        let tool = ring.folder.at("home/tool");
        let text = format!("name = \"s\"\nkind = \"program\"\nargv = [{tool:?}]\n");
        fs::write(&strict, text).unwrap();
        let ended = run_to_end("rota-node-agent", &["check", "--classes", &classes]).await;
        ended.expect_refusal(2, &["class s: argv[0]", "home is of mode 0700", "chmod o+x"]);
    }
    ring.end().await;
}
