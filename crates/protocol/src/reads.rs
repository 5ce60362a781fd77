//! Linearizable reads: a confirm round with the other copies, shared by all that wait; a lone copy
//! reads the config store. Only committed documents are shown, and a READY that may be told early
//! ([`crate::version`]): by a read, a list, the snapshot of a watch.

use crate::entry::Origin;
use crate::env::{Env, ReadFor};
use crate::io::Transition;
use crate::judge::Renewal;
use crate::leading::Phase;
use crate::partition::Partition;
use crate::version::told_early;
use rota_messages::documents::{Brief, session_name, session_of};
use rota_messages::{Answer, DocKey, Op, OpResult};
use rota_model::{
    Filter, ListCursor, ListOp, LogPos, ManagerNumber, Page, PullOp, Pulled, Refusal, RefusalKind,
    Retry, SessionKey, SessionRecord, SessionState, SessionView, SlotId,
};
use rota_ring::slot_of_session;
use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Reads that wait for a confirm round.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Reads {
    /// Wait for the next round.
    pub next: Vec<Origin>,
    /// Wait for the round that is under way.
    pub now: Vec<Origin>,
    /// That round, and who has not answered. Empty for a read of the config store.
    pub round: Option<(u64, BTreeSet<ManagerNumber>)>,
    pub sent_ms: u64,
    /// What was committed when it began.
    pub proves: LogPos,
    /// Since when the config store could not be read for answers that wait for it.
    pub unread_since_ms: Option<u64>,
    /// Not before this it is read for them again.
    pub again_ms: u64,
    /// Renewals of nodes that wait for the next round, and for the one under way.
    pub renewals_next: Vec<Renewal>,
    pub renewals_now: Vec<Renewal>,
    /// Long polls that wait for a change.
    pub pulls: VecDeque<Origin>,
}

/// READY records that are not committed, by session.
type ReadyInTail<'a> = BTreeMap<&'a DocKey, Vec<&'a Arc<SessionRecord>>>;

/// Most long polls that wait at one partition.
const PULLS_MAX: usize = 4_096;

impl Reads {
    /// Lets go of everything that waits for somebody who is gone, and of renewals that nobody waits
    /// for any more.
    pub fn forget(&mut self, now_ms: u64, is_there: impl Fn(&Origin) -> bool) -> Vec<Renewal> {
        self.next.retain(&is_there);
        self.now.retain(&is_there);
        self.pulls.retain(&is_there);
        let late = |it: &mut Renewal| it.until_ms <= now_ms;
        let mut late_ones: Vec<Renewal> = self.renewals_next.extract_if(.., late).collect();
        late_ones.extend(self.renewals_now.extract_if(.., late));
        late_ones
    }

    /// Until when each renewal waits.
    pub fn renewal_deadlines(&self) -> impl Iterator<Item = u64> {
        self.renewals_next.iter().chain(&self.renewals_now).map(|it| it.until_ms)
    }
}

impl Partition {
    /// The key of a session's document.
    pub fn key_of(env: &Env, session: &SessionKey) -> DocKey {
        let slot = slot_of_session(session, env.view().m);
        DocKey::new(slot, session_name(session))
    }

    /// Lets a request wait for a confirm round that begins after now.
    pub fn confirm_then(&mut self, origin: Origin) {
        if let Some(leading) = &mut self.leading {
            leading.reads.next.push(origin);
        }
    }

    /// Begins a round when somebody waits and none is under way. Gives the peers to ask.
    pub fn begin_round(&mut self, env: &mut Env, round: u64) -> Vec<ManagerNumber> {
        let now = env.now.mono_ms;
        let number = self.number;
        let Some(leading) = &mut self.leading else {
            return Vec::new();
        };
        let committed = self.replica.committed;
        if leading.reads.round.is_some() || !leading.wants_round(committed, now) {
            return Vec::new();
        }
        leading.reads.proves = committed;
        leading.reads.unread_since_ms.take_if(|_| !env.store_away);
        let mut peers: BTreeSet<ManagerNumber> = leading.copies.keys().copied().collect();
        // Whoever gives a partition up may be out already, and its copies with it.
        if matches!(leading.phase, Phase::Recover(_)) {
            peers.clear();
        }
        // Without copies the config store is read, which names whoever was added.
        if !peers.is_empty() {
            peers.extend(leading.adding.keys());
        }
        leading.reads.now = std::mem::take(&mut leading.reads.next);
        leading.reads.renewals_now = std::mem::take(&mut leading.reads.renewals_next);
        leading.reads.sent_ms = now;
        if peers.is_empty() {
            env.reads_wanted.push((number, ReadFor::Round(round)));
        }
        let asked = peers.iter().copied().collect();
        leading.reads.round = Some((round, peers));
        asked
    }

    /// A copy knows this partition under this epoch.
    pub fn on_confirmed(&mut self, env: &mut Env, from: ManagerNumber, round: u64) {
        let Some(leading) = &mut self.leading else {
            return;
        };
        let Some((under_way, missing)) = &mut leading.reads.round else {
            return;
        };
        if *under_way != round || !missing.remove(&from) || !missing.is_empty() {
            return;
        }
        self.finish_round(env);
    }

    /// The config store was read after that round began, and still names this epoch. A read that began
    /// before another round says nothing of what waits for that.
    pub fn on_config_read(&mut self, env: &mut Env, round: u64, reached: bool) {
        let Some(leading) = &mut self.leading else {
            return;
        };
        let under_way = leading.reads.round.as_ref();
        if !under_way.is_some_and(|(it, missing)| *it == round && missing.is_empty()) {
            return;
        }
        if reached {
            self.finish_round(env);
            return;
        }
        leading.reads.round = None;
        let renewals = std::mem::take(&mut leading.reads.renewals_now);
        let now = std::mem::take(&mut leading.reads.now);
        self.on_unread(env);
        for renewal in renewals {
            crate::judge::not_judge(env, renewal.call, &renewal.renew.node);
        }
        for origin in now {
            let retry = Retry::AfterMs(env.config.timing.retry_ms);
            let text = "the only copy must read the config store first, and cannot reach it";
            let refusal = Refusal::new(RefusalKind::ConfigStoreAway, retry, text);
            self.reply(env, origin, Err(refusal));
        }
    }

    /// Who was to be added was not: a round needs no word of theirs any more.
    pub fn on_nobody_added(&mut self, env: &mut Env) {
        let Some(leading) = &mut self.leading else { return };
        leading.adding.clear();
        let Some((_, missing)) = &mut leading.reads.round else { return };
        let waited = !missing.is_empty();
        missing.retain(|it| leading.copies.contains_key(it));
        if waited && missing.is_empty() {
            self.finish_round(env);
        }
    }

    fn finish_round(&mut self, env: &mut Env) {
        let Some(leading) = &mut self.leading else {
            return;
        };
        leading.reads.round = None;
        let (reads, proves) = (leading.reads(), leading.reads.proves);
        let renewals = std::mem::take(&mut leading.reads.renewals_now);
        let now = std::mem::take(&mut leading.reads.now);
        self.keep_proven(env, proves);
        for renewal in renewals {
            self.on_renewal_confirmed(env, renewal);
        }
        for origin in now.into_iter().filter(|_| reads) {
            self.on_read_confirmed(env, origin);
        }
    }

    /// Sends a round again that stays unanswered. Gives the peers to ask again.
    pub fn repeat_round(&mut self, env: &Env) -> Option<(u64, Vec<ManagerNumber>)> {
        let leading = self.leading.as_mut()?;
        let due = env.now.mono_ms >= leading.reads.sent_ms + env.config.timing.resend_ms;
        let (round, missing) = leading.reads.round.as_ref().filter(|_| due)?;
        let again = (*round, missing.iter().copied().collect());
        leading.reads.sent_ms = env.now.mono_ms;
        Some(again)
    }

    /// A read may be answered: nobody else owned the partition when it arrived.
    fn on_read_confirmed(&mut self, env: &mut Env, origin: Origin) {
        let Some(leading) = &self.leading else { return };
        let Some(asked) = leading.live.get(&origin) else {
            return;
        };
        env.note(Transition::ReadConfirmed, Some(self.number));
        let op = asked.op.clone();
        match op {
            Op::Get(get) => {
                let result = self.read(env, &get.key, false);
                self.reply(env, origin, result);
            }
            Op::List(list) => {
                let result = Ok(Answer::Listed(self.page(env, &list)));
                self.reply(env, origin, result);
            }
            Op::Open(open) => self.on_open_confirmed(env, origin, open),
            Op::Close(close) => self.on_close_confirmed(env, origin, close),
            Op::Report(_) => self.reply(env, origin, Ok(Answer::Reported)),
            Op::Documents(op) => self.on_documents_confirmed(env, origin, &op),
            Op::Pull(_) => {}
        }
    }

    /// A session as it may be shown: committed, or READY over a committed PENDING or STARTING
    /// (which any later owner drives to the same instance, and whose open may be answered already).
    pub fn visible(&self, key: &DocKey) -> Option<Arc<SessionRecord>> {
        let committed = self.replica.docs.get(key)?.session()?;
        let Some(upto) = self.may_be_ready_by(key, committed) else {
            return Some(committed.clone());
        };
        let tail = self.replica.tail.iter().take_while(|entry| entry.at <= upto);
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
        for write in self.replica.tail.iter().flat_map(|entry| entry.writes.iter()) {
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
        let owns_ms = self.leading.as_ref().map_or(env.now.mono_ms, |it| it.since_ms);
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
    fn look(
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

    /// A long poll arrives, or something was committed: answer what can be answered.
    pub fn serve_pulls(&mut self, env: &mut Env) {
        let Some(leading) = &mut self.leading else {
            return;
        };
        if !leading.reads() || leading.reads.pulls.is_empty() {
            return;
        }
        let waiting = std::mem::take(&mut leading.reads.pulls);
        for origin in waiting {
            self.serve_pull(env, origin);
        }
    }

    pub fn serve_pull(&mut self, env: &mut Env, origin: Origin) {
        let Some(leading) = &self.leading else { return };
        let Some(asked) = leading.live.get(&origin) else {
            return;
        };
        let Op::Pull(pull) = &asked.op else { return };
        let over = env.now.mono_ms >= asked.arrived_ms + pull.wait_ms;
        match self.pulled(env, pull, over) {
            Some(pulled) => self.reply(env, origin, Ok(Answer::Pulled(pulled))),
            None => {
                self.on_nothing_pulled(origin);
                self.keep_pull(env, origin);
            }
        }
    }

    /// Nothing that a poll waits for stands in the window. It goes on after what it has looked at: what
    /// others do makes its position no older, and is looked at once.
    fn on_nothing_pulled(&mut self, origin: Origin) {
        let committed = self.replica.committed;
        let asked = self.leading.as_mut().and_then(|it| it.live.get_mut(&origin));
        // In the middle of a snapshot it waits for another owner.
        if let Some(Op::Pull(PullOp { from: Some(from), snapshot_after: None, .. })) =
            asked.map(|it| &mut it.op)
        {
            *from = committed.max(*from);
        }
    }

    fn keep_pull(&mut self, env: &mut Env, origin: Origin) {
        let Some(leading) = &mut self.leading else {
            return;
        };
        if leading.reads.pulls.len() < PULLS_MAX {
            leading.reads.pulls.push_back(origin);
            return;
        }
        let retry = Retry::AfterMs(env.config.timing.retry_ms);
        let text = format!("{PULLS_MAX} watches wait at this partition already");
        self.reply(env, origin, Err(Refusal::new(RefusalKind::Overloaded, retry, text)));
    }

    /// What a long poll gets: a page of a snapshot, changes, or (when its wait is over) nothing.
    fn pulled(&self, env: &Env, pull: &PullOp, over: bool) -> Option<Pulled> {
        let committed = self.replica.committed;
        // Of its own epoch an owner has told nothing beyond what it committed: such a position is of
        // another cluster of that name, or of one whose disks were lost.
        let pe = self.leading.as_ref().map(|it| it.pe);
        let is_alien = |from: &LogPos| Some(from.pe) == pe && *from > committed;
        let known = pull.from.filter(|it| *it >= self.replica.base && !is_alien(it));
        let part = self.number;
        let behind = pull.from.filter(|from| *from > committed);
        if let (Some(upto), Some(after)) = (behind, &pull.snapshot_after) {
            // Its earlier pages came from a newer owner, and this one does not know yet that it has
            // been replaced: its contents are older than what the position promises.
            let (events, snapshot_next) = (Vec::new(), Some(after.clone()));
            return over.then_some(Pulled { part, events, snapshot: true, upto, snapshot_next });
        }
        let (Some(from), None) = (known, &pull.snapshot_after) else {
            return Some(self.snapshot_page(env, pull));
        };
        let limit = pull.limit.clamp(1, env.config.sizes.page_sessions) as usize;
        let (mut events, mut bytes) = (Vec::new(), 0);
        let mut upto = from;
        let unseen = self.replica.window.partition_point(|entry| entry.at <= from);
        for entry in self.replica.window.range(unseen..) {
            if events.len() >= limit || bytes >= env.config.sizes.message_bytes {
                break;
            }
            upto = entry.at;
            let records = entry.writes.iter().filter_map(|it| it.doc.as_ref()?.session());
            for record in records.filter(|record| pull.filter.passes(record)) {
                bytes += record.bytes();
                events.push(self.view_of(env, record.clone()));
            }
        }
        let idle = events.is_empty() && !over;
        (!idle).then_some(Pulled {
            part,
            events,
            snapshot: false,
            upto: upto.min(committed.max(from)),
            snapshot_next: None,
        })
    }

    /// A snapshot in pages. Its position is the one at which its first page was made: changes
    /// after that are delivered again, which a watch allows.
    fn snapshot_page(&self, env: &Env, pull: &PullOp) -> Pulled {
        let m = env.view().m;
        let start = ListCursor { slot: SlotId(0), after: None };
        let cursor = pull.snapshot_after.clone().unwrap_or(start);
        let upto = match (&pull.snapshot_after, pull.from) {
            (Some(_), Some(from)) => from,
            (_, _) => self.replica.committed,
        };
        let last = SlotId(m.saturating_sub(1));
        let (events, snapshot_next) = self.look(env, &cursor, last, &pull.filter, pull.limit);
        Pulled { part: self.number, events, snapshot: true, upto, snapshot_next }
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
