//! The document of life cycles beside a session, as owners read and write it; and who handles what fires.

pub(crate) mod retry;
pub(crate) mod settle;

use crate::contents::lives::{beside, managed_in};
use crate::log::replica::Replica;
use crate::managed::retry::{PLACE_BYTES_MAX, takes_retries};
use rota_lifecycle::{LifeItem, Managed};
use rota_messages::{Doc, DocKey, Write};
use rota_model::{FieldError, Handler, SessionKey, SessionRecord, SessionSpec, Stamp};
use std::sync::Arc;

/// The life cycles that an open gave.
pub(crate) fn given(spec: &SessionSpec) -> Vec<LifeItem> {
    let texts = spec.life.iter().flat_map(|it| &it.managed_state);
    texts.filter_map(|it| LifeItem::parse(it).ok()).collect()
}

/// The life cycles of a session that lives, with everything that was appended: those of its document, or those that
/// its open gave, where the document is of earlier lives.
pub(crate) fn managed_of(
    replica: &Replica,
    session: &DocKey,
    record: &SessionRecord,
    now: Stamp,
) -> Managed {
    let held = replica.get(&beside(session, &record.key)).and_then(|it| managed_in(it));
    begun(held, record, now)
}

/// What is held of a session, brought to the chain of lives of its record.
pub(crate) fn begun(held: Option<Managed>, record: &SessionRecord, now: Stamp) -> Managed {
    let origin = record.origin();
    let mut managed = held.unwrap_or_else(|| Managed::new(Stamp::MIN));
    if managed.origin() != origin {
        // They were checked when the session was opened.
        let begins = managed.begin(origin, given(&record.spec), now);
        debug_assert_eq!(begins, Ok(()));
        if begins.is_err() {
            drop(managed.begin(origin, Vec::new(), now));
        }
    }
    managed
}

/// The write that makes a document of life cycles so; it goes when nothing is left of it. Above `floor`.
pub(crate) fn write_of(replica: &Replica, key: &DocKey, managed: &Managed, floor: Stamp) -> Write {
    if managed.has_ended() && managed.is_empty() {
        return Write { key: key.clone(), doc: None };
    }
    let before = replica.get(key).map(|it| &**it);
    let doc = Doc::life_after(before, key.name.clone(), managed, floor);
    Write { key: key.clone(), doc: Some(Arc::new(doc)) }
}

/// Who handles a life cycle. A life goes by the text of its class that it began with: a later text may name an action
/// where this one marks, or mark where the life's own version has an action.
pub(crate) fn handler<'a>(record: &'a SessionRecord, life_cycle: &str) -> Option<&'a Handler> {
    record.lifetime.as_ref()?.handler(life_cycle)
}

/// Whether an event of a life cycle is only marked.
pub(crate) fn is_mark(record: &SessionRecord, life_cycle: &str) -> bool {
    matches!(handler(record, life_cycle), Some(Handler::Mark))
}

/// Refuses items of life cycles that nobody handles, and those whose action no task could try again.
pub(crate) fn check_handlers<'a>(
    session: &SessionKey,
    handler_of: impl Fn(&str) -> Option<&'a Handler>,
    items: impl IntoIterator<Item = &'a LifeItem>,
) -> Vec<FieldError> {
    let nobody = |item: &LifeItem| {
        let (life_cycle, event) = (item.life_cycle(), item.last().event());
        let problem = match handler_of(life_cycle.as_str()) {
            Some(_) if !item.last().can_fire() => return None,
            Some(Handler::Action { .. }) if !takes_retries(session) => {
                return Some(unretried(item));
            }
            Some(handler) if handler.takes(&event) => return None,
            Some(_) => format!("has no program for {event}"),
            None => "neither has a program nor says mark_only".to_owned(),
        };
        let text = format!("{item}: the class {problem} in its life cycle {life_cycle}");
        Some(FieldError::new("managed_state", text))
    };
    items.into_iter().filter_map(nobody).collect()
}

fn unretried(item: &LifeItem) -> FieldError {
    let problem = format!(
        "{item}: the id of the session has a brace out of place, or more than {PLACE_BYTES_MAX} bytes, so no task could \
         try the action again when it fails; take another id"
    );
    FieldError::new("managed_state", problem)
}
