//! The outbox: news of sessions, each sent again until a manager has committed it.
//!
//! One session has at most one report under way, so a session's news arrive in order whatever the
//! network does. A machine's states are coalesced: only the newest one waits.
//!
//! Pauses between repetitions double, so that nodes do not keep a ring busy that takes nothing. What tells
//! that one takes reports again makes all of them due at once: a renewal that is granted after one that was not,
//! and an acknowledgement after a repetition.

use crate::config::{NodeBounds, NodeTiming};
use crate::io::{NodeEffect, ReportId};
use rota_model::node_msg::{ReportEvent, ReportItem};
use rota_model::{BootId, NodeId, SessionKey, Token};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// All unacknowledged news.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Outbox {
    last_id: u64,
    sessions: BTreeMap<SessionKey, News>,
    /// First reports of sessions that are to be sent, or sent again, now; oldest first.
    waiting: BTreeMap<ReportId, SessionKey>,
    /// Reports under way, with the time at which they are sent again.
    in_flight: BTreeMap<ReportId, (SessionKey, u64)>,
    due: BTreeSet<(u64, ReportId)>,
    /// Sessions whose news changed since [`Self::take_changed`].
    changed: BTreeSet<SessionKey>,
}

/// News of one session: at most readiness, two machine states (one under way) and the end.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct News {
    token: Token,
    queue: VecDeque<Report>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Report {
    id: ReportId,
    event: ReportEvent,
    /// How often it was sent.
    sent: u32,
    /// How often the pause after it doubled.
    doubled: u32,
}

/// What a pump needs to know.
pub(crate) struct Sender<'a> {
    pub(crate) node: &'a NodeId,
    pub(crate) boot: BootId,
    pub(crate) timing: &'a NodeTiming,
    pub(crate) bounds: &'a NodeBounds,
}

fn is_machine_state(event: &ReportEvent) -> bool {
    match event {
        ReportEvent::MachineState { .. } => true,
        ReportEvent::Ready { .. } | ReportEvent::Ended { .. } => false,
    }
}

impl Outbox {
    /// Adds news. News of an older attempt go: whoever began a newer one knows that it is over.
    pub(crate) fn push(&mut self, key: &SessionKey, token: Token, event: ReportEvent) {
        if self.sessions.get(key).is_some_and(|it| it.token != token) {
            self.remove(key);
        }
        self.changed.insert(key.clone());
        self.last_id += 1;
        let id = ReportId(self.last_id);
        let queue = VecDeque::new();
        let news = self.sessions.entry(key.clone()).or_insert(News { token, queue });
        let last = news.queue.back_mut();
        match last.filter(|it| it.sent == 0 && is_machine_state(&it.event)) {
            // It was not sent: it keeps its place in the line and tells the newer state.
            Some(last) if is_machine_state(&event) => last.event = event,
            Some(_) | None => {
                if news.queue.is_empty() {
                    self.waiting.insert(id, key.clone());
                }
                news.queue.push_back(Report { id, event, sent: 0, doubled: 0 });
            }
        }
    }

    /// Forgets the news of a token: its manager has learned more than they tell.
    pub(crate) fn forget(&mut self, key: &SessionKey, token: Token) {
        if self.holds(key, token) {
            self.remove(key);
        }
    }

    pub(crate) fn holds(&self, key: &SessionKey, token: Token) -> bool {
        self.sessions.get(key).is_some_and(|it| it.token == token)
    }

    pub(crate) fn len(&self) -> usize {
        self.sessions.len()
    }

    fn remove(&mut self, key: &SessionKey) {
        let Some(news) = self.sessions.remove(key) else {
            return;
        };
        self.changed.insert(key.clone());
        if let Some(first) = news.queue.front() {
            self.waiting.remove(&first.id);
            self.land(first.id);
        }
    }

    /// Takes a report off the list of those under way.
    fn land(&mut self, id: ReportId) -> Option<SessionKey> {
        let (key, due) = self.in_flight.remove(&id)?;
        self.due.remove(&(due, id));
        Some(key)
    }

    /// Whether a report waits to be sent again.
    fn waits_again(&self, id: ReportId) -> bool {
        let key = self.waiting.get(&id);
        let first = key.and_then(|it| self.sessions.get(it)?.queue.front());
        first.is_some_and(|it| it.id == id && it.sent > 0)
    }

    /// Managers take reports again: all that are under way are sent once more, and the pauses begin anew.
    pub(crate) fn hurry(&mut self) {
        self.due.clear();
        for (id, (key, _)) in std::mem::take(&mut self.in_flight) {
            if let Some(first) = self.sessions.get_mut(&key).and_then(|it| it.queue.front_mut()) {
                first.doubled = 0;
                self.waiting.insert(id, key);
            }
        }
    }

    /// A manager has committed a report.
    pub(crate) fn on_acked(&mut self, id: ReportId) {
        let again = self.waits_again(id).then(|| self.waiting.remove(&id)).flatten();
        let Some(key) = again.or_else(|| self.land(id)) else { return };
        let Some(news) = self.sessions.get_mut(&key) else {
            return;
        };
        self.changed.insert(key.clone());
        let taken = news.queue.pop_front();
        // Its owner took nothing for a while, and does so now. That others are acknowledged says nothing of
        // those that wait for another owner.
        let was_repeated = taken.is_some_and(|it| it.doubled > 1);
        match news.queue.front() {
            Some(next) => {
                self.waiting.insert(next.id, key);
            }
            None => {
                self.sessions.remove(&key);
            }
        }
        if was_repeated {
            self.hurry();
        }
    }

    /// Sessions whose news changed since this was asked last.
    pub(crate) fn take_changed(&mut self) -> BTreeSet<SessionKey> {
        std::mem::take(&mut self.changed)
    }

    /// Sessions with news.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &SessionKey> {
        self.sessions.keys()
    }

    /// The news of a session that no manager has acknowledged, oldest first.
    pub(crate) fn news_of(&self, key: &SessionKey) -> Option<(Token, Vec<ReportEvent>)> {
        let News { token, queue } = self.sessions.get(key)?;
        Some((*token, queue.iter().map(|it| it.event.clone()).collect()))
    }

    pub(crate) fn next_due(&self) -> Option<u64> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Sends what is due and what there is room for.
    pub(crate) fn pump(&mut self, now: u64, sender: &Sender<'_>, effects: &mut Vec<NodeEffect>) {
        while let Some((due, id)) = self.due.first().copied().filter(|(due, _)| *due <= now) {
            self.due.remove(&(due, id));
            let Some((key, _)) = self.in_flight.remove(&id) else {
                continue;
            };
            self.overtake(&key);
            self.send(&key, now, sender, effects);
        }
        while self.in_flight.len() < sender.bounds.reports_in_flight_max {
            let Some((_, key)) = self.waiting.pop_first() else {
                break;
            };
            self.overtake(&key);
            self.send(&key, now, sender, effects);
        }
    }

    /// A machine state that was not acknowledged in time gives way to a newer one.
    fn overtake(&mut self, key: &SessionKey) {
        let Some(news) = self.sessions.get_mut(key) else {
            return;
        };
        let newer = news.queue.get(1).is_some_and(|it| is_machine_state(&it.event));
        if newer && news.queue.front().is_some_and(|it| is_machine_state(&it.event)) {
            self.changed.insert(key.clone());
            let old = news.queue.pop_front();
            if let (Some(old), Some(new)) = (old, news.queue.front_mut()) {
                (new.sent, new.doubled) = (old.sent, old.doubled);
            }
        }
    }

    fn send(
        &mut self,
        key: &SessionKey,
        now: u64,
        sender: &Sender<'_>,
        effects: &mut Vec<NodeEffect>,
    ) {
        let Some(news) = self.sessions.get_mut(key) else {
            return;
        };
        let Some(report) = news.queue.front_mut() else {
            return;
        };
        let (attempt, doubled) = (report.sent, report.doubled);
        report.sent += 1;
        report.doubled += 1;
        let id = report.id;
        let (first, longest) = (sender.timing.report_resend_ms, sender.timing.report_resend_ms_max);
        // Doubling more than 20 times passes any bound that there may be.
        let due = now + first.saturating_mul(1 << doubled.min(20)).min(longest);
        self.in_flight.insert(id, (key.clone(), due));
        self.due.insert((due, id));
        let item = ReportItem {
            key: key.clone(),
            node: sender.node.clone(),
            boot: sender.boot,
            token: news.token,
            event: report.event.clone(),
        };
        effects.push(NodeEffect::Report { id, item, attempt });
    }
}
