//! A system of its own for one test: a real systemd, with `/etc` and `/var` in the test's folder.
//!
//! `/usr` is this machine's, and cannot be written there. So nothing is downloaded, and the system is up in a second.
//! It has its own network, processes and control groups, and no address of this machine. It needs root and Debian's
//! `systemd-container`.

use crate::binaries::binary;
use crate::condition::{PATIENCE, eventually};
use crate::folder::TestFolder;
use crate::processes::{self, Process};
use crate::ringctl::{Ran, to_end};
use rota_daemon::processes::descendants;
use rustix::process::Signal;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// How long what is left of it may take to go when it is killed.
const KILLED: Duration = Duration::from_secs(10);

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Where the programs of the system's units are.
const PROGRAMS: &str = "/usr/local/bin";

/// What a system needs beside `systemd-nspawn`.
const PROBE: [&str; 7] = ["--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "true"];

/// Systems of this process.
static SYSTEMS: AtomicU32 = AtomicU32::new(0);

/// Which control groups the system sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ControlGroups {
    /// Those that this machine has.
    OfMachine,
    /// Version 2. It has no controllers where this machine uses them with version 1.
    Version2,
}

/// Control groups of this machine, in which the system runs.
#[derive(Debug)]
struct OwnGroups(Vec<PathBuf>);

impl OwnGroups {
    /// One in each tree in which a systemd has groups.
    fn make(name: &str) -> io::Result<Self> {
        let mut made = Self(Vec::new());
        let trees = ["/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
        for tree in trees.map(Path::new).iter().filter(|it| it.join("cgroup.procs").exists()) {
            fs::create_dir(tree.join(name))?;
            made.0.push(tree.join(name));
        }
        Ok(made)
    }

    /// Whatever runs in none of them is gone.
    fn remove(&mut self) {
        for group in self.0.drain(..) {
            // What ran there may take a moment to go.
            let until = Instant::now() + KILLED;
            while let Err(error) = remove_group(&group) {
                if Instant::now() >= until {
                    eprintln!("{} is left: {error}", group.display());
                    break;
                }
                std::thread::sleep(LOOK_EVERY);
            }
        }
    }
}

impl Drop for OwnGroups {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Removes a control group with those below it. Its files go by themselves.
fn remove_group(group: &Path) -> io::Result<()> {
    for below in fs::read_dir(group)?.flatten().filter(|it| it.path().is_dir()) {
        remove_group(&below.path())?;
    }
    fs::remove_dir(group)
}

/// A system that runs. Dropped, it ends with all that it runs.
#[derive(Debug)]
pub struct Booted {
    folder: TestFolder,
    groups: OwnGroups,
    container: Child,
    first: Option<Process>,
}

fn name() -> String {
    format!("rt{}-{}", std::process::id(), SYSTEMS.fetch_add(1, Ordering::Relaxed))
}

/// Makes a folder that everybody may pass through, whatever the test's umask is.
fn make_folder(root: &Path, below: &str) {
    let mut path = root.to_owned();
    for part in Path::new(below) {
        path.push(part);
        fs::create_dir_all(&path).expect("it is the test's own");
        fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("it is the test's own");
    }
}

impl Booted {
    /// Why there can be none here, if that is so.
    pub fn impossible() -> Option<String> {
        let runs = |program: &str, words: &[&str]| {
            let mut command = std::process::Command::new("timeout");
            command
                .args(["20", program])
                .args(words)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            command.status().is_ok_and(|it| it.success())
        };
        if !rustix::process::getuid().is_root() {
            return Some("a systemd of its own needs root".to_owned());
        }
        if !runs("systemd-nspawn", &["--version"]) {
            return Some("there is no systemd-nspawn (package systemd-container)".to_owned());
        }
        if !fs::symlink_metadata("/lib").is_ok_and(|it| it.is_symlink()) {
            return Some("this machine has programs and libraries outside of /usr".to_owned());
        }
        if !runs("unshare", &PROBE) {
            return Some("this machine allows no namespaces".to_owned());
        }
        let no_groups =
            |error| format!("this machine allows no control groups of one's own: {error}");
        OwnGroups::make(&name()).err().map(no_groups)
    }

    /// Starts a system with these units, these programs of Rota and other files; waits until its first process
    /// answers. Paths of files begin at its root.
    pub async fn start(
        groups: ControlGroups,
        files: &[(&str, &str)],
        programs: &[&str],
        units: &[&str],
    ) -> Self {
        let (folder, name) = (TestFolder::new(), name());
        let root = folder.path().join("root");
        fill(&root, files, units);
        make_folder(folder.path(), "programs");
        for program in programs {
            let to = folder.path().join("programs").join(program);
            let from = binary(program);
            // The system may only read it.
            if fs::hard_link(&from, &to).is_err() {
                fs::copy(from, to).expect("there is room for a program");
            }
        }
        let own = OwnGroups::make(&name).expect("`impossible` tried it");
        let container = spawn(&folder, &name, &own, groups);
        let mut booted = Self { folder, groups: own, container, first: None };
        booted.first = Some(booted.until_it_answers().await);
        booted
    }

    /// Waits until the system's first process does what it is told, and gives that.
    async fn until_it_answers(&mut self) -> Process {
        eventually("the system answers", PATIENCE, async || {
            assert!(matches!(self.container.try_wait(), Ok(None)), "no system: {}", self.console());
            let of_container = descendants(pid_of(&self.container)).into_iter();
            let first = of_container.filter_map(|it| u32::try_from(it).ok()).find(is_first);
            let first = first.and_then(processes::process).ok_or("it has no first process")?;
            let words = ["systemctl", "show", "--property", "Version"];
            let ran = to_end(inside(&first, &words), "systemctl").await;
            if ran.code == 0 { Ok(first) } else { Err(ran.stderr) }
        })
        .await
    }

    /// What it said on its console.
    pub fn console(&self) -> String {
        fs::read_to_string(self.folder.path().join("console.log")).unwrap_or_default()
    }

    /// Runs a command in it to its end.
    pub async fn run(&self, line: &[&str]) -> Ran {
        let first = self.first.as_ref().expect("it was started");
        // Its pid may be that of another process by now, and nobody is to order that about.
        assert!(first.runs(), "the system has ended: {}", self.console());
        to_end(inside(first, line), &format!("{line:?}")).await
    }

    /// Where a file of it is, by its path from its root.
    pub fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join("root").join(path)
    }

    /// Waits until it has shut itself down, which somebody asked for. Fails when any process or group is left.
    pub async fn is_down(&mut self) {
        let first = self.first.clone().expect("it was started");
        let ended = timeout(PATIENCE, self.container.wait()).await;
        let status = ended.unwrap_or_else(|_| panic!("it runs on: {}", self.console()));
        let status = status.expect("a child can be waited for");
        assert!(status.success(), "{status}: {}", self.console());
        // The kernel ends all processes of a namespace with its first one.
        assert!(!first.runs(), "{first:?} is left");
        let groups = self.groups.0.clone();
        self.groups.remove();
        assert!(!groups.iter().any(|it| it.exists()), "{groups:?} are left");
        let mounts = fs::read_to_string("/proc/mounts").expect("Linux has it");
        let below = self.folder.path().to_str().expect("the path is UTF-8");
        assert!(!mounts.contains(below), "mounts are left: {mounts}");
    }
}

impl Drop for Booted {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("its console: {}", self.console());
        }
        if let Some(first) = &self.first {
            first.signal(Signal::KILL);
        }
        let began = Instant::now();
        while matches!(self.container.try_wait(), Ok(None)) {
            if self.first.is_none() || began.elapsed() >= KILLED {
                let _ended_already = self.container.start_kill();
            }
            if began.elapsed() >= KILLED * 2 {
                eprintln!("a system is left: {:?}", self.container);
                break;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

fn pid_of(child: &Child) -> i32 {
    child.id().and_then(|it| i32::try_from(it).ok()).unwrap_or_default()
}

/// Whether a process is the first one of a namespace of processes, and is systemd by now.
fn is_first(pid: &u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let pids = status.lines().find(|it| it.starts_with("NSpid:")).unwrap_or_default();
    pids.ends_with("\t1") && status.starts_with("Name:\tsystemd\n")
}

/// A command in the system of that first process.
fn inside(first: &Process, line: &[&str]) -> Command {
    let mut command = Command::new("nsenter");
    command.args(["--target", &first.pid.to_string(), "--root", "--wd"]);
    command.args(["--mount", "--uts", "--ipc", "--net", "--pid", "--"]).args(line);
    command.env_clear().env("PATH", format!("{PROGRAMS}:/usr/sbin:/usr/bin:/sbin:/bin"));
    command.env("ROTA_ENDPOINT", "127.0.0.1:7400");
    command
}

/// Fills the system's root: what a Debian has at least, these files, and these units switched on.
fn fill(root: &Path, files: &[(&str, &str)], units: &[&str]) {
    for below in ["", "usr", "var/log/journal", "etc/systemd/system"] {
        make_folder(root, below);
    }
    for link in ["bin", "sbin", "lib", "lib32", "lib64", "libx32"] {
        if let Ok(target) = fs::read_link(Path::new("/").join(link)) {
            symlink(target, root.join(link)).expect("it is the test's own");
        }
    }
    // It is not the first start of a machine, on which systemd would switch on whatever it finds.
    let id = ("etc/machine-id", "0123456789abcdef0123456789abcdef\n");
    let release = fs::read_to_string("/etc/os-release").expect("a Debian has it");
    for (path, text) in [id, ("etc/os-release", &release)].iter().chain(files) {
        let (above, _file) = path.rsplit_once('/').expect("a file is in a folder");
        make_folder(root, above);
        fs::write(root.join(path), text).expect("it is the test's own");
        fs::set_permissions(root.join(path), Permissions::from_mode(0o644))
            .expect("it is the test's own");
    }
    let default = root.join("etc/systemd/system/default.target");
    symlink("/usr/lib/systemd/system/multi-user.target", default).expect("it is the test's own");
    let mut enable = std::process::Command::new("timeout");
    enable
        .args(["20", "systemctl", "--root"])
        .arg(root)
        .args(["--quiet", "enable"])
        .args(units)
        .stdin(Stdio::null());
    let output = enable.output().expect("`impossible` found a systemd");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Starts the container in its groups.
fn spawn(folder: &TestFolder, name: &str, own: &OwnGroups, groups: ControlGroups) -> Child {
    let log = File::create(folder.path().join("console.log")).expect("it is the test's own");
    let mut command = Command::new("sh");
    let all: Vec<String> = own.0.iter().map(|it| it.display().to_string()).collect();
    let enter = "for it in $1; do echo $$ >\"$it/cgroup.procs\"; done; shift; exec \"$@\"";
    command.args(["-ec", enter, "enter", &all.join(" ")]);
    command.args(["systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit"]);
    command.args(["--private-network", "--link-journal=no", "--machine", name]);
    command.args(["--directory", &folder.at("root"), "--bind-ro=/usr"]);
    command.arg(format!("--bind-ro={}:{PROGRAMS}", folder.at("programs")));
    match groups {
        ControlGroups::OfMachine => {}
        ControlGroups::Version2 => {
            command.env("SYSTEMD_NSPAWN_UNIFIED_HIERARCHY", "1");
        }
    }
    let log_too = log.try_clone().expect("a file can be shared");
    command.stdin(Stdio::null()).stdout(log).stderr(log_too).kill_on_drop(true);
    command.spawn().expect("there is a shell")
}
