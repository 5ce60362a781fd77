//! One attempt at an operation: which documents it has asked for, in which state it found them,
//! what it changed, and what it will answer.
//!
//! An [`Attempt`] is a value that belongs to nobody: other operations may commit while it lies
//! around, and its validation finds out. A [`Transaction`] is an attempt at work: it joins the attempt
//! with the documents of this moment.

mod dedup;

use crate::cache::{Cache, Lookup};
use crate::content::{JsonText, check_mime};
use crate::document::Document;
use crate::document_edit::DocumentEdit;
use crate::documents::Documents;
use crate::exception::{Exception, codes};
use crate::json::to_json;
use crate::name::DocName;
use crate::request::Request;
use crate::rules::{Rules, unserved};
use crate::sync::Held;
use crate::tolerance::Tolerance;
use rota_model::{FieldError, Namespace, SlotId, Stamp};
use serde::Serialize;
use std::sync::Arc;

/// Most documents that one operation may ask for.
pub const DOCUMENTS_MAX: usize = 32;
/// Most bytes of a result: it travels in one message.
pub const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;

/// A document that an operation knows it will need before it works.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// Which.
    pub name: DocName,
    /// How stale it may be.
    pub tolerance: Tolerance,
}

impl Wanted {
    /// To read and change, tolerance 0.
    pub fn current(name: DocName) -> Self {
        Self { name, tolerance: Tolerance::NONE }
    }

    /// To read only, at most that stale.
    pub fn recent(name: DocName, tolerance: Tolerance) -> Self {
        Self { name, tolerance }
    }
}

/// A document that must be at hand before an attempt can go on: one of elsewhere in the cache, one of the
/// store itself in the snapshot that the attempt works on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Need {
    /// Which.
    pub name: DocName,
    /// How stale it may be.
    pub tolerance: Tolerance,
    /// What the cache has of it: ask for an update of this.
    pub held: Option<Held>,
}

/// The result of an operation.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum Body {
    /// None.
    #[default]
    Nothing,
    /// A JSON value.
    Json(JsonText),
    /// Bytes with a mime type. No synchronisation follows them.
    Binary {
        /// The mime type.
        mime: Box<str>,
        /// The bytes.
        bytes: Arc<[u8]>,
    },
}

impl Body {
    /// A JSON value without null fields; `null` itself gives [`Body::Nothing`]. At most
    /// [`BODY_BYTES_MAX`]: A-LIMIT.
    pub fn json<T: Serialize + ?Sized>(value: &T) -> Result<Self, Exception> {
        let wrong = |it| FieldError::new("result", format!("cannot be written: {it}"));
        let text = to_json(value).map_err(wrong)?;
        if text == "null" {
            return Ok(Self::Nothing);
        }
        check_body(text.len())?;
        Ok(Self::Json(JsonText::parse(&text)?))
    }

    /// Bytes with a mime type. At most [`BODY_BYTES_MAX`]: A-LIMIT.
    pub fn binary(mime: &str, bytes: impl Into<Arc<[u8]>>) -> Result<Self, Exception> {
        let bytes = bytes.into();
        check_mime(mime)?;
        check_body(bytes.len())?;
        Ok(Self::Binary { mime: mime.into(), bytes })
    }
}

fn check_body(length: usize) -> Result<(), Exception> {
    if length > BODY_BYTES_MAX {
        let problem = format!("is {length} bytes long; the limit is {BODY_BYTES_MAX}");
        return Err(Exception::of_field(codes::LIMIT, FieldError::new("result", problem)));
    }
    Ok(())
}

/// One attempt at an operation.
#[derive(Clone, Debug)]
pub struct Attempt {
    space: Namespace,
    now: Stamp,
    request: Option<Arc<Request>>,
    slot: Option<SlotId>,
    /// Tolerance 0: to be validated.
    pub(crate) current: Vec<DocumentEdit>,
    /// To read only, each with the tolerance that it was opened with.
    recent: Vec<(DocumentEdit, Tolerance)>,
    needs: Vec<Need>,
    pub(crate) body: Body,
    /// The operation was done before, at this version.
    pub(crate) done_at: Option<Stamp>,
    /// What the run of a task goes on with.
    checkpoint: Option<JsonText>,
    /// How many numbers were drawn.
    draws: u64,
}

impl Attempt {
    /// An attempt that begins now, in a namespace.
    pub fn new(space: Namespace, now: Stamp) -> Self {
        Self {
            space,
            now,
            request: None,
            slot: None,
            current: Vec::new(),
            recent: Vec::new(),
            needs: Vec::new(),
            body: Body::Nothing,
            done_at: None,
            checkpoint: None,
            draws: 0,
        }
    }

    /// An attempt at what a caller asked for.
    pub fn at(request: Arc<Request>, now: Stamp) -> Self {
        let space = request.space.clone();
        Self { request: Some(request), ..Self::new(space, now) }
    }

    /// The namespace.
    pub fn space(&self) -> &Namespace {
        &self.space
    }

    /// The slot of its tolerance-0 documents, once it has asked for one.
    pub fn slot(&self) -> Option<SlotId> {
        self.slot
    }

    /// Whether this only keeps the record of a task.
    pub(crate) fn only_keeps_task(&self) -> bool {
        let task = self.request.as_ref().and_then(|it| it.task.as_ref());
        task.is_some_and(|it| !it.is_work)
    }

    /// What must be brought into the cache before this can be tried again; forgets it.
    pub fn take_needs(&mut self) -> Vec<Need> {
        std::mem::take(&mut self.needs)
    }
}

/// An attempt at work. Made for one call of `work()`; the documents are those of this moment.
pub struct Transaction<'a> {
    rules: &'a Rules,
    documents: &'a dyn Documents,
    cache: Option<&'a mut Cache>,
    attempt: &'a mut Attempt,
}

impl<'a> Transaction<'a> {
    /// A transaction for an attempt. Without a cache, only documents of the store can be read.
    pub fn new(
        rules: &'a Rules,
        documents: &'a dyn Documents,
        cache: Option<&'a mut Cache>,
        attempt: &'a mut Attempt,
    ) -> Self {
        Self { rules, documents, cache, attempt }
    }

    /// When the attempt began.
    pub fn now(&self) -> Stamp {
        self.attempt.now
    }

    /// The namespace that the operation works in.
    pub fn space(&self) -> &Namespace {
        &self.attempt.space
    }

    /// The request, when there is one.
    pub fn request(&self) -> Option<&Request> {
        self.attempt.request.as_deref()
    }

    /// Name of a document of this namespace.
    pub fn name(&self, class: &str, docid: &str) -> Result<DocName, FieldError> {
        DocName::new(&self.attempt.space, class, docid)
    }

    /// Opens documents that the operation knows it will need. All are checked before any is
    /// opened, and all that are missing are noted together.
    pub fn open(&mut self, wanted: &[Wanted]) -> Result<(), Exception> {
        let count = wanted.len();
        if count > DOCUMENTS_MAX {
            return Err(too_many(count));
        }
        let mut slot = self.attempt.slot;
        for Wanted { name, tolerance } in wanted {
            slot = self.check(name, *tolerance, slot)?;
        }
        let mut missing = None;
        for Wanted { name, tolerance } in wanted {
            let opened = match *tolerance {
                Tolerance::NONE => self.current(name).map(|_| ()),
                Tolerance(_) => self.recent(name, *tolerance).map(|_| ()),
            };
            match opened {
                Err(it) if *it.code() == codes::NOT_AT_HAND => missing = Some(it),
                Err(it) => return Err(it),
                Ok(()) => {}
            }
        }
        missing.map_or(Ok(()), Err)
    }

    /// The newest state of a document, to read and change: tolerance 0. Always the same edit in
    /// one operation. All such documents share one slot, which [`crate::Territory::serves`] (A-SLOT).
    ///
    /// A document that was read with a tolerance before is opened again in its newest state.
    pub fn current(&mut self, name: &DocName) -> Result<&mut DocumentEdit, Exception> {
        let at = match self.attempt.current.iter().position(|it| it.name() == name) {
            Some(at) => at,
            None => {
                self.attempt.slot = self.check(name, Tolerance::NONE, self.attempt.slot)?;
                self.attempt.recent.retain(|(it, _)| it.name() != name);
                self.check_count()?;
                let found = self.find_here(name, Tolerance::NONE)?;
                self.attempt.current.push(self.edited(name, found));
                self.attempt.current.len() - 1
            }
        };
        Ok(&mut self.attempt.current[at])
    }

    /// A document to read only, at most that stale: from the store, or from the cache when it
    /// lives elsewhere. X-NOT-AT-HAND when the cache has nothing fresh enough: it is noted, and
    /// the driver fetches it. A document that is already open is given as it is, unless it may
    /// now be less stale than before: then it is opened again.
    pub fn recent(
        &mut self,
        name: &DocName,
        tolerance: Tolerance,
    ) -> Result<&DocumentEdit, Exception> {
        if let Some(at) = self.attempt.current.iter().position(|it| it.name() == name) {
            return Ok(&self.attempt.current[at]);
        }
        // Tolerance 0 here would be read and never validated.
        let tolerance = tolerance.max(Tolerance(1));
        let open = self.attempt.recent.iter().position(|(it, _)| it.name() == name);
        let at = match open {
            Some(at) if self.attempt.recent[at].1 <= tolerance => at,
            Some(at) => {
                let found = self.find(name, tolerance)?;
                self.attempt.recent[at] = (self.edited(name, found), tolerance);
                at
            }
            None => {
                self.check(name, tolerance, None)?;
                self.check_count()?;
                let found = self.find(name, tolerance)?;
                self.attempt.recent.push((self.edited(name, found), tolerance));
                self.attempt.recent.len() - 1
            }
        };
        Ok(&self.attempt.recent[at].0)
    }

    /// The slot of a document.
    pub fn slot_of(&self, name: &DocName) -> SlotId {
        self.rules.territory.slot_of(name)
    }

    /// The slot of the operation, once it has asked for a document of tolerance 0.
    pub fn slot(&self) -> Option<SlotId> {
        self.attempt.slot
    }

    pub(crate) fn rules(&self) -> &'a Rules {
        self.rules
    }

    pub(crate) fn edits(&self) -> &[DocumentEdit] {
        &self.attempt.current
    }

    pub(crate) fn set_checkpoint(&mut self, checkpoint: JsonText) {
        self.attempt.checkpoint = Some(checkpoint);
    }

    /// The result of a task's cycle is its checkpoint. Whether there is one.
    pub(crate) fn settle_checkpoint(&mut self) -> bool {
        let checkpoint = self.attempt.checkpoint.take();
        let goes_on = checkpoint.is_some();
        self.attempt.body = checkpoint.map_or(Body::Nothing, Body::Json);
        goes_on
    }

    /// What drawn numbers begin with, and how many were drawn.
    pub(crate) fn next_draw(&mut self) -> (u64, u64) {
        self.attempt.draws += 1;
        (self.rules.salt, self.attempt.draws)
    }

    fn edited(&self, name: &DocName, found: Option<Arc<Document>>) -> DocumentEdit {
        DocumentEdit::new(name.clone(), found, Arc::clone(&self.rules.schema))
    }

    fn find(
        &mut self,
        name: &DocName,
        tolerance: Tolerance,
    ) -> Result<Option<Arc<Document>>, Exception> {
        let territory = &self.rules.territory;
        if territory.holds(territory.slot_of(name)) {
            return self.find_here(name, tolerance);
        }
        let now = self.attempt.now;
        let held = match self.cache.as_mut().map(|it| it.look_up(name, now, tolerance)) {
            Some(Lookup::Fresh(found)) => return Ok(found),
            Some(Lookup::Stale(held)) => held,
            None => None,
        };
        self.attempt.needs.push(Need { name: name.clone(), tolerance, held });
        Err(not_at_hand(name))
    }

    fn find_here(
        &mut self,
        name: &DocName,
        tolerance: Tolerance,
    ) -> Result<Option<Arc<Document>>, Exception> {
        if self.documents.is_at_hand(name) {
            return Ok(self.documents.get(name));
        }
        self.attempt.needs.push(Need { name: name.clone(), tolerance, held: None });
        Err(not_at_hand(name))
    }

    /// Whether a document may be asked for at all; gives the slot of tolerance-0 documents.
    fn check(
        &self,
        name: &DocName,
        tolerance: Tolerance,
        slot: Option<SlotId>,
    ) -> Result<Option<SlotId>, Exception> {
        self.rules.schema.check_class(name.class())?;
        let space = self.attempt.space.as_str();
        if tolerance > Tolerance::NONE {
            self.documents.spaces().check_reads(space, name)?;
            return Ok(slot);
        }
        if name.space() != space {
            let problem = format!("{name} must not be changed from namespace {space}");
            return Err(Exception::of_field(codes::SPACE, FieldError::new("document", problem)));
        }
        let own = self.rules.territory.slot_of(name);
        let problem = match slot {
            Some(slot) if slot != own => {
                format!("{name} lies in slot {own}, the operation's other documents in {slot}")
            }
            Some(_) | None if !self.rules.territory.serves(own) => unserved(name, own),
            Some(_) | None => return Ok(Some(own)),
        };
        Err(Exception::of_field(codes::SLOT, FieldError::new("document", problem)))
    }

    fn check_count(&self) -> Result<(), Exception> {
        let count = self.attempt.current.len() + self.attempt.recent.len() + 1;
        if count > DOCUMENTS_MAX { Err(too_many(count)) } else { Ok(()) }
    }

    /// Sets the result to a JSON value without null fields.
    pub fn answer_json<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Exception> {
        self.attempt.body = Body::json(value)?;
        Ok(())
    }

    /// Sets the result to bytes with a mime type. No synchronisation follows it.
    pub fn answer_binary(
        &mut self,
        mime: &str,
        bytes: impl Into<Arc<[u8]>>,
    ) -> Result<(), Exception> {
        self.attempt.body = Body::binary(mime, bytes)?;
        Ok(())
    }
}

fn not_at_hand(name: &DocName) -> Exception {
    Exception::new(codes::NOT_AT_HAND, format!("{name} is not at hand"))
}

fn too_many(count: usize) -> Exception {
    let problem = format!("are {count}; the limit is {DOCUMENTS_MAX}");
    Exception::of_field(codes::LIMIT, FieldError::new("documents", problem))
}
