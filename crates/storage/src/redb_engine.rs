//! [`Engine`] over one redb file.

use crate::disk::{Disk, DiskFile};
use crate::engine::{Engine, EngineKind, KvWrite, Visit, check};
use crate::error::EngineError;
use crate::folder::{Folder, Label, State};
use crate::layout::REDB;
use crate::record::checksum;
use redb::{Database, Durability, ReadableDatabase, TableDefinition};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file's name in its folder.
const RECORDS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("records");
const META: TableDefinition<&str, &str> = TableDefinition::new("meta");
/// Its value is the label's lines: a file that was copied from another folder is noticed.
const META_LABEL: &str = "label";
/// Bytes of checksum before each value.
const SUM_BYTES: usize = 8;

/// How [`RedbEngine`] works.
#[derive(Clone, Copy, Debug)]
pub struct RedbSettings {
    /// Memory for pages, in bytes. redb's own default is 1 GiB. Too low: commits read pages back
    /// from the file; too high: the memory is gone.
    pub cache_bytes: usize,
    /// Verify every page at open. Reads the whole file once more, and notices changed bytes
    /// between records as well, which a record's checksum cannot.
    pub verify_pages: bool,
}

impl Default for RedbSettings {
    fn default() -> Self {
        Self { cache_bytes: 64 * 1024 * 1024, verify_pages: true }
    }
}

/// An engine over redb. Each value is stored behind its checksum.
///
/// One case is not covered: a sync fails, the process ends, the folder is opened again on the same
/// running kernel, and then the power goes out. redb takes what the kernel still shows for what is
/// on the disk, and that start finds a damaged file. [`crate::LogEngine`] writes its unsynced end
/// once more instead.
#[derive(Debug)]
pub struct RedbEngine {
    database: Database,
    file: PathBuf,
    // After the database, so that it is dropped, and the lock given up, last.
    folder: Folder,
    failed: bool,
}

impl RedbEngine {
    /// Opens a folder, made when it is not there.
    pub fn open(
        disk: Arc<dyn Disk>,
        path: &Path,
        label: &Label,
        settings: RedbSettings,
    ) -> Result<Self, EngineError> {
        let kind = EngineKind::Redb;
        Self::open_folder(Folder::open(disk, path, label, Some(kind), kind)?, settings)
    }

    pub(crate) fn open_folder(
        mut folder: Folder,
        settings: RedbSettings,
    ) -> Result<Self, EngineError> {
        let file = folder.file(REDB);
        let database = match folder.state {
            State::New => make(&folder, &file, settings)?,
            State::Ready => open_made(&folder, &file, settings)?,
        };
        folder.made()?;
        Ok(Self { database, file, folder, failed: false })
    }

    fn try_commit(&self, batch: &[KvWrite]) -> Result<(), EngineError> {
        let file = &self.file;
        let mut transaction =
            self.database.begin_write().map_err(EngineError::redb("begin a commit to", file))?;
        transaction
            .set_durability(Durability::Immediate)
            .map_err(EngineError::redb("begin a commit to", file))?;
        {
            let mut table = transaction
                .open_table(RECORDS)
                .map_err(EngineError::redb("open the records of", file))?;
            for write in batch {
                match write {
                    KvWrite::Put { key, value } => {
                        let mut place = table
                            .insert_reserve(key.as_slice(), SUM_BYTES + value.len())
                            .map_err(EngineError::redb("write to", file))?;
                        let (sum, body) = place.as_mut().split_at_mut(SUM_BYTES);
                        sum.copy_from_slice(&checksum(0, key, Some(value)).to_le_bytes());
                        body.copy_from_slice(value);
                    }
                    KvWrite::Delete { key } => {
                        table
                            .remove(key.as_slice())
                            .map_err(EngineError::redb("delete from", file))?;
                    }
                }
            }
        }
        transaction.commit().map_err(EngineError::redb("commit to", file))
    }

    fn verified<'a>(&self, key: &[u8], stored: &'a [u8]) -> Result<&'a [u8], EngineError> {
        if let Some((sum, value)) = stored.split_first_chunk::<SUM_BYTES>()
            && u64::from_le_bytes(*sum) == checksum(0, key, Some(value))
        {
            return Ok(value);
        }
        Err(EngineError::Damaged {
            file: self.file.clone(),
            offset: None,
            key: Some(key.to_vec()),
            what: "its checksum does not match".into(),
        })
    }

    fn usable(&self) -> Result<(), EngineError> {
        if self.failed {
            return Err(EngineError::GivenUp { folder: self.folder.path.clone() });
        }
        Ok(())
    }
}

impl Engine for RedbEngine {
    fn commit(&mut self, batch: &[KvWrite]) -> Result<(), EngineError> {
        self.usable()?;
        check(batch)?;
        if batch.is_empty() {
            return Ok(());
        }
        let result = self.try_commit(batch);
        self.failed = result.is_err();
        result
    }

    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        self.usable()?;
        let transaction =
            self.database.begin_read().map_err(EngineError::redb("read", &self.file))?;
        let table =
            transaction.open_table(RECORDS).map_err(EngineError::redb("read", &self.file))?;
        let found = table.get(key).map_err(EngineError::redb("read", &self.file))?;
        found.map(|stored| Ok(self.verified(key, stored.value())?.to_vec())).transpose()
    }

    fn scan(
        &mut self,
        from: &[u8],
        to: Option<&[u8]>,
        visit: &mut Visit<'_>,
    ) -> Result<(), EngineError> {
        self.usable()?;
        if to.is_some_and(|to| to <= from) {
            return Ok(());
        }
        let transaction =
            self.database.begin_read().map_err(EngineError::redb("read", &self.file))?;
        let table =
            transaction.open_table(RECORDS).map_err(EngineError::redb("read", &self.file))?;
        let records = match to {
            Some(to) => table.range(from..to),
            None => table.range(from..),
        };
        for record in records.map_err(EngineError::redb("read", &self.file))? {
            let (key, stored) = record.map_err(EngineError::redb("read", &self.file))?;
            let value = self.verified(key.value(), stored.value())?;
            if visit(key.value(), value).is_break() {
                break;
            }
        }
        Ok(())
    }
}

fn builder(settings: RedbSettings) -> redb::Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(settings.cache_bytes);
    builder.set_check_integrity_on_open(settings.verify_pages);
    builder
}

fn make(folder: &Folder, file: &Path, settings: RedbSettings) -> Result<Database, EngineError> {
    let opened = folder.disk.create(file).map_err(EngineError::io("make", file))?;
    let database = builder(settings)
        .create_with_backend(Backend(opened))
        .map_err(EngineError::redb("make", file))?;
    let transaction = database.begin_write().map_err(EngineError::redb("make", file))?;
    {
        transaction.open_table(RECORDS).map_err(EngineError::redb("make", file))?;
        let mut meta = transaction.open_table(META).map_err(EngineError::redb("make", file))?;
        meta.insert(META_LABEL, folder.label.line().as_str())
            .map_err(EngineError::redb("make", file))?;
    }
    transaction.commit().map_err(EngineError::redb("make", file))?;
    let path = &folder.path;
    folder.disk.sync_folder(path).map_err(EngineError::io("sync the folder", path))?;
    Ok(database)
}

fn open_made(
    folder: &Folder,
    file: &Path,
    settings: RedbSettings,
) -> Result<Database, EngineError> {
    let opened = folder.disk.open(file).map_err(EngineError::io("open", file))?;
    // redb takes an empty file for a new database.
    if opened.is_empty().map_err(EngineError::io("open", file))? {
        return Err(EngineError::missing(file, "it is empty"));
    }
    let database = builder(settings)
        .create_with_backend(Backend(opened))
        .map_err(EngineError::redb("open", file))?;
    let transaction = database.begin_read().map_err(EngineError::redb("read", file))?;
    let meta = transaction.open_table(META).map_err(EngineError::redb("read", file))?;
    let label = meta.get(META_LABEL).map_err(EngineError::redb("read", file))?;
    if label.is_none_or(|label| label.value() != folder.label.line()) {
        return Err(EngineError::missing(file, "it was made for another folder"));
    }
    drop(meta);
    drop(transaction);
    Ok(database)
}

/// redb's view of a file. It takes no lock of its own: the folder is locked.
#[derive(Debug)]
struct Backend(Arc<dyn DiskFile>);

impl redb::StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, out)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.0.sync()
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, data)
    }
}
