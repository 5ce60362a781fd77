//! What of which documents can be searched.

use rota_docstore::Schema;
use rota_messages::documents::with_session_fields;
use rota_model::items::SESSION_CLASS;
use rota_search::{Shapes, SpecialSearches};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What of which documents can be searched: the declared fields, those of sessions, and the ids of every class.
#[derive(Clone, Debug)]
pub struct Searchable {
    declared: Arc<Shapes>,
}

impl Searchable {
    /// What a schema declares, and sessions.
    pub fn of(schema: &Schema) -> Self {
        let targets: BTreeSet<(&str, &str)> = schema.copy_targets().collect();
        // Copies are found by their keys.
        let with_keys = |all: Shapes, (class, item): (&str, &str)| all.with_keys(class, item);
        let shapes = targets.into_iter().fold(Shapes::of(schema), with_keys);
        Self { declared: Arc::new(with_session_fields(shapes)) }
    }

    /// And these searches of an application's own.
    #[must_use]
    pub fn with_specials(&self, specials: SpecialSearches) -> Self {
        Self { declared: Arc::new(Shapes::clone(&self.declared).with_specials(specials)) }
    }

    /// What is declared of all classes, and the fields of sessions.
    pub(crate) fn all(&self) -> &Shapes {
        &self.declared
    }

    /// Classes of applications with declared fields or special searches.
    pub(crate) fn declared(&self) -> impl Iterator<Item = &str> {
        self.declared.classes().filter(|it| *it != SESSION_CLASS)
    }

    /// What is searched of a class.
    pub fn shapes(&self, class: &str) -> Arc<Shapes> {
        if self.declared.has(class) {
            return Arc::clone(&self.declared);
        }
        Arc::new(Shapes::default().with_docids(class))
    }
}
