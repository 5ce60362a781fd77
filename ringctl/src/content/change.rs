//! What changes a repository, or who follows it, without files of one's own.

use super::publish::commit_tree;
use super::repository::Repository;
use super::status::{Asked, Shown, UNKNOWN, all};
use super::{FollowArguments, RemoveArguments, RollbackArguments, UnfollowArguments, user_name};
use crate::failure::UsageMistake;
use crate::output::{Format, Out, counted};
use crate::pool::check_there;
use crate::task::at::now;
use anyhow::bail;
use rota_client::Client;
use rota_client::docstore::Digest;
use rota_content::{Commit, Follows, TreeBody, restored};
use rota_model::{NodeId, PoolName};
use serde::Serialize;
use serde_json::{Value, json};
use std::time::Duration;

/// How long each node may take to say what it has.
const NODE_WAIT: Duration = Duration::from_secs(5);

#[derive(Serialize)]
struct RolledBack {
    repository: String,
    commit: String,
    number: u64,
    restores: String,
    files: u64,
    /// How many files differ from the newest commit; 0: there is no new commit, since these are its files.
    changed: u64,
}

/// Makes a commit with the files of an earlier one.
pub async fn rollback(
    client: &Client,
    it: &RollbackArguments,
    out: &mut Out,
) -> anyhow::Result<()> {
    let repository = Repository::existing(client, &it.repository, &it.common).await?;
    let (latest, earlier) = (repository.commit(None)?, repository.commit(Some(&it.commit))?);
    let (newest, then) = (repository.tree(latest).await?, repository.tree(earlier).await?);
    let author = it.author.clone().unwrap_or_else(user_name);
    let message = match &*it.message {
        "" => format!("roll back to {}", earlier.hash),
        given => given.to_owned(),
    };
    let at_ms = now().to_epoch_ms();
    let said = [&*message, &*author, earlier.hash.as_str()];
    let hash = Commit::name(Some(&latest.hash), &earlier.tree.sha256, at_ms, said);
    let tree = restored(&then, &newest, &hash)?;
    let changed = tree.differences(&newest).len() as u64;
    let mut done = RolledBack {
        repository: it.repository.to_string(),
        commit: latest.hash.to_string(),
        number: latest.number,
        restores: earlier.hash.to_string(),
        files: tree.files().len() as u64,
        changed,
    };
    if changed == 0 && newest.has_rules_of(&tree) {
        return tell_rolled_back(&done, false, out);
    }
    let commit = Commit {
        hash: hash.clone(),
        number: 0,
        parent: Some(latest.hash.clone()),
        at_ms,
        message,
        author,
        source: earlier.source.clone(),
        restores: Some(earlier.hash.clone()),
        tree: TreeBody { sha256: Digest([0; 32]), bytes: 0 },
        files: done.files,
        bytes: tree.bytes(),
        changed,
    };
    done.number = commit_tree(&repository, commit, &tree, it.keep).await?;
    done.commit = hash.to_string();
    tell_rolled_back(&done, true, out)
}

fn tell_rolled_back(done: &RolledBack, is_new: bool, out: &mut Out) -> anyhow::Result<()> {
    let RolledBack { repository, commit, restores, files, changed, .. } = done;
    let text = match is_new {
        true => format!(
            "{repository} is at {commit}, with the files of {restores}: {files} files, {changed} differ\n"
        ),
        false => format!(
            "nothing changed: {repository} is at {commit}, which has the files of {restores} already\n"
        ),
    };
    match out.format() {
        Format::Json => out.json(done)?,
        Format::Table => out.text(&text)?,
    }
    Ok(())
}

#[derive(Serialize)]
struct Followed {
    pool: String,
    repository: Option<String>,
    commit: Option<String>,
    canary_percent: u8,
    #[serde(flatten)]
    canary: Option<Canary>,
}

/// Which nodes of a pool a share takes, as far as they are there.
#[derive(Serialize, PartialEq, Eq, Debug)]
struct Canary {
    canary_nodes: Vec<String>,
    pool_nodes: usize,
}

impl Canary {
    /// Refuses a share that takes none of the nodes.
    fn of(follows: &Follows, pool: &PoolName, nodes: &[NodeId]) -> anyhow::Result<Self> {
        let taken = nodes.iter().filter(|it| follows.is_canary(it));
        let canary_nodes: Vec<String> = taken.map(ToString::to_string).collect();
        let pool_nodes = nodes.len();
        if let (true, Some(least)) = (canary_nodes.is_empty(), follows.smallest_canary(nodes)) {
            let share = follows.canary_percent;
            let problem = format!(
                "--canary {share}% takes none of the {} of pool {pool}; the smallest share that takes one is {least}%",
                counted(pool_nodes as u64, "node")
            );
            bail!(UsageMistake(problem));
        }
        Ok(Self { canary_nodes, pool_nodes })
    }

    /// What a person is told whose share takes all nodes although it is a part of them.
    fn warning(&self, percent: u8) -> Option<String> {
        let takes_all = self.canary_nodes.len() == self.pool_nodes && self.pool_nodes > 0;
        let all = counted(self.pool_nodes as u64, "node");
        (takes_all && percent < 100).then(|| {
            format!(
                "warning: --canary {percent}% takes all of {all} of the pool: none keeps the commit of --commit"
            )
        })
    }

    fn told(&self) -> String {
        let (taken, all) = (self.canary_nodes.len(), counted(self.pool_nodes as u64, "node"));
        let names = self.canary_nodes.join(", ");
        let colon = if names.is_empty() { "" } else { ": " };
        format!("{taken} of {all}{colon}{names}")
    }
}

/// The nodes of a pool that may come back.
async fn nodes_of(client: &Client, pool: &PoolName, wait: Duration) -> anyhow::Result<Vec<NodeId>> {
    let known = client.inspect(wait).await?.nodes.into_iter();
    let is_gone = |state: &str| ["LOST", "REMOVED"].contains(&state);
    let of_pool = known.filter(|it| it.pool == pool.as_str() && !is_gone(&it.state));
    Ok(of_pool.map(|it| NodeId::parse(&it.id)).collect::<Result<_, _>>()?)
}

/// Says what a pool follows.
pub async fn follow(client: &Client, it: &FollowArguments, out: &mut Out) -> anyhow::Result<()> {
    // A name that is mistaken is told at once, and not by nodes later.
    check_there(client, &it.pool, it.common.patience).await?;
    let repository = Repository::existing(client, &it.repository, &it.common).await?;
    let commit = it.commit.as_ref().map(|hash| repository.commit(Some(hash))).transpose()?;
    let commit = commit.map(|it| it.hash.clone());
    let canary_percent = it.canary.unwrap_or(0);
    let follows =
        Follows { repository: it.repository.clone(), commit: commit.clone(), canary_percent };
    let canary = match canary_percent {
        0 => None,
        _ => {
            let nodes = nodes_of(client, &it.pool, it.common.patience).await?;
            Some(Canary::of(&follows, &it.pool, &nodes)?)
        }
    };
    let parameters = json!({
        "pool": it.pool, "repository": it.repository, "commit": commit, "canary_percent": canary_percent
    });
    repository.operate(it.pool.as_str(), "content.follow", &parameters).await?;
    let followed = Followed {
        pool: it.pool.to_string(),
        repository: Some(it.repository.to_string()),
        commit: commit.as_ref().map(ToString::to_string),
        canary_percent,
        canary,
    };
    let (pool, name) = (&it.pool, &it.repository);
    let text = match (&commit, &followed.canary) {
        (None, _) => format!("nodes of {pool} follow {name}: its newest commit\n"),
        (Some(commit), None) => format!("nodes of {pool} follow {name}: commit {commit}\n"),
        (Some(commit), Some(canary)) => format!(
            "nodes of {pool} follow {name}: commit {commit}, and {canary_percent} % of them the newest ({})\n",
            canary.told()
        ),
    };
    match out.format() {
        // It names the nodes.
        Format::Json => out.json(&followed)?,
        Format::Table => {
            out.text(&text)?;
            let warning = followed.canary.as_ref().and_then(|it| it.warning(canary_percent));
            warning.iter().for_each(|it| eprintln!("{it}"));
        }
    }
    Ok(())
}

/// Whether something was there.
fn existed(answer: &Value) -> bool {
    answer.get("existed").and_then(Value::as_bool).unwrap_or(false)
}

/// Lets a pool follow nothing.
pub async fn unfollow(
    client: &Client,
    it: &UnfollowArguments,
    out: &mut Out,
) -> anyhow::Result<()> {
    let anything = super::repository(super::REPOSITORY).map_err(anyhow::Error::msg)?;
    let repository = Repository::unread(client, &anything, &it.common)?;
    let parameters = json!({ "pool": it.pool });
    let answer = repository.operate(it.pool.as_str(), "content.follow", &parameters).await?;
    let did = existed(&answer);
    if !did {
        // A pool that is gone may have followed something. One that never was is a mistaken name.
        check_there(client, &it.pool, it.common.patience).await?;
    }
    match out.format() {
        Format::Json => out.json(&json!({ "pool": it.pool, "followed": did }))?,
        Format::Table => {
            let what = if did { "follow nothing from here on" } else { "followed nothing" };
            out.text(&format!("nodes of {} {what}\n", it.pool))?;
        }
    }
    Ok(())
}

/// Who uses a repository.
#[derive(Serialize, Default, PartialEq, Eq, Debug)]
struct Used {
    /// Pools that follow it.
    pools: Vec<String>,
    /// Nodes that have a version of it.
    nodes: u64,
    /// Sessions that run with it, of those that nodes name.
    sessions: u64,
    /// Nodes that could not be asked.
    silent: Vec<String>,
}

impl Used {
    async fn of(repository: &Repository, client: &Client) -> anyhow::Result<Self> {
        let name = repository.name();
        let followers = repository.followers().await?;
        let pools = followers.into_iter().filter(|(_, it)| it.repository == *name);
        let pools = pools.map(|(pool, _)| pool.to_string()).collect();
        Ok(Self::by(name.as_str(), pools, &all(client, &Asked::at_once(NODE_WAIT)).await?))
    }

    fn by(name: &str, pools: Vec<String>, nodes: &[Shown]) -> Self {
        let has = nodes.iter().filter(|it| it.is_known() && it.repository == name);
        let silent = nodes.iter().filter(|it| it.state == UNKNOWN);
        Self {
            pools,
            nodes: has.clone().count() as u64,
            sessions: nodes.iter().map(|it| sessions_of(name, it)).sum(),
            silent: silent.map(|it| it.node.clone()).collect(),
        }
    }

    /// Whether anybody does, as far as it is known.
    fn is_used(&self) -> bool {
        !self.pools.is_empty() || self.nodes > 0 || self.sessions > 0
    }

    fn told(&self) -> String {
        let mut parts = Vec::new();
        match &self.pools[..] {
            [] => {}
            [pool] => parts.push(format!("pool {pool} follows it")),
            pools => parts.push(format!("pools {} follow it", pools.join(", "))),
        }
        let have = if self.nodes == 1 { "has" } else { "have" };
        parts.push(format!("{} {have} it", counted(self.nodes, "node")));
        let run = if self.sessions == 1 { "runs" } else { "run" };
        parts.push(format!("{} {run} with it", counted(self.sessions, "session")));
        if !self.silent.is_empty() {
            parts.push(format!("not known of {}", self.silent.join(", ")));
        }
        parts.join("; ")
    }
}

/// How many sessions of a node run with a repository.
fn sessions_of(name: &str, node: &Shown) -> u64 {
    let older = node.older.iter().filter(|it| it.repository == name).count() as u64;
    let current = if node.repository == name { node.sessions_current } else { 0 };
    current + older
}

#[derive(Serialize)]
struct RemovedRepository<'a> {
    repository: &'a str,
    existed: bool,
    #[serde(flatten)]
    used: &'a Used,
}

/// Removes a repository. Tells who uses it.
pub async fn remove(client: &Client, it: &RemoveArguments, out: &mut Out) -> anyhow::Result<()> {
    let repository = Repository::unread(client, &it.repository, &it.common)?;
    let name = it.repository.as_str();
    let used = match Used::of(&repository, client).await {
        Err(error) if it.yes => {
            eprintln!("warning: it is not known who uses {name}: {error:#}");
            Used::default()
        }
        used => used?,
    };
    if !it.yes {
        let problem = format!("all commits of {name} go: say --yes ({})", used.told());
        bail!(UsageMistake(problem));
    }
    let parameters = json!({ "repository": it.repository });
    let answer = repository.operate(name, "content.remove", &parameters).await?;
    let existed = existed(&answer);
    match out.format() {
        Format::Json => out.json(&RemovedRepository { repository: name, existed, used: &used })?,
        Format::Table => {
            let what = if existed { "is gone" } else { "was not there" };
            out.text(&format!("content {name} {what}\n"))?;
            if used.is_used() {
                let keep = "nodes keep what they have of it, and get nothing new";
                eprintln!("warning: {}: {keep}", used.told());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::status::Older;
    use rota_content::Hash;
    use rota_model::RepositoryName;

    #[test]
    fn a_share_tells_which_nodes_it_takes_and_one_that_takes_none_is_refused() {
        let repository = RepositoryName::parse("main").unwrap();
        let commit = Some(Hash::parse("aa").unwrap());
        let follows = |canary_percent| Follows {
            repository: repository.clone(),
            commit: commit.clone(),
            canary_percent,
        };
        let pool = PoolName::parse("default").unwrap();
        let nodes: Vec<NodeId> =
            (1..=3).map(|it| NodeId::parse(&format!("n{it}")).unwrap()).collect();
        let of = |share, nodes: &[NodeId]| Canary::of(&follows(share), &pool, nodes);
        assert_eq!(of(20, &nodes).unwrap().told(), "2 of 3 nodes: n1, n2");
        let refused = of(5, &nodes).unwrap_err().to_string();
        assert!(refused.contains("none of the 3 nodes of pool default"), "{refused}");
        assert!(refused.ends_with("takes one is 6%"), "{refused}");
        assert_eq!(of(6, &nodes).unwrap().canary_nodes, ["n2"]);
        assert_eq!(of(5, &[]).unwrap().told(), "0 of 0 nodes");
        let warning = |share, nodes: &[NodeId]| of(share, nodes).unwrap().warning(share);
        assert!(warning(60, &nodes[..1]).unwrap().contains("60% takes all of 1 node"));
        assert_eq!(
            (warning(20, &nodes), warning(100, &nodes), warning(5, &[])),
            (None, None, None)
        );
    }

    #[test]
    fn who_uses_a_repository_is_told_with_what_is_not_known() {
        let older = |it: &str| Older { repository: it.to_owned(), ..Older::default() };
        let node = |node: &str, repository: &str, state: &str| Shown {
            node: node.to_owned(),
            repository: repository.to_owned(),
            state: state.to_owned(),
            sessions_current: 2,
            sessions_older: 2,
            older: ["main", "c"].map(older).into(),
            ..Shown::default()
        };
        let silent = Shown { node: "n3".to_owned(), state: UNKNOWN.to_owned(), ..Shown::default() };
        let nodes = [node("n1", "main", "current"), node("n2", "b", "current"), silent];
        let used = Used::by("main", vec!["default".to_owned(), "gpu".to_owned()], &nodes);
        let told =
            "pools default, gpu follow it; 1 node has it; 4 sessions run with it; not known of n3";
        assert_eq!((used.told(), used.is_used()), (told.to_owned(), true));
        let left = Used::by("main", Vec::new(), &nodes[1..]);
        assert!(left.is_used() && left.told().contains("0 nodes have it; 1 session runs with it"));
        assert!(!Used::by("main", Vec::new(), &nodes[2..]).is_used());
    }
}
