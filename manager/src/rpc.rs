//! What clients and operators call: wire to checked request, mailbox, answer to wire.

mod bodies;
pub mod content;
pub mod deadline;
pub mod documents;
pub mod events;
pub mod export;
mod export_document;
mod kept_output;
pub mod list;
pub mod merge;
pub mod names;
pub mod namespaces;
pub mod operator;
mod owners;
pub mod pools;
pub mod programs;
mod search;
mod sought;
pub mod tasks;
pub mod watch;
pub mod watched;

use crate::bodies::Bodies;
use crate::clock::now;
use crate::driver_state::DriverState;
use crate::events::EventLog;
use crate::mailbox::Mailbox;
use crate::metrics;
use deadline::deadline_of;
use names::FreshNames;
use rota_docstore::{About, Exception, codes};
use rota_membership::Trouble;
use rota_model::{ClusterName, NodeId, Refusal, RefusalKind, Retry};
use rota_proto::documents::{ADMIN_KEY_METADATA, in_call, status as documents_status};
use rota_proto::keep_alive::{keep_alive, keep_alive_response};
use rota_proto::lives::{get_life, life_response, update};
use rota_proto::{Watch, refusal, request, session, session_search, v1};
use rota_protocol::operate::AdminKey;
use rota_protocol::{LivesOp, Op, OpKind, Searchable};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio::sync::watch::Receiver;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

/// Largest request of a client. Attributes may have 64 KiB; what is somewhat larger should still
/// be refused with the name of its field.
pub const REQUEST_BYTES_MAX: usize = 1024 * 1024;

/// Largest answer: a page of a list ends well before.
pub const RESPONSE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// What the services share.
pub struct Shared {
    /// The cluster.
    pub cluster: ClusterName,
    /// The driver.
    pub mailbox: Mailbox,
    /// What the driver shows of itself.
    pub seen: Receiver<DriverState>,
    /// Whether the config store answers.
    pub trouble: Receiver<Option<Trouble>>,
    /// Request ids for callers that gave none.
    pub names: FreshNames,
    /// What administrators must know.
    pub admin_key: AdminKey,
    /// Bodies of attachments.
    pub bodies: Bodies,
    /// What callers are told of each operation. These are counted by name: other names come from anybody.
    pub operations: BTreeMap<&'static str, About>,
    /// What happened here lately.
    pub events: EventLog,
    /// What calls for feeds of content share.
    pub feeds: content::Feeds,
    /// What of which documents can be searched.
    pub searchable: Searchable,
    /// Names of the provisioners that this manager was started with.
    pub provisioners: Vec<String>,
    /// Places for watches.
    pub watches: Arc<Semaphore>,
    /// Room for what watches have for clients that have not read it.
    pub unread: Arc<Semaphore>,
    /// Ends streams when the process stops.
    pub stopping: CancellationToken,
}

impl Shared {
    /// Where managers reach a node, as the decisions know it; empty when it is not registered any more.
    pub fn node_address(&self, node: &NodeId) -> String {
        let seen = self.seen.borrow();
        seen.nodes.get(node).map_or_else(String::new, |entry| entry.address.clone())
    }

    /// The administrator's key, and when the caller gives up.
    pub fn admitted(&self, metadata: &MetadataMap) -> Result<(String, Instant), Status> {
        Ok((self.check_admin(metadata)?, deadline_of(metadata)))
    }

    /// Who gives orders as an administrator, or S-REFUSED. Gives the key.
    pub fn check_admin(&self, metadata: &MetadataMap) -> Result<String, Status> {
        let given = metadata.get(ADMIN_KEY_METADATA).and_then(|it| it.to_str().ok());
        let key = given.unwrap_or_default().to_owned();
        let wrong = |why| documents_status(&Exception::new(codes::REFUSED, why));
        self.admin_key.check(&key).map_err(wrong)?;
        Ok(key)
    }

    /// How and since when the config store does not answer, or with nothing that this manager may follow.
    pub fn config_trouble(&self) -> Option<Trouble> {
        let away = self.trouble.borrow().clone();
        away.or_else(|| self.seen.borrow().refused.clone())
    }

    /// The same as a sentence; empty while all is well.
    fn config_store_error(&self) -> String {
        self.config_trouble().map_or_else(String::new, |trouble| {
            format!("for {:.1} s: {}", trouble.since.elapsed().as_secs_f64(), trouble.error)
        })
    }
}

fn status(refused: Refusal) -> Status {
    refusal::status(&refused)
}

/// Who asks before the first View has come should ask again, after so many milliseconds.
const NO_VIEW_RETRY_MS: u64 = 200;

fn no_view() -> Refusal {
    let text = "this manager has not seen a View yet";
    Refusal::new(RefusalKind::NotServing, Retry::AfterMs(NO_VIEW_RETRY_MS), text)
}

/// The status of a call that is refused before the decisions hear of it, which is counted.
fn wrong(kind: OpKind, refused: Refusal) -> Status {
    metrics::refused(kind, None, refused.kind);
    status(refused)
}

impl SessionsService {
    /// Asks the owner of a session about its life cycles.
    async fn life(&self, op: LivesOp, deadline: Instant) -> Result<v1::Life, Status> {
        let answer = self.shared.mailbox.call(Op::Lives(op), deadline).await.map_err(status)?;
        life_response(answer, |node| self.shared.node_address(node)).map_err(status)
    }
}

/// The service of sessions.
pub struct SessionsService {
    /// What the services share.
    pub shared: Arc<Shared>,
}

#[tonic::async_trait]
impl v1::sessions_server::Sessions for SessionsService {
    type WatchStream = watch::Changes<watched::Sessions>;

    async fn open(
        &self,
        request: Request<v1::OpenRequest>,
    ) -> Result<Response<v1::OpenResponse>, Status> {
        let deadline = deadline_of(request.metadata());
        let shared = &self.shared;
        let op = request::open(request.into_inner(), now(), || shared.names.next())
            .map_err(|it| wrong(OpKind::Open, it))?;
        let answer = shared.mailbox.call(Op::Open(op), deadline).await.map_err(status)?;
        let response = session::open_response(answer, |node| shared.node_address(node));
        Ok(Response::new(response.map_err(status)?))
    }

    async fn close(
        &self,
        request: Request<v1::CloseRequest>,
    ) -> Result<Response<v1::CloseResponse>, Status> {
        let deadline = deadline_of(request.metadata());
        let shared = &self.shared;
        if request.get_ref().although_off {
            let checked = shared.check_admin(request.metadata());
            checked.map_err(|it| in_call("session.close", it))?;
        }
        let op = request::close(request.into_inner(), || shared.names.next())
            .map_err(|it| wrong(OpKind::Close, it))?;
        let answer = shared.mailbox.call(Op::Close(op), deadline).await.map_err(status)?;
        let response = session::close_response(answer, |node| shared.node_address(node));
        Ok(Response::new(response.map_err(status)?))
    }

    async fn get(
        &self,
        request: Request<v1::GetRequest>,
    ) -> Result<Response<v1::GetResponse>, Status> {
        let deadline = deadline_of(request.metadata());
        let shared = &self.shared;
        let op = request::get(request.into_inner()).map_err(|it| wrong(OpKind::Get, it))?;
        let answer = shared.mailbox.call(Op::Get(op), deadline).await.map_err(status)?;
        let response = session::get_response(answer, |node| shared.node_address(node));
        Ok(Response::new(response.map_err(status)?))
    }

    async fn keep_alive(
        &self,
        request: Request<v1::KeepAliveRequest>,
    ) -> Result<Response<v1::KeepAliveResponse>, Status> {
        let deadline = deadline_of(request.metadata());
        let op = keep_alive(request.get_ref()).map_err(|it| wrong(OpKind::KeepAlive, it))?;
        let answer = self.shared.mailbox.call(Op::KeepAlive(op), deadline).await;
        let node_address = |node: &NodeId| self.shared.node_address(node);
        let response = keep_alive_response(answer.map_err(status)?, node_address);
        Ok(Response::new(response.map_err(status)?))
    }

    async fn update(
        &self,
        request: Request<v1::UpdateRequest>,
    ) -> Result<Response<v1::UpdateResponse>, Status> {
        let deadline = deadline_of(request.metadata());
        let op = update(request.into_inner(), now()).map_err(|it| wrong(OpKind::Lives, it))?;
        let life = self.life(LivesOp::Update(Box::new(op)), deadline).await?;
        Ok(Response::new(v1::UpdateResponse { life: Some(life) }))
    }

    async fn get_life(
        &self,
        request: Request<v1::GetLifeRequest>,
    ) -> Result<Response<v1::GetLifeResponse>, Status> {
        let deadline = deadline_of(request.metadata());
        let key = get_life(request.get_ref()).map_err(|it| wrong(OpKind::Lives, it))?;
        let life = self.life(LivesOp::Show(key), deadline).await?;
        Ok(Response::new(v1::GetLifeResponse { life: Some(life) }))
    }

    async fn list(
        &self,
        request: Request<v1::ListRequest>,
    ) -> Result<Response<v1::ListResponse>, Status> {
        let deadline = deadline_of(request.metadata());
        let request = request.into_inner();
        if session_search::is_search(&request) {
            let asked = session_search::list(request).map_err(|it| wrong(OpKind::Search, it))?;
            let (sessions, next) =
                sought::sought(&self.shared, asked, deadline).await.map_err(status)?;
            let node_address = |node: &NodeId| self.shared.node_address(node);
            return Ok(Response::new(session::searched_response(sessions, next, node_address)));
        }
        let op = request::list(request).map_err(|it| wrong(OpKind::List, it))?;
        let filter = op.filter.clone();
        let page = list::gather(&self.shared, op, deadline).await.map_err(status)?;
        let response = session::list_response(page, &filter, |node| self.shared.node_address(node));
        Ok(Response::new(response))
    }

    async fn watch(
        &self,
        request: Request<v1::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let Watch { filter, selected, position } =
            request::watch(request.get_ref()).map_err(|it| wrong(OpKind::Pull, it))?;
        if let Some(position) = &position {
            position.check_cluster(&self.shared.cluster).map_err(|it| status(it.into()))?;
        }
        let watched = watched::Sessions { filter, selected };
        let changes = watch::start(self.shared.clone(), watched, position);
        Ok(Response::new(changes.map_err(status)?))
    }
}
