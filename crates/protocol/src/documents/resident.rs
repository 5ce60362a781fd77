//! Documents as what lives in a partition: requests about them, and what they do when the log moves.

use crate::documents::state::Documents;
use crate::log::at::At;
use crate::log::env::Env;
use crate::log::lead::Phase;
use crate::log::origin::Origin;
use crate::log::resident::{Late, RequestHandler, Resident, Turn};
use rota_messages::{Op, OpResult};
use rota_model::{Refusal, RefusalKind, Retry};
use std::collections::{BTreeMap, BTreeSet};

impl Resident for Documents {
    fn begin(_: &Env, _: &Phase) -> Self {
        Self::default()
    }

    fn serve(&mut self, led: &mut At<'_>) {
        // Whatever an earlier owner told is not above what it had.
        self.told = led.log.replica.high_water;
    }

    fn advanced(&mut self, led: &mut At<'_>) {
        self.serve_follows(led);
        self.serve_watches(led);
    }

    fn tick(&mut self, led: &mut At<'_>, turn: Turn) {
        if turn == Turn::Expired {
            self.watches.retain(|origin| led.inbox.live.contains_key(origin));
        }
        if turn == Turn::Rest {
            self.serve_follows(led);
            self.expire_watches(led);
            self.tick_runs(led);
        }
    }

    fn patient(&self) -> usize {
        self.follows.len()
    }

    fn forget(&mut self, origin: &Origin) {
        self.runs.remove(origin);
        self.watches.forget(origin);
    }

    fn retain(&mut self, is_there: &dyn Fn(&Origin) -> bool) {
        self.runs.retain(|origin, _| is_there(origin));
        self.follows.retain(is_there);
        self.watches.retain(is_there);
    }
}

impl RequestHandler for Documents {
    fn carry_out(&mut self, led: &mut At<'_>, origin: Origin, op: Op) {
        let Op::Documents(op) = op else { return };
        if led.lead.is_open() || led.lead.reads() && !op.changes() {
            self.on_documents(led, origin, &op);
        } else {
            led.enqueue(origin);
        }
    }

    fn confirmed(&mut self, led: &mut At<'_>, origin: Origin, op: Op) {
        if let Op::Documents(op) = op {
            self.on_documents_confirmed(led, origin, &op);
        }
    }

    fn unfinished(&self, led: &At<'_>, late: &Late) -> BTreeMap<Origin, OpResult> {
        let appended: BTreeSet<&Origin> =
            led.inbox.pending_replies.iter().map(|it| &it.origin).collect();
        let is_mine = |origin: &&Origin| {
            let asked = led.inbox.live.get(origin);
            asked.is_some_and(|asked| matches!(asked.op, Op::Documents(_)))
        };
        let told = |origin: &Origin| {
            if appended.contains(origin) {
                return Err(led.too_late("the copies did not confirm in time"));
            }
            let text = "the operation could not be finished in time, and has changed nothing";
            let retry = Retry::AfterMs(led.env.config.timing.retry_ms);
            Err(Refusal::new(RefusalKind::DeadlineExceeded, retry, text))
        };
        late.all.iter().filter(is_mine).map(|origin| (*origin, told(origin))).collect()
    }

    fn reply(&mut self, led: &mut At<'_>, origin: Origin, result: OpResult) {
        if led.inbox.live.contains_key(&origin) {
            self.runs.remove(&origin);
            self.watches.forget(&origin);
            led.reply(origin, result);
        }
    }
}
