//! What a program that embeds managers adds to them.

use crate::options::{DeclaredField, FIELDS_FLAG};
use rota_docstore::{About, Checker, FieldError, Operations, Schema};
use rota_protocol::operate;
use rota_protocol::{Manager, Searchable};
use rota_search::SpecialSearches;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// Operations on documents, the classes of these, searches, and who may do what. All managers of a ring must
/// have the same.
///
/// An operation works beside the manager's decisions, so it may compute or wait for seconds, up to
/// `--work-ms`; one that takes microseconds only may say that it works in their stream
/// ([`rota_docstore::Operation::PLACE`]). Whatever stands in that stream stops everything else while it
/// works: `after_work`, a checker, special searches, and operations that work there.
#[derive(Clone)]
pub struct Application {
    operations: Operations,
    schema: Schema,
    specials: SpecialSearches,
    checker: Option<Arc<dyn Checker>>,
}

impl fmt::Debug for Application {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.operations.names().collect();
        f.debug_struct("Application").field("operations", &names).finish_non_exhaustive()
    }
}

/// What every manager knows: [`operate::operations`]. Whoever asks may do everything that needs no
/// administrator's key.
impl Default for Application {
    fn default() -> Self {
        Self {
            operations: operate::operations(),
            schema: operate::schema(),
            specials: SpecialSearches::new(),
            checker: None,
        }
    }
}

impl Application {
    /// These operations, on documents of these classes; usually those of [`operate::operations`] and more.
    /// Field `schema`: it lacks a class that managers themselves keep, or lets operations change
    /// sessions or pools ([`operate::check_schema`]).
    pub fn new(operations: Operations, schema: Schema) -> Result<Self, FieldError> {
        operate::check_schema(&schema)?;
        Ok(Self { operations, schema, ..Self::default() })
    }

    /// Searches of its own, for what no filter can say: callers ask for them by name.
    #[must_use]
    pub fn searched_by(self, specials: SpecialSearches) -> Self {
        Self { specials, ..self }
    }

    /// Asks, beside the administrator's key, whether who asks may: accounts and their keys. It hears
    /// the names of operations, and `document.sync`, `document.list`, `document.search`, `document.watch`,
    /// `document.export`, `body.put`, `body.get`. Where there is an administrator's key (`--admin-key-file`), it is not asked about
    /// `namespace.*` and `web.*` in the namespace for configuration: the key decides alone there, since
    /// operators have no account with it.
    #[must_use]
    pub fn checked_by(self, checker: Arc<dyn Checker>) -> Self {
        Self { checker: Some(checker), ..self }
    }

    /// Declares fields of documents by which these are searched. Refuses classes that the program declares itself.
    pub(crate) fn with_fields(mut self, fields: &[DeclaredField]) -> Result<Self, Vec<FieldError>> {
        let classes: BTreeSet<&str> = fields.iter().map(|it| it.class.as_str()).collect();
        let taken = classes.iter().filter(|it| self.schema.is_declared(it)).map(|class| {
            let problem =
                format!("declares fields of {class}, a class that this program keeps itself");
            FieldError::new(FIELDS_FLAG, problem)
        });
        let taken: Vec<FieldError> = taken.collect();
        if !taken.is_empty() {
            return Err(taken);
        }
        for class in classes {
            self.schema = self.schema.class(kept(class), |items| {
                let of_class = fields.iter().filter(|it| it.class == class);
                of_class
                    .fold(items.any(), |all, it| all.field(kept(&it.item), kept(&it.name), it.is))
            });
        }
        Ok(self)
    }

    /// Its operations, and what callers are told of each. They are counted by name.
    pub(crate) fn abouts(&self) -> BTreeMap<&'static str, About> {
        self.operations.abouts().collect()
    }

    /// What of which documents can be searched.
    pub(crate) fn searchable(&self) -> Searchable {
        Searchable::of(&self.schema).with_specials(self.specials.clone())
    }

    /// Lets a manager that has not begun offer and check all this.
    pub(crate) fn embed(self, manager: &mut Manager) -> Result<(), FieldError> {
        if let Some(class) = self.specials.classes().find(|it| !self.schema.is_declared(it)) {
            let problem = format!("lacks class {class:?}, which a special search is about");
            return Err(FieldError::new("schema", problem));
        }
        manager.offer(self.operations, self.schema)?;
        manager.search_with(self.specials);
        if let Some(checker) = self.checker {
            manager.check_with(checker);
        }
        Ok(())
    }
}

/// A name of a schema. Schemas are made once, at the start, and stay as long as the process.
fn kept(text: &str) -> &'static str {
    text.to_owned().leak()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_docstore::{Content, FieldType, ItemName};

    fn field(class: &str, name: &str) -> DeclaredField {
        let (class, item, name) = (class.to_owned(), "Line".to_owned(), name.to_owned());
        DeclaredField { class, item, name, is: FieldType::Int }
    }

    #[test]
    fn declared_fields_are_searched_and_values_of_another_type_refused() {
        let fields = [field("Cart", "size"), field("Cart", "price")];
        let application = Application::default().with_fields(&fields).unwrap();
        assert!(application.searchable().shapes("Cart").fields("Cart", Some("Line")).is_ok());
        let line = ItemName::keyed("Line", "1").unwrap();
        let check = |json: &str| {
            let content = Content::json(json).unwrap();
            application.schema.check_foreign("Cart", &line, &content)
        };
        assert_eq!(check(r#"{"size": 7}"#), Ok(()));
        assert_eq!(check(r#"{"size": "7"}"#).unwrap_err().field, "size");
    }

    #[test]
    fn classes_that_managers_keep_themselves_take_no_fields() {
        for class in ["session", "Space", "Pool", "Task", "request", "H"] {
            let refused = Application::default().with_fields(&[field(class, "a")]).unwrap_err();
            assert!(refused[0].to_string().contains(class), "{}", refused[0]);
        }
    }

    #[test]
    fn a_schema_that_managers_cannot_work_with_is_refused_before_anything_starts() {
        let refused = Application::new(operate::operations(), Schema::new().open()).unwrap_err();
        assert_eq!(refused.field, "schema");
        let more = operate::schema().class("Acc", |it| it);
        assert!(Application::new(operate::operations(), more).is_ok());
    }
}
