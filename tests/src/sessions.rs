//! Requests about sessions in few words, and what is read most often of the answers.

use crate::condition::{PATIENCE, eventually};
use rota_client::{CallError, Client, v1};
use std::time::Duration;

/// How long one call may take, take-overs included.
pub const CALL: Duration = Duration::from_secs(30);

/// Opens a session of that class in the default namespace and pool.
pub fn open(id: &str, class: &str) -> v1::OpenRequest {
    v1::OpenRequest { id: id.to_owned(), class: class.to_owned(), ..Default::default() }
}

/// Closes a session of the default namespace, whichever life.
pub fn close(id: &str) -> v1::CloseRequest {
    v1::CloseRequest { id: id.to_owned(), ..Default::default() }
}

/// Reads a session of the default namespace.
pub fn get(id: &str) -> v1::GetRequest {
    v1::GetRequest { id: id.to_owned(), ..Default::default() }
}

/// Opens a session and expects it.
pub async fn opened(client: &Client, id: &str, class: &str) -> v1::Session {
    let answer = client.open(open(id, class), CALL).await;
    let answer = answer.unwrap_or_else(|error| panic!("open {id}: {error:?}"));
    answer.session.expect("the client checks it")
}

/// Reads a session.
pub async fn read(client: &Client, id: &str) -> Result<v1::Session, CallError> {
    let answer = client.get(get(id), CALL).await?;
    Ok(answer.session.expect("the client checks it"))
}

/// Every session of the ring.
pub async fn listed(client: &Client, filter: v1::Filter) -> Vec<v1::Session> {
    let request = v1::ListRequest { filter: Some(filter), ..Default::default() };
    let all = client.list_all(request, CALL).await;
    all.unwrap_or_else(|error| panic!("list: {error:?}")).sessions
}

/// Waits until a session is in this state, and gives it.
pub async fn becomes(client: &Client, id: &str, state: v1::SessionState) -> v1::Session {
    eventually(&format!("{id} becomes {}", state.as_str_name()), PATIENCE, async || {
        let session = read(client, id).await.map_err(|error| format!("{error:?}"))?;
        if session.state() == state { Ok(session) } else { Err(format!("{session:?}")) }
    })
    .await
}
