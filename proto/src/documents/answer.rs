//! What clients get for their requests, and how they read it.

use super::cursor::page_token;
use super::document::{life, read_life, stamp};
use super::request::List;
use super::{DocumentCursor, UPDATES_BYTES_MAX};
use crate::v1;
use crate::wire::{WireError, convert, each, named};
use bytes::Bytes;
use prost::Message;
use rota_docstore::{
    Answer, Body, DocName, Exception, FieldError, JsonText, Stamp, Update, Volumes,
};

impl From<&Head> for v1::DocumentHead {
    fn from(head: &Head) -> Self {
        Self {
            name: Some((&head.name).into()),
            ctime: head.ctime.as_u64(),
            version: head.version.as_u64(),
            item_bytes: head.volumes.item_bytes,
            attachment_bytes: head.volumes.attachment_bytes,
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
            volumes: Volumes {
                item_bytes: head.item_bytes,
                attachment_bytes: head.attachment_bytes,
            },
        })
    }
}

pub use rota_messages::DocumentHead as Head;

/// Updates for the wire: the first ones that fit into so many bytes.
fn fitting(
    updates: impl IntoIterator<Item = v1::DocumentUpdate>,
    mut room: usize,
) -> Vec<v1::DocumentUpdate> {
    let fits = |update: &v1::DocumentUpdate| {
        let rest = room.checked_sub(update.encoded_len() + AROUND_BYTES);
        room = rest.unwrap_or(room);
        rest.is_some()
    };
    updates.into_iter().take_while(fits).collect()
}

/// Most bytes of an operation's body and of updates beside it: the largest body leaves room for some.
const OPERATED_BYTES_MAX: usize = UPDATES_BYTES_MAX + 512 * 1024;
const _: () = assert!(OPERATED_BYTES_MAX >= rota_docstore::attempt::BODY_BYTES_MAX);

/// What an update takes beside its own bytes: tag and length.
const AROUND_BYTES: usize = 8;

/// An update, or the name of one that is too large for an answer.
fn told((name, update): &(DocName, Update)) -> v1::DocumentUpdate {
    use v1::document_update::Update as Wire;
    let (ctime, version) = match update {
        Update::Full(document) => (document.ctime(), document.version()),
        Update::Changes(changes) => (changes.ctime(), changes.version()),
        Update::Unchanged { ctime, version }
        | Update::Deleted { ctime, version }
        | Update::SourceBehind { ctime, version } => (*ctime, *version),
        Update::Absent { as_of } => (*as_of, *as_of),
    };
    let told = v1::DocumentUpdate::from((name, update));
    if told.encoded_len() + AROUND_BYTES <= UPDATES_BYTES_MAX {
        return told;
    }
    let too_large = Some(Wire::TooLarge(life(ctime, version)));
    v1::DocumentUpdate { name: Some(name.into()), update: too_large }
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
    let taken = match &answer.body {
        Body::Nothing => 0,
        Body::Json(text) => text.as_str().len(),
        Body::Binary { bytes, .. } => bytes.len(),
    };
    let room = OPERATED_BYTES_MAX.saturating_sub(taken).min(UPDATES_BYTES_MAX);
    let updates = answer.updates.iter().map(|(name, update)| (name, update).into());
    let updates = fitting(updates, room);
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
///
/// The first ones that fit. What would not fit even alone is told as too large.
pub fn sync_response(updates: &[(DocName, Update)]) -> v1::SyncResponse {
    v1::SyncResponse { updates: fitting(updates.iter().map(told), UPDATES_BYTES_MAX) }
}

/// What an answer to a synchronisation says of one document.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Told {
    /// How the copy gets up to date.
    Update(Update),
    /// That takes more than an answer may have: export the document.
    TooLarge {
        /// The life that the source has.
        ctime: Stamp,
        /// Its version.
        version: Stamp,
    },
}

impl TryFrom<v1::DocumentUpdate> for (DocName, Told) {
    type Error = WireError;
    fn try_from(update: v1::DocumentUpdate) -> Result<Self, WireError> {
        use v1::document_update::Update as Wire;
        if let Some(Wire::TooLarge(it)) = &update.update {
            let (ctime, version) = read_life(it)?;
            let name = convert("DocumentUpdate.name", update.name)?;
            return Ok((name, Told::TooLarge { ctime, version }));
        }
        let (name, update) = update.try_into()?;
        Ok((name, Told::Update(update)))
    }
}

/// Reads the response to a synchronisation.
pub fn synced(response: v1::SyncResponse) -> Result<Vec<(DocName, Told)>, WireError> {
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
