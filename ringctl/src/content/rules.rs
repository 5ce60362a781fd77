//! `content rules`: what a commit says of its filesets.

use super::RulesArguments;
use super::repository::Repository;
use crate::output::{Format, Out};
use rota_client::Client;
use rota_content::{RULES_FILE, Tree};
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Serialize)]
struct Shown {
    repository: String,
    commit: String,
    /// The text of the file; empty: none is kept.
    rules: String,
    filesets: Vec<ShownFileset>,
}

#[derive(Serialize)]
struct ShownFileset {
    category: String,
    eager: bool,
    /// Whose nodes see it; without any: those of all pools.
    pools: Vec<String>,
    /// Which labels a node needs to see it.
    labels: BTreeMap<String, String>,
    files: u64,
    bytes: u64,
    /// The newest commit that changed it; none while it has no file.
    commit: Option<String>,
}

fn filesets(tree: &Tree) -> Vec<ShownFileset> {
    let shown = tree.filesets().iter().map(|(name, fileset)| {
        let files = tree.files().iter().filter(|file| file.fileset == *name);
        let (count, bytes) = files.fold((0, 0), |sum, it| (sum.0 + 1, sum.1 + it.file.bytes));
        let labels =
            fileset.labels.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        ShownFileset {
            category: name.to_string(),
            eager: fileset.eager,
            pools: fileset.pools.iter().map(ToString::to_string).collect(),
            labels: labels.collect(),
            files: count,
            bytes,
            commit: fileset.commit.as_ref().map(ToString::to_string),
        }
    });
    shown.collect()
}

/// Shows the rules of a commit, as they were published.
pub async fn rules(client: &Client, it: &RulesArguments, out: &mut Out) -> anyhow::Result<()> {
    let repository = Repository::existing(client, &it.repository, &it.common).await?;
    let commit = repository.commit(it.commit.as_ref())?;
    let tree = repository.tree(commit).await?;
    match out.format() {
        Format::Json => out.json(&Shown {
            repository: it.repository.to_string(),
            commit: commit.hash.to_string(),
            rules: tree.rules().to_owned(),
            filesets: filesets(&tree),
        })?,
        Format::Table if tree.rules().is_empty() => {
            out.text(&format!("# commit {} keeps no {RULES_FILE}\n", commit.hash))?;
        }
        Format::Table => out.text(tree.rules())?,
    }
    Ok(())
}
