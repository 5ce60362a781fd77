//! Following the descriptions of namespaces: every manager asks the owner of their slot for what
//! is newer than what it knows, and the owner answers when there is something.

use super::here::slot_of_spaces;
use super::holdings::{Own, own, together};
use super::pending::{Errand, Inner};
use super::registry::CONFIGURATION;
use crate::entry::Origin;
use crate::env::Env;
use crate::io::Transition;
use crate::partition::Partition;
use crate::parts::Parts;
use rota_docstore::space::SPACE_CLASS;
use rota_docstore::{Document, Spaces};
use rota_messages::api::{FollowOp, Holdings};
use rota_messages::{Answer, DocKey, DocumentAnswer, DocumentOp, Op, OpResult};
use rota_model::{Epoch, ManagerNumber, Refusal, RefusalKind, Retry, Stamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How long the owner keeps a question without news: less than what counts as its silence, so that
/// nobody looks for another owner.
const WAIT_MS: u64 = 400;
/// How long this manager looks for the owner. It only bounds the wait: there is nobody who waits.
const DEADLINE_MS: u64 = 4_000;
/// After a refusal, the owner is asked again so soon.
const AGAIN_MS: u64 = 250;
/// A manager that heard nothing for so long begins anew: ends of lives are remembered for days
/// only.
const ANEW_MS: u64 = 3_600_000;
/// Most questions that wait at one owner: some for each manager, of which there are 100 at most.
const FOLLOWERS_MAX: usize = 1_024;

/// Where a manager is with the descriptions of namespaces.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Following {
    /// The latest version that was told.
    since: Stamp,
    /// It begins (anew), and has heard this so far: whatever there is must be told at once, until
    /// there is nothing more. Then this counts, and not before: a part would leave namespaces open
    /// that are off.
    beginning: Option<Spaces>,
    heard_ms: u64,
    /// What it said of its own partitions in what it asks now, and in which View.
    said: Option<(Epoch, Own)>,
    is_asking: bool,
    next_ms: u64,
}

impl Following {
    pub fn new(now_ms: u64) -> Self {
        Self {
            since: Stamp::MIN,
            beginning: Some(Spaces::default()),
            heard_ms: now_ms,
            said: None,
            is_asking: false,
            next_ms: now_ms,
        }
    }

    /// Asks, if it is time to.
    pub fn drive(&mut self, env: &mut Env, parts: &Parts) {
        let now = env.now.mono_ms;
        if self.is_asking || now < self.next_ms || env.view.is_none() {
            return;
        }
        let wall = Stamp::from_epoch_ms(env.now.wall_ms);
        env.desks.spaces.forget_deleted(wall.minus_ms(env.config.documents.deleted_ms));
        if now >= self.heard_ms + ANEW_MS {
            (self.since, self.beginning) = (Stamp::MIN, Some(Spaces::default()));
        }
        self.is_asking = true;
        let wait_ms = if self.beginning.is_some() { 0 } else { WAIT_MS };
        self.said = own(env, parts).map(|own| (env.epoch(), own));
        let held = self
            .said
            .as_ref()
            .map(|(epoch, own)| Holdings { epoch: *epoch, usages: together(own.values()) });
        let op = FollowOp { since: self.since, wait_ms, held };
        let op = Op::Documents(DocumentOp::Follow(op));
        let deadline_ms = now + DEADLINE_MS;
        env.errands.push(Errand { inner: Inner::Follow, op, deadline_ms });
    }

    /// The owner answered. Gives whether what counts has changed.
    pub fn on_answer(&mut self, env: &mut Env, result: &OpResult) -> bool {
        let now = env.now.mono_ms;
        (self.is_asking, self.next_ms) = (false, now);
        let said = self.said.take();
        let Ok(Answer::Documents(DocumentAnswer::Followed { documents, held })) = result else {
            self.next_ms = now + AGAIN_MS;
            return false;
        };
        self.heard_ms = now;
        if let (Some(held), Some((epoch, own))) = (held, said)
            && held.epoch == epoch
        {
            env.desks.counted.learn(held.clone(), own);
        }
        let spaces = self.beginning.as_mut().unwrap_or(&mut env.desks.spaces);
        for document in documents {
            // One that does not read as a description leaves what was known.
            drop(spaces.learn(document));
            self.since = self.since.max(document.version());
        }
        documents.iter().for_each(|_| env.note(Transition::NamespaceLearned, None));
        if let Some(spaces) = self.beginning.take_if(|_| documents.is_empty()) {
            (env.desks.spaces, env.desks.knows_spaces) = (spaces, true);
            return true;
        }
        self.beginning.is_none() && !documents.is_empty()
    }
}

impl Partition {
    /// Something was committed, or time passed: answers who can be answered.
    pub fn serve_follows(&mut self, env: &mut Env) {
        let Some(leading) = &mut self.leading else { return };
        if !leading.reads() || leading.follows.is_empty() {
            return;
        }
        for origin in std::mem::take(&mut leading.follows) {
            self.serve_follow(env, origin);
        }
    }

    /// A manager asks, and says what its partitions hold.
    pub(super) fn on_follow(&mut self, env: &mut Env, origin: Origin, op: &FollowOp) {
        if let (Some(leading), Some(held)) = (&mut self.leading, &op.held) {
            let view = env.view();
            leading.holdings.retain(|number, _| view.managers.contains_key(number));
            leading.holdings.insert(origin.manager(env), held.clone());
        }
        self.serve_follow(env, origin);
    }

    fn serve_follow(&mut self, env: &mut Env, origin: Origin) {
        let Some(leading) = &mut self.leading else { return };
        let Some(asked) = leading.live.get(&origin) else { return };
        let Op::Documents(DocumentOp::Follow(op)) = &asked.op else { return };
        let is_over = env.now.mono_ms >= asked.arrived_ms + op.wait_ms;
        let news = descriptions(&self.replica, env, op.since);
        if !news.is_empty() || is_over {
            let held = op.held.as_ref().map(|_| counted(&leading.holdings, env.epoch()));
            let answer = DocumentAnswer::Followed { documents: news, held };
            return self.reply(env, origin, Ok(Answer::Documents(answer)));
        }
        if leading.follows.len() < FOLLOWERS_MAX {
            leading.follows.push_back(origin);
            return;
        }
        let retry = Retry::AfterMs(env.config.timing.retry_ms);
        let text = format!("{FOLLOWERS_MAX} followers wait at this partition already");
        self.reply(env, origin, Err(Refusal::new(RefusalKind::Overloaded, retry, text)));
    }
}

/// What all said of the same View.
fn counted(holdings: &BTreeMap<ManagerNumber, Holdings>, epoch: Epoch) -> Holdings {
    let of_now = holdings.values().filter(|it| it.epoch == epoch);
    Holdings { epoch, usages: together(of_now.map(|it| &it.usages)) }
}

/// Committed descriptions, and ends of their lives, that are newer: by version, as far as one
/// message takes them.
fn descriptions(replica: &crate::replica::Replica, env: &Env, since: Stamp) -> Vec<Arc<Document>> {
    let slot = slot_of_spaces(env.view().m);
    let range = replica.docs.range(DocKey::first_of(slot)..);
    let here = range.take_while(|(key, _)| key.slot == slot);
    let described = here
        .filter(|(key, _)| key.name.space() == CONFIGURATION && key.name.class() == SPACE_CLASS);
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
