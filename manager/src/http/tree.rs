//! What the calls of the tree of resources need, what they come to, and how many lists and watches there may be.

use super::body::BODIES_KIB_MAX;
use super::error::Failed;
use crate::rpc::content::ContentService;
use crate::rpc::documents::DocumentsService;
use crate::rpc::operator::OperatorService;
use crate::rpc::pools::PoolsService;
use crate::rpc::tasks::TasksService;
use crate::rpc::{SessionsService, Shared};
use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use rota_model::{ClusterName, FieldError, ManagerNumber, Refusal, RefusalKind, Retry};
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Most lists that are made, or sent and not read yet: each may have some 2 MiB. Too low: lists wait for readers
/// that are slow. Too high: those fill the memory.
const LISTS_MAX: usize = 32;

/// How long a list may wait for its place, and what is advised then.
const PLACE_PATIENCE: Duration = Duration::from_secs(2);
const LIST_RETRY_MS: u64 = 500;

/// Most watches over HTTP: each has a connection for as long as it lasts, and a quarter of all connections is
/// enough. Too low: watchers are refused. Too high: they leave no connection for a scraper.
const WATCHES_MAX: usize = 128;

/// Advice to who finds no place for a watch, in milliseconds.
const WATCH_RETRY_MS: u64 = 1_000;

/// What the calls of the tree need.
pub struct Tree {
    /// What the services share.
    pub shared: Arc<Shared>,
    /// The services, which carry everything out.
    pub sessions: SessionsService,
    /// The same of operators.
    pub operator: OperatorService,
    /// The same of pools.
    pub pools: PoolsService,
    /// The same of tasks.
    pub tasks: TasksService,
    /// The same of documents.
    pub documents: DocumentsService,
    /// The same of content.
    pub content: ContentService,
    lists: Arc<Semaphore>,
    /// Room for bodies that are being read, in KiB.
    pub bodies: Semaphore,
    /// Places of watches.
    pub watches: Arc<Semaphore>,
}

/// What a call comes to.
pub type Answer = Result<Response, Failed>;

/// A place of a list. It is free again when the list was written to its connection, or nobody reads it any more.
pub struct ListPlace(OwnedSemaphorePermit);

/// A list on its way, with its place.
struct Held {
    text: Vec<u8>,
    _place: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

impl ListPlace {
    /// The answer with that list.
    pub fn holds(self, list: &impl Serialize) -> Answer {
        let text = serde_json::to_vec(list).map_err(|error| {
            let text = format!("the list is no JSON: {error}");
            Refusal::new(RefusalKind::Internal, Retry::Never, text)
        })?;
        // Whoever writes it to the connection drops it then.
        let body = Body::from(Bytes::from_owner(Held { text, _place: self.0 }));
        let kind = [(header::CONTENT_TYPE, "application/json")];
        Ok((kind, body).into_response())
    }
}

impl Tree {
    /// The tree over what the services share.
    pub fn new(shared: Arc<Shared>, cluster: ClusterName, number: ManagerNumber) -> Self {
        Self {
            sessions: SessionsService { shared: shared.clone() },
            operator: OperatorService { shared: shared.clone(), cluster, number },
            pools: PoolsService { shared: shared.clone() },
            tasks: TasksService { shared: shared.clone() },
            documents: DocumentsService::new(shared.clone()),
            content: ContentService { shared: shared.clone() },
            lists: Arc::new(Semaphore::new(LISTS_MAX)),
            bodies: Semaphore::new(BODIES_KIB_MAX),
            watches: Arc::new(Semaphore::new(WATCHES_MAX)),
            shared,
        }
    }

    /// Waits for a place of a list.
    pub async fn place(&self) -> Result<ListPlace, Failed> {
        let place = timeout(PLACE_PATIENCE, self.lists.clone().acquire_owned()).await;
        let place = place.ok().and_then(Result::ok).ok_or_else(|| {
            let text = format!("{LISTS_MAX} lists are made or not read yet, the limit");
            Refusal::new(RefusalKind::Overloaded, Retry::AfterMs(LIST_RETRY_MS), text)
        })?;
        Ok(ListPlace(place))
    }

    /// A place of a watch.
    pub fn watch_place(&self) -> Result<OwnedSemaphorePermit, Failed> {
        self.watches.clone().try_acquire_owned().map_err(|_| {
            let text =
                format!("{WATCHES_MAX} watches stand over HTTP, the limit; ask another manager");
            Refusal::new(RefusalKind::Overloaded, Retry::AfterMs(WATCH_RETRY_MS), text).into()
        })
    }
}

/// The refusal of a part of a path that leads to nothing.
pub fn missing(kind: &str, part: &str, list: &str) -> Failed {
    let text = format!("there is no {kind} {part:?}; GET {list} shows those that are there");
    let refused = Refusal::new(RefusalKind::NotFound, Retry::WhenChanged, text);
    Refusal { fields: vec![FieldError::new(kind, "is not there")], ..refused }.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::to_bytes;

    #[tokio::test]
    async fn a_list_keeps_its_place_until_it_was_read_or_nobody_reads_it() {
        let lists = Arc::new(Semaphore::new(1));
        for is_read in [true, false] {
            let place = ListPlace(lists.clone().try_acquire_owned().unwrap());
            let answer = place.holds(&["a", "b"]).unwrap_or_else(|it| panic!("{it:?}"));
            assert_eq!(lists.available_permits(), 0);
            if is_read {
                let read = to_bytes(answer.into_body(), 100).await.unwrap();
                assert_eq!(read, "[\"a\",\"b\"]");
            } else {
                drop(answer);
            }
            assert_eq!(lists.available_permits(), 1, "{is_read}");
        }
    }
}
