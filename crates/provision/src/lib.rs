//! Provisioners: who starts the nodes of a pool, and ends what is left of them.
//!
//! ```text
//!   the pool's owner decides ── names of new nodes ──▶ Provision::start ──▶ they register by themselves
//!                            ── a node that is gone ─▶ Provision::end   ──▶ nothing of it is left
//! ```
//! * [`process`]: processes of this machine.
//! * [`command`]: any program; [`command::Answer`] says how it is spoken to.
//! * `docker` (a feature of the crate): containers of an engine.
//!
//! **Invariant:** both may be asked for again, also by another manager, and what is done already is no failure. A
//! node has one name, which is given once.

pub mod command;
#[cfg(feature = "docker")]
pub mod docker;
pub mod process;

use rota_daemon::Log;
use rota_model::{ClusterName, NewNodes, NodeId, PoolName, ProvisionerName, label_text};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// What a provisioner does, and why it could not, for people.
pub type Work<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'a>>;

/// Times of leases, which a node must keep as the managers do, in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeTimes {
    /// Between two renewals.
    pub renew_ms: u64,
    /// A program is told to end so long after the last renewal.
    pub lease_term_ms: u64,
    /// And killed so long after it.
    pub lease_kill_ms: u64,
}

/// What every new node of a cluster is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterOptions {
    /// The cluster.
    pub cluster: ClusterName,
    /// Where it registers as a service, besides with the managers.
    pub consul: Option<String>,
    /// Times.
    pub times: NodeTimes,
    /// The log.
    pub log: Log,
}

impl ClusterOptions {
    /// What the agent of a new node is told, but for its folders and where it listens.
    fn arguments(&self, it: &NewNode) -> Vec<String> {
        let (new, times) = (&it.new, &self.times);
        let ms = |ms: u64| format!("{ms}ms");
        let flag = |flag: &str, value: String| [flag.to_owned(), value];
        let mut all = [
            flag("--id", it.node.to_string()),
            flag("--cluster", self.cluster.to_string()),
            flag("--managers", it.managers.join(",")),
            flag("--pool", new.pool.to_string()),
            flag("--places", new.places.to_string()),
        ]
        .concat();
        all.extend(new.labels.iter().map(|it| format!("--label={}", label_text(it))));
        all.extend((new.cpu_millis > 0).then(|| format!("--cpu-millis={}", new.cpu_millis)));
        all.extend((new.memory_mib > 0).then(|| format!("--memory-mib={}", new.memory_mib)));
        all.extend(flag("--load-limit", new.load_limit.to_string()));
        all.extend(flag("--renew", ms(times.renew_ms)));
        all.extend(flag("--lease-term", ms(times.lease_term_ms)));
        all.extend(flag("--lease-kill", ms(times.lease_kill_ms)));
        all.extend(self.log.options().map(str::to_owned));
        all.extend(self.consul.iter().flat_map(|it| ["--consul".to_owned(), it.clone()]));
        all
    }
}

/// A node to start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewNode {
    /// Its name.
    pub node: NodeId,
    /// Of which pool, and how.
    pub new: NewNodes,
    /// Addresses of managers.
    pub managers: Vec<String>,
}

/// A node of which nothing is to be left.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OldNode {
    /// Its name.
    pub node: NodeId,
    /// Its pool.
    pub pool: PoolName,
}

/// Starts nodes, and ends what is left of them.
pub trait Provision: Send + Sync {
    /// Starts a node. Resolves when it is on its way, not when it is there.
    fn start(&self, node: NewNode) -> Work<'_>;

    /// Ends what is left of a node. What never was, or is gone, is no failure.
    fn end(&self, node: OldNode) -> Work<'_>;

    /// How many nodes are started or ended at a time.
    fn at_once(&self) -> usize;
}

#[derive(Clone)]
struct Entry {
    does: Arc<dyn Provision>,
    places: Arc<Semaphore>,
}

/// The provisioners of a manager, by name.
#[derive(Clone, Default)]
pub struct Provisioners {
    by_name: BTreeMap<String, Entry>,
}

impl Provisioners {
    /// Adds one.
    pub fn add(&mut self, name: &str, does: Arc<dyn Provision>) {
        let places = Arc::new(Semaphore::new(does.at_once().max(1)));
        self.by_name.insert(name.to_owned(), Entry { does, places });
    }

    /// Their names.
    pub fn names(&self) -> Vec<String> {
        self.by_name.keys().cloned().collect()
    }

    /// Whether there is one of that name.
    pub fn has(&self, name: &ProvisionerName) -> bool {
        self.by_name.contains_key(name.as_str())
    }

    fn find(&self, name: &ProvisionerName) -> Result<&Entry, String> {
        self.by_name.get(name.as_str()).ok_or_else(|| {
            format!(
                "the manager that owns the pool has no provisioner {name:?}; every manager needs its flags \
                 (--process-agent, --process-data and --process-classes for {:?}, --provision-command NAME=PROGRAM for \
                 programs, --provision-docker NAME=IMAGE for containers)",
                process::PROCESS
            )
        })
    }

    /// Starts all nodes. Gives those that did not start, and what went wrong.
    pub async fn start(
        &self,
        nodes: Vec<NodeId>,
        new: NewNodes,
        managers: Vec<String>,
    ) -> Option<(Vec<NodeId>, String)> {
        let entry = match self.find(&new.provisioner) {
            Ok(entry) => entry,
            Err(why) => return Some((nodes, why)),
        };
        let mut starting = Vec::new();
        for node in nodes {
            let (entry, new, managers) = (entry.clone(), new.clone(), managers.clone());
            let task = tokio::spawn({
                let node = node.clone();
                async move {
                    let _place = entry.places.acquire().await;
                    entry.does.start(NewNode { node, new, managers }).await
                }
            });
            starting.push((node, task));
        }
        let (mut failed, mut failures) = (Vec::new(), Vec::new());
        for (node, started) in starting {
            let failure = match started.await {
                Ok(Ok(())) => continue,
                Ok(Err(failure)) => failure,
                Err(error) => format!("the task that starts a node failed: {error}"),
            };
            failed.push(node);
            failures.push(failure);
        }
        (!failed.is_empty()).then(|| (failed, told(&failures)))
    }

    /// Ends what is left of a node. Gives what went wrong.
    pub async fn end(&self, provisioner: &ProvisionerName, node: OldNode) -> Option<String> {
        let entry = match self.find(provisioner) {
            Ok(entry) => entry,
            Err(why) => return Some(why),
        };
        let _place = entry.places.acquire().await;
        entry.does.end(node).await.err()
    }
}

/// Most characters of what somebody said in what operators are told.
const TOLD_CHARS_MAX: usize = 300;

/// The end of what somebody printed, in one line.
fn last_words(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim();
    let skipped = text.chars().count().saturating_sub(TOLD_CHARS_MAX);
    let last: String = text.chars().skip(skipped).collect();
    last.replace('\n', " | ")
}

/// Failures of many nodes are mostly the same one: some are enough.
const FAILURES_TOLD: usize = 3;

fn told(failures: &[String]) -> String {
    let first: Vec<&str> = failures.iter().take(FAILURES_TOLD).map(String::as_str).collect();
    let more = failures.len().saturating_sub(FAILURES_TOLD);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    format!("{}{more}", first.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_failures_the_first_are_told_and_the_others_counted() {
        let failures: Vec<String> = (0..5).map(|it| format!("n{it} failed")).collect();
        assert_eq!(told(&failures[..2]), "n0 failed; n1 failed");
        assert_eq!(told(&failures), "n0 failed; n1 failed; n2 failed; and 2 more");
    }
}
