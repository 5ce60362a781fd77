//! Planted bugs of copies: what is done to the entries and contents that they get.

use crate::blob_store::BlobStore;
use crate::mutants::bug::Bug;
use crate::site::AtManager;
use crate::writing::BODY_BYTES;
use rota_docstore::Digest;
use rota_model::{ManagerNumber, Reason, SessionRecord, SessionState, Stamp};
use rota_protocol::life_documents::managed_in;
use rota_protocol::{Bodies, Chunk, Disk, Doc, DocKey, Entry, Message, Write};
use rota_ring::View;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A learner whose copy is older than the loss after which the partition began anew: what the owner does
/// not have stays there.
pub(crate) fn only_what_changed(at: &mut AtManager<'_>, message: &mut Message) {
    let Message::SnapshotChunk { part, chunk } = message else { return };
    let Some(view) = &at.store.state().view else { return };
    let Some(plant) = at.plant else { return };
    let (name, disk) = ((at.number, *part, chunk.learn), at.host.disk.durable());
    if chunk.number == 0 && is_from_before(view, disk, *part) {
        plant.deltas.insert(name);
    }
    if plant.deltas.contains(&name) {
        keep_lost(view, disk, *part, chunk);
    }
}

/// Whether what a disk holds of a partition ends before the loss after which that began anew.
pub(crate) fn is_from_before(view: &View, disk: &Disk, part: ManagerNumber) -> bool {
    let ends = disk.parts.get(&part).map(|it| it.last.pe);
    let began = view.parts.get(&part).map(|it| it.base_pe);
    ends.zip(began).is_some_and(|(ends, began)| ends < began)
}

/// A chunk with the documents that only that disk holds.
pub(crate) fn keep_lost(view: &View, disk: &Disk, part: ManagerNumber, chunk: &mut Chunk) {
    use std::ops::Bound::{Excluded, Included, Unbounded};
    let from = chunk.after.as_ref().map_or(Unbounded, Excluded);
    let to = chunk.through.as_ref().map_or(Unbounded, Included);
    let mut docs: BTreeMap<_, _> = chunk.docs.drain(..).collect();
    for (key, doc) in disk.docs.range::<DocKey, _>((from, to)) {
        if view.home(key.slot) == part {
            docs.entry(key.clone()).or_insert_with(|| doc.clone());
        }
    }
    chunk.docs = docs.into_iter().collect();
}

/// Entries without what sessions remember of requests.
pub(crate) fn forget_requests(message: &mut Message) {
    // What lies beside a session is of requests, too.
    let is_kept = |write: &Write| write.doc.as_ref().is_none_or(|doc| doc.request().is_none());
    alter_sessions(message, is_kept, |record| record.requests.clear());
}

/// Entries in which lives that ended with their node, as they were being closed, are opened again.
pub(crate) fn reopen_closed(message: &mut Message) {
    follow_closed(message, Reason::NodeLost, Reason::Reopening);
}

/// Entries in which lives that a client closed are to be started again.
pub(crate) fn restart_closed(message: &mut Message) {
    follow_closed(message, Reason::ClosedByClient, Reason::Restarting);
}

/// Another life follows what was closed for that reason.
fn follow_closed(message: &mut Message, closed_for: Reason, again: Reason) {
    let alter = |record: &mut SessionRecord| {
        let is_it = (record.state, record.reason) == (SessionState::Closed, Some(closed_for));
        if let Some(state) = again.waits_as().filter(|_| is_it) {
            (record.state, record.reason) = (state, Some(again));
        }
    };
    alter_sessions(message, |_| true, alter);
}

/// A document; of life cycles, one that calls every action done.
pub(crate) fn with_all_fired(doc: &Doc) -> Option<Doc> {
    let Some(mut managed) = managed_in(doc) else { return Some(doc.clone()) };
    for due in managed.clone().due(Stamp::MAX) {
        managed.fire(due.life_cycle.as_str(), &due.word, doc.version());
    }
    Some(Doc::life_after(None, doc.name().clone(), &managed, doc.version()))
}

fn alter_sessions(
    message: &mut Message,
    is_kept: impl Fn(&Write) -> bool,
    alter: impl Fn(&mut SessionRecord),
) {
    let Message::Prepare { entries, .. } = message else { return };
    for entry in entries.iter_mut() {
        let writes = entry.writes.iter().filter(|it| is_kept(it)).map(|write| {
            let mut write = write.clone();
            if let Some(before) = write.doc.as_ref().and_then(|doc| doc.session()) {
                let mut record = (**before).clone();
                alter(&mut record);
                if record != **before {
                    write.doc = Some(Arc::new(Doc::session_after(None, record)));
                }
            }
            write
        });
        *entry = Entry::new(entry.at, writes.collect(), entry.request.clone());
    }
}

/// Changes documents of applications in entries of the log, or leaves them out.
pub(crate) fn alter_documents(message: &mut Message, alter: impl Fn(&Doc) -> Option<Doc>) {
    let Message::Prepare { entries, .. } = message else { return };
    for entry in entries.iter_mut() {
        let writes = entry.writes.iter().filter_map(|write| {
            let plain = write.doc.as_ref().filter(|it| it.of_application().is_some());
            let Some(doc) = plain else { return Some(write.clone()) };
            Some(Write { key: write.key.clone(), doc: Some(Arc::new(alter(doc)?)) })
        });
        *entry = Entry::new(entry.at, writes.collect(), entry.request.clone());
    }
}

/// A document, unless it is what remembers an operation.
pub(crate) fn unless_memory(doc: &Doc) -> Option<Doc> {
    (!doc.name().is_memory()).then(|| doc.clone())
}

/// For a planted bug: every body is said to be there.
#[derive(Clone, Copy, Debug)]
struct Boast;

impl Bodies for Boast {
    fn hold(&self, _: &Digest) -> Option<u64> {
        Some(BODY_BYTES)
    }
}

/// What a manager's process is told of its bodies.
pub(crate) fn bodies_of(bug: Option<Bug>, held: &BlobStore) -> Arc<dyn Bodies> {
    if bug == Some(Bug::BodyBoasted) { Arc::new(Boast) } else { Arc::new(held.clone()) }
}
