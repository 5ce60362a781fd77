//! Following the descriptions of namespaces and pools, and the stable numbers: every manager asks the owner of their slot for what
//! is newer than what it knows, and the owner answers when there is something.

use crate::documents::state::Documents;
use crate::documents::usage::together;
use crate::log::at::At;
use crate::log::env::Env;
use crate::log::origin::Origin;
use crate::log::resident::RequestHandler;
use crate::ports::slots::{CONFIGURATION, slot_of_spaces};
use rota_docstore::Document;
use rota_docstore::space::SPACE_CLASS;
use rota_messages::api::{CountedUsage, FollowOp};
use rota_messages::{Answer, DocKey, DocumentAnswer, DocumentOp, Op};
use rota_model::items::{NUMBER_CLASS, POOL_CLASS};
use rota_model::{Epoch, ManagerNumber, Refusal, RefusalKind, Retry, Stamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most questions that wait at one owner: some for each manager, of which there are 100 at most.
const FOLLOWERS_MAX: usize = 1_024;

impl Documents {
    /// Something was committed, or time passed: answers who can be answered.
    pub fn serve_follows(&mut self, led: &mut At<'_>) {
        if !led.lead.reads() || self.follows.is_empty() {
            return;
        }
        for origin in std::mem::take(&mut self.follows) {
            self.serve_follow(led, origin);
        }
    }

    /// A manager asks, and says what its partitions hold.
    pub(crate) fn on_follow(&mut self, led: &mut At<'_>, origin: Origin, op: &FollowOp) {
        if let Some(held) = &op.held {
            let view = led.env.view();
            self.counted_usage.retain(|number, _| view.managers.contains_key(number));
            self.counted_usage.insert(origin.manager(led.env.me.number), held.clone());
        }
        self.serve_follow(led, origin);
    }

    fn serve_follow(&mut self, led: &mut At<'_>, origin: Origin) {
        let Some(asked) = led.inbox.live.get(&origin) else { return };
        let Op::Documents(DocumentOp::Follow(op)) = &asked.op else { return };
        let is_over = led.env.now.mono_ms >= asked.arrived_ms + op.wait_ms;
        let news = descriptions(&led.log.replica, led.env, op.since);
        if !news.is_empty() || is_over {
            let held = op.held.as_ref().map(|_| counted(&self.counted_usage, led.env.epoch()));
            let answer = DocumentAnswer::Followed { documents: news, held };
            return self.reply(led, origin, Ok(Answer::Documents(answer)));
        }
        if self.follows.len() < FOLLOWERS_MAX {
            self.follows.push_back(origin);
            return;
        }
        let retry = Retry::AfterMs(led.env.config.timing.retry_ms);
        let text = format!("{FOLLOWERS_MAX} followers wait at this partition already");
        self.reply(led, origin, Err(Refusal::new(RefusalKind::Overloaded, retry, text)));
    }
}

/// What all said of the same View.
fn counted(counted_usage: &BTreeMap<ManagerNumber, CountedUsage>, epoch: Epoch) -> CountedUsage {
    let of_now = counted_usage.values().filter(|it| it.epoch == epoch);
    CountedUsage { epoch, usages: together(of_now.map(|it| &it.usages)) }
}

/// Whether every manager is told of documents of that class.
fn is_told(class: &str) -> bool {
    [SPACE_CLASS, POOL_CLASS, NUMBER_CLASS].contains(&class)
}

/// Committed descriptions, and ends of their lives, that are newer: by version, as far as one
/// message takes them.
fn descriptions(
    replica: &crate::log::replica::Replica,
    env: &Env,
    since: Stamp,
) -> Vec<Arc<Document>> {
    let slot = slot_of_spaces(env.view().m);
    let range = replica.docs.range(DocKey::first_of(slot)..);
    let here = range.take_while(|(key, _)| key.slot == slot);
    let described =
        here.filter(|(key, _)| key.name.space() == CONFIGURATION && is_told(key.name.class()));
    let newer = described.map(|(_, doc)| doc).filter(|doc| doc.version() > since);
    let mut news: Vec<_> = newer.collect();
    news.sort_unstable_by_key(|doc| doc.version());
    let mut room = env.config.sizes.message_bytes;
    let mut first = true;
    let fits = |doc: &&&Arc<rota_messages::documents::Doc>| {
        let rest = room.checked_sub(doc.bytes());
        room = rest.unwrap_or(0);
        rest.is_some() || std::mem::take(&mut first)
    };
    news.iter().take_while(fits).map(|doc| doc.document().clone()).collect()
}
