//! A copy of a document, and the rule that it never goes back.

use rota_docstore::{ApplyError, DocName, Document, Held, Singleton, Stamp, Update, apply};
use rota_model::FieldError;
use std::sync::Arc;

/// What is known of a document: itself, or that there is none. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DocumentCopy {
    name: DocName,
    document: Option<Arc<Document>>,
    /// The latest version that was known, also of a document that is gone since.
    through: Option<Stamp>,
}

impl DocumentCopy {
    /// Nothing is known.
    pub(super) fn new(name: DocName) -> Self {
        Self { name, document: None, through: None }
    }

    /// What was known earlier.
    pub(super) fn restored(
        name: DocName,
        document: Option<Arc<Document>>,
        through: Option<Stamp>,
    ) -> Self {
        Self { name, document, through }
    }

    /// Name of the document.
    pub fn name(&self) -> &DocName {
        &self.name
    }

    /// The document itself; `None` when nothing is known, or it is gone without trace.
    /// One whose life has ended ([`Document::is_deleted`]) has no items.
    pub fn document(&self) -> Option<&Arc<Document>> {
        self.document.as_ref()
    }

    /// The latest version that was known.
    pub fn through(&self) -> Option<Stamp> {
        self.through
    }

    /// The life: the stamp at which it began.
    pub fn life(&self) -> Option<Stamp> {
        self.document().map(|it| it.ctime())
    }

    /// The version.
    pub fn version(&self) -> Option<Stamp> {
        self.document().map(|it| it.version())
    }

    /// An item of a type; an error names the item that does not read as it.
    pub fn one<T: Singleton>(&self) -> Result<Option<T>, FieldError> {
        self.document().map_or(Ok(None), |it| it.one())
    }

    /// What to tell a source.
    pub(super) fn held(&self) -> Option<Held> {
        self.document().map(|it| Held::of(it))
    }

    /// Whether a document of that life and version is newer than this.
    pub(super) fn is_behind(&self, life: u64, version: u64) -> bool {
        let held = self.document().map(|it| (it.ctime().as_u64(), it.version().as_u64()));
        match held {
            Some(held) => (life, version) > held,
            None => self.through.is_none_or(|it| version > it.as_u64()),
        }
    }

    /// The copy after an update. One that would take it back is an error.
    pub(super) fn after(&self, update: &Update) -> Result<Self, ApplyError> {
        let (name, through) = (self.name.clone(), self.through);
        if self.document.is_none() {
            check_not_behind(through, update)?;
        }
        let document = apply(&name, self.document.as_ref(), update)?;
        let known = match (&document, update) {
            (Some(document), _) => Some(document.version()),
            (None, Update::Absent { as_of }) => Some(*as_of),
            (None, _) => None,
        };
        Ok(Self { name, document, through: through.max(known) })
    }
}

/// Refuses what a source knew of before the document went.
fn check_not_behind(through: Option<Stamp>, update: &Update) -> Result<(), ApplyError> {
    let (life, offered) = match update {
        Update::Full(document) => (document.ctime(), document.version()),
        Update::Deleted { ctime, version } => (*ctime, *version),
        Update::Unchanged { .. }
        | Update::Changes(_)
        | Update::Absent { .. }
        | Update::SourceBehind { .. } => return Ok(()),
    };
    match through {
        Some(held) if offered <= held => Err(ApplyError::SourceBehind { life, offered, held }),
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::session::document_of;
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::Index;
    use rota_docstore::{
        DocumentEdit, Documents, Exception, Rules, Schema, Store, Transaction, update_for,
    };
    use rota_model::items::Machine;
    use rota_model::{Namespace, SessionId, SessionKey};

    fn key() -> SessionKey {
        SessionKey::new(Namespace::default_space(), SessionId::parse("s").unwrap())
    }

    /// What a source knew at some moment.
    type Moment = (Option<Arc<Document>>, Stamp);

    fn step(edited: &mut DocumentEdit, kind: u8) -> Result<(), Exception> {
        match kind {
            0 => drop(edited.ensure()),
            1 => {
                edited.destroy();
                edited.ensure();
            }
            2 => drop(edited.destroy()),
            _ => {
                edited.ensure();
                edited.put_one(&Machine { state: "m".to_owned(), change: kind.into() })?;
            }
        }
        Ok(())
    }

    /// A session's history: changes, new lives, ends, and times without a trace of it.
    fn history(kinds: &[u8]) -> Vec<Moment> {
        let rules = Rules::new(Schema::new().with_sessions());
        let (mut store, name) = (Store::default(), document_of(&key()));
        let mut now = Stamp::MIN;
        let mut moments = vec![(None, now)];
        for kind in kinds {
            now = now.plus_ms(10);
            if *kind == 9 {
                store.set(&name, None);
                store.raise(now);
            } else {
                let work =
                    |transaction: &mut Transaction<'_>| step(transaction.current(&name)?, *kind);
                store.change(&rules, &key().namespace, now, work).unwrap();
            }
            moments.push((store.get(&name), store.high_water()));
        }
        moments
    }

    fn ask(copy: &DocumentCopy, (document, as_of): &Moment) -> Result<DocumentCopy, ApplyError> {
        copy.after(&update_for(document.as_ref(), copy.held().as_ref(), *as_of))
    }

    proptest! {
        #[test]
        fn a_copy_never_goes_back_whichever_sources_it_asks(
            kinds in vec(0_u8..10, 1..12),
            asked in vec(any::<Index>(), 0..12),
        ) {
            let moments = history(&kinds);
            let mut copy = DocumentCopy::new(document_of(&key()));
            for index in asked {
                let Ok(after) = ask(&copy, &moments[index.index(moments.len())]) else {
                    continue;
                };
                prop_assert!(after.through() >= copy.through());
                if after.document() != copy.document() && after.document().is_some() {
                    prop_assert!(after.version() > copy.through(), "{after:?} after {copy:?}");
                }
                copy = after;
            }
            let newest = moments.last().unwrap();
            let copy = match ask(&copy, newest) {
                Err(ApplyError::SourceBehind { .. }) => copy,
                other => other.unwrap(),
            };
            match (copy.document(), &newest.0) {
                (Some(copy), Some(newest)) => prop_assert!(copy.says_the_same(newest)),
                (copy, newest) => prop_assert_eq!(copy, newest.as_ref()),
            }
        }
    }

    #[test]
    fn a_life_that_was_known_to_be_gone_does_not_come_back() {
        let moments = history(&[0, 9, 0]);
        let copy = DocumentCopy::new(document_of(&key()));
        let gone = ask(&copy, &moments[2]).unwrap();
        let late = ask(&gone, &moments[1]).unwrap_err();
        assert!(matches!(late, ApplyError::SourceBehind { .. }), "{late:?}");
        assert!(gone.is_behind(1, gone.through().unwrap().as_u64() + 1));
        assert!(!gone.is_behind(u64::MAX, gone.through().unwrap().as_u64()));
        let born = ask(&gone, &moments[3]).unwrap();
        assert!(born.life() > gone.through());
    }
}
