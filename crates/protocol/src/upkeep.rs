//! What happens by itself: restart from disk, deadlines, and the tick of a partition.

use crate::entry::Origin;
use crate::env::Env;
use crate::leading::Phase;
use crate::partition::Partition;
use crate::parts::Parts;
use crate::pool::no_room_yet;
use rota_messages::{Answer, Disk, Op, OpResult};
use rota_model::node_msg::{Renewed, SlotRange};
use rota_model::{Refusal, RefusalKind, RequestFate, Retry, SessionState, SlotId};
use std::collections::{BTreeMap, BTreeSet};

/// The partitions on a disk. Slots belong to the first partition at or after them.
pub(crate) fn parts_of(env: &mut Env, disk: &Disk) -> Parts {
    let mut parts = BTreeMap::new();
    for (number, meta) in &disk.parts {
        // The range follows from the View; until then only the number counts.
        let range = SlotRange { first: SlotId(number.0), last: SlotId(number.0) };
        let mut part = Partition::new(*number, range);
        part.replica.pe = meta.pe;
        part.replica.last = meta.last;
        part.replica.durable = meta.last;
        // A disk is taken up either as the only copy (then all of it counts) or as the base of a
        // snapshot: nothing above a committed position needs to be told apart.
        part.replica.committed = meta.last;
        part.replica.base = meta.last;
        part.replica.whole = meta.whole;
        part.replica.found_from = meta.found_from;
        part.replica.raise_water(meta.forgotten);
        env.forgotten = env.forgotten.max(meta.forgotten);
        parts.insert(*number, part);
    }
    for (key, doc) in &disk.docs {
        if let Some(number) = rota_ring::place::home(&parts, key.slot)
            && let Some(part) = parts.get_mut(&number)
        {
            part.replica.set(key, Some(doc.clone()));
        }
    }
    parts.into_values().collect()
}

/// What the requests that are too late wait for.
struct Waits {
    /// A node with room.
    room: BTreeSet<Origin>,
    /// The partition, or enough copies.
    queue: BTreeSet<Origin>,
}

impl Partition {
    /// Whether a confirm round should begin.
    pub fn wants_round(&self, now_ms: u64) -> bool {
        self.leading.as_ref().is_some_and(|it| {
            it.reads.round.is_none() && it.wants_round(self.replica.committed, now_ms)
        })
    }

    /// Whether something here waits for time to pass, or goes on with each tick.
    pub fn is_busy(&self, env: &Env) -> bool {
        let Some(it) = &self.leading else { return self.is_to_be_dropped(env) };
        // Who follows the namespaces always waits, and for nothing that time brings.
        it.live.len() > it.follows.len()
            || !it.work.is_empty()
            || !it.learners.is_empty()
            || !it.missing.is_empty()
            || it.drain.after.is_some()
            || !matches!(it.phase, Phase::Serving)
    }

    /// Time passed.
    pub fn tick(&mut self, env: &mut Env) {
        self.settled.forget(env.now.mono_ms);
        if self.leading.is_none() {
            self.drop_former_copy(env);
            return;
        }
        self.expire(env);
        self.drive_scan(env);
        self.tick_copies(env);
        self.tick_learners(env);
        self.tick_work(env);
        self.call_silent_nodes(env);
        self.tick_drain(env);
        self.tick_room(env);
        self.expire_pulls(env);
        self.serve_follows(env);
        self.tick_runs(env);
        let Some(leading) = &self.leading else { return };
        if !leading.queue.is_empty() && self.may_begin(env) {
            self.drain_queue(env);
        }
        self.forget_old(env);
    }

    fn expire_pulls(&mut self, env: &mut Env) {
        let now = env.now.mono_ms;
        let Some(leading) = &self.leading else { return };
        let over = leading.reads.pulls.iter().any(|origin| {
            leading.live.get(origin).is_none_or(|asked| match &asked.op {
                Op::Pull(pull) => now >= asked.arrived_ms + pull.wait_ms,
                Op::Open(_)
                | Op::Close(_)
                | Op::Get(_)
                | Op::List(_)
                | Op::Report(_)
                | Op::Documents(_) => true,
            })
        });
        if over {
            self.serve_pulls(env);
        }
    }

    /// Requests whose deadline passed are told how far they got. All of them in one pass over
    /// everything that waits: there may be very many.
    fn expire(&mut self, env: &mut Env) {
        let now = env.now.mono_ms;
        let Some(leading) = &self.leading else { return };
        let late = leading.live.iter().filter(|(_, asked)| now >= asked.deadline_ms);
        let late: BTreeSet<Origin> = late.map(|(origin, _)| *origin).collect();
        let waits = Waits {
            room: leading.room.iter().copied().filter(|it| late.contains(it)).collect(),
            queue: leading.queue.iter().copied().filter(|it| late.contains(it)).collect(),
        };
        for origin in &late {
            let result = self.unfinished(env, *origin, &waits);
            self.reply(env, *origin, result);
        }
        let Some(leading) = &mut self.leading else { return };
        let live = &leading.live;
        let is_there = |it: &Origin| live.contains_key(it);
        if !late.is_empty() {
            leading.queue.retain(is_there);
            leading.room.retain(is_there);
            leading.promised.retain(|it| is_there(&it.origin));
            leading.runs.retain(|it, _| is_there(it));
            leading.follows.retain(is_there);
            for work in leading.work.values_mut() {
                work.waiters.retain(is_there);
            }
        }
        for renewal in leading.reads.forget(now, is_there) {
            crate::judge::answer(env, renewal.call, Renewed::NotServing);
        }
    }

    /// What a request is told whose deadline passed.
    fn unfinished(&self, env: &Env, origin: Origin, waits: &Waits) -> OpResult {
        let retry_ms = env.config.timing.retry_ms;
        let late = |text: String| {
            let (kind, retry) = (RefusalKind::DeadlineExceeded, Retry::AfterMs(retry_ms));
            Err(Refusal::unknown_outcome(kind, retry, text))
        };
        let Some(leading) = &self.leading else {
            return late("the owner changed".into());
        };
        let Some(asked) = leading.live.get(&origin) else {
            return late("it is gone".into());
        };
        if !leading.reads() {
            let text = format!("partition {} is not serving yet", self.number);
            // An earlier phase may have begun it already.
            let (kind, retry) = (RefusalKind::NotServing, Retry::AfterMs(retry_ms));
            return Err(Refusal::unknown_outcome(kind, retry, text));
        }
        match &asked.op {
            Op::Open(open) if waits.room.contains(&origin) => Err(no_room_yet(env, open)),
            Op::Open(_) if waits.queue.contains(&origin) => {
                let text = format!("partition {} waits for a copy", self.number);
                Err(Refusal::new(RefusalKind::NotServing, Retry::AfterMs(retry_ms), text))
            }
            Op::Open(open) => {
                let retry = Retry::AfterMs(retry_ms);
                let record = self.replica.session(&Self::key_of(env, &open.key));
                if let Some(closing) = record.filter(|it| it.state == SessionState::Closing) {
                    let text = format!("session {} is still being closed", closing.key);
                    return Err(Refusal::new(RefusalKind::Closing, retry, text));
                }
                let text = format!("session {} is still being opened", open.key);
                Err(Refusal::unknown_outcome(RefusalKind::InProgress, retry, text))
            }
            Op::Close(close) => {
                let key = Self::key_of(env, &close.key);
                // Only what is committed is promised, and that this request is remembered for it.
                let record = self.replica.docs.get(&key).and_then(|doc| doc.session());
                let record = record.filter(|it| {
                    let entry = self.replica.committed_request(&key, &close.request);
                    let fate = entry.map(|entry| entry.fate);
                    let mine =
                        matches!(fate, Some(RequestFate::Closed { life }) if life == it.life);
                    it.state == SessionState::Closing && mine
                });
                // Alone it does not know whether it is the owner still.
                match record.filter(|_| !self.has_no_copies()) {
                    Some(record) => {
                        let session = self.view_at_node(env, record.clone());
                        Ok(Answer::Closed { finished: false, session })
                    }
                    None => late(format!("session {} is not closed yet", close.key)),
                }
            }
            Op::Documents(_) if !leading.promised.iter().any(|it| it.origin == origin) => {
                let text = "the operation could not be finished in time, and has changed nothing";
                let (kind, retry) = (RefusalKind::DeadlineExceeded, Retry::AfterMs(retry_ms));
                Err(Refusal::new(kind, retry, text))
            }
            Op::Get(_) | Op::List(_) | Op::Pull(_) | Op::Report(_) | Op::Documents(_) => {
                late("the copies did not confirm in time".into())
            }
        }
    }
}
