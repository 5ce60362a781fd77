//! Starts nodes as processes of this machine. They live on when the manager ends: each has a
//! process group of its own, no pipe to the manager, and a log file in its folder.

use crate::{ClusterOptions, NewNode, OldNode, Provision, Work};
use anyhow::bail;
use rota_daemon::private::make_way;
use rota_daemon::processes::{self, Process};
use rota_model::NodeId;
use rustix::process::Signal;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::time::Instant;

/// A node that ends sooner than this has not started: a wrong option, a folder in use.
const EARLY_END: Duration = Duration::from_millis(500);

/// How long the agent may take to look at the class files.
const CHECK_WAIT: Duration = Duration::from_secs(10);

/// How long an agent that is told to end may take: it gives its programs their grace. Then it is killed; its guardian
/// ends what it ran.
const END_WAIT: Duration = Duration::from_secs(60);

/// How long one that was killed may take.
const KILL_WAIT: Duration = Duration::from_secs(10);

/// Between two looks whether it has ended.
const END_LOOK: Duration = Duration::from_millis(200);

/// How many nodes are started at a time.
const AT_ONCE: usize = 128;

/// Name of this provisioner.
pub const PROCESS: &str = "process";

/// How nodes are started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcessOptions {
    /// The node-agent program.
    pub agent: PathBuf,
    /// Folder under which each node gets its own.
    pub data: PathBuf,
    /// Folder of class files.
    pub classes: PathBuf,
}

/// The provisioner `process`.
pub struct Processes {
    /// The program and its folders.
    pub options: ProcessOptions,
    /// What every node is told.
    pub cluster: ClusterOptions,
}

impl Provision for Processes {
    fn start(&self, node: NewNode) -> Work<'_> {
        Box::pin(async move { self.start_one(&node).await })
    }

    fn end(&self, node: OldNode) -> Work<'_> {
        Box::pin(async move { self.end_one(&node.node).await })
    }

    fn at_once(&self) -> usize {
        AT_ONCE
    }
}

/// The mistakes in class files, as the agent tells them.
#[derive(Debug)]
pub struct WrongClasses(String);

impl std::fmt::Display for WrongClasses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongClasses {}

/// Lets the agent look at the class files of new nodes. Found only when a node is ordered, a mistake
/// there would be told to a log that nobody reads while opens wait.
pub async fn check_classes(process: &ProcessOptions) -> anyhow::Result<()> {
    let mut command = Command::new(&process.agent);
    command.arg("check").arg("--classes").arg(&process.classes);
    command.stdin(Stdio::null()).kill_on_drop(true);
    let shown = format!(
        "--process-classes: {} check --classes {}",
        process.agent.display(),
        process.classes.display()
    );
    let output = match tokio::time::timeout(CHECK_WAIT, command.output()).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => bail!("{shown} does not start: {error}"),
        Err(_) => bail!("{shown} does not end within {CHECK_WAIT:?}"),
    };
    let said = format!("{shown} says\n{}", String::from_utf8_lossy(&output.stderr).trim_end());
    match output.status.code() {
        Some(0) => Ok(()),
        Some(2) => Err(WrongClasses(said).into()),
        Some(_) | None => bail!(said),
    }
}

impl Processes {
    async fn start_one(&self, it: &NewNode) -> Result<(), String> {
        let node = &it.node;
        let folder = self.folder(node)?;
        let (path, log) = log_file(&folder)?;
        let mut child = self
            .spawn(it, (&folder, &log))
            .map_err(|error| format!("{} does not start: {error}", self.options.agent.display()))?;
        tracing::info!(%node, pid = child.id(), log = %path.display(), "a node was started");
        if let Ok(ended) = tokio::time::timeout(EARLY_END, child.wait()).await {
            let how = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
            return Err(format!("node {node} ended at once ({how}); see {}", path.display()));
        }
        tokio::spawn(reap(node.clone(), child));
        Ok(())
    }

    /// Tells the agent of a node to end, if it runs on this machine, and waits for that. Its folder stays, with what
    /// its sessions printed.
    async fn end_one(&self, node: &NodeId) -> Result<(), String> {
        let data = self.folder(node)?.join("data");
        let agents = agents_of(&data);
        for (signal, wait) in [(Signal::TERM, END_WAIT), (Signal::KILL, KILL_WAIT)] {
            for agent in agents.iter().filter(|it| it.runs()) {
                tracing::info!(%node, pid = agent.pid, ?signal, "what is left of a node is told to end");
                agent.signal(signal);
            }
            let until = Instant::now() + wait;
            while agents.iter().any(|it| it.runs()) && Instant::now() < until {
                tokio::time::sleep(END_LOOK).await;
            }
        }
        match agents.iter().find(|it| it.runs()) {
            Some(agent) => Err(format!("its agent (pid {}) does not end", agent.pid)),
            None => Ok(()),
        }
    }

    /// The node's folder under that of all. A node's name must not lead out of it.
    fn folder(&self, node: &NodeId) -> Result<PathBuf, String> {
        let name = node.as_str();
        if name.contains('/') || name.starts_with('.') {
            return Err(format!("node {name:?} has a name that is no folder's"));
        }
        Ok(self.options.data.join(name))
    }

    fn spawn(&self, it: &NewNode, (folder, log): (&Path, &File)) -> std::io::Result<Child> {
        let mut command = Command::new(&self.options.agent);
        command
            .arg("run")
            .arg("--data")
            .arg(folder.join("data"))
            .arg("--classes")
            .arg(&self.options.classes)
            .args(self.cluster.arguments(it))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log.try_clone()?)
            // A Ctrl-C at the manager's terminal is not meant for its nodes.
            .process_group(0)
            .kill_on_drop(false);
        command.spawn()
    }
}

/// Node-agents that serve from a data folder.
fn agents_of(data: &Path) -> Vec<Process> {
    let Some(data) = data.to_str() else { return Vec::new() };
    let serves = |pid: i32| {
        let line = processes::command_line(pid);
        let folder = line.iter().position(|it| it == "--data").and_then(|at| line.get(at + 1));
        line.iter().any(|it| it == "run") && folder.is_some_and(|it| it == data)
    };
    let all = processes::all().into_iter().filter(|it| it.runs && serves(it.process.pid));
    all.map(|it| it.process).collect()
}

/// Waits for a node's end, so that no dead process stays behind while the manager lives.
async fn reap(node: NodeId, mut child: Child) {
    match child.wait().await {
        Ok(status) => tracing::info!(%node, %status, "a node that was started here ended"),
        Err(error) => tracing::warn!(%node, %error, "a node that was started here is lost"),
    }
}

fn log_file(folder: &Path) -> Result<(PathBuf, File), String> {
    let path = folder.join("agent.log");
    let opened =
        make_way(folder).and_then(|()| OpenOptions::new().create(true).append(true).open(&path));
    match opened {
        Ok(file) => Ok((path, file)),
        Err(error) => Err(format!("{} cannot be written: {error}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NodeTimes, Provisioners};
    use rota_daemon::Log;
    use rota_model::{ClusterName, LoadLimit, NewNodes, PoolName, ProvisionerName, parse_label};
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Arc;

    /// An agent that is a shell script.
    fn process(folder: &Path, script: &str) -> Processes {
        let agent = folder.join("agent");
        std::fs::write(&agent, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&agent, std::fs::Permissions::from_mode(0o755)).unwrap();
        let (data, classes) = (folder.join("nodes"), folder.join("classes"));
        Processes {
            options: ProcessOptions { agent, data, classes },
            cluster: ClusterOptions {
                cluster: ClusterName::parse("c").unwrap(),
                consul: Some("consul://h:1/p".to_owned()),
                times: NodeTimes { renew_ms: 1, lease_term_ms: 2, lease_kill_ms: 3 },
                log: Log::text("info").unwrap(),
            },
        }
    }

    fn provisioners(process: Option<Processes>) -> Provisioners {
        let mut all = Provisioners::default();
        if let Some(process) = process {
            all.add(PROCESS, Arc::new(process));
        }
        all
    }

    async fn order(process: Option<Processes>, nodes: &[&str]) -> Option<String> {
        order_of(process, "process", nodes).await
    }

    async fn order_of(
        process: Option<Processes>,
        provisioner: &str,
        nodes: &[&str],
    ) -> Option<String> {
        let nodes = nodes.iter().map(|id| NodeId::parse(id).unwrap()).collect();
        let new = NewNodes {
            pool: PoolName::default_pool(),
            provisioner: ProvisionerName::parse(provisioner).unwrap(),
            places: 5,
            labels: [parse_label("zone=a").unwrap()].into(),
            cpu_millis: 0,
            memory_mib: 64,
            load_limit: LoadLimit::parse(0.8).unwrap(),
        };
        provisioners(process).start(nodes, new, Vec::new()).await.map(|it| it.1)
    }

    async fn end(process: Processes, node: &str) -> Option<String> {
        let old = OldNode { node: NodeId::parse(node).unwrap(), pool: PoolName::default_pool() };
        let name = ProvisionerName::parse(PROCESS).unwrap();
        provisioners(Some(process)).end(&name, old).await
    }

    #[tokio::test]
    async fn nodes_are_started_with_their_options_and_a_log_file() {
        let folder = tempfile::tempdir().unwrap();
        let process = process(folder.path(), "echo \"$@\"; exec sleep 2");
        assert_eq!(order(Some(process), &["n1", "n2"]).await, None);
        let log = std::fs::read_to_string(folder.path().join("nodes/n2/agent.log")).unwrap();
        assert!(log.starts_with("run --data ") && log.contains("--id n2"), "{log}");
        assert!(
            log.contains(
                "--pool default --places 5 --label=zone=a --memory-mib=64 --load-limit 0.8"
            ),
            "{log}"
        );
        assert!(log.contains("--consul consul://h:1/p"), "{log}");
    }

    #[tokio::test]
    async fn a_node_that_ends_at_once_is_a_failure_that_names_its_log() {
        let folder = tempfile::tempdir().unwrap();
        let process = process(folder.path(), "exit 2");
        let failure = order(Some(process), &["n1"]).await.unwrap();
        assert!(failure.contains("exit status: 2") && failure.contains("agent.log"), "{failure}");
    }

    #[tokio::test]
    async fn an_agent_that_cannot_run_a_strange_name_and_a_missing_provisioner_are_failures() {
        let folder = tempfile::tempdir().unwrap();
        let mut gone = process(folder.path(), "");
        gone.options.agent = folder.path().join("no such agent");
        assert!(order(Some(gone), &["n1"]).await.unwrap().contains("no such agent"));
        let strange = order(Some(process(folder.path(), "")), &["../n1"]).await.unwrap();
        assert!(strange.contains("no folder"), "{strange}");
        let none = order(None, &["n1"]).await.unwrap();
        assert!(none.contains("has no provisioner \"process\""), "{none}");
        let other = order_of(Some(process(folder.path(), "")), "docker", &["n1"]).await.unwrap();
        assert!(other.contains("has no provisioner \"docker\""), "{other}");
    }

    #[tokio::test]
    async fn an_agent_that_never_registers_is_told_to_end_and_who_is_gone_is_no_failure() {
        let folder = tempfile::tempdir().unwrap();
        let hangs = || process(folder.path(), "while :; do sleep 0.05; done");
        assert_eq!(order(Some(hangs()), &["n1"]).await, None);
        let data = folder.path().join("nodes/n1/data");
        let runs = || !agents_of(&data).is_empty();
        assert!(runs());
        assert_eq!(end(hangs(), "n1").await, None);
        assert!(!runs());
        assert_eq!(end(hangs(), "n1").await, None);
        assert_eq!(end(hangs(), "never").await, None);
    }
}
