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
use crate::exception::{Exception, codes};
use crate::memory::{FORGOTTEN_KEY, forgotten_upto};
use crate::name::{DocName, ItemName, MEMORY_CLASS};
use crate::request::Request;
use rota_model::{FieldError, Stamp};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

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
            let stored = |error: FieldError| {
                let problem = format!("{memory}, {}: {error}", item.name());
                Exception::new(codes::STORED, problem).with_field(error)
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

fn too_many_memories(most: usize) -> Exception {
    let problem = format!(
        "cannot be remembered: as many operations are remembered as may be; the limit is {most}"
    );
    Exception::of_field(codes::BUSY, FieldError::new("operation_time", problem))
}
