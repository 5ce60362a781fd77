//! Requests whose deadline has passed.

use crate::log::env::Env;
use crate::log::origin::Origin;
use crate::partition::state::Partition;
use crate::sessions::capacity::no_room_yet;
use rota_messages::{Answer, Op, OpResult};
use rota_model::node_msg::Renewed;
use rota_model::{Refusal, RefusalKind, RequestFate, Retry, SessionState};
use std::collections::BTreeSet;

/// What the requests that are too late wait for.
struct Waits {
    /// A node with room.
    room: BTreeSet<Origin>,
    /// The partition, or enough copies.
    queue: BTreeSet<Origin>,
}

impl Partition {
    /// Requests whose deadline passed are told how far they got. All of them in one pass over
    /// everything that waits: there may be very many.
    pub(crate) fn expire(&mut self, env: &mut Env) {
        let now = env.now.mono_ms;
        let Some(leading) = &self.leading else { return };
        let late = leading.inbox.live.iter().filter(|(_, asked)| now >= asked.deadline_ms);
        let late: BTreeSet<Origin> = late.map(|(origin, _)| *origin).collect();
        let waits = Waits {
            room: leading
                .residents
                .sessions
                .capacity
                .waiting
                .iter()
                .copied()
                .filter(|it| late.contains(it))
                .collect(),
            queue: leading.inbox.queue.iter().copied().filter(|it| late.contains(it)).collect(),
        };
        for origin in &late {
            let result = self.unfinished(env, *origin, &waits);
            self.reply(env, *origin, result);
        }
        let Some(leading) = &mut self.leading else { return };
        let live = &leading.inbox.live;
        let is_there = |it: &Origin| live.contains_key(it);
        if !late.is_empty() {
            leading.inbox.queue.retain(is_there);
            leading.residents.sessions.capacity.waiting.retain(is_there);
            leading.inbox.promised.retain(|it| is_there(&it.origin));
            leading.residents.documents.runs.retain(|it, _| is_there(it));
            leading.residents.documents.follows.retain(is_there);
            for work in leading.residents.sessions.work.values_mut() {
                work.waiters.retain(is_there);
            }
        }
        leading.rounds.forget(is_there);
        leading.residents.sessions.pulls.retain(is_there);
        for renewal in leading.residents.leases.forget(now) {
            crate::node_lease::reply::answer(env, renewal.call, Renewed::NotServing);
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
        let Some(asked) = leading.inbox.live.get(&origin) else {
            return late("it is gone".into());
        };
        if !leading.lead.reads() {
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
            Op::Documents(_) if !leading.inbox.promised.iter().any(|it| it.origin == origin) => {
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
