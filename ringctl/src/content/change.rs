//! What changes a repository, or who follows it, without files of one's own.

use super::publish::commit_tree;
use super::repository::Repository;
use super::{FollowArguments, RemoveArguments, RollbackArguments, UnfollowArguments, user_name};
use crate::output::{Format, Out};
use crate::task::at::now;
use anyhow::bail;
use rota_client::Client;
use rota_client::docstore::Digest;
use rota_content::{Commit, TreeBody, restored};
use serde::Serialize;
use serde_json::{Value, json};

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
}

/// Says what a pool follows.
pub async fn follow(client: &Client, it: &FollowArguments, out: &mut Out) -> anyhow::Result<()> {
    // A name that is mistaken is told at once, and not by nodes later.
    let repository = Repository::existing(client, &it.repository, &it.common).await?;
    let commit = it.commit.as_ref().map(|hash| repository.commit(Some(hash))).transpose()?;
    let commit = commit.map(|it| it.hash.clone());
    let canary_percent = it.canary.unwrap_or(0);
    let parameters = json!({
        "pool": it.pool, "repository": it.repository, "commit": commit, "canary_percent": canary_percent
    });
    repository.operate(it.pool.as_str(), "content.follow", &parameters).await?;
    let followed = Followed {
        pool: it.pool.to_string(),
        repository: Some(it.repository.to_string()),
        commit: commit.as_ref().map(ToString::to_string),
        canary_percent,
    };
    let (pool, name) = (&it.pool, &it.repository);
    let text = match (&commit, canary_percent) {
        (None, _) => format!("nodes of {pool} follow {name}: its newest commit\n"),
        (Some(commit), 0) => format!("nodes of {pool} follow {name}: commit {commit}\n"),
        (Some(commit), share) => format!(
            "nodes of {pool} follow {name}: commit {commit}, and {share} % of them the newest\n"
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
