//! Files of content by their digests. A file is there only when it is whole.

use anyhow::{Context, bail};
use rota_content::File as Wanted;
use rota_content::refresh::CacheName;
use rota_docstore::Digest;
use sha2::{Digest as _, Sha256};
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Others read files and pass through folders: programs of sessions have users of their own.
const FOLDER_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o444;
const PROGRAM_MODE: u32 = 0o555;
/// Below the cache, for what is not whole.
const COMING: &str = "coming";

/// Makes a folder that others may read, and those above it that are missing. Whatever the mask of new files says.
pub fn make_folder(folder: &Path) -> anyhow::Result<()> {
    let missing: Vec<&Path> = folder.ancestors().take_while(|it| !it.exists()).collect();
    for it in missing.into_iter().rev() {
        let made = match fs::create_dir(it) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error),
            Ok(()) | Err(_) => Ok(()),
        };
        let shown =
            made.and_then(|()| fs::set_permissions(it, Permissions::from_mode(FOLDER_MODE)));
        shown.with_context(|| format!("cannot make {}", it.display()))?;
    }
    Ok(())
}

/// The cached files of a repository.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
    /// Of files that began to come: what an earlier download left under way writes into none of a later one.
    begun: Arc<AtomicU64>,
}

/// A file that is coming.
pub struct Coming {
    file: File,
    at: PathBuf,
    to: PathBuf,
    hash: Sha256,
    bytes: u64,
    wanted: Wanted,
}

impl Cache {
    /// The cache in a folder. What was coming when an earlier agent ended is removed.
    ///
    /// # Errors
    /// The folder cannot be used.
    pub fn open(folder: &Path) -> anyhow::Result<Self> {
        let it = Self { folder: folder.to_owned(), begun: Arc::default() };
        make_folder(folder)?;
        let coming = folder.join(COMING);
        if coming.exists() {
            let gone = fs::remove_dir_all(&coming);
            gone.with_context(|| format!("cannot remove {}", coming.display()))?;
        }
        make_folder(&coming)?;
        Ok(it)
    }

    /// Where a file is, or will be.
    pub fn path(&self, name: &CacheName) -> PathBuf {
        self.folder.join(&name.as_str()[..2]).join(name.as_str())
    }

    /// Whether a file is there, as large as it should be.
    pub fn has(&self, name: &CacheName, file: &Wanted) -> bool {
        fs::metadata(self.path(name)).is_ok_and(|it| it.is_file() && it.len() == file.bytes)
    }

    /// Begins to write a file.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn begin(&self, wanted: &Wanted) -> anyhow::Result<Coming> {
        let name = CacheName::of(wanted);
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        let at = self.folder.join(COMING).join(format!("{number}-{}", name.as_str()));
        let to = self.path(&name);
        let file = File::create(&at).with_context(|| format!("cannot make {}", at.display()))?;
        Ok(Coming { file, at, to, hash: Sha256::new(), bytes: 0, wanted: *wanted })
    }

    /// Removes a file, if it is there.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove(&self, name: &CacheName) -> anyhow::Result<()> {
        let path = self.path(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {}", path.display()))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Waits until everything that was written is on the disk.
    ///
    /// # Errors
    /// The disk fails.
    pub fn sync(&self) -> anyhow::Result<()> {
        let folder = File::open(&self.folder)?;
        rustix::fs::syncfs(&folder).context("the files of content cannot be brought to the disk")
    }
}

impl Coming {
    /// The next bytes.
    ///
    /// # Errors
    /// The disk fails.
    pub fn write(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        self.file.write_all(bytes).with_context(|| format!("cannot write {}", self.at.display()))
    }

    /// All bytes are there: the file gets its place, if it is the one that was wanted.
    ///
    /// # Errors
    /// It is not, or the disk fails.
    pub fn end(self) -> anyhow::Result<()> {
        let Self { file, at, to, hash, bytes, wanted } = self;
        let came = Digest(hash.finalize().into());
        if came != wanted.sha256 || bytes != wanted.bytes {
            let _ = fs::remove_file(&at);
            bail!(
                "came as {bytes} bytes with digest {came}, not as {} with {}",
                wanted.bytes,
                wanted.sha256
            );
        }
        let mode = if wanted.executable { PROGRAM_MODE } else { FILE_MODE };
        file.set_permissions(Permissions::from_mode(mode))?;
        if let Some(folder) = to.parent() {
            make_folder(folder)?;
        }
        fs::rename(&at, &to).with_context(|| format!("cannot move {}", at.display()))
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn wanted(text: &str, executable: bool) -> Wanted {
        let sha256 = Digest(Sha256::digest(text).into());
        Wanted { sha256, bytes: text.len() as u64, executable, body: sha256, offset: 0 }
    }

    #[test]
    fn a_file_is_there_when_it_is_whole_and_can_be_run_if_it_should() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::open(folder.path()).unwrap();
        for (executable, mode) in [(false, 0o444), (true, 0o555)] {
            let file = wanted("abc", executable);
            let name = CacheName::of(&file);
            let mut coming = cache.begin(&file).unwrap();
            coming.write(b"a").unwrap();
            assert!(!cache.has(&name, &file));
            coming.write(b"bc").unwrap();
            coming.end().unwrap();
            assert!(cache.has(&name, &file));
            let metadata = fs::metadata(cache.path(&name)).unwrap();
            assert_eq!(metadata.permissions().mode() & 0o777, mode);
            cache.remove(&name).unwrap();
            cache.remove(&name).unwrap();
            assert!(!cache.has(&name, &file));
        }
        cache.sync().unwrap();
    }

    #[test]
    fn what_comes_with_another_digest_is_refused_and_nothing_of_it_stays() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::open(folder.path()).unwrap();
        let file = wanted("abc", false);
        let mut coming = cache.begin(&file).unwrap();
        coming.write(b"abd").unwrap();
        let error = coming.end().unwrap_err().to_string();
        assert!(error.contains(&file.sha256.to_string()), "{error}");
        assert!(!cache.has(&CacheName::of(&file), &file));
        assert_eq!(fs::read_dir(folder.path().join(COMING)).unwrap().count(), 0);
        drop(cache.begin(&file).unwrap());
        Cache::open(folder.path()).unwrap();
        assert_eq!(fs::read_dir(folder.path().join(COMING)).unwrap().count(), 0);
    }
}
