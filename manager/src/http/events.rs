//! `/v1/events`: what happened lately at this manager, as a list, and as server-sent events.

use super::call::{Call, TIMEOUT};
use super::error::Failed;
use super::tree::{Answer, Tree};
use super::watch::{BACK_AFTER, LAST_EVENT_ID, REFUSED, SIGN_OF_LIFE};
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::IntoResponse as _;
use axum::response::sse::{Event, KeepAlive, Sse};
use rota_model::{Refusal, RefusalKind, Retry};
use rota_proto::v1;
use rota_proto::v1::operator_server::Operator as _;
use serde::Serialize;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

/// How many are told where the query does not say.
const LAST_DEFAULT: u32 = 500;

/// Events that wait for their reader.
const AHEAD: usize = 64;

/// The event by which a reader learns that some are missing before the next one.
const MISSED: &str = "missed";

/// What happened.
#[derive(Serialize)]
struct Happened {
    at: u64,
    manager: u32,
    kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    life: Option<u64>,
    #[serde(skip_serializing_if = "String::is_empty")]
    class: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    node: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    partition: Option<u32>,
    #[serde(skip_serializing_if = "String::is_empty")]
    text: String,
    position: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<u64>,
}

impl From<v1::Event> for Happened {
    fn from(it: v1::Event) -> Self {
        let v1::Event { position, at, manager, kind, namespace, id, life, class, .. } = it;
        let v1::Event { node, reason, partition, text, version, .. } = it;
        let life = Some(life).filter(|it| *it > 0);
        let version = Some(version).filter(|it| *it > 0);
        Self {
            at,
            manager,
            kind,
            namespace,
            id,
            life,
            class,
            node,
            reason,
            partition,
            text,
            position,
            version,
        }
    }
}

#[derive(Serialize)]
struct All {
    events: Vec<Happened>,
    /// Some before these are not kept any more.
    missed: bool,
    /// Since when this run of the manager remembers.
    since: u64,
    /// How many of its events it keeps no more.
    dropped: u64,
    /// Where to go on, with `after`.
    position: String,
    links: Value,
}

fn asked(call: &mut Call, after: String) -> v1::EventsRequest {
    let namespace = call.text("namespace");
    let id = call.text("id");
    let kinds = call.all("kind");
    v1::EventsRequest { after, namespace, id, kinds, ..Default::default() }
}

/// What is kept, the newest of it.
pub async fn list(State(tree): State<Arc<Tree>>, uri: Uri, headers: HeaderMap) -> Answer {
    let mut call = Call::new(&uri, &headers)?;
    let after = call.text("after");
    // What follows a position is told whole, so that nothing is passed over.
    let last = if after.is_empty() { LAST_DEFAULT } else { 0 };
    let last = call.number("last").unwrap_or(last);
    let request = v1::EventsRequest { last, ..asked(&mut call, after) };
    let place = tree.place().await?;
    let mut told = tree.operator.events(call.request(request)?).await?.into_inner();
    let (mut events, mut missed, mut position) = (Vec::new(), false, String::new());
    let (mut is_whole, mut since, mut dropped) = (false, 0, 0);
    while let Some(page) = told.next().await {
        let page = page?;
        (missed, is_whole) = (missed || page.missed, is_whole || page.caught_up);
        (position, since, dropped) = (page.position, page.since, page.dropped);
        events.extend(page.events.into_iter().map(Happened::from));
    }
    if !is_whole {
        let text = "this manager stopped while it told its events";
        return Err(Refusal::new(RefusalKind::NotServing, Retry::Now, text).into());
    }
    let links = json!({"self": "/v1/events", "watch": "/v1/events:watch"});
    place.holds(&All { events, missed, since, dropped, position, links })
}

/// One page as events of the stream.
fn lines(told: Result<v1::EventsResponse, Status>) -> Vec<Event> {
    let page = match told {
        Ok(page) => page,
        Err(status) => {
            let failed = Failed::from(status).json().to_string();
            return vec![Event::default().event(REFUSED).data(failed)];
        }
    };
    let missed = page.missed.then(|| Event::default().event(MISSED).data("{}"));
    let events = page.events.into_iter().filter_map(|happened| {
        let position = happened.position.clone();
        let event = Event::default().json_data(Happened::from(happened)).ok()?;
        Some(event.id(position))
    });
    missed.into_iter().chain(events).collect()
}

/// What is kept after a position, and what happens from then on.
pub async fn watch(State(tree): State<Arc<Tree>>, uri: Uri, headers: HeaderMap) -> Answer {
    let mut call = Call::new(&uri, &headers)?;
    let header = headers.get(LAST_EVENT_ID).map(|it| it.to_str().unwrap_or("?").to_owned());
    let query = call.text("after");
    if !call.all(TIMEOUT).is_empty() {
        call.wrong(TIMEOUT, "is of no use: a watch has no end");
    }
    let request = v1::EventsRequest { follow: true, ..asked(&mut call, header.unwrap_or(query)) };
    let request = call.request(request)?;
    let place = tree.watch_place()?;
    let mut told = tree.operator.events(request).await?.into_inner();
    let (out, events) = mpsc::channel(AHEAD);
    tokio::spawn(async move {
        let _place = place;
        while let Some(page) = tokio::select! {
            page = told.next() => page,
            () = out.closed() => None,
        } {
            for event in lines(page) {
                if out.send(event).await.is_err() {
                    return;
                }
            }
        }
    });
    let first = tokio_stream::once(Event::default().retry(BACK_AFTER));
    let events = first.chain(ReceiverStream::new(events));
    let alive = KeepAlive::new().interval(SIGN_OF_LIFE);
    Ok(Sse::new(events.map(Ok::<_, Infallible>)).keep_alive(alive).into_response())
}
