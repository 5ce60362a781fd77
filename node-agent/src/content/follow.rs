//! Follows the repository of the node's pool: one refresh after the other, each in the eight steps of
//! [`rota_content::steps`].

use super::FOLDER;
use super::download::CONFIGURATION;
use super::effects::{Asked, Effects, ask, name_of};
use super::left::Left;
use super::repository::Repository;
use super::status::{ContentState, ContentStatus, Standing};
use super::version::{commit_of_version, leave, remove};
use crate::catalog::Catalog;
use crate::observe::Listing;
use anyhow::{Context, anyhow, bail};
use rota_client::{Client, WatchOptions, v1};
use rota_content::refresh::eager_files;
use rota_content::steps::{self, Ended, Version};
use rota_content::{CONTENT_CLASS, File, Viewer};
use rota_model::{NodeId, RepositoryName};
use smol_str::SmolStr;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};

/// How long managers may be silent.
pub const PATIENCE: Duration = Duration::from_secs(30);
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
    /// Bytes that downloads leave free of the disk.
    pub disk_reserve_bytes: u64,
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
    /// The version that was made last. One with mistakes is not used, and would be made again and again.
    tried: Option<String>,
    /// Versions that are not in use, and since when. A start that is under way may have taken one and not shown it yet.
    unused: BTreeMap<String, Instant>,
    /// Other repositories.
    left: Left,
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
        let left = Left::default();
        Ok(Self { of, managers, client, repository: None, told, tried: None, unused, left })
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
        if let Ok(Looked::Nothing) = &refreshed {
            self.leave().await;
        }
        // Also where a refresh found no room: this makes some. As long as nobody answers, nothing is known to be left.
        if refreshed.is_ok() || self.repository.is_some() {
            self.remove_left();
        }
        if let Err(error) = self.remove_unused().await {
            tracing::warn!(%error, "versions of content that nobody uses cannot be removed");
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
        self.of.status.set(|standing| {
            standing.state = state;
            standing.failure = failure;
            (standing.came, standing.of) = ((0, 0), (0, 0));
            if state == ContentState::Current {
                standing.refreshed_at_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
                standing.refresh_us =
                    u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
            }
        });
        state != ContentState::Failed
    }

    /// The pool follows nothing: no class of content is offered any more, also not by the next agent.
    async fn leave(&mut self) {
        self.repository = None;
        let Some(root) = self.of.catalog.content_root() else {
            return self.of.status.set(|it| it.repository.clear());
        };
        if let Err(error) = leave(&self.of.data) {
            tracing::warn!(%error, "the version of content stays in use for the next agent");
        }
        self.of.catalog.offer_no_content().await;
        self.of.status.set(|it| *it = Standing::default());
        tracing::info!(version = %root.display(), "the pool follows nothing: its content is offered no more");
    }

    fn remove_left(&mut self) {
        let followed = self.repository.as_ref().map(|it| it.name.as_str());
        let mut used = self.of.listing.roots();
        used.extend(self.of.catalog.content_root());
        let all = self.of.data.join(FOLDER);
        if let Err(error) = self.left.remove(&all, followed, &used, UNUSED_FOR) {
            tracing::warn!(%error, "content that is followed no more cannot be removed");
        }
    }

    /// Steps 1 to 8.
    async fn look(&mut self) -> anyhow::Result<Looked> {
        let client = self.client.1.clone();
        let Some(repository) = &self.repository else {
            return match ask(&self.of, &client, None).await? {
                Asked::Nothing => Ok(Looked::Nothing),
                Asked::Feed(name, _) => self.open(name).await,
            };
        };
        let asked = Asked::Nothing;
        let mut effects = Effects { of: &self.of, client, repository, asked, tried: None };
        let ended = steps::refresh(&mut effects).await;
        let (asked, tried) = (effects.asked, effects.tried);
        self.tried = tried.or(self.tried.take());
        match (ended?, asked) {
            (Ended::Current(version), _) => {
                self.settled(&version).await?;
                Ok(Looked::Current)
            }
            (Ended::Again, _) => Ok(Looked::Again),
            (Ended::NoFeed, Asked::Nothing) => Ok(Looked::Nothing),
            (Ended::NoFeed, Asked::Feed(name, _)) => self.open(name).await,
        }
    }

    /// From now on this repository is followed.
    async fn open(&mut self, name: RepositoryName) -> anyhow::Result<Looked> {
        // Whatever was followed earlier is not, also if this one cannot be opened.
        self.repository = None;
        let (data, of) = (self.of.data.clone(), name.clone());
        let opened = tokio::task::spawn_blocking(move || Repository::open(&data, &of));
        let opened = opened.await.context("opening content")?;
        self.repository = Some(opened.with_context(|| format!("content {name}"))?);
        self.of.status.set(|it| it.repository = name.to_string());
        Ok(Looked::Again)
    }

    /// The node has a version.
    async fn settled(&mut self, version: &Version) -> anyhow::Result<()> {
        let Some(repository) = &self.repository else { bail!("no repository is open") };
        if !self.of.status.standing().is_of(version) {
            // An earlier agent made the version.
            let files = repository.with(|db| eager_files(db)).await?;
            let root = repository.versions.path(&name_of(version));
            self.of.status.shows(version, root, (files.len() as u64, bytes_of(&files)));
        }
        Ok(())
    }

    /// Removes versions that no session has, and that were not in use at the last refresh either.
    async fn remove_unused(&mut self) -> anyhow::Result<()> {
        let Some(repository) = &self.repository else { return Ok(()) };
        let mut used = BTreeSet::from_iter(repository.versions.current());
        used.extend(self.tried.clone());
        for root in self.of.listing.roots().into_iter().chain(self.of.catalog.content_root()) {
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

/// Bytes of files.
pub fn bytes_of(files: &[(SmolStr, File)]) -> u64 {
    files.iter().map(|it| it.1.bytes).sum()
}
