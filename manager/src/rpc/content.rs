//! The updates feed of content: what a node is told of the repository that it follows.
//!
//! ```text
//!  Updates ──▶ the pool's document, the repository's ──▶ trees of two commits ──▶ feed ──▶ pages of records
//!                                      (attachments, read once) └── kept parsed, a few
//! ```

use super::namespaces::configuration;
use super::owners::{Failure, sync};
use super::{Shared, status};
use crate::bodies::Pieces;
use crate::rpc::deadline::deadline_of;
use prost::bytes::BytesMut;
use rota_content::{
    Access, CONTENT_CLASS, Category, Commit, FOLLOWS_CLASS, FilesetName, Follows, Hash, Head,
    Record, Status as FileStatus, Tree, TreeBody, feed,
};
use rota_docstore::{Digest, DocName, Document, Exception, Held, SyncRequest, apply};
use rota_model::{FieldError, PoolName, Refusal, RefusalKind, RepositoryName, Retry, SlotId};
use rota_proto::content::{Updates, tree_of};
use rota_proto::v1;
use rota_protocol::operate::slot_of;
use sha2::{Digest as _, Sha256};
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, timeout_at};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status};

/// Records of one message: some 100 KB.
const PAGE: usize = 500;
/// Messages that wait for their reader.
const AHEAD: usize = 2;
/// Advice to who finds no place.
const FULL_RETRY_MS: u64 = 500;
/// How long a reader may take for a message before it counts as gone.
const READER_PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);
/// Trees that are kept: those of two commits of a few repositories. A tree of 10,000 files takes some 3 MB.
const TREES_MAX: usize = 8;
/// The same by their files.
const TREE_FILES_MAX: usize = 500_000;
/// Feeds that are told at once. One of 100,000 files takes some 25 MB until it was read.
const FEEDS_MAX: usize = 16;
/// Repositories whose documents are kept.
const REPOSITORIES_MAX: usize = 64;
/// The largest list of files that is read.
const TREE_BYTES_MAX: u64 = 512 * 1024 * 1024;

/// What was read lately, the newest last.
#[derive(Debug, Default)]
struct Kept {
    documents: VecDeque<Arc<Document>>,
    trees: VecDeque<(Digest, Arc<Tree>)>,
}

impl Kept {
    fn document(&self, name: &DocName) -> Option<Arc<Document>> {
        self.documents.iter().find(|it| it.name() == name).cloned()
    }

    fn keep_document(&mut self, document: Arc<Document>) {
        self.documents.retain(|it| it.name() != document.name());
        self.documents.push_back(document);
        if self.documents.len() > REPOSITORIES_MAX {
            self.documents.pop_front();
        }
    }

    fn tree(&mut self, sha256: Digest) -> Option<Arc<Tree>> {
        let at = self.trees.iter().position(|it| it.0 == sha256)?;
        let found = self.trees.remove(at)?;
        self.trees.push_back(found.clone());
        Some(found.1)
    }

    fn keep_tree(&mut self, sha256: Digest, tree: Arc<Tree>) {
        self.trees.retain(|it| it.0 != sha256);
        self.trees.push_back((sha256, tree));
        let files = |trees: &VecDeque<(Digest, Arc<Tree>)>| -> usize {
            trees.iter().map(|it| it.1.files().len()).sum()
        };
        // The newest stays, however large it is: who asks needs it.
        while self.trees.len() > TREES_MAX
            || (self.trees.len() > 1 && files(&self.trees) > TREE_FILES_MAX)
        {
            self.trees.pop_front();
        }
    }
}

/// What all calls for feeds share, whichever way they come.
#[derive(Clone, Debug)]
pub struct Feeds {
    /// A lock, because calls have a task each; it is held for one look only.
    kept: Arc<Mutex<Kept>>,
    /// One list of files is read at a time: who asks for the same one finds it afterwards.
    reading: Arc<tokio::sync::Mutex<()>>,
    /// Places of those that are told.
    places: Arc<Semaphore>,
}

impl Default for Feeds {
    fn default() -> Self {
        let places = Arc::new(Semaphore::new(FEEDS_MAX));
        Self { kept: Arc::default(), reading: Arc::default(), places }
    }
}

/// The service of content.
#[derive(Clone)]
pub struct ContentService {
    /// What the services share.
    pub shared: Arc<Shared>,
}

/// A feed that is about to be told.
#[derive(Debug)]
pub struct Feed {
    /// What comes first.
    pub begin: v1::content_updates_response::Begin,
    /// The records, `$latest` last.
    pub records: Vec<Record>,
}

fn missing(text: String) -> Status {
    status(Refusal::new(RefusalKind::NotFound, Retry::WhenChanged, text))
}

fn broken(text: String) -> Status {
    status(Refusal::new(RefusalKind::Internal, Retry::Never, text))
}

/// A repository as its document has it.
struct Repository {
    name: RepositoryName,
    document: Arc<Document>,
    head: Head,
}

impl Repository {
    fn commit(&self, hash: &Hash) -> Result<Option<Commit>, Status> {
        let found = self.document.keyed::<Commit>(hash.as_str());
        found.map_err(|it| broken(format!("content {}: {it}", self.name)))
    }
}

impl ContentService {
    /// What is told.
    ///
    /// # Errors
    /// There is no such repository or commit, or it cannot be read.
    pub async fn feed(&self, asked: Updates, deadline: Instant) -> Result<Feed, Status> {
        let viewer = asked.viewer.as_ref();
        let follows = match (&asked.repository, viewer) {
            (None, Some((viewer, _))) => Some(self.followed(&viewer.pool, deadline).await?),
            (Some(_), _) | (None, None) => None,
        };
        let name = match (&follows, asked.repository) {
            (Some(follows), _) => follows.repository.clone(),
            (None, Some(name)) => name,
            (None, None) => {
                let field = FieldError::new("repository", "is missing");
                return Err(status(Refusal::invalid(vec![field])));
            }
        };
        let repository = self.repository(name, deadline).await?;
        let node = viewer.and_then(|it| it.1.as_ref());
        let latest = &repository.head.latest;
        let target = follows.as_ref().map_or(latest, |it| it.target(latest, node)).clone();
        let Some(commit) = repository.commit(&target)? else {
            let text = format!(
                "content {} has no commit {target}, which the pool is to have: follow another (ringctl content follow)",
                repository.name
            );
            return Err(missing(text));
        };
        let tree = self.tree(&repository, &commit.tree, deadline).await?;
        let since = match &asked.since {
            Some(since) => repository.commit(since)?,
            None => None,
        };
        let since = match since {
            Some(it) => Some(self.tree(&repository, &it.tree, deadline).await?),
            None => None,
        };
        let (viewer, only) = (asked.viewer.map(|it| it.0), asked.category);
        let (of, hash, is_full) = (repository.name, target.clone(), since.is_none());
        let work = move || {
            let access = Access::of(&tree, viewer.as_ref());
            only_of(feed(&tree, &hash, since.as_deref(), &access), only.as_ref())
        };
        let records = tokio::task::spawn_blocking(work).await;
        let records = records.map_err(|it| broken(format!("making a feed: {it}")))?;
        let files = records.iter().filter(|it| it.as_file().is_some());
        let there = files.clone().filter(|it| it.status == FileStatus::Published);
        let begin = v1::content_updates_response::Begin {
            repository: of.to_string(),
            commit: target.to_string(),
            full: is_full,
            files: files.count() as u64,
            bytes: there.filter_map(|it| Some(it.as_file()?.bytes)).sum(),
        };
        Ok(Feed { begin, records })
    }

    /// What the nodes of a pool follow.
    async fn followed(&self, pool: &PoolName, deadline: Instant) -> Result<Follows, Status> {
        let none = || {
            let text =
                format!("pool {pool} follows no content: say which (ringctl content follow)");
            let refused = Refusal::new(RefusalKind::NotFound, Retry::WhenChanged, text);
            // By the field it is told from a repository that is not there.
            let fields = vec![FieldError::new("pool", "follows no content")];
            status(Refusal { fields, ..refused })
        };
        let document = self.document(FOLLOWS_CLASS, pool.as_str(), deadline).await?;
        let document = document.ok_or_else(none)?;
        let follows = document.one::<Follows>();
        follows.map_err(|it| broken(format!("what pool {pool} follows: {it}")))?.ok_or_else(none)
    }

    async fn repository(
        &self,
        name: RepositoryName,
        deadline: Instant,
    ) -> Result<Repository, Status> {
        let none = |name: &RepositoryName| {
            missing(format!("there is no content {name}: publish some (ringctl content publish)"))
        };
        let document = self.document(CONTENT_CLASS, name.as_str(), deadline).await?;
        let Some(document) = document else { return Err(none(&name)) };
        let head = document.one::<Head>();
        let head = head.map_err(|it| broken(format!("content {name}: {it}")))?;
        let Some(head) = head else { return Err(none(&name)) };
        Ok(Repository { name, document, head })
    }

    /// A document of the namespace for configuration, as it is now. Only what changed since the last look travels.
    async fn document(
        &self,
        class: &str,
        docid: &str,
        deadline: Instant,
    ) -> Result<Option<Arc<Document>>, Status> {
        let name = DocName::new(&configuration(), class, docid);
        let name = name.map_err(|it| Status::from(Failure::from(Exception::from(it))))?;
        let kept = self.locked().document(&name);
        let whole = async |held: Option<Arc<Document>>| {
            let of = held.as_deref().map(Held::of);
            let syncs = vec![SyncRequest { name: name.clone(), held: of }];
            let updates = sync(&self.shared, None, syncs, false, deadline).await?;
            let update = updates.into_iter().next().map(|it| it.1);
            let update = update.ok_or_else(|| broken(format!("no answer about {name}")))?;
            Ok::<_, Status>(apply(&name, held.as_ref(), &update))
        };
        let applied = match whole(kept.clone()).await? {
            // What is kept does not fit: it is asked for anew.
            Err(_) if kept.is_some() => whole(None).await?,
            applied => applied,
        };
        let document = applied.map_err(|it| broken(format!("{name}: {it}")))?;
        let document = document.filter(|it| !it.is_deleted());
        if let Some(document) = &document {
            self.locked().keep_document(document.clone());
        }
        Ok(document)
    }

    /// The files of a commit.
    async fn tree(
        &self,
        repository: &Repository,
        body: &TreeBody,
        deadline: Instant,
    ) -> Result<Arc<Tree>, Status> {
        if let Some(tree) = self.locked().tree(body.sha256) {
            return Ok(tree);
        }
        if body.bytes > TREE_BYTES_MAX {
            let text = format!("a list of {} bytes is not read", body.bytes);
            return Err(broken(format!("content {}: {text}", repository.name)));
        }
        let m = self.shared.seen.borrow().view.as_ref().map(|it| it.m);
        let m = m.ok_or_else(|| status(super::no_view()))?;
        let slot = slot_of(repository.document.name(), m);
        // Whoever gives up, it is read to its end, and kept: the next one who asks has it.
        let reading = self.clone().read_tree(slot, body.clone(), repository.name.clone());
        let late = |_| {
            let text = "the files of a commit could not be read in time";
            status(Refusal::new(RefusalKind::DeadlineExceeded, Retry::Now, text))
        };
        let read = timeout_at(deadline, tokio::spawn(reading)).await.map_err(late)?;
        read.map_err(|it| broken(format!("reading a commit: {it}")))?
    }

    async fn read_tree(
        self,
        slot: SlotId,
        body: TreeBody,
        name: RepositoryName,
    ) -> Result<Arc<Tree>, Status> {
        let _one = self.shared.feeds.reading.lock().await;
        if let Some(tree) = self.locked().tree(body.sha256) {
            return Ok(tree);
        }
        let pieces = self.shared.bodies.read(slot, body.sha256, 0).await?;
        let bytes = whole_body(pieces, &body).await?;
        let sha256 = body.sha256;
        let parsed = tokio::task::spawn_blocking(move || {
            if Digest(Sha256::digest(&bytes).into()) != sha256 {
                return Err(format!("the body {sha256} has another digest"));
            }
            tree_of(&bytes).map_err(|it| it.to_string())
        });
        let parsed = parsed.await.map_err(|it| broken(format!("reading a commit: {it}")))?;
        let tree = Arc::new(parsed.map_err(|it| broken(format!("content {name}: {it}")))?);
        self.locked().keep_tree(sha256, tree.clone());
        Ok(tree)
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.shared.feeds.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn whole_body(mut pieces: Pieces, body: &TreeBody) -> Result<BytesMut, Status> {
    let mut bytes = BytesMut::new();
    while let Some(piece) = pieces.next().await {
        bytes.extend_from_slice(&piece?);
        if bytes.len() as u64 > body.bytes {
            return Err(broken(format!("the body {} is longer than it should be", body.sha256)));
        }
    }
    Ok(bytes)
}

/// Control records, and of files those of one fileset.
fn only_of(mut records: Vec<Record>, only: Option<&FilesetName>) -> Vec<Record> {
    if let Some(only) = only {
        records.retain(|record| match &record.category {
            Category::File(fileset) => fileset == only,
            Category::Commit
            | Category::Latest
            | Category::Fileset
            | Category::Access
            | Category::Fingerprint
            | Category::Refresh
            | Category::Obsolete => true,
        });
    }
    records
}

async fn tell(feed: Feed, out: mpsc::Sender<Result<v1::ContentUpdatesResponse, Status>>) {
    let mut begin = Some(feed.begin);
    for page in feed.records.chunks(PAGE) {
        let records = page.iter().map(Into::into).collect();
        let message = v1::ContentUpdatesResponse { begin: begin.take(), records };
        let taken = tokio::time::timeout(READER_PATIENCE, out.send(Ok(message))).await;
        if !matches!(taken, Ok(Ok(()))) {
            return;
        }
    }
}

#[tonic::async_trait]
impl v1::content_server::Content for ContentService {
    type UpdatesStream =
        Pin<Box<dyn Stream<Item = Result<v1::ContentUpdatesResponse, Status>> + Send>>;

    async fn updates(
        &self,
        request: Request<v1::ContentUpdatesRequest>,
    ) -> Result<Response<Self::UpdatesStream>, Status> {
        let deadline = deadline_of(request.metadata());
        let asked = Updates::try_from(request.into_inner());
        let asked = asked.map_err(|it| status(Refusal::from(it)))?;
        let late = || {
            let text = format!("{FEEDS_MAX} feeds of content are told, the limit");
            status(Refusal::new(RefusalKind::Overloaded, Retry::AfterMs(FULL_RETRY_MS), text))
        };
        let place = timeout_at(deadline, self.shared.feeds.places.clone().acquire_owned()).await;
        let place = place.ok().and_then(Result::ok).ok_or_else(late)?;
        let feed = self.feed(asked, deadline).await?;
        let (out, messages) = mpsc::channel(AHEAD);
        tokio::spawn(async move {
            tell(feed, out).await;
            drop(place);
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(messages))))
    }
}
