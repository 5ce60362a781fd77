//! `:watch`: changes as server-sent events. Each carries its position as its id, so who comes back with
//! `Last-Event-ID` goes on from there, at any manager.

use super::call::{Call, TIMEOUT, last_with_verb, segments};
use super::error::Failed;
use super::filter::{Within, filter, refused};
use super::shown::Session;
use super::tree::{Answer, Tree};
use super::which::Which;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, Uri};
use axum::response::IntoResponse as _;
use axum::response::sse::{Event, KeepAlive, Sse};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rota_proto::v1;
use rota_proto::v1::sessions_server::Sessions as _;
use serde::Serialize;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio_stream::StreamExt as _;
use tonic::Status;

/// The header with the id of the last event that was seen.
pub const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The same in the query, for who cannot set a header.
const POSITION: &str = "position";

/// Advice to who loses a watch.
pub const BACK_AFTER: Duration = Duration::from_secs(1);

/// How often something is sent that says nothing. What is between a client and a manager mostly bears a minute of
/// silence.
pub const SIGN_OF_LIFE: Duration = Duration::from_secs(10);

/// The name of the event that ends a watch with an error.
pub const REFUSED: &str = "refused";

/// What an event says, as a line of `ringctl session watch -o json`.
#[derive(Serialize)]
struct Line {
    session: Option<Session>,
    snapshot: bool,
    caught_up: bool,
    position: String,
}

fn event(told: Result<v1::WatchResponse, Status>) -> Event {
    let told = match told {
        Ok(told) => told,
        Err(status) => {
            let failed = Failed::from(status).json().to_string();
            return Event::default().event(REFUSED).data(failed);
        }
    };
    let position = URL_SAFE_NO_PAD.encode(&told.position);
    let line = Line {
        session: told.session.map(Session::of),
        snapshot: told.snapshot,
        caught_up: told.caught_up,
        position: position.clone(),
    };
    // The only error is of what is no JSON, which a line always is.
    let Ok(event) = Event::default().json_data(&line) else { return Event::default() };
    if position.is_empty() { event } else { event.id(position) }
}

/// The position that a caller has, if it has one.
fn position(headers: &HeaderMap, call: &mut Call) -> Vec<u8> {
    let header = headers.get(LAST_EVENT_ID).map(|it| it.to_str().unwrap_or("?").to_owned());
    let (name, text) = match (header, call.given(POSITION)) {
        (Some(text), _) => ("Last-Event-ID", text),
        (None, Some(text)) => (POSITION, text),
        (None, None) => return Vec::new(),
    };
    URL_SAFE_NO_PAD.decode(&text).unwrap_or_else(|_| {
        call.wrong(name, "is garbled; it must be the id of an event of a watch");
        Vec::new()
    })
}

async fn watch(
    tree: &Tree,
    headers: &HeaderMap,
    mut call: Call,
    request: v1::WatchRequest,
) -> Answer {
    let position = position(headers, &mut call);
    if !call.all(TIMEOUT).is_empty() {
        call.wrong(TIMEOUT, "is of no use: a watch has no end");
    }
    let request = call.request(v1::WatchRequest { position: position.into(), ..request })?;
    let place = tree.watch_place()?;
    let changes = tree.sessions.watch(request).await.map_err(refused)?.into_inner();
    let first = tokio_stream::once(Event::default().retry(BACK_AFTER));
    let events = first.chain(changes.map(move |told| {
        let _held = &place;
        event(told)
    }));
    let alive = KeepAlive::new().interval(SIGN_OF_LIFE);
    Ok(Sse::new(events.map(Ok::<_, Infallible>)).keep_alive(alive).into_response())
}

async fn of_list(tree: &Tree, uri: &Uri, headers: &HeaderMap, within: Within) -> Answer {
    let mut call = Call::new(uri, headers)?;
    let (filter, _) = filter(&mut call, &within);
    let (filter, r#where) = (Some(filter), call.text("where"));
    let request = v1::WatchRequest { filter, r#where, ..v1::WatchRequest::default() };
    watch(tree, headers, call, request).await
}

/// Of the whole ring.
pub async fn of_ring(State(tree): State<Arc<Tree>>, uri: Uri, headers: HeaderMap) -> Answer {
    of_list(&tree, &uri, &headers, Within::Ring).await
}

/// Of a namespace.
pub async fn of_namespace(State(tree): State<Arc<Tree>>, uri: Uri, headers: HeaderMap) -> Answer {
    let namespace = segments(&uri)?.into_iter().nth(1).unwrap_or_default();
    of_list(&tree, &uri, &headers, Within::Namespace(namespace)).await
}

async fn of_one(tree: &Tree, headers: &HeaderMap, mut call: Call, which: Which) -> Answer {
    let Which { namespace, id } = which;
    // Without an id it would be a watch of all.
    if let Err(mistake) = rota_model::SessionId::check(&id) {
        call.wrong(&mistake.field, mistake.problem);
    }
    let request = v1::WatchRequest { namespace, id, ..v1::WatchRequest::default() };
    watch(tree, headers, call, request).await
}

/// Of one session, by the path, of which the last part without its verb is given.
pub async fn by_path(tree: &Tree, uri: &Uri, headers: &HeaderMap, last: &str) -> Answer {
    let call = Call::new(uri, headers)?;
    of_one(tree, headers, call, Which::of_path(uri, last)?).await
}

/// Of one session, by the query.
pub async fn by_query(State(tree): State<Arc<Tree>>, uri: Uri, headers: HeaderMap) -> Answer {
    let mut call = Call::new(&uri, &headers)?;
    let which = Which::of_query(&mut call);
    of_one(&tree, &headers, call, which).await
}

/// The verb of a path that is one.
pub fn verb(uri: &Uri) -> Option<String> {
    let (last, verb) = last_with_verb(uri, &["watch"]);
    verb.map(|_| last)
}

#[cfg(test)]
mod tests {
    use super::super::call::tests::fields;
    use super::*;

    #[test]
    fn a_position_comes_from_the_header_or_from_the_query() {
        let of = |headers: &HeaderMap, query: &str| {
            let uri = format!("/v1/sessions:watch?{query}").parse().unwrap();
            let mut call = Call::new(&uri, headers).unwrap();
            let position = position(headers, &mut call);
            call.request(()).map(|_| position).map_err(fields)
        };
        let header = HeaderMap::from_iter([(LAST_EVENT_ID, "YQ".parse().unwrap())]);
        assert_eq!(of(&header, "").unwrap(), b"a");
        assert_eq!(of(&header, "position=Yg").unwrap(), b"a", "a client came back by itself");
        assert_eq!(of(&HeaderMap::new(), "position=Yg").unwrap(), b"b");
        assert_eq!(of(&HeaderMap::new(), "").unwrap(), b"");
        assert_eq!(of(&HeaderMap::new(), "position=%21").unwrap_err(), ["position"]);
        let garbled = HeaderMap::from_iter([(LAST_EVENT_ID, "!".parse().unwrap())]);
        assert_eq!(of(&garbled, "").unwrap_err(), ["Last-Event-ID"]);
    }
}
