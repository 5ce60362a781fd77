//! Documents of exports: what becomes of one that comes to where another may be.
//!
//! What lives here stays unless the export has a later life of it, or a later version of the same
//! one; what has ended here comes back. And whatever comes in, no copy that was made of this partition
//! goes back, or stays behind for good: see [`brought_in`].

use crate::documents::copies::write_of;
use crate::documents::memory_quota::take_room;
use crate::documents::state::Documents;
use crate::log::at::At;
use crate::log::origin::Origin;
use crate::log::resident::RequestHandler;
use crate::ports::slots::slot_of;
use rota_docstore::cache::CLOCKS_APART_MS_MAX;
use rota_docstore::memory::merged_floor;
use rota_docstore::{
    Document, DocumentParts, Exception, FieldError, Item, ItemName, Phase, Territory,
};
use rota_messages::api::ImportOp;
use rota_messages::{Answer, DocKey, DocumentAnswer};
use rota_model::Stamp;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where an import stands, beside what is here.
#[derive(Clone, Copy, Debug)]
struct Moment {
    now: Stamp,
    /// No version below this is given out.
    floor: Stamp,
    /// The highest version that was forgotten or lost: somebody may hold a life up to then.
    forgotten: Stamp,
}

impl Documents {
    /// Takes over a document of an export, unless what is here is as new.
    pub(crate) fn import(&mut self, led: &mut At<'_>, origin: Origin, op: &ImportOp, sure: bool) {
        let imported = |it| Ok(Answer::Documents(DocumentAnswer::Imported(it)));
        if let Err(mistake) = check_import(led, &op.document) {
            let exception = Exception::from(mistake).at(Phase::Before);
            return self.reply(led, origin, imported(Err(exception)));
        }
        let name = op.document.name();
        let key = DocKey::new(slot_of(name, led.env.view().m), name.clone());
        let here = led.log.replica.get(&key).map(|it| it.document().clone());
        let floor = self.floor(led, name.space());
        let forgotten = led.env.stamps.forgotten.max(led.stamps_above());
        let moment = Moment { now: Stamp::from_epoch_ms(led.env.now.wall_ms), floor, forgotten };
        let brought = match here.as_deref().filter(|it| name.is_memory() && !it.is_deleted()) {
            // It remembers the same request; or of what was forgotten, both are to be known.
            Some(here) => Ok(merged_floor(here, &op.document)),
            None => brought_in(here.as_deref(), &op.document, moment),
        };
        let document = match brought {
            Ok(Some(document)) => document,
            Ok(None) if !sure => return led.confirm_then(origin),
            Ok(None) => return self.answer_read(led, origin, imported(Ok(false))),
            Err(mistake) => {
                let exception = Exception::from(mistake).at(Phase::Validation);
                return self.reply(led, origin, imported(Err(exception)));
            }
        };
        if !led.may_begin() {
            return led.enqueue(origin);
        }
        let writes = vec![write_of(document, led.env.view().m)];
        if let Some(exception) = led.log.without_body(led.env, &writes) {
            let exception = exception.at(Phase::Validation);
            return self.reply(led, origin, imported(Err(exception)));
        }
        if let Err(exception) = take_room(led, &writes) {
            let exception = exception.at(Phase::Validation);
            return self.reply(led, origin, imported(Err(exception)));
        }
        let at = led.write(writes, None);
        led.promise(at, origin, imported(Ok(true)));
    }
}

pub(crate) fn check_import(led: &At<'_>, document: &Document) -> Result<(), FieldError> {
    let name = document.name();
    let (schema, slots) = (&led.env.documents_env.schema, led.slots());
    schema.check_document(document)?;
    if schema.is_read_only(name.class()) {
        let problem = format!("{:?} of {name} is not imported", name.class());
        return Err(FieldError::new("class", problem));
    }
    if !slots.holds(slots.slot_of(name)) {
        let problem = format!("{name} lies in slot {}, which is not here", slots.slot_of(name));
        return Err(FieldError::new("document", problem));
    }
    let now = Stamp::from_epoch_ms(led.env.now.wall_ms);
    document.check_not_after(now.plus_ms(CLOCKS_APART_MS_MAX))
}

/// What an offered document becomes here; `None`: what is here is as new, by (ctime, version).
///
/// * Nothing was ever here, or an earlier life: it comes as it is. Its version is raised above what
///   is here and what was told, or a cache that was told that there is none would refuse it.
/// * What is here has ended, and what is offered lives: it begins a new life, whichever ended later.
///   Who deletes a namespace and imports it again wants its documents, and a repetition finds that life.
/// * Somebody may hold a life of it that is later: it begins a new one.
/// * A later life of what lives here: it comes as it is.
/// * A later version of the same life: what differs gets that version, since a copy that has what
///   is here asks for what is newer only. The export may have changed it on another way.
fn brought_in(
    here: Option<&Document>,
    offered: &Arc<Document>,
    moment: Moment,
) -> Result<Option<Arc<Document>>, FieldError> {
    let (ctime, version) = (offered.ctime(), offered.version());
    let Some(here) = here else {
        let is_unseen = ctime > moment.forgotten;
        let document = match is_unseen {
            true => raised(offered, moment.floor),
            false => new_life(offered, moment, Stamp::MIN),
        };
        return document.map(Some);
    };
    let comes_back = here.is_deleted() && !offered.is_deleted();
    if !comes_back && (here.ctime(), here.version()) >= (ctime, version) {
        return Ok(None);
    }
    let document = if ctime > here.ctime() {
        raised(offered, here.version().next())
    } else if here.is_deleted() || offered.is_deleted() {
        new_life(offered, moment, here.version())
    } else {
        changed(here, offered)
    };
    document.map(Some)
}

/// The same, at that version or a later one.
fn raised(offered: &Arc<Document>, least: Stamp) -> Result<Arc<Document>, FieldError> {
    if offered.version() >= least {
        return Ok(Arc::clone(offered));
    }
    let parts = Document::clone(offered).into_parts();
    Document::from_parts(DocumentParts { version: least, ..parts }).map(Arc::new)
}

/// A life that begins now with what exists in it.
fn new_life(offered: &Document, moment: Moment, here: Stamp) -> Result<Arc<Document>, FieldError> {
    let at = moment.now.max(moment.floor).max(here.next()).max(offered.version().next());
    let existing = offered.items().iter().filter(|it| !it.is_destroyed());
    let items = existing.map(|it| moved(it, at)).collect::<Result<_, _>>()?;
    let (ctime, version, dtime) = (at, at, at);
    let (name, is_deleted) = (offered.name().clone(), offered.is_deleted());
    let parts = DocumentParts { name, ctime, version, dtime, is_deleted, items };
    Document::from_parts(parts).map(Arc::new)
}

/// The life that is here, with what the offered one says of it.
fn changed(here: &Document, offered: &Document) -> Result<Arc<Document>, FieldError> {
    let at = offered.version();
    let mut items: BTreeMap<ItemName, Item> = BTreeMap::new();
    for item in here.items() {
        let name = item.name();
        let is_own = item.is_destroyed();
        let stays = is_own || offered.content(name.class(), name.key()).is_some();
        let item = if stays { item.clone() } else { Item::destroyed(name.clone(), at) };
        items.insert(name.clone(), item);
    }
    for item in offered.items().iter().filter(|it| !it.is_destroyed()) {
        let found = items.get(item.name());
        let is_same =
            |it: &Item| it.content() == item.content() && it.item_version() == item.item_version();
        if !found.is_some_and(is_same) {
            items.insert(item.name().clone(), moved(item, at)?);
        }
    }
    let (name, ctime, dtime) = (here.name().clone(), here.ctime(), here.dtime());
    let items = items.into_values().collect();
    let parts = DocumentParts { name, ctime, version: at, dtime, is_deleted: false, items };
    Document::from_parts(parts.fitted()).map(Arc::new)
}

/// An existing item at another version.
fn moved(item: &Item, at: Stamp) -> Result<Item, FieldError> {
    let content = item.content().expect("it is not destroyed").clone();
    let item_version = item.item_version().unwrap_or(at);
    Item::existing(item.name().clone(), at, item_version, content)
}
