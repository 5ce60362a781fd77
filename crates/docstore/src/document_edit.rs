//! A document inside an operation: what was found, and what the operation has changed so far.

use crate::content::{Attachment, Content};
use crate::document::{Document, DocumentParts, Existing, Item, alive};
use crate::exception::{Exception, codes};
use crate::name::{ATTACHMENT_CLASS, DocName, ItemName};
use crate::schema::{Keyed, Schema, Singleton};
use rota_model::ids::no_turn;
use rota_model::{FieldError, Stamp};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What the operation does to the life of the document.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    /// It goes on as it was found.
    Kept,
    /// A new life begins.
    New,
    /// Its life ends.
    Ended,
}

/// What the operation does to an item.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Change {
    /// `item_version`: the operation that made the content, when it was not this one.
    Put {
        content: Content,
        item_version: Option<Stamp>,
    },
    Remove,
}

/// A document as one operation sees it. An operation that asks for it again gets the same edit.
#[derive(Clone, Debug)]
pub struct DocumentEdit {
    name: DocName,
    found: Option<Arc<Document>>,
    fate: Fate,
    is_touched: bool,
    is_copy: bool,
    /// By name.
    changes: Vec<(ItemName, Change)>,
    schema: Arc<Schema>,
}

impl DocumentEdit {
    /// A document as it was found, for changes by the classes of that schema. Operations get theirs
    /// from their [`crate::Transaction`]; whoever gives out versions in another way settles it with
    /// [`DocumentEdit::settle_at`].
    pub fn new(name: DocName, found: Option<Arc<Document>>, schema: Arc<Schema>) -> Self {
        let (fate, is_touched, changes) = (Fate::Kept, false, Vec::new());
        Self { name, found, fate, is_touched, is_copy: false, changes, schema }
    }

    /// Its name.
    pub fn name(&self) -> &DocName {
        &self.name
    }

    /// What the operation found: also the trace of an ended life.
    pub(crate) fn found(&self) -> Option<&Arc<Document>> {
        self.found.as_ref()
    }

    /// The document that goes on, as it was found.
    fn base(&self) -> Option<&Document> {
        let base = alive(self.found.as_ref()).filter(|_| self.fate == Fate::Kept);
        base.map(|it| &**it)
    }

    /// Whether the document exists, with what this operation did so far.
    pub fn exists(&self) -> bool {
        self.fate == Fate::New || self.base().is_some()
    }

    /// The version that was found. `None` (the source text says 0) when the document does not
    /// exist or was created in this operation: its version is not known before the validation.
    pub fn version(&self) -> Option<Stamp> {
        self.base().map(Document::version)
    }

    /// When the life began that was found; `None` when [`DocumentEdit::version`] is.
    pub fn ctime(&self) -> Option<Stamp> {
        self.base().map(Document::ctime)
    }

    /// A-INVALID when a life begins under a name that turns the direction of writing. What is copied from
    /// elsewhere, and what operations remember, keeps its name.
    pub(crate) fn check_new_name(&self) -> Result<(), Exception> {
        if self.fate != Fate::New || self.is_copy || self.name.is_memory() {
            return Ok(());
        }
        let checked =
            no_turn("class", self.name.class()).and_then(|()| no_turn("docid", self.name.docid()));
        checked.map_err(|field| Exception::of_field(codes::INVALID, field))
    }

    /// Begins a life of the document, without items. A-EXISTS when it exists.
    pub fn create(&mut self) -> Result<(), Exception> {
        if self.exists() {
            let problem = format!("{} exists", self.name);
            let field = FieldError::new("document", problem);
            return Err(Exception::of_field(codes::EXISTS, field));
        }
        self.fate = Fate::New;
        Ok(())
    }

    /// Creates the document unless it exists; says whether it did.
    pub fn ensure(&mut self) -> bool {
        !self.exists() && self.create().is_ok()
    }

    /// Like [`DocumentEdit::ensure`], for the copy of a document that exists elsewhere: its name is not judged.
    pub fn ensure_copy(&mut self) -> bool {
        self.is_copy = true;
        self.ensure()
    }

    /// N-DOCUMENT unless the document exists.
    pub fn must_exist(&self) -> Result<(), Exception> {
        if self.exists() {
            return Ok(());
        }
        let field = FieldError::new("document", format!("{} does not exist", self.name));
        Err(Exception::of_field(codes::DOCUMENT, field))
    }

    /// Ends the document's life with all its items; says whether it existed. The same operation
    /// may then create it again: that is another life.
    pub fn destroy(&mut self) -> bool {
        let existed = self.exists();
        let is_alive = alive(self.found.as_ref()).is_some();
        self.fate = if is_alive { Fate::Ended } else { Fate::Kept };
        self.is_touched = false;
        self.changes.clear();
        existed
    }

    /// Gives the document a new version even if no item changes. Who writes to a group of
    /// documents touches the group's lock document; who reads the group asks for that one with
    /// tolerance 0, and so finds out when anything in the group has changed meanwhile.
    pub fn touch(&mut self) {
        self.is_touched = true;
    }

    fn change_at(&self, class: &str, key: Option<&str>) -> Result<usize, usize> {
        self.changes.binary_search_by(|(name, _)| name.cmp_parts(class, key))
    }

    /// The content of an item, with what this operation did so far; key `None` for a singleton.
    pub fn content(&self, class: &str, key: Option<&str>) -> Option<&Content> {
        match self.change_at(class, key).ok().and_then(|at| self.changes.get(at)) {
            Some((_, Change::Put { content, .. })) => Some(content),
            Some((_, Change::Remove)) => None,
            None => self.base()?.content(class, key),
        }
    }

    /// Which operation made the content of an item that was found: the stamp to copy it with. `None`
    /// for what does not exist or was written here.
    pub fn item_version(&self, class: &str, key: Option<&str>) -> Option<Stamp> {
        let is_written = self.change_at(class, key).is_ok();
        self.base().filter(|_| !is_written)?.item(class, key)?.item_version()
    }

    /// All items that exist, in order of their names, with what this operation did so far.
    pub fn existing(&self) -> impl Iterator<Item = (&ItemName, &Content)> {
        self.merged(|_| true)
    }

    /// The keys of all items of a class that exist, in order.
    pub fn keys(&self, class: &str) -> impl Iterator<Item = &str> {
        self.merged(move |it| it.class() == class).filter_map(|it| it.0.key())
    }

    fn merged(
        &self,
        is_asked: impl Fn(&ItemName) -> bool,
    ) -> impl Iterator<Item = (&ItemName, &Content)> {
        let base = self.base().into_iter().flat_map(Document::existing);
        let mut all: BTreeMap<_, _> = base.filter(|(name, _)| is_asked(name)).collect();
        for (name, change) in self.changes.iter().filter(|(name, _)| is_asked(name)) {
            match change {
                Change::Put { content, .. } => all.insert(name, content),
                Change::Remove => all.remove(name),
            };
        }
        all.into_iter()
    }

    /// The singleton `T`. B-STORED when what is stored does not read as one.
    pub fn one<T: Singleton>(&self) -> Result<Option<T>, Exception> {
        let content = self.content(T::CLASS, None);
        read(content).map_err(|it| stored(&self.name, T::CLASS, it))
    }

    /// The item `T` of that key. B-STORED when what is stored does not read as one.
    pub fn item<T: Keyed>(&self, key: &str) -> Result<Option<T>, Exception> {
        let content = self.content(T::CLASS, Some(key));
        read(content).map_err(|it| stored(&self.name, T::CLASS, it))
    }

    /// Writes the singleton `T`. What is there already is left as it is, with its version.
    pub fn put_one<T: Singleton>(&mut self, value: &T) -> Result<(), Exception> {
        self.put_checked(T::CLASS, None, Content::json_of(value)?)
    }

    /// Writes the item `T` of that key.
    pub fn put<T: Keyed>(&mut self, key: &str, value: &T) -> Result<(), Exception> {
        self.put_checked(T::CLASS, Some(key), Content::json_of(value)?)
    }

    /// Writes the description of an attachment. Its body must be durable before the operation is:
    /// see [`crate::Commit::bodies`].
    pub fn attach(&mut self, key: &str, attachment: Attachment) -> Result<(), Exception> {
        let content = Content::Attachment(Arc::new(attachment));
        self.put_checked(ATTACHMENT_CLASS, Some(key), content)
    }

    /// The description of an attachment.
    pub fn attachment(&self, key: &str) -> Option<&Attachment> {
        self.content(ATTACHMENT_CLASS, Some(key))?.as_attachment()
    }

    /// Writes any content under any name. JSON must read as the type of its class.
    pub fn put_content(&mut self, name: &ItemName, content: Content) -> Result<(), Exception> {
        self.schema.check_foreign(self.name.class(), name, &content)?;
        self.put_checked(name.class(), name.key(), content)
    }

    /// Writes a copy of what an operation of another document made at `item_version`, unless what is here
    /// was made later. Says whether it was written. A copy may arrive late or twice; it never
    /// overwrites a newer state.
    pub fn put_copy(
        &mut self,
        name: &ItemName,
        content: Content,
        item_version: Stamp,
    ) -> Result<bool, Exception> {
        let (class, key) = (name.class(), name.key());
        let stored = match self.change_at(class, key).map(|at| &self.changes[at].1) {
            // A copy, too.
            Ok(Change::Put { item_version: Some(item_version), .. }) => Some(*item_version),
            // Made by this very operation: nothing is newer.
            Ok(Change::Put { item_version: None, .. } | Change::Remove) => return Ok(false),
            Err(_) => self.base().and_then(|it| it.item(class, key)?.item_version()),
        };
        if stored.is_some_and(|stored| stored >= item_version) {
            return Ok(false);
        }
        self.schema.check_foreign(self.name.class(), name, &content)?;
        self.check_writable()?;
        self.set(class, key, Change::Put { content, item_version: Some(item_version) })?;
        Ok(true)
    }

    /// Destroys an item; says whether it existed.
    pub fn remove(&mut self, class: &str, key: Option<&str>) -> Result<bool, Exception> {
        if self.content(class, key).is_none() {
            return Ok(false);
        }
        self.check_writable()?;
        let was_found = self.base().is_some_and(|it| it.content(class, key).is_some());
        match self.change_at(class, key) {
            // Made by this operation, unknown before: nobody needs to hear of it.
            Ok(at) if !was_found => drop(self.changes.remove(at)),
            Ok(_) | Err(_) => self.set(class, key, Change::Remove)?,
        }
        Ok(true)
    }

    fn check_writable(&self) -> Result<(), Exception> {
        if self.exists() {
            return Ok(());
        }
        let problem = format!("{} does not exist; create it first", self.name);
        Err(Exception::of_field(codes::MISUSE, FieldError::new("document", problem)))
    }

    fn put_checked(
        &mut self,
        class: &str,
        key: Option<&str>,
        content: Content,
    ) -> Result<(), Exception> {
        self.check_writable()?;
        if self.base().and_then(|it| it.content(class, key)) == Some(&content) {
            if let Ok(at) = self.change_at(class, key) {
                self.changes.remove(at);
            }
            return Ok(());
        }
        self.set(class, key, Change::Put { content, item_version: None })
    }

    /// Notes a change. Checks class, key, kind of content and the types of declared fields.
    fn set(&mut self, class: &str, key: Option<&str>, change: Change) -> Result<(), Exception> {
        let at = self.change_at(class, key);
        let name = match at {
            Ok(at) => self.changes[at].0.clone(),
            Err(_) => match self.base().and_then(|it| it.item(class, key)) {
                Some(item) => item.name.clone(),
                None => ItemName::new(class, key)?,
            },
        };
        if let Change::Put { content, .. } = &change {
            self.schema.check_item(self.name.class(), &name, content)?;
            self.schema.check_fields(self.name.class(), &name, content)?;
            self.schema.check_copied(&self.name, &name)?;
        }
        match at {
            Ok(at) => self.changes[at].1 = change,
            Err(at) => self.changes.insert(at, (name, change)),
        }
        Ok(())
    }

    /// The latest operation whose content is copied here: the version must not be older.
    pub(crate) fn latest_item_version(&self) -> Option<Stamp> {
        let item_version = |change: &Change| match change {
            Change::Put { item_version, .. } => *item_version,
            Change::Remove => None,
        };
        self.changes.iter().filter_map(|(_, change)| item_version(change)).max()
    }

    /// The items that are written.
    pub(crate) fn written(&self) -> impl Iterator<Item = &ItemName> {
        let is_put = |change: &Change| matches!(change, Change::Put { .. });
        self.changes.iter().filter(move |it| is_put(&it.1)).map(|it| &it.0)
    }

    /// Whether the document will be written.
    pub(crate) fn is_changed(&self) -> bool {
        match self.fate {
            Fate::Kept => self.exists() && (self.is_touched || !self.changes.is_empty()),
            Fate::New | Fate::Ended => true,
        }
    }

    /// The document that this edit makes at its version. `current` is what is stored now: the
    /// version that was found, perhaps with fewer destroyed items. Items destroyed before
    /// `forget_before` are forgotten on the occasion.
    pub(crate) fn settle(
        self,
        current: Option<&Arc<Document>>,
        version: Stamp,
        forget_before: Stamp,
    ) -> Document {
        let current = alive(current);
        match (self.fate, current) {
            (Fate::Ended, Some(it)) => Document::ended(self.name, it.ctime(), version),
            (Fate::Kept, Some(it)) => merge(it, self.changes, version, forget_before),
            (Fate::New | Fate::Kept | Fate::Ended, _) => {
                begin(self.name, self.changes, version, version)
            }
        }
    }

    /// The document that this edit makes of what was found, at a version that somebody else chose:
    /// it must be above the one that was found (field `version`). A life that begins here began at
    /// `ctime`, not after the version (field `ctime`). Items destroyed before `forget_before` are
    /// forgotten on the occasion.
    pub fn settle_at(
        self,
        ctime: Stamp,
        version: Stamp,
        forget_before: Stamp,
    ) -> Result<Document, FieldError> {
        if let Some(found) = self.found.as_ref().filter(|it| it.version() >= version) {
            let problem = format!("of {} is {version}, not above {}", self.name, found.version());
            return Err(FieldError::new("version", problem));
        }
        let document = if self.fate == Fate::New {
            if ctime > version {
                let problem = format!("of {} is {ctime}, above its version {version}", self.name);
                return Err(FieldError::new("ctime", problem));
            }
            begin(self.name, self.changes, ctime, version)
        } else {
            let found = self.found.clone();
            self.settle(found.as_ref(), version, forget_before)
        };
        document.check_size()?;
        Ok(document)
    }
}

/// A life that begins with what an operation made.
fn begin(
    name: DocName,
    changes: Vec<(ItemName, Change)>,
    ctime: Stamp,
    version: Stamp,
) -> Document {
    let items = changes.into_iter().filter_map(|(name, change)| put(name, change, version));
    Document::assemble(name, [ctime, version, ctime], false, items.collect())
}

/// An item that a change makes; `None` for a removal.
fn put(name: ItemName, change: Change, version: Stamp) -> Option<Item> {
    let Change::Put { content, item_version } = change else {
        return None;
    };
    let existing = Some(Existing { item_version: item_version.unwrap_or(version), content });
    Some(Item { name, version, existing })
}

fn merge(
    current: &Document,
    changes: Vec<(ItemName, Change)>,
    version: Stamp,
    forget_before: Stamp,
) -> Document {
    let is_forgotten = |it: &Item| it.is_destroyed() && it.version < forget_before;
    let mut dtime = current.dtime();
    let is_new = |name: &ItemName| current.item(name.class(), name.key()).is_none();
    let new = changes.iter().filter(|(name, _)| is_new(name)).count();
    let mut items = Vec::with_capacity(current.items().len() + new);
    let mut changes = changes.into_iter().peekable();
    for item in current.items() {
        while let Some((name, change)) = changes.next_if(|(name, _)| *name < item.name) {
            items.extend(put(name, change, version));
        }
        if let Some((name, change)) = changes.next_if(|(name, _)| *name == item.name) {
            let was_destroyed = || Item::destroyed(item.name.clone(), version);
            items.push(put(name, change, version).unwrap_or_else(was_destroyed));
        } else if is_forgotten(item) {
            dtime = dtime.max(forget_before.min(version));
        } else {
            items.push(item.clone());
        }
    }
    items.extend(changes.filter_map(|(name, change)| put(name, change, version)));
    let (name, ctime) = (current.name().clone(), current.ctime());
    let parts = DocumentParts { name, ctime, version, dtime, is_deleted: false, items };
    Document::assemble_parts(parts.fitted())
}

fn read<T: DeserializeOwned>(content: Option<&Content>) -> Result<Option<T>, FieldError> {
    match content {
        None => Ok(None),
        Some(Content::Json(text)) => text.read().map(Some),
        Some(other @ (Content::Raw(_) | Content::Attachment(_))) => {
            Err(FieldError::new("content", format!("is {}, not JSON", other.kind())))
        }
    }
}

fn stored(name: &DocName, class: &str, error: FieldError) -> Exception {
    Exception::new(codes::STORED, format!("{name}, {class}: {error}")).with_field(error)
}

impl Document {
    /// The singleton `T`, if it exists; an error when what is stored does not read as one.
    pub fn one<T: Singleton>(&self) -> Result<Option<T>, FieldError> {
        read(self.content(T::CLASS, None))
    }

    /// The item `T` of that key, if it exists; an error when what is stored does not read as one.
    pub fn keyed<T: Keyed>(&self, key: &str) -> Result<Option<T>, FieldError> {
        read(self.content(T::CLASS, Some(key)))
    }
}
