//! Updates of copies, pages of names, and the ends of whole namespaces.

use crate::documents::state::Documents;
use crate::log::at::At;
use crate::log::env::Env;
use crate::log::origin::Origin;
use crate::log::resident::RequestHandler;
use crate::ports::note::Transition;
use crate::ports::slots::{CONFIGURATION, Slots, slot_of};
use rota_docstore::{
    DocName, Document, DocumentEdit, Exception, FieldError, Phase, SyncRequest, Territory, Update,
    codes, update_for,
};
use rota_messages::api::{ClearOp, PageOp, Reader, SyncOp};
use rota_messages::{
    Answer, Doc, DocKey, DocumentAnswer, DocumentCursor, DocumentHead, DocumentPage, OpResult,
    Write,
};
use rota_model::{SlotId, Stamp};
use std::ops::Bound;
use std::sync::Arc;

/// Most documents that one request looks at: one page of a namespace that has few among many must
/// not keep everybody else waiting. Some milliseconds.
const LOOKED_AT_MAX: usize = 20_000;

type Updates = Vec<(DocName, Update)>;

/// About how many bytes an update takes in a message.
fn bytes(update: &Update) -> usize {
    let items = |list: &[rota_docstore::Item]| {
        let of = |item: &rota_docstore::Item| {
            let content = item.content().map_or(0, |it| it.volume());
            64 + usize::try_from(content).unwrap_or(usize::MAX)
        };
        list.iter().map(of).sum::<usize>()
    };
    64 + match update {
        Update::Full(document) => items(document.items()),
        Update::Changes(changes) => {
            items(changes.items()) + 64 * changes.unchanged().map_or(0, <[_]>::len)
        }
        Update::Unchanged { .. }
        | Update::Deleted { .. }
        | Update::Absent { .. }
        | Update::SourceBehind { .. } => 0,
    }
}

/// Keeps the first updates that fit into one message, and at least one.
pub(crate) fn cut(updates: &mut Updates, bytes_max: usize) {
    let mut room = bytes_max;
    let fits = |(_, update): &(DocName, Update)| {
        let rest = room.checked_sub(bytes(update));
        room = rest.unwrap_or(0);
        rest.is_some()
    };
    let fitting = updates.iter().take_while({
        let mut fits = fits;
        move |it| fits(it)
    });
    let count = fitting.count().max(1);
    updates.truncate(count);
}

pub(crate) fn synced(result: Result<Updates, Exception>) -> OpResult {
    Ok(Answer::Documents(DocumentAnswer::Synced(result)))
}

impl Documents {
    /// Updates as of a moment after the request arrived.
    pub(crate) fn sync(&mut self, led: &mut At<'_>, origin: Origin, op: &SyncOp) {
        let known = led.log.replica.high_water;
        let result = updates(led, op, known, |replica, key| replica.get(key));
        led.env.note(Transition::CopiesSynced, Some(led.log.number));
        self.note_told(led, result.iter().flatten().map(|(_, update)| update));
        self.answer_read(led, origin, synced(result));
    }

    /// Updates of what is committed, though another manager may own the partition by now.
    pub(crate) fn sync_stale(&mut self, led: &mut At<'_>, origin: Origin, op: &SyncOp) {
        // Of a document that is not committed yet, nobody must hear that there will be none; nor of
        // what only an owner above this one could have written.
        let appended = led.log.replica.tail.entries.iter().flat_map(|entry| entry.writes.iter());
        let versions = appended.filter_map(|it| Some(it.doc.as_ref()?.version()));
        let known = versions.map(|it| it.minus_ms(1)).min().unwrap_or(Stamp::MAX);
        let known = known.min(led.log.replica.settled_water);
        let result = updates(led, op, known, |replica, key| replica.docs.get(key));
        self.note_told(led, result.iter().flatten().map(|(_, update)| update));
        self.reply(led, origin, synced(result));
    }

    /// Ends the lives of some documents of a namespace.
    pub(crate) fn clear(&mut self, led: &mut At<'_>, origin: Origin, op: &ClearOp) {
        if !led.may_begin() {
            return led.enqueue(origin);
        }
        let schema = Arc::clone(&led.env.documents_env.schema);
        let in_space = op.space.as_str() != CONFIGURATION;
        let is_meant = |name: &DocName| {
            in_space && name.space() == op.space.as_str() && !schema.is_read_only(name.class())
        };
        let limit = led.env.config.sizes.purge_docs;
        let (found, next) = documents_from(led, &op.from, limit, is_meant);
        let now = Stamp::from_epoch_ms(led.env.now.wall_ms);
        let floor = self.floor(led, op.space.as_str());
        let m = led.env.view().m;
        let end = |doc: &Arc<Doc>| {
            let document = doc.document();
            let name = document.name().clone();
            // Nothing is left that it could answer for.
            if name.is_memory() {
                return Write { key: DocKey::new(slot_of(&name, m), name), doc: None };
            }
            let version = now.max(floor).max(document.version().next());
            let mut edited = DocumentEdit::new(name, Some(document.clone()), schema.clone());
            edited.destroy();
            let ended = edited.settle_at(document.ctime(), version, Stamp::MIN);
            write_of(Arc::new(ended.expect("an end is small, and its version is above")), m)
        };
        let writes: Vec<Write> = found.into_iter().map(end).collect();
        let deleted = writes.iter().filter(|it| it.doc.is_some()).count() as u64;
        let answer = Ok(Answer::Documents(DocumentAnswer::Cleared { deleted, next }));
        if writes.is_empty() {
            return self.answer_read(led, origin, answer);
        }
        let at = led.write(writes, None);
        led.promise(at, origin, answer);
    }
}

/// Refuses a client that must not ask, as operations do.
pub(crate) fn check_reader(led: &At<'_>, reader: &Reader) -> Result<(), Exception> {
    let rules = led.env.documents_env.rules(led.slots());
    let asked = reader.service.as_str();
    reader.caller.check(&rules, &led.env.documents_env.spaces, &reader.space, asked)
}

pub(crate) fn updates<'a>(
    led: &'a At<'_>,
    op: &SyncOp,
    known: Stamp,
    get: impl Fn(&'a crate::log::replica::Replica, &DocKey) -> Option<&'a Arc<Doc>>,
) -> Result<Updates, Exception> {
    let slots = led.slots();
    let known_here = led.log.replica.high_water.max(led.stamps_above());
    let latest = Stamp::from_epoch_ms(led.env.now.wall_ms).max(known_here);
    let mut updates = Vec::with_capacity(op.syncs.len());
    for (at, SyncRequest { name, held }) in op.syncs.iter().enumerate() {
        // An arc was cut off after the caller put these together: it asks for the others again.
        if at > 0 && !slots.holds(slots.slot_of(name)) {
            break;
        }
        check_sync(led.env, op, slots, at, latest)?;
        let key = DocKey::new(slot_of(name, slots.m), name.clone());
        let document = get(&led.log.replica, &key).map(|doc| doc.document());
        let update = update_for(document, held.as_ref(), known);
        // Managers ask for all of it on their own account: an export takes it along.
        let is_client = op.reader.is_some();
        let update = if is_client { update.without_memories() } else { update };
        updates.push((name.clone(), update));
    }
    cut(&mut updates, led.env.config.sizes.message_bytes);
    Ok(updates)
}

/// The existing documents here from a cursor on, with everything that was appended, in order, as
/// far as the ring's order leaves this partition: at most so many, after looking at a bounded
/// number. And where to go on.
pub(crate) fn documents_from<'a>(
    led: &'a At<'_>,
    from: &DocumentCursor,
    limit: usize,
    is_meant: impl Fn(&DocName) -> bool,
) -> (Vec<&'a Arc<Doc>>, Option<DocumentCursor>) {
    let m = led.env.view().m;
    let intervals = led.log.range.intervals(m);
    let interval = intervals.iter().find(|(a, b)| *a <= from.slot && from.slot <= *b);
    let last = interval.map_or(from.slot, |(_, last)| *last);
    let lower = match &from.after {
        Some(name) => Bound::Excluded(DocKey::new(from.slot, name.clone())),
        None => Bound::Included(DocKey::first_of(from.slot)),
    };
    let inside = led.log.replica.newest_from(lower.as_ref()).take_while(|it| it.0.slot <= last);
    let mut found = Vec::new();
    for (looked_at, (key, doc)) in inside.enumerate() {
        let newest = doc.filter(|doc| !doc.document().is_deleted());
        found.extend(newest.filter(|_| is_meant(&key.name)));
        if found.len() >= limit || looked_at >= LOOKED_AT_MAX {
            let (slot, after) = (key.slot, Some(key.name.clone()));
            return (found, Some(DocumentCursor { slot, after }));
        }
    }
    let next = (last.0 + 1 < m).then(|| SlotId(last.0 + 1));
    (found, next.map(|slot| DocumentCursor { slot, after: None }))
}

/// One page of the documents of a namespace.
pub(crate) fn document_page(led: &At<'_>, op: &PageOp) -> DocumentPage {
    let limit = op.limit.clamp(1, led.env.config.sizes.page_sessions) as usize;
    let is_meant = |name: &DocName| {
        // What remembers operations is nobody's data; an export takes it along.
        let in_class = match &op.class {
            Some(class) => class == name.class(),
            None => op.by_operator || !name.is_memory(),
        };
        name.space() == op.space.as_str() && in_class
    };
    let (found, next) = documents_from(led, &op.from, limit, is_meant);
    let documents = found.into_iter().map(|doc| DocumentHead::of(doc.document())).collect();
    DocumentPage { documents, next, usage: led.log.replica.usage(op.space.as_str()) }
}

pub(crate) fn write_of(document: Arc<Document>, m: u32) -> Write {
    let name = document.name().clone();
    let doc = Doc::new(document).expect("it is neither a session nor a pool");
    Write { key: DocKey::new(slot_of(&name, m), name), doc: Some(Arc::new(doc)) }
}

/// Refuses what a caller may not ask of this partition.
fn check_sync(
    env: &Env,
    op: &SyncOp,
    slots: Slots,
    at: usize,
    latest: Stamp,
) -> Result<(), Exception> {
    let SyncRequest { name, held } = &op.syncs[at];
    let in_field =
        |part: &str, problem| FieldError::new(format!("documents[{at}].{part}"), problem);
    let check = || {
        let class = env.documents_env.schema.check_class(name.class());
        class.map_err(|it| in_field("class", it.problem))?;
        if let Some(reader) = &op.reader {
            env.documents_env.spaces.check_reads(reader.space.as_str(), name)?;
        }
        let slot = slots.slot_of(name);
        if !slots.holds(slot) {
            let problem = format!("{name} lies in slot {slot}, which is not here");
            return Err(Exception::of_field(codes::SLOT, in_field("name", problem)));
        }
        if let Some(held) = held {
            held.check_not_after(latest).map_err(|it| in_field("held.version", it.problem))?;
        }
        Ok(())
    };
    check().map_err(|it: Exception| it.at(Phase::Before))
}
