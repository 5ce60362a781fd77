//! What a program is given, and what it can reach.

use super::node::{Kind, Ring, cannot};
use rota_tests::{Launched, PATIENCE, eventually};
use serde_json::{Value, json};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

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
    "nice": os.nice(0), "oom": int(open("/proc/self/oom_score_adj").read()),
}), flush=True)
time.sleep(1000)
"#;

/// What a program of [`TELLS_WHAT_IT_HAS`] printed.
fn told(ring: &Ring, id: &str) -> Value {
    let said = fs::read_to_string(ring.session(id).join("stdout.log")).unwrap();
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// Starts an agent with a terminal, a secret in its environment, an open file of the name that follows,
/// signals that it ignores or blocks, and preferences: `sh -c THIS sh FILE AGENT...`. What it says goes where it did.
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
    os.nice(5)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR2})
    if os.getuid() == 0:
        open("/proc/self/oom_score_adj", "w").write("-500")
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
    let (told, of_one) = (told(&ring, "two"), told(&ring, "one"));
    assert_eq!(of_one["environment"]["ROTA_LIFE"], session.life.to_string());
    has_its_variables(&told, ring.manager.told("grpc"));
    has_nothing_else_of_its_node(&told, &secret);
    if kind == Kind::None {
        let me = rustix::process::getuid().as_raw();
        assert_eq!(told["user"], json!([me, me, me]));
    } else {
        reaches_nothing_of_others(&told, &of_one);
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

/// Which variables a program has, and some of their values.
fn has_its_variables(told: &Value, managers: &str) {
    let environment = told["environment"].as_object().unwrap();
    let names: Vec<&str> = environment.keys().map(String::as_str).collect();
    let expected = [
        "HOME",
        "LANG",
        "OF_CLASS",
        "PATH",
        "ROTA_CLASS_FOLDER",
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
    assert_eq!(environment["ROTA_MANAGERS"], managers);
    assert_eq!(environment["HOME"], told["cwd"]);
}

/// Descriptors, terminal, limits and signals.
fn has_nothing_else_of_its_node(told: &Value, secret: &str) {
    let descriptors = told["descriptors"].as_object().unwrap();
    assert!(descriptors.keys().all(|it| ["0", "1", "2", "3"].contains(&it.as_str())), "{told}");
    assert!(!descriptors.values().any(|it| it == secret), "{told}");
    assert_eq!(descriptors["0"], "/dev/null");
    assert_eq!(told["terminal"], "No such device or address");
    assert_eq!((&told["mask"], &told["core"]), (&"0o77".into(), &json!([0, 0])));
    assert_eq!(told["leads"], true);
    // The C library keeps signals 32 and 33 to itself; Python ignores SIGPIPE and SIGXFSZ.
    let pythons_own = 1_u64 << 12 | 1 << 24 | 1 << 31 | 1 << 32;
    assert_eq!(told["ignored"].as_u64().unwrap() & !pythons_own, 0, "{told}");
    assert_eq!(told["blocked"], 0);
    // Only root may undo what stands back.
    if rustix::process::getuid().is_root() {
        assert_eq!((&told["nice"], &told["oom"]), (&0.into(), &0.into()));
    }
}

/// With a user of its own.
fn reaches_nothing_of_others(told: &Value, of_one: &Value) {
    let user = told["user"][0].as_u64().unwrap();
    assert!((200_000..=265_535).contains(&user), "{told}");
    assert_eq!(told["user"], json!([user, user, user]));
    assert_eq!((&told["group"], &told["groups"]), (&told["user"], &json!([])));
    assert_ne!(of_one["user"], told["user"]);
    assert_eq!((&told["no_new_privs"], &told["capabilities"]), (&"1".into(), &0.into()));
    let denied = "Permission denied";
    assert_eq!(told["list"], denied, "names of other sessions");
    assert_eq!(told["read"], denied, "a file of another session");
    assert_eq!(of_one["read"], denied, "a file of root's");
    assert_eq!(told["log"], denied, "its own log, but for printing");
    assert_eq!(told["reopen"], Value::Null, "its own output by name");
    assert!(told["pids"].as_array().unwrap().len() <= 3, "sees nobody else: {told}");
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
