//! Synchronisation: bringing a copy of a document up to date with little traffic.
//!
//! ```text
//!   cache: Held { ctime, version v, dtime } ──▶ source: update_for ──▶ Update ──▶ cache: apply
//!
//!   ctime before source's   full: an earlier life, nothing of the cache is worth keeping
//!   ctime after source's    source behind: the cache knows a later life, and stays as it is
//!   of the same life:
//!   v >  source's version   source behind, too
//!   v =  source's version   unchanged
//!   v >= source's dtime     case 1: what changed or was destroyed after v
//!   v <  source's dtime     case 2: the same, and the names of all items that stayed as they were:
//!                           the source has forgotten some of what was destroyed, so what a cache
//!                           has and nobody names is gone
//! ```
//!
//! Memories of operations (class `H`) are no data of an application: its caches are told nothing of
//! them ([`Update::without_memories`]), though the version moves when there is one more.
//!
//! A cache that was brought up to date serves as a source for others. Nothing ever lowers the
//! version or the life of a copy.

use crate::document::{Document, Item, check_order};
use crate::name::{DocName, ItemName};
use rota_model::{FieldError, Stamp};
use std::sync::Arc;

/// What a cache says about its copy of a document.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Held {
    ctime: Stamp,
    version: Stamp,
    dtime: Stamp,
}

impl Held {
    /// From its parts. Fields `dtime`: ctime <= dtime <= version.
    pub fn new(ctime: Stamp, version: Stamp, dtime: Stamp) -> Result<Self, FieldError> {
        if !(ctime <= dtime && dtime <= version) {
            let problem = format!("is {dtime}, not between {ctime} and {version}");
            return Err(FieldError::new("dtime", problem));
        }
        Ok(Self { ctime, version, dtime })
    }

    /// What is said of a document.
    pub fn of(document: &Document) -> Self {
        let (ctime, version, dtime) = (document.ctime(), document.version(), document.dtime());
        Self { ctime, version, dtime }
    }

    /// When the life began that the cache knows.
    pub fn ctime(&self) -> Stamp {
        self.ctime
    }

    /// The version that the cache has.
    pub fn version(&self) -> Stamp {
        self.version
    }

    /// The cache knows all items that were destroyed at or after this.
    pub fn dtime(&self) -> Stamp {
        self.dtime
    }

    /// Refuses a version after `latest`, the latest that can exist: field `version`.
    pub fn check_not_after(&self, latest: Stamp) -> Result<(), FieldError> {
        if self.version > latest {
            let version = self.version;
            let problem = format!("is {version}, in the future; the limit is {latest}");
            return Err(FieldError::new("version", problem));
        }
        Ok(())
    }
}

/// What changed in a document since a version: case 1 and case 2.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Changes {
    ctime: Stamp,
    since: Stamp,
    version: Stamp,
    dtime: Stamp,
    items: Vec<Item>,
    unchanged: Option<Vec<ItemName>>,
}

/// Everything that makes up [`Changes`], unchecked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChangesParts {
    /// The life.
    pub ctime: Stamp,
    /// The version that the cache had.
    pub since: Stamp,
    /// The version that it gets.
    pub version: Stamp,
    /// The source's dtime.
    pub dtime: Stamp,
    /// Items that changed, with content, and items that were destroyed, without; by name.
    pub items: Vec<Item>,
    /// Case 2: names of all existing items that are not among `items`; by name. `None`: case 1. An
    /// empty list is not the same as none.
    pub unchanged: Option<Vec<ItemName>>,
}

impl Changes {
    /// From its parts. Checks what always holds: ctime <= since < version, dtime <= version; a
    /// list of names exactly when since < dtime; items and names in order, no item in both; each
    /// item's version after since and not after version.
    pub fn from_parts(parts: ChangesParts) -> Result<Self, FieldError> {
        let ChangesParts { ctime, since, version, dtime, items, unchanged } = parts;
        let wrong = |field: &str, problem: String| Err(FieldError::new(field, problem));
        if !(ctime <= since && since < version) {
            return wrong("since", format!("is {since}, not between {ctime} and {version}"));
        }
        if !(ctime <= dtime && dtime <= version) {
            return wrong("dtime", format!("is {dtime}, not between {ctime} and {version}"));
        }
        if unchanged.is_some() != (since < dtime) {
            return wrong("unchanged", format!("does not fit since {since} and dtime {dtime}"));
        }
        check_order(items.iter().map(Item::name))?;
        check_order(unchanged.iter().flatten())?;
        for Item { name, version: at, .. } in &items {
            if !(*at > since && *at <= version) {
                let problem = format!("of {name} is {at}, not after {since} up to {version}");
                return wrong("version", problem);
            }
            if unchanged.as_ref().is_some_and(|it| it.binary_search(name).is_ok()) {
                return wrong("unchanged", format!("names {name}, which has changed"));
            }
        }
        Ok(Self { ctime, since, version, dtime, items, unchanged })
    }

    /// The parts again.
    pub fn into_parts(self) -> ChangesParts {
        let Self { ctime, since, version, dtime, items, unchanged } = self;
        ChangesParts { ctime, since, version, dtime, items, unchanged }
    }

    /// The life.
    pub fn ctime(&self) -> Stamp {
        self.ctime
    }

    /// The version that the cache had.
    pub fn since(&self) -> Stamp {
        self.since
    }

    /// The version that the cache gets.
    pub fn version(&self) -> Stamp {
        self.version
    }

    /// The source's dtime.
    pub fn dtime(&self) -> Stamp {
        self.dtime
    }

    /// Items that changed or were destroyed, by name.
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// Case 2: the existing items that did not change, by name. `None` in case 1.
    pub fn unchanged(&self) -> Option<&[ItemName]> {
        self.unchanged.as_deref()
    }
}

/// What a source answers to a cache: the update document.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Update {
    /// The cache is up to date.
    Unchanged {
        /// The life.
        ctime: Stamp,
        /// The version of both.
        version: Stamp,
    },
    /// The whole document, destroyed items included; it replaces whatever the cache has.
    Full(Arc<Document>),
    /// What changed: case 1 without, case 2 with a list of names.
    Changes(Changes),
    /// The document's life has ended.
    Deleted {
        /// The life that ended.
        ctime: Stamp,
        /// When it ended.
        version: Stamp,
    },
    /// There is no such document, and no memory of one.
    Absent {
        /// The source knows everything up to this.
        as_of: Stamp,
    },
    /// The cache has something newer than the source. It stays as it is.
    SourceBehind {
        /// The source's life.
        ctime: Stamp,
        /// The source's version.
        version: Stamp,
    },
}

impl Update {
    /// `unchanged`, `full`, `case 1`, `case 2`, `deleted`, `absent` or `source behind`.
    pub fn name(&self) -> &'static str {
        match self {
            Update::Unchanged { .. } => "unchanged",
            Update::Full(_) => "full",
            Update::Changes(Changes { unchanged: None, .. }) => "case 1",
            Update::Changes(Changes { unchanged: Some(_), .. }) => "case 2",
            Update::Deleted { .. } => "deleted",
            Update::Absent { .. } => "absent",
            Update::SourceBehind { .. } => "source behind",
        }
    }

    /// What an application's cache is told: the same without what operations remember (class `H`).
    /// Only copies that may be written to have a use for that.
    #[must_use]
    pub fn without_memories(self) -> Self {
        match self {
            Update::Full(document) => {
                Update::Full(document.without_memories().map_or(document, Arc::new))
            }
            Update::Changes(mut changes) => {
                changes.items.retain(|it| !it.name.is_memory());
                changes.unchanged.iter_mut().for_each(|it| it.retain(|name| !name.is_memory()));
                Update::Changes(changes)
            }
            Update::Unchanged { .. }
            | Update::Deleted { .. }
            | Update::Absent { .. }
            | Update::SourceBehind { .. } => self,
        }
    }
}

/// What a source that has `document` answers to a cache that has `held`. `as_of`: the source knows
/// every change up to then (it says so when it has no document).
pub fn update_for(document: Option<&Arc<Document>>, held: Option<&Held>, as_of: Stamp) -> Update {
    let Some(document) = document else {
        return Update::Absent { as_of };
    };
    let (ctime, version) = (document.ctime(), document.version());
    let whole = || {
        if document.is_deleted() {
            Update::Deleted { ctime, version }
        } else {
            Update::Full(Arc::clone(document))
        }
    };
    // The life comes first: versions of different lives have nothing to do with each other.
    let Some(held) = held.filter(|it| it.ctime >= ctime) else {
        return whole();
    };
    if held.ctime > ctime || held.version > version {
        return Update::SourceBehind { ctime, version };
    }
    if held.version == version {
        return Update::Unchanged { ctime, version };
    }
    if document.is_deleted() {
        return Update::Deleted { ctime, version };
    }
    Update::Changes(changes_since(document, held.version))
}

fn changes_since(document: &Document, since: Stamp) -> Changes {
    let items = document.items().iter().filter(|it| it.version > since).cloned().collect();
    let unchanged = (since < document.dtime()).then(|| {
        let is_unchanged = |it: &&Item| it.version <= since && !it.is_destroyed();
        document.items().iter().filter(is_unchanged).map(|it| it.name.clone()).collect()
    });
    let (ctime, version, dtime) = (document.ctime(), document.version(), document.dtime());
    Changes { ctime, since, version, dtime, items, unchanged }
}

/// Why an update cannot be applied to a copy. The copy stays as it is.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ApplyError {
    /// The copy is newer than what was offered.
    #[error("source behind: it has version {offered} of life {life}, the copy has {held}")]
    SourceBehind {
        /// The life that was offered.
        life: Stamp,
        /// The version that was offered.
        offered: Stamp,
        /// The version of the copy.
        held: Stamp,
    },
    /// The update begins at a version that the copy has not reached, or the copy is another life
    /// of the document, or there is none: ask again, saying what is held.
    #[error("the update begins at version {since} of life {life}, which is not held")]
    Gap {
        /// The life that was offered.
        life: Stamp,
        /// The version that the copy must have.
        since: Stamp,
    },
    /// The update takes an item for granted that the copy does not have: ask for the whole.
    #[error("the copy lacks {name}, which the source calls unchanged")]
    Lacks {
        /// The item.
        name: ItemName,
    },
    /// The document that was offered has another name.
    #[error("the update is for {offered}")]
    OtherDocument {
        /// Its name.
        offered: DocName,
    },
    /// Something that does not fit the rules: an unknown class, a version from the future.
    #[error(transparent)]
    Invalid(#[from] FieldError),
}

/// Applies an update to a copy: gives the copy afterwards, the same one when nothing changed, and
/// `None` when the document is gone without trace.
pub fn apply(
    name: &DocName,
    copy: Option<&Arc<Document>>,
    update: &Update,
) -> Result<Option<Arc<Document>>, ApplyError> {
    match update {
        Update::Unchanged { ctime, version } => match copy {
            Some(copy) if copy.ctime() == *ctime && copy.version() >= *version => {
                Ok(Some(Arc::clone(copy)))
            }
            Some(_) | None => Err(ApplyError::Gap { life: *ctime, since: *version }),
        },
        Update::Full(document) if document.name() != name => {
            Err(ApplyError::OtherDocument { offered: document.name().clone() })
        }
        Update::Full(document) => {
            check_not_behind(copy, document.ctime(), document.version())?;
            Ok(Some(Arc::clone(document)))
        }
        Update::Changes(changes) => apply_changes(copy, changes).map(Some),
        Update::Deleted { ctime, version } => {
            check_not_behind(copy, *ctime, *version)?;
            Ok(Some(Arc::new(Document::ended(name.clone(), *ctime, *version))))
        }
        Update::Absent { as_of } => match copy {
            Some(copy) if copy.version() > *as_of => {
                let (life, held) = (copy.ctime(), copy.version());
                Err(ApplyError::SourceBehind { life, offered: *as_of, held })
            }
            Some(_) | None => Ok(None),
        },
        Update::SourceBehind { ctime, version } => Err(match copy {
            Some(copy) => {
                let held = copy.version();
                ApplyError::SourceBehind { life: *ctime, offered: *version, held }
            }
            None => ApplyError::Gap { life: *ctime, since: *version },
        }),
    }
}

/// Refuses a life before the copy's, and a version of the same life before the copy's.
fn check_not_behind(
    copy: Option<&Arc<Document>>,
    life: Stamp,
    offered: Stamp,
) -> Result<(), ApplyError> {
    let Some(copy) = copy else {
        return Ok(());
    };
    if (copy.ctime(), copy.version()) > (life, offered) {
        return Err(ApplyError::SourceBehind { life, offered, held: copy.version() });
    }
    Ok(())
}

fn apply_changes(
    copy: Option<&Arc<Document>>,
    changes: &Changes,
) -> Result<Arc<Document>, ApplyError> {
    let gap = || ApplyError::Gap { life: changes.ctime, since: changes.since };
    let copy = copy.filter(|it| it.ctime() >= changes.ctime).ok_or_else(gap)?;
    check_not_behind(Some(copy), changes.ctime, changes.version)?;
    if copy.version() < changes.since || copy.is_deleted() {
        return Err(gap());
    }
    // In case 2 the copy's version, and so its dtime, lies before the source's.
    let dtime = copy.dtime().max(changes.dtime);
    let mut unchanged = changes.unchanged.as_ref().map(|it| it.iter().peekable());
    let mut items = Vec::with_capacity(copy.items().len() + changes.items.len());
    let mut changed = changes.items.iter().peekable();
    for item in copy.items() {
        while let Some(new) = changed.next_if(|it| it.name < item.name) {
            items.push(new.clone());
        }
        if let Some(new) = changed.next_if(|it| it.name == item.name) {
            items.push(new.clone());
            continue;
        }
        let is_named = match &mut unchanged {
            None => true,
            Some(names) => {
                // A name that was passed over stands for an item that the copy does not have.
                if let Some(name) = names.peek().filter(|it| **it < &item.name) {
                    return Err(ApplyError::Lacks { name: (*name).clone() });
                }
                !item.is_destroyed() && names.next_if(|it| **it == item.name).is_some()
            }
        };
        let is_remembered = item.is_destroyed() && item.version >= dtime;
        if is_remembered || (is_named && !item.is_destroyed()) {
            items.push(item.clone());
        }
    }
    items.extend(changed.cloned());
    if let Some(name) = unchanged.as_mut().and_then(Iterator::next) {
        return Err(ApplyError::Lacks { name: name.clone() });
    }
    // A source that serves others may itself keep what it destroyed before its dtime moved on.
    items.retain(|it| !it.is_destroyed() || it.version >= dtime);
    let stamps = [changes.ctime, changes.version, dtime];
    Ok(Arc::new(Document::assemble(copy.name().clone(), stamps, false, items)))
}
