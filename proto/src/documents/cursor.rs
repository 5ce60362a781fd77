//! Page tokens of lists of documents.

use crate::position::{TokenKind, open_token, seal_token};
use crate::v1;
use crate::wire::{WireError, optional};
use prost::Message;
use rota_messages::DocumentCursor;
use rota_model::{FieldError, Namespace, SlotId};

impl From<&DocumentCursor> for v1::DocumentCursor {
    fn from(cursor: &DocumentCursor) -> Self {
        Self { slot: cursor.slot.0, after: cursor.after.as_ref().map(Into::into) }
    }
}

impl TryFrom<v1::DocumentCursor> for DocumentCursor {
    type Error = WireError;
    fn try_from(cursor: v1::DocumentCursor) -> Result<Self, WireError> {
        Ok(Self { slot: SlotId(cursor.slot), after: optional(cursor.after)? })
    }
}

/// The sum covers these, so a token continues only the list that gave it.
fn list_of(space: &Namespace, class: Option<&str>) -> Vec<u8> {
    [space.as_str(), class.unwrap_or_default()].join("\0").into_bytes()
}

/// The page token that continues the list of a namespace (and of a class, if it is of one).
pub fn page_token(cursor: &DocumentCursor, space: &Namespace, class: Option<&str>) -> String {
    let body = v1::DocumentCursor::from(cursor).encode_to_vec();
    seal_token(TokenKind::Documents, &body, &list_of(space, class))
}

/// The cursor in a page token. Refuses, naming `page_token`, what was not made by [`page_token`]
/// for the same list.
pub fn parse_page_token(
    token: &str,
    space: &Namespace,
    class: Option<&str>,
) -> Result<DocumentCursor, FieldError> {
    let body = open_token(TokenKind::Documents, token, &list_of(space, class))?;
    let garbled = || FieldError::new("page_token", "is garbled");
    let cursor = v1::DocumentCursor::decode(&*body).map_err(|_| garbled())?;
    DocumentCursor::try_from(cursor).map_err(|_| garbled())
}
