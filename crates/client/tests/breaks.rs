//! What a client does when managers refuse, break and come back: over real connections to servers
//! that answer from a script.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use rota_client::{CallError, Client, Entry, OnWait, Options, WatchOptions, v1};
use rota_model::{Changed, Epoch, Refusal, RefusalKind, Retry};
use rota_proto::refusal::status;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use tokio_stream::Stream;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};
use v1::operator_server::{Operator, OperatorServer};
use v1::sessions_server::{Sessions, SessionsServer};

const WAIT: Duration = Duration::from_secs(10);

/// What a scripted manager saw and will say. An empty script answers with success.
#[derive(Default)]
struct Script {
    name: String,
    refusals: Mutex<VecDeque<Status>>,
    request_ids: Mutex<Vec<String>>,
    watches: Mutex<VecDeque<Vec<Result<v1::WatchResponse, Status>>>>,
    positions: Mutex<Vec<Vec<u8>>>,
    view: Mutex<Option<v1::View>>,
    /// The lives that were kept alive, one for each call.
    kept: watch::Sender<Vec<u64>>,
}

#[derive(Clone)]
struct Manager(Arc<Script>);

impl Manager {
    fn next(&self) -> Result<(), Status> {
        self.0.refusals.lock().unwrap().pop_front().map_or(Ok(()), Err)
    }
}

#[tonic::async_trait]
impl Sessions for Manager {
    async fn open(
        &self,
        request: Request<v1::OpenRequest>,
    ) -> Result<Response<v1::OpenResponse>, Status> {
        let request = request.into_inner();
        self.0.request_ids.lock().unwrap().push(request.request_id);
        self.next()?;
        let detail = self.0.name.clone();
        let session = v1::Session { id: request.id, detail, ..Default::default() };
        let outcome = v1::Outcome::Created.into();
        Ok(Response::new(v1::OpenResponse { outcome, session: Some(session), ended_since: false }))
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
        self.next()?;
        Ok(Response::new(v1::GetResponse::default()))
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
        request: Request<v1::KeepAliveRequest>,
    ) -> Result<Response<v1::KeepAliveResponse>, Status> {
        let v1::KeepAliveRequest { id, life, .. } = request.into_inner();
        self.0.kept.send_modify(|it| it.push(life));
        self.next()?;
        let session = Some(v1::Session { id, ..Default::default() });
        Ok(Response::new(v1::KeepAliveResponse { session, idle_ms: None }))
    }

    async fn list(
        &self,
        request: Request<v1::ListRequest>,
    ) -> Result<Response<v1::ListResponse>, Status> {
        let (id, next_page_token) = match request.into_inner().page_token.as_str() {
            "" => ("a", "more".to_owned()),
            _ => ("b", String::new()),
        };
        let sessions = vec![v1::Session { id: id.to_owned(), ..Default::default() }];
        Ok(Response::new(v1::ListResponse { sessions, next_page_token, stale: false }))
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<v1::WatchResponse, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<v1::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        self.0.positions.lock().unwrap().push(request.into_inner().position.to_vec());
        self.next()?;
        let answers = self.0.watches.lock().unwrap().pop_front().unwrap_or_default();
        Ok(Response::new(Box::pin(tokio_stream::iter(answers))))
    }
}

#[tonic::async_trait]
impl Operator for Manager {
    type EventsStream = Pin<Box<dyn Stream<Item = Result<v1::EventsResponse, Status>> + Send>>;

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
        let view = self.0.view.lock().unwrap().clone();
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

/// A manager that serves until this is dropped.
struct Running {
    script: Arc<Script>,
    address: String,
    _stop: oneshot::Sender<()>,
}

async fn start(name: &str) -> Running {
    let script = Arc::new(Script { name: name.to_owned(), ..Default::default() });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (stop, stopped) = oneshot::channel::<()>();
    let manager = Manager(script.clone());
    let server = Server::builder()
        .add_service(SessionsServer::new(manager.clone()))
        .add_service(OperatorServer::new(manager))
        .serve_with_incoming_shutdown(TcpListenerStream::new(listener), async {
            let _dropped = stopped.await;
        });
    tokio::spawn(server);
    Running { script, address, _stop: stop }
}

/// An address where a server says that it takes no more of this connection, whatever it is asked, and ends
/// it.
async fn annoyed() -> String {
    // An empty SETTINGS; and a GOAWAY of 23 bytes: nothing was carried out, ENHANCE_YOUR_CALM, and why.
    const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
    const GOAWAY: &[u8] = b"\0\0\x17\x07\0\0\0\0\0\0\0\0\0\0\0\0\x0btoo_many_resets";
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut asked = [0; 1024];
            stream.write_all(SETTINGS).await.unwrap();
            // The preface and the settings of the client come first, then its call.
            let _came = stream.read(&mut asked).await;
            let _came = stream.read(&mut asked).await;
            let _sent = stream.write_all(GOAWAY).await;
        }
    });
    address
}

/// An address where nothing listens.
async fn nowhere() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().to_string()
}

fn refused(kind: RefusalKind, retry: Retry) -> Status {
    status(&Refusal::new(kind, retry, "no"))
}

fn open(id: &str) -> v1::OpenRequest {
    v1::OpenRequest { id: id.to_owned(), class: "builtin".to_owned(), ..Default::default() }
}

#[tokio::test]
async fn a_connection_that_a_manager_ends_because_it_is_annoyed_is_no_answer_and_another_is_asked()
{
    let second = start("second").await;
    let endpoints = [annoyed().await, second.address.clone()].join(",");
    let client = Client::connect(&endpoints).unwrap();
    let opened = client.open(open("a"), WAIT).await.unwrap();
    assert_eq!(opened.session.unwrap().detail, "second");
}

#[tokio::test]
async fn an_endpoint_that_hangs_is_passed_over_after_a_moment_and_then_at_once() {
    // The kernel takes the connection, and nobody ever looks at it.
    let hung = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let second = start("second").await;
    let endpoints = [hung.local_addr().unwrap().to_string(), second.address.clone()].join(",");
    for entry in [Entry::Sticky, Entry::RoundRobin] {
        let options = Options { entry, ..Options::default() };
        let client = Client::with_options(&endpoints, options).unwrap();
        let began = Instant::now();
        for id in ["a", "b", "c"] {
            let opened = client.open(open(id), WAIT).await.unwrap();
            assert_eq!(opened.session.unwrap().detail, "second");
        }
        // A broken connection is found out after four seconds.
        let took = began.elapsed();
        assert!(took < Duration::from_secs(2), "{entry:?}: {took:?}");
    }
    assert_eq!(second.script.request_ids.lock().unwrap().len(), 6, "each was sent once");
}

#[tokio::test]
async fn a_broken_call_goes_to_the_next_endpoint_with_the_same_request_id() {
    let (first, second) = (start("first").await, start("second").await);
    first.script.refusals.lock().unwrap().push_back(Status::unavailable("going down"));
    let endpoints = [nowhere().await, first.address.clone(), second.address.clone()].join(",");
    let client = Client::connect(&endpoints).unwrap();
    let opened = client.open(open("a"), WAIT).await.unwrap();
    assert_eq!(opened.session.unwrap().detail, "second");
    let sent = first.script.request_ids.lock().unwrap().clone();
    assert_eq!(sent, *second.script.request_ids.lock().unwrap());
    assert!(!sent[0].is_empty());
    // Later calls begin where the last one was answered.
    client.open(open("b"), WAIT).await.unwrap();
    assert_eq!(first.script.request_ids.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn an_advised_wait_is_followed_until_the_answer_comes() {
    let manager = start("only").await;
    let advice = [Retry::AfterMs(1), Retry::Now, Retry::AfterMs(2)];
    let refusals = advice.map(|retry| refused(RefusalKind::Provisioning, retry));
    manager.script.refusals.lock().unwrap().extend(refusals);
    let client = Client::connect(&manager.address).unwrap();
    client.open(open("a"), WAIT).await.unwrap();
    let sent = manager.script.request_ids.lock().unwrap();
    assert_eq!(sent.len(), 4);
    assert!(sent.iter().all(|id| *id == sent[0]));
}

#[tokio::test]
async fn a_manager_that_is_cut_off_from_the_others_is_left_for_the_next_endpoint() {
    let (first, second) = (start("first").await, start("second").await);
    let away = || refused(RefusalKind::ConfigStoreAway, Retry::AfterMs(1));
    first.script.refusals.lock().unwrap().extend((0..100).map(|_| away()));
    let client = Client::connect(&[&*first.address, &*second.address].join(",")).unwrap();
    for id in ["a", "b"] {
        let opened = client.open(open(id), WAIT).await.unwrap();
        assert_eq!(opened.session.unwrap().detail, "second");
    }
    assert_eq!(first.script.request_ids.lock().unwrap().len(), 2, "asked twice, and left");
}

#[tokio::test]
async fn a_call_that_was_refused_by_a_manager_that_is_cut_off_lets_the_next_call_go_elsewhere() {
    let (first, second) = (start("first").await, start("second").await);
    let away = refused(RefusalKind::ConfigStoreAway, Retry::AfterMs(60_000));
    first.script.refusals.lock().unwrap().push_back(away);
    let client = Client::connect(&[&*first.address, &*second.address].join(",")).unwrap();
    assert_eq!(client.open(open("a"), WAIT).await.unwrap_err().reason(), "CONFIG_STORE_AWAY");
    let opened = client.open(open("b"), WAIT).await.unwrap();
    assert_eq!(opened.session.unwrap().detail, "second");
}

#[tokio::test]
async fn a_manager_that_does_not_answer_in_time_is_left_for_the_next_call() {
    // Its connections are made by the system, and nobody answers.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, second) = (silent.local_addr().unwrap().to_string(), start("second").await);
    let client = Client::connect(&[&*address, &*second.address].join(",")).unwrap();
    let error = client.open(open("a"), Duration::from_millis(100)).await.unwrap_err();
    assert!(matches!(error, CallError::TimedOut { .. }), "{error:?}");
    let opened = client.open(open("b"), WAIT).await.unwrap();
    assert_eq!(opened.session.unwrap().detail, "second");
}

/// Where nobody listens.
async fn closed_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().to_string()
}

#[tokio::test]
async fn a_call_that_reached_nobody_in_any_attempt_has_changed_nothing() {
    let endpoints = [closed_address().await, closed_address().await].join(",");
    let client = Client::connect(&endpoints).unwrap();
    let error = client.open(open("a"), Duration::from_millis(200)).await.unwrap_err();
    let CallError::Broken { attempts, .. } = &error else { panic!("{error:?}") };
    assert!(*attempts > 2, "{error}");
    assert_eq!(error.changed(), Changed::No);
}

#[tokio::test]
async fn a_call_of_which_one_attempt_may_have_arrived_may_have_changed_something() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = silent.local_addr().map(|it| (silent, it.to_string())).unwrap();
    let wait = Duration::from_millis(200);
    // Cut off after one that reached nobody, and after a refusal.
    let manager = start("only").await;
    let moved = refused(RefusalKind::NotServing, Retry::AtOwner(Epoch(2)));
    manager.script.refusals.lock().unwrap().push_back(moved);
    let closed = closed_address().await;
    for first in [&closed, &manager.address] {
        let client = Client::connect(&[&**first, &*silent.1].join(",")).unwrap();
        let error = client.open(open("a"), wait).await.unwrap_err();
        assert_eq!(error.changed(), Changed::Unknown, "{error:?}");
    }
    // Refused for good, after one that broke off.
    manager.script.refusals.lock().unwrap().extend([
        Status::unavailable("it broke off"),
        refused(RefusalKind::InvalidArgument, Retry::Never),
        Status::unavailable("it broke off"),
        refused(RefusalKind::RequestIdReused, Retry::Never),
    ]);
    let client = Client::connect(&manager.address).unwrap();
    let error = client.open(open("a"), WAIT).await.unwrap_err();
    assert_eq!((error.reason(), error.changed()), ("INVALID_ARGUMENT", Changed::Unknown));
    let error = client.open(open("a"), WAIT).await.unwrap_err();
    assert_eq!((error.reason(), error.changed()), ("REQUEST_ID_REUSED", Changed::No));
    let client = Client::connect(&[&*closed, &*silent.1].join(",")).unwrap();
    let get = v1::GetRequest { id: "a".into(), ..Default::default() };
    let error = client.get(get, wait).await.unwrap_err();
    assert_eq!(error.changed(), Changed::No, "it only reads: {error:?}");
}

/// Told by a client that waits.
static WAITS: Mutex<Vec<String>> = Mutex::new(Vec::new());

#[tokio::test]
async fn a_client_that_waits_says_why_once_for_each_reason() {
    let manager = start("only").await;
    let (full, busy) = (RefusalKind::NoCapacity, RefusalKind::Overloaded);
    let refusals = [full, full, busy].map(|kind| refused(kind, Retry::AfterMs(1)));
    manager.script.refusals.lock().unwrap().extend(refusals);
    let on_wait = Some((|error| WAITS.lock().unwrap().push(error.reason().to_owned())) as OnWait);
    let options = Options { on_wait, ..Options::default() };
    let client = Client::with_options(&manager.address, options).unwrap();
    client.open(open("a"), WAIT).await.unwrap();
    assert_eq!(*WAITS.lock().unwrap(), ["NO_CAPACITY", "OVERLOADED"]);
}

#[tokio::test]
async fn a_final_refusal_comes_back_at_once_with_its_reason() {
    let manager = start("only").await;
    let refusal = refused(RefusalKind::UnknownClass, Retry::WhenChanged);
    manager.script.refusals.lock().unwrap().push_back(refusal);
    let client = Client::connect(&manager.address).unwrap();
    let error = client.open(open("a"), WAIT).await.unwrap_err();
    assert_eq!(error.reason(), "UNKNOWN_CLASS");
    assert_eq!(manager.script.request_ids.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_wait_beyond_the_deadline_gives_the_refusal_to_the_caller() {
    let manager = start("only").await;
    let refusal = refused(RefusalKind::NoCapacity, Retry::AfterMs(60_000));
    manager.script.refusals.lock().unwrap().push_back(refusal);
    let client = Client::connect(&manager.address).unwrap();
    let error = client.open(open("a"), WAIT).await.unwrap_err();
    assert_eq!(error.reason(), "NO_CAPACITY");
    assert_eq!(error.retry(), Retry::AfterMs(60_000));
}

#[tokio::test]
async fn nobody_there_is_told_as_unreachable_when_the_deadline_passes() {
    let client = Client::connect(&nowhere().await).unwrap();
    let error = client.open(open("a"), Duration::from_millis(200)).await.unwrap_err();
    assert_eq!(error.reason(), "UNREACHABLE");
}

#[tokio::test]
async fn what_one_manager_answers_is_told_and_not_that_another_one_is_not_there() {
    let manager = start("only").await;
    let refusals = (0..10_000).map(|_| refused(RefusalKind::NotServing, Retry::Now));
    manager.script.refusals.lock().unwrap().extend(refusals);
    // Whichever comes last before the deadline.
    for endpoints in
        [[manager.address.clone(), nowhere().await], [nowhere().await, manager.address.clone()]]
    {
        let client = Client::connect(&endpoints.join(",")).unwrap();
        for wait_ms in [200, 300, 400] {
            let failed = client.open(open("a"), Duration::from_millis(wait_ms)).await.unwrap_err();
            assert_eq!(failed.reason(), "NOT_SERVING", "{failed}");
        }
    }
}

#[tokio::test]
async fn an_answer_without_its_session_is_an_error() {
    let manager = start("only").await;
    let client = Client::connect(&manager.address).unwrap();
    let request = v1::GetRequest { id: "a".to_owned(), ..Default::default() };
    let error = client.get(request, WAIT).await.unwrap_err();
    assert!(matches!(error, CallError::Incomplete { missing: "session", .. }), "{error:?}");
}

#[tokio::test]
async fn a_list_follows_its_pages() {
    let manager = start("only").await;
    let client = Client::connect(&manager.address).unwrap();
    let sessions = client.list_all(v1::ListRequest::default(), WAIT).await.unwrap().sessions;
    let ids: Vec<&str> = sessions.iter().map(|it| it.id.as_str()).collect();
    assert_eq!(ids, ["a", "b"]);
}

#[tokio::test]
async fn a_watch_goes_on_elsewhere_from_the_last_position_it_gave_out() {
    let (first, second) = (start("first").await, start("second").await);
    let answer = |position: &'static [u8]| {
        Ok(v1::WatchResponse { position: position.into(), ..Default::default() })
    };
    let broken = vec![answer(b"1"), answer(b"2"), Err(Status::unavailable("going down"))];
    first.script.watches.lock().unwrap().push_back(broken);
    let refusal = refused(RefusalKind::NotServing, Retry::AfterMs(1));
    second.script.refusals.lock().unwrap().push_back(refusal);
    second.script.watches.lock().unwrap().push_back(vec![answer(b"3")]);
    let client = Client::connect(&[&*first.address, &*second.address].join(",")).unwrap();
    let mut watch = client.watch(v1::WatchRequest::default(), WatchOptions::default());
    for expected in [b"1", b"2", b"3"] {
        assert_eq!(watch.next().await.unwrap().position.as_ref(), expected);
        assert_eq!(watch.position(), expected);
    }
    // The second one refused as if it were cut off from others, so the first was asked once more.
    let positions = first.script.positions.lock().unwrap().clone();
    assert_eq!(positions, [&b""[..], b"2"]);
    assert_eq!(*second.script.positions.lock().unwrap(), [b"2", b"2"]);
}

#[tokio::test]
async fn a_refused_watch_ends_with_the_refusal() {
    let manager = start("only").await;
    let refusal = refused(RefusalKind::InvalidArgument, Retry::Never);
    manager.script.refusals.lock().unwrap().push_back(refusal);
    let client = Client::connect(&manager.address).unwrap();
    let mut watch = client.watch(v1::WatchRequest::default(), WatchOptions::default());
    assert_eq!(watch.next().await.unwrap_err().reason(), "INVALID_ARGUMENT");
}

#[tokio::test]
async fn with_routing_a_call_goes_to_the_owner_and_learns_when_it_moved() {
    let (entry, owner) = (start("entry").await, start("owner").await);
    let view = |owner_number| v1::View {
        m: 1024,
        managers: vec![
            v1::ManagerEntry { number: 1, grpc: entry.address.clone(), ..Default::default() },
            v1::ManagerEntry { number: 2, grpc: owner.address.clone(), ..Default::default() },
        ],
        parts: vec![v1::Part { number: 1, owner: owner_number, ..Default::default() }],
        ..Default::default()
    };
    *entry.script.view.lock().unwrap() = Some(view(2));
    let options = Options { route_by_view: true, ..Options::default() };
    let client = Client::with_options(&entry.address, options).unwrap();
    let opened = client.open(open("a"), WAIT).await.unwrap();
    assert_eq!(opened.session.unwrap().detail, "owner");
    // The owner moved: it says so, and the call is answered all the same.
    *entry.script.view.lock().unwrap() = Some(view(1));
    let moved = refused(RefusalKind::NotOwner, Retry::AtOwner(rota_model::Epoch(2)));
    owner.script.refusals.lock().unwrap().push_back(moved);
    let opened = client.open(open("a"), WAIT).await.unwrap();
    assert_eq!(opened.session.unwrap().detail, "entry");
}

/// Waits until a session was kept alive so often.
async fn kept(manager: &Running, times: usize) {
    let mut kept = manager.script.kept.subscribe();
    let enough = kept.wait_for(|it| it.len() >= times);
    let waited = tokio::time::timeout(WAIT, enough).await;
    waited.expect("the calls come").expect("the script holds the sender");
}

fn keep_alive(life: u64) -> v1::KeepAliveRequest {
    v1::KeepAliveRequest { id: "a".to_owned(), life, ..Default::default() }
}

#[tokio::test]
async fn a_session_is_kept_alive_over_breaks_until_it_has_ended_and_why_is_told() {
    let manager = start("only").await;
    let passing =
        [Status::unavailable("away"), refused(RefusalKind::Overloaded, Retry::AfterMs(1))];
    manager.script.refusals.lock().unwrap().extend(passing);
    let client = Client::connect(&manager.address).unwrap();
    let guard = client.kept_alive(keep_alive(7), Duration::from_millis(5));
    kept(&manager, 5).await;
    assert!(guard.goes_on());
    let ended = refused(RefusalKind::NotFound, Retry::WhenChanged);
    manager.script.refusals.lock().unwrap().push_back(ended);
    let told = tokio::time::timeout(WAIT, guard.ended()).await.unwrap();
    assert_eq!(told.reason(), "NOT_FOUND", "{told:?}");
    assert!(manager.script.kept.borrow().iter().all(|life| *life == 7));
}

#[tokio::test]
async fn a_session_is_kept_alive_no_more_once_the_guard_is_dropped() {
    let manager = start("only").await;
    let client = Client::connect(&manager.address).unwrap();
    let guard = client.kept_alive(keep_alive(0), Duration::from_millis(1));
    kept(&manager, 3).await;
    drop(guard);
    // Another guard's calls come alone from some moment on: those of life 0 have stopped.
    let _other = client.kept_alive(keep_alive(1), Duration::from_millis(1));
    let mut seen = manager.script.kept.subscribe();
    let alone = seen.wait_for(|it| it.len() > 50 && it.iter().rev().take(50).all(|it| *it == 1));
    tokio::time::timeout(WAIT, alone).await.expect("the calls stop").expect("the script holds it");
}
