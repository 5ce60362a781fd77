//! The files of a folder that is to be published.

use crate::failure::UsageMistake;
use anyhow::{Context, bail};
use indicatif::ProgressBar;
use rota_client::docstore::Digest;
use rota_content::{FILES_MAX, FilePath, RULES_FILE, Rules, Scanned};
use sha2::{Digest as _, Sha256};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Read at once.
const PIECE_BYTES: usize = 64 * 1024;
/// Folders that are no content.
const LEFT_OUT: [&str; 2] = [".git", ".rota"];
/// Most mistakes that are told.
const TOLD_MAX: usize = 20;

/// What a folder holds.
#[derive(Debug)]
pub struct Folder {
    /// Its root.
    pub root: PathBuf,
    /// Its filesets.
    pub rules: Rules,
    /// Its files.
    pub files: Vec<Scanned>,
    /// The commit of git that it has, with a mark when there are changes.
    pub source: Option<String>,
    /// Who works there, by git.
    pub author: Option<String>,
    /// What was said of that commit.
    pub message: Option<String>,
}

/// Reads a folder: every name is checked, and every file's digest is made.
pub fn scan(folder: &Path, progress: &ProgressBar) -> anyhow::Result<Folder> {
    let root = folder.canonicalize().with_context(|| folder.display().to_string())?;
    if !root.is_dir() {
        bail!(UsageMistake(format!("{} is no folder", folder.display())));
    }
    let is_git = is_work_tree(&root);
    let found = if is_git { of_git(&root)? } else { of_folder(&root)? };
    if found.len() > FILES_MAX {
        bail!("{} has {} files; the limit is {FILES_MAX}", folder.display(), found.len());
    }
    let rules = rules(&root)?;
    let (mut files, mut mistakes) = (Vec::with_capacity(found.len()), Vec::new());
    progress.set_length(found.len() as u64);
    for path in found.into_iter().filter(|it| it != RULES_FILE) {
        match one(&root, &path) {
            Ok(Some(file)) => files.push(file),
            Ok(None) => {}
            Err(error) => mistakes.push(format!("{path:?}: {error:#}")),
        }
        progress.inc(1);
    }
    if !mistakes.is_empty() {
        bail!(told(mistakes));
    }
    let [source, author, message] = if is_git { git_names(&root) } else { [None, None, None] };
    Ok(Folder { root, rules, files, source, author, message })
}

/// All mistakes in one text, as many as somebody reads.
pub fn told(mut mistakes: Vec<String>) -> UsageMistake {
    let more = mistakes.len().saturating_sub(TOLD_MAX);
    mistakes.truncate(TOLD_MAX);
    if more > 0 {
        mistakes.push(format!("and {more} more"));
    }
    UsageMistake(mistakes.join("\n"))
}

fn rules(root: &Path) -> anyhow::Result<Rules> {
    match fs::read_to_string(root.join(RULES_FILE)) {
        Ok(text) => Rules::parse(&text)
            .map_err(|all| told(all.iter().map(ToString::to_string).collect()).into()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Rules::default()),
        Err(error) => Err(error).context(RULES_FILE),
    }
}

/// What git knows, and what is new and not ignored. Files that are gone are left out later.
fn of_git(root: &Path) -> anyhow::Result<Vec<String>> {
    let listed = git(root, &["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .context("the folder has .git, and git lists no files of it")?;
    let mut all = Vec::new();
    for name in listed.split(|it| *it == 0).filter(|it| !it.is_empty()) {
        all.push(text_of(name)?);
    }
    all.retain(|it| !it.starts_with(".rota/"));
    all.sort();
    all.dedup();
    Ok(all)
}

fn text_of(name: &[u8]) -> anyhow::Result<String> {
    String::from_utf8(name.to_vec()).map_err(|_| {
        let shown = String::from_utf8_lossy(name).into_owned();
        UsageMistake(format!("{shown:?}: the name is no UTF-8")).into()
    })
}

fn git(root: &Path, arguments: &[&str]) -> anyhow::Result<Vec<u8>> {
    let mut command = Command::new("git");
    command.arg("-C").arg(root).args(arguments).stdin(Stdio::null());
    let done = command.output().context("git cannot be run")?;
    if !done.status.success() {
        bail!("git {}: {}", arguments[0], String::from_utf8_lossy(&done.stderr).trim());
    }
    Ok(done.stdout)
}

/// Whether git keeps this folder. One that git ignores, as those of build output, is a plain folder.
fn is_work_tree(root: &Path) -> bool {
    git(root, &["rev-parse", "--is-inside-work-tree"]).is_ok_and(|it| it.starts_with(b"true"))
        && git(root, &["check-ignore", "--quiet", "."]).is_err()
}

/// The commit that a work tree has, who works there, and what was said of the commit.
fn git_names(root: &Path) -> [Option<String>; 3] {
    let line = |arguments: &[&str]| {
        let text = git(root, arguments).ok()?;
        let text = String::from_utf8_lossy(&text).trim().to_owned();
        (!text.is_empty()).then_some(text)
    };
    let is_changed = line(&["status", "--porcelain"]).is_some();
    let mark = if is_changed { "-changed" } else { "" };
    let source = line(&["rev-parse", "HEAD"]).map(|it| format!("{it}{mark}"));
    [source, line(&["config", "user.name"]), line(&["log", "-1", "--format=%s"])]
}

fn of_folder(root: &Path) -> anyhow::Result<Vec<String>> {
    let (mut all, mut folders) = (Vec::new(), vec![String::new()]);
    while let Some(below) = folders.pop() {
        let folder = root.join(&below);
        let entries = fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
        for entry in entries {
            let entry = entry.with_context(|| folder.display().to_string())?;
            let name = text_of(std::os::unix::ffi::OsStrExt::as_bytes(&*entry.file_name()))?;
            if name == LEFT_OUT[0] || below.is_empty() && LEFT_OUT.contains(&&*name) {
                continue;
            }
            let path = if below.is_empty() { name } else { format!("{below}/{name}") };
            // Not what a link leads to: a folder that is one would be walked without an end.
            if entry.file_type().with_context(|| path.clone())?.is_dir() {
                folders.push(path);
            } else {
                all.push(path);
            }
            if all.len() > FILES_MAX {
                bail!("{} has over {FILES_MAX} files", root.display());
            }
        }
    }
    Ok(all)
}

/// One file; none when it is not there any more.
fn one(root: &Path, path: &str) -> anyhow::Result<Option<Scanned>> {
    let checked = FilePath::parse(path)?;
    let at = root.join(path);
    let real = match at.canonicalize() {
        Ok(real) => real,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !at.is_symlink() => {
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    if !real.starts_with(root) {
        bail!("is a link that leads out of the folder");
    }
    // Whatever is no file, a pipe for one, is never opened.
    let metadata = fs::metadata(&real)?;
    if metadata.is_dir() {
        bail!("is a link to a folder, or a folder of another work tree; content has files only");
    }
    if !metadata.is_file() {
        bail!("is no regular file");
    }
    let (sha256, bytes) = measure(&real)?;
    let executable = metadata.permissions().mode() & 0o111 != 0;
    Ok(Some(Scanned { path: checked, sha256, bytes, executable }))
}

fn measure(path: &Path) -> anyhow::Result<(Digest, u64)> {
    let (mut file, mut hash, mut bytes) = (File::open(path)?, Sha256::new(), 0);
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok((Digest(hash.finalize().into()), bytes)),
            count => {
                hash.update(&piece[..count]);
                bytes += count as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn names(folder: &Path) -> Vec<String> {
        let scanned = scan(folder, &ProgressBar::hidden()).unwrap();
        let mut names: Vec<String> = scanned.files.iter().map(|it| it.path.to_string()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_plain_folder_gives_all_its_files_but_the_rules_and_links_within_it_count_as_files() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("a/b")).unwrap();
        fs::create_dir_all(folder.path().join(".rota")).unwrap();
        for name in ["a/b/c", "d.toml", RULES_FILE, ".rota/x"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        symlink("b/c", folder.path().join("a/link")).unwrap();
        assert_eq!(names(folder.path()), ["a/b/c", "a/link", "d.toml"]);
    }

    #[test]
    fn what_cannot_be_content_is_told_with_its_path_all_at_once() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("fine"), "").unwrap();
        symlink("/etc/passwd", folder.path().join("out")).unwrap();
        symlink("nowhere", folder.path().join("broken")).unwrap();
        fs::create_dir(folder.path().join("folder")).unwrap();
        symlink("folder", folder.path().join("linked")).unwrap();
        fs::write(folder.path().join("new\nline"), "").unwrap();
        let error = format!("{:#}", scan(folder.path(), &ProgressBar::hidden()).unwrap_err());
        for told in ["\"out\"", "\"broken\"", "\"linked\"", "new\\nline"] {
            assert!(error.contains(told), "{told}: {error}");
        }
        assert!(!error.contains("fine"), "{error}");
    }

    #[test]
    fn a_work_tree_gives_what_git_knows_and_does_not_ignore() {
        let folder = tempfile::tempdir().unwrap();
        for arguments in [&["init", "-q"][..], &["config", "user.name", "Ada"]] {
            git(folder.path(), arguments).unwrap();
        }
        for (name, text) in [(".gitignore", "*.o\n"), ("a.toml", ""), ("b.o", ""), ("gone", "")] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        git(folder.path(), &["add", "."]).unwrap();
        fs::remove_file(folder.path().join("gone")).unwrap();
        assert_eq!(names(folder.path()), [".gitignore", "a.toml"]);
        let scanned = scan(folder.path(), &ProgressBar::hidden()).unwrap();
        assert_eq!(scanned.author.as_deref(), Some("Ada"));
    }
}
