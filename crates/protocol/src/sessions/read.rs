//! Sessions as they may be shown: committed, or READY over a committed PENDING ([`super::version`]).

use crate::log::at::At;
use crate::log::env::Env;
use crate::sessions::version::told_early;
use rota_messages::documents::{Brief, session_name, session_of};
use rota_messages::{Answer, DocKey, OpResult};
use rota_model::{
    Filter, ListCursor, ListOp, LogPos, Page, Refusal, RefusalKind, Retry, SessionKey,
    SessionRecord, SessionState, SessionView, SlotId,
};
use rota_ring::slot_of_session;
use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::sync::Arc;

/// READY records that are not committed, by session.
type ReadyInTail<'a> = BTreeMap<&'a DocKey, Vec<&'a Arc<SessionRecord>>>;

/// The key of a session's document.
pub(crate) fn key_of(env: &Env, session: &SessionKey) -> DocKey {
    let slot = slot_of_session(session, env.view().m);
    DocKey::new(slot, session_name(session))
}

/// A session as it may be shown: committed, or READY over a committed PENDING or STARTING
/// (which any later owner drives to the same instance, and whose open may be answered already).
pub(crate) fn visible(led: &At<'_>, key: &DocKey) -> Option<Arc<SessionRecord>> {
    let committed = led.log.replica.docs.get(key)?.session()?;
    let Some(upto) = may_be_ready_by(led, key, committed) else {
        return Some(committed.clone());
    };
    let tail = led.log.replica.tail.entries.iter().take_while(|entry| entry.at <= upto);
    let writes = tail.flat_map(|entry| entry.writes.iter()).filter(|it| it.key == *key);
    Some(shown(committed, writes.filter_map(|it| it.doc.as_ref()?.session())))
}

/// The same of one of many sessions: what of them the tail has as READY is looked up once.
pub(crate) fn visible_among<'a>(
    led: &At<'_>,
    key: &DocKey,
    ready: &LazyCell<ReadyInTail<'a>, impl FnOnce() -> ReadyInTail<'a>>,
) -> Option<Arc<SessionRecord>> {
    let committed = led.log.replica.docs.get(key)?.session()?;
    match may_be_ready_by(led, key, committed) {
        None => Some(committed.clone()),
        Some(_) => Some(shown(committed, ready.get(key).into_iter().flatten().copied())),
    }
}

/// Up to where the tail may have a session as READY of which the committed record does not say so.
pub(crate) fn may_be_ready_by(
    led: &At<'_>,
    key: &DocKey,
    committed: &SessionRecord,
) -> Option<LogPos> {
    let is_begun = |it: SessionState| matches!(it, SessionState::Pending | SessionState::Starting);
    let (at, latest) = led.log.replica.latest.get(key).filter(|_| is_begun(committed.state))?;
    let latest = latest.as_ref().and_then(|doc| doc.session());
    // No attempt goes back from READY.
    let is_starting =
        |it: &Arc<SessionRecord>| is_begun(it.state) && it.token() == committed.token();
    (!latest.is_some_and(is_starting)).then_some(*at)
}

/// READY records of the tail, oldest first.
pub(crate) fn ready_in_tail<'a>(led: &'a At<'_>) -> ReadyInTail<'a> {
    let mut ready = ReadyInTail::new();
    for write in led.log.replica.tail.entries.iter().flat_map(|entry| entry.writes.iter()) {
        if let Some(doc) = &write.doc
            && doc.brief().is_some_and(|it| it.state == SessionState::Ready)
            && let Some(record) = doc.session()
        {
            ready.entry(&write.key).or_default().push(record);
        }
    }
    ready
}

pub(crate) fn view_of(led: &At<'_>, record: impl Into<Arc<SessionRecord>>) -> SessionView {
    let record = record.into();
    let slot = slot_of_session(&record.key, led.env.view().m);
    let failed_actions = led.log.replica.counts.lives.failed_of(slot, &record);
    let (owner, epoch) = (led.env.me.number, led.env.epoch());
    SessionView { record, owner, epoch, node: None, failed_actions }
}

/// The same with how this owner stands with the session's node. It asks nobody for that.
pub(crate) fn view_at_node(led: &At<'_>, record: impl Into<Arc<SessionRecord>>) -> SessionView {
    let view = view_of(led, record);
    let at = view.record.placement.as_ref().filter(|_| !view.record.state.is_ended());
    let owns_ms = led.lead.since_ms;
    let now = led.env.now.mono_ms;
    let node = at.and_then(|it| led.env.nodes.contact(&it.node, it.boot, owns_ms, now));
    SessionView { node, ..view }
}

pub(crate) fn read(led: &At<'_>, session: &SessionKey, stale: bool) -> OpResult {
    match visible(led, &key_of(led.env, session)) {
        Some(record) => Ok(Answer::Got { session: view_at_node(led, record), stale }),
        None => Err(not_found(session)),
    }
}

/// One page of the sessions here, in order of (slot, key). Who accepts a stale one gets it at
/// once; everybody else only after a confirm round.
pub(crate) fn page(led: &At<'_>, list: &ListOp) -> Page {
    let m = led.env.view().m;
    // The partition's slots from the cursor's on, up to where the ring's order leaves it.
    let slot = list.from.slot;
    let intervals = led.log.range.intervals(m);
    let interval = intervals.iter().find(|(a, b)| *a <= slot && slot <= *b);
    let last = interval.map_or(slot, |(_, last)| *last);
    let (sessions, next) = look(led, &list.from, last, &list.filter, list.limit);
    let after = || (last.0 + 1 < m).then(|| ListCursor { slot: SlotId(last.0 + 1), after: None });
    Page { sessions, next: next.or_else(after), stale: list.stale_ok }
}

/// The sessions after `from`, up to slot `last`, that pass the filter; and where to go on, unless
/// all were looked at. A bounded look: it may find nothing and have to go on.
pub(crate) fn look(
    led: &At<'_>,
    from: &ListCursor,
    last: SlotId,
    filter: &Filter,
    limit: u32,
) -> (Vec<SessionView>, Option<ListCursor>) {
    use std::ops::Bound::{Excluded, Included, Unbounded};
    let sizes = &led.env.config.sizes;
    let limit = limit.clamp(1, sizes.page_sessions) as usize;
    let lower = match &from.after {
        Some(key) => Excluded(DocKey::new(from.slot, session_name(key))),
        None => Included(DocKey::first_of(from.slot)),
    };
    let docs = led.log.replica.docs.range((lower, Unbounded));
    let docs = docs.take_while(|(key, _)| key.slot <= last);
    let ready = LazyCell::new(|| ready_in_tail(led));
    let (mut sessions, mut bytes, mut slot) = (Vec::new(), 0, from.slot);
    for (looked_at, (key, doc)) in (1..).zip(docs) {
        // A place between two documents of applications in one slot has no name, so this may stop
        // at a session and between two slots only.
        if looked_at > sizes.page_looked_at && slot < key.slot {
            return (sessions, Some(ListCursor { slot: key.slot, after: None }));
        }
        slot = key.slot;
        let Some(brief) = doc.brief() else { continue };
        let shown = may_pass(filter, brief).then(|| visible_among(led, key, &ready)).flatten();
        let passing = shown.filter(|record| filter.passes(record));
        if let Some(record) = passing {
            bytes += record.bytes();
            sessions.push(view_of(led, record.clone()));
        }
        let is_full = sessions.len() == limit || bytes >= sizes.message_bytes;
        if is_full || looked_at >= sizes.page_looked_at {
            let after = session_of(&key.name).expect("the names of its documents were checked");
            return (sessions, Some(ListCursor { slot, after: Some(after) }));
        }
    }
    (sessions, None)
}

/// What may be shown of a session: one of later records of it, oldest first, or the committed one.
fn shown<'a>(
    committed: &Arc<SessionRecord>,
    mut later: impl Iterator<Item = &'a Arc<SessionRecord>>,
) -> Arc<SessionRecord> {
    later.find_map(|it| told_early(committed, it)).unwrap_or_else(|| committed.clone())
}

/// Whether a record may pass a filter, as far as its brief tells: those that cannot need not be made
/// from their bytes. What is still being opened may be shown in a later state than its brief has.
fn may_pass(filter: &Filter, brief: &Brief) -> bool {
    if matches!(brief.state, SessionState::Pending | SessionState::Starting) {
        return true;
    }
    let is_there = |node| brief.at.as_ref().is_some_and(|(at, _)| at == node);
    (filter.states.is_empty() || filter.states.contains(&brief.state))
        && filter.node.as_ref().is_none_or(is_there)
}

/// Nothing is known of that session.
pub(crate) fn not_found(session: &SessionKey) -> Refusal {
    let text = format!("there is no session {session}");
    Refusal::new(RefusalKind::NotFound, Retry::WhenChanged, text)
}
