//! What a repository has: commits, files, differences.

use super::repository::Repository;
use super::{DiffArguments, GetArguments, ListArguments, LogArguments};
use crate::destination::Destination;
use crate::output::{Format, Out, STANDARD, plain_table, standard};
use anyhow::{Context, bail};
use rota_client::Client;
use rota_client::docstore::Digest;
use rota_content::{CONTENT_CLASS, Commit, Difference, RULES_FILE, Tree, TreeFile};
use rota_model::RepositoryName;
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use std::os::fd::AsFd;
use std::path::Path;
use tokio::io::{AsyncWrite, AsyncWriteExt};

/// What became of one file.
#[derive(Serialize, Clone, PartialEq, Eq, Debug)]
pub struct Change {
    path: String,
    /// `added`, `changed` or `removed`.
    change: &'static str,
    fileset: String,
    bytes: u64,
}

/// All of them, in the order of paths.
#[derive(Debug)]
pub struct Changes(Vec<Change>);

impl Changes {
    /// Whether nothing differs.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A line of text for each.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|change| {
            let mark = match change.change {
                "added" => "+",
                "removed" => "-",
                _ => "~",
            };
            format!("{mark} {} ({} bytes, {})", change.path, change.bytes, change.fileset)
        })
    }
}

/// What differs between two trees.
pub fn changes_of(tree: &Tree, from: &Tree) -> Changes {
    let change = |file: &TreeFile, change| Change {
        path: file.path.to_string(),
        change,
        fileset: file.fileset.to_string(),
        bytes: file.file.bytes,
    };
    let one = |difference: Difference<'_>| match difference {
        Difference::Added(it) => change(it, "added"),
        Difference::Changed { to, .. } => change(to, "changed"),
        Difference::Removed(it) => change(it, "removed"),
    };
    Changes(tree.differences(from).into_iter().map(one).collect())
}

/// How many were added, changed and removed.
pub fn counted_changes(changes: &Changes) -> [u64; 3] {
    ["added", "changed", "removed"]
        .map(|what| changes.0.iter().filter(|it| it.change == what).count() as u64)
}

#[derive(Serialize)]
struct ShownFile {
    path: String,
    fileset: String,
    commit: String,
    sha256: String,
    bytes: u64,
    executable: bool,
}

#[derive(Serialize)]
struct Files {
    repository: String,
    commit: String,
    files: Vec<ShownFile>,
}

#[derive(Serialize)]
struct ShownRepository {
    repository: String,
    commit: String,
    number: u64,
    at: String,
    files: u64,
    bytes: u64,
    message: String,
}

#[derive(Serialize)]
struct Repositories {
    repositories: Vec<ShownRepository>,
}

/// A moment for people.
fn moment(at_ms: u64) -> String {
    let at = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(at_ms);
    humantime::format_rfc3339_seconds(at).to_string()
}

/// Shows the files of a commit, or all repositories.
pub async fn list(client: &Client, it: &ListArguments, out: &mut Out) -> anyhow::Result<()> {
    let Some(name) = &it.repository else { return repositories(client, it, out).await };
    let repository = Repository::existing(client, name, &it.common).await?;
    let commit = repository.commit(it.commit.as_ref())?;
    let tree = repository.tree(commit).await?;
    if let Some(fileset) = &it.fileset {
        let known: Vec<&str> = tree.filesets().keys().map(|it| it.as_str()).collect();
        if !known.contains(&&**fileset) {
            bail!("{name} has no fileset {fileset}; it has {}", known.join(", "));
        }
    }
    let is_asked = |file: &&TreeFile| {
        file.path.as_str().starts_with(&it.prefix)
            && it.fileset.as_ref().is_none_or(|fileset| file.fileset.as_str() == fileset)
    };
    let files = tree.files().iter().filter(is_asked).map(|file| ShownFile {
        path: file.path.to_string(),
        fileset: file.fileset.to_string(),
        commit: file.commit.to_string(),
        sha256: file.file.sha256.to_string(),
        bytes: file.file.bytes,
        executable: file.file.executable,
    });
    let (repository, commit) = (name.to_string(), commit.hash.to_string());
    let shown = Files { repository, commit, files: files.collect() };
    match out.format() {
        Format::Json => out.json(&shown)?,
        Format::Table => {
            let mut table = plain_table(["PATH", "FILESET", "COMMIT", "BYTES", "MODE"]);
            for it in shown.files {
                let mode = if it.executable { "x" } else { "" };
                let bytes = it.bytes.to_string();
                table.add_row([it.path, it.fileset, it.commit, bytes, mode.to_owned()]);
            }
            out.table(&table)?;
        }
    }
    Ok(())
}

async fn repositories(client: &Client, it: &ListArguments, out: &mut Out) -> anyhow::Result<()> {
    let any = super::repository(super::REPOSITORY).map_err(anyhow::Error::msg)?;
    let mut repositories = Vec::new();
    for name in Repository::unread(client, &any, &it.common)?.all_of(CONTENT_CLASS).await? {
        let name = RepositoryName::parse(name.docid())?;
        let repository = Repository::read(client, &name, &it.common).await?;
        if repository.head.is_none() {
            continue;
        }
        let commit = repository.commit(None)?;
        repositories.push(ShownRepository {
            repository: name.to_string(),
            commit: commit.hash.to_string(),
            number: commit.number,
            at: moment(commit.at_ms),
            files: commit.files,
            bytes: commit.bytes,
            message: commit.message.clone(),
        });
    }
    repositories.sort_by(|one, other| one.repository.cmp(&other.repository));
    let shown = Repositories { repositories };
    match out.format() {
        Format::Json => out.json(&shown)?,
        Format::Table => {
            let mut table =
                plain_table(["REPOSITORY", "COMMIT", "NUMBER", "AT", "FILES", "BYTES", "MESSAGE"]);
            for it in shown.repositories {
                let (number, files, bytes) = (it.number, it.files, it.bytes);
                let numbers = [number, files, bytes].map(|it| it.to_string());
                let [number, files, bytes] = numbers;
                table.add_row([it.repository, it.commit, number, it.at, files, bytes, it.message]);
            }
            out.table(&table)?;
        }
    }
    Ok(())
}

#[derive(Serialize)]
struct Log<'a> {
    repository: &'a str,
    commits: Vec<Logged<'a>>,
}

/// A commit, by the names that other commands give its fields.
#[derive(Serialize)]
struct Logged<'a> {
    commit: &'a str,
    number: u64,
    parent: Option<&'a str>,
    at: String,
    author: &'a str,
    message: &'a str,
    source: Option<&'a str>,
    /// Of a roll-back: whose files it has.
    restores: Option<&'a str>,
    files: u64,
    bytes: u64,
    changed: u64,
}

impl<'a> Logged<'a> {
    fn of(it: &'a Commit) -> Self {
        Self {
            commit: it.hash.as_str(),
            number: it.number,
            parent: it.parent.as_ref().map(|it| it.as_str()),
            at: moment(it.at_ms),
            author: &it.author,
            message: &it.message,
            source: it.source.as_deref(),
            restores: it.restores.as_ref().map(|it| it.as_str()),
            files: it.files,
            bytes: it.bytes,
            changed: it.changed,
        }
    }
}

/// Shows the commits.
pub async fn log(client: &Client, it: &LogArguments, out: &mut Out) -> anyhow::Result<()> {
    let repository = Repository::existing(client, &it.repository, &it.common).await?;
    let commits = repository.newest_first();
    if out.format() == Format::Json {
        let commits = commits.into_iter().map(Logged::of).collect();
        return Ok(out.json(&Log { repository: it.repository.as_str(), commits })?);
    }
    let columns = ["COMMIT", "NUMBER", "AT", "AUTHOR", "FILES", "CHANGED", "SOURCE", "MESSAGE"];
    let mut table = plain_table(columns);
    for it in commits {
        table.add_row([
            it.hash.to_string(),
            it.number.to_string(),
            moment(it.at_ms),
            it.author.clone(),
            it.files.to_string(),
            it.changed.to_string(),
            short(it.source.as_deref().unwrap_or_default()),
            it.message.clone(),
        ]);
    }
    Ok(out.table(&table)?)
}

/// The commit of git in few digits, with the mark of changes.
fn short(source: &str) -> String {
    let (commit, mark) = source.split_at(source.find('-').unwrap_or(source.len()));
    format!("{}{mark}", &commit[..commit.len().min(12)])
}

#[derive(Serialize)]
struct Diff {
    repository: String,
    from: String,
    to: String,
    changes: Vec<Change>,
}

/// Shows what differs.
pub async fn diff(client: &Client, it: &DiffArguments, out: &mut Out) -> anyhow::Result<()> {
    let repository = Repository::existing(client, &it.repository, &it.common).await?;
    let (from, to) = (repository.commit(Some(&it.from))?, repository.commit(it.to.as_ref())?);
    let (old, new) = (repository.tree(from).await?, repository.tree(to).await?);
    let changes = changes_of(&new, &old);
    if out.format() == Format::Json {
        let (repository, from, to) =
            (it.repository.to_string(), from.hash.to_string(), to.hash.to_string());
        return Ok(out.json(&Diff { repository, from, to, changes: changes.0 })?);
    }
    for line in changes.lines() {
        out.text(&format!("{line}\n"))?;
    }
    let [added, changed, removed] = counted_changes(&changes);
    Ok(out.text(&format!("{added} added, {changed} changed, {removed} removed\n"))?)
}

#[derive(Serialize)]
struct Written {
    file: String,
    bytes: u64,
    commit: String,
}

/// Writes one file.
pub async fn get(client: &Client, it: &GetArguments, out: &mut Out) -> anyhow::Result<()> {
    let repository = Repository::existing(client, &it.repository, &it.common).await?;
    let commit = repository.commit(it.commit.as_ref())?;
    let tree = repository.tree(commit).await?;
    let found = tree.file(&it.path);
    let found = found.with_context(|| match &*it.path {
        RULES_FILE => format!("{RULES_FILE} is no file of a commit: `content rules` shows it"),
        path => format!("commit {} has no file {path}", commit.hash),
    })?;
    if it.file == Path::new(STANDARD) {
        let mut to = standard(std::io::stdout().as_fd())?;
        copy(&repository, found, &mut to).await?;
        return Ok(to.flush().await?);
    }
    let to = Destination::at(&it.file, it.force)?;
    let fetched = async {
        let mut file = to.open().await?;
        copy(&repository, found, &mut file).await?;
        file.flush().await?;
        to.finish(file).await
    };
    let fetched = fetched.await;
    if fetched.is_err() {
        to.discard().await;
    }
    fetched?;
    let (file, bytes) = (it.file.display().to_string(), found.file.bytes);
    match out.format() {
        Format::Json => out.json(&Written { file, bytes, commit: commit.hash.to_string() })?,
        Format::Table => out.text(&format!("{file}: {bytes} bytes of commit {}\n", commit.hash))?,
    }
    Ok(())
}

async fn copy(
    repository: &Repository,
    it: &TreeFile,
    to: &mut (impl AsyncWrite + Unpin),
) -> anyhow::Result<()> {
    let file = &it.file;
    let mut hash = Sha256::new();
    // A length of 0 asks for everything.
    if file.bytes > 0 {
        let mut reader = repository.reader(file.body, file.offset, file.bytes);
        while let Some(piece) = reader.next().await? {
            hash.update(&piece);
            to.write_all(&piece).await?;
        }
    }
    if Digest(hash.finalize().into()) != file.sha256 {
        bail!("{} came with another digest than {}", it.path, file.sha256);
    }
    Ok(())
}
