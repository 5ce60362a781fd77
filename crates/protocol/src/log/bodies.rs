//! Bodies of attachments: no manager takes over a document before it holds the bodies that the
//! document names.
//!
//! ```text
//!  owner:  operation, import ── a body is not held ──▶ refused (N-BODY), before anything is written
//!  copy:   Prepare, SyncData, SnapshotChunk ── not held ──▶ not taken, FetchBodies; the owner sends
//!                                                          it again, as after a loss
//! ```
//! What is in a log has its bodies beside it, so persisting, acknowledging and committing need not
//! know of them: a write that names a body commits when the whole ISR has both. It is the log where
//! this is decided, and not the disk behind it: a write to disk that waited for a body would hold up
//! all later ones, of every partition; and an entry whose body died with its owner would stay in the
//! log of the next one for ever.
//!
//! Only bodies count that a document did not name before. One that was lost later (a damaged file)
//! is the driver's to mend, and keeps nobody from joining. An operation that names it meanwhile is told
//! so (X-DAMAGED).

use crate::log::env::Env;
use crate::log::state::Log;
use crate::ports::bodies::Bodies;
use crate::ports::io::Effect;
use rota_docstore::{Attachment, Digest, DocName, Exception, FieldError, beyond, codes};
use rota_messages::{Doc, DocKey, Entry, Message, Write};
use rota_model::LogPos;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Why a document that names this attachment is not written; `held` is the size of its body here.
fn refused(
    bodies: &dyn Bodies,
    name: &DocName,
    (sha256, size): (Digest, u64),
    held: Option<u64>,
) -> Exception {
    if let Some(held) = held {
        let problem = format!("of {name} is {size}, but the body {sha256} has {held} bytes");
        return Exception::of_field(codes::INVALID, FieldError::new("size", problem));
    }
    let (code, problem) = match bodies.damage(&sha256) {
        None => (codes::BODY, format!("{sha256} that {name} names is not here; put it first")),
        Some(damage) => {
            let advice = "it is fetched from another copy, or put it again";
            (codes::DAMAGED, format!("that {name} names: {damage}; {advice}"))
        }
    };
    Exception::of_field(code, FieldError::new("body", problem))
}

/// What a document says of its attachments now, and did not before: each once.
fn gained<T: Ord>(
    before: Option<&Doc>,
    after: Option<&Doc>,
    of: impl Fn(&Attachment) -> T,
) -> Vec<T> {
    let said = |doc: Option<&Doc>| -> BTreeSet<T> {
        doc.into_iter().flat_map(Doc::attachments).map(&of).collect()
    };
    let after = said(after);
    // Nearly no document names a body, and all pass here: of those before nothing is looked at.
    if after.is_empty() { Vec::new() } else { beyond(after, said(before)) }
}

/// Bodies that documents gain over what they were, and that are not held.
struct Gains<'a> {
    env: &'a Env,
    missing: BTreeSet<Digest>,
}

impl Gains<'_> {
    /// Whether all bodies are held that `after` names and `before` does not.
    fn are_held(&mut self, before: Option<&Doc>, after: Option<&Doc>) -> bool {
        let mut gained = gained(before, after, Attachment::sha256);
        gained.retain(|sha256| self.env.held.bodies.hold(sha256).is_none());
        let all = gained.is_empty();
        self.missing.extend(gained);
        all
    }
}

impl Log {
    /// Why the owner does not write this: a document would gain an attachment whose body is not
    /// held, or has another size than the item says.
    pub fn without_body(&self, env: &Env, writes: &[Write]) -> Option<Exception> {
        writes.iter().find_map(|write| {
            let before = self.replica.get(&write.key).map(|it| &**it);
            let gained = gained(before, write.doc.as_deref(), |it| (it.sha256(), it.size()));
            gained.into_iter().find_map(|(sha256, size)| {
                let held = env.held.bodies.hold(&sha256);
                let refused = || refused(&*env.held.bodies, &write.key.name, (sha256, size), held);
                (held != Some(size)).then(refused)
            })
        })
    }

    /// What of a message may be taken: entries up to the first that names a body which is not held;
    /// of other messages all or nothing. Asks for what is missing.
    pub fn with_bodies(&self, env: &mut Env, mut message: Message) -> Option<Message> {
        let mut gains = Gains { env, missing: BTreeSet::new() };
        let is_whole = match &mut message {
            Message::Prepare { entries, .. } => {
                let usable = self.entries_with_bodies(&mut gains, entries);
                entries.truncate(usable);
                // What is left of it still tells what is committed.
                true
            }
            Message::SyncData { writes, .. } => {
                let mut all = true;
                for write in writes.iter() {
                    let before = self.replica.get(&write.key).map(|it| &**it);
                    all &= gains.are_held(before, write.doc.as_deref());
                }
                all
            }
            Message::SnapshotChunk { chunk, .. } => {
                let mut all = true;
                for (key, doc) in &chunk.docs {
                    let before = self.replica.get(key).map(|it| &**it);
                    all &= gains.are_held(before, Some(doc));
                }
                all
            }
            Message::Request { .. }
            | Message::Answer { .. }
            | Message::Ack { .. }
            | Message::Nack { .. }
            | Message::SyncAsk { .. }
            | Message::SyncReport { .. }
            | Message::SyncApplied { .. }
            | Message::ReadIndex { .. }
            | Message::ReadIndexConfirmed { .. }
            | Message::SnapshotAck { .. }
            | Message::Heartbeat { .. }
            | Message::Probe { .. }
            | Message::Probed { .. }
            | Message::NodeWanted { .. }
            | Message::NodesFailed { .. } => true,
        };
        let missing = gains.missing;
        if !missing.is_empty() {
            let bodies = missing.into_iter().collect();
            env.effects.push(Effect::FetchBodies { part: self.number, bodies });
        }
        is_whole.then_some(message)
    }

    /// How many of these entries, from the first on, name nothing that is missing.
    fn entries_with_bodies(&self, gains: &mut Gains<'_>, entries: &[Entry]) -> usize {
        let last = self.replica.last;
        // What repeats is not taken anyway, and may name what was given up since.
        let is_new = |at: LogPos| at.pe != last.pe || at > last;
        let mut written: BTreeMap<&DocKey, &Arc<Doc>> = BTreeMap::new();
        let mut usable = entries.len();
        for (number, entry) in entries.iter().enumerate().filter(|(_, it)| is_new(it.at)) {
            for Write { key, doc } in entry.writes.iter() {
                // Nearly no document names a body, and all pass here: nothing is looked up for them.
                let Some(doc) = doc.as_ref().filter(|it| it.bodies().next().is_some()) else {
                    continue;
                };
                let before = written.insert(key, doc).or_else(|| self.replica.get(key));
                if !gains.are_held(before.map(|it| &**it), Some(doc)) {
                    usable = usable.min(number);
                }
            }
        }
        usable
    }
}
