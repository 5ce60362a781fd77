//! The client: its endpoints, its options, and one method per call.

use crate::attempt::Call;
use crate::call;
use crate::connections::{CONNECTIONS_DEFAULT, Connections, EndpointsError};
use crate::endpoints::{Endpoints, Entry};
use crate::error::CallError;
use crate::keep_alive::KeepAlive;
use crate::retry::Attempts;
use crate::routing::RouteCache;
use crate::watch::{DocumentWatch, Watch, WatchOptions};
use rota_model::Changed;
use rota_proto::v1;
use rota_proto::v1::machines_client::MachinesClient;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use tonic::Request;
use tracing::Instrument;

/// Is told why a call has not succeeded yet, when it goes on after a pause.
pub type OnWait = fn(&CallError);

/// How a client behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// At which endpoint calls begin. Default: [`Entry::Sticky`].
    pub entry: Entry,
    /// Ask for the View once and send each call to the owner of its slot. Default: off, any
    /// manager forwards.
    pub route_by_view: bool,
    /// Most connections to one address, at least 1. More than the default of
    /// [`CONNECTIONS_DEFAULT`] costs without gain; 1 limits what a busy client can send.
    pub connections: usize,
    /// Longest wait for a connection. Default 1 s; too low and a busy machine looks gone, too
    /// high and a silent one delays the switch to the next endpoint.
    pub connect_timeout: Duration,
    /// Called when a call, or a stream that broke, waits before it is sent again: once for each reason in a row, so that a
    /// person who waits can be told why. Default: none.
    pub on_wait: Option<OnWait>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            entry: Entry::default(),
            route_by_view: false,
            connections: CONNECTIONS_DEFAULT,
            connect_timeout: Duration::from_secs(1),
            on_wait: None,
        }
    }
}

/// A client of one cluster. Clones share connections and the cached View.
#[derive(Clone, Debug)]
pub struct Client {
    inner: Arc<Inner>,
    pub(crate) endpoints: Arc<Endpoints>,
    pub(crate) routes: Arc<RouteCache>,
}

#[derive(Debug)]
struct Inner {
    options: Options,
    /// Begins every request id of this client.
    name: String,
    requests: AtomicU64,
}

impl Client {
    /// A client of the managers at these addresses (`host:port`, comma-separated). Connects when
    /// it is first used. Call it inside a tokio runtime.
    pub fn connect(endpoints: &str) -> Result<Self, EndpointsError> {
        Self::with_options(endpoints, Options::default())
    }

    /// The same with other options.
    pub fn with_options(endpoints: &str, options: Options) -> Result<Self, EndpointsError> {
        let endpoints = crate::parse_endpoints(endpoints)?;
        let connections = Connections::new(options.connections, options.connect_timeout);
        let endpoints = Endpoints::new(&endpoints, options.entry, connections);
        let inner = Inner {
            options,
            name: uuid::Uuid::new_v4().simple().to_string(),
            requests: AtomicU64::new(0),
        };
        let (inner, endpoints) = (Arc::new(inner), Arc::new(endpoints));
        Ok(Self { inner, endpoints, routes: Arc::default() })
    }

    /// The managers' addresses, in the order given.
    pub fn endpoints(&self) -> &[Arc<str>] {
        self.endpoints.list()
    }

    pub(crate) fn on_wait(&self) -> Option<OnWait> {
        self.inner.options.on_wait
    }

    pub(crate) fn routes_by_view(&self) -> bool {
        self.inner.options.route_by_view
    }

    /// A request id that nobody else uses.
    pub fn request_id(&self) -> String {
        let number = self.inner.requests.fetch_add(1, Ordering::Relaxed);
        format!("{}-{number}", self.inner.name)
    }

    /// Finds the live session of that id, or starts one. An empty `request_id` is filled in, so
    /// that repetitions are safe.
    pub async fn open(
        &self,
        mut request: v1::OpenRequest,
        wait: Duration,
    ) -> Result<v1::OpenResponse, CallError> {
        if request.request_id.is_empty() {
            request.request_id = self.request_id();
        }
        let answered = self.call(request, wait).await?;
        complete(answered.answer.session.is_some(), "session", &answered.endpoint)?;
        Ok(answered.answer)
    }

    /// Ends a session. An empty `request_id` is filled in.
    pub async fn close(
        &self,
        mut request: v1::CloseRequest,
        wait: Duration,
    ) -> Result<v1::CloseResponse, CallError> {
        if request.request_id.is_empty() {
            request.request_id = self.request_id();
        }
        let answered = self.call(request, wait).await?;
        complete(answered.answer.session.is_some(), "session", &answered.endpoint)?;
        Ok(answered.answer)
    }

    /// Reads one session.
    pub async fn get(
        &self,
        request: v1::GetRequest,
        wait: Duration,
    ) -> Result<v1::GetResponse, CallError> {
        let answered = self.call(request, wait).await?;
        complete(answered.answer.session.is_some(), "session", &answered.endpoint)?;
        Ok(answered.answer)
    }

    /// Says that somebody uses a session, and hears since when nobody had said so. It may be repeated.
    pub async fn keep_alive(
        &self,
        request: v1::KeepAliveRequest,
        wait: Duration,
    ) -> Result<v1::KeepAliveResponse, CallError> {
        let answered = self.call(request, wait).await?;
        complete(answered.answer.session.is_some(), "session", &answered.endpoint)?;
        Ok(answered.answer)
    }

    /// Keeps a session alive in the background until what this gives is dropped: see [`KeepAlive::start`].
    pub fn kept_alive(&self, request: v1::KeepAliveRequest, every: Duration) -> KeepAlive {
        KeepAlive::start(self, request, every)
    }

    /// Changes attributes and life cycles of a session, all in one commit, and tells how they stand. It may be
    /// repeated, as what is set or added twice is there once. With `if_version` a repetition may be refused with
    /// VERSION_MISMATCH after the first one was carried out.
    pub async fn update(
        &self,
        request: v1::UpdateRequest,
        wait: Duration,
    ) -> Result<v1::Life, CallError> {
        let answered = self.call(request, wait).await?;
        complete(answered.answer.life.is_some(), "life", &answered.endpoint)?;
        Ok(answered.answer.life.unwrap_or_default())
    }

    /// How the life cycles of a session stand, with their history.
    pub async fn life(
        &self,
        request: v1::GetLifeRequest,
        wait: Duration,
    ) -> Result<v1::Life, CallError> {
        let answered = self.call(request, wait).await?;
        complete(answered.answer.life.is_some(), "life", &answered.endpoint)?;
        Ok(answered.answer.life.unwrap_or_default())
    }

    /// One page of the sessions of the whole ring. Pages follow each other by `page_token`.
    pub async fn list(
        &self,
        request: v1::ListRequest,
        wait: Duration,
    ) -> Result<v1::ListResponse, CallError> {
        Ok(self.call(request, wait).await?.answer)
    }

    /// Every page from `request.page_token` on, each within `wait`, as one. It is stale when any
    /// of them is.
    pub async fn list_all(
        &self,
        request: v1::ListRequest,
        wait: Duration,
    ) -> Result<v1::ListResponse, CallError> {
        self.list_first(request, usize::MAX, wait).await
    }

    /// The first `most` of them: pages are asked for until there are so many. `request.where` and `request.sort` say
    /// which come first.
    pub async fn list_first(
        &self,
        mut request: v1::ListRequest,
        most: usize,
        wait: Duration,
    ) -> Result<v1::ListResponse, CallError> {
        let mut all = v1::ListResponse::default();
        loop {
            let page = self.list(request.clone(), wait).await?;
            all.sessions.extend(page.sessions);
            all.stale |= page.stale;
            if page.next_page_token.is_empty() || all.sessions.len() >= most {
                all.sessions.truncate(most);
                return Ok(all);
            }
            request.page_token = page.next_page_token;
        }
    }

    /// Changes from `request.position` on; an empty position begins with a snapshot. Nothing is
    /// sent before the first [`Watch::next`].
    pub fn watch(&self, request: v1::WatchRequest, options: WatchOptions) -> Watch {
        Watch::new(self.clone(), request, options)
    }

    /// The same of documents.
    pub fn watch_documents(
        &self,
        request: v1::WatchDocumentsRequest,
        options: WatchOptions,
    ) -> DocumentWatch {
        Watch::new(self.clone(), request, options)
    }

    /// Asks any manager for its View, partitions and nodes.
    pub async fn inspect(&self, wait: Duration) -> Result<v1::InspectResponse, CallError> {
        Ok(self.call(v1::InspectRequest {}, wait).await?.answer)
    }

    /// Asks the manager at that address, once.
    pub async fn inspect_at(
        &self,
        address: &str,
        wait: Duration,
    ) -> Result<v1::InspectResponse, CallError> {
        self.once(address, v1::InspectRequest {}, wait).await
    }

    /// Tells the manager at that address which of its peers look gone, once.
    pub async fn signal_at(
        &self,
        address: &str,
        request: v1::SignalRequest,
        wait: Duration,
    ) -> Result<v1::SignalResponse, CallError> {
        self.once(address, request, wait).await
    }

    /// Tells the manager at that address, which waits outside of the ring, to join, once.
    pub async fn join_at(
        &self,
        address: &str,
        request: v1::JoinRequest,
        wait: Duration,
    ) -> Result<v1::JoinResponse, CallError> {
        self.once(address, request, wait).await
    }

    /// A number leaves the ring.
    pub async fn leave(
        &self,
        request: v1::LeaveRequest,
        wait: Duration,
    ) -> Result<v1::LeaveResponse, CallError> {
        Ok(self.call(request, wait).await?.answer)
    }

    /// Takes back what is under way: a join or a leave. Not sent again when its outcome is unknown.
    pub async fn cancel(
        &self,
        request: v1::CancelRequest,
        wait: Duration,
    ) -> Result<v1::CancelResponse, CallError> {
        Ok(self.call(request, wait).await?.answer)
    }

    /// Says what is wanted of a node: that nothing more is placed there, that it becomes empty, or that
    /// it takes sessions again.
    pub async fn order_node(
        &self,
        request: v1::OrderNodeRequest,
        wait: Duration,
    ) -> Result<v1::OrderNodeResponse, CallError> {
        Ok(self.call(request, wait).await?.answer)
    }

    /// Has the owner of a session compare its record with what a node has of it, and put right what differs. May be
    /// repeated.
    pub async fn mend(
        &self,
        request: v1::MendRequest,
        wait: Duration,
    ) -> Result<v1::MendResponse, CallError> {
        Ok(self.call(request, wait).await?.answer)
    }

    /// Asks the manager at that address where sessions of a partition that it owns are, once.
    pub async fn placements_at(
        &self,
        address: &str,
        request: v1::PlacementsRequest,
        wait: Duration,
    ) -> Result<v1::PlacementsResponse, CallError> {
        self.once(address, request, wait).await
    }

    /// Asks the node at that address what lives there, once.
    pub async fn live_at(
        &self,
        address: &str,
        request: v1::LiveRequest,
        wait: Duration,
    ) -> Result<v1::LiveResponse, CallError> {
        self.once(address, request, wait).await
    }

    /// Reads one session through the manager at that address, once.
    pub async fn get_at(
        &self,
        address: &str,
        request: v1::GetRequest,
        wait: Duration,
    ) -> Result<v1::GetResponse, CallError> {
        self.once(address, request, wait).await
    }

    /// Opens through the manager at that address, once.
    pub async fn open_at(
        &self,
        address: &str,
        mut request: v1::OpenRequest,
        wait: Duration,
    ) -> Result<v1::OpenResponse, CallError> {
        if request.request_id.is_empty() {
            request.request_id = self.request_id();
        }
        self.once(address, request, wait).await
    }

    async fn once<C: Call>(
        &self,
        address: &str,
        request: C,
        wait: Duration,
    ) -> Result<C::Answer, CallError> {
        let span = tracing::debug_span!("call", kind = C::NAME, request = request.request_id());
        let attempt = Attempts::new(request.may_change());
        let borrowed = self.endpoints.connect_to(address)?;
        let mut request = Request::new(request);
        request.set_timeout(wait);
        let sent = C::send(request, borrowed.channel.clone());
        within(address, wait, attempt, sent).instrument(span).await
    }

    /// Gives one event to a session's machine at the session's address. Never sent twice: an
    /// event moves the machine, and whether a lost one did is for the caller to find out.
    pub async fn send_event(
        &self,
        address: &str,
        event: v1::SendRequest,
        wait: Duration,
    ) -> Result<v1::SendResponse, CallError> {
        let borrowed = self.endpoints.connect_to(address)?;
        let mut request = Request::new(event);
        request.set_timeout(wait);
        let mut machines = MachinesClient::new(borrowed.channel.clone());
        within(address, wait, Attempts::new(true), machines.send(request)).await
    }
}

/// Waits so long for the answer to the only attempt.
async fn within<A>(
    address: &str,
    waited: Duration,
    mut attempt: Attempts,
    sent: impl Future<Output = Result<tonic::Response<A>, tonic::Status>>,
) -> Result<A, CallError> {
    match timeout_at(Instant::now() + waited, sent).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => {
            let failure = call::failure(&status);
            attempt.add(failure.changed());
            Err(call::error(failure, address, 1, attempt.changed()))
        }
        Err(_elapsed) => {
            attempt.add(Changed::Unknown);
            let (endpoint, changed) = (address.to_owned(), attempt.changed());
            Err(CallError::TimedOut { endpoint, waited, attempts: 1, changed })
        }
    }
}

fn complete(has: bool, missing: &'static str, endpoint: &str) -> Result<(), CallError> {
    if has {
        return Ok(());
    }
    Err(CallError::Incomplete { missing, endpoint: endpoint.to_owned() })
}
