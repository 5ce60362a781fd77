//! `ringctl content status`: which commit each node has.

use super::StatusArguments;
use crate::output::{Format, Out, plain_table};
use rota_client::{Client, v1};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Nodes that are asked at once.
const ASKED_AT_ONCE_MAX: usize = 16;

#[derive(Serialize)]
struct Older {
    namespace: String,
    id: String,
    life: u64,
    class: String,
    commit: String,
}

/// One node.
#[derive(Serialize)]
struct Shown {
    node: String,
    pool: String,
    /// `nothing`, `refreshing`, `current`, `failed`; or `unknown` when it does not answer.
    state: String,
    repository: String,
    commit: String,
    files: u64,
    bytes: u64,
    refreshed_at_ms: u64,
    /// Of a download that is under way.
    came_files: u64,
    of_files: u64,
    sessions_current: u64,
    sessions_older: u64,
    failure: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    older: Vec<Older>,
}

#[derive(Serialize)]
struct All {
    nodes: Vec<Shown>,
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
    Shown {
        node: node.id.clone(),
        pool: node.pool.clone(),
        state: told.state,
        repository: told.repository,
        commit: told.commit,
        files: told.files,
        bytes: told.bytes,
        refreshed_at_ms: told.refreshed_at_ms,
        came_files: told.came_files,
        of_files: told.of_files,
        sessions_current: told.sessions_current,
        sessions_older: told.sessions_older,
        failure: told.failure,
        older: told.older.into_iter().map(older).collect(),
    }
}

/// Shows the content of each node.
pub async fn status(client: &Client, it: &StatusArguments, out: &mut Out) -> anyhow::Result<()> {
    let nodes = all(client, it).await?;
    if out.format() == Format::Json {
        return Ok(out.json(&All { nodes })?);
    }
    let columns =
        ["NODE", "POOL", "STATE", "CONTENT", "COMMIT", "FILES", "SESSIONS", "OLDER", "WHY"];
    let mut table = plain_table(columns);
    for it in &nodes {
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
            files,
            it.sessions_current.to_string(),
            it.sessions_older.to_string(),
            it.failure.clone(),
        ]);
    }
    out.table(&table)?;
    if it.sessions {
        let mut table = plain_table(["NODE", "NAMESPACE", "ID", "CLASS", "COMMIT"]);
        for it in &nodes {
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

async fn all(client: &Client, it: &StatusArguments) -> anyhow::Result<Vec<Shown>> {
    let known = client.inspect(it.timeout).await?.nodes;
    let is_asked = |node: &v1::NodeStats| {
        let is_gone = ["LOST", "REMOVED"].contains(&&*node.state);
        !is_gone && it.pool.as_ref().is_none_or(|pool| node.pool == pool.as_str())
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
    Ok(nodes.into_values().collect())
}
