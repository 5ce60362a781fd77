//! What time makes of documents: what is remembered of destroyed items, of ended lives, of ended
//! sessions and of operations is forgotten once nobody can need it.
//!
//! The owner looks at a bounded part of its documents in each step, one round after the other, and
//! writes what it finds like any other change: copies, disks and new owners have what it has. No
//! version moves: what is forgotten was nobody's work. Of a document that lives on, clients see
//! nothing but a later dtime, and only if items were forgotten: one that moved for nothing would
//! make caches that were away ask for all names.

use crate::contents::fills::of_application;
use crate::contents::session_counts::is_reopening;
use crate::documents::copies::write_of;
use crate::log::at::At;
use crate::log::env::Env;
use crate::log::lead::Phase;
use crate::log::resident::{Resident, Turn};
use crate::ports::note::Transition;
use rota_docstore::memory::{floors, remembers};
use rota_docstore::{Aged, Document, Rules};
use rota_messages::documents::{OUTPUT_CLASS, is_output_over};
use rota_messages::{Doc, DocKey, Write};
use rota_model::{Reason, Stamp, UNPLACED_MEMORY_MS};
use std::ops::Bound;
use std::sync::Arc;

/// Between two rounds.
const ROUND_MS: u64 = 10_000;

/// Between two steps of a round: what clients ask comes in between.
const STEP_MS: u64 = 200;

/// Most documents and items of applications that one step looks at: about a millisecond.
const LOOKED_AT_MAX: usize = 10_000;

/// By when what was made is old.
struct Ages {
    now: Stamp,
    /// Sessions that ended before.
    sessions: Stamp,
    /// Lives that no node took, and that ended before.
    unplaced: Stamp,
    rules: Rules,
}

impl Ages {
    pub(crate) fn of(&self, doc: &Doc) -> Aged {
        if let Some(brief) = doc.brief() {
            // One that lives on knows few destroyed items, and forgets them with its next change.
            let is_unplaced = || {
                brief.reason == Some(Reason::NoCapacity)
                    && doc.version() < self.unplaced
                    && doc.session().is_some_and(|it| it.is_unplaced())
            };
            let has_ended = brief.state.is_ended() && !is_reopening(brief);
            let is_old = has_ended && (doc.version() < self.sessions || is_unplaced());
            return if is_old { Aged::Gone } else { Aged::Same };
        }
        match doc.of_application() {
            // What is remembered goes by its own age.
            Some(it) if remembers(it).is_some() => Aged::Same,
            Some(it) if self.is_output_over(it) => Aged::Gone,
            Some(it) => self.rules.aged(it, self.now),
            None => Aged::Same,
        }
    }
}

impl Ages {
    /// Whether nobody wants any more what programs of a session printed.
    fn is_output_over(&self, document: &Document) -> bool {
        document.name().class() == OUTPUT_CLASS
            && !document.is_deleted()
            && is_output_over(document, self.now)
    }
}

/// What a look at one document costs.
fn cost(doc: &Doc) -> usize {
    1 + doc.of_application().map_or(0, |it| it.items().len())
}

/// How far looking for what is old has come.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Aging {
    next_ms: u64,
    /// The document after which it goes on.
    after: Option<DocKey>,
}

impl Resident for Aging {
    fn begin(env: &Env, _: &Phase) -> Self {
        Self { next_ms: env.now.mono_ms, after: None }
    }

    fn tick(&mut self, led: &mut At<'_>, turn: Turn) {
        if turn == Turn::Last {
            self.forget_old(led);
        }
    }
}

impl Aging {
    /// The next step, if it is time for one.
    fn forget_old(&mut self, led: &mut At<'_>) {
        let now = led.env.now.mono_ms;
        if !led.lead.is_open() || now < self.next_ms {
            return;
        }
        let after = self.after.take();
        let (mut writes, rest) = old_after(led, after.as_ref());
        let memories = old_memories(led, &led.env.documents_env.rules(led.slots()));
        let goes_on = rest.is_some() || memories.len() >= led.env.config.sizes.purge_docs;
        // One entry holds one write of a document: what is forgotten up to when may have been old itself.
        writes.retain(|it| memories.iter().all(|memory| memory.key != it.key));
        writes.extend(memories);
        let pause_ms = if goes_on { STEP_MS } else { ROUND_MS };
        (self.next_ms, self.after) = (now + pause_ms, rest);
        if writes.is_empty() {
            return;
        }
        for Write { doc, .. } in &writes {
            let gone = doc.is_none();
            let kind = if gone { Transition::TombstonePurged } else { Transition::ItemsForgotten };
            led.env.note(kind, Some(led.log.number));
        }
        led.write(writes, None);
    }
}

/// What is to be forgotten of the documents after one, and where to go on, unless those were
/// the last ones. What was appended and is not committed yet is new.
fn old_after(led: &At<'_>, after: Option<&DocKey>) -> (Vec<Write>, Option<DocKey>) {
    let (wall_ms, sizes) = (led.env.now.wall_ms, &led.env.config.sizes);
    let ended_ms = wall_ms.saturating_sub(led.env.config.timing.tombstone_ms);
    let ages = Ages {
        now: Stamp::from_epoch_ms(wall_ms),
        sessions: Stamp::from_epoch_ms(ended_ms),
        unplaced: Stamp::from_epoch_ms(wall_ms.saturating_sub(UNPLACED_MEMORY_MS)),
        rules: led.env.documents_env.rules(led.slots()),
    };
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    let (mut writes, mut bytes, mut looked_at) = (Vec::new(), 0, 0);
    for (key, doc) in led.log.replica.docs.range::<DocKey, _>((from, Bound::Unbounded)) {
        looked_at += cost(doc);
        let left = match ages.of(doc) {
            _ if led.log.replica.latest.contains_key(key) => None,
            Aged::Same => None,
            Aged::Gone => Some(None),
            // It was taken as it was, so it is taken with less.
            Aged::Shortened(document) => Doc::new(Arc::new(document)).ok().map(Some),
        };
        if let Some(left) = left {
            let doc = left.map(Arc::new);
            bytes += doc.as_ref().map_or(0, |it| it.bytes());
            writes.push(Write { key: key.clone(), doc });
        }
        let is_full = writes.len() >= sizes.purge_docs || bytes >= sizes.message_bytes;
        if is_full || looked_at >= LOOKED_AT_MAX {
            return (writes, Some(key.clone()));
        }
    }
    (writes, None)
}

/// What is to be forgotten now, with what says how much that was: at most so many. What was appended
/// and is not committed yet is new.
fn old_memories(led: &At<'_>, rules: &Rules) -> Vec<Write> {
    let replica = &led.log.replica;
    let now = Stamp::from_epoch_ms(led.env.now.wall_ms);
    let answers_ms = led.env.config.timing.answers_ms();
    let old = replica.counts.memories.old(now, answers_ms, rules, led.env.config.sizes.purge_docs);
    let old: Vec<&DocKey> = old.filter(|it| !replica.latest.contains_key(*it)).collect();
    let docs = old.iter().filter_map(|key| replica.docs.get(*key));
    let documents = docs.filter_map(|doc| of_application(doc));
    let m = led.env.view().m;
    let found = |name: &rota_docstore::DocName| {
        let key = DocKey::new(crate::ports::slots::slot_of(name, m), name.clone());
        replica.get(&key).map(|doc| doc.document().clone())
    };
    let floors = floors(documents, found).into_iter().map(|it| write_of(it, m));
    let gone = old.iter().map(|key| Write { key: (*key).clone(), doc: None });
    floors.chain(gone).collect()
}
