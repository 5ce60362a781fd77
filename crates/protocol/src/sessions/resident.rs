//! Sessions as what lives in a partition: requests about them, and what they do when the log moves.

use crate::log::at::At;
use crate::log::env::Env;
use crate::log::lead::{Next, Phase};
use crate::log::origin::{Ending, Origin};
use crate::log::recovery::Step;
use crate::log::resident::{Late, RequestHandler, Resident, Turn};
use crate::log::state::Log;
use crate::sessions::capacity::{no_room_yet, tell_pool_owners};
use crate::sessions::ends::write_off_lost;
use crate::sessions::follows::Follows;
use crate::sessions::keep_alive::keep_alive;
use crate::sessions::read::{key_of, page, read, view_at_node};
use crate::sessions::scan::Scanning;
use crate::sessions::scan_state::Scan;
use crate::sessions::state::Sessions;
use rota_messages::{Answer, DocKey, LivesOp, Op, OpResult, Write};
use rota_model::{
    Changed, CloseOp, OpenOp, Refusal, RefusalKind, RequestFate, Retry, SessionState,
};
use std::collections::{BTreeMap, BTreeSet};

impl Resident for Sessions {
    fn begin(env: &Env, phase: &Phase) -> Self {
        let asks_nodes = match phase {
            Phase::Scan => true,
            Phase::Recover(recovery) => matches!(recovery.step, Step::Looking(_)),
            Phase::Sync(_) | Phase::Serving | Phase::Wedged { .. } => false,
        };
        let scan = asks_nodes.then(|| Scan::new(&env.nodes.reg));
        Self { scanning: Scanning { scan }, ..Self::new(env.now.mono_ms) }
    }

    /// Asks the nodes that have not said what they run.
    fn find_out(&mut self, led: &mut At<'_>) -> Next {
        self.scanning.drive_scan(led)
    }

    fn nodes_changed(&mut self, led: &mut At<'_>) {
        self.sweep_lost(led);
    }

    /// Sessions whose node's boot is proved to be over. Of the others this owner waits first.
    fn first_writes(&self, env: &mut Env, log: &Log, found: &[Write]) -> Vec<Write> {
        write_off_lost(env, log, found, Follows::AsItsClassSays)
    }

    fn serve(&mut self, led: &mut At<'_>) {
        self.reopening.look();
        self.expiry.arm_all(led, &self.uses);
        self.redrive(led);
    }

    /// Does what a committed record asks for. Only the newest write counts; an earlier one is overtaken.
    fn committed(&mut self, led: &mut At<'_>, key: &DocKey) {
        let Some(doc) = led.log.replica.docs.get(key) else { return };
        let overtaken = led.log.replica.latest.contains_key(key);
        let Some(record) = doc.session().filter(|_| !overtaken).cloned() else { return };
        match record.state {
            SessionState::Pending | SessionState::Starting => {
                self.expiry.arm(led, &self.uses, &record);
                self.work.ask_for(led, key, &record);
            }
            SessionState::Closing => {
                self.expiry.disarm(&record.key);
                self.work.ask_for(led, key, &record);
            }
            SessionState::Closed | SessionState::Failed | SessionState::Lost => {
                if record.is_reopened() {
                    self.reopening.look();
                }
                self.uses.forget(&record.key);
                self.expiry.disarm(&record.key);
                self.release(led, &record.key);
            }
            SessionState::Ready => {
                self.expiry.arm(led, &self.uses, &record);
                self.rerun_waiters(led, &record.key);
            }
        }
    }

    fn advanced(&mut self, led: &mut At<'_>) {
        self.watches.serve_pulls(led);
    }

    fn unwedged(&mut self, led: &mut At<'_>) {
        // What nodes answered meanwhile was not taken: they are asked once more.
        let now = led.env.now.mono_ms;
        self.work.ids.values_mut().for_each(|work| work.ask_ms = work.ask_ms.min(now));
        // What the registry said meanwhile could not be written.
        self.sweep_lost(led);
        self.tick_work(led);
    }

    fn tick(&mut self, led: &mut At<'_>, turn: Turn) {
        match turn {
            Turn::Expired => {
                self.looks.retain(&|origin| led.inbox.live.contains_key(origin));
                self.watches.pulls.retain(|origin| led.inbox.live.contains_key(origin))
            }
            Turn::Ask => {
                self.tick_work(led);
                self.looks.tick(led);
            }
            Turn::Rest => {
                for key in self.drain.next(led) {
                    self.close_drained(led, &key);
                }
                self.close_expired(led);
                self.sweep_when_due(led);
                self.tick_room(led);
                self.watches.expire_pulls(led);
            }
            Turn::Last => {}
        }
    }

    fn is_busy(&self) -> bool {
        !self.work.ids.is_empty()
            || !self.looks.is_empty()
            || self.drain.after.is_some()
            || self.reopening.waits()
    }

    fn retain(&mut self, is_there: &dyn Fn(&Origin) -> bool) {
        self.capacity.waiting.retain(is_there);
        self.looks.retain(is_there);
        for work in self.work.ids.values_mut() {
            work.waiters.retain(is_there);
        }
    }
}

impl RequestHandler for Sessions {
    fn carry_out(&mut self, led: &mut At<'_>, origin: Origin, op: Op) {
        let (open, reads) = (led.lead.is_open(), led.lead.reads());
        match op {
            // Before the nodes were scanned and the copies compared, nothing here may be shown.
            Op::Get(get) if get.stale_ok && reads => {
                let result = read(led, &get.key, true);
                self.reply(led, origin, result);
            }
            Op::List(list) if list.stale_ok && reads => {
                let result = Ok(Answer::Listed(page(led, &list)));
                self.reply(led, origin, result);
            }
            Op::Get(get) if reads => self.on_get(led, origin, &get.key),
            Op::KeepAlive(keep) if reads => self.on_get(led, origin, &keep.key),
            Op::List(_) if reads => led.confirm_then(origin),
            Op::Mend(_) if open => led.confirm_then(origin),
            Op::Pull(_) if reads => self.watches.serve_pull(led, origin),
            Op::Open(op) if open => self.on_open(led, origin, op),
            Op::Close(op) if open => self.on_close(led, origin, &op),
            Op::Report(item) if open => self.on_report(led, origin, &item),
            Op::Lives(LivesOp::Update(op)) if open => self.on_update(led, origin, *op),
            Op::Lives(LivesOp::Show(_)) if reads => led.confirm_then(origin),
            Op::Get(_)
            | Op::KeepAlive(_)
            | Op::Lives(_)
            | Op::List(_)
            | Op::Pull(_)
            | Op::Open(_)
            | Op::Close(_)
            | Op::Report(_)
            | Op::Mend(_)
            | Op::Numbers(_)
            | Op::Tasks(_)
            | Op::Search(_)
            | Op::Documents(_) => led.enqueue(origin),
        }
    }

    fn confirmed(&mut self, led: &mut At<'_>, origin: Origin, op: Op) {
        match op {
            Op::Get(get) => {
                let result = read(led, &get.key, false);
                self.reply(led, origin, result);
            }
            Op::List(list) => {
                let result = Ok(Answer::Listed(page(led, &list)));
                self.reply(led, origin, result);
            }
            Op::KeepAlive(keep) => {
                let result = keep_alive(led, &mut self.uses, &keep);
                self.reply(led, origin, result);
            }
            Op::Lives(LivesOp::Update(op)) => self.on_update_confirmed(led, origin, &op),
            // Who knows of actions, too, has them shown.
            Op::Lives(LivesOp::Show(_) | LivesOp::Fire(_)) => {}
            Op::Open(open) => self.on_open_confirmed(led, origin, open),
            Op::Close(close) => self.on_close_confirmed(led, origin, close),
            Op::Report(_) => self.reply(led, origin, Ok(Answer::Reported)),
            Op::Mend(op) => self.looks.on_mend(led, origin, &op),
            Op::Pull(_) | Op::Numbers(_) | Op::Tasks(_) | Op::Search(_) | Op::Documents(_) => {}
        }
    }

    fn unfinished(&self, led: &At<'_>, late: &Late) -> BTreeMap<Origin, OpResult> {
        let waiting = self.capacity.waiting.iter().filter(|origin| late.all.contains(origin));
        let room: BTreeSet<&Origin> = waiting.collect();
        let retry_ms = led.env.config.timing.retry_ms;
        let mut told = BTreeMap::new();
        for origin in &late.all {
            let result = match led.inbox.live.get(origin).map(|asked| &asked.op) {
                Some(Op::Open(open)) if room.contains(origin) => Err(no_room_yet(led.env, open)),
                Some(Op::Open(_)) if late.queued.contains(origin) => {
                    let text = format!("partition {} waits for a copy", led.log.number);
                    let retry = Retry::AfterMs(retry_ms);
                    Err(Refusal::new(RefusalKind::NotServing, retry, text))
                }
                Some(Op::Open(open)) => Err(still_opening(led, open)),
                Some(Op::Close(close)) => still_closing(led, close),
                Some(Op::Lives(LivesOp::Update(_))) => {
                    Err(led.too_late("the change was not committed in time"))
                }
                Some(
                    Op::Get(_)
                    | Op::KeepAlive(_)
                    | Op::Lives(LivesOp::Show(_))
                    | Op::List(_)
                    | Op::Pull(_)
                    | Op::Report(_),
                ) => Err(led.too_late("the copies did not confirm in time")),
                Some(Op::Mend(op)) => Err(self.looks.late(led, origin, op)),
                Some(
                    Op::Numbers(_)
                    | Op::Tasks(_)
                    | Op::Search(_)
                    | Op::Lives(LivesOp::Fire(_))
                    | Op::Documents(_),
                )
                | None => {
                    continue;
                }
            };
            told.insert(*origin, result);
        }
        told
    }

    fn reply(&mut self, led: &mut At<'_>, origin: Origin, mut result: OpResult) {
        let Some(asked) = led.inbox.live.get(&origin) else { return };
        // Whose request id names something else has begun nothing: what stands there is the other.
        if let Err(refusal) = &mut result
            && refusal.kind != RefusalKind::RequestIdReused
            && (asked.ending == Some(Ending::Unplaced) || has_begun(led, &asked.op))
        {
            refusal.changed = Changed::Unknown;
        }
        led.reply(origin, result);
    }
}

impl Sessions {
    /// Opens that wait for room try again when nodes or loads changed, and tell the pool's owner.
    fn tick_room(&mut self, led: &mut At<'_>) {
        let due = self.capacity.due(led);
        let reopening = self.reopening.tick(led, &mut self.work);
        if due.is_empty() && reopening.is_empty() {
            return;
        }
        for origin in due {
            self.run(led, origin);
        }
        tell_pool_owners(led, &mut self.capacity, reopening);
    }

    /// Answers once the newest write of a document is committed.
    pub(crate) fn reply_when_committed(
        &mut self,
        led: &mut At<'_>,
        key: &DocKey,
        origin: Origin,
        result: OpResult,
    ) {
        if led.waits_for_commit(key) {
            // Promises are kept in order of position: wait for everything that was appended.
            led.promise(led.log.replica.last, origin, result);
        } else {
            self.reply(led, origin, result);
        }
    }
}

/// What an open is told that waits for its session.
fn still_opening(led: &At<'_>, open: &OpenOp) -> Refusal {
    let retry = Retry::AfterMs(led.env.config.timing.retry_ms);
    let record = led.log.replica.session(&key_of(led.env, &open.key));
    if let Some(closing) = record.filter(|it| it.state == SessionState::Closing) {
        let text = format!("session {} is still being closed", closing.key);
        return Refusal::new(RefusalKind::Closing, retry, text);
    }
    let text = format!("session {} is still being opened", open.key);
    Refusal::unknown_outcome(RefusalKind::InProgress, retry, text)
}

/// What a close is told whose session has not ended.
fn still_closing(led: &At<'_>, close: &CloseOp) -> OpResult {
    let key = key_of(led.env, &close.key);
    // Only what is committed is promised, and that this request is remembered for it.
    let record = led.log.replica.docs.get(&key).and_then(|doc| doc.session());
    let record = record.filter(|record| {
        let entry = led.log.replica.committed_request(&key, &close.request);
        let fate = entry.map(|entry| entry.fate);
        let mine = matches!(fate, Some(RequestFate::Closed { life }) if life == record.life);
        record.state == SessionState::Closing && mine
    });
    // Alone it does not know whether it is the owner still.
    match record.filter(|_| !led.lead.is_lone()) {
        Some(record) => {
            let session = view_at_node(led, record.clone());
            Ok(Answer::Closed { finished: false, session })
        }
        None => Err(led.too_late(&format!("session {} is not closed yet", close.key))),
    }
}

/// Whether a request stands in its session's record: then it changed something, whatever it
/// came to.
fn has_begun(led: &At<'_>, op: &Op) -> bool {
    let (session, request, opens) = match op {
        Op::Open(open) => (&open.key, &open.request, true),
        Op::Close(close) => (&close.key, &close.request, false),
        Op::Get(_)
        | Op::KeepAlive(_)
        | Op::Lives(_)
        | Op::List(_)
        | Op::Pull(_)
        | Op::Report(_)
        | Op::Mend(_)
        | Op::Numbers(_)
        | Op::Tasks(_)
        | Op::Search(_)
        | Op::Documents(_) => return false,
    };
    let entry = led.log.replica.request(&key_of(led.env, session), request);
    entry.is_some_and(|entry| match entry.fate {
        RequestFate::Opening | RequestFate::Opened { .. } | RequestFate::Failed { .. } => opens,
        RequestFate::Closed { .. } => true,
    })
}
