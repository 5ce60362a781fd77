//! The service by which managers ask for output and use.

use super::listing::{Listed, Listing, Rooted};
use super::logs::{Reading, nothing_kept, unreadable};
use super::usage::{self, Sample, Used};
use crate::content::{ContentStatus, Standing, content_of_version, files_of_version};
use crate::session_folders;
use rota_model::{ClusterName, NodeId, Refusal, RefusalKind, Retry, SessionKey};
use rota_proto::programs::{UsageAsk, check_addressee};
use rota_proto::refusal::status;
use rota_proto::v1::programs_server::Programs;
use rota_proto::{programs, v1};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::spawn_blocking;
use tokio_stream::Stream;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

/// Most readers of output at once. Each has some pieces of 32 KiB under way, and looks at two files ten times a second.
pub const READERS_MAX: usize = 64;

/// Pieces that wait for the network.
const PIECES_MAX: usize = 2;

/// Advice to a reader that finds no place: others must end first.
const FULL_MS: u64 = 1_000;

/// What it needs.
pub struct Observer {
    /// Requests of other clusters are refused.
    pub cluster: ClusterName,
    /// This node.
    pub node: NodeId,
    /// The folder of session folders.
    pub sessions: PathBuf,
    /// How many of ended programs are kept.
    pub folders_kept_max: usize,
    /// What runs.
    pub listing: Listing,
    /// How its content stands.
    pub content: ContentStatus,
    /// Places for readers.
    pub readers: Arc<Semaphore>,
    /// One look at all processes of the machine at a time.
    pub looks: Arc<Semaphore>,
}

type Pieces = Pin<Box<dyn Stream<Item = Result<v1::LogsResponse, Status>> + Send>>;

impl Observer {
    fn take_place(&self) -> Result<OwnedSemaphorePermit, Status> {
        self.readers.clone().try_acquire_owned().map_err(|_| {
            let node = &self.node;
            let text = format!(
                "node {node} sends output to {READERS_MAX} readers, its limit; one of them must end first"
            );
            status(&Refusal::new(RefusalKind::Overloaded, Retry::AfterMs(FULL_MS), text))
        })
    }
}

fn refused(refusal: Refusal) -> Status {
    status(&refusal)
}

#[tonic::async_trait]
impl Programs for Observer {
    type LogsStream = Pieces;

    async fn logs(&self, request: Request<v1::LogsRequest>) -> Result<Response<Pieces>, Status> {
        let request = request.into_inner();
        let ask = programs::logs(&request).map_err(refused)?;
        let addressee = (request.cluster.as_str(), ask.node.as_ref());
        check_addressee((&self.cluster, &self.node), addressee).map_err(refused)?;
        let place = self.take_place()?;
        let (sessions, listing, node) =
            (self.sessions.clone(), self.listing.clone(), self.node.to_string());
        let asked = ask.clone();
        let begun = spawn_blocking(move || {
            let (life, folder) = session_folders::newest(&sessions, &asked.key, asked.life)?;
            Some(Reading::begin(&asked, (folder, life), (listing, &node)))
        });
        let begun = begun.await.map_err(|error| Status::internal(error.to_string()))?;
        let (reading, begin) = match begun {
            Some(begun) => begun.map_err(|error| unreadable(&error))?,
            None => {
                let (node, kept) = (self.node.as_str(), self.folders_kept_max);
                return Err(nothing_kept(node, &ask, kept, &self.sessions));
            }
        };
        let (items, pieces) = mpsc::channel(PIECES_MAX);
        tokio::spawn(async move {
            let _place = place;
            reading.run(items).await;
        });
        let begin = v1::LogsResponse { part: Some(v1::logs_response::Part::Begin(begin)) };
        let all = tokio_stream::once(Ok(begin)).chain(ReceiverStream::new(pieces));
        Ok(Response::new(Box::pin(all)))
    }

    async fn usage(
        &self,
        request: Request<v1::UsageRequest>,
    ) -> Result<Response<v1::UsageResponse>, Status> {
        let request = request.into_inner();
        let ask = programs::usage(&request).map_err(refused)?;
        let addressee = (request.cluster.as_str(), Some(&ask.node));
        check_addressee((&self.cluster, &self.node), addressee).map_err(refused)?;
        let look = self.looks.acquire().await.map_err(|it| Status::internal(it.to_string()))?;
        let listing = self.listing.clone();
        let sample = spawn_blocking(move || usage::sample(&listing)).await;
        drop(look);
        let sample = sample.map_err(|error| Status::internal(error.to_string()))?;
        Ok(Response::new(page(&ask, &sample)))
    }

    async fn content_status(
        &self,
        request: Request<v1::ContentStatusRequest>,
    ) -> Result<Response<v1::ContentStatusResponse>, Status> {
        let request = request.into_inner();
        let node = NodeId::parse(&request.node).map_err(|it| refused(it.into()))?;
        let addressee = (request.cluster.as_str(), Some(&node));
        check_addressee((&self.cluster, &self.node), addressee).map_err(refused)?;
        let rooted = self.listing.rooted();
        let told = content_status(&self.content.standing(), &rooted, request.sessions);
        Ok(Response::new(v1::ContentStatusResponse { node: node.to_string(), ..told }))
    }
}

/// Most sessions that are named with an older version.
const OLDER_MAX: usize = 1_000;

fn content_status(
    it: &Standing,
    live: &BTreeMap<SessionKey, Rooted>,
    sessions: bool,
) -> v1::ContentStatusResponse {
    let (mut current, mut older) = (0, Vec::new());
    // A rollback is another commit with the very same files.
    let newest = it.root.as_deref().and_then(files_of_version);
    let mut files: BTreeMap<&Path, Option<String>> = BTreeMap::new();
    for (key, Rooted { life, class, root }) in live {
        let Some((repository, commit)) = content_of_version(root) else { continue };
        let mut is_same = || {
            let files = files.entry(root).or_insert_with(|| files_of_version(root));
            newest.is_some() && *files == newest
        };
        if commit == it.commit || is_same() {
            current += 1;
        } else {
            let (life, class) = ((*life).into(), class.to_string());
            let key = Some(key.into());
            older.push(v1::OlderSession { key, life, class, commit, repository });
        }
    }
    let sessions_older = older.len() as u64;
    older.truncate(if sessions { OLDER_MAX } else { 0 });
    v1::ContentStatusResponse {
        node: String::new(),
        state: it.state.as_str().to_owned(),
        repository: it.repository.clone(),
        commit: it.commit.clone(),
        access: it.access.clone(),
        files: it.files,
        bytes: it.bytes,
        refreshed_at_ms: it.refreshed_at_ms,
        refresh_us: it.refresh_us,
        failure: it.failure.clone(),
        came_files: it.came.0,
        came_bytes: it.came.1,
        of_files: it.of.0,
        of_bytes: it.of.1,
        sessions_current: current,
        sessions_older,
        older,
    }
}

fn used(it: &Used) -> v1::Used {
    v1::Used {
        cpu_us: u64::try_from(it.cpu.as_micros()).unwrap_or(u64::MAX),
        memory_bytes: it.memory_bytes,
        processes: it.processes,
    }
}

fn by_session(key: &SessionKey, listed: &Listed, it: &Used) -> v1::UsedBySession {
    v1::UsedBySession {
        key: Some(key.into()),
        life: listed.life.into(),
        class: listed.class.to_string(),
        used: Some(used(it)),
        cpu_millis_max: listed.limits.cpu_millis.unwrap_or(0),
        memory_mib_max: listed.limits.memory_mib.unwrap_or(0),
        processes_max: listed.limits.processes.unwrap_or(0),
    }
}

fn page(ask: &UsageAsk, sample: &Sample) -> v1::UsageResponse {
    let is_behind = |key: &SessionKey| ask.after.as_ref().is_none_or(|after| key > after);
    let mut sessions = sample.sessions.iter().filter(|it| is_behind(&it.0.0));
    let limit = usize::try_from(ask.limit).unwrap_or(usize::MAX);
    let page = sessions.by_ref().take(limit);
    let page = page.map(|((key, _), listed, it)| by_session(key, listed, it)).collect();
    v1::UsageResponse {
        node: ask.node.to_string(),
        at_us: sample.at_us,
        own: Some(used(&sample.own)),
        programs: Some(used(&sample.programs)),
        sessions: page,
        more: sessions.next().is_some(),
    }
}
