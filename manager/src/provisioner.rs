//! Starts nodes as processes of this machine. They live on when the manager ends: each has a
//! process group of its own, no pipe to the manager, and a log file in its folder.

use crate::mailbox::Mailbox;
use crate::options::PoolOptions;
use anyhow::bail;
use rota_daemon::Log;
use rota_daemon::private::make_way;
use rota_membership::ConsulAddress;
use rota_model::{ClusterName, NodeId, PoolName};
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
    /// The pool, the program and its folders.
    pub pool: PoolOptions,
    /// The cluster.
    pub cluster: ClusterName,
    /// Where it registers as a service, besides with the managers.
    pub consul: Option<ConsulAddress>,
    /// T, in thousandths.
    pub load_limit_permille: u32,
    /// Times; a node must keep those that it shares with managers.
    pub timing: Timing,
    /// The log.
    pub log: Log,
}

/// The provisioner `process`.
pub struct Provisioner {
    options: Option<Arc<NodeOptions>>,
    mailbox: Mailbox,
}

impl Provisioner {
    /// A provisioner for one pool, or for none.
    pub fn new(options: Option<NodeOptions>, mailbox: Mailbox) -> Self {
        Self { options: options.map(Arc::new), mailbox }
    }

    /// Starts nodes, then gives [`Input::Provisioned`].
    pub fn order(&self, order: u64, pool: PoolName, nodes: Vec<NodeId>, view: Option<&Arc<View>>) {
        let managers: Vec<String> = view.map(|view| addresses(view)).unwrap_or_default();
        let (mailbox, options) = (self.mailbox.clone(), self.options.clone());
        tokio::spawn(async move {
            let failure = match options.filter(|it| it.pool.config.name == pool) {
                Some(options) => start_all(&options, &nodes, &managers).await,
                None => Some(format!("this manager starts no nodes in pool {pool}")),
            };
            if let Some(failure) = &failure {
                tracing::warn!(order, %pool, failure, "nodes were not started");
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
    managers: &[String],
) -> Option<String> {
    let mut starting = Vec::new();
    for node in nodes {
        let (options, node, managers) = (options.clone(), node.clone(), managers.to_vec());
        starting.push(tokio::spawn(async move { start(&options, &node, &managers).await }));
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

/// The mistakes in the class files of a pool, as its agent tells them.
#[derive(Debug)]
pub struct WrongClasses(String);

impl std::fmt::Display for WrongClasses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongClasses {}

/// Lets the agent of a pool look at its class files. Found only when a node is ordered, a mistake
/// there would be told to a log that nobody reads while opens wait.
pub async fn check_classes(pool: &PoolOptions) -> anyhow::Result<()> {
    let mut command = Command::new(&pool.agent);
    command.arg("check").arg("--classes").arg(&pool.classes);
    command.stdin(Stdio::null()).kill_on_drop(true);
    let shown = format!(
        "--pool-classes: {} check --classes {}",
        pool.agent.display(),
        pool.classes.display()
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

async fn start(options: &NodeOptions, node: &NodeId, managers: &[String]) -> Result<(), String> {
    let folder = folder(options, node)?;
    let (path, log) = log_file(&folder)?;
    let mut child = spawn(options, node, managers, &folder, &log)
        .map_err(|error| format!("{} does not start: {error}", options.pool.agent.display()))?;
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

/// The node's folder under the pool's. A node's name must not lead out of it.
fn folder(options: &NodeOptions, node: &NodeId) -> Result<PathBuf, String> {
    let name = node.as_str();
    if name.contains('/') || name.starts_with('.') {
        return Err(format!("node {name:?} has a name that is no folder's"));
    }
    Ok(options.pool.data.join(name))
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
    managers: &[String],
    folder: &Path,
    log: &File,
) -> std::io::Result<Child> {
    let (pool, timing) = (&options.pool, &options.timing);
    let ms = |ms: u64| format!("{ms}ms");
    let consul = options.consul.iter().flat_map(|it| ["--consul".to_owned(), it.to_string()]);
    let mut command = Command::new(&pool.agent);
    command
        .arg("run")
        .arg("--data")
        .arg(folder.join("data"))
        .arg("--classes")
        .arg(&pool.classes)
        .args(["--id", node.as_str()])
        .args(["--cluster", options.cluster.as_str()])
        .args(["--managers", &managers.join(",")])
        .args(["--pool", pool.config.name.as_str()])
        .args(["--places", &pool.config.places.to_string()])
        .args(["--load-limit", &(f64::from(options.load_limit_permille) / 1000.0).to_string()])
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
    use rota_protocol::PoolConfig;
    use std::os::unix::fs::PermissionsExt;

    /// A pool whose agent is a shell script.
    fn pool(folder: &Path, script: &str) -> NodeOptions {
        let agent = folder.join("agent");
        std::fs::write(&agent, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&agent, std::fs::Permissions::from_mode(0o755)).unwrap();
        let name = PoolName::default_pool();
        let config = PoolConfig { name, nodes_max: 3, places: 5 };
        let (data, classes) = (folder.join("nodes"), folder.join("classes"));
        NodeOptions {
            pool: PoolOptions { config, agent, data, classes },
            cluster: ClusterName::parse("c").unwrap(),
            consul: Some(ConsulAddress::parse("consul://h:1/p").unwrap()),
            load_limit_permille: 800,
            timing: Timing::default(),
            log: Log::text("info").unwrap(),
        }
    }

    async fn order(pool: Option<NodeOptions>, nodes: &[&str]) -> Option<String> {
        let (mailbox, mut lanes) = mailbox();
        let nodes = nodes.iter().map(|id| NodeId::parse(id).unwrap()).collect();
        let provisioner = Provisioner::new(pool, mailbox);
        provisioner.order(4, PoolName::default_pool(), nodes, None);
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
        let pool = pool(folder.path(), "echo \"$@\"; exec sleep 2");
        assert_eq!(order(Some(pool), &["n1", "n2"]).await, None);
        let log = std::fs::read_to_string(folder.path().join("nodes/n2/agent.log")).unwrap();
        assert!(log.starts_with("run --data ") && log.contains("--id n2"), "{log}");
        assert!(log.contains("--pool default --places 5 --load-limit 0.8"), "{log}");
        assert!(log.contains("--consul consul://h:1/p"), "{log}");
    }

    #[tokio::test]
    async fn a_node_that_ends_at_once_is_a_failure_that_names_its_log() {
        let folder = tempfile::tempdir().unwrap();
        let pool = pool(folder.path(), "exit 2");
        let failure = order(Some(pool), &["n1"]).await.unwrap();
        assert!(failure.contains("exit status: 2") && failure.contains("agent.log"), "{failure}");
    }

    #[tokio::test]
    async fn an_agent_that_cannot_run_a_strange_name_and_a_missing_pool_are_failures() {
        let folder = tempfile::tempdir().unwrap();
        let mut gone = pool(folder.path(), "");
        gone.pool.agent = folder.path().join("no such agent");
        assert!(order(Some(gone), &["n1"]).await.unwrap().contains("no such agent"));
        let strange = order(Some(pool(folder.path(), "")), &["../n1"]).await.unwrap();
        assert!(strange.contains("no folder"), "{strange}");
        assert!(order(None, &["n1"]).await.unwrap().contains("starts no nodes"));
    }
}
