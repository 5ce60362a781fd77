//! A request arrives at the owner, is carried out or waits, and is answered.

use crate::log::env::Env;
use crate::log::origin::{Ending, Origin};
use crate::log::requests::Asked;
use crate::partition::state::Partition;
use crate::ports::note::Transition;
use crate::settings::sizes::REQUESTS_MAX;
use rota_messages::{Answer, Op, OpResult};
use rota_model::{Changed, Refusal, RefusalKind, RequestFate, Retry};

impl Partition {
    /// Runs everything that waited for the partition to serve.
    pub fn drain_queue(&mut self, env: &mut Env) {
        let Some(leading) = &mut self.leading else {
            return;
        };
        let waiting = std::mem::take(&mut leading.inbox.queue);
        for origin in waiting {
            self.run(env, origin);
        }
    }

    /// Answers a request that waits here.
    pub fn reply(&mut self, env: &mut Env, origin: Origin, mut result: OpResult) {
        let Some(asked) = self.leading.as_mut().and_then(|it| it.inbox.live.remove(&origin)) else {
            return;
        };
        if let Some(leading) = &mut self.leading {
            leading.residents.documents.runs.remove(&origin);
        }
        // Whose request id names something else has begun nothing: what stands there is the other.
        if let Err(refusal) = &mut result
            && refusal.kind != RefusalKind::RequestIdReused
            && (asked.ending == Some(Ending::Unplaced) || self.has_begun(env, &asked.op))
        {
            refusal.changed = Changed::Unknown;
        }
        self.settled.insert(env, origin, &asked.op, &result);
        env.answer(origin, result);
    }

    /// Whether a request stands in its session's record: then it changed something, whatever it
    /// came to.
    fn has_begun(&self, env: &Env, op: &Op) -> bool {
        let (session, request, opens) = match op {
            Op::Open(open) => (&open.key, &open.request, true),
            Op::Close(close) => (&close.key, &close.request, false),
            Op::Get(_) | Op::List(_) | Op::Pull(_) | Op::Report(_) | Op::Documents(_) => {
                return false;
            }
        };
        let entry = self.replica.request(&Self::key_of(env, session), request);
        entry.is_some_and(|it| match it.fate {
            RequestFate::Opening | RequestFate::Opened { .. } | RequestFate::Failed { .. } => opens,
            RequestFate::Closed { .. } => true,
        })
    }

    /// A read may be answered: nobody else owned the partition when it arrived.
    pub(crate) fn on_read_confirmed(&mut self, env: &mut Env, origin: Origin) {
        let Some(leading) = &self.leading else { return };
        let Some(asked) = leading.inbox.live.get(&origin) else {
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

    /// A request arrives at the owner. A repetition of one that waits here is dropped, before all else.
    pub fn on_request(&mut self, env: &mut Env, origin: Origin, op: Op, deadline_ms: u64) {
        if self.leading.as_ref().is_some_and(|it| it.inbox.live.contains_key(&origin)) {
            return;
        }
        if let Some(result) = self.settled.get(origin, &op) {
            return env.answer(origin, result);
        }
        if let Some(refusal) = self.recovering() {
            return self.refuse_at_once(env, origin, &op, refusal);
        }
        let Some(leading) = &mut self.leading else {
            let text = format!("this manager does not own partition {}", self.number);
            let retry = Retry::AtOwner(env.epoch());
            let refusal = Refusal::new(RefusalKind::NotOwner, retry, text);
            return self.refuse_at_once(env, origin, &op, refusal);
        };
        if let Some(refusal) = leading.inbox.live.refuse(env, &op, REQUESTS_MAX, "partition") {
            return self.refuse_at_once(env, origin, &op, refusal);
        }
        let now = env.now.mono_ms;
        let deadline_ms = now + deadline_ms;
        let asked = Asked { op, deadline_ms, arrived_ms: now, ending: None };
        leading.inbox.live.insert(origin, asked);
        self.run(env, origin);
    }

    fn refuse_at_once(&mut self, env: &mut Env, origin: Origin, op: &Op, refusal: Refusal) {
        let result = Err(refusal);
        self.settled.insert(env, origin, op, &result);
        env.answer(origin, result);
    }

    /// Carries a waiting request on, from its beginning.
    pub fn run(&mut self, env: &mut Env, origin: Origin) {
        let Some(leading) = &self.leading else {
            return;
        };
        let Some(asked) = leading.inbox.live.get(&origin) else {
            return;
        };
        let op = asked.op.clone();
        let (open, reads) = (leading.lead.is_open(), leading.lead.reads());
        if reads && let Some(refusal) = self.refuses_backlog(env, &op) {
            return self.reply(env, origin, Err(refusal));
        }
        match op {
            // Before the nodes were scanned and the copies compared, nothing here may be shown.
            Op::Get(get) if get.stale_ok && reads => {
                let result = self.read(env, &get.key, true);
                self.reply(env, origin, result);
            }
            Op::List(list) if list.stale_ok && reads => {
                let result = Ok(Answer::Listed(self.page(env, &list)));
                self.reply(env, origin, result);
            }
            Op::Get(get) if reads => self.on_get(origin, &get.key),
            Op::List(_) if reads => self.confirm_then(origin),
            Op::Pull(_) if reads => self.serve_pull(env, origin),
            Op::Open(op) if open => self.on_open(env, origin, op),
            Op::Close(op) if open => self.on_close(env, origin, &op),
            Op::Report(item) if open => self.on_report(env, origin, &item),
            Op::Documents(op) if open || (reads && !op.changes()) => {
                self.on_documents(env, origin, &op);
            }
            Op::Get(_)
            | Op::List(_)
            | Op::Pull(_)
            | Op::Open(_)
            | Op::Close(_)
            | Op::Report(_)
            | Op::Documents(_) => self.enqueue(origin),
        }
    }
}
