//! What an owner has about life cycles beside its log: when to look at which, and actions under way.

use crate::contents::lives::{HISTORY_KEPT_MS, beside, session_of};
use crate::lives::acting::Acting;
use crate::lives::crowd::Crowd;
use crate::log::at::At;
use crate::log::env::Env;
use crate::log::lead::Phase;
use crate::log::origin::Origin;
use crate::log::resident::{Late, RequestHandler, Resident, Turn};
use rota_messages::documents::life_name;
use rota_messages::lives::{Event, FireOp};
use rota_messages::{DocKey, LivesOp, Op, OpResult, Write};
use rota_model::items::{LIFE_CLASS, SESSION_CLASS};
use rota_model::{SessionKey, SessionRecord, SessionState, Stamp};
use std::collections::{BTreeMap, BTreeSet};

/// Most documents that one step looks at: some milliseconds.
const STEP_MAX: usize = 500;

/// Their writes make one entry, to which none is added from so many bytes on: with more, whatever else is written waits
/// for it on its way to the copies.
const STEP_BYTES_MAX: usize = 512 * 1024;

/// Most actions of one partition that are under way at a time.
pub(crate) const ACTIONS_MAX: usize = 64;

/// Somebody waits for an action that is run again.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Wanted {
    pub origin: Origin,
    pub chain: Stamp,
    pub event: Event,
}

/// What an owner has about life cycles beside its log. Documents stand for their sessions.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Lives {
    /// In the order in which they are looked at.
    due: BTreeSet<(Stamp, DocKey)>,
    armed: BTreeMap<DocKey, Stamp>,
    /// Actions under way.
    pub(super) acting: BTreeMap<DocKey, Acting>,
    /// Whoever waits for an action that is run again, in order.
    pub(super) wanted: BTreeMap<DocKey, Vec<Wanted>>,
    /// Those whose action waits for another one to end.
    pub(super) crowd: Crowd,
}

impl Lives {
    /// Looks at a document at that time. [`Stamp::MIN`]: with the next step.
    pub(super) fn arm(&mut self, key: &DocKey, at: Option<Stamp>) {
        if let Some(before) = self.armed.remove(key) {
            self.due.remove(&(before, key.clone()));
        }
        if let Some(at) = at {
            self.armed.insert(key.clone(), at);
            self.due.insert((at, key.clone()));
        }
    }

    /// A document is looked at when its committed state says, or at once where somebody waits for its action.
    pub(super) fn arm_as_committed(&mut self, led: &At<'_>, key: &DocKey) {
        let at = led.log.replica.counts.lives.get(key).and_then(|it| it.at);
        self.arm(key, if self.wanted.contains_key(key) { Some(Stamp::MIN) } else { at });
    }

    /// Whether something is to be looked at now.
    fn is_due(&self, now: Stamp) -> bool {
        self.due.first().is_some_and(|(at, _)| *at <= now)
    }

    /// What is to be looked at next: those that have waited for room, if there is some, and then what is due.
    fn next(&mut self, led: &At<'_>, now: Stamp) -> Option<(DocKey, Option<u64>)> {
        let has_room = self.acting.len() < ACTIONS_MAX;
        let waited = has_room.then(|| self.crowd.next(led.env.now.mono_ms)).flatten();
        if let Some((key, since_ms)) = waited {
            self.arm(&key, None);
            return Some((key, Some(since_ms)));
        }
        let (_, key) = self.is_due(now).then(|| self.due.pop_first()).flatten()?;
        self.armed.remove(&key);
        Some((key, None))
    }

    /// Looks at what is due.
    fn step(&mut self, led: &mut At<'_>) {
        let now = Stamp::from_epoch_ms(led.env.now.wall_ms);
        let mut writes = Vec::new();
        let mut bytes = 0;
        for _ in 0..STEP_MAX {
            if bytes >= STEP_BYTES_MAX || !led.may_begin() || led.backlog().is_some() {
                break;
            }
            let Some((key, since_ms)) = self.next(led, now) else { break };
            let written = self.look(led, (&key, since_ms), now);
            bytes += written.iter().map(Write::bytes).sum::<usize>();
            writes.extend(written);
        }
        if !writes.is_empty() {
            led.write(writes, None);
        }
    }

    /// An action that failed is to be run again.
    fn on_fire(&mut self, led: &At<'_>, origin: Origin, op: FireOp) {
        let slot = rota_ring::slot_of_session(&op.key, led.env.view().m);
        let key = DocKey::new(slot, life_name(&op.key));
        let wanted = Wanted { origin, chain: op.origin, event: op.event };
        self.wanted.entry(key.clone()).or_default().push(wanted);
        self.arm(&key, Some(Stamp::MIN));
    }
}

impl Resident for Lives {
    fn begin(_: &Env, _: &Phase) -> Self {
        Self::default()
    }

    /// A new owner looks at what is due, at sessions that may have no document yet, also those that have ended, and at
    /// documents whose session ended.
    fn serve(&mut self, led: &mut At<'_>) {
        let replica = &led.log.replica;
        let has_ended = |key: &DocKey| {
            let session = session_of(key).and_then(|it| replica.get(&it)?.brief().cloned());
            session.is_none_or(|it| it.state.is_ended())
        };
        for (key, glimpse) in replica.counts.lives.all() {
            let at =
                if !glimpse.has_ended && has_ended(key) { Some(Stamp::MIN) } else { glimpse.at };
            self.arm(key, at);
        }
        let counts = &replica.counts.session_counts;
        for key in counts.timed().chain(counts.timed_ended()) {
            let record = replica.docs.get(key).and_then(|it| it.session());
            if let Some(record) = record.filter(|it| is_managed(it)) {
                self.arm(&beside(key, &record.key), Some(Stamp::MIN));
            }
        }
    }

    fn committed(&mut self, led: &mut At<'_>, key: &DocKey) {
        if key.name.class() == LIFE_CLASS {
            self.drop_removed(led, key);
            self.arm_as_committed(led, key);
        } else if key.name.class() == SESSION_CLASS {
            self.on_session(led, key);
        }
    }

    fn tick(&mut self, led: &mut At<'_>, turn: Turn) {
        if turn == Turn::Rest && led.lead.is_open() {
            self.step(led);
            self.drive(led);
        }
    }

    fn is_busy(&self) -> bool {
        let waits = !self.wanted.is_empty() || !self.crowd.is_empty();
        waits || !self.acting.is_empty() || self.is_due(Stamp::MIN)
    }

    fn retain(&mut self, is_there: &dyn Fn(&Origin) -> bool) {
        for wanted in self.wanted.values_mut() {
            wanted.retain(|it| is_there(&it.origin));
        }
        self.wanted.retain(|_, it| !it.is_empty());
    }
}

impl Lives {
    /// A session's record is committed: its life cycles may go on, or have ended.
    fn on_session(&mut self, led: &At<'_>, key: &DocKey) {
        let Some(record) = led.log.replica.docs.get(key).and_then(|it| it.session()) else {
            return;
        };
        let life = beside(key, &record.key);
        if record.state != SessionState::Ready {
            self.acting.remove(&life);
        }
        if is_managed(record) || led.log.replica.get(&life).is_some() {
            self.arm(&life, Some(Stamp::MIN));
        }
    }
}

impl RequestHandler for Lives {
    fn carry_out(&mut self, led: &mut At<'_>, origin: Origin, op: Op) {
        if !led.lead.is_open() {
            led.enqueue(origin);
        } else if let Op::Lives(LivesOp::Fire(op)) = op {
            self.on_fire(led, origin, *op);
        }
    }

    fn confirmed(&mut self, _: &mut At<'_>, _: Origin, _: Op) {}

    fn unfinished(&self, led: &At<'_>, late: &Late) -> BTreeMap<Origin, OpResult> {
        let is_here = |origin: &&Origin| {
            let op = led.inbox.live.get(*origin).map(|asked| &asked.op);
            matches!(op, Some(Op::Lives(LivesOp::Fire(_))))
        };
        let late = late.all.iter().filter(is_here);
        late.map(|it| (*it, Err(led.too_late("the action has not come to its end")))).collect()
    }

    fn reply(&mut self, led: &mut At<'_>, origin: Origin, result: OpResult) {
        led.reply(origin, result);
    }
}

/// Whether its open gave it life cycles.
pub(super) fn is_managed(record: &SessionRecord) -> bool {
    record.lifetime.as_ref().is_some_and(|it| it.is_managed)
}

/// The session that a document of life cycles is about.
pub(super) fn about(key: &DocKey) -> Option<SessionKey> {
    rota_messages::documents::life_session(&key.name)
}

/// What is older goes from the history.
pub(super) fn purged_before(now: Stamp) -> Stamp {
    now.minus_ms(HISTORY_KEPT_MS)
}
