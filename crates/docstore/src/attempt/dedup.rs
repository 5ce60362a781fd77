//! What operations remember of themselves, so that a request that is repeated gets the same answer and
//! does nothing twice: a small document of class `H` for each, beside the document that the operation
//! names ([`DocName::memory`]). It is written with what the operation changes, and found by its name.
//!
//! What would be refused for its age is forgotten. A clock may be wrong for a while, though, and make a
//! request of a minute ago look old; so one more document of class `H` says how much was forgotten beside
//! a document, and what may be among it is refused instead of done again.

use super::Transaction;
use crate::cache::CLOCKS_APART_MS_MAX;
use crate::content::{Content, JsonText};
use crate::document::{Document, DocumentParts, Item};
use crate::exception::{Exception, codes};
use crate::name::{DocName, ItemName, MEMORY_CLASS};
use crate::request::Request;
use rota_model::{FieldError, Stamp};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most operations that one store, or one partition of a ring, remembers: 1,588 in every second of 11
/// minutes. Each takes some 600 bytes of memory.
pub const MEMORIES_MAX: usize = 1 << 20;

/// The key of the item that says how much was forgotten; other keys are the callers' times.
const FORGOTTEN_KEY: &str = "!";

/// What the holder of documents says of the operations that it remembers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Remembered {
    /// How many.
    pub count: usize,
    /// The caller's time of the oldest.
    pub oldest: Option<Stamp>,
}

/// Whose request it was (operation, account, request id): what names a memory is a hash of this and more.
/// And what it was answered. A list, since the answer may be null.
#[derive(Serialize, Deserialize)]
struct Memory<S, T>(S, S, S, T);

fn request_id(request: &Request) -> &str {
    request.request_id.as_ref().map_or("", |it| it.as_str())
}

impl<'a, T> Memory<&'a str, T> {
    fn of(request: &'a Request, answer: T) -> Self {
        let (operation, account) = (&*request.operation, &*request.who.account);
        Self(operation, account, request_id(request), answer)
    }
}

impl<T> Memory<String, T> {
    fn is_of(&self, request: &Request) -> bool {
        let (account, id) = (&request.who.account, request_id(request));
        (&self.0, &self.1, &*self.2) == (&request.operation, account, id)
    }
}

impl Transaction<'_> {
    /// What this very request (operation, account, request id, parameters, operation time) answered when it was done
    /// before, as [`Transaction::remember`] wrote it beside that document. `None` when it was not done, or when
    /// nothing tells it from others ([`Request::is_repeatable`]). An operation that gets something here
    /// changes nothing and answers it again. Ask before anything is changed.
    ///
    /// A-TIME when it is not remembered and may have been done: it is not later than the last one that was
    /// forgotten there. Only a clock that was wrong makes that happen, since what is forgotten would be
    /// refused for its age.
    pub fn repeated<T: DeserializeOwned>(
        &mut self,
        name: &DocName,
    ) -> Result<Option<T>, Exception> {
        let Some((memory, request, operation_time)) = self.memory(name)? else {
            return Ok(None);
        };
        let edited = self.current(&memory)?;
        let item =
            edited.found().and_then(|it| it.item(MEMORY_CLASS, Some(&operation_time.to_string())));
        if let Some(item) = item.cloned()
            && let Some(Content::Json(text)) = item.content()
        {
            let stored = |it: FieldError| {
                let problem = format!("{memory}, {}: {it}", item.name());
                Exception::new(codes::STORED, problem).with_field(it)
            };
            let found: Memory<String, T> = text.read().map_err(stored)?;
            if found.is_of(&request) {
                self.attempt.done_at = item.item_version();
                return Ok(Some(found.3));
            }
        }
        self.check_not_forgotten(&memory, operation_time)?;
        Ok(None)
    }

    /// Remembers beside a document what this request answers, so that its repetition gets the same. The
    /// memory outlives that document, which need not exist. Does nothing for a request that nothing tells
    /// from others. X-BUSY when [`crate::Rules::memories_max`] are remembered, with the time until the
    /// oldest is forgotten. Refuses, as [`Transaction::repeated`] does, what may have been done.
    pub fn remember<T: Serialize + ?Sized>(
        &mut self,
        name: &DocName,
        answer: &T,
    ) -> Result<(), Exception> {
        let Some((memory, request, operation_time)) = self.memory(name)? else {
            return Ok(());
        };
        self.check_not_forgotten(&memory, operation_time)?;
        let (remembered, now) = (self.documents.remembered(), self.now());
        let item = ItemName::keyed(MEMORY_CLASS, &operation_time.to_string())?;
        let content = Content::json_of(&Memory::of(&request, answer))?;
        let wait_ms = self.rules.ms_to_forget(remembered.oldest.unwrap_or(now), now);
        let most = self.rules.memories_max;
        let edited = self.current(&memory)?;
        if remembered.count >= most && !edited.exists() {
            return Err(too_many_memories(most).after(wait_ms));
        }
        edited.ensure();
        edited.put_content(&item, content)
    }

    /// The document that remembers this request beside another one; with the request and its time.
    fn memory(
        &self,
        beside: &DocName,
    ) -> Result<Option<(DocName, Arc<Request>, Stamp)>, Exception> {
        let request = self.attempt.request.as_ref().filter(|it| it.is_repeatable());
        let Some((request, operation_time)) = request.and_then(|it| Some((it, it.operation_time?)))
        else {
            return Ok(None);
        };
        let parameters = request.parameters.as_ref().map_or("", JsonText::as_str);
        let (account, id) = (&*request.who.account, request_id(request));
        let asked = [&operation_time.to_string(), &*request.operation, account, id, parameters];
        let name = DocName::memory(self.space(), MEMORY_CLASS, beside.docid(), &asked)?;
        Ok(Some((name, Arc::clone(request), operation_time)))
    }

    fn check_not_forgotten(
        &mut self,
        memory: &DocName,
        operation_time: Stamp,
    ) -> Result<(), Exception> {
        // One that is further ahead is of a clock that was more wrong than clocks may be.
        let latest = self.now().plus_ms(CLOCKS_APART_MS_MAX);
        let is_meant = |upto: &Stamp| (operation_time..=latest).contains(upto);
        let edited = self.current(&memory.floor())?;
        let content = edited.content(MEMORY_CLASS, Some(FORGOTTEN_KEY));
        let Some(upto) = content.and_then(forgotten_upto).filter(is_meant) else {
            return Ok(());
        };
        let place = memory.place();
        let problem = format!(
            "{operation_time} is not after {upto}, up to which what was done beside {place} is forgotten: it may \
             be done"
        );
        Err(Exception::of_field(codes::TIME, FieldError::new("operation_time", problem)))
    }
}

fn forgotten_upto(content: &Content) -> Option<Stamp> {
    let Content::Json(text) = content else { return None };
    Stamp::parse(text.read().ok()?).ok()
}

/// What a document of class `H` is there for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// It remembers a request of that time.
    Memory(Stamp),
    /// It says up to which time requests were forgotten.
    Floor(Stamp),
}

pub(crate) fn kind_of(document: &Document) -> Option<Kind> {
    if document.name().class() != MEMORY_CLASS {
        return None;
    }
    let (name, content) = document.existing().find(|(name, _)| name.is_memory())?;
    match name.key()? {
        FORGOTTEN_KEY => forgotten_upto(content).map(Kind::Floor),
        key => key.parse().ok().map(Kind::Memory),
    }
}

/// The caller's time of the operation that a document remembers, if that is what it is there for.
pub fn remembers(document: &Document) -> Option<Stamp> {
    match kind_of(document)? {
        Kind::Memory(operation_time) => Some(operation_time),
        Kind::Floor(_) => None,
    }
}

/// The documents that say how much is forgotten when these memories are, as they are to be from then on.
/// They belong into the same entry. `found`: what is there of such a document.
pub fn floors<'a>(
    gone: impl IntoIterator<Item = &'a Document>,
    found: impl Fn(&DocName) -> Option<Arc<Document>>,
) -> Vec<Arc<Document>> {
    let mut upto: BTreeMap<DocName, (Stamp, Stamp)> = BTreeMap::new();
    for memory in gone {
        let Some(operation_time) = remembers(memory) else { continue };
        let it = upto.entry(memory.name().floor()).or_insert((operation_time, memory.version()));
        *it = (it.0.max(operation_time), it.1.max(memory.version()));
    }
    let floors = upto.into_iter().filter_map(|(name, (operation_time, version))| {
        let found = found(&name);
        raised_floor(name, found.as_deref(), operation_time, version).ok().flatten().map(Arc::new)
    });
    floors.collect()
}

/// The floor that both say together; `None` when what is here says it.
pub fn merged_floor(here: &Document, offered: &Document) -> Option<Arc<Document>> {
    let Some(Kind::Floor(upto)) = kind_of(offered) else { return None };
    let name = here.name().clone();
    raised_floor(name, Some(here), upto, offered.version()).ok().flatten().map(Arc::new)
}

fn raised_floor(
    name: DocName,
    found: Option<&Document>,
    upto: Stamp,
    version: Stamp,
) -> Result<Option<Document>, FieldError> {
    let version = found.map_or(version, |it| version.max(it.version().next()));
    if matches!(found.and_then(kind_of), Some(Kind::Floor(already)) if already >= upto) {
        return Ok(None);
    }
    let item = ItemName::keyed(MEMORY_CLASS, FORGOTTEN_KEY)?;
    let item = Item::existing(item, version, version, Content::json_of(&upto.as_u64())?)?;
    let [ctime, dtime] = [version; 2];
    let items = vec![item];
    let parts = DocumentParts { name, ctime, version, dtime, is_deleted: false, items };
    Document::from_parts(parts).map(Some)
}

fn too_many_memories(most: usize) -> Exception {
    let problem = format!(
        "cannot be remembered: as many operations are remembered as may be; the limit is {most}"
    );
    Exception::of_field(codes::BUSY, FieldError::new("operation_time", problem))
}
