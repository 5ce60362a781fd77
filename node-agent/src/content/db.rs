//! The file database of a repository, in a file of its own.

use anyhow::Context;
use redb::{Database, ReadableDatabase, ReadableTableMetadata, TableDefinition};
use rota_content::refresh::Change;
use rota_content::{FileDb, Record};
use std::fs;
use std::path::Path;

/// Records by their paths.
const RECORDS: TableDefinition<&str, &[u8]> = TableDefinition::new("records");
/// Bytes of the file that are kept in memory.
const CACHE_BYTES: usize = 16 * 1024 * 1024;

/// Records in a file.
pub struct RecordDb(Database);

impl RecordDb {
    /// Opens the file, or makes it. One that cannot be read is moved aside: a refresh brings everything again.
    ///
    /// # Errors
    /// A new one cannot be made.
    pub fn open(file: &Path) -> anyhow::Result<Self> {
        match Self::at(file) {
            Ok(db) => Ok(db),
            Err(error) if file.exists() => {
                let aside = file.with_extension("damaged");
                let (from, to) = (file.display(), aside.display());
                tracing::error!(%from, %to, %error, "the records of content cannot be read and are moved aside");
                fs::rename(file, &aside).with_context(|| format!("cannot move {from}"))?;
                Self::at(file)
            }
            Err(error) => Err(error),
        }
    }

    fn at(file: &Path) -> anyhow::Result<Self> {
        let db = Database::builder().set_cache_size(CACHE_BYTES).create(file)?;
        let transaction = db.begin_write()?;
        transaction.open_table(RECORDS)?;
        transaction.commit()?;
        let db = Self(db);
        // Damage shows now, where it is mended.
        db.each_under("", &mut |_| {})?;
        Ok(db)
    }
}

impl RecordDb {
    /// Whether it has no record.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn is_empty(&self) -> anyhow::Result<bool> {
        Ok(self.0.begin_read()?.open_table(RECORDS)?.is_empty()?)
    }
}

fn record(bytes: &[u8]) -> anyhow::Result<Record> {
    postcard::from_bytes(bytes).context("a record cannot be read")
}

impl FileDb for RecordDb {
    type Error = anyhow::Error;

    fn get(&self, path: &str) -> anyhow::Result<Option<Record>> {
        let table = self.0.begin_read()?.open_table(RECORDS)?;
        table.get(path)?.map(|it| record(it.value())).transpose()
    }

    fn each_under(&self, prefix: &str, see: &mut dyn FnMut(Record)) -> anyhow::Result<()> {
        let table = self.0.begin_read()?.open_table(RECORDS)?;
        for entry in table.range(prefix..)? {
            let (path, value) = entry?;
            if !path.value().starts_with(prefix) {
                break;
            }
            see(record(value.value())?);
        }
        Ok(())
    }

    fn change(&mut self, changes: Vec<Change>) -> anyhow::Result<()> {
        let transaction = self.0.begin_write()?;
        {
            let mut table = transaction.open_table(RECORDS)?;
            for change in changes {
                match change {
                    Change::Put(record) => {
                        let bytes = postcard::to_allocvec(&record)?;
                        table.insert(&*record.path, &*bytes)?;
                    }
                    Change::Delete(path) => {
                        table.remove(&*path)?;
                    }
                }
            }
        }
        Ok(transaction.commit()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_content::Hash;

    fn paths(db: &RecordDb, prefix: &str) -> Vec<String> {
        let mut paths = Vec::new();
        db.each_under(prefix, &mut |it| paths.push(it.path.to_string())).unwrap();
        paths
    }

    #[test]
    fn records_are_there_when_the_file_is_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("records.redb");
        let commit = |text: &str| Record::commit(&Hash::parse(text).unwrap());
        let mut db = RecordDb::open(&file).unwrap();
        let latest = Record::latest(Hash::parse("bb").unwrap());
        let changes = [commit("aa"), commit("bb"), latest.clone()].map(Change::Put);
        db.change(changes.to_vec()).unwrap();
        db.change(vec![Change::Delete(commit("aa").path)]).unwrap();
        drop(db);
        let db = RecordDb::open(&file).unwrap();
        assert_eq!(paths(&db, ".rota/commit/b"), [".rota/commit/bb"]);
        assert_eq!(paths(&db, ""), [&*latest.path, ".rota/commit/bb"]);
        assert_eq!(db.get(&latest.path).unwrap(), Some(latest));
        assert_eq!(db.get("none").unwrap(), None);
    }

    #[test]
    fn a_damaged_file_is_moved_aside_and_a_new_one_begun() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("records.redb");
        fs::write(&file, "no database").unwrap();
        let db = RecordDb::open(&file).unwrap();
        assert_eq!(paths(&db, ""), [""; 0]);
        assert!(folder.path().join("records.damaged").exists());
    }
}
