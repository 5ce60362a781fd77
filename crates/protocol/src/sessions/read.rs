//! Sessions as they may be shown: committed, or READY over a committed PENDING ([`super::version`]).

use crate::log::env::Env;
use crate::partition::state::Partition;
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

impl Partition {
    /// The key of a session's document.
    pub fn key_of(env: &Env, session: &SessionKey) -> DocKey {
        let slot = slot_of_session(session, env.view().m);
        DocKey::new(slot, session_name(session))
    }

    /// A session as it may be shown: committed, or READY over a committed PENDING or STARTING
    /// (which any later owner drives to the same instance, and whose open may be answered already).
    pub fn visible(&self, key: &DocKey) -> Option<Arc<SessionRecord>> {
        let committed = self.replica.docs.get(key)?.session()?;
        let Some(upto) = self.may_be_ready_by(key, committed) else {
            return Some(committed.clone());
        };
        let tail = self.replica.tail.entries.iter().take_while(|entry| entry.at <= upto);
        let writes = tail.flat_map(|entry| entry.writes.iter()).filter(|it| it.key == *key);
        Some(shown(committed, writes.filter_map(|it| it.doc.as_ref()?.session())))
    }

    /// The same of one of many sessions: what of them the tail has as READY is looked up once.
    fn visible_among<'a>(
        &'a self,
        key: &DocKey,
        ready: &LazyCell<ReadyInTail<'a>, impl FnOnce() -> ReadyInTail<'a>>,
    ) -> Option<Arc<SessionRecord>> {
        let committed = self.replica.docs.get(key)?.session()?;
        match self.may_be_ready_by(key, committed) {
            None => Some(committed.clone()),
            Some(_) => Some(shown(committed, ready.get(key).into_iter().flatten().copied())),
        }
    }

    /// Up to where the tail may have a session as READY of which the committed record does not say so.
    fn may_be_ready_by(&self, key: &DocKey, committed: &SessionRecord) -> Option<LogPos> {
        let is_begun =
            |it: SessionState| matches!(it, SessionState::Pending | SessionState::Starting);
        let (at, latest) = self.replica.latest.get(key).filter(|_| is_begun(committed.state))?;
        let latest = latest.as_ref().and_then(|doc| doc.session());
        // No attempt goes back from READY.
        let is_starting =
            |it: &Arc<SessionRecord>| is_begun(it.state) && it.token() == committed.token();
        (!latest.is_some_and(is_starting)).then_some(*at)
    }

    /// READY records of the tail, oldest first.
    fn ready_in_tail(&self) -> ReadyInTail<'_> {
        let mut ready = ReadyInTail::new();
        for write in self.replica.tail.entries.iter().flat_map(|entry| entry.writes.iter()) {
            if let Some(doc) = &write.doc
                && doc.brief().is_some_and(|it| it.state == SessionState::Ready)
                && let Some(record) = doc.session()
            {
                ready.entry(&write.key).or_default().push(record);
            }
        }
        ready
    }

    pub fn view_of(&self, env: &Env, record: impl Into<Arc<SessionRecord>>) -> SessionView {
        let record = record.into();
        SessionView { record, owner: env.me.number, epoch: env.epoch(), node: None }
    }

    /// The same with how this owner stands with the session's node. It asks nobody for that.
    pub fn view_at_node(&self, env: &Env, record: impl Into<Arc<SessionRecord>>) -> SessionView {
        let view = self.view_of(env, record);
        let at = view.record.placement.as_ref().filter(|_| !view.record.state.is_ended());
        let owns_ms = self.leading.as_ref().map_or(env.now.mono_ms, |it| it.lead.since_ms);
        let now = env.now.mono_ms;
        let node = at.and_then(|it| env.nodes.contact(&it.node, it.boot, owns_ms, now));
        SessionView { node, ..view }
    }

    pub fn read(&self, env: &Env, session: &SessionKey, stale: bool) -> OpResult {
        match self.visible(&Self::key_of(env, session)) {
            Some(record) => Ok(Answer::Got { session: self.view_at_node(env, record), stale }),
            None => Err(not_found(session)),
        }
    }

    /// One page of the sessions here, in order of (slot, key). Who accepts a stale one gets it at
    /// once; everybody else only after a confirm round.
    pub fn page(&self, env: &Env, list: &ListOp) -> Page {
        let m = env.view().m;
        // The partition's slots from the cursor's on, up to where the ring's order leaves it.
        let slot = list.from.slot;
        let intervals = self.range.intervals(m);
        let interval = intervals.iter().find(|(a, b)| *a <= slot && slot <= *b);
        let last = interval.map_or(slot, |(_, last)| *last);
        let (sessions, next) = self.look(env, &list.from, last, &list.filter, list.limit);
        let after =
            || (last.0 + 1 < m).then(|| ListCursor { slot: SlotId(last.0 + 1), after: None });
        Page { sessions, next: next.or_else(after), stale: list.stale_ok }
    }

    /// The sessions after `from`, up to slot `last`, that pass the filter; and where to go on, unless
    /// all were looked at. A bounded look: it may find nothing and have to go on.
    pub(crate) fn look(
        &self,
        env: &Env,
        from: &ListCursor,
        last: SlotId,
        filter: &Filter,
        limit: u32,
    ) -> (Vec<SessionView>, Option<ListCursor>) {
        use std::ops::Bound::{Excluded, Included, Unbounded};
        let sizes = &env.config.sizes;
        let limit = limit.clamp(1, sizes.page_sessions) as usize;
        let lower = match &from.after {
            Some(key) => Excluded(DocKey::new(from.slot, session_name(key))),
            None => Included(DocKey::first_of(from.slot)),
        };
        let docs = self.replica.docs.range((lower, Unbounded));
        let docs = docs.take_while(|(key, _)| key.slot <= last);
        let ready = LazyCell::new(|| self.ready_in_tail());
        let (mut sessions, mut bytes, mut slot) = (Vec::new(), 0, from.slot);
        for (looked_at, (key, doc)) in (1..).zip(docs) {
            // A place between two documents of applications in one slot has no name, so this may stop
            // at a session and between two slots only.
            if looked_at > sizes.page_looked_at && slot < key.slot {
                return (sessions, Some(ListCursor { slot: key.slot, after: None }));
            }
            slot = key.slot;
            let Some(brief) = doc.brief() else { continue };
            let shown = may_pass(filter, brief).then(|| self.visible_among(key, &ready)).flatten();
            let passing = shown.filter(|record| filter.passes(record));
            if let Some(record) = passing {
                bytes += record.bytes();
                sessions.push(self.view_of(env, record.clone()));
            }
            let is_full = sessions.len() == limit || bytes >= sizes.message_bytes;
            if is_full || looked_at >= sizes.page_looked_at {
                let after = session_of(&key.name).expect("the names of its documents were checked");
                return (sessions, Some(ListCursor { slot, after: Some(after) }));
            }
        }
        (sessions, None)
    }
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
