//! What changes a repository, or who follows it, without files of one's own.

use super::publish::commit_tree;
use super::repository::Repository;
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

#[derive(Serialize)]
struct RolledBack {
    repository: String,
    commit: String,
    number: u64,
    restores: String,
    files: u64,
}

/// Makes a commit with the files of an earlier one.
pub async fn rollback(
    client: &Client,
    it: &RollbackArguments,
    out: &mut Out,
) -> anyhow::Result<()> {
    let repository = Repository::existing(client, &it.repository, &it.common).await?;
    let (latest, earlier) = (repository.commit(None)?, repository.commit(Some(&it.commit))?);
    if latest.tree == earlier.tree {
        bail!("{} is the newest commit: there is nothing to roll back", it.commit);
    }
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
        files: tree.files().len() as u64,
        bytes: tree.bytes(),
        changed: tree.differences(&newest).len() as u64,
    };
    let (files, changed) = (commit.files, commit.changed);
    let number = commit_tree(&repository, commit, &tree, it.keep).await?;
    let done = RolledBack {
        repository: it.repository.to_string(),
        commit: hash.to_string(),
        number,
        restores: earlier.hash.to_string(),
        files,
    };
    match out.format() {
        Format::Json => out.json(&done)?,
        Format::Table => out.text(&format!(
            "{} is at {hash}, with the files of {}: {files} files, {changed} differ\n",
            it.repository, earlier.hash
        ))?,
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
        Format::Json => out.json(&followed)?,
        Format::Table => out.text(&text)?,
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
    match out.format() {
        Format::Json => out.json(&json!({ "pool": it.pool, "followed": did }))?,
        Format::Table => {
            let what = if did { "follow nothing from here on" } else { "followed nothing" };
            out.text(&format!("nodes of {} {what}\n", it.pool))?;
        }
    }
    Ok(())
}

/// Removes a repository.
pub async fn remove(client: &Client, it: &RemoveArguments, out: &mut Out) -> anyhow::Result<()> {
    let repository = Repository::unread(client, &it.repository, &it.common)?;
    let parameters = json!({ "repository": it.repository });
    let name = it.repository.as_str();
    let answer = repository.operate(name, "content.remove", &parameters).await?;
    let did = existed(&answer);
    match out.format() {
        Format::Json => out.json(&json!({ "repository": name, "existed": did }))?,
        Format::Table => {
            let what = if did { "is gone" } else { "was not there" };
            out.text(&format!("content {name} {what}\n"))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
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
    }
}
