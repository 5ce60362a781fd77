//! Namespaces of a test's own: a network with cables that can be cut, and mounts that nobody else sees.
//!
//! A test that needs them runs itself again inside of them ([`own_namespaces`]). There it is alone: it
//! may give addresses, and mount what it likes, and all of it is gone with its last process.

use crate::skipped::skipped;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Set inside.
const INSIDE: &str = "ROTA_TEST_NAMESPACES";
/// What a test needs beside the namespaces themselves.
const PROBE: &str = "ip link set lo up && ip link add probe0 type veth peer name probe1 && \
    ip link del probe0 && ip link add probe2 type bridge && nsenter --version && \
    mount -t tmpfs -o size=1m none /mnt";
/// Nobody's address on the wire: what is sent there arrives nowhere.
const NOWHERE: &str = "02:00:00:00:00:99";

/// Whether the test is to go on here: it is inside, in namespaces of its own. Where it is not, it is run
/// inside, and must pass there; or it is skipped, if this machine allows no such thing.
pub fn own_namespaces(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        ip(&["link", "set", "lo", "up"]);
        return true;
    }
    for user in [&[][..], &["--user", "--map-root-user"]] {
        let unshare = || {
            let mut command = Command::new("unshare");
            command.args(user).args(["--net", "--mount"]).stdin(Stdio::null());
            command
        };
        let mut probe = unshare();
        probe.args(["sh", "-c", PROBE]).stdout(Stdio::null()).stderr(Stdio::null());
        if !probe.status().is_ok_and(|it| it.success()) {
            continue;
        }
        let mut again = unshare();
        again.arg(std::env::current_exe().expect("a test knows its own program"));
        again.args(["--exact", test, "--nocapture"]).env(INSIDE, "yes");
        let status = again.status().expect("unshare starts");
        assert!(status.success(), "{test} failed in its own namespaces: {status}");
        return false;
    }
    skipped(
        test,
        "this machine allows no network and mount namespaces, or has no `ip` and `nsenter`",
    );
    false
}

fn run(program: &str, words: &[&str]) {
    let output = Command::new(program).args(words).stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {words:?}: {said}");
}

fn ip(words: &[&str]) {
    run("ip", words);
}

/// A small file system on a folder, until it is dropped.
#[derive(Debug)]
pub struct SmallDisk<'a> {
    folder: &'a Path,
}

impl<'a> SmallDisk<'a> {
    /// Mounts it on an empty folder. Only inside of [`own_namespaces`].
    pub fn on(folder: &'a Path, size: &str) -> Self {
        assert!(std::env::var_os(INSIDE).is_some(), "a mount for everybody is no test's business");
        let path = folder.to_str().expect("the path is UTF-8");
        run("mount", &["-t", "tmpfs", "-o", &format!("size={size}"), "none", path]);
        Self { folder }
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        // Lazily: a test that failed may still have a process there.
        let _gone_with_the_namespace =
            Command::new("umount").arg("--lazy").arg(self.folder).status();
    }
}

/// A computer of the test's network: a network namespace with a cable to the switch.
#[derive(Debug)]
struct Computer {
    ip: Ipv4Addr,
    /// Holds the namespace: it reads what never comes, and ends with the test.
    holder: Child,
}

/// A network: a switch with the test itself, and computers on cables.
#[derive(Debug)]
pub struct Network {
    computers: Vec<Computer>,
}

impl Drop for Network {
    fn drop(&mut self) {
        for computer in &mut self.computers {
            let _gone_already = computer.holder.kill();
            let _reaped = computer.holder.wait();
        }
    }
}

impl Network {
    /// Where the test itself is.
    pub const HERE: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);

    /// A network with so many computers. Only inside of [`own_namespaces`].
    pub fn of(computers: u8) -> Self {
        assert!(std::env::var_os(INSIDE).is_some(), "the machine's network is no test's business");
        ip(&["link", "add", "switch", "type", "bridge"]);
        ip(&["addr", "add", &format!("{}/24", Self::HERE), "dev", "switch"]);
        ip(&["link", "set", "switch", "up"]);
        let mut network = Self { computers: Vec::new() };
        for number in 0..computers {
            network.plug(number);
        }
        network
    }

    fn plug(&mut self, number: u8) {
        let holder = Command::new("unshare").args(["--net", "cat"]).stdin(Stdio::piped()).spawn();
        let holder = holder.expect("unshare starts");
        let ip_there = Ipv4Addr::new(10, 9, 0, 11 + number);
        let (pid, near, far) = (holder.id(), format!("near{number}"), format!("far{number}"));
        self.computers.push(Computer { ip: ip_there, holder });
        let at = self.computers.len() - 1;
        // The holder has its namespace as soon as it is another program.
        let mine = std::fs::read_link("/proc/self/ns/net").expect("there is /proc");
        let deadline = std::time::Instant::now() + crate::PATIENCE;
        while std::fs::read_link(format!("/proc/{pid}/ns/net")).is_ok_and(|it| it == mine) {
            assert!(std::time::Instant::now() < deadline, "unshare makes no namespace");
            std::thread::yield_now();
        }
        ip(&["link", "add", &near, "type", "veth", "peer", "name", &far]);
        ip(&["link", "set", &far, "netns", &pid.to_string()]);
        ip(&["link", "set", &near, "master", "switch", "up"]);
        self.ip_at(at, &["link", "set", "lo", "up"]);
        self.ip_at(at, &["addr", "add", &format!("{ip_there}/24"), "dev", &far]);
        self.ip_at(at, &["link", "set", &far, "up"]);
    }

    /// The address of a computer.
    pub fn ip(&self, at: usize) -> Ipv4Addr {
        self.computers[at].ip
    }

    /// What the command line of a process on that computer begins with.
    pub fn through(&self, at: usize) -> Vec<String> {
        let pid = self.computers[at].holder.id();
        vec!["nsenter".to_owned(), format!("--net=/proc/{pid}/ns/net")]
    }

    fn ip_at(&self, at: usize, words: &[&str]) {
        let through = self.through(at);
        run(&through[0], &[&[through[1].as_str(), "ip"], words].concat());
    }

    /// Cuts a computer's cable: nothing passes, either way, and nobody is told.
    pub fn cut(&self, at: usize) {
        ip(&["link", "set", &format!("near{at}"), "down"]);
    }

    /// Mends it.
    pub fn mend(&self, at: usize) {
        ip(&["link", "set", &format!("near{at}"), "up"]);
    }

    /// From here on nothing that the computer sends arrives, and it still hears everybody.
    pub fn mute(&self, at: usize) {
        for ip in self.others(at) {
            self.ip_at(at, &to_nowhere(&ip, &format!("far{at}")));
        }
    }

    /// Ends [`Network::mute`].
    pub fn unmute(&self, at: usize) {
        for ip in self.others(at) {
            self.ip_at(at, &["neigh", "del", &ip, "dev", &format!("far{at}")]);
        }
    }

    /// From here on nothing that is sent to the computer arrives, and everybody still hears it.
    pub fn deafen(&self, at: usize) {
        let deaf = self.computers[at].ip.to_string();
        ip(&to_nowhere(&deaf, "switch"));
        for other in (0..self.computers.len()).filter(|it| *it != at) {
            self.ip_at(other, &to_nowhere(&deaf, &format!("far{other}")));
        }
    }

    /// Ends [`Network::deafen`].
    pub fn undeafen(&self, at: usize) {
        let deaf = self.computers[at].ip.to_string();
        ip(&["neigh", "del", &deaf, "dev", "switch"]);
        for other in (0..self.computers.len()).filter(|it| *it != at) {
            self.ip_at(other, &["neigh", "del", &deaf, "dev", &format!("far{other}")]);
        }
    }

    fn others(&self, at: usize) -> Vec<String> {
        let computers = self.computers.iter().map(|it| it.ip);
        let all = computers.chain([Self::HERE]);
        all.filter(|it| *it != self.computers[at].ip).map(|it| it.to_string()).collect()
    }
}

/// What makes packets for an address go to nobody.
fn to_nowhere<'a>(ip: &'a str, device: &'a str) -> [&'a str; 9] {
    ["neigh", "replace", ip, "lladdr", NOWHERE, "nud", "permanent", "dev", device]
}
