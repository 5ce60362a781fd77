//! What clients get for their requests, and how they read it.

use super::cursor::page_token;
use super::document::stamp;
use super::request::List;
use super::{DocumentCursor, UPDATES_BYTES_MAX};
use crate::v1;
use crate::wire::{WireError, convert, each, named};
use bytes::Bytes;
use prost::Message;
use rota_docstore::{Answer, Body, DocName, Exception, FieldError, JsonText, Update, Volumes};

impl From<&Head> for v1::DocumentHead {
    fn from(head: &Head) -> Self {
        Self {
            name: Some((&head.name).into()),
            ctime: head.ctime.as_u64(),
            version: head.version.as_u64(),
            v1: head.volumes.v1,
            v2: head.volumes.v2,
        }
    }
}

impl TryFrom<v1::DocumentHead> for Head {
    type Error = WireError;
    fn try_from(head: v1::DocumentHead) -> Result<Self, WireError> {
        Ok(Self {
            name: convert("Head.name", head.name)?,
            ctime: stamp("Head.ctime", head.ctime)?,
            version: stamp("Head.version", head.version)?,
            volumes: Volumes { v1: head.v1, v2: head.v2 },
        })
    }
}

pub use rota_protocol::DocumentHead as Head;

/// Updates for the wire: the first ones that fit into [`UPDATES_BYTES_MAX`], the first one in any
/// case if `one_at_least`.
fn fitting(updates: &[(DocName, Update)], one_at_least: bool) -> Vec<v1::DocumentUpdate> {
    let mut room = UPDATES_BYTES_MAX;
    let mut fitting = Vec::with_capacity(updates.len());
    for (name, update) in updates {
        let update = v1::DocumentUpdate::from((name, update));
        let rest = room.checked_sub(update.encoded_len());
        if rest.is_none() && !(one_at_least && fitting.is_empty()) {
            break;
        }
        room = rest.unwrap_or(0);
        fitting.push(update);
    }
    fitting
}

/// The response to an operation.
pub fn operate_response(answer: &Answer) -> v1::OperateResponse {
    use v1::operate_response::Body as Wire;
    let body = match &answer.body {
        Body::Nothing => None,
        Body::Json(text) => Some(Wire::Json(text.as_str().into())),
        Body::Binary { mime, bytes } => {
            let (mime, bytes) = (mime.to_string(), Bytes::copy_from_slice(bytes));
            Some(Wire::Binary(v1::BinaryBody { mime, bytes }))
        }
    };
    let updates = fitting(&answer.updates, false);
    v1::OperateResponse { version: answer.version.as_u64(), body, updates }
}

/// Reads the response to an operation.
pub fn operated(response: v1::OperateResponse) -> Result<Answer, WireError> {
    use v1::operate_response::Body as Wire;
    let body = match response.body {
        None => Body::Nothing,
        Some(Wire::Json(text)) => {
            Body::Json(named("OperateResponse.json", JsonText::parse(&text))?)
        }
        Some(Wire::Binary(it)) => {
            let wrong = |it: Exception| FieldError::new("binary", it.details().message.clone());
            let body = Body::binary(&it.mime, &it.bytes[..]).map_err(wrong);
            named("OperateResponse.binary", body)?
        }
    };
    let version = stamp("OperateResponse.version", response.version)?;
    Ok(Answer { version, body, updates: each(response.updates)? })
}

/// The response to a synchronisation.
pub fn sync_response(updates: &[(DocName, Update)]) -> v1::SyncResponse {
    v1::SyncResponse { updates: fitting(updates, true) }
}

/// Reads the response to a synchronisation.
pub fn synced(response: v1::SyncResponse) -> Result<Vec<(DocName, Update)>, WireError> {
    each(response.updates)
}

/// The response to a list: a page, and where the next one begins.
pub fn list_response(
    page: &[Head],
    next: Option<&DocumentCursor>,
    list: &List,
) -> v1::ListDocumentsResponse {
    let token = |it| page_token(it, &list.space, list.class.as_deref());
    v1::ListDocumentsResponse {
        documents: page.iter().map(Into::into).collect(),
        next_page_token: next.map_or_else(String::new, token),
    }
}

/// Reads the response to a list: the page, and the token of the next one; empty for none.
pub fn listed(response: v1::ListDocumentsResponse) -> Result<(Vec<Head>, String), WireError> {
    Ok((each(response.documents)?, response.next_page_token))
}
