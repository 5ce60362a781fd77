//! A PostgreSQL server for one test: Debian's, in a folder of its own, at a free port.
//!
//! It needs the package `postgresql`, which deploy/test installs. A server refuses to run as root, so it runs as the
//! package's user `postgres` then. This file stands alone: tests of other crates have it, too.

use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::{OpenOptionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to be ready, or to end.
const WAIT: Duration = Duration::from_secs(60);
/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Where Debian has its servers, a folder for each version.
const DEBIAN: &str = "/usr/lib/postgresql";
/// The password of role and database `rota`, with a character that a URL must escape.
const PASSWORD: &str = "sesame/1";

/// A running server. Dropped, it ends, and nothing of it is left.
#[derive(Debug)]
pub struct PostgresServer {
    folder: PathBuf,
    programs: PathBuf,
    user: Option<(u32, u32)>,
    port: u16,
    settings: Vec<String>,
    process: Option<Child>,
}

impl PostgresServer {
    /// Makes one in a temporary folder, and waits until it answers.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// The same, with settings such as `max_connections=5`.
    pub fn start_with(settings: &[&str]) -> Self {
        Self::start_as(settings, &[])
    }

    /// The same, with its journal in a folder that is not there yet, in short segments.
    pub fn start_with_journal(folder: &Path) -> Self {
        fs::create_dir(folder).expect("there is room");
        let folder = folder.to_str().expect("the path is UTF-8");
        Self::start_as(
            // A journal whose pieces are used again grows no more, and never fills its disk.
            &["wal_keep_size=1GB"],
            &["--waldir", folder, "--wal-segsize=1"],
        )
    }

    fn start_as(settings: &[&str], of_initdb: &[&str]) -> Self {
        let made = tempfile::Builder::new().prefix("rota-pg-").tempdir();
        let mut server = Self {
            folder: made.expect("a temporary folder can be made").keep(),
            programs: programs(),
            user: rustix::process::getuid().is_root().then(user_of_package),
            port: 0,
            settings: Vec::new(),
            process: None,
        };
        server.set(settings);
        server.give(&server.folder);
        server.initialise(of_initdb);
        server.begin();
        server.psql_of("postgres", "CREATE DATABASE rota");
        server
    }

    /// Other settings from its next start on.
    pub fn set(&mut self, settings: &[&str]) {
        self.settings = settings.iter().map(|it| (*it).to_owned()).collect();
    }

    /// Makes a file or folder its user's.
    pub fn give(&self, path: &Path) {
        if let Some((user, group)) = self.user {
            chown(path, Some(user), Some(group)).expect("root may give it away");
        }
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        if let Some((user, group)) = self.user {
            command.uid(user).gid(group);
        }
        command.current_dir(&self.folder).stdin(Stdio::null()).env("LC_ALL", "C");
        command
    }

    fn initialise(&self, further: &[&str]) {
        if let Some(journal) = further.iter().position(|it| *it == "--waldir") {
            self.give(Path::new(further[journal + 1]));
        }
        let secret = self.folder.join("password");
        fs::write(&secret, PASSWORD).expect("it is our own");
        self.give(&secret);
        let mut command = self.command("initdb");
        command.args(["--no-sync", "--encoding=UTF8", "--locale=C", "--username=rota"]);
        command.args(["--auth=scram-sha-256", "--pwfile"]).arg(&secret);
        command.args(further);
        let output = command.arg("--pgdata").arg(self.data()).output().expect("initdb starts");
        checked("initdb", &output);
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// What it logs.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Starts it, again after [`PostgresServer::kill`] or [`PostgresServer::stop`], and waits until it answers.
    pub fn begin(&mut self) {
        // Another process may take a port between the look and the start.
        for _ in 0..5 {
            if self.port == 0 {
                let free = TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr());
                self.port = free.expect("a port is free").port();
            }
            self.spawn();
            if self.is_ready_in_time() {
                return;
            }
            self.kill();
            self.port = 0;
        }
        panic!("PostgreSQL does not start in {}: {}", self.folder.display(), self.log());
    }

    fn spawn(&mut self) {
        let mut log = File::options();
        log.create(true).append(true).mode(0o644);
        let log = log.open(self.folder.join("log")).expect("it is our own");
        let mut command = self.command("postgres");
        command.arg("-D").arg(self.data()).arg("-k").arg(&self.folder);
        command.args(["-p", &self.port.to_string(), "-c", "listen_addresses=127.0.0.1"]);
        command.args(self.settings.iter().flat_map(|it| ["-c", it]));
        command.stdout(log.try_clone().expect("a file can be shared")).stderr(log);
        self.process = Some(command.spawn().expect("postgres starts"));
    }

    fn is_ready_in_time(&mut self) -> bool {
        let until = Instant::now() + WAIT;
        while Instant::now() < until {
            if self.try_psql("postgres", "SELECT 1").status.success() {
                return true;
            }
            let process = self.process.as_mut().expect("it was started");
            if !matches!(process.try_wait(), Ok(None)) {
                return false;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        false
    }

    /// The port at 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL of database `rota`, with its password.
    pub fn url(&self) -> String {
        self.url_at(self.port)
    }

    /// The same, by another port of this machine.
    pub fn url_at(&self, port: u16) -> String {
        let password = PASSWORD.replace('/', "%2F");
        format!("postgresql://rota:{password}@127.0.0.1:{port}/rota")
    }

    /// The same, by its UNIX socket.
    pub fn url_of_socket(&self) -> String {
        let password = PASSWORD.replace('/', "%2F");
        let (folder, port) = (self.folder.display(), self.port);
        format!("postgresql:///rota?host={folder}&port={port}&user=rota&password={password}")
    }

    /// What `psql` prints for some SQL in database `rota`: a line for each row.
    pub fn psql(&self, sql: &str) -> String {
        self.psql_of("rota", sql)
    }

    fn psql_of(&self, database: &str, sql: &str) -> String {
        checked(sql, &self.try_psql(database, sql))
    }

    fn try_psql(&self, database: &str, sql: &str) -> Output {
        let mut command = Command::new(self.programs.join("psql"));
        command.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--command", sql]);
        command.args(["--host", "127.0.0.1", "--port", &self.port.to_string()]);
        command.args(["--username", "rota", "--dbname", database]);
        command.env("PGPASSWORD", PASSWORD).env("PGCONNECT_TIMEOUT", "5").stdin(Stdio::null());
        command.output().expect("psql starts")
    }

    /// Kills all of it, as `kill -9` does, and waits until nothing of it runs.
    pub fn kill(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        let children = children_of(process.id());
        let _ = process.kill();
        for child in &children {
            signal(*child, Signal::KILL);
        }
        let _ = process.wait();
        let until = Instant::now() + WAIT;
        while children.iter().any(|it| is_of(*it, &self.programs)) && Instant::now() < until {
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Ends it in good order; connections are ended first.
    pub fn stop(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        signal(process.id(), Signal::INT);
        let until = Instant::now() + WAIT;
        while matches!(process.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(LOOK_EVERY);
        }
        self.process = Some(process);
        self.kill();
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("the server's folder was kept: {}", self.folder.display());
            return;
        }
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            eprintln!("cannot remove {}: {error}", self.folder.display());
        }
    }
}

fn checked(what: &str, output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {}: {stderr}", output.status);
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

/// The programs of the newest version that is installed.
fn programs() -> PathBuf {
    let versions = fs::read_dir(DEBIAN).into_iter().flatten().flatten();
    let versions = versions.filter_map(|it| it.file_name().to_str()?.parse::<u32>().ok());
    let found = versions
        .map(|it| (it, Path::new(DEBIAN).join(it.to_string()).join("bin")))
        .filter(|(_, it)| it.join("postgres").exists() && it.join("initdb").exists())
        .max();
    let (_, programs) = found.unwrap_or_else(|| {
        panic!("{DEBIAN} has no server: as root, run apt-get install postgresql (deploy/test does)")
    });
    programs
}

/// User and group that the package made.
fn user_of_package() -> (u32, u32) {
    let users = fs::read_to_string("/etc/passwd").expect("every system has it");
    let numbers = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let (user, group) = (fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
        (name == "postgres").then_some((user, group))
    });
    numbers.expect("there is no user postgres: as root, run apt-get install postgresql")
}

fn children_of(pid: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_default();
    children.split_whitespace().filter_map(|it| it.parse().ok()).collect()
}

/// Whether a process still runs one of these programs: its number may be another's by now.
fn is_of(pid: u32, programs: &Path) -> bool {
    fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|it| it.starts_with(programs))
}

fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}
