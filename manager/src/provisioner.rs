//! Starts nodes as processes of this machine. They live on when the manager ends: each has a
//! process group of its own, no pipe to the manager, and a log file in its folder.

use crate::mailbox::Mailbox;
use crate::options::ProcessOptions;
use anyhow::bail;
use rota_daemon::Log;
use rota_daemon::private::make_way;
use rota_membership::ConsulAddress;
use rota_model::{ClusterName, NewNodes, NodeId, label_text};
use rota_protocol::{Input, Timing};
use rota_ring::View;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::process::{Child, Command};

/// A node that ends sooner than this has not started: a wrong option, a folder in use.
const EARLY_END: Duration = Duration::from_millis(500);

/// How long the agent may take to look at the class files.
const CHECK_WAIT: Duration = Duration::from_secs(10);

/// What every new node is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeOptions {
    /// The program and its folders.
    pub process: ProcessOptions,
    /// The cluster.
    pub cluster: ClusterName,
    /// Where it registers as a service, besides with the managers.
    pub consul: Option<ConsulAddress>,
    /// Times; a node must keep those that it shares with managers.
    pub timing: Timing,
    /// The log.
    pub log: Log,
}

/// Name of the provisioner that starts nodes as processes of this machine.
pub const PROCESS: &str = "process";

/// The provisioners of this manager.
pub struct Provisioner {
    process: Option<Arc<NodeOptions>>,
    mailbox: Mailbox,
}

impl Provisioner {
    /// The provisioner `process`, or none.
    pub fn new(process: Option<NodeOptions>, mailbox: Mailbox) -> Self {
        Self { process: process.map(Arc::new), mailbox }
    }

    /// Starts nodes, then gives [`Input::Provisioned`].
    pub fn order(&self, order: u64, nodes: Vec<NodeId>, new: NewNodes, view: Option<&Arc<View>>) {
        let managers: Vec<String> = view.map(|view| addresses(view)).unwrap_or_default();
        let (mailbox, process) = (self.mailbox.clone(), self.process.clone());
        tokio::spawn(async move {
            let process = process.filter(|_| new.provisioner.as_str() == PROCESS);
            let failure = match process {
                Some(options) => start_all(&options, &nodes, &new, &managers).await,
                None => Some(format!(
                    "the manager that owns the pool has no provisioner {:?}; every manager needs its flags \
                     (--process-agent, --process-data and --process-classes for {PROCESS:?})",
                    new.provisioner
                )),
            };
            if let Some(failure) = &failure {
                tracing::warn!(order, pool = %new.pool, failure, "nodes were not started");
            }
            // A driver that has ended needs no answer.
            let _ = mailbox.input(Input::Provisioned { order, failure }).await;
        });
    }
}

fn addresses(view: &View) -> Vec<String> {
    let known = view.managers.values().filter(|it| !it.grpc.is_empty());
    known.map(|it| it.grpc.clone()).collect()
}

/// Starts all; gives what went wrong with the ones that did not start.
async fn start_all(
    options: &Arc<NodeOptions>,
    nodes: &[NodeId],
    new: &NewNodes,
    managers: &[String],
) -> Option<String> {
    let mut starting = Vec::new();
    for node in nodes {
        let (options, node, new) = (options.clone(), node.clone(), new.clone());
        let managers = managers.to_vec();
        starting.push(tokio::spawn(async move { start(&options, &node, &new, &managers).await }));
    }
    let mut failures = Vec::new();
    for started in starting {
        match started.await {
            Ok(Ok(())) => {}
            Ok(Err(failure)) => failures.push(failure),
            Err(error) => failures.push(format!("the task that starts a node failed: {error}")),
        }
    }
    (!failures.is_empty()).then(|| failures.join("; "))
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

async fn start(
    options: &NodeOptions,
    node: &NodeId,
    new: &NewNodes,
    managers: &[String],
) -> Result<(), String> {
    let folder = folder(options, node)?;
    let (path, log) = log_file(&folder)?;
    let mut child = spawn(options, node, new, managers, (&folder, &log))
        .map_err(|error| format!("{} does not start: {error}", options.process.agent.display()))?;
    tracing::info!(%node, pid = child.id(), log = %path.display(), "a node was started");
    if let Ok(ended) = tokio::time::timeout(EARLY_END, child.wait()).await {
        let how = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
        return Err(format!("node {node} ended at once ({how}); see {}", path.display()));
    }
    tokio::spawn(reap(node.clone(), child));
    Ok(())
}

/// Waits for a node's end, so that no dead process stays behind while the manager lives.
async fn reap(node: NodeId, mut child: Child) {
    match child.wait().await {
        Ok(status) => tracing::info!(%node, %status, "a node that was started here ended"),
        Err(error) => tracing::warn!(%node, %error, "a node that was started here is lost"),
    }
}

/// The node's folder under that of all. A node's name must not lead out of it.
fn folder(options: &NodeOptions, node: &NodeId) -> Result<PathBuf, String> {
    let name = node.as_str();
    if name.contains('/') || name.starts_with('.') {
        return Err(format!("node {name:?} has a name that is no folder's"));
    }
    Ok(options.process.data.join(name))
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

fn spawn(
    options: &NodeOptions,
    node: &NodeId,
    new: &NewNodes,
    managers: &[String],
    (folder, log): (&Path, &File),
) -> std::io::Result<Child> {
    let (process, timing) = (&options.process, &options.timing);
    let ms = |ms: u64| format!("{ms}ms");
    let consul = options.consul.iter().flat_map(|it| ["--consul".to_owned(), it.to_string()]);
    let mut command = Command::new(&process.agent);
    command
        .arg("run")
        .arg("--data")
        .arg(folder.join("data"))
        .arg("--classes")
        .arg(&process.classes)
        .args(["--id", node.as_str()])
        .args(["--cluster", options.cluster.as_str()])
        .args(["--managers", &managers.join(",")])
        .args(["--pool", new.pool.as_str()])
        .args(["--places", &new.places.to_string()])
        .args(new.labels.iter().map(|it| format!("--label={}", label_text(it))))
        .args((new.cpu_millis > 0).then(|| format!("--cpu-millis={}", new.cpu_millis)))
        .args((new.memory_mib > 0).then(|| format!("--memory-mib={}", new.memory_mib)))
        .args(["--load-limit", &new.load_limit.to_string()])
        .args(["--renew", &ms(timing.renew_ms)])
        .args(["--lease-term", &ms(timing.lease_term_ms)])
        .args(["--lease-kill", &ms(timing.lease_kill_ms)])
        .args(options.log.options())
        .args(consul)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log.try_clone()?)
        // A Ctrl-C at the manager's terminal is not meant for its nodes.
        .process_group(0)
        .kill_on_drop(false);
    command.spawn()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mailbox::{Urgent, mailbox};
    use rota_model::{LoadLimit, PoolName, ProvisionerName, parse_label};
    use std::os::unix::fs::PermissionsExt;

    /// An agent that is a shell script.
    fn process(folder: &Path, script: &str) -> NodeOptions {
        let agent = folder.join("agent");
        std::fs::write(&agent, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&agent, std::fs::Permissions::from_mode(0o755)).unwrap();
        let (data, classes) = (folder.join("nodes"), folder.join("classes"));
        NodeOptions {
            process: ProcessOptions { agent, data, classes },
            cluster: ClusterName::parse("c").unwrap(),
            consul: Some(ConsulAddress::parse("consul://h:1/p").unwrap()),
            timing: Timing::default(),
            log: Log::text("info").unwrap(),
        }
    }

    async fn order(process: Option<NodeOptions>, nodes: &[&str]) -> Option<String> {
        order_of(process, "process", nodes).await
    }

    async fn order_of(
        process: Option<NodeOptions>,
        provisioner: &str,
        nodes: &[&str],
    ) -> Option<String> {
        let (mailbox, mut lanes) = mailbox();
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
        Provisioner::new(process, mailbox).order(4, nodes, new, None);
        let Some(Urgent::Input(input)) = lanes.urgent.recv().await else {
            panic!("no input came");
        };
        let Input::Provisioned { order: 4, failure } = *input else {
            panic!("another input came: {input:?}");
        };
        failure
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
        gone.process.agent = folder.path().join("no such agent");
        assert!(order(Some(gone), &["n1"]).await.unwrap().contains("no such agent"));
        let strange = order(Some(process(folder.path(), "")), &["../n1"]).await.unwrap();
        assert!(strange.contains("no folder"), "{strange}");
        let none = order(None, &["n1"]).await.unwrap();
        assert!(none.contains("has no provisioner \"process\""), "{none}");
        let other = order_of(Some(process(folder.path(), "")), "docker", &["n1"]).await.unwrap();
        assert!(other.contains("has no provisioner \"docker\""), "{other}");
    }
}
