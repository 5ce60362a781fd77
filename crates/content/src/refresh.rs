//! How a node brings its file database and its cache up to date, in eight steps. Each step may be the last one before
//! a crash: a later refresh begins with the first and comes to the right end.
//!
//! ```text
//!  1 begin ─ the latest commit        5 settle_access ─ its fingerprint
//!  2 begin ─ may changes be enough    6 delete_stale  ─ of a full refresh: what was not told
//!  3 mark_stale ─ before a full one   7 needed, fetched ─ downloads, then the fileset's fingerprint
//!  4 Intake ─ the feed                8 obsolete, tidied ─ the cache, then records, then commits
//! ```
//!
//! [`crate::steps`] takes them in their order. Beyond its source, a record says that a refresh has not ended. So leftovers of one that a crash cut off are found.
//! One that was cut off before the latest commit was stored begins anew with everything. After that, the later steps
//! are taken although the feed has nothing new.

use crate::category::{Category, FilesetName};
use crate::record::{
    ACCESS_FINGERPRINT_PATH, ACCESS_PATH, COMMITS, Detail, FILESETS, File, Hash, LATEST_PATH,
    OBSOLETE, REFRESH_PATH, Record, Status,
};
use rota_model::FieldError;
use smol_str::SmolStr;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// One change of the database.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// A record is there, whatever was at its path.
    Put(Record),
    /// None is at this path.
    Delete(SmolStr),
}

/// A file database: records by their paths.
pub trait FileDb {
    /// Why it could not be read or written.
    type Error;

    /// The record at a path.
    ///
    /// # Errors
    /// It cannot be read.
    fn get(&self, path: &str) -> Result<Option<Record>, Self::Error>;

    /// Shows all records whose paths begin so, in the order of their paths.
    ///
    /// # Errors
    /// They cannot be read.
    fn each_under(&self, prefix: &str, see: &mut dyn FnMut(Record)) -> Result<(), Self::Error>;

    /// Makes changes: all of them or none, durable when this returns.
    ///
    /// # Errors
    /// They cannot be written.
    fn change(&mut self, changes: Vec<Change>) -> Result<(), Self::Error>;
}

/// Why records of a feed were not taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TakeError<E> {
    /// The database failed.
    Db(E),
    /// A record is not as it must be.
    Wrong(FieldError),
    /// The feed ended before it named the latest commit.
    Cut,
    /// The feed did not say what the node may see.
    NoAccess,
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for TakeError<E> {}

impl<E> From<E> for TakeError<E> {
    fn from(it: E) -> Self {
        Self::Db(it)
    }
}

impl<E: fmt::Display> fmt::Display for TakeError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Db(error) => write!(f, "the file database: {error}"),
            Self::Wrong(error) => write!(f, "the feed: {error}"),
            Self::Cut => f.write_str("the feed was cut: it ended before the latest commit"),
            Self::NoAccess => f.write_str("the feed did not say what this node may see"),
        }
    }
}

/// The name of a file in the cache: its digest, and whether it can be run.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CacheName(SmolStr);

impl CacheName {
    /// Of a file.
    pub fn of(file: &File) -> Self {
        let mark = if file.executable { ".x" } else { "" };
        Self(SmolStr::new(format!("{}{mark}", file.sha256)))
    }

    /// From its text; `None` where that is none.
    pub fn parse(text: &str) -> Option<Self> {
        let digest = text.strip_suffix(".x").unwrap_or(text);
        let is_digit = |it: u8| it.is_ascii_digit() || (b'a'..=b'f').contains(&it);
        (digest.len() == 64 && digest.bytes().all(is_digit)).then(|| Self(SmolStr::new(text)))
    }

    /// Its text, which is fit for the name of a file.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Steps 1 and 2: from where a refresh goes on.
///
/// The commit since which changes are asked for; none when everything is: without a latest commit, when what the node
/// may see has changed or is not known, and when an earlier full refresh has not come to its end.
///
/// # Errors
/// The database cannot be read.
pub fn begin<D: FileDb>(db: &D) -> Result<Option<Hash>, D::Error> {
    let Some(latest) = db.get(LATEST_PATH)? else { return Ok(None) };
    let access = db.get(ACCESS_PATH)?.map(|it| it.commit);
    let fingerprint = db.get(ACCESS_FINGERPRINT_PATH)?.map(|it| it.commit);
    let is_known = access.is_some() && access == fingerprint;
    Ok((is_known && under_way(db)? != Some(true)).then_some(latest.commit))
}

/// Whether an earlier refresh has not come to its end, and if so, whether that was a full one.
///
/// # Errors
/// The database cannot be read.
pub fn under_way<D: FileDb>(db: &D) -> Result<Option<bool>, D::Error> {
    Ok(db.get(REFRESH_PATH)?.map(|it| it.detail == Detail::Refresh { full: true }))
}

fn refresh_record(full: bool) -> Record {
    let hash = Hash::parse("0").expect("a digit is a hash");
    Record::control(REFRESH_PATH, Category::Refresh, hash, Detail::Refresh { full })
}

/// Step 3, before a full refresh: all commits may be ones that no active file belongs to, and every fileset is to be
/// looked through.
///
/// # Errors
/// The database fails.
pub fn mark_stale<D: FileDb>(db: &mut D) -> Result<(), D::Error> {
    let mut changes = vec![Change::Put(refresh_record(true))];
    let mut stale = |record: Record| {
        if record.category == Category::Commit {
            changes.push(Change::Put(Record { detail: Detail::Stale, ..record }));
        }
    };
    db.each_under(COMMITS, &mut stale)?;
    let mut forget = |it: Record| changes.push(Change::Delete(fingerprint_path(&it.path)));
    db.each_under(FILESETS, &mut forget)?;
    db.change(changes)
}

/// Where a fileset's fingerprint stands, of which the state stands there.
fn fingerprint_path(fileset: &str) -> SmolStr {
    let name = fileset.strip_prefix(FILESETS).unwrap_or(fileset);
    SmolStr::new(format!(".rota/fingerprint/{name}"))
}

/// Step 4: takes the feed, page by page. The latest commit is stored only after everything else.
#[derive(Debug)]
pub struct Intake {
    /// Of a full refresh: all paths that were told.
    seen: Option<BTreeSet<SmolStr>>,
    latest: Option<Record>,
    changed: bool,
}

/// What a feed brought.
#[derive(Debug)]
pub struct Taken {
    seen: Option<BTreeSet<SmolStr>>,
    /// Whether anything differs from what was there.
    pub changed: bool,
    /// The latest commit.
    pub latest: Hash,
}

impl Intake {
    /// Of a refresh that goes on from there, or is a full one.
    pub fn new(since: Option<&Hash>) -> Self {
        let seen = since.is_none().then(BTreeSet::new);
        Self { seen, latest: None, changed: false }
    }

    /// Stores a page of records. What is stored already costs no write.
    ///
    /// # Errors
    /// A record is not as it must be, or the database fails. Nothing of the page is stored then.
    pub fn take<D: FileDb>(
        &mut self,
        db: &mut D,
        records: Vec<Record>,
    ) -> Result<(), TakeError<D::Error>> {
        let mut changes = Vec::new();
        for record in records {
            record.check().map_err(TakeError::Wrong)?;
            if record.category == Category::Latest {
                self.latest = Some(record);
                continue;
            }
            if let Some(seen) = &mut self.seen {
                seen.insert(record.path.clone());
            }
            let stored = db.get(&record.path)?;
            if stored.as_ref() != Some(&record) {
                changes.extend(taken(stored.as_ref(), record));
            }
        }
        self.write(db, changes)
    }

    fn write<D: FileDb>(
        &mut self,
        db: &mut D,
        mut changes: Vec<Change>,
    ) -> Result<(), TakeError<D::Error>> {
        if changes.is_empty() {
            return Ok(());
        }
        if self.seen.is_none() && !self.changed {
            // Half of a feed is of two commits. The next feed may lead to a third one, so it must tell everything.
            changes.push(Change::Put(refresh_record(true)));
        }
        self.changed = true;
        Ok(db.change(changes)?)
    }

    /// The feed is whole: the latest commit is stored.
    ///
    /// # Errors
    /// The feed did not name the latest commit, or the database fails.
    pub fn end<D: FileDb>(mut self, db: &mut D) -> Result<Taken, TakeError<D::Error>> {
        let latest = self.latest.take().ok_or(TakeError::Cut)?;
        let commit = latest.commit.clone();
        let is_new = db.get(LATEST_PATH)?.as_ref() != Some(&latest);
        let mut last: Vec<Change> = is_new.then_some(Change::Put(latest)).into_iter().collect();
        if self.seen.is_none() && (self.changed || is_new) {
            last.push(Change::Put(refresh_record(false)));
        }
        if !last.is_empty() {
            db.change(last)?;
        }
        self.changed |= is_new;
        Ok(Taken { seen: self.seen, changed: self.changed, latest: commit })
    }
}

/// What a record of the feed changes, where another is stored, or none.
fn taken(stored: Option<&Record>, record: Record) -> Vec<Change> {
    let old = stored.and_then(Record::as_file);
    match (&record.category, record.status) {
        (_, Status::Deleted) if stored.is_none() => Vec::new(),
        (Category::Fileset, Status::Deleted) => {
            let fingerprint = fingerprint_path(&record.path);
            vec![Change::Delete(record.path), Change::Delete(fingerprint)]
        }
        (_, Status::Deleted) => {
            // What is cached goes by what is stored, whatever the feed knows of it.
            let gone = stored.map(|it| Record { status: Status::Deleted, ..it.clone() });
            gone.into_iter().map(Change::Put).collect()
        }
        (_, Status::Published) => {
            let new = record.as_file().map(CacheName::of);
            let left = old.map(CacheName::of).filter(|it| Some(it) != new.as_ref());
            let mut changes: Vec<Change> = left.into_iter().map(|it| left_over(&it)).collect();
            changes.push(Change::Put(record));
            changes
        }
    }
}

fn left_over(name: &CacheName) -> Change {
    let hash = Hash::parse("0").expect("a digit is a hash");
    let path = format!("{OBSOLETE}{}", name.as_str());
    Change::Put(Record::control(&path, Category::Obsolete, hash, Detail::None))
}

/// Before the first refresh of a database that has no record: what the cache has all the same, as of an earlier
/// database that was lost. Step 7 downloads nothing of it again, and step 8 removes what no record names then.
///
/// # Errors
/// The database cannot be written.
pub fn adopt<D: FileDb>(db: &mut D, cached: Vec<CacheName>) -> Result<(), D::Error> {
    if cached.is_empty() {
        return Ok(());
    }
    db.change(cached.iter().map(left_over).collect())
}

/// Step 5: what the node may see becomes its fingerprint. False when changes told that this differs from what the
/// node saw: then a full refresh must follow at once, and the fingerprint stays, so that step 2 of it says so.
///
/// # Errors
/// The database fails.
pub fn settle_access<D: FileDb>(db: &mut D, taken: &Taken) -> Result<bool, D::Error> {
    let Some(access) = db.get(ACCESS_PATH)? else { return Ok(true) };
    let stored = db.get(ACCESS_FINGERPRINT_PATH)?;
    if stored.as_ref().is_some_and(|it| it.commit == access.commit) {
        return Ok(true);
    }
    if taken.seen.is_none() {
        return Ok(false);
    }
    let path = ACCESS_FINGERPRINT_PATH;
    let fingerprint = Record::control(path, Category::Fingerprint, access.commit, Detail::None);
    db.change(vec![Change::Put(fingerprint)])?;
    Ok(true)
}

/// Step 6, of a full refresh: files of commits that are still stale are deleted, and so is every file that was not
/// told, also where its commit has others. A fileset that was not told is forgotten.
///
/// # Errors
/// The database fails.
pub fn delete_stale<D: FileDb>(db: &mut D, taken: &Taken) -> Result<(), D::Error> {
    let Some(seen) = &taken.seen else { return Ok(()) };
    let mut stale = BTreeSet::new();
    db.each_under(COMMITS, &mut |record| {
        if record.detail == Detail::Stale {
            stale.insert(record.commit);
        }
    })?;
    let mut changes = Vec::new();
    db.each_under("", &mut |record| {
        let is_gone = !seen.contains(&record.path) || stale.contains(&record.commit);
        match &record.category {
            Category::File(_) if is_gone && record.status == Status::Published => {
                changes.push(Change::Put(Record { status: Status::Deleted, ..record }));
            }
            Category::Fileset if !seen.contains(&record.path) => {
                changes.push(Change::Delete(fingerprint_path(&record.path)));
                changes.push(Change::Delete(record.path));
            }
            Category::File(_)
            | Category::Fileset
            | Category::Commit
            | Category::Latest
            | Category::Access
            | Category::Fingerprint
            | Category::Refresh
            | Category::Obsolete => {}
        }
    })?;
    // What is left are the steps that every refresh takes.
    changes.push(Change::Put(refresh_record(false)));
    db.change(changes)
}

/// A fileset to download.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Needed {
    /// Its name.
    pub name: FilesetName,
    /// The newest commit that changed it.
    pub commit: Hash,
    /// Its files that the cache does not have.
    pub files: Vec<(SmolStr, File)>,
}

/// The filesets that nodes download by themselves, each with its record.
fn eager_filesets<D: FileDb>(db: &D) -> Result<BTreeMap<FilesetName, Record>, D::Error> {
    let mut filesets = BTreeMap::new();
    db.each_under(FILESETS, &mut |record| {
        let name = record.path.strip_prefix(FILESETS).and_then(|it| FilesetName::parse(it).ok());
        if record.detail == (Detail::Fileset { eager: true }) {
            filesets.extend(name.map(|name| (name, record)));
        }
    })?;
    Ok(filesets)
}

/// The files of these, by their paths: what a version has.
///
/// # Errors
/// The database cannot be read.
pub fn eager_files<D: FileDb>(db: &D) -> Result<Vec<(SmolStr, File)>, D::Error> {
    let (filesets, mut files) = (eager_filesets(db)?, Vec::new());
    db.each_under("", &mut |record| {
        let file = record.published().filter(|(fileset, _)| filesets.contains_key(*fileset));
        files.extend(file.map(|(_, file)| (record.path.clone(), *file)));
    })?;
    Ok(files)
}

/// Step 7: the filesets that nodes download by themselves, and whose newest commit is not that of the fingerprint; of
/// each, what the cache does not have.
///
/// # Errors
/// The database cannot be read.
pub fn needed<D: FileDb>(
    db: &D,
    has: &mut dyn FnMut(&CacheName, &File) -> bool,
) -> Result<Vec<Needed>, D::Error> {
    let mut filesets: BTreeMap<FilesetName, Needed> = BTreeMap::new();
    for (name, it) in eager_filesets(db)? {
        let fingerprint = db.get(&fingerprint_path(&it.path))?;
        if fingerprint.is_none_or(|had| had.commit != it.commit) {
            let needed = Needed { name: name.clone(), commit: it.commit, files: Vec::new() };
            filesets.insert(name, needed);
        }
    }
    if !filesets.is_empty() {
        db.each_under("", &mut |record| {
            if let Some((name, file)) = record.published()
                && let Some(fileset) = filesets.get_mut(name)
                && !has(&CacheName::of(file), file)
            {
                fileset.files.push((record.path.clone(), *file));
            }
        })?;
    }
    Ok(filesets.into_values().collect())
}

/// Step 7, after the download of a fileset: its fingerprint.
///
/// # Errors
/// The database cannot be written.
pub fn fetched<D: FileDb>(db: &mut D, fileset: &Needed) -> Result<(), D::Error> {
    let path = fingerprint_path(fileset.name.as_str());
    let commit = fileset.commit.clone();
    let fingerprint = Record::control(&path, Category::Fingerprint, commit, Detail::None);
    db.change(vec![Change::Put(fingerprint)])
}

/// What the tidy-up removes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Obsolete {
    /// From the cache, first: else a crash would leave files there that nothing names.
    pub cached: BTreeSet<CacheName>,
    records: Vec<SmolStr>,
}

/// Step 8: what is to be removed of the cache. What an active file still needs stays.
///
/// # Errors
/// The database cannot be read.
pub fn obsolete<D: FileDb>(db: &D) -> Result<Obsolete, D::Error> {
    let (mut gone, mut needed) = (Obsolete::default(), BTreeSet::new());
    db.each_under("", &mut |record| match (&record.category, record.as_file()) {
        (Category::File(_), Some(file)) if record.status == Status::Published => {
            needed.insert(CacheName::of(file));
        }
        (Category::File(_), Some(file)) => {
            gone.cached.insert(CacheName::of(file));
            gone.records.push(record.path);
        }
        (Category::Obsolete, _) => {
            let name = record.path.strip_prefix(OBSOLETE).unwrap_or_default();
            gone.cached.insert(CacheName(SmolStr::new(name)));
            gone.records.push(record.path);
        }
        (
            Category::File(_)
            | Category::Fileset
            | Category::Commit
            | Category::Latest
            | Category::Access
            | Category::Fingerprint
            | Category::Refresh,
            _,
        ) => {}
    })?;
    gone.cached.retain(|it| !needed.contains(it));
    Ok(gone)
}

/// Step 8, once the cache is rid of them: their records go, then commits to which no record belongs. The refresh has
/// come to its end.
///
/// # Errors
/// The database fails.
pub fn tidied<D: FileDb>(db: &mut D, gone: Obsolete) -> Result<(), D::Error> {
    db.change(gone.records.into_iter().map(Change::Delete).collect())?;
    let mut used = BTreeSet::new();
    db.each_under("", &mut |record| {
        if matches!(record.category, Category::File(_)) {
            used.insert(record.commit);
        }
    })?;
    let mut changes = vec![Change::Delete(SmolStr::new_static(REFRESH_PATH))];
    db.each_under(COMMITS, &mut |record| {
        if record.category == Category::Commit && !used.contains(&record.commit) {
            changes.push(Change::Delete(record.path));
        }
    })?;
    db.change(changes)
}
