//! Files of content by their digests. A file is there only when it is whole.

use crate::files::remove_if_there;
use anyhow::{Context, bail, ensure};
use rota_content::File as Wanted;
use rota_content::refresh::CacheName;
use rota_docstore::Digest;
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Others read files and pass through folders: programs of sessions have users of their own.
const FOLDER_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o444;
const PROGRAM_MODE: u32 = 0o555;
/// Below the cache, for what is not whole. A later download goes on with it.
const COMING: &str = "coming";
/// Read at once of a file.
const PIECE_BYTES: usize = 256 * 1024;

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
    written: Written,
}

/// The files that are being written. A lock because downloads write several at once.
#[derive(Clone, Debug, Default)]
struct Written(Arc<Mutex<BTreeSet<CacheName>>>);

impl Written {
    fn locked(&self) -> MutexGuard<'_, BTreeSet<CacheName>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A file is written by one download at a time.
struct Writing {
    all: Written,
    name: CacheName,
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.all.locked().remove(&self.name);
    }
}

/// A file that is coming.
pub struct Coming {
    file: File,
    at: PathBuf,
    to: PathBuf,
    hash: Sha256,
    bytes: u64,
    wanted: Wanted,
    _writing: Writing,
}

impl Cache {
    /// The cache in a folder.
    ///
    /// # Errors
    /// The folder cannot be used.
    pub fn open(folder: &Path) -> anyhow::Result<Self> {
        let it = Self { folder: folder.to_owned(), written: Written::default() };
        make_folder(folder)?;
        make_folder(&it.coming())?;
        Ok(it)
    }

    fn coming(&self) -> PathBuf {
        self.folder.join(COMING)
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where a file is, or will be.
    pub fn path(&self, name: &CacheName) -> PathBuf {
        self.folder.join(&name.as_str()[..2]).join(name.as_str())
    }

    /// Whether a file is there, as large as it should be.
    pub fn has(&self, name: &CacheName, file: &Wanted) -> bool {
        fs::metadata(self.path(name)).is_ok_and(|it| it.is_file() && it.len() == file.bytes)
    }

    /// Whether no version has a file: its bytes are free once it is removed.
    pub fn is_alone(&self, name: &CacheName) -> bool {
        fs::metadata(self.path(name)).is_ok_and(|it| it.nlink() == 1)
    }

    /// How much has come of files that are not whole, by their names.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn partial(&self) -> anyhow::Result<BTreeMap<CacheName, u64>> {
        let mut found = BTreeMap::new();
        for entry in fs::read_dir(self.coming())? {
            let entry = entry?;
            let name = entry.file_name().to_str().and_then(CacheName::parse);
            if let Some(name) = name {
                found.insert(name, entry.metadata()?.len());
            }
        }
        Ok(found)
    }

    /// Removes what has come of all other files than these.
    ///
    /// # Errors
    /// The disk fails.
    pub fn keep_partial(&self, wanted: &BTreeSet<CacheName>) -> anyhow::Result<()> {
        for entry in fs::read_dir(self.coming())? {
            let entry = entry?;
            let name = entry.file_name().to_str().and_then(CacheName::parse);
            if !name.is_some_and(|it| wanted.contains(&it)) {
                remove_file(&entry.path())?;
            }
        }
        Ok(())
    }

    /// Begins to write a file, or goes on behind the bytes that came earlier.
    ///
    /// # Errors
    /// It cannot be made, or is being written, or fewer bytes came.
    pub fn begin(&self, wanted: &Wanted, came: u64) -> anyhow::Result<Coming> {
        let name = CacheName::of(wanted);
        let (at, to) = (self.coming().join(name.as_str()), self.path(&name));
        if !self.written.locked().insert(name.clone()) {
            bail!("{} is still being written by an earlier download", at.display());
        }
        let writing = Writing { all: self.written.clone(), name };
        let begun = open(&at, came).with_context(|| format!("cannot make {}", at.display()));
        let (file, hash) = begun?;
        Ok(Coming { file, at, to, hash, bytes: came, wanted: *wanted, _writing: writing })
    }

    /// The files that are there with the digests that their names say. All others are removed.
    ///
    /// # Errors
    /// The disk fails.
    pub fn verified(&self) -> anyhow::Result<Vec<CacheName>> {
        let mut names = Vec::new();
        for folder in fs::read_dir(&self.folder)? {
            let folder = folder?.path();
            if folder == self.coming() || !folder.is_dir() {
                continue;
            }
            for entry in fs::read_dir(folder)? {
                let path = entry?.path();
                match self.name_of(&path)? {
                    Some(name) => names.push(name),
                    None => remove_file(&path)?,
                }
            }
        }
        Ok(names)
    }

    /// The name of a file, if it is whole and in its place.
    fn name_of(&self, path: &Path) -> anyhow::Result<Option<CacheName>> {
        let name = path.file_name().and_then(|it| it.to_str()).and_then(CacheName::parse);
        let Some(name) = name.filter(|it| self.path(it) == path) else { return Ok(None) };
        let mut file = File::open(path).with_context(|| path.display().to_string())?;
        let digest = Digest(hash_of(&mut file)?.0.finalize().into()).to_string();
        Ok(name.as_str().starts_with(&digest).then_some(name))
    }

    /// Removes a file, if it is there.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove(&self, name: &CacheName) -> anyhow::Result<()> {
        remove_file(&self.path(name))
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

fn remove_file(path: &Path) -> anyhow::Result<()> {
    remove_if_there(path).with_context(|| format!("cannot remove {}", path.display()))
}

/// Opens a file to go on behind so many bytes, and gives it with their hash.
fn open(at: &Path, came: u64) -> anyhow::Result<(File, Sha256)> {
    if came == 0 {
        return Ok((File::create(at)?, Sha256::new()));
    }
    let mut file = OpenOptions::new().read(true).write(true).open(at)?;
    file.set_len(came.min(file.metadata()?.len()))?;
    let (hash, bytes) = hash_of(&mut file)?;
    ensure!(bytes == came, "it has {bytes} bytes, not {came}");
    file.seek(SeekFrom::Start(came))?;
    Ok((file, hash))
}

/// The hash of what a file has, and how many bytes that is.
fn hash_of(file: &mut File) -> anyhow::Result<(Sha256, u64)> {
    let (mut hash, mut bytes, mut piece) = (Sha256::new(), 0, vec![0; PIECE_BYTES]);
    loop {
        let read = file.read(&mut piece)?;
        if read == 0 {
            return Ok((hash, bytes));
        }
        hash.update(&piece[..read]);
        bytes += read as u64;
    }
}

impl Coming {
    /// How many bytes have come.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

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
        let Self { file, at, to, hash, bytes, wanted, _writing } = self;
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
            let mut coming = cache.begin(&file, 0).unwrap();
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
        let mut coming = cache.begin(&file, 0).unwrap();
        coming.write(b"abd").unwrap();
        let error = coming.end().unwrap_err().to_string();
        assert!(error.contains(&file.sha256.to_string()), "{error}");
        assert!(!cache.has(&CacheName::of(&file), &file));
        assert_eq!(fs::read_dir(folder.path().join(COMING)).unwrap().count(), 0);
    }

    #[test]
    fn what_came_of_a_file_is_gone_on_with_by_the_next_agent_or_removed_where_nobody_wants_it() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::open(folder.path()).unwrap();
        let files = [wanted("abcdef", true), wanted("other", false)];
        let names = files.map(|it| CacheName::of(&it));
        for file in &files {
            let mut coming = cache.begin(file, 0).unwrap();
            coming.write(b"abc").unwrap();
            let error = cache.begin(file, 0).err().unwrap().to_string();
            assert!(error.contains("still being written"), "{error}");
        }
        fs::write(folder.path().join(COMING).join("0-of another form"), "x").unwrap();
        let cache = Cache::open(folder.path()).unwrap();
        assert_eq!(cache.partial().unwrap(), names.clone().map(|it| (it, 3)).into());
        cache.keep_partial(&BTreeSet::from([names[0].clone()])).unwrap();
        assert_eq!(fs::read_dir(folder.path().join(COMING)).unwrap().count(), 1);
        let mut coming = cache.begin(&files[0], 3).unwrap();
        coming.write(b"def").unwrap();
        coming.end().unwrap();
        assert_eq!(fs::read(cache.path(&names[0])).unwrap(), b"abcdef");
        assert!(cache.begin(&files[1], 3).is_err(), "nothing came of it");
    }

    #[test]
    fn files_without_the_digest_of_their_names_are_removed_where_all_are_verified() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::open(folder.path()).unwrap();
        let files = [wanted("one", true), wanted("two", false)];
        let names = files.map(|it| CacheName::of(&it));
        for (file, text) in files.iter().zip(["one", "two"]) {
            let mut coming = cache.begin(file, 0).unwrap();
            coming.write(text.as_bytes()).unwrap();
            coming.end().unwrap();
        }
        let odd = folder.path().join("aa");
        make_folder(&odd).unwrap();
        fs::write(odd.join("odd"), "odd").unwrap();
        let path = cache.path(&names[1]);
        fs::remove_file(&path).unwrap();
        fs::write(&path, "TWO").unwrap();
        assert_eq!(cache.verified().unwrap(), [names[0].clone()]);
        assert!(cache.has(&names[0], &files[0]) && !cache.has(&names[1], &files[1]));
        assert!(!odd.join("odd").exists());
    }
}
