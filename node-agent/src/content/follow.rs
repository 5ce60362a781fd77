//! Follows the repository of the node's pool: one refresh after the other, each in the eight steps of
//! [`rota_content::refresh`].

use super::FOLDER;
use super::cache::{Cache, make_folder};
use super::db::RecordDb;
use super::download::{CONFIGURATION, Source, download};
use super::status::{ContentState, ContentStatus};
use super::version::{Versions, commit_of_version, remove};
use crate::catalog::Catalog;
use crate::observe::Listing;
use anyhow::{Context, anyhow, bail};
use rota_client::{CallError, Client, WatchOptions, v1};
use rota_content::refresh::{
    CacheName, Intake, Taken, begin, delete_stale, eager_files, fetched, mark_stale, needed,
    obsolete, settle_access, tidied, under_way,
};
use rota_content::{ACCESS_PATH, CONTENT_CLASS, File, FileDb, Hash, Viewer, check_repository};
use rota_model::{NodeId, Refusal, RefusalKind, RepositoryName};
use rota_proto::content::Updates;
use smol_str::SmolStr;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};

/// How long managers may be silent.
const PATIENCE: Duration = Duration::from_secs(30);
/// The first pause after a failure; the next ones are twice as long each.
const PAUSE: Duration = Duration::from_millis(500);
/// How long a version stays that is not in use. A start that takes it is told of by then.
const UNUSED_FOR: Duration = Duration::from_secs(30);
/// After a watch that could not be.
const WATCH_AGAIN: Duration = Duration::from_secs(30);
/// Refreshes that follow one another at once: another repository, then another view.
const AT_ONCE_MAX: usize = 4;

/// What a follower needs.
pub struct Following {
    /// The data folder of the node.
    pub data: PathBuf,
    /// What decides what the node may see.
    pub viewer: Viewer,
    /// The node.
    pub node: NodeId,
    /// Where classes go.
    pub catalog: Catalog,
    /// What runs, and from which folders.
    pub listing: Listing,
    /// How it stands.
    pub status: ContentStatus,
    /// Between two refreshes.
    pub every: Duration,
}

/// The repository that is followed.
struct Repository {
    name: RepositoryName,
    /// A lock because its work is done by threads that may block, one at a time.
    db: Arc<Mutex<RecordDb>>,
    cache: Cache,
    versions: Versions,
}

impl Repository {
    fn open(data: &Path, name: &RepositoryName) -> anyhow::Result<Self> {
        check_repository(name)?;
        let all = data.join(FOLDER);
        make_folder(&all)?;
        let folder = all.join(name.as_str());
        make_folder(&folder)?;
        let db = RecordDb::open(&folder.join("records.redb"))?;
        let cache = Cache::open(&folder.join("cache"))?;
        let versions = Versions::open(&folder)?;
        Ok(Self { name: name.clone(), db: Arc::new(Mutex::new(db)), cache, versions })
    }

    /// Work on the database, on a thread that may block.
    async fn with<T: Send + 'static>(
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

/// What came of one look at the managers.
enum Looked {
    /// The node has what it should have.
    Current,
    /// Its pool follows nothing.
    Nothing,
    /// Another look must follow at once.
    Again,
}

/// Follows the repository of a node's pool.
pub struct Follower {
    of: Following,
    /// Managers, as the agent knows them now.
    managers: watch::Receiver<Vec<String>>,
    /// Of these managers.
    client: (Vec<String>, Client),
    repository: Option<Repository>,
    /// The failure that was logged last.
    told: String,
    /// Versions that are not in use, and since when. A start that is under way may have taken one and not shown it yet.
    unused: BTreeMap<String, Instant>,
}

/// Hears of commits. Where managers have no place for a watch, the regular looks are enough; these find what pools
/// follow, too.
async fn hear(managers: watch::Receiver<Vec<String>>, published: Arc<Notify>) {
    loop {
        let client = client_of(&managers.borrow().clone());
        if let Ok(client) = client {
            let request = v1::WatchDocumentsRequest {
                namespace: CONFIGURATION.to_owned(),
                class: CONTENT_CLASS.to_owned(),
                names_only: true,
                ..Default::default()
            };
            let mut watch = client.watch_documents(request, WatchOptions::default());
            while watch.next().await.is_ok() {
                published.notify_one();
            }
        }
        sleep(WATCH_AGAIN).await;
    }
}

/// Follows until the node ends.
pub fn start(of: Following, managers: watch::Receiver<Vec<String>>) -> anyhow::Result<()> {
    tokio::spawn(Follower::new(of, managers)?.run());
    Ok(())
}

fn client_of(managers: &[String]) -> anyhow::Result<Client> {
    Ok(Client::connect(&managers.join(","))?)
}

impl Follower {
    /// Nothing is known yet.
    fn new(of: Following, managers: watch::Receiver<Vec<String>>) -> anyhow::Result<Self> {
        let known = managers.borrow().clone();
        let client = client_of(&known)?;
        let root = of.catalog.content_root();
        if let Some(commit) = root.as_deref().and_then(commit_of_version) {
            of.status.set(|it| (it.commit, it.root) = (commit, root));
        }
        let (client, told, unused) = ((known, client), String::new(), BTreeMap::new());
        Ok(Self { of, managers, client, repository: None, told, unused })
    }

    /// Managers come and go while the node runs.
    fn follow_managers(&mut self) {
        let managers = self.managers.borrow().clone();
        if managers != self.client.0
            && let Ok(client) = client_of(&managers)
        {
            self.client = (managers, client);
        }
    }

    async fn run(mut self) {
        let mut pause = PAUSE;
        let published = Arc::new(Notify::new());
        tokio::spawn(hear(self.managers.clone(), published.clone()));
        loop {
            let wait = if self.refresh().await {
                pause = PAUSE;
                self.of.every
            } else {
                pause = (pause * 2).min(self.of.every);
                pause
            };
            // What is published is fetched at once. Whoever does not hear of it looks again after a while.
            let _ = timeout(wait, published.notified()).await;
        }
    }

    /// One refresh, with those that must follow at once. False when it failed.
    pub async fn refresh(&mut self) -> bool {
        let began = Instant::now();
        self.follow_managers();
        let mut refreshed = Err(anyhow!("what this node may see changes again and again"));
        for _ in 0..AT_ONCE_MAX {
            match self.look().await {
                Ok(Looked::Again) => {}
                other => {
                    refreshed = other;
                    break;
                }
            }
        }
        let (state, failure) = match refreshed {
            Ok(Looked::Nothing) => (ContentState::Nothing, String::new()),
            Ok(Looked::Current | Looked::Again) => (ContentState::Current, String::new()),
            Err(error) => (ContentState::Failed, format!("{error:#}")),
        };
        if !failure.is_empty() && failure != self.told {
            tracing::warn!(failure, "content could not be brought up to date; it is tried again");
        }
        self.told.clone_from(&failure);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.of.status.set(|it| {
            it.state = state;
            it.failure = failure;
            (it.came, it.of) = ((0, 0), (0, 0));
            if state == ContentState::Current {
                it.refreshed_at_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
                it.refresh_us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
            }
        });
        state != ContentState::Failed
    }

    /// Steps 1 to 8.
    async fn look(&mut self) -> anyhow::Result<Looked> {
        let since = match &self.repository {
            Some(repository) => repository.with(|db| begin(db)).await?,
            None => None,
        };
        let viewer = Some((self.of.viewer.clone(), Some(self.of.node.clone())));
        let asked = Updates { repository: None, since: since.clone(), viewer, category: None };
        let mut feed = match self.client.1.content_updates(&asked, PATIENCE).await {
            Ok(feed) => feed,
            // Its pool follows something that is not there: that is a failure, which operators must see.
            Err(CallError::Refused { refusal, .. })
                if refusal.kind == RefusalKind::NotFound && names_pool(&refusal) =>
            {
                return Ok(Looked::Nothing);
            }
            Err(error) => return Err(error.into()),
        };
        let told = feed.begin().clone();
        let name = RepositoryName::parse(&told.repository)?;
        if self.repository.as_ref().is_none_or(|it| it.name != name) {
            let (data, of) = (self.of.data.clone(), name.clone());
            let opened = tokio::task::spawn_blocking(move || Repository::open(&data, &of));
            let opened = opened.await.context("opening content")?;
            self.repository = Some(opened.with_context(|| format!("content {name}"))?);
            self.of.status.set(|it| it.repository = name.to_string());
            return Ok(Looked::Again);
        }
        let Some(repository) = &self.repository else { bail!("no repository is open") };
        if told.full {
            repository.with(mark_stale).await?;
        }
        let since = since.filter(|_| !told.full);
        let mut intake = Intake::new(since.as_ref());
        while let Some(records) = feed.next().await? {
            let take = move |db: &mut RecordDb| {
                intake.take(db, records).map_err(|it| anyhow!("{it:#}"))?;
                Ok(intake)
            };
            intake = repository.with(take).await?;
        }
        let taken = repository.with(move |db| intake.end(db).map_err(|it| anyhow!("{it:#}")));
        let taken = taken.await?;
        let settle = move |db: &mut RecordDb| Ok((settle_access(db, &taken)?, taken));
        let (is_settled, taken) = repository.with(settle).await?;
        if !is_settled {
            return Ok(Looked::Again);
        }
        self.finish(taken).await?;
        Ok(Looked::Current)
    }

    /// Steps 6 to 8, where anything is to be done.
    async fn finish(&mut self, taken: Taken) -> anyhow::Result<()> {
        let Some(repository) = &self.repository else { bail!("no repository is open") };
        let latest = taken.latest.clone();
        let read = |db: &mut RecordDb| Ok((under_way(db)?, db.get(ACCESS_PATH)?));
        let (left_over, access) = repository.with(read).await?;
        let access = access.context("the feed did not say what this node may see")?.commit;
        let version = format!("{latest}-{access}");
        let is_used = self.of.catalog.content_root() == Some(repository.versions.path(&version));
        if taken.changed || left_over.is_some() || !is_used {
            self.of.status.set(|it| it.state = ContentState::Refreshing);
            repository.with(move |db| delete_stale(db, &taken)).await?;
            let cache = repository.cache.clone();
            let look = move |db: &mut RecordDb| needed(db, &mut |name, it| cache.has(name, it));
            let source =
                Source { client: self.client.1.clone(), repository: repository.name.clone() };
            for fileset in repository.with(look).await? {
                let loaded = download(&source, &repository.cache, &fileset, &self.of.status).await;
                loaded.with_context(|| format!("fileset {}", fileset.name))?;
                repository.with(move |db| fetched(db, &fileset)).await?;
            }
            let used = self.begin_version(&version, &latest, &access).await;
            tidy(repository).await?;
            if used.as_ref().is_err_and(lacks_a_file) {
                // The cache lost what the records say is there: everything is looked through again.
                repository.with(mark_stale).await?;
            }
            used?;
        }
        let standing = self.of.status.standing();
        if (&*standing.commit, &*standing.access) != (latest.as_str(), access.as_str()) {
            // An earlier agent made the version.
            let files = repository.with(|db| eager_files(db)).await?;
            self.show(&latest, &access, files.len() as u64, bytes_of(&files));
        }
        self.remove_unused(&version).await
    }

    fn show(&self, commit: &Hash, access: &Hash, files: u64, bytes: u64) {
        let version = format!("{commit}-{access}");
        let root = self.repository.as_ref().map(|it| it.versions.path(&version));
        self.of.status.set(|it| {
            it.root = root;
            (it.commit, it.access) = (commit.to_string(), access.to_string());
            (it.files, it.bytes) = (files, bytes);
        });
    }

    /// Makes the version of a commit, and offers its classes. One with mistakes is not used.
    async fn begin_version(
        &self,
        version: &str,
        commit: &Hash,
        access: &Hash,
    ) -> anyhow::Result<()> {
        let Some(repository) = &self.repository else { bail!("no repository is open") };
        let files = repository.with(|db| eager_files(db)).await?;
        let (count, bytes) = (files.len() as u64, bytes_of(&files));
        let (versions, cache, name) =
            (repository.versions.clone(), repository.cache.clone(), version.to_owned());
        let catalog = self.of.catalog.clone();
        let make = move || {
            if !versions.has(&name) {
                let files: Vec<_> =
                    files.into_iter().map(|(path, it)| (path, CacheName::of(&it))).collect();
                versions.build(&name, &files, &cache)?;
            }
            let offer = catalog.read(&versions.path(&name));
            let offer = offer.map_err(|mistakes| anyhow!("{}", mistakes.join("; ")))?;
            versions.use_version(&name)?;
            anyhow::Ok(offer)
        };
        let offer = tokio::task::spawn_blocking(make).await.context("making a version")??;
        self.of.catalog.offer_content(offer, repository.versions.path(version)).await;
        let of = repository.name.as_str();
        tracing::info!(repository = of, %commit, files = count, bytes, "content is up to date");
        self.show(commit, access, count, bytes);
        Ok(())
    }

    /// Removes versions that no session has, and that were not in use at the last refresh either.
    async fn remove_unused(&mut self, version: &str) -> anyhow::Result<()> {
        let Some(repository) = &self.repository else { bail!("no repository is open") };
        let mut used: BTreeSet<String> = BTreeSet::from([version.to_owned()]);
        used.extend(repository.versions.current());
        for root in self.of.listing.roots() {
            let name = root.file_name().and_then(|it| it.to_str()).map(str::to_owned);
            used.extend(name.filter(|it| repository.versions.path(it) == root));
        }
        let (versions, before) = (repository.versions.clone(), std::mem::take(&mut self.unused));
        let clean = move || {
            let mut unused = BTreeMap::new();
            let mut kept = used;
            for name in versions.names()? {
                let since = before.get(&name).copied().unwrap_or_else(Instant::now);
                if !kept.contains(&name) && since.elapsed() < UNUSED_FOR {
                    unused.insert(name.clone(), since);
                    kept.insert(name);
                }
            }
            anyhow::Ok((unused, versions.put_away(&kept)?))
        };
        let cleaned = tokio::task::spawn_blocking(clean).await.context("removing versions")?;
        let (unused, going) = cleaned?;
        self.unused = unused;
        // Many files take long: nothing waits for them.
        tokio::task::spawn_blocking(move || {
            for folder in going {
                match remove(&folder) {
                    Ok(()) => {
                        tracing::info!(version = %folder.display(), "a version of content is removed")
                    }
                    Err(error) => tracing::warn!(%error, "a version of content cannot be removed"),
                }
            }
        });
        Ok(())
    }
}

/// Whether a refusal says that the pool follows nothing.
fn names_pool(refusal: &Refusal) -> bool {
    refusal.fields.iter().any(|it| it.field == "pool")
}

/// Whether a version could not be made since the cache has not what it should have.
fn lacks_a_file(error: &anyhow::Error) -> bool {
    let is_missing = |it: &std::io::Error| it.kind() == std::io::ErrorKind::NotFound;
    error.chain().filter_map(|it| it.downcast_ref::<std::io::Error>()).any(is_missing)
}

fn bytes_of(files: &[(SmolStr, File)]) -> u64 {
    files.iter().map(|it| it.1.bytes).sum()
}

/// Step 8.
async fn tidy(repository: &Repository) -> anyhow::Result<()> {
    let cache = repository.cache.clone();
    let tidy = move |db: &mut RecordDb| {
        let gone = obsolete(db)?;
        gone.cached.iter().try_for_each(|it| cache.remove(it))?;
        tidied(db, gone)
    };
    repository.with(tidy).await
}
