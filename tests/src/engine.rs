//! An engine of containers for one test: Debian's dockerd with a folder, a socket and a bridge of its own.
//!
//! It needs root, `docker.io`, `iproute2` and a busybox. Nothing is ever pulled: its images are made here.

use crate::binaries::{binary, checkout};
use crate::folder::TestFolder;
use crate::processes;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long the engine may take to answer, or to end.
const WAIT: Duration = Duration::from_secs(60);

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Debian's own, whatever else of that name is on the PATH.
const DOCKER: &str = "/usr/bin/docker";

/// Bridges of this process.
static BRIDGES: AtomicU32 = AtomicU32::new(0);

/// A running engine. Dropped, it ends with all that it runs, and nothing of it is left.
#[derive(Debug)]
pub struct Engine {
    folder: TestFolder,
    bridge: Bridge,
    daemon: Child,
}

/// A bridge with a network that nothing else on this machine has.
#[derive(Debug)]
struct Bridge {
    name: String,
    network: u32,
}

impl Bridge {
    fn new() -> Self {
        let number = BRIDGES.fetch_add(1, Ordering::Relaxed);
        let name = format!("rt{}-{number}", std::process::id());
        done("ip", &["link", "add", &name, "type", "bridge"]);
        // Eight times 254 networks, from one that hardly anybody else begins with.
        let first = std::process::id().wrapping_mul(7) + number;
        let routes = done("ip", &["-4", "route"]);
        let free = |it: &u32| !routes.contains(&Self::prefix(*it));
        let network = (first..first + 2000).find(free).expect("a network is free");
        let bridge = Self { name, network };
        done("ip", &["address", "add", &format!("{}/24", bridge.address()), "dev", &bridge.name]);
        done("ip", &["link", "set", &bridge.name, "up"]);
        bridge
    }

    fn prefix(network: u32) -> String {
        let network = network % 2032;
        format!("172.{}.{}.", 24 + network / 254, 1 + network % 254)
    }

    fn address(&self) -> String {
        format!("{}1", Self::prefix(self.network))
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["link", "delete", &self.name]).status();
    }
}

/// Runs a command to its end, and gives what it printed.
fn done(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{program} does not start: {error}"));
    printed(&format!("{program} {arguments:?}"), &output)
}

fn printed(what: &str, output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {}: {stderr}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

impl Engine {
    /// Why there can be no engine here, if that is so. Root can have one: where it does not start, the test fails.
    pub fn impossible() -> Option<&'static str> {
        (!rustix::process::getuid().is_root()).then_some("an engine of containers needs root")
    }

    /// Starts one, and waits until it answers.
    pub fn start() -> Self {
        let folder = TestFolder::new();
        let bridge = Bridge::new();
        let mut failures = Vec::new();
        for driver in ["overlay2", "vfs"] {
            match Self::try_start(&folder, &bridge, driver) {
                Ok(daemon) => return Self { folder, bridge, daemon },
                Err(why) => failures.push(format!("{driver}: {why}")),
            }
        }
        panic!("dockerd (package docker.io; deploy/test installs it) does not start: {failures:?}")
    }

    fn try_start(folder: &TestFolder, bridge: &Bridge, driver: &str) -> Result<Child, String> {
        let log = folder.path().join("dockerd.log");
        let log = File::options().create(true).append(true).open(log).expect("it is our own");
        let mut command = Command::new("dockerd");
        command
            .args(["--iptables=false", "--ip6tables=false", "--bridge", &bridge.name])
            .args(["--storage-driver", driver, "--data-root", &folder.at("data")])
            .args(["--exec-root", &folder.at("exec"), "--pidfile", &folder.at("pid")])
            .args(["--cgroup-parent", &format!("/{}", bridge.name)])
            .args(["--config-file", &folder.at("none.json"), "-H"])
            .arg(format!("unix://{}", folder.at("docker.sock")));
        std::fs::write(folder.at("none.json"), "{}").expect("it is our own");
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a file can be shared"));
        let mut daemon = command.stderr(log).spawn().map_err(|error| error.to_string())?;
        let until = Instant::now() + WAIT;
        loop {
            let socket = folder.at("docker.sock");
            if Path::new(&socket).exists() && ask(&socket, &["version"]).status.success() {
                return Ok(daemon);
            }
            if let Ok(Some(status)) = daemon.try_wait() {
                let log = std::fs::read_to_string(folder.at("dockerd.log")).unwrap_or_default();
                let last = log.lines().last().unwrap_or_default().to_owned();
                return Err(format!("{status}: {last}"));
            }
            if Instant::now() >= until {
                end(&mut daemon);
                return Err(format!("it does not answer within {WAIT:?}"));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Its socket.
    pub fn socket(&self) -> String {
        self.folder.at("docker.sock")
    }

    /// This machine's address in the network of its containers.
    pub fn gateway(&self) -> String {
        self.bridge.address()
    }

    /// What all addresses of its containers begin with.
    pub fn prefix(&self) -> String {
        Bridge::prefix(self.bridge.network)
    }

    /// Runs `docker` with these arguments, and gives what it printed.
    pub fn docker(&self, arguments: &[&str]) -> String {
        printed(&format!("docker {arguments:?}"), &ask(&self.socket(), arguments))
    }

    /// Names of all containers, whatever they do.
    pub fn containers(&self) -> Vec<String> {
        let names = self.docker(&["ps", "--all", "--format", "{{.Names}}"]);
        names.lines().map(str::to_owned).collect()
    }

    /// Makes an image on another one, or on [`Engine::base`], that runs this script.
    pub fn script(&self, image: &str, base: &str, script: &str) {
        let entry = serde_json::json!(["/bin/sh", "-c", script, "entry"]);
        let context = self.folder.at("context");
        std::fs::create_dir_all(&context).expect("it is our own");
        let text = format!("FROM {base}\nENTRYPOINT {entry}\n");
        std::fs::write(format!("{context}/Dockerfile"), text).expect("it is our own");
        self.docker(&["build", "--quiet", "--tag", image, &context]);
    }

    /// Builds the image of a node-agent on [`Engine::base`].
    pub fn agent(&self, image: &str) {
        self.build(image, &self.base()).unwrap_or_else(|told| panic!("{told}"));
    }

    /// Builds it with `deploy/docker/build`. An error is what that says.
    pub fn build(&self, image: &str, base: &str) -> Result<(), String> {
        let agent = binary("rota-node-agent");
        let programs = agent.parent().expect("it lies in a folder");
        let mut build = Command::new(checkout().join("deploy/docker/build"));
        build.args([image, base]).env("ROTA_PROGRAMS", programs).env("DOCKER", DOCKER);
        build.env("DOCKER_HOST", format!("unix://{}", self.socket())).env("DOCKER_BUILDKIT", "0");
        let output = build.stdin(Stdio::null()).output().expect("it is executable");
        let told = || String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(told()) }
    }

    /// An image with a small system: a shell, a web server, and the libraries of the agent. Gives its name.
    pub fn base(&self) -> String {
        let image = "base:test";
        if self.docker(&["images", "--quiet", image]).is_empty() {
            self.docker(&["import", &self.base_files(), image]);
        }
        image.to_owned()
    }

    /// An archive of a small system: a shell, a web server, and the libraries of the agent.
    fn base_files(&self) -> String {
        let (root, archive) = (self.folder.at("root"), self.folder.at("base.tar"));
        let busybox = done("sh", &["-c", "command -v busybox"]);
        let busybox = busybox.trim();
        for folder in ["bin", "tmp", "proc", "etc"] {
            std::fs::create_dir_all(format!("{root}/{folder}")).expect("it is our own");
        }
        std::fs::copy(busybox, format!("{root}/bin/busybox")).expect("it can be copied");
        for name in ["sh", "sleep", "httpd"] {
            std::os::unix::fs::symlink("busybox", format!("{root}/bin/{name}"))
                .expect("it is our own");
        }
        let agent = binary("rota-node-agent");
        for library in [Path::new(busybox), &agent].into_iter().flat_map(libraries) {
            let to = PathBuf::from(format!("{root}{}", library.display()));
            let folder = to.parent().expect("it has a folder");
            std::fs::create_dir_all(folder).expect("it is our own");
            std::fs::copy(&library, &to).expect("it can be copied");
        }
        done("tar", &["--create", "--file", &archive, "--directory", &root, "."]);
        archive
    }

    /// Ends it, and fails unless nothing is left: no container, process, mount or bridge.
    pub fn end(mut self) {
        assert_eq!(self.containers(), Vec::<String>::new(), "containers are left");
        self.stop();
        let folder = self.folder.path().to_owned();
        assert_eq!(processes::of_folder(&folder), vec![], "processes are left");
        assert_eq!(mounts(&folder), Vec::<String>::new(), "mounts are left");
        let name = self.bridge.name.clone();
        drop(self);
        let links = done("ip", &["-oneline", "link"]);
        assert!(!links.contains(&name), "{links}");
    }
}

impl Engine {
    /// Ends the daemon, and takes away what daemons leave: the mount of this machine's own network, and empty control
    /// groups.
    fn stop(&mut self) {
        end(&mut self.daemon);
        let host = self.folder.at("exec/netns/default");
        if mounts(Path::new(&host)) == [host.clone()] {
            let _ = Command::new("umount").arg(&host).status();
        }
        let trees = std::fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten();
        let trees = trees.map(|it| it.path()).chain(["/sys/fs/cgroup".into()]);
        for group in trees.map(|it| it.join(&self.bridge.name)).filter(|it| it.is_dir()) {
            if let Err(error) = std::fs::remove_dir(&group) {
                eprintln!("{} is left: {error}", group.display());
            }
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if matches!(self.daemon.try_wait(), Ok(Some(_))) {
            return;
        }
        let left = ask(&self.socket(), &["ps", "--all", "--quiet"]);
        let left = String::from_utf8_lossy(&left.stdout).into_owned();
        for container in left.lines() {
            ask(&self.socket(), &["rm", "--force", container]);
        }
        self.stop();
        for mount in mounts(self.folder.path()) {
            let _ = Command::new("umount").arg(&mount).status();
        }
    }
}

fn ask(socket: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(DOCKER);
    // Debian's engine has no builder but its own.
    command.env("DOCKER_BUILDKIT", "0").arg("-H").arg(format!("unix://{socket}"));
    command.args(arguments).stdin(Stdio::null());
    command.output().unwrap_or_else(|error| panic!("{DOCKER} (package docker.io): {error}"))
}

/// Asks a daemon to end, and kills it when it does not.
fn end(daemon: &mut Child) {
    let pid = i32::try_from(daemon.id()).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid {
        let _ = kill_process(pid, Signal::TERM);
    }
    let until = Instant::now() + WAIT;
    while matches!(daemon.try_wait(), Ok(None)) && Instant::now() < until {
        std::thread::sleep(LOOK_EVERY);
    }
    let _ = daemon.kill();
    let _ = daemon.wait();
}

/// The shared libraries of a program, its loader too; none of one that has all inside.
fn libraries(program: &Path) -> Vec<PathBuf> {
    let output = Command::new("ldd").arg(program).output().expect("ldd is part of the C library");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let words = text.split_whitespace().filter(|it| it.starts_with('/') && !it.ends_with(':'));
    words.map(PathBuf::from).collect()
}

/// What is mounted below a folder, the innermost first.
fn mounts(folder: &Path) -> Vec<String> {
    let all = std::fs::read_to_string("/proc/mounts").expect("Linux has it");
    let folder = folder.to_str().expect("the path is UTF-8");
    let below = all.lines().filter_map(|it| it.split(' ').nth(1));
    let mut below: Vec<_> = below.filter(|it| it.starts_with(folder)).map(str::to_owned).collect();
    below.reverse();
    below
}
