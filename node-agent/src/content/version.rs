//! Versions: the files of a commit as a folder of classes, made of hard links to the cache.

use super::FOLDER;
use super::cache::{Cache, make_folder};
use crate::files::remove_if_there;
use anyhow::Context;
use rota_content::refresh::CacheName;
use rota_docstore::Digest;
use sha2::{Digest as _, Sha256};
use smol_str::SmolStr;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Names the version that is in use.
const CURRENT: &str = "current";
/// All versions lie below this.
const VERSIONS: &str = "versions";
/// Here lies of each version what its files are, as a digest: versions of several commits may have the very same.
const DIGESTS: &str = "digests";
/// Begins the names of those that are not whole.
const COMING: &str = ".coming-";

/// The versions of a repository.
#[derive(Clone, Debug)]
pub struct Versions {
    /// That of the repository.
    folder: PathBuf,
}

impl Versions {
    /// Those in the folder of a repository.
    ///
    /// # Errors
    /// The folder cannot be used.
    pub fn open(folder: &Path) -> anyhow::Result<Self> {
        let it = Self { folder: folder.to_owned() };
        make_folder(&it.all())?;
        make_folder(&it.folder.join(DIGESTS))?;
        for name in it.names()? {
            if name.starts_with(COMING) {
                remove(&it.all().join(name))?;
            }
        }
        Ok(it)
    }

    fn all(&self) -> PathBuf {
        self.folder.join(VERSIONS)
    }

    /// Where a version is, or would be.
    pub fn path(&self, name: &str) -> PathBuf {
        self.all().join(name)
    }

    /// Whether a version is whole.
    pub fn has(&self, name: &str) -> bool {
        self.path(name).is_dir()
    }

    /// The version that is in use.
    pub fn current(&self) -> Option<String> {
        let target = fs::read_link(self.folder.join(CURRENT)).ok()?;
        let name = target.file_name()?.to_str()?.to_owned();
        self.has(&name).then_some(name)
    }

    /// Makes a version of these files, which the cache has. It is there only when it is whole.
    ///
    /// # Errors
    /// The disk fails, or a file is not in the cache.
    pub fn build(
        &self,
        name: &str,
        files: &[(SmolStr, CacheName)],
        cache: &Cache,
    ) -> anyhow::Result<()> {
        let coming = self.all().join(format!("{COMING}{name}"));
        remove(&coming)?;
        make_folder(&coming)?;
        let mut made = BTreeSet::new();
        for (path, cached) in files {
            let to = coming.join(path.as_str());
            if let Some(folder) = to.parent()
                && made.insert(folder.to_owned())
            {
                make_folder(folder)?;
            }
            let from = cache.path(cached);
            link(&from, &to).with_context(|| format!("cannot put {path} into a version"))?;
        }
        fs::write(self.folder.join(DIGESTS).join(name), digest(files))?;
        // Its folders and links; its files were synced when they came.
        cache.sync()?;
        let place = self.path(name);
        fs::rename(&coming, &place).with_context(|| format!("cannot make {}", place.display()))
    }

    /// From now on this version is in use, also for the next agent.
    ///
    /// # Errors
    /// The disk fails.
    pub fn use_version(&self, name: &str) -> anyhow::Result<()> {
        let fresh = self.folder.join("current.new");
        remove_if_there(&fresh)?;
        symlink(Path::new(VERSIONS).join(name), &fresh)?;
        fs::rename(&fresh, self.folder.join(CURRENT)).context("cannot change the version in use")
    }

    /// Puts all versions but these away. Gives the folders that are to be removed: half of one never passes for a
    /// version.
    ///
    /// # Errors
    /// The disk fails.
    pub fn put_away(&self, names: &BTreeSet<String>) -> anyhow::Result<Vec<PathBuf>> {
        let mut going = Vec::new();
        for name in self.names()? {
            if !name.starts_with(COMING) && !names.contains(&name) {
                let to = self.all().join(format!("{COMING}gone-{name}"));
                remove(&to)?;
                fs::rename(self.path(&name), &to)?;
                remove_if_there(&self.folder.join(DIGESTS).join(&name))?;
                going.push(to);
            }
        }
        Ok(going)
    }

    /// The names of all that are there.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn names(&self) -> anyhow::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.all())? {
            names.extend(entry?.file_name().to_str().map(str::to_owned));
        }
        names.sort();
        Ok(names)
    }
}

/// A hard link, or a copy where there cannot be one: on another disk, or of a file with too many links.
fn link(from: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(from, to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            fs::copy(from, to)?;
            let mode = fs::metadata(from)?.permissions().mode();
            fs::set_permissions(to, fs::Permissions::from_mode(mode))
        }
        linked => linked,
    }
}

/// What the files of a version are.
fn digest(files: &[(SmolStr, CacheName)]) -> String {
    let mut files: Vec<(&str, &str)> =
        files.iter().map(|(path, cached)| (path.as_str(), cached.as_str())).collect();
    files.sort_unstable();
    let mut hash = Sha256::new();
    for text in files.iter().flat_map(|(path, cached)| [path, cached]) {
        hash.update(text.len().to_be_bytes());
        hash.update(text);
    }
    Digest(hash.finalize().into()).to_string()
}

/// Removes a folder, if it is there.
///
/// # Errors
/// The disk fails.
pub fn remove(folder: &Path) -> anyhow::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The folder of the version that was in use last, of whichever repository: a node begins with it ahead of any
/// manager's word.
pub fn version_at_start(data: &Path) -> Option<PathBuf> {
    let mut newest: BTreeMap<std::time::SystemTime, PathBuf> = BTreeMap::new();
    for entry in fs::read_dir(data.join(FOLDER)).ok()?.flatten() {
        // Such a folder is being removed.
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let link = entry.path().join(CURRENT);
        let Ok(since) = fs::symlink_metadata(&link).and_then(|it| it.modified()) else { continue };
        if let Ok(version) = link.canonicalize() {
            newest.insert(since, version);
        }
    }
    newest.pop_last().map(|it| it.1)
}

/// No version of any repository is in use any more: the next agent begins with none.
///
/// # Errors
/// The disk fails.
pub fn leave(data: &Path) -> io::Result<()> {
    let all = data.join(FOLDER);
    folders(&all)?.iter().try_for_each(|it| remove_if_there(&all.join(it).join(CURRENT)))
}

/// The names of folders in a folder, which need not be there.
///
/// # Errors
/// It cannot be read.
pub fn folders(all: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(all) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            names.extend(entry.file_name().to_str().map(str::to_owned));
        }
    }
    Ok(names)
}

/// The repository and the commit of a version, by its folder; `None` of any other folder.
pub fn content_of_version(root: &Path) -> Option<(String, String)> {
    let commit = commit_of_version(root)?;
    let repository = root.parent()?.parent()?.file_name()?.to_str()?;
    Some((repository.to_owned(), commit))
}

/// The commit of a version, by its folder; `None` of any other folder.
pub fn commit_of_version(root: &Path) -> Option<String> {
    let is_version = root.parent()?.file_name()? == VERSIONS;
    let (commit, _) = root.file_name()?.to_str()?.split_once('-')?;
    is_version.then(|| commit.to_owned())
}

/// What the files of a version are, by its folder: the same of two versions with the very same files. `None` of any
/// other folder, and of a version whose digest is not there.
pub fn files_of_version(root: &Path) -> Option<String> {
    commit_of_version(root)?;
    let digest = root.parent()?.parent()?.join(DIGESTS).join(root.file_name()?);
    fs::read_to_string(digest).ok()
}

#[cfg(test)]
mod tests {
    use super::super::cache::tests::wanted;
    use super::*;

    #[test]
    fn a_version_has_the_files_of_its_commit_and_stays_when_the_cache_loses_them() {
        let data = tempfile::tempdir().unwrap();
        let folder = data.path().join(FOLDER).join("main");
        let cache = Cache::open(&folder.join("cache")).unwrap();
        let versions = Versions::open(&folder).unwrap();
        assert_eq!((versions.current(), version_at_start(data.path())), (None, None));
        let mut files = Vec::new();
        for (path, text, executable) in [("a.toml", "1", false), ("a/bin/run", "2", true)] {
            let file = wanted(text, executable);
            let mut coming = cache.begin(&file, 0).unwrap();
            coming.write(text.as_bytes()).unwrap();
            coming.end().unwrap();
            files.push((SmolStr::new(path), CacheName::of(&file)));
        }
        versions.build("v1", &files, &cache).unwrap();
        versions.use_version("v1").unwrap();
        assert_eq!(versions.current().as_deref(), Some("v1"));
        let root = versions.path("v1");
        assert_eq!(files_of_version(&root), None, "it is no version of a commit");
        let (same, other) = (versions.path("bb-1"), versions.path("cc-1"));
        versions.build("bb-1", &files, &cache).unwrap();
        files.reverse();
        versions.build("aa-1", &files, &cache).unwrap();
        versions.build("cc-1", &files[1..], &cache).unwrap();
        assert!(files_of_version(&same).is_some());
        assert_eq!(files_of_version(&same), files_of_version(&versions.path("aa-1")));
        assert_ne!(files_of_version(&same), files_of_version(&other));
        versions.put_away(&BTreeSet::from(["v1".to_owned()])).unwrap();
        assert_eq!(files_of_version(&same), None);
        assert_eq!(version_at_start(data.path()), Some(root.canonicalize().unwrap()));
        let other = Versions::open(&data.path().join(FOLDER).join("other")).unwrap();
        other.build("v1", &files, &cache).unwrap();
        other.use_version("v1").unwrap();
        leave(data.path()).unwrap();
        leave(data.path()).unwrap();
        assert_eq!((versions.current(), version_at_start(data.path())), (None, None));
        for (_, name) in &files {
            cache.remove(name).unwrap();
        }
        assert_eq!(fs::read_to_string(root.join("a/bin/run")).unwrap(), "2");
        let mode = |path: &str| fs::metadata(root.join(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!(["a/bin/run", "a.toml"].map(mode), [0o555, 0o444]);
        assert!(versions.build("v2", &files, &cache).is_err(), "the cache has them no more");
        assert!(!versions.has("v2"));
        let versions = Versions::open(&folder).unwrap();
        assert_eq!(versions.names().unwrap(), ["v1"]);
        let going = versions.put_away(&BTreeSet::new()).unwrap();
        assert!(!versions.has("v1"));
        // Whoever was killed before the end leaves it to the next one.
        assert!(going[0].exists());
        assert_eq!(Versions::open(&folder).unwrap().names().unwrap(), [""; 0]);
    }
}
