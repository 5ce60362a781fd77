//! Items that were copied from another document: what becomes of them where copies are held.
//!
//! **Invariant:** a copy changes an item that is there, in an older state. It makes none, so what was removed stays away.

use crate::documents::copies::write_of;
use crate::documents::memory_quota::take_room;
use crate::documents::state::Documents;
use crate::log::at::At;
use crate::log::origin::Origin;
use crate::log::resident::RequestHandler;
use crate::ports::note::Transition;
use rota_docstore::{Document, DocumentEdit, Exception, Phase, Stamp, Territory};
use rota_messages::api::CopyOp;
use rota_messages::{Answer, DocKey, DocumentAnswer, OpResult};
use rota_model::{Refusal, RefusalKind, Retry};
use std::sync::Arc;

/// The document after a copy, and why an item was left out, if one does not fit into it.
type Changed = (Arc<Document>, Option<Exception>);

fn answer(taken: Result<bool, Exception>) -> OpResult {
    Ok(Answer::Documents(DocumentAnswer::Imported(taken)))
}

impl Documents {
    /// Writes what is newer than what is here. `sure`: nobody else owned the partition when the request came.
    pub(crate) fn copy_in(&mut self, led: &mut At<'_>, origin: Origin, op: &CopyOp, sure: bool) {
        let slots = led.slots();
        let key = DocKey::new(slots.slot_of(&op.name), op.name.clone());
        // What is not here holds nothing, and the copy would count as made.
        if !slots.holds(key.slot) {
            let text = format!("{} lies in slot {}, which is not here", op.name, key.slot);
            let retry = Retry::AtOwner(led.env.epoch());
            let refusal = Refusal::new(RefusalKind::NotOwner, retry, text);
            return self.reply(led, origin, Err(refusal));
        }
        let here = led.log.replica.get(&key).map(|it| it.document().clone());
        let here = here.filter(|it| !it.is_deleted());
        let changed = here.map(|it| self.with_copies(led, &it, op)).transpose();
        let (document, failure) = match changed.map(Option::flatten) {
            Ok(Some(written)) => written,
            Ok(None) if !sure => return led.confirm_then(origin),
            Ok(None) => return self.answer_read(led, origin, answer(Ok(false))),
            Err(exception) => {
                return self.reply(led, origin, answer(Err(exception.at(Phase::Work))));
            }
        };
        if !led.may_begin() {
            return led.enqueue(origin);
        }
        let writes = vec![write_of(document, slots.m)];
        if let Err(exception) = take_room(led, &writes) {
            return self.reply(led, origin, answer(Err(exception.at(Phase::Validation))));
        }
        led.env.note(Transition::Copied, Some(led.log.number));
        let at = led.write(writes, None);
        led.promise(at, origin, answer(failure.map_or(Ok(true), |it| Err(it.at(Phase::Work)))));
    }

    /// The document with what is newer. `None`: nothing is.
    fn with_copies(
        &self,
        led: &At<'_>,
        here: &Arc<Document>,
        op: &CopyOp,
    ) -> Result<Option<Changed>, Exception> {
        let schema = Arc::clone(&led.env.documents_env.schema);
        let mut edited = DocumentEdit::new(op.name.clone(), Some(Arc::clone(here)), schema);
        let mut latest = Stamp::MIN;
        let (mut is_changed, mut failure) = (false, None);
        for item in op.items.iter() {
            let (name, version) = (item.name(), item.version());
            let Some(content) = item.content() else { continue };
            if edited.content(name.class(), name.key()).is_none() {
                continue;
            }
            match edited.put_copy(name, content.clone(), version) {
                Ok(true) => {
                    is_changed = true;
                    latest = latest.max(version);
                }
                Ok(false) => {}
                Err(exception) => failure = failure.or(Some(exception)),
            }
        }
        if !is_changed {
            return failure.map_or(Ok(None), Err);
        }
        let now = Stamp::from_epoch_ms(led.env.now.wall_ms);
        let floor = self.floor(led, op.name.space());
        let version = now.max(floor).max(latest).max(here.version().next());
        let document = edited.settle_at(here.ctime(), version, Stamp::MIN)?;
        Ok(Some((Arc::new(document), failure)))
    }
}
