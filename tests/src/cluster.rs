//! A whole cluster under `ringctl dev`.

use crate::condition::{PATIENCE, eventually};
use crate::folder::TestFolder;
use crate::launched::Launched;
use crate::processes::{self, Process};
use crate::ringctl::{Ran, ringctl};
use crate::small::every_copy_is_in_sync;
use rota_client::{Client, Entry, Options};
use rustix::process::Signal;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// How long a cluster may take to become ready; `ringctl dev` gives up earlier, with a reason.
const START_WAIT: Duration = Duration::from_secs(60);
/// How long a cluster may take to end.
const END_WAIT: Duration = Duration::from_secs(60);

/// What `ringctl dev -o json` prints.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug)]
pub struct Document {
    /// Always true.
    pub ready: bool,
    /// In order of their numbers.
    pub managers: Vec<Manager>,
    /// Nodes that were started with the cluster.
    pub nodes: Vec<Node>,
    /// The config store.
    pub config_store: Store,
    /// Data folder.
    pub data: PathBuf,
}

/// A manager process.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug)]
pub struct Manager {
    /// Reserved number.
    pub number: u32,
    /// `host:port` of its gRPC.
    pub grpc: String,
    /// `host:port` of its HTTP.
    pub http: String,
    /// Pid.
    pub pid: u32,
}

/// A node-agent process.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Name.
    pub id: String,
    /// `host:port`.
    pub address: String,
    /// Pid.
    pub pid: u32,
}

/// The config store's process.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug)]
pub struct Store {
    /// `host:port`.
    pub address: String,
    /// Pid.
    pub pid: u32,
}

/// A cluster that runs. A test ends it with [`Cluster::end`]; when the test fails before that, its
/// processes are killed.
#[derive(Debug)]
pub struct Cluster {
    /// Who is where.
    pub document: Document,
    folder: PathBuf,
    dev: Child,
    ended: bool,
}

/// The command line of a cluster in the folder: free ports, data in `FOLDER/data`, the classes
/// that ship unless `more` says otherwise.
fn command(folder: &TestFolder, more: &[&str]) -> Command {
    prepared(Command::new(crate::binary("ringctl")), folder, more)
}

/// The options and the surroundings of a cluster in the folder, for a command that is `ringctl` or
/// becomes it.
fn prepared(mut command: Command, folder: &TestFolder, more: &[&str]) -> Command {
    command.args(["dev", "-o", "json", "--port-base", "0", "--data", &folder.at("data")]);
    if !more.contains(&"--classes") {
        command.arg("--classes").arg(crate::checkout().join("deploy/classes"));
    }
    // Finds the processes again; those of programs name the folder in ROTA_NODE_DATA.
    command.args(more).env("ROTA_TEST_FOLDER", folder.path());
    let log = std::fs::File::options().create(true).append(true).open(folder.at("dev.log"));
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    command.stderr(log.expect("the log can be written"));
    // In the test's own process group: whoever ends a test that hangs, ends its cluster with it.
    command
}

impl Cluster {
    /// Starts a cluster with further options of `ringctl dev` and waits until it is ready. What
    /// `dev` says on stderr goes to `dev.log`.
    pub async fn start(folder: &TestFolder, more: &[&str]) -> Self {
        Self::ready(folder, command(folder, more)).await
    }

    /// The same with variables in the environment of every process: ROTA_BIN_DIR, a folder from
    /// which programs are taken where it has them; ROTA_LOG and ROTA_LOG_FORMAT, what is logged
    /// and how.
    pub async fn start_in(folder: &TestFolder, more: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = command(folder, more);
        command.envs(variables.iter().copied());
        Self::ready(folder, command).await
    }

    /// The same, started by somebody with that umask.
    pub async fn start_under(folder: &TestFolder, umask: &str, more: &[&str]) -> Self {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("umask {umask} && exec \"$0\" \"$@\"")]);
        shell.arg(crate::binary("ringctl"));
        Self::ready(folder, prepared(shell, folder, more)).await
    }

    async fn ready(folder: &TestFolder, mut command: Command) -> Self {
        let mut dev = command.spawn().expect("ringctl starts");
        let stdout = dev.stdout.take().expect("stdout is piped");
        let mut lines = BufReader::new(stdout).lines();
        let line = timeout(START_WAIT, lines.next_line()).await;
        let Ok(Ok(Some(line))) = line else {
            crate::processes::kill_all_of(folder.path());
            let log = std::fs::read_to_string(folder.at("dev.log")).unwrap_or_default();
            panic!("no cluster: {log}");
        };
        let document = serde_json::from_str(&line);
        let document = document.unwrap_or_else(|error| panic!("{error} in {line}"));
        Self { document, folder: folder.path().to_owned(), dev, ended: false }
    }

    /// Starts `ringctl dev` without waiting for anything, and gives the process.
    pub fn spawn(folder: &TestFolder, more: &[&str]) -> Child {
        command(folder, more).kill_on_drop(true).spawn().expect("ringctl starts")
    }

    /// Every manager's address, comma-separated.
    pub fn endpoints(&self) -> String {
        let all: Vec<&str> = self.document.managers.iter().map(|it| it.grpc.as_str()).collect();
        all.join(",")
    }

    /// A client that knows every manager and begins each call at the next one.
    pub fn client(&self) -> Client {
        let options = Options { entry: Entry::RoundRobin, ..Options::default() };
        Client::with_options(&self.endpoints(), options).expect("the addresses are good")
    }

    /// A client of one manager only.
    pub fn client_of(&self, manager: usize) -> Client {
        Client::connect(&self.document.managers[manager].grpc).expect("the address is good")
    }

    /// A client of each manager.
    pub fn clients(&self) -> Vec<Client> {
        (0..self.document.managers.len()).map(|it| self.client_of(it)).collect()
    }

    /// Runs `ringctl` at all managers.
    pub async fn ringctl(&self, arguments: &[&str]) -> Ran {
        ringctl(&self.endpoints(), arguments).await
    }

    /// Runs `ringctl` at one manager.
    pub async fn ringctl_at(&self, manager: usize, arguments: &[&str]) -> Ran {
        ringctl(&self.document.managers[manager].grpc, arguments).await
    }

    /// Kills the config store and waits until it is gone; gives the command line that it had.
    pub async fn kill_store(&self) -> Vec<String> {
        let pid = self.document.config_store.pid;
        let line = processes::process(pid).expect("it ran until now").line;
        kill(pid).await;
        line
    }

    /// Kills a manager and waits until it is gone.
    pub async fn kill_manager(&self, manager: usize) {
        kill(self.document.managers[manager].pid).await;
    }

    /// Kills these managers at one moment, so that none of them misses another, and waits until they are
    /// gone; gives what they were.
    pub async fn kill_managers(&self, managers: &[usize]) -> Vec<Process> {
        let pids = managers.iter().map(|it| self.document.managers[*it].pid);
        let victims: Vec<_> =
            pids.map(|it| processes::process(it).expect("it ran until now")).collect();
        processes::cut_power(&victims).await;
        victims
    }

    /// Kills a manager and starts it again with its own command line, so with its own folder. It
    /// is no child of `ringctl dev` any more: the test ends it.
    pub async fn restart_manager(&self, folder: &TestFolder, manager: usize) -> Launched {
        let it = &self.document.managers[manager];
        let process = processes::process(it.pid).expect("it ran until now");
        kill(it.pid).await;
        Launched::again(folder, &format!("manager-{}-again", it.number), &process.line).await
    }

    /// Starts a further manager, which waits outside of the ring, with the options of the first
    /// one. It is no child of `ringctl dev`: the test ends it.
    pub async fn newcomer(&self, folder: &TestFolder, id: &str) -> Launched {
        let first = self.document.managers.first().expect("a cluster has a manager");
        let line = processes::process(first.pid).expect("it runs").line;
        Launched::again(folder, id, &newcomer_line(folder, &line, id)).await
    }

    /// Waits until each of three partitions has three copies in its in-sync set.
    pub async fn every_copy_is_in_sync(&self) {
        every_copy_is_in_sync(&self.endpoints()).await;
    }

    /// The log of one of its processes, by name: `store`, `m1`, `n1`, ...
    pub fn log(&self, name: &str) -> String {
        let file = self.document.data.join("logs").join(format!("{name}.log"));
        std::fs::read_to_string(file).unwrap_or_default()
    }

    /// The test's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Everything that works for this test: `ringctl dev`, its processes, and theirs.
    pub fn processes(&self) -> Vec<Process> {
        processes::of_folder(&self.folder)
    }

    /// Node-agents that managers started.
    pub fn started_nodes(&self) -> Vec<Process> {
        let first: Vec<u32> = self.document.nodes.iter().map(|it| it.pid).collect();
        let agents = self.processes().into_iter().filter(Process::is_agent);
        agents.filter(|it| !first.contains(&it.pid)).collect()
    }

    /// The keepers of programs.
    pub fn keepers(&self) -> Vec<Process> {
        self.processes().into_iter().filter(Process::is_keeper).collect()
    }

    /// The programs below a keeper.
    pub fn programs_of(&self, keeper: &Process) -> Vec<Process> {
        self.processes().into_iter().filter(|it| it.parent == keeper.pid).collect()
    }

    /// The pid of `ringctl dev`.
    pub fn pid(&self) -> u32 {
        self.dev.id().expect("it was not waited for")
    }

    /// Asks `ringctl dev` to end everything; fails when it does not succeed or when any process is
    /// left.
    pub async fn end(mut self) {
        processes::send(self.pid(), Signal::TERM);
        let status = self.ends().await;
        assert!(status.success(), "ringctl dev ended with {status}");
    }

    /// The same for a cluster of which the test started some processes again: these end after
    /// node-agents and managers, whom they serve. Fails unless each ends well.
    pub async fn end_with(mut self, own: Vec<Launched>) {
        processes::send(self.pid(), Signal::TERM);
        let status = timeout(END_WAIT, self.dev.wait()).await;
        let status = status.expect("ringctl dev ends").expect("a child can be waited for");
        assert!(status.success(), "ringctl dev ended with {status}");
        for launched in own {
            assert_eq!(launched.end().await, Some(0));
        }
        assert_eq!(processes::of_folder(&self.folder), vec![], "processes are left");
        self.ended = true;
    }

    /// Waits for the end of `ringctl dev`, which somebody asked for. Fails when any process is
    /// left then.
    pub async fn ends(&mut self) -> ExitStatus {
        let status = timeout(END_WAIT, self.dev.wait()).await;
        let status = status.expect("ringctl dev ends").expect("a child can be waited for");
        let left = processes::of_folder(&self.folder);
        assert_eq!(left, vec![], "processes are left");
        self.ended = true;
        status
    }

    /// Kills every process of the cluster for which `which` holds at one moment, so that none of them
    /// notices another's end.
    pub async fn crash(mut self, which: impl Fn(&Process) -> bool) {
        let mut victims = self.processes();
        victims.retain(which);
        processes::cut_power(&victims).await;
        self.dev.wait().await.expect("a child can be waited for");
        self.ended = true;
    }
}

/// The command line of a manager that waits outside of the ring, made of that of a member.
fn newcomer_line(folder: &TestFolder, member: &[String], id: &str) -> Vec<String> {
    let mut line = Vec::new();
    let mut words = member.iter();
    while let Some(word) = words.next() {
        let mut other = |value: String| {
            let _old = words.next();
            line.extend([word.clone(), value]);
        };
        match word.as_str() {
            "--number" | "--ring" => drop(words.next()),
            "--id" => other(id.to_owned()),
            "--data" => other(folder.at(&format!("newcomers/{id}"))),
            "--grpc" | "--http" => other("127.0.0.1:0".to_owned()),
            _ => line.push(word.clone()),
        }
    }
    line.push("--join".to_owned());
    line
}

/// Kills a process by its pid, and waits until it is gone.
async fn kill(pid: u32) {
    let Some(process) = processes::process(pid) else { return };
    process.signal(Signal::KILL);
    eventually("a killed process is gone", PATIENCE, async || {
        if process.runs() { Err(format!("{pid} runs")) } else { Ok(()) }
    })
    .await;
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        // What it writes on the way out is worth having. No pid: it has ended already.
        if let Some(pid) = self.dev.id() {
            processes::send(pid, Signal::TERM);
        }
        let until = Instant::now() + Duration::from_secs(15);
        while matches!(self.dev.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        processes::kill_all_of(&self.folder);
        let _reaped = self.dev.try_wait();
        assert!(std::thread::panicking(), "a test must end its cluster with Cluster::end");
    }
}
