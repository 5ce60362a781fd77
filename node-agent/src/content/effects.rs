//! The effects of a refresh on this node, for [`rota_content::steps`].

use super::db::RecordDb;
use super::download::{Source, bytes_to_come, download};
use super::follow::{Following, PATIENCE, bytes_of};
use super::repository::Repository;
use super::status::ContentState;
use crate::disk_reserve::may_take;
use anyhow::{Context, anyhow, bail};
use rota_client::{CallError, Client, ContentFeed};
use rota_content::refresh::{CacheName, Needed, eager_files};
use rota_content::steps::{Host, NotUsed, Version};
use rota_content::{File, Hash, Record};
use rota_model::{Refusal, RefusalKind, RepositoryName};
use rota_proto::content::Updates;
use std::collections::BTreeSet;

/// What the managers tell a node.
pub enum Asked {
    /// Its pool follows nothing.
    Nothing,
    /// The feed of this repository.
    Feed(RepositoryName, Box<ContentFeed>),
}

/// Asks for what the pool of this node follows.
///
/// # Errors
/// No manager answers, or its pool follows something that is not there, which operators must see.
pub async fn ask(of: &Following, client: &Client, since: Option<&Hash>) -> anyhow::Result<Asked> {
    let viewer = Some((of.viewer.clone(), Some(of.node.clone())));
    let asked = Updates { repository: None, since: since.cloned(), viewer, category: None };
    match client.content_updates(&asked, PATIENCE).await {
        Ok(feed) => {
            let name = RepositoryName::parse(&feed.begin().repository)?;
            Ok(Asked::Feed(name, Box::new(feed)))
        }
        Err(CallError::Refused { refusal, .. })
            if refusal.kind == RefusalKind::NotFound && names_pool(&refusal) =>
        {
            Ok(Asked::Nothing)
        }
        Err(error) => Err(error.into()),
    }
}

/// A refresh that is under way.
pub struct Effects<'a> {
    /// The node.
    pub of: &'a Following,
    /// Managers.
    pub client: Client,
    /// The repository that was followed last.
    pub repository: &'a Repository,
    /// What was asked for last.
    pub asked: Asked,
    /// The version that was made last.
    pub tried: Option<String>,
}

impl Effects<'_> {
    /// Makes the version of a commit, and offers its classes. One with mistakes is not used.
    async fn begin_version(&self, version: &Version) -> anyhow::Result<()> {
        let repository = self.repository;
        let files = repository.with(|db| eager_files(db)).await?;
        let (count, bytes) = (files.len() as u64, bytes_of(&files));
        let (versions, cache) = (repository.versions.clone(), repository.cache.clone());
        let (catalog, name) = (self.of.catalog.clone(), name_of(version));
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
        let root = repository.versions.path(&name_of(version));
        self.of.catalog.offer_content(offer, root.clone()).await;
        let (of, commit) = (repository.name.as_str(), &version.commit);
        tracing::info!(repository = of, %commit, files = count, bytes, "content is up to date");
        self.of.status.shows(version, root, (count, bytes));
        Ok(())
    }
}

impl Host for Effects<'_> {
    type Error = anyhow::Error;
    type Db = RecordDb;

    async fn with<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut RecordDb) -> anyhow::Result<T> + Send + 'static,
    ) -> anyhow::Result<T> {
        self.repository.with(work).await
    }

    async fn ask(&mut self, since: Option<&Hash>) -> anyhow::Result<Option<bool>> {
        self.asked = ask(self.of, &self.client, since).await?;
        Ok(match &self.asked {
            Asked::Feed(name, feed) if *name == self.repository.name => Some(feed.begin().full),
            Asked::Feed(..) | Asked::Nothing => None,
        })
    }

    async fn records(&mut self) -> anyhow::Result<Option<Vec<Record>>> {
        match &mut self.asked {
            Asked::Feed(_, feed) => Ok(feed.next().await?),
            Asked::Nothing => bail!("nothing was asked for"),
        }
    }

    fn uses(&self, version: &Version) -> bool {
        let path = self.repository.versions.path(&name_of(version));
        self.of.catalog.content_root() == Some(path)
    }

    fn has(&self) -> impl Fn(&CacheName, &File) -> bool + Send + 'static {
        let cache = self.repository.cache.clone();
        move |name, file| cache.has(name, file)
    }

    async fn prepare(&mut self, filesets: &[Needed]) -> anyhow::Result<()> {
        self.of.status.set(|it| it.state = ContentState::Refreshing);
        let names = filesets.iter().flat_map(|it| &it.files).map(|(_, it)| CacheName::of(it));
        let wanted: BTreeSet<CacheName> = names.collect();
        let (cache, filesets) = (self.repository.cache.clone(), filesets.to_vec());
        let reserve = self.of.disk_reserve_bytes;
        let prepare = move || {
            cache.keep_partial(&wanted)?;
            let bytes = bytes_to_come(&cache, &filesets)?;
            may_take(cache.folder(), bytes, reserve)
        };
        tokio::task::spawn_blocking(prepare).await.context("preparing a download")?
    }

    async fn download(&mut self, fileset: &Needed) -> anyhow::Result<()> {
        let name = self.repository.name.clone();
        let source = Source { client: self.client.clone(), repository: name };
        let loaded = download(&source, &self.repository.cache, fileset, &self.of.status).await;
        loaded.with_context(|| format!("fileset {}", fileset.name))
    }

    async fn use_version(&mut self, version: &Version) -> Result<(), NotUsed<anyhow::Error>> {
        self.tried = Some(name_of(version));
        let used = self.begin_version(version).await;
        used.map_err(|why| NotUsed { lacks_a_file: lacks_a_file(&why), why })
    }

    async fn make_room(&mut self, cached: &BTreeSet<CacheName>) -> anyhow::Result<()> {
        let (cache, cached) = (self.repository.cache.clone(), cached.clone());
        let remove = move || {
            cached.iter().filter(|it| cache.is_alone(it)).try_for_each(|it| cache.remove(it))
        };
        tokio::task::spawn_blocking(remove).await.context("making room for content")?
    }

    async fn remove(&mut self, cached: &BTreeSet<CacheName>) -> anyhow::Result<()> {
        let (cache, cached) = (self.repository.cache.clone(), cached.clone());
        let remove = move || cached.iter().try_for_each(|it| cache.remove(it));
        tokio::task::spawn_blocking(remove).await.context("removing files of content")?
    }
}

/// The name of a version's folder.
pub fn name_of(version: &Version) -> String {
    format!("{}-{}", version.commit, version.access)
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
