//! The order of the eight steps: one function, over whoever has the feed, the database and the cache.

use crate::record::{ACCESS_PATH, File, Hash, Record};
use crate::refresh::{
    CacheName, FileDb, Intake, Needed, TakeError, Taken, begin, delete_stale, fetched, mark_stale,
    needed, obsolete, settle_access, tidied, under_way,
};
use std::collections::BTreeSet;

/// What a node makes of a commit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Version {
    /// The commit.
    pub commit: Hash,
    /// What the node may see of it.
    pub access: Hash,
}

/// Why a version is not used.
#[derive(Debug)]
pub struct NotUsed<E> {
    /// Whether the cache lacks a file that the records say is there.
    pub lacks_a_file: bool,
    /// Why.
    pub why: E,
}

/// How a refresh ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The node has what it should have.
    Current(Version),
    /// What the node may see has changed: another refresh must follow at once.
    Again,
    /// There is no feed, as the host knows.
    NoFeed,
}

/// Who carries out the effects of a refresh. Each of them may be the last one before a crash.
pub trait Host: Send {
    /// Why an effect failed.
    type Error: From<TakeError<Self::Error>> + Send + 'static;
    /// The file database.
    type Db: FileDb<Error = Self::Error> + 'static;

    /// Does some work on the database.
    ///
    /// # Errors
    /// Those of the work.
    fn with<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Self::Db) -> Result<T, Self::Error> + Send + 'static,
    ) -> impl Future<Output = Result<T, Self::Error>> + Send;

    /// Asks for the feed since a commit, or for all. Gives whether everything will be told; `None`: there is no feed.
    ///
    /// # Errors
    /// Nobody answers.
    fn ask(
        &mut self,
        since: Option<&Hash>,
    ) -> impl Future<Output = Result<Option<bool>, Self::Error>> + Send;

    /// The next records of the feed; `None` at its end.
    ///
    /// # Errors
    /// It was cut.
    fn records(&mut self) -> impl Future<Output = Result<Option<Vec<Record>>, Self::Error>> + Send;

    /// Whether this version is in use.
    fn uses(&self, version: &Version) -> bool;

    /// Tells whether the cache has a file.
    fn has(&self) -> impl Fn(&CacheName, &File) -> bool + Send + 'static;

    /// These filesets are downloaded next, and nothing else.
    ///
    /// # Errors
    /// They cannot be.
    fn prepare(
        &mut self,
        filesets: &[Needed],
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Brings the files of a fileset into the cache.
    ///
    /// # Errors
    /// One of them cannot be had.
    fn download(
        &mut self,
        fileset: &Needed,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Makes the version of the records, and uses it.
    ///
    /// # Errors
    /// It cannot be made, or must not be used. The refresh ends all the same.
    fn use_version(
        &mut self,
        version: &Version,
    ) -> impl Future<Output = Result<(), NotUsed<Self::Error>>> + Send;

    /// Removes those of these files from the cache whose bytes are nowhere else: no version has them.
    ///
    /// # Errors
    /// The cache fails.
    fn make_room(
        &mut self,
        cached: &BTreeSet<CacheName>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Removes files from the cache; those that are not there, too.
    ///
    /// # Errors
    /// The cache fails.
    fn remove(
        &mut self,
        cached: &BTreeSet<CacheName>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// One refresh: steps 1 to 8, in their order. Where nothing is to be done, it ends with step 5.
///
/// # Errors
/// An effect failed. A later refresh comes to the right end.
pub async fn refresh<H: Host>(host: &mut H) -> Result<Ended, H::Error> {
    let since = host.with(|db| begin(db)).await?;
    let Some(is_full) = host.ask(since.as_ref()).await? else { return Ok(Ended::NoFeed) };
    if is_full {
        host.with(mark_stale).await?;
    }
    let mut intake = Intake::new(since.as_ref().filter(|_| !is_full));
    while let Some(records) = host.records().await? {
        let take = move |db: &mut H::Db| {
            intake.take(db, records)?;
            Ok(intake)
        };
        intake = host.with(take).await?;
    }
    let taken = host.with(move |db| Ok(intake.end(db)?)).await?;
    let settle = move |db: &mut H::Db| Ok((settle_access(db, &taken)?, taken));
    let (is_settled, taken) = host.with(settle).await?;
    if !is_settled {
        return Ok(Ended::Again);
    }
    let read = |db: &mut H::Db| Ok((under_way(db)?.is_some(), db.get(ACCESS_PATH)?));
    let (is_left_over, access) = host.with(read).await?;
    let access = access.ok_or(TakeError::NoAccess)?.commit;
    let version = Version { commit: taken.latest.clone(), access };
    if taken.changed || is_left_over || !host.uses(&version) {
        finish(host, taken, &version).await?;
    }
    Ok(Ended::Current(version))
}

/// Steps 6 to 8. A version is used between the last two: what it links to is in the cache, and what an earlier one
/// links to stays with it.
async fn finish<H: Host>(host: &mut H, taken: Taken, version: &Version) -> Result<(), H::Error> {
    host.with(move |db| delete_stale(db, &taken)).await?;
    let has = host.has();
    let look = move |db: &mut H::Db| needed(db, &mut |name, file| has(name, file));
    let filesets = host.with(look).await?;
    if host.prepare(&filesets).await.is_err() {
        // There may be room without what no record names and no version has.
        let gone = host.with(|db| obsolete(db)).await?;
        host.make_room(&gone.cached).await?;
        host.prepare(&filesets).await?;
    }
    for fileset in filesets {
        host.download(&fileset).await?;
        host.with(move |db| fetched(db, &fileset)).await?;
    }
    let used = host.use_version(version).await;
    let is_tidy = tidy(host).await;
    let Err(NotUsed { lacks_a_file, why }) = used else { return is_tidy };
    if lacks_a_file && is_tidy.is_ok() {
        // Everything is looked through again.
        host.with(mark_stale).await?;
    }
    Err(why)
}

/// Step 8: files that no record names leave the cache, and then records of nothing the database.
async fn tidy<H: Host>(host: &mut H) -> Result<(), H::Error> {
    let gone = host.with(|db| obsolete(db)).await?;
    host.remove(&gone.cached).await?;
    host.with(move |db| tidied(db, gone)).await
}
