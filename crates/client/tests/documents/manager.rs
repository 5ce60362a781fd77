//! A manager of a test: serves documents from the ring's store, and breaks where a script says.

use crate::ring::{Ring, State, digest};
use rota_client::v1;
use rota_docstore::{Document, Exception, FieldError, Phase, codes};
use rota_proto::documents::answer::{self, Head};
use rota_proto::documents::document_export::Part;
use rota_proto::documents::watch::{self, DocumentChange, DocumentEvent};
use rota_proto::documents::{DocumentCursor, request, status};
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio_stream::wrappers::{BroadcastStream, TcpListenerStream};
use tokio_stream::{Stream, StreamExt};
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};
use v1::documents_server::{Documents, DocumentsServer};
use v1::namespaces_server::NamespacesServer;
use v1::operator_server::{Operator, OperatorServer};
use v1::sessions_server::{Sessions, SessionsServer};

pub type Replies<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// What a manager saw, and what it does beside serving.
#[derive(Default)]
pub struct Script {
    /// Told instead of an answer, one each.
    pub refusals: Mutex<VecDeque<Status>>,
    /// The next operations are carried out, and then these are told instead of the answer.
    pub lost_answers: Mutex<VecDeque<Status>>,
    /// Watches do not hear of changes.
    pub is_deaf: AtomicBool,
    pub calls: AtomicUsize,
    /// Streams of bodies break after that many pieces, once.
    pub breaks_after: Mutex<Option<usize>>,
    /// What changes of namespaces need.
    pub admin_key: Mutex<Option<&'static str>>,
    /// What it knows of the ring.
    pub view: Mutex<Option<v1::View>>,
    /// Bodies are altered on their way.
    pub alters: AtomicBool,
}

#[derive(Clone)]
pub struct Manager {
    pub ring: Arc<Ring>,
    pub script: Arc<Script>,
}

impl Manager {
    pub fn next(&self) -> Result<(), Status> {
        self.script.calls.fetch_add(1, Ordering::SeqCst);
        self.script.refusals.lock().unwrap().pop_front().map_or(Ok(()), Err)
    }
}

pub fn raised(exception: Exception) -> Status {
    status(&exception)
}

fn wrong(field: FieldError) -> Status {
    raised(Exception::from(field).at(Phase::Before))
}

#[tonic::async_trait]
impl Documents for Manager {
    async fn operate(
        &self,
        wire: Request<v1::OperateRequest>,
    ) -> Result<Response<v1::OperateResponse>, Status> {
        self.next()?;
        let operate = request::operate(wire.into_inner()).map_err(raised)?;
        let answer = {
            let State { store, now, .. } = &mut *self.ring.state();
            let (operations, rules) = (&self.ring.operations, &self.ring.rules);
            store.perform(operations, rules, operate.request, *now).map_err(raised)?
        };
        if let Some(lost) = self.script.lost_answers.lock().unwrap().pop_front() {
            return Err(lost);
        }
        Ok(Response::new(answer::operate_response(&answer)))
    }

    async fn list_operations(
        &self,
        _: Request<v1::ListOperationsRequest>,
    ) -> Result<Response<v1::ListOperationsResponse>, Status> {
        Err(Status::unimplemented("list operations"))
    }

    async fn sync(
        &self,
        wire: Request<v1::SyncRequest>,
    ) -> Result<Response<v1::SyncResponse>, Status> {
        self.next()?;
        let sync = request::sync(wire.into_inner()).map_err(raised)?;
        let State { store, now, .. } = &mut *self.ring.state();
        let mut updates = Vec::new();
        for it in &sync.documents {
            let update = store.sync(&it.name, it.held.as_ref(), *now).map_err(wrong)?;
            updates.push((it.name.clone(), update));
        }
        Ok(Response::new(answer::sync_response(&updates)))
    }

    async fn search(
        &self,
        _: Request<v1::SearchRequest>,
    ) -> Result<Response<v1::SearchResponse>, Status> {
        Err(Status::unimplemented("no search is asked of it"))
    }

    async fn list_documents(
        &self,
        wire: Request<v1::ListDocumentsRequest>,
    ) -> Result<Response<v1::ListDocumentsResponse>, Status> {
        self.next()?;
        let list = request::list(wire.into_inner()).map_err(raised)?;
        let state = self.ring.state();
        let is_wanted = |head: &Head| {
            list.class.as_ref().is_none_or(|it| it == head.name.class())
                && list.from.after.as_ref().is_none_or(|it| head.name > *it)
        };
        let mut rest = state.store.in_space(&list.space).filter(|it| !it.is_deleted());
        let rest = rest.by_ref().map(|it| Head::of(it)).filter(is_wanted);
        let mut page: Vec<Head> = rest.take(list.limit as usize + 1).collect();
        let next = (page.len() > list.limit as usize).then(|| {
            page.pop();
            DocumentCursor { after: page.last().map(|it| it.name.clone()), ..list.from.clone() }
        });
        Ok(Response::new(answer::list_response(&page, next.as_ref(), &list)))
    }

    async fn put_body(
        &self,
        wire: Request<Streaming<v1::PutBodyRequest>>,
    ) -> Result<Response<v1::PutBodyResponse>, Status> {
        self.next()?;
        let mut pieces = wire.into_inner();
        let put = request::put_body(pieces.message().await?).map_err(raised)?;
        if self.ring.state().bodies.contains_key(&put.sha256) {
            return Ok(Response::new(v1::PutBodyResponse { known: true }));
        }
        let breaks_after = self.script.breaks_after.lock().unwrap().take();
        let (mut body, mut count) = (Vec::new(), 0);
        while let Some(piece) = pieces.message().await? {
            body.extend_from_slice(&request::put_piece(piece).map_err(raised)?);
            count += 1;
            if Some(count) == breaks_after {
                return Err(Status::unavailable("going down"));
            }
        }
        if digest(&body) != put.sha256 || body.len() as u64 != put.size {
            return Err(wrong(FieldError::new("sha256", "is not that of the bytes that came")));
        }
        self.ring.state().bodies.insert(put.sha256, body.into());
        Ok(Response::new(v1::PutBodyResponse { known: false }))
    }

    type ExportDocumentStream = Replies<v1::DocumentRecord>;

    async fn export_document(
        &self,
        wire: Request<v1::ExportDocumentRequest>,
    ) -> Result<Response<Self::ExportDocumentStream>, Status> {
        self.next()?;
        let asked = request::export_document(wire.into_inner()).map_err(raised)?;
        if !asked.items_only {
            return Err(Status::unimplemented("export with bodies"));
        }
        let State { store, now, .. } = &mut *self.ring.state();
        let update = store.sync(&asked.name, asked.held.as_ref(), *now).map_err(wrong)?;
        let mut records = Part::Update(asked.name, update).records();
        records.push((&Part::End { bodies: 0 }).into());
        Ok(Response::new(Box::pin(tokio_stream::iter(records.into_iter().map(Ok)))))
    }

    type WatchDocumentsStream = Replies<v1::WatchDocumentsResponse>;

    async fn watch_documents(
        &self,
        wire: Request<v1::WatchDocumentsRequest>,
    ) -> Result<Response<Self::WatchDocumentsStream>, Status> {
        let asked = watch::watch_documents(wire.into_inner()).map_err(raised)?;
        let name = asked.of.one().ok_or_else(|| Status::unimplemented("watch of many"))?;
        let events = BroadcastStream::new(self.ring.events.subscribe());
        let first = self.ring.state().store.peek(&name).cloned();
        let script = Arc::clone(&self.script);
        let later = events
            .filter_map(Result::ok)
            .filter(move |it| *it.name() == name && !script.is_deaf.load(Ordering::SeqCst));
        let answer = |document: Arc<Document>| {
            let change = match document.is_deleted() {
                true => DocumentChange::Ended,
                false => DocumentChange::Named,
            };
            let (name, ctime, version) =
                (document.name().clone(), document.ctime(), document.version());
            let event = Some(watch::told(&DocumentEvent { name, ctime, version, change }));
            Ok(v1::WatchDocumentsResponse { event, ..Default::default() })
        };
        let caught_up = v1::WatchDocumentsResponse { caught_up: true, ..Default::default() };
        let first = tokio_stream::iter(first).map(answer).chain(tokio_stream::once(Ok(caught_up)));
        Ok(Response::new(Box::pin(first.chain(later.map(answer)))))
    }

    type GetBodyStream = Replies<v1::GetBodyResponse>;

    async fn get_body(
        &self,
        wire: Request<v1::GetBodyRequest>,
    ) -> Result<Response<Self::GetBodyStream>, Status> {
        self.next()?;
        let get = request::get_body(&wire.into_inner()).map_err(raised)?;
        let found = self.ring.state().bodies.get(&get.sha256).cloned();
        let missing = || Exception::new(codes::DOCUMENT, "there is no such body");
        let mut body = found.ok_or_else(|| raised(missing()))?.to_vec();
        if self.script.alters.load(Ordering::SeqCst) {
            body[0] ^= 1;
        }
        let mut rest = body.get(usize::try_from(get.offset).unwrap()..).unwrap_or_default();
        if get.length > 0 {
            rest = &rest[..rest.len().min(usize::try_from(get.length).unwrap())];
        }
        let bytes = |it: &[u8]| v1::GetBodyResponse { bytes: it.to_vec().into() };
        let mut pieces: Vec<_> = rest.chunks(100_000).map(|it| Ok(bytes(it))).collect();
        if let Some(count) = self.script.breaks_after.lock().unwrap().take() {
            pieces.truncate(count);
            pieces.push(Err(Status::unavailable("going down")));
        }
        Ok(Response::new(Box::pin(tokio_stream::iter(pieces))))
    }
}

#[tonic::async_trait]
impl Sessions for Manager {
    async fn open(
        &self,
        _request: Request<v1::OpenRequest>,
    ) -> Result<Response<v1::OpenResponse>, Status> {
        Err(Status::unimplemented("open"))
    }

    async fn close(
        &self,
        _request: Request<v1::CloseRequest>,
    ) -> Result<Response<v1::CloseResponse>, Status> {
        Err(Status::unimplemented("close"))
    }

    async fn get(
        &self,
        _request: Request<v1::GetRequest>,
    ) -> Result<Response<v1::GetResponse>, Status> {
        Err(Status::unimplemented("get"))
    }

    async fn update(
        &self,
        _request: Request<v1::UpdateRequest>,
    ) -> Result<Response<v1::UpdateResponse>, Status> {
        Err(Status::unimplemented("update"))
    }

    async fn get_life(
        &self,
        _request: Request<v1::GetLifeRequest>,
    ) -> Result<Response<v1::GetLifeResponse>, Status> {
        Err(Status::unimplemented("get_life"))
    }

    async fn keep_alive(
        &self,
        _request: Request<v1::KeepAliveRequest>,
    ) -> Result<Response<v1::KeepAliveResponse>, Status> {
        Err(Status::unimplemented("keep_alive"))
    }

    async fn list(
        &self,
        _request: Request<v1::ListRequest>,
    ) -> Result<Response<v1::ListResponse>, Status> {
        Err(Status::unimplemented("list"))
    }

    type WatchStream = Replies<v1::WatchResponse>;

    async fn watch(
        &self,
        _request: Request<v1::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented("watch"))
    }
}

#[tonic::async_trait]
impl Operator for Manager {
    type EventsStream = Replies<v1::EventsResponse>;

    async fn events(
        &self,
        _request: Request<v1::EventsRequest>,
    ) -> Result<Response<Self::EventsStream>, Status> {
        Err(Status::unimplemented("events"))
    }

    async fn inspect(
        &self,
        _request: Request<v1::InspectRequest>,
    ) -> Result<Response<v1::InspectResponse>, Status> {
        let view = self.script.view.lock().unwrap().clone();
        Ok(Response::new(v1::InspectResponse { view, ..Default::default() }))
    }

    async fn signal(
        &self,
        _request: Request<v1::SignalRequest>,
    ) -> Result<Response<v1::SignalResponse>, Status> {
        Err(Status::unimplemented("signal"))
    }

    async fn join(
        &self,
        _request: Request<v1::JoinRequest>,
    ) -> Result<Response<v1::JoinResponse>, Status> {
        Err(Status::unimplemented("join"))
    }

    async fn leave(
        &self,
        _request: Request<v1::LeaveRequest>,
    ) -> Result<Response<v1::LeaveResponse>, Status> {
        Err(Status::unimplemented("leave"))
    }

    async fn cancel(
        &self,
        _request: Request<v1::CancelRequest>,
    ) -> Result<Response<v1::CancelResponse>, Status> {
        Err(Status::unimplemented("cancel"))
    }

    async fn order_node(
        &self,
        _request: Request<v1::OrderNodeRequest>,
    ) -> Result<Response<v1::OrderNodeResponse>, Status> {
        Err(Status::unimplemented("order_node"))
    }

    async fn session_numbers(
        &self,
        _request: Request<v1::SessionNumbersRequest>,
    ) -> Result<Response<v1::SessionNumbersResponse>, Status> {
        Err(Status::unimplemented("session_numbers"))
    }

    async fn mend(
        &self,
        _request: Request<v1::MendRequest>,
    ) -> Result<Response<v1::MendResponse>, Status> {
        Err(Status::unimplemented("mend"))
    }

    async fn placements(
        &self,
        _request: Request<v1::PlacementsRequest>,
    ) -> Result<Response<v1::PlacementsResponse>, Status> {
        Err(Status::unimplemented("placements"))
    }
}

/// A manager that serves until this is dropped; then its connections break, like those of a process
/// that was killed.
pub struct Running {
    pub script: Arc<Script>,
    pub address: String,
    runtime: Option<Runtime>,
}

impl Running {
    pub fn calls(&self) -> usize {
        self.script.calls.load(Ordering::SeqCst)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.runtime.take().unwrap().shutdown_background();
    }
}

pub async fn start(ring: &Arc<Ring>) -> Running {
    let script = Arc::<Script>::default();
    let manager = Manager { ring: Arc::clone(ring), script: Arc::clone(&script) };
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (tell, address) = oneshot::channel();
    runtime.spawn(async move {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        tell.send(listener.local_addr().unwrap().to_string()).unwrap();
        let server = Server::builder()
            .add_service(SessionsServer::new(manager.clone()))
            .add_service(DocumentsServer::new(manager.clone()))
            .add_service(OperatorServer::new(manager.clone()))
            .add_service(NamespacesServer::new(manager));
        server.serve_with_incoming(TcpListenerStream::new(listener)).await.unwrap();
    });
    Running { script, address: address.await.unwrap(), runtime: Some(runtime) }
}

/// An address where nothing listens.
pub async fn nowhere() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().to_string()
}
