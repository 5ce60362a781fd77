//! What changes sessions: `POST` of `:open`, `:close` and `:send`, and the way to those of `lives`.

use super::call::{Call, last_with_verb};
use super::error::Failed;
use super::lives;
use super::route::{is_coming, not_yet};
use super::shown::{Session, outcome};
use super::tree::{Answer, Tree};
use super::verbs::{SESSION_VERBS, wrong_method};
use super::which::Which;
use crate::link::connect;
use crate::rpc::deadline::deadline_of;
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, Uri};
use axum::response::IntoResponse as _;
use rota_model::{Refusal, RefusalKind, Retry};
use rota_proto::v1::machines_client::MachinesClient;
use rota_proto::v1::sessions_server::Sessions as _;
use rota_proto::{refusal, v1};
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use tonic::{Request, Status};

/// The header with the request id: the same one gets the same answer.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Advice to whoever finds a node that does not answer, in milliseconds.
const LATER_MS: u64 = 500;

/// Largest answer of a machine: two names of states.
const MOVED_BYTES_MAX: usize = 64 * 1024;

/// The answer to an open.
#[derive(Serialize)]
struct Opened {
    outcome: String,
    ended_since: bool,
    #[serde(flatten)]
    session: Session,
}

/// The answer to a close.
#[derive(Serialize)]
struct Closed {
    finished: bool,
    #[serde(flatten)]
    session: Session,
}

/// The answer to an event.
#[derive(Serialize)]
struct Moved {
    id: String,
    from: String,
    to: String,
    changes: u64,
    #[serde(rename = "final")]
    is_final: bool,
}

/// The request id, with or without the quotes of a structured header.
fn request_id(headers: &HeaderMap, call: &mut Call) -> String {
    let Some(value) = headers.get(IDEMPOTENCY_KEY) else { return String::new() };
    let text = value.to_str().unwrap_or_default();
    let bare = text.strip_prefix('"').and_then(|it| it.strip_suffix('"')).unwrap_or(text);
    if bare.is_empty() {
        call.wrong("Idempotency-Key", "must be a text of ASCII, and not empty");
    }
    bare.to_owned()
}

async fn open(tree: &Tree, headers: &HeaderMap, mut call: Call, which: Which) -> Answer {
    let request = v1::OpenRequest {
        namespace: which.namespace,
        id: which.id,
        class: call.field("class"),
        attributes: call.field("attributes"),
        pool: call.field("pool"),
        request_id: request_id(headers, &mut call),
        life: lives::options(&mut call),
    };
    let opened = tree.sessions.open(call.request(request)?).await?.into_inner();
    let (outcome, ended_since) = (outcome(opened.outcome()), opened.ended_since);
    let session = Session::of(opened.session.unwrap_or_default());
    Ok(Json(Opened { outcome, ended_since, session }).into_response())
}

async fn close(tree: &Tree, headers: &HeaderMap, mut call: Call, which: Which) -> Answer {
    let request = v1::CloseRequest {
        namespace: which.namespace,
        id: which.id,
        life: call.field("life"),
        request_id: request_id(headers, &mut call),
        although_off: call.field("although_off"),
        grace_ms: call.field("grace_ms"),
    };
    let closed = tree.sessions.close(call.request(request)?).await?.into_inner();
    let session = Session::of(closed.session.unwrap_or_default());
    Ok(Json(Closed { finished: closed.finished, session }).into_response())
}

/// Where the machine of a session answers.
fn machine_address(session: &v1::Session) -> Result<String, Refusal> {
    if is_coming(session) {
        return Err(not_yet(session));
    }
    let (id, class) = (&session.id, &session.class);
    if session.address.is_empty() {
        let state = Session::of(session.clone()).state;
        let text = format!("session {id:?} is {state} and has no address");
        return Err(Refusal::new(RefusalKind::NotFound, Retry::WhenChanged, text));
    }
    // Machines answer at their node's own address, programs at ports of theirs.
    if session.machine_state.is_empty() && session.address != session.node_address {
        let text = format!("session {id:?} runs a program (class {class}), which takes no events");
        return Err(Refusal::new(RefusalKind::InvalidArgument, Retry::WhenChanged, text));
    }
    Ok(session.address.clone())
}

/// What a node refused, or what its silence means: a status of the connection itself has no reason of ours.
fn told(status: Status) -> Status {
    if status.details().is_empty() {
        return refusal::status(&refusal::refusal(&status));
    }
    status
}

/// Gives an event to the node. Never twice: an event moves the machine.
async fn at_node(
    address: &str,
    event: Request<v1::SendRequest>,
    deadline: Instant,
) -> Result<v1::SendResponse, Status> {
    let connected = timeout_at(deadline, connect(address)).await;
    let away = |why: String| {
        let text = format!("the node of the session does not answer at {address}: {why}");
        Refusal::new(RefusalKind::NotServing, Retry::AfterMs(LATER_MS), text)
    };
    let late = |kind: fn(RefusalKind, Retry, String) -> Refusal| {
        let text = format!("the node at {address} did not answer in time");
        refusal::status(&kind(RefusalKind::DeadlineExceeded, Retry::Now, text))
    };
    let channel = connected.map_err(|_| late(Refusal::new))?;
    let channel = channel.map_err(|error| refusal::status(&away(error.text)))?;
    let mut machines = MachinesClient::new(channel).max_decoding_message_size(MOVED_BYTES_MAX);
    let sent = timeout_at(deadline, machines.send(event)).await;
    let sent = sent.map_err(|_| late(Refusal::unknown_outcome))?;
    Ok(sent.map_err(told)?.into_inner())
}

async fn send(tree: &Tree, headers: &HeaderMap, mut call: Call, which: Which) -> Answer {
    let Which { namespace, id } = which;
    let event = v1::SendRequest {
        namespace: namespace.clone(),
        id: id.clone(),
        event: call.field("event"),
        life: call.field("life"),
    };
    if headers.contains_key(IDEMPOTENCY_KEY) {
        let problem = "is of no use: no node remembers events, so a repetition is another event";
        call.wrong("Idempotency-Key", problem);
    }
    if let Err(refused) = rota_proto::request::send(event.clone()) {
        refused.fields.into_iter().for_each(|it| call.wrong(&it.field, it.problem));
    }
    let get = call.request(v1::GetRequest { namespace, id: id.clone(), stale_ok: false })?;
    let deadline = deadline_of(get.metadata());
    let got = tree.sessions.get(get).await?.into_inner().session.unwrap_or_default();
    let address = machine_address(&got)?;
    let mut request = Request::new(event);
    request.set_timeout(
        deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1)),
    );
    let moved = at_node(&address, request, deadline).await?;
    let v1::SendResponse { from, to, changes, r#final } = moved;
    Ok(Json(Moved { id, from, to, changes, is_final: r#final }).into_response())
}

/// By the path, whose last part ends with the verb.
pub async fn by_path(
    State(tree): State<Arc<Tree>>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let (last, verb) = last_with_verb(&uri, &SESSION_VERBS);
    let Some(verb) = verb else { return Ok(wrong_method(uri).await) };
    let which = Which::of_path(&uri, &last)?;
    let call = Call::with_body(&uri, &headers, &tree.bodies, body).await?;
    match verb {
        "open" => open(&tree, &headers, call, which).await,
        "close" => close(&tree, &headers, call, which).await,
        "keepalive" => lives::keep_alive(&tree, call, which).await,
        "update" => lives::update(&tree, call, which).await,
        _ => send(&tree, &headers, call, which).await,
    }
}

/// A call, and which session its query names.
async fn named(
    tree: &Tree,
    uri: &Uri,
    headers: &HeaderMap,
    body: Body,
) -> Result<(Call, Which), Failed> {
    let mut call = Call::with_body(uri, headers, &tree.bodies, body).await?;
    let which = Which::of_query(&mut call);
    Ok((call, which))
}

/// `:open` by the query.
pub async fn open_by_query(
    State(tree): State<Arc<Tree>>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let (call, which) = named(&tree, &uri, &headers, body).await?;
    open(&tree, &headers, call, which).await
}

/// `:close` by the query.
pub async fn close_by_query(
    State(tree): State<Arc<Tree>>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let (call, which) = named(&tree, &uri, &headers, body).await?;
    close(&tree, &headers, call, which).await
}

/// `:send` by the query.
pub async fn send_by_query(
    State(tree): State<Arc<Tree>>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let (call, which) = named(&tree, &uri, &headers, body).await?;
    send(&tree, &headers, call, which).await
}

/// `:keepalive` by the query.
pub async fn keep_alive_by_query(
    State(tree): State<Arc<Tree>>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let (call, which) = named(&tree, &uri, &headers, body).await?;
    lives::keep_alive(&tree, call, which).await
}

/// `:update` by the query.
pub async fn update_by_query(
    State(tree): State<Arc<Tree>>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let (call, which) = named(&tree, &uri, &headers, body).await?;
    lives::update(&tree, call, which).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_id_stands_in_quotes_or_without() {
        let id = |value: &'static str| {
            let headers = HeaderMap::from_iter([(IDEMPOTENCY_KEY, value.parse().unwrap())]);
            request_id(&headers, &mut Call::default())
        };
        assert_eq!((id("a-1"), id("\"a-1\"")), ("a-1".to_owned(), "a-1".to_owned()));
        let headers = HeaderMap::from_iter([(IDEMPOTENCY_KEY, "\"\"".parse().unwrap())]);
        let mut call = Call::default();
        request_id(&headers, &mut call);
        assert!(call.request(()).is_err());
    }

    #[test]
    fn an_event_goes_to_a_machine_only() {
        let program = v1::Session {
            address: "127.0.0.1:9".to_owned(),
            node_address: "127.0.0.1:8".to_owned(),
            ..Default::default()
        };
        assert_eq!(machine_address(&program).unwrap_err().kind, RefusalKind::InvalidArgument);
        let machine = v1::Session { machine_state: "red".to_owned(), ..program.clone() };
        assert_eq!(machine_address(&machine).unwrap(), program.address);
        let ended = v1::Session { address: String::new(), ..program };
        assert_eq!(machine_address(&ended).unwrap_err().kind, RefusalKind::NotFound);
        let coming = |state: v1::SessionState, reason: v1::Reason| {
            let it = v1::Session { state: state.into(), reason: reason.into(), ..ended.clone() };
            machine_address(&it).unwrap_err().kind
        };
        let none = v1::Reason::Unspecified;
        assert_eq!(coming(v1::SessionState::Pending, none), RefusalKind::InProgress);
        assert_eq!(coming(v1::SessionState::Starting, none), RefusalKind::InProgress);
        let (lost, reopened) = (v1::SessionState::Lost, v1::Reason::Reopening);
        assert_eq!(coming(lost, reopened), RefusalKind::InProgress);
        assert_eq!(coming(lost, v1::Reason::NodeLost), RefusalKind::NotFound);
    }
}
