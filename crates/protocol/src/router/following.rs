//! Every manager follows the descriptions of namespaces and pools, and the stable numbers.

use crate::documents::usage::{Own, together};
use crate::log::env::Env;
use crate::log::internal::{Internal, InternalRequest};
use crate::partition::own_usage::own;
use crate::partition::partitions::Partitions;
use crate::ports::note::Transition;
use rota_docstore::{Document, Spaces};
use rota_ids::{Entry, Name};
use rota_messages::api::{CountedUsage, FollowOp};
use rota_messages::documents::{read_number, read_pool};
use rota_messages::{Answer, DocumentAnswer, DocumentOp, Op, OpResult};
use rota_model::items::{NUMBER_CLASS, StableNumber};
use rota_model::{Epoch, PoolName, PoolsByName, Stamp};
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

/// What was told.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Told {
    pub(crate) spaces: Spaces,
    pub(crate) pools: PoolsByName,
    pub(crate) numbers: Arc<rota_ids::Told>,
}

/// Where a manager is with the descriptions of namespaces and pools.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Following {
    /// The latest version that was told.
    pub(crate) since: Stamp,
    /// It begins (anew), and has heard this so far: whatever there is must be told at once, until
    /// there is nothing more. Then this counts, and not before: a part would leave namespaces open
    /// that are off.
    pub(crate) beginning: Option<Told>,
    pub(crate) heard_ms: u64,
    /// What it said of its own partitions in what it asks now, and in which View.
    pub(crate) said: Option<(Epoch, Own)>,
    pub(crate) is_asking: bool,
    pub(crate) next_ms: u64,
}

impl Following {
    pub fn new(now_ms: u64) -> Self {
        Self {
            since: Stamp::MIN,
            beginning: Some(Told::default()),
            heard_ms: now_ms,
            said: None,
            is_asking: false,
            next_ms: now_ms,
        }
    }

    /// Asks, if it is time to.
    pub fn drive(&mut self, env: &mut Env, parts: &Partitions) {
        let now = env.now.mono_ms;
        if self.is_asking || now < self.next_ms || env.view.is_none() {
            return;
        }
        let wall = Stamp::from_epoch_ms(env.now.wall_ms);
        env.documents_env.spaces.forget_deleted(wall.minus_ms(env.config.documents.deleted_ms));
        if now >= self.heard_ms + ANEW_MS {
            (self.since, self.beginning) = (Stamp::MIN, Some(Told::default()));
        }
        self.is_asking = true;
        let wait_ms = if self.beginning.is_some() { 0 } else { WAIT_MS };
        self.said = own(env, parts).map(|own| (env.epoch(), own));
        let held = self
            .said
            .as_ref()
            .map(|(epoch, own)| CountedUsage { epoch: *epoch, usages: together(own.values()) });
        let op = FollowOp { since: self.since, wait_ms, held };
        let op = Op::Documents(DocumentOp::Follow(op));
        let deadline_ms = now + DEADLINE_MS;
        env.router.asked.push(InternalRequest { inner: Internal::Follow, op, deadline_ms });
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
            env.documents_env.counted.learn(held.clone(), own);
        }
        let (spaces, pools, numbers) = match &mut self.beginning {
            Some(Told { spaces, pools, numbers }) => (spaces, pools, numbers),
            None => (&mut env.documents_env.spaces, &mut env.nodes.pools, &mut env.numbers.told),
        };
        let mut described = 0;
        for document in documents {
            self.since = self.since.max(document.version());
            if document.name().class() == NUMBER_CLASS {
                learn_number(numbers, document);
                continue;
            }
            described += 1;
            // One that does not read as a description leaves what was known.
            if spaces.learn(document) == Ok(false) {
                learn_pool(pools, document);
            }
        }
        (0..described).for_each(|_| env.note(Transition::NamespaceLearned, None));
        // A pool may have room since.
        env.nodes.news += u64::from(described > 0);
        if let Some(told) = self.beginning.take_if(|_| documents.is_empty()) {
            (env.documents_env.spaces, env.documents_env.knows_spaces) = (told.spaces, true);
            (env.nodes.pools, env.numbers.told) = (told.pools, told.numbers);
            env.nodes.find_pools_of_classes();
            return true;
        }
        let is_news = self.beginning.is_none() && described > 0;
        if is_news {
            env.nodes.find_pools_of_classes();
        }
        is_news
    }
}

/// Takes over what a document says of a stable number. One that does not read as such leaves what was known.
fn learn_number(numbers: &mut Arc<rota_ids::Told>, document: &Document) {
    let Ok(name) = Name::parse(document.name().docid()) else { return };
    let Ok(said) = read_number(document) else { return };
    let entry =
        said.map(|StableNumber { number, valid, changed_ms }| Entry { number, valid, changed_ms });
    Arc::make_mut(numbers).learn(name, entry);
}

/// Takes over what a document says of a pool; the end of its life takes that away.
fn learn_pool(pools: &mut PoolsByName, document: &Document) {
    let Ok(name) = PoolName::parse(document.name().docid()) else { return };
    match read_pool(document) {
        Ok(Some(known)) => drop(pools.insert(name, known)),
        Ok(None) => drop(pools.remove(&name)),
        Err(_) => {}
    }
}
