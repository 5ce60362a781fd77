//! Long polls for changes of documents: what the owner of a partition tells a watch.
//!
//! A watch is told of committed versions only. With a filter, every changed document of the class that does
//! not pass is told as having left: the window has the states after changes and none before them, so an
//! owner does not know which passed before. Who never heard of such a document passes over it.

use crate::documents::copies::check_reader;
use crate::documents::state::Documents;
use crate::log::at::At;
use crate::log::origin::Origin;
use crate::log::polls::{GoesOn, Polls, changes, elsewhere, goes_on, is_over};
use crate::log::resident::RequestHandler;
use crate::ports::slots::slot_of;
use rota_docstore::{DocName, Document, Exception, Phase};
use rota_messages::api::{DocumentChange, DocumentEvent, Poll, WatchOp};
use rota_messages::{
    Answer, Doc, DocKey, DocumentAnswer, DocumentCursor, DocumentOp, Op, OpResult,
};
use rota_model::{LogPos, Pulled};
use rota_search::{Matcher, Shapes};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

type Watched = Pulled<DocumentEvent, DocumentCursor>;

/// Bytes of an event without contents, about.
const EVENT_BYTES: usize = 64;

/// Long polls that wait for a change.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct DocumentWatches {
    pub polls: Polls,
    /// Their filters, read once for each poll.
    filters: BTreeMap<Origin, Arc<Matcher>>,
}

impl DocumentWatches {
    pub fn retain(&mut self, is_there: impl Fn(&Origin) -> bool) {
        self.polls.retain(&is_there);
        self.filters.retain(|origin, _| is_there(origin));
    }

    pub fn forget(&mut self, origin: &Origin) {
        self.filters.remove(origin);
    }
}

fn watched(result: Result<Watched, Exception>) -> OpResult {
    Ok(Answer::Documents(DocumentAnswer::Watched(result)))
}

impl Documents {
    /// A long poll arrives.
    pub(crate) fn on_watch(&mut self, led: &mut At<'_>, origin: Origin, op: &WatchOp) {
        match check(led, op) {
            Ok(filter) => {
                self.watches.filters.extend(filter.map(|it| (origin, Arc::new(it))));
                self.serve_watch(led, origin);
            }
            Err(exception) => self.reply(led, origin, watched(Err(exception))),
        }
    }

    /// Something was committed: answers who can be answered.
    pub fn serve_watches(&mut self, led: &mut At<'_>) {
        if !led.lead.reads() || self.watches.polls.is_empty() {
            return;
        }
        for origin in self.watches.polls.take() {
            self.serve_watch(led, origin);
        }
    }

    /// Time passed: answers those whose wait is over.
    pub(crate) fn expire_watches(&mut self, led: &mut At<'_>) {
        if self.watches.polls.is_one_over(led) {
            self.serve_watches(led);
        }
    }

    fn serve_watch(&mut self, led: &mut At<'_>, origin: Origin) {
        let filter = self.watches.filters.get(&origin).cloned();
        let Some(asked) = led.inbox.live.get(&origin) else { return };
        let Op::Documents(DocumentOp::Watch(op)) = &asked.op else { return };
        let Some(poll) = asked.op.poll() else { return };
        // While it waited, the namespace may have been switched off, or have got other readers.
        if let Err(exception) = check_space(led, op) {
            return self.reply(led, origin, watched(Err(exception)));
        }
        let shapes = led.env.documents_env.searchable.all();
        let looking = Looking { op, filter: filter.as_deref(), shapes };
        match pulled(led, poll, &looking, is_over(led, &origin)) {
            Some(pulled) => self.reply(led, origin, watched(Ok(pulled))),
            None => {
                if let Err(refusal) = self.watches.polls.keep(led, origin) {
                    self.reply(led, origin, Err(refusal));
                }
            }
        }
    }
}

/// Refuses a reader that must not ask, and what does not fit; gives the filter.
fn check(led: &At<'_>, op: &WatchOp) -> Result<Option<Matcher>, Exception> {
    check_reader(led, &op.reader)?;
    check_space(led, op)?;
    let env = &led.env.documents_env;
    let checked = || {
        let class = op.of.class.as_deref();
        class.map_or(Ok(()), |it| env.schema.check_class(it))?;
        let Some(filter) = &op.of.filter else { return Ok(None) };
        let class = class.unwrap_or_default();
        Matcher::parse(env.searchable.all(), class, filter.item.as_deref(), &filter.text).map(Some)
    };
    checked().map_err(|it| Exception::from(it).at(Phase::Before))
}

fn check_space(led: &At<'_>, op: &WatchOp) -> Result<(), Exception> {
    let (spaces, reader) = (&led.env.documents_env.spaces, op.reader.space.as_str());
    spaces.check_reads_space(reader, op.of.space.as_str()).map_err(|it| it.at(Phase::Before))
}

/// What a poll looks for.
struct Looking<'a> {
    op: &'a WatchOp,
    filter: Option<&'a Matcher>,
    shapes: &'a Shapes,
}

impl Looking<'_> {
    /// What is told of a document, and about how many bytes that takes.
    fn event(&self, name: &DocName, doc: &Doc) -> Option<(DocumentEvent, usize)> {
        if !self.op.of.is_meant(name) {
            return None;
        }
        let document = doc.document();
        let (change, bytes) = self.change(doc, document);
        let (name, ctime, version) = (name.clone(), document.ctime(), document.version());
        Some((DocumentEvent { name, ctime, version, change }, bytes + EVENT_BYTES))
    }

    fn change(&self, doc: &Doc, document: &Arc<Document>) -> (DocumentChange, usize) {
        if document.is_deleted() {
            return (DocumentChange::Ended, 0);
        }
        if self.filter.is_some_and(|it| !it.matches(self.shapes, document)) {
            return (DocumentChange::Left, 0);
        }
        if self.op.of.names_only {
            return (DocumentChange::Named, 0);
        }
        let told = document.without_memories().map_or_else(|| document.clone(), Arc::new);
        (DocumentChange::Is(told), doc.bytes())
    }

    /// The same in a snapshot, where what is not there is told only to who may think that it is, or asks for
    /// just that document.
    fn shown(&self, name: &DocName, doc: &Doc) -> Option<(DocumentEvent, usize)> {
        self.event(name, doc).filter(|(event, _)| match &event.change {
            DocumentChange::Ended | DocumentChange::Left => {
                self.op.tells_absent || self.op.of.docid.is_some()
            }
            DocumentChange::Is(_) | DocumentChange::Named | DocumentChange::TooLarge => true,
        })
    }
}

/// What a long poll gets: a page of a snapshot, changes, or (when its wait is over) nothing.
fn pulled(led: &At<'_>, poll: Poll, looking: &Looking<'_>, is_over: bool) -> Option<Watched> {
    match goes_on(led, poll) {
        GoesOn::Elsewhere { upto } => {
            let after = looking.op.snapshot_after.clone();
            is_over.then(|| elsewhere(led, upto, after))
        }
        GoesOn::Snapshot { upto } => Some(snapshot_page(led, poll, looking, upto)),
        // Of what goes without an end of its life nobody needs to hear: that was told a week before, and
        // sessions that are forgotten have ended.
        GoesOn::Changes { from } => changes(led, poll, from, is_over, |write| {
            looking.event(&write.key.name, write.doc.as_ref()?)
        }),
    }
}

/// A page of a snapshot that is as of a position.
fn snapshot_page(led: &At<'_>, poll: Poll, looking: &Looking<'_>, upto: LogPos) -> Watched {
    let (events, snapshot_next) = match looking.op.of.one() {
        Some(name) => {
            let key = DocKey::new(slot_of(&name, led.env.view().m), name);
            let doc = led.log.replica.docs.get(&key);
            let event = doc.and_then(|doc| looking.shown(&key.name, doc));
            (event.into_iter().map(|(event, _)| event).collect(), None)
        }
        None => look(led, poll, looking),
    };
    Pulled { part: led.log.number, events, snapshot: true, upto, snapshot_next }
}

/// Committed documents in the order of their keys, from where the snapshot goes on. A bounded look: it may
/// find nothing and have to go on.
fn look(
    led: &At<'_>,
    poll: Poll,
    looking: &Looking<'_>,
) -> (Vec<DocumentEvent>, Option<DocumentCursor>) {
    let sizes = &led.env.config.sizes;
    let limit = poll.limit.clamp(1, sizes.page_sessions) as usize;
    let start = looking.op.snapshot_after.clone().unwrap_or_default();
    let lower = match start.after {
        Some(name) => Bound::Excluded(DocKey::new(start.slot, name)),
        None => Bound::Included(DocKey::first_of(start.slot)),
    };
    let docs = led.log.replica.docs.range((lower, Bound::Unbounded));
    let (mut events, mut bytes) = (Vec::new(), 0);
    for (looked_at, (key, doc)) in (1..).zip(docs) {
        if let Some((event, size)) = looking.shown(&key.name, doc) {
            bytes += size;
            events.push(event);
        }
        let is_full = events.len() >= limit || bytes >= sizes.message_bytes;
        if is_full || looked_at >= sizes.page_looked_at {
            let (slot, after) = (key.slot, Some(key.name.clone()));
            return (events, Some(DocumentCursor { slot, after }));
        }
    }
    (events, None)
}
