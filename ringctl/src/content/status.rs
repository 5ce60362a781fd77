//! `ringctl content status`: which commit each node has.

use super::repository::Repository;
use super::{Common, StatusArguments};
use crate::output::{Format, Out, plain_table};
use anyhow::bail;
use rota_client::{Client, v1};
use rota_content::Hash;
use rota_model::{NodeId, PoolName};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// Between two looks while something is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Nodes that are asked at once.
const ASKED_AT_ONCE_MAX: usize = 16;

/// A session that runs with another version than the newest of its node.
#[derive(Serialize, Default)]
pub struct Older {
    pub namespace: String,
    pub id: String,
    pub life: u64,
    pub class: String,
    pub commit: String,
}

/// One node.
#[derive(Serialize, Default)]
pub struct Shown {
    pub node: String,
    pub pool: String,
    /// `nothing`, `refreshing`, `current`, `failed`; `behind` where it is current with another commit than it should
    /// have; `unknown` when it does not answer.
    pub state: String,
    pub repository: String,
    pub commit: String,
    /// The commit that the node should have; empty: its pool follows nothing.
    pub target: String,
    pub files: u64,
    pub bytes: u64,
    pub refreshed_at_ms: u64,
    /// Of a download that is under way.
    pub came_files: u64,
    pub of_files: u64,
    pub sessions_current: u64,
    pub sessions_older: u64,
    pub failure: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub older: Vec<Older>,
    /// Classes whose text says `disturb = "never"`.
    #[serde(skip)]
    pub spared: BTreeSet<String>,
    /// Classes that it has.
    #[serde(skip)]
    pub known: BTreeSet<String>,
}

#[derive(Serialize)]
struct All<'a> {
    nodes: &'a [Shown],
}

impl Shown {
    /// Whether it has what it should have.
    pub fn is_there(&self) -> bool {
        self.target.is_empty() || (self.state == "current" && self.commit == self.target)
    }

    /// Whether sessions of a class are left alone: it says so, or the node does not have it any more, so that nobody knows.
    pub fn spares(&self, class: &str) -> bool {
        self.spared.contains(class) || !self.known.contains(class)
    }

    fn set_target(&mut self, target: &Hash) {
        self.target = target.to_string();
        if self.state == "current" && self.commit != self.target {
            self.state = "behind".to_owned();
        }
    }
}

fn shown(node: &v1::NodeStats, told: Result<v1::ContentStatusResponse, String>) -> Shown {
    let told = told.unwrap_or_else(|failure| v1::ContentStatusResponse {
        state: "unknown".to_owned(),
        failure,
        ..Default::default()
    });
    let older = |it: v1::OlderSession| {
        let v1::SessionKey { namespace, id } = it.key.unwrap_or_default();
        Older { namespace, id, life: it.life, class: it.class, commit: it.commit }
    };
    let spared = node.class_facts.iter().filter(|(_, it)| it.disturb == "never");
    Shown {
        node: node.id.clone(),
        pool: node.pool.clone(),
        state: told.state,
        repository: told.repository,
        commit: told.commit,
        target: String::new(),
        files: told.files,
        bytes: told.bytes,
        refreshed_at_ms: told.refreshed_at_ms,
        came_files: told.came_files,
        of_files: told.of_files,
        sessions_current: told.sessions_current,
        sessions_older: told.sessions_older,
        failure: told.failure,
        older: told.older.into_iter().map(older).collect(),
        spared: spared.map(|(class, _)| class.clone()).collect(),
        known: node.class_facts.keys().cloned().collect(),
    }
}

/// Shows the content of each node.
pub async fn status(client: &Client, it: &StatusArguments, out: &mut Out) -> anyhow::Result<()> {
    let began = Instant::now();
    let (pool, sessions, timeout) = (it.pool.as_ref(), it.sessions, it.timeout);
    let asked = Asked { pool, node: None, sessions, timeout };
    let nodes = loop {
        let nodes = all(client, &asked).await?;
        match it.wait.filter(|_| !nodes.iter().all(Shown::is_there)) {
            Some(wait) if began.elapsed() < wait => sleep(LOOK_EVERY).await,
            Some(_) | None => break nodes,
        }
    };
    let late = nodes.iter().filter(|it| !it.is_there()).count();
    show(&nodes, it, out)?;
    if it.wait.is_some() && late > 0 {
        bail!("{late} of {} nodes have not the commit that they should have", nodes.len());
    }
    Ok(())
}

fn show(nodes: &[Shown], it: &StatusArguments, out: &mut Out) -> anyhow::Result<()> {
    if out.format() == Format::Json {
        return Ok(out.json(&All { nodes })?);
    }
    let columns =
        ["NODE", "POOL", "STATE", "CONTENT", "COMMIT", "TARGET", "FILES", "NEWEST", "OLDER", "WHY"];
    let mut table = plain_table(columns);
    for it in nodes {
        let files = match it.of_files {
            0 => it.files.to_string(),
            of => format!("{}/{of}", it.came_files),
        };
        table.add_row([
            it.node.clone(),
            it.pool.clone(),
            it.state.clone(),
            it.repository.clone(),
            it.commit.clone(),
            it.target.clone(),
            files,
            it.sessions_current.to_string(),
            it.sessions_older.to_string(),
            it.failure.clone(),
        ]);
    }
    out.table(&table)?;
    if it.sessions {
        let mut table = plain_table(["NODE", "NAMESPACE", "ID", "CLASS", "COMMIT"]);
        for it in nodes {
            for older in &it.older {
                let Older { namespace, id, class, commit, .. } = older;
                table.add_row([&it.node, namespace, id, class, commit]);
            }
        }
        out.text("\n")?;
        out.table(&table)?;
    }
    Ok(())
}

/// What is asked of which nodes.
pub struct Asked<'a> {
    /// Only those of this pool.
    pub pool: Option<&'a PoolName>,
    /// Only this one.
    pub node: Option<&'a str>,
    /// Also to name sessions of older versions.
    pub sessions: bool,
    /// How long each may take to answer.
    pub timeout: Duration,
}

/// The nodes, sorted by name.
pub async fn all(client: &Client, it: &Asked<'_>) -> anyhow::Result<Vec<Shown>> {
    let known = client.inspect(it.timeout).await?.nodes;
    let is_asked = |node: &v1::NodeStats| {
        let is_gone = ["LOST", "REMOVED"].contains(&&*node.state);
        let is_meant = it.node.is_none_or(|name| node.id == name);
        !is_gone && is_meant && it.pool.is_none_or(|pool| node.pool == pool.as_str())
    };
    let places = Arc::new(Semaphore::new(ASKED_AT_ONCE_MAX));
    let mut asked = JoinSet::new();
    for node in known.into_iter().filter(is_asked) {
        let (client, places, wait, sessions) =
            (client.clone(), places.clone(), it.timeout, it.sessions);
        asked.spawn(async move {
            let _place = places.acquire().await;
            let told = client.content_status(&node.id, sessions, wait).await;
            let shown = shown(&node, told.map_err(|it| it.to_string()));
            (shown.node.clone(), shown)
        });
    }
    let mut nodes = BTreeMap::new();
    while let Some(told) = asked.join_next().await {
        nodes.extend(told);
    }
    let mut nodes: Vec<Shown> = nodes.into_values().collect();
    set_targets(client, it, &mut nodes).await?;
    Ok(nodes)
}

/// Which commit each node should have, by what its pool follows.
async fn set_targets(client: &Client, it: &Asked<'_>, nodes: &mut [Shown]) -> anyhow::Result<()> {
    let common = Common { patience: it.timeout, ..Common::default() };
    let any = super::repository(super::REPOSITORY).map_err(anyhow::Error::msg)?;
    let followers = Repository::unread(client, &any, &common)?.followers().await?;
    for (pool, follows) in followers {
        let repository = Repository::read(client, &follows.repository, &common).await?;
        let Some(head) = &repository.head else { continue };
        for node in nodes.iter_mut().filter(|it| it.pool == pool.as_str()) {
            let name = NodeId::parse(&node.node)?;
            node.set_target(follows.target(&head.latest, Some(&name)));
        }
    }
    Ok(())
}
