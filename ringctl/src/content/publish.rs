//! `ringctl content publish`: a commit of a folder.

use super::repository::Repository;
use super::scan::{Folder, scan, told};
use super::show::{Changes, changes_of, counted_changes};
use super::{PublishArguments, classes, user_name};
use crate::output::{Format, Out};
use crate::task::at::now;
use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressStyle};
use rota_client::Client;
use rota_client::docstore::Digest;
use rota_content::{Commit, Draft, Tree, TreeBody};
use rota_proto::content::tree_bytes;
use serde::Serialize;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use std::io::Cursor;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Bodies that are stored at once.
const AT_ONCE: usize = 4;

/// What came of it.
#[derive(Serialize)]
struct Published {
    repository: String,
    /// The newest commit; with --dry-run, and where nothing changed, the one that was there.
    commit: Option<String>,
    number: Option<u64>,
    files: u64,
    bytes: u64,
    added: u64,
    changed: u64,
    removed: u64,
    /// Bytes that managers did not have.
    stored_bytes: u64,
    dry_run: bool,
}

fn bar(template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).expect("the template is valid");
    let bar = ProgressBar::new(0).with_style(style);
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// The folder, with a bar for who waits.
async fn read_folder(it: &PublishArguments) -> anyhow::Result<Folder> {
    let reading = bar("{elapsed} reading files {wide_bar} {pos}/{len}");
    let (path, progress) = (it.folder.clone(), reading.clone());
    let folder = tokio::task::spawn_blocking(move || scan(&path, &progress)).await?;
    reading.finish_and_clear();
    folder
}

/// Publishes a folder.
pub async fn publish(client: &Client, it: &PublishArguments, out: &mut Out) -> anyhow::Result<()> {
    let folder = read_folder(it).await?;
    let repository = Arc::new(Repository::read(client, &it.repository, &it.common).await?);
    let parent = match &repository.head {
        Some(_) => Some(repository.commit(None)?),
        None => None,
    };
    let old = match parent {
        Some(parent) => Some(repository.tree(parent).await?),
        None => None,
    };
    let earlier: Vec<&Tree> = old.iter().collect();
    let draft = Draft::new(&folder.rules, folder.files.clone(), &earlier);
    let mut draft = draft.map_err(|all| told(all.iter().map(ToString::to_string).collect()))?;
    classes::check(it, old.as_ref(), &folder, &draft)?;
    let message = match &*it.message {
        "" => folder.message.clone().unwrap_or_default(),
        given => given.to_owned(),
    };
    let author = it.author.clone().or_else(|| folder.author.clone()).unwrap_or_else(user_name);
    let (at_ms, source) = (now().to_epoch_ms(), folder.source.clone());
    let said = [&*message, &*author, source.as_deref().unwrap_or_default()];
    let hash = Commit::name(parent.map(|it| &it.hash), &draft.digest(), at_ms, said);
    let mut stored_bytes = draft.packs().iter().map(|it| it.bytes).sum();
    if it.dry_run {
        // Any name will do for bodies that are never stored.
        for at in 0..draft.packs().len() {
            draft.made(at, Digest(Sha256::digest(at.to_be_bytes()).into()));
        }
    } else {
        stored_bytes = store(&repository, &folder, &mut draft).await?;
    }
    let tree = draft.finish(old.as_ref(), &hash)?;
    let none = Tree::default();
    let changes = changes_of(&tree, old.as_ref().unwrap_or(&none));
    let counted = counted_changes(&changes);
    let has_same_rules = old.as_ref().is_some_and(|it| it.has_rules_of(&tree));
    let mut published = Published {
        repository: it.repository.to_string(),
        commit: parent.map(|it| it.hash.to_string()),
        number: parent.map(|it| it.number),
        files: tree.files().len() as u64,
        bytes: tree.bytes(),
        added: counted[0],
        changed: counted[1],
        removed: counted[2],
        stored_bytes,
        dry_run: it.dry_run,
    };
    let is_new = parent.is_none() || !changes.is_empty() || !has_same_rules;
    if is_new && !it.dry_run {
        let commit = Commit {
            hash: hash.clone(),
            number: 0,
            parent: parent.map(|it| it.hash.clone()),
            at_ms,
            message: message.clone(),
            author,
            source,
            restores: None,
            tree: TreeBody { sha256: Digest([0; 32]), bytes: 0 },
            files: published.files,
            bytes: published.bytes,
            changed: counted.iter().sum(),
        };
        published.number = Some(commit_tree(&repository, commit, &tree, it.keep).await?);
        published.commit = Some(hash.to_string());
    }
    tell(&published, is_new, &changes, out)
}

/// Stores the list of files, and makes the commit. Gives its number.
pub async fn commit_tree(
    repository: &Repository,
    commit: Commit,
    tree: &Tree,
    keep: Option<u32>,
) -> anyhow::Result<u64> {
    let bytes = tree_bytes(tree);
    let sha256 = Digest(Sha256::digest(&bytes).into());
    let body = TreeBody { sha256, bytes: bytes.len() as u64 };
    repository.put(&body, &mut Cursor::new(bytes)).await.context("storing the list of files")?;
    let bodies: Vec<TreeBody> = tree
        .bodies()
        .iter()
        .map(|(sha256, bytes)| TreeBody { sha256: *sha256, bytes: *bytes })
        .collect();
    let commit = Commit { tree: body, ..commit };
    let name = repository.name().as_str();
    let hold = repository.held().await?;
    let parameters = json!({
        "repository": name, "commit": commit, "bodies": bodies, "keep": keep, "hold": hold
    });
    let answer = repository.operate(name, "content.commit", &parameters).await?;
    let number = answer.get("number").and_then(serde_json::Value::as_u64);
    number.context("the answer names no number")
}

/// Stores what managers do not have. Gives how many bytes that were.
async fn store(
    repository: &Arc<Repository>,
    folder: &Folder,
    draft: &mut Draft,
) -> anyhow::Result<u64> {
    let storing = bar("{elapsed} storing {wide_bar} {bytes}/{total_bytes} {bytes_per_sec}");
    storing.set_length(draft.packs().iter().map(|it| it.bytes).sum());
    let (mut under_way, mut stored) = (JoinSet::new(), 0);
    let mut waiting = 0..draft.packs().len();
    loop {
        while under_way.len() < AT_ONCE
            && let Some(at) = waiting.next()
        {
            let pack = &draft.packs()[at];
            let files = pack.files.iter().map(|at| draft.file(*at));
            let files = files.map(|it| (folder.root.join(it.path.as_str()), it.sha256));
            let (files, bytes): (Vec<(PathBuf, Digest)>, u64) = (files.collect(), pack.bytes);
            let repository = Arc::clone(repository);
            under_way.spawn(async move {
                let (sha256, known) = store_one(&repository, files, bytes).await?;
                anyhow::Ok((at, sha256, bytes, known))
            });
        }
        let Some(done) = under_way.join_next().await else { break };
        let (at, sha256, bytes, known) = done??;
        draft.made(at, sha256);
        stored += if known { 0 } else { bytes };
        storing.inc(bytes);
    }
    storing.finish_and_clear();
    Ok(stored)
}

/// A body of one file, which is read as it is sent, or of many, which are put together. True when it was there.
async fn store_one(
    repository: &Repository,
    files: Vec<(PathBuf, Digest)>,
    bytes: u64,
) -> anyhow::Result<(Digest, bool)> {
    if let [(path, sha256)] = &files[..] {
        let body = TreeBody { sha256: *sha256, bytes };
        let mut file =
            tokio::fs::File::open(path).await.with_context(|| path.display().to_string())?;
        let stored = repository.put(&body, &mut file).await;
        let known = stored.with_context(|| format!("storing {}", path.display()))?;
        return Ok((*sha256, known));
    }
    let joined = tokio::task::spawn_blocking(move || joined(&files)).await??;
    let sha256 = Digest(Sha256::digest(&joined).into());
    let body = TreeBody { sha256, bytes: joined.len() as u64 };
    let stored = repository.put(&body, &mut Cursor::new(joined)).await;
    Ok((sha256, stored.context("storing files")?))
}

/// Files one after the other. Each must be what it was when it was looked at.
fn joined(files: &[(PathBuf, Digest)]) -> anyhow::Result<Vec<u8>> {
    let mut all = Vec::new();
    for (path, sha256) in files {
        let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
        if Digest(Sha256::digest(&bytes).into()) != *sha256 {
            bail!("{} changed while it was published: publish again", path.display());
        }
        all.extend_from_slice(&bytes);
    }
    Ok(all)
}

fn tell(
    published: &Published,
    is_new: bool,
    changes: &Changes,
    out: &mut Out,
) -> anyhow::Result<()> {
    if out.format() == Format::Json {
        return Ok(out.json(published)?);
    }
    let Published { repository, files, bytes, added, changed, removed, stored_bytes, .. } =
        published;
    if published.dry_run {
        for line in changes.lines() {
            out.text(&format!("{line}\n"))?;
        }
    }
    let commit = published.commit.as_deref().unwrap_or("none");
    let text = match (published.dry_run, is_new) {
        (_, false) => format!("{repository} is at {commit} already: nothing changed\n"),
        (true, true) => format!(
            "would add {added}, change {changed}, remove {removed} files of {repository}, and store {stored_bytes} bytes\n"
        ),
        (false, true) => format!(
            "{repository} is at {commit}: {files} files, {bytes} bytes; {added} added, {changed} changed, {removed} \
             removed, {stored_bytes} bytes stored\n"
        ),
    };
    Ok(out.text(&text)?)
}
