//! What of which documents can be searched.

use rota_docstore::Schema;
use rota_messages::documents::with_session_fields;
use rota_model::items::SESSION_CLASS;
use rota_search::Shapes;
use std::sync::Arc;

/// What of which documents can be searched: the declared fields, those of sessions, and the ids of every class.
#[derive(Clone, Debug)]
pub struct Searchable {
    declared: Arc<Shapes>,
}

impl Searchable {
    /// What a schema declares, and sessions.
    pub fn of(schema: &Schema) -> Self {
        Self { declared: Arc::new(with_session_fields(Shapes::of(schema))) }
    }

    /// Classes of applications with declared fields.
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
