//! What this node has of a repository: records, files and versions.

use super::FOLDER;
use super::cache::{Cache, make_folder};
use super::db::RecordDb;
use super::version::Versions;
use anyhow::Context;
use rota_content::check_repository;
use rota_content::refresh::adopt;
use rota_model::RepositoryName;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// The repository that is followed.
pub struct Repository {
    /// Its name.
    pub name: RepositoryName,
    /// A lock because its work is done by threads that may block, one at a time.
    db: Arc<Mutex<RecordDb>>,
    /// Its files.
    pub cache: Cache,
    /// Its versions.
    pub versions: Versions,
}

impl Repository {
    /// What the data folder of a node has of it.
    ///
    /// # Errors
    /// Its folder cannot be used.
    pub fn open(data: &Path, name: &RepositoryName) -> anyhow::Result<Self> {
        check_repository(name)?;
        let all = data.join(FOLDER);
        make_folder(&all)?;
        let folder = all.join(name.as_str());
        make_folder(&folder)?;
        let mut db = RecordDb::open(&folder.join("records.redb"))?;
        let cache = Cache::open(&folder.join("cache"))?;
        if db.is_empty()? {
            // Earlier records are lost, or there were none.
            adopt(&mut db, cache.verified()?)?;
        }
        let versions = Versions::open(&folder)?;
        Ok(Self { name: name.clone(), db: Arc::new(Mutex::new(db)), cache, versions })
    }

    /// Work on the database, on a thread that may block.
    ///
    /// # Errors
    /// Those of the work.
    pub async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut RecordDb) -> anyhow::Result<T> + Send + 'static,
    ) -> anyhow::Result<T> {
        let db = self.db.clone();
        let done = tokio::task::spawn_blocking(move || {
            let mut db = db.lock().unwrap_or_else(PoisonError::into_inner);
            work(&mut db)
        });
        done.await.context("work on the records of content")?
    }
}

#[cfg(test)]
mod tests {
    use super::super::cache::tests::wanted;
    use super::*;
    use rota_content::refresh::{CacheName, obsolete};
    use std::fs;

    #[test]
    fn files_are_there_still_when_the_records_are_lost_and_go_unless_a_new_record_names_them() {
        let data = tempfile::tempdir().unwrap();
        let name = RepositoryName::parse("main").unwrap();
        let repository = Repository::open(data.path(), &name).unwrap();
        let file = wanted("abc", false);
        let mut coming = repository.cache.begin(&file, 0).unwrap();
        coming.write(b"abc").unwrap();
        coming.end().unwrap();
        drop(repository);
        fs::write(data.path().join("content/main/records.redb"), "no database").unwrap();
        for _ in 0..2 {
            let repository = Repository::open(data.path(), &name).unwrap();
            let named = CacheName::of(&file);
            assert!(repository.cache.has(&named, &file));
            let db = repository.db.lock().unwrap();
            assert_eq!(obsolete(&*db).unwrap().cached, [named].into());
        }
    }
}
