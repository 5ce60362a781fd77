//! Programs that try to run on after their session, to reach what judges them, or to read what is not
//! theirs; and what a program is given.

use rota_client::{Client, v1};
use rota_tests::processes::{self, Process};
use rota_tests::sessions::{CALL, becomes, close, open, read};
use rota_tests::{
    Launched, PATIENCE, TestFolder, binary, eventually, http_get, run_to_end, skipped,
};
use rustix::process::Signal;
use serde_json::Value;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use v1::SessionState;

/// Times in which a node is lost soon, and not on a machine that is merely busy: as managers are told.
const MANAGER_TIMES: [&str; 8] = [
    "--renew-ms",
    "500",
    "--lease-term-ms",
    "4000",
    "--lease-kill-ms",
    "5000",
    "--node-lost-ms",
    "7000",
];

/// The same as a node is told them.
const NODE_TIMES: [&str; 6] = ["--renew", "500ms", "--lease-term", "4s", "--lease-kill", "5s"];

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

/// Prints what it is given and what it can reach, and goes on.
const TELLS_WHAT_IT_HAS: &str = r#"
import json, os, resource, sys, time
def refused(what):
    try:
        what()
        return None
    except OSError as error:
        return error.strerror
status = dict(line.split(":\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\t" in line)
mask = os.umask(0)
os.umask(mask)
descriptors = {}
for name in os.listdir("/proc/self/fd"):
    try:
        descriptors[name] = os.readlink("/proc/self/fd/" + name)
    except OSError:
        pass  # That of the list itself.
sessions = os.path.dirname(os.environ["ROTA_FOLDER"])
with open("mine", "w") as mine:
    mine.write("x")
print(json.dumps({
    "environment": dict(os.environ),
    "descriptors": descriptors,
    "terminal": refused(lambda: open("/dev/tty")),
    "mask": oct(mask),
    "core": resource.getrlimit(resource.RLIMIT_CORE),
    "user": os.getresuid(), "group": os.getresgid(), "groups": os.getgroups(),
    "leads": os.getsid(0) == os.getpid() == os.getpgid(0),
    "ignored": int(status["SigIgn"], 16), "blocked": int(status["SigBlk"], 16),
    "no_new_privs": status["NoNewPrivs"].strip(), "capabilities": int(status["CapPrm"], 16),
    "pids": sorted(int(it) for it in os.listdir("/proc") if it.isdigit()),
    "list": refused(lambda: os.listdir(sessions)),
    "read": refused(lambda: open(sys.argv[1]).read()),
    "log": refused(lambda: open(os.environ["ROTA_FOLDER"] + "/stdout.log", "a")),
    "reopen": refused(lambda: open("/dev/stdout", "w")),
    "cwd": os.getcwd(),
}), flush=True)
time.sleep(1000)
"#;

/// Which sandbox a test is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    None,
    Basic,
    /// Basic on a node that may not make namespaces.
    BasicAlone,
}

impl Kind {
    fn text(self) -> &'static str {
        match self {
            Kind::None => "none",
            Kind::Basic | Kind::BasicAlone => "basic",
        }
    }
}

/// True, and noted, when programs cannot get users of their own here.
fn cannot(kind: Kind, test: &str) -> bool {
    if kind == Kind::None || rustix::process::getuid().is_root() {
        return false;
    }
    skipped(test, "programs get users of their own only from root");
    true
}

/// A config store and one manager, and the folder of the test, through which users may pass.
struct Ring {
    folder: TestFolder,
    store: Launched,
    manager: Launched,
    client: Client,
}

impl Ring {
    async fn start() -> Self {
        let folder = TestFolder::new();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o711)).unwrap();
        let line = ["--data", &folder.at("store"), "--cluster", "small"];
        let store = Launched::start(&folder, "store", "rota-config-store", &line).await;
        let data = folder.at("manager");
        let line = ["--data", &data, "--number", "100", "--id", "a", "--ring", "100=a"];
        let shape = ["--replicas", "0", "--cluster", "small", "--config-store"];
        let line = [&line[..], &shape, &[store.told("address")], &MANAGER_TIMES].concat();
        let manager = Launched::start(&folder, "manager", "rota-manager", &line).await;
        eventually("the manager holds its number", PATIENCE, async || {
            let page = http_get(manager.told("http"), "/healthz").await?;
            if page.body.contains("\"claimed\":true") { Ok(()) } else { Err(page.body) }
        })
        .await;
        let client = Client::connect(manager.told("grpc")).expect("the address is good");
        Self { folder, store, manager, client }
    }

    /// Writes a class that runs that Python program, with the attribute `say` as its argument.
    fn class(&self, name: &str, kind: Kind, program: &str) {
        let (script, sandbox) = (self.folder.at(&format!("{name}.py")), kind.text());
        fs::write(&script, program).unwrap();
        fs::set_permissions(&script, Permissions::from_mode(0o644)).unwrap();
        let ready = if program.contains("\"up\"") { "up" } else { "{" };
        let text = format!(
            "name = {name:?}\nkind = \"program\"\nargv = [\"python3\", {script:?}, \"{{attr.say}}\"]\n\
             ready = {{ line = {ready:?} }}\nsandbox = {sandbox:?}\ngrace = \"300ms\"\n\
             env = {{ OF_CLASS = \"{{session}}\" }}\n"
        );
        fs::create_dir_all(self.folder.at("classes")).unwrap();
        fs::write(self.folder.at(&format!("classes/{name}.toml")), text).unwrap();
    }

    /// The command line of an agent in the folder `data`.
    fn agent(&self, data: &str, more: &[&str]) -> Vec<String> {
        let program = binary("rota-node-agent").display().to_string();
        let (data, classes) = (self.folder.at(data), self.folder.at("classes"));
        let line = [&program, "run", "--id", "n1", "--data", &data, "--cluster", "small"];
        let more_of_all = ["--managers", self.manager.told("grpc"), "--classes", &classes];
        let line = [&line[..], &more_of_all, &NODE_TIMES, more].concat();
        line.into_iter().map(str::to_owned).collect()
    }

    /// A node for programs of that kind.
    async fn node(&self, kind: Kind, more: &[&str]) -> Launched {
        let mut line = Vec::new();
        if kind == Kind::BasicAlone {
            line.extend(["setpriv", "--bounding-set=-sys_admin"].map(str::to_owned));
        }
        line.extend(self.agent("n1", more));
        let node = Launched::again(&self.folder, "n1", &line).await;
        if kind == Kind::BasicAlone {
            let log = fs::read_to_string(&node.log).unwrap();
            assert!(log.contains("pid_namespace=false"), "{log}");
        }
        node
    }

    /// Opens a session as soon as the node takes it; `say` is given to its program.
    async fn opened(&self, id: &str, class: &str, say: &str) -> v1::Session {
        let attributes = [("say".to_owned(), say.to_owned())].into();
        let request = v1::OpenRequest { attributes, ..open(id, class) };
        eventually("a node takes a session", PATIENCE, async || {
            let answer = self.client.open(request.clone(), CALL).await;
            let answer = answer.map_err(|error| format!("{error:?}"))?;
            answer.session.ok_or_else(|| "no session".to_owned())
        })
        .await
    }

    /// The folder of a session of the node in the folder `n1`.
    fn session(&self, id: &str) -> PathBuf {
        let sessions = fs::read_dir(self.folder.at("n1/sessions")).unwrap().flatten();
        let begin = format!("{id}.");
        let mut names = sessions.filter(|it| it.file_name().to_string_lossy().starts_with(&begin));
        names.next().expect("a session's folder").path()
    }

    /// Lets a program go on, and waits until it has tried what it wants to try; gives what it printed.
    async fn tries(&self, id: &str) -> String {
        let folder = self.session(id);
        fs::write(folder.join("work/go"), "").unwrap();
        eventually("the program has tried", PATIENCE, async || {
            let said = fs::read_to_string(folder.join("stdout.log")).unwrap_or_default();
            if said.contains("tried") { Ok(said) } else { Err(said) }
        })
        .await
    }

    /// What a program of [`TELLS_WHAT_IT_HAS`] printed.
    fn told(&self, id: &str) -> Value {
        let said = fs::read_to_string(self.session(id).join("stdout.log")).unwrap();
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
    }

    /// Processes that run and have that text in their command line.
    fn with_mark(&self, mark: &str) -> Vec<Process> {
        let mut all = processes::of_folder(self.folder.path());
        all.retain(|it| it.line.iter().any(|word| word == mark));
        all
    }

    async fn closed(&self, id: &str) {
        let answer = self.client.close(close(id), CALL).await.unwrap();
        assert!(answer.finished, "{answer:?}");
    }

    async fn end(self) {
        assert_eq!(self.manager.end().await, Some(0));
        assert_eq!(self.store.end().await, Some(0));
        assert_eq!(processes::of_folder(self.folder.path()), vec![], "processes are left");
    }
}

#[tokio::test]
async fn a_program_that_kills_its_keeper_leaves_nothing_behind_when_it_is_told_closed() {
    let ring = Ring::start().await;
    ring.class("escape", Kind::None, KILLS_ITS_KEEPER);
    let node = ring.node(Kind::None, &[]).await;
    let mark = ring.folder.at("mark");
    ring.opened("e", "escape", &mark).await;
    assert!(ring.with_mark(&mark).len() >= 2, "the program and its child");
    fs::write(ring.session("e").join("work/go"), "").unwrap();
    let ended = becomes(&ring.client, "e", SessionState::Closed).await;
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
    ring.tries("e").await;
    let all = processes::of_folder(ring.folder.path());
    let keeper = all.into_iter().find(Process::is_keeper).expect("its keeper runs");
    assert_eq!(read(&ring.client, "e").await.unwrap().state(), SessionState::Ready);
    // Somebody else does it: nothing of the program lives on.
    keeper.signal(Signal::KILL);
    let ended = becomes(&ring.client, "e", SessionState::Closed).await;
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
async fn the_next_boot_ends_what_a_user_left_when_all_that_knew_of_it_was_killed() {
    let name = "the_next_boot_ends_what_a_user_left_when_all_that_knew_of_it_was_killed";
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
    assert_eq!(ring.with_mark(&mark), vec![], "before it says that it is ready");
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

/// Starts an agent with a terminal, a secret in its environment, an open file of the name that follows,
/// and signals that it ignores: `sh -c THIS sh FILE AGENT...`. What it says goes where it did.
const DIRTY_START: &str = r#"
file=$1; shift; exec 9<"$file"; trap "" HUP USR1
export AWS_SECRET_ACCESS_KEY=hunter2 WANTED=this NOT_WANTED=that ROTA_ADMIN_KEY=secret LANG=C.UTF-8
ulimit -S -c unlimited
exec python3 -c '
import os, pty, signal, sys
out, err = os.dup(1), os.dup(2)
pid, terminal = pty.fork()
if pid == 0:
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.close(out)
    os.close(err)
    os.set_inheritable(9, True)
    os.execv(sys.argv[1], sys.argv[1:])
signal.signal(signal.SIGTERM, lambda *_: os.kill(pid, signal.SIGTERM))
os.close(out)
os.close(err)
_, status = os.waitpid(pid, 0)
sys.exit(os.waitstatus_to_exitcode(status))
' "$@"
"#;

async fn a_program_gets_a_clean_start(kind: Kind, name: &str) {
    if cannot(kind, name) {
        return;
    }
    let ring = Ring::start().await;
    ring.class("teller", kind, TELLS_WHAT_IT_HAS);
    let secret = ring.folder.at("secret");
    fs::write(&secret, "hunter2").unwrap();
    fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
    let mut line: Vec<String> = ["sh", "-c", DIRTY_START, "sh", &secret].map(str::to_owned).into();
    line.extend(ring.agent("n1", &["--env-pass", "WANTED,NOT_THERE"]));
    let node = Launched::again(&ring.folder, "n1", &line).await;

    let session = ring.opened("one", "teller", &secret).await;
    let theirs = ring.session("one").join("work/mine");
    ring.opened("two", "teller", theirs.to_str().unwrap()).await;
    let told = ring.told("two");
    let environment = told["environment"].as_object().unwrap();
    let names: Vec<&str> = environment.keys().map(String::as_str).collect();
    let expected = [
        "HOME",
        "LANG",
        "OF_CLASS",
        "PATH",
        "ROTA_FOLDER",
        "ROTA_LIFE",
        "ROTA_MANAGERS",
        "ROTA_NAMESPACE",
        "ROTA_NODE_DATA",
        "ROTA_PORT",
        "ROTA_SESSION",
        "ROTA_TOKEN",
        "TMPDIR",
        "WANTED",
    ];
    // What the interpreter and the shell of a wrapper add is theirs.
    let names: Vec<&str> =
        names.into_iter().filter(|it| !["LC_CTYPE", "TZ", "PWD", "_"].contains(it)).collect();
    let names: Vec<&str> = names.into_iter().filter(|it| !it.starts_with("PYENV_")).collect();
    assert_eq!(names, expected, "{environment:?}");
    assert_eq!(environment["ROTA_MANAGERS"], ring.manager.told("grpc"));
    let first = ring.told("one")["environment"].clone();
    assert_eq!(first["ROTA_LIFE"], session.life.to_string());
    assert_eq!(environment["HOME"], told["cwd"]);

    let descriptors = told["descriptors"].as_object().unwrap();
    assert!(descriptors.keys().all(|it| ["0", "1", "2", "3"].contains(&it.as_str())), "{told}");
    assert!(!descriptors.values().any(|it| *it == secret), "{told}");
    assert_eq!(descriptors["0"], "/dev/null");
    assert_eq!(told["terminal"], "No such device or address");
    assert_eq!((&told["mask"], &told["core"]), (&"0o77".into(), &serde_json::json!([0, 0])));
    assert_eq!(told["leads"], true);
    // The C library keeps signals 32 and 33 to itself; Python ignores SIGPIPE and SIGXFSZ.
    let pythons_own = 1_u64 << 12 | 1 << 24 | 1 << 31 | 1 << 32;
    assert_eq!(told["ignored"].as_u64().unwrap() & !pythons_own, 0, "{told}");
    assert_eq!(told["blocked"], 0);

    let me = rustix::process::getuid().as_raw();
    if kind == Kind::None {
        assert_eq!(told["user"], serde_json::json!([me, me, me]));
    } else {
        let user = told["user"][0].as_u64().unwrap();
        assert!((200_000..=265_535).contains(&user), "{told}");
        assert_eq!(told["user"], serde_json::json!([user, user, user]));
        assert_eq!((&told["group"], &told["groups"]), (&told["user"], &serde_json::json!([])));
        assert_ne!(ring.told("one")["user"], told["user"]);
        assert_eq!((&told["no_new_privs"], &told["capabilities"]), (&"1".into(), &0.into()));
        let denied = "Permission denied";
        assert_eq!(told["list"], denied, "names of other sessions");
        assert_eq!(told["read"], denied, "a file of another session");
        assert_eq!(ring.told("one")["read"], denied, "a file of root's");
        assert_eq!(told["log"], denied, "its own log, but for printing");
        assert_eq!(told["reopen"], Value::Null, "its own output by name");
        assert!(told["pids"].as_array().unwrap().len() <= 3, "sees nobody else: {told}");
        // Whoever gets that uid next finds the way shut.
        let folder = ring.session("one");
        ring.closed("one").await;
        eventually("the folder is shut", PATIENCE, async || {
            let mode = fs::metadata(&folder).unwrap().mode() & 0o777;
            if mode == 0o700 { Ok(()) } else { Err(format!("{mode:o}")) }
        })
        .await;
    }
    for file in ["stdout.log", "keeper.log", "pids.json"] {
        let mode = fs::metadata(ring.session("two").join(file)).unwrap().mode() & 0o777;
        assert_eq!(mode, 0o600, "{file}");
    }
    assert_eq!(node.end().await, Some(0));
    ring.end().await;
}

#[tokio::test]
async fn a_program_of_the_nodes_user_gets_a_clean_start() {
    let name = "a_program_of_the_nodes_user_gets_a_clean_start";
    a_program_gets_a_clean_start(Kind::None, name).await;
}

#[tokio::test]
async fn a_program_with_a_user_of_its_own_gets_a_clean_start_and_reads_nothing_of_others() {
    let name = "a_program_with_a_user_of_its_own_gets_a_clean_start_and_reads_nothing_of_others";
    a_program_gets_a_clean_start(Kind::Basic, name).await;
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
