//! What operations remember of themselves in a document, so that a request that is repeated gets the same
//! answer and does nothing twice: an item of class `H` for each, under a key that begins with the
//! caller's time of the request.
//!
//! What would be refused for its age is forgotten. A clock may be wrong for a while, though, and make a
//! request of a minute ago look old; so the document keeps how much it has forgotten, and refuses what
//! may be among it, instead of doing it again.

use super::Desk;
use crate::cache::CLOCKS_APART_MS_MAX;
use crate::content::{Content, JsonText};
use crate::document::{Document, Item};
use crate::draft::Draft;
use crate::exception::{Exception, codes};
use crate::name::{DocName, ItemName, MEMORY_CLASS};
use crate::rules::Rules;
use rota_model::{FieldError, Stamp};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Most requests that one document remembers: a quarter of its items. By default that is 6 in every
/// second of 11 minutes; each of them writes the document with all that it remembers.
pub const MEMORIES_MAX: usize = 4_096;

/// The key of the item that says how much was forgotten: the caller's time of the latest request. It is
/// below all others, which begin with such a time.
const FORGOTTEN_KEY: &str = "!";

impl Desk<'_> {
    /// What this very request (operation, account, parameters, dhop) answered when it was done before, as
    /// [`Desk::remember`] wrote it into that document. `None` when it was not done, or has no dhop.
    /// An operation that gets something here changes nothing and answers it again.
    pub fn repeated<T: DeserializeOwned>(
        &mut self,
        name: &DocName,
    ) -> Result<Option<T>, Exception> {
        let Some(key) = self.memory_key() else {
            return Ok(None);
        };
        let draft = self.current(name)?;
        let stored = draft.found().and_then(|it| it.item(MEMORY_CLASS, Some(&key)).cloned());
        let Some(item) = stored else {
            return Ok(None);
        };
        let Some(Content::Json(text)) = item.content() else {
            return Ok(None);
        };
        let (answer,) = text.read::<(T,)>().map_err(|it| {
            Exception::new(codes::STORED, format!("{name}, {}: {it}", item.name())).with_field(it)
        })?;
        // Not its version: memories may have been copied here from a document whose life ended.
        self.attempt.done_at = item.vop();
        Ok(Some(answer))
    }

    /// Refuses (A-DHOP) a request that is not remembered in that document and may have been: it is not
    /// later than the last one that was forgotten there. Only a clock that was wrong makes that
    /// happen: what is forgotten would be refused for its age.
    pub fn check_not_forgotten(&mut self, name: &DocName) -> Result<(), Exception> {
        let Some(dhop) = self.request().and_then(|it| it.dhop) else {
            return Ok(());
        };
        // One that is further ahead is of a clock that was more wrong than clocks may be.
        let latest = self.now().plus_ms(CLOCKS_APART_MS_MAX);
        let is_meant = |upto: &Stamp| (dhop..=latest).contains(upto);
        let Some(upto) = forgotten_by(self.current(name)?).filter(is_meant) else {
            return Ok(());
        };
        let problem = format!(
            "{dhop} is not after {upto}, up to which {name} has forgotten what was done: it may be done"
        );
        Err(Exception::of_field(codes::DHOP, FieldError::new("dhop", problem)))
    }

    /// Remembers in a document what this request answers, so that its repetition gets the same.
    /// Forgets memories of requests that would by now be refused for their age, and refuses what may be
    /// one of them ([`Desk::check_not_forgotten`]). X-BUSY when it remembers [`MEMORIES_MAX`] younger
    /// ones. Does nothing for a request without dhop. Choose a document whose life goes on: memories
    /// end with it, unless another one takes them over ([`Desk::hand_over_memories`]).
    pub fn remember<T: Serialize + ?Sized>(
        &mut self,
        name: &DocName,
        answer: &T,
    ) -> Result<(), Exception> {
        let Some(key) = self.memory_key() else {
            return Ok(());
        };
        self.check_not_forgotten(name)?;
        let oldest = self.rules.oldest_memory(self.now());
        let draft = self.current(name)?;
        if forget_memories(draft, &oldest)? >= MEMORIES_MAX {
            return Err(too_many_memories(name));
        }
        // A list of one, since the answer may be null.
        let item = ItemName::keyed(MEMORY_CLASS, &key)?;
        draft.put_content(&item, Content::json_of(&(answer,))?)
    }

    /// Lets another document, which is created for it, take over what this one remembers, because
    /// its life is about to end. X-BUSY as for [`Desk::remember`].
    pub fn hand_over_memories(&mut self, from: &DocName, to: &DocName) -> Result<(), Exception> {
        let now = self.now();
        let rules = self.rules;
        let oldest = rules.oldest_memory(now);
        let draft = self.current(from)?;
        forget_memories(draft, &oldest)?;
        let forgotten = forgotten_by(draft).filter(|it| !rules.is_past_any_clock(*it, now));
        let taken = |(item, content): (&ItemName, &Content)| {
            let is_one = item.is_memory() && item.key() != Some(FORGOTTEN_KEY);
            let vop = draft.vop(item.class(), item.key()).filter(|_| is_one)?;
            Some((item.clone(), content.clone(), vop))
        };
        let remembered: Vec<_> = draft.existing().filter_map(taken).collect();
        if remembered.is_empty() && forgotten.is_none() {
            return Ok(());
        }
        let draft = self.current(to)?;
        draft.ensure();
        if let Some(upto) = forgotten {
            note_forgotten(draft, upto)?;
        }
        if forget_memories(draft, &oldest)? + remembered.len() > MEMORIES_MAX {
            return Err(too_many_memories(to));
        }
        for (item, content, vop) in remembered {
            draft.put_copy(&item, content, vop)?;
        }
        Ok(())
    }

    fn memory_key(&self) -> Option<String> {
        let request = self.request()?;
        let dhop = request.dhop?;
        // Callers that name no account may ask for different things in one millisecond.
        let asked = digest(request.parameters.as_ref().map_or("", JsonText::as_str));
        Some(format!("{dhop}/{}/{}/{asked:016x}", request.operation, request.who.account))
    }
}

/// The keys of what a document remembers, in order of the callers' times.
fn remembered(draft: &Draft) -> impl Iterator<Item = &str> {
    draft.keys(MEMORY_CLASS).filter(|it| *it != FORGOTTEN_KEY)
}

/// Forgets the memories below that key, and says how many are left.
fn forget_memories(draft: &mut Draft, oldest: &str) -> Result<usize, Exception> {
    let keys: Vec<&str> = remembered(draft).collect();
    let (old, left) = keys.split_at(keys.partition_point(|it| *it < oldest));
    let (old, left): (Vec<String>, usize) =
        (old.iter().map(ToString::to_string).collect(), left.len());
    for key in &old {
        draft.remove(MEMORY_CLASS, Some(key))?;
    }
    if let Some(upto) = old.last().and_then(|it| dhop_of(it)) {
        note_forgotten(draft, upto)?;
    }
    Ok(left)
}

fn dhop_of(key: &str) -> Option<Stamp> {
    Stamp::parse(key.split('/').next()?.parse().ok()?).ok()
}

/// The caller's time of the latest request that was forgotten, as its item says.
fn forgotten_upto(content: Option<&Content>) -> Option<Stamp> {
    let Some(Content::Json(text)) = content else { return None };
    Stamp::parse(text.read().ok()?).ok()
}

fn forgotten_by(draft: &Draft) -> Option<Stamp> {
    forgotten_upto(draft.content(MEMORY_CLASS, Some(FORGOTTEN_KEY)))
}

/// That item, which is to say so.
fn marker(upto: Stamp) -> Result<(ItemName, Content), FieldError> {
    Ok((ItemName::keyed(MEMORY_CLASS, FORGOTTEN_KEY)?, Content::json_of(&upto.as_u64())?))
}

fn note_forgotten(draft: &mut Draft, upto: Stamp) -> Result<(), Exception> {
    if forgotten_by(draft) >= Some(upto) {
        return Ok(());
    }
    let (name, content) = marker(upto)?;
    draft.put_content(&name, content)
}

/// What is left of a document that nobody writes when nothing that it remembers may be asked for any
/// more: how much it has forgotten, and later not even that. `None` while all stays. One that changes
/// forgets with each new memory.
pub(crate) fn without_old_memories(
    document: &Document,
    rules: &Rules,
    now: Stamp,
) -> Option<Document> {
    if document.memories_bytes() == 0 {
        return None;
    }
    let newest =
        document.items().iter().rev().find(|it| it.name().is_memory() && !it.is_destroyed())?;
    if newest.name().key() == Some(FORGOTTEN_KEY) {
        let is_over =
            forgotten_upto(newest.content()).is_none_or(|it| rules.is_past_any_clock(it, now));
        return if is_over { document.without_memories() } else { None };
    }
    let key = newest.name().key().filter(|it| *it < rules.oldest_memory(now).as_str())?;
    let before = forgotten_upto(document.content(MEMORY_CLASS, Some(FORGOTTEN_KEY)));
    let (name, content) = marker(before.max(dhop_of(key))?).ok()?;
    let marker = Item::existing(name, newest.version(), newest.version(), content).ok()?;
    let mut parts = document.without_memories()?.into_parts();
    let at = parts.items.partition_point(|it| it.name() < marker.name());
    parts.items.insert(at, marker);
    Document::from_parts(parts).ok()
}

fn too_many_memories(name: &DocName) -> Exception {
    let problem = format!(
        "cannot be remembered: {name} remembers as many operations as it may; the limit is \
         {MEMORIES_MAX}"
    );
    Exception::of_field(codes::BUSY, FieldError::new("dhop", problem))
}

/// FNV-1a: it tells the requests of a moment apart, and guards nothing.
fn digest(text: &str) -> u64 {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, mix)
}
