//! `ringctl content status`: which commit each node has.

use super::repository::Repository;
use super::{Common, StatusArguments};
use crate::output::{Format, Out, for_terminals, plain_table};
use crate::pool::check_there;
use anyhow::bail;
use rota_client::{CallError, Client, v1};
use rota_content::Hash;
use rota_model::{NodeId, PoolName, RefusalKind};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// Between two looks while something is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// The state of a node that does not answer.
pub const UNKNOWN: &str = "unknown";
/// The state of a node that is LOST.
const LOST: &str = "lost";
/// The state of a node that has what its managers told it last.
const CURRENT: &str = "current";
/// The state of a node whose last refresh failed.
const FAILED: &str = "failed";
/// The state of a node whose pool follows nothing.
const NOTHING: &str = "nothing";
/// How often a node is asked that no manager reaches, where it is not waited for.
const SILENT_TRIES: u32 = 2;
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
    /// Of which that is one.
    pub repository: String,
}

/// One node.
#[derive(Serialize, Default)]
pub struct Shown {
    pub node: String,
    pub pool: String,
    /// `nothing`, `refreshing`, `current`, `failed`; `behind` where it has another commit than it should have, or none
    /// yet; `unknown` when it does not answer; `lost` when its node is LOST.
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
    pub came_bytes: u64,
    pub of_bytes: u64,
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
    /// Its pool follows nothing.
    #[serde(skip)]
    pub follows_nothing: bool,
}

#[derive(Serialize)]
struct All<'a> {
    nodes: &'a [Shown],
}

impl Shown {
    /// Whether anything is known of what it has.
    pub fn is_known(&self) -> bool {
        self.state != UNKNOWN && self.state != LOST
    }

    /// Whether it has what it should have: nothing, where its pool follows nothing. Of a node that is lost nothing is
    /// expected, nor of one whose pool follows what is not there.
    pub fn is_there(&self) -> bool {
        if self.state == LOST {
            return true;
        }
        if self.follows_nothing {
            return self.state == NOTHING && self.commit.is_empty();
        }
        self.target.is_empty() || (self.state == CURRENT && self.commit == self.target)
    }

    /// Whether sessions of a class are left alone: it says so, or the node does not have it any more, so that nobody knows.
    pub fn spares(&self, class: &str) -> bool {
        self.spared.contains(class) || !self.known.contains(class)
    }

    fn set_target(&mut self, target: &Hash) {
        self.target = target.to_string();
        self.check_behind();
    }

    fn set_nothing(&mut self) {
        self.follows_nothing = true;
        self.check_behind();
    }

    fn check_behind(&mut self) {
        let is_behind = match self.state.as_str() {
            CURRENT => self.commit != self.target,
            // It has not heard yet that its pool follows something.
            NOTHING => !self.target.is_empty(),
            _ => false,
        };
        if is_behind {
            self.state = "behind".to_owned();
        }
    }
}

fn shown(node: &v1::NodeStats, told: Result<v1::ContentStatusResponse, String>) -> Shown {
    let told = told.unwrap_or_else(|failure| v1::ContentStatusResponse {
        state: UNKNOWN.to_owned(),
        failure,
        ..Default::default()
    });
    let older = |session: v1::OlderSession| {
        let v1::SessionKey { namespace, id } = session.key.clone().unwrap_or_default();
        let v1::OlderSession { life, class, commit, repository, .. } = session;
        Older { namespace, id, life, class, commit, repository }
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
        came_bytes: told.came_bytes,
        of_bytes: told.of_bytes,
        sessions_current: told.sessions_current,
        sessions_older: told.sessions_older,
        failure: told.failure,
        older: told.older.into_iter().map(older).collect(),
        spared: spared.map(|(class, _)| class.clone()).collect(),
        known: node.class_facts.keys().cloned().collect(),
        follows_nothing: false,
    }
}

/// What was told of nodes whose refresh failed, while they are waited for.
#[derive(Default)]
pub struct Failures(BTreeMap<String, String>);

impl Failures {
    /// Tells on stderr what is new.
    pub fn tell(&mut self, nodes: &[Shown]) {
        for it in nodes.iter().filter(|it| it.state == FAILED && !it.failure.is_empty()) {
            let told = self.0.insert(it.node.clone(), it.failure.clone());
            if told.as_ref() != Some(&it.failure) {
                let line = format!("waiting; node {} failed: {}", it.node, it.failure);
                eprintln!("{}", for_terminals(&line));
            }
        }
    }
}

/// Shows the content of each node.
pub async fn status(client: &Client, it: &StatusArguments, out: &mut Out) -> anyhow::Result<()> {
    let began = Instant::now();
    let (pool, sessions, timeout) = (it.pool.as_ref(), it.sessions, it.timeout);
    let asked = Asked { pool, node: None, sessions, silent: true, timeout };
    let mut failures = Failures::default();
    let nodes = loop {
        let nodes = all(client, &asked).await?;
        if it.wait.is_some() {
            failures.tell(&nodes);
        }
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
        table.add_row(row(it));
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

/// The columns of a node. What is not known is a dash.
fn row(it: &Shown) -> [String; 10] {
    let files = match it.of_files {
        0 => it.files.to_string(),
        of => {
            let percent = (it.came_bytes * 100).checked_div(it.of_bytes).unwrap_or(100);
            format!("{}/{of} ({percent} %)", it.came_files)
        }
    };
    let known = |text: String| if it.is_known() { text } else { "-".to_owned() };
    [
        it.node.clone(),
        it.pool.clone(),
        it.state.clone(),
        known(it.repository.clone()),
        known(it.commit.clone()),
        it.target.clone(),
        known(files),
        known(it.sessions_current.to_string()),
        known(it.sessions_older.to_string()),
        it.failure.clone(),
    ]
}

/// What is asked of which nodes.
pub struct Asked<'a> {
    /// Only those of this pool.
    pub pool: Option<&'a PoolName>,
    /// Only this one.
    pub node: Option<&'a str>,
    /// Also to name sessions of older versions.
    pub sessions: bool,
    /// Nodes that are LOST as well, and none is waited for that managers cannot reach.
    pub silent: bool,
    /// How long each may take to answer.
    pub timeout: Duration,
}

impl Asked<'_> {
    /// All nodes, as they stand at once.
    pub fn at_once(timeout: Duration) -> Self {
        Self { pool: None, node: None, sessions: true, silent: true, timeout }
    }
}

fn is_lost(node: &v1::NodeStats) -> bool {
    node.state == "LOST"
}

/// Asks a node. One that its manager cannot reach is asked again, by way of another manager, as often and as long as
/// may be.
async fn ask(
    client: &Client,
    node: &str,
    sessions: bool,
    (wait, tries): (Duration, u32),
) -> Result<v1::ContentStatusResponse, CallError> {
    let until = Instant::now() + wait;
    let mut asked = 0;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let told = client.content_status(node, sessions, left).await;
        asked += 1;
        let is_away =
            told.as_ref().is_err_and(|it| it.reason() == RefusalKind::NotServing.as_str());
        if !is_away || asked >= tries || Instant::now() + LOOK_EVERY >= until {
            return told;
        }
        sleep(LOOK_EVERY).await;
    }
}

/// The nodes, sorted by name. A pool that is not there is refused.
pub async fn all(client: &Client, it: &Asked<'_>) -> anyhow::Result<Vec<Shown>> {
    let known = client.inspect(it.timeout).await?.nodes;
    let is_asked = |node: &v1::NodeStats| {
        let is_gone = node.state == "REMOVED" || (is_lost(node) && !it.silent);
        let is_meant = it.node.is_none_or(|name| node.id == name);
        !is_gone && is_meant && it.pool.is_none_or(|pool| node.pool == pool.as_str())
    };
    let places = Arc::new(Semaphore::new(ASKED_AT_ONCE_MAX));
    let mut asked = JoinSet::new();
    let mut nodes = BTreeMap::new();
    for node in known.into_iter().filter(is_asked) {
        if is_lost(&node) {
            let told = v1::ContentStatusResponse { state: LOST.to_owned(), ..Default::default() };
            nodes.insert(node.id.clone(), shown(&node, Ok(told)));
            continue;
        }
        let (client, places, wait) = (client.clone(), places.clone(), it.timeout);
        let (sessions, tries) = (it.sessions, if it.silent { SILENT_TRIES } else { u32::MAX });
        asked.spawn(async move {
            let _place = places.acquire().await;
            let told = ask(&client, &node.id, sessions, (wait, tries)).await;
            let shown = shown(&node, told.map_err(|it| it.to_string()));
            (shown.node.clone(), shown)
        });
    }
    while let Some(told) = asked.join_next().await {
        nodes.extend(told);
    }
    let mut nodes: Vec<Shown> = nodes.into_values().collect();
    if let (Some(pool), true, None) = (it.pool, nodes.is_empty(), it.node) {
        check_there(client, pool, it.timeout).await?;
    }
    set_targets(client, it, &mut nodes).await?;
    Ok(nodes)
}

/// Which commit each node should have, by what its pool follows.
async fn set_targets(client: &Client, it: &Asked<'_>, nodes: &mut [Shown]) -> anyhow::Result<()> {
    let common = Common { patience: it.timeout, ..Common::default() };
    let any = super::repository(super::REPOSITORY).map_err(anyhow::Error::msg)?;
    let followers = Repository::unread(client, &any, &common)?.followers().await?;
    for node in nodes.iter_mut() {
        if !followers.keys().any(|pool| pool.as_str() == node.pool) {
            node.set_nothing();
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_node_that_is_lost_or_silent_a_dash_stands_for_what_nobody_knows() {
        let node = v1::NodeStats { id: "n1".to_owned(), ..Default::default() };
        let lost = v1::ContentStatusResponse { state: LOST.to_owned(), ..Default::default() };
        let mut lost = shown(&node, Ok(lost));
        lost.set_target(&Hash::parse("0a1b2c3d4e5f").unwrap());
        let cells = row(&lost);
        assert_eq!(cells[..6], ["n1", "", "lost", "-", "-", "0a1b2c3d4e5f"]);
        assert_eq!(cells[6..], ["-", "-", "-", ""]);
        assert!(lost.is_there(), "nothing is expected of it");
        let silent = shown(&node, Err("no answer".to_owned()));
        assert_eq!(
            (&row(&silent)[2..5], &*row(&silent)[9]),
            (&["unknown", "-", "-"].map(str::to_owned)[..], "no answer")
        );
        let known = v1::ContentStatusResponse {
            state: "current".to_owned(),
            files: 3,
            ..Default::default()
        };
        assert_eq!(row(&shown(&node, Ok(known)))[6..9], ["3", "0", "0"]);
    }

    #[test]
    fn a_node_whose_pool_follows_nothing_has_what_it_should_have_once_it_has_nothing() {
        let node = v1::NodeStats { id: "n1".to_owned(), ..Default::default() };
        let standing = |state: &str, commit: &str| {
            let (state, commit) = (state.to_owned(), commit.to_owned());
            let told = v1::ContentStatusResponse { state, commit, ..Default::default() };
            let mut shown = shown(&node, Ok(told));
            shown.set_nothing();
            shown
        };
        let late = standing("current", "0a1b2c3d4e5f");
        assert_eq!((late.is_there(), &*late.state), (false, "behind"));
        assert!(!standing("nothing", "0a1b2c3d4e5f").is_there(), "it has not asked yet");
        assert!(standing("nothing", "").is_there());
        assert!(!standing(UNKNOWN, "").is_there() && standing(LOST, "").is_there());
    }
}
