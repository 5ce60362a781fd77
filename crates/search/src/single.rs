//! A filter that is asked about one document after another, without an index: what a watch needs.

use crate::fields::{DOCID, Fields, Kind};
use crate::filter::{Filter, Values};
use crate::shapes::{Record, Shapes};
use crate::value::{Condition, Value};
use rota_docstore::Document;
use rota_model::{FieldError, Stamp};
use smol_str::SmolStr;

/// A filter of the documents of one class. All conditions on fields hold for one item.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Matcher {
    class: SmolStr,
    item: Option<SmolStr>,
    filter: Filter,
}

/// An item, or a document without regard to its items, as a filter asks about it.
struct One<'a> {
    docid: Value,
    record: Option<&'a Record>,
}

impl Values for One<'_> {
    fn values(&self, field: &str, each: &mut dyn FnMut(&Value)) {
        if field == DOCID {
            return each(&self.docid);
        }
        let values = self.record.and_then(|it| it.get(field));
        values.into_iter().flatten().for_each(each);
    }
}

impl Matcher {
    /// From the text of a filter. Without a class of items it has conditions on `docid` only, and the class
    /// of documents need not be indexed. Fields: `class`, `item`, `filter`, or the name of a field.
    pub fn parse(
        shapes: &Shapes,
        class: &str,
        item: Option<&str>,
        text: &str,
    ) -> Result<Self, FieldError> {
        let fields = match item {
            Some(item) => shapes.fields(class, Some(item))?,
            None => Fields::new().with(DOCID, Kind::Text),
        };
        let filter = Filter::parse(text, &fields)?;
        // Nothing is written when a document grows older, so nobody would be told.
        let is_age = |it: &&Condition| fields.kind(&it.field) == Some(Kind::Age);
        if let Some(condition) = filter.conditions.iter().find(is_age) {
            let problem =
                format!("{:?} is an age, which changes without a change", condition.field);
            return Err(FieldError::new("filter", problem));
        }
        Ok(Self { class: class.into(), item: item.map(Into::into), filter })
    }

    /// Whether a document lives and passes. With a class of items it needs an item of that class.
    pub fn matches(&self, shapes: &Shapes, document: &Document) -> bool {
        if document.is_deleted() || document.name().class() != self.class {
            return false;
        }
        let docid = Value::text(document.name().docid());
        let passes = |record: Option<&Record>| {
            // No condition is about an age, so no condition asks what time it is.
            self.filter.matches(&One { docid: docid.clone(), record }, Stamp::MIN)
        };
        let Some(item) = &self.item else { return passes(None) };
        let mut holds = false;
        if let Some(shape) = shapes.items(&self.class).and_then(|it| it.get(item)) {
            shape.records(item, document, |_, record| holds = holds || passes(Some(&record)));
        }
        holds
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_docstore::{Content, DocName, DocumentParts, FieldType, Item, ItemName, Schema};
    use rota_model::Namespace;

    fn shapes() -> Shapes {
        let schema = Schema::new().class("Cart", |class| {
            class.any().field("Line", "article", FieldType::String).field(
                "Line",
                "count",
                FieldType::Int,
            )
        });
        let aged = Fields::new().with("age", Kind::Age);
        Shapes::of(&schema).with_derived("Old", "record", aged, |_| Vec::new())
    }

    fn document(class: &str, docid: &str, lines: &[&str]) -> Document {
        let at = Stamp::MIN;
        let item = |(key, json): (usize, &&str)| {
            let name = ItemName::new("Line", Some(&key.to_string())).unwrap();
            Item::existing(name, at, at, Content::json(json).unwrap()).unwrap()
        };
        let parts = DocumentParts {
            name: DocName::new(&Namespace::default_space(), class, docid).unwrap(),
            ctime: at,
            version: at,
            dtime: at,
            is_deleted: false,
            items: lines.iter().enumerate().map(item).collect(),
        };
        Document::from_parts(parts).unwrap()
    }

    #[test]
    fn all_conditions_on_fields_hold_for_one_item() {
        let shapes = shapes();
        let text = "article = tea and count > 1";
        let matcher = Matcher::parse(&shapes, "Cart", Some("Line"), text).unwrap();
        let one = r#"{"article":"tea","count":2}"#;
        let other = [r#"{"article":"tea","count":1}"#, r#"{"article":"jam","count":2}"#];
        assert!(matcher.matches(&shapes, &document("Cart", "a", &[other[0], one])));
        assert!(!matcher.matches(&shapes, &document("Cart", "a", &other)));
        assert!(!matcher.matches(&shapes, &document("Cart", "a", &[])));
        assert!(!matcher.matches(&shapes, &document("Card", "a", &[one])), "of another class");
    }

    #[test]
    fn a_condition_on_docid_needs_no_declared_field_and_stands_beside_those_of_an_item() {
        let shapes = shapes();
        let plain = Matcher::parse(&shapes, "Plain", None, "docid starts a").unwrap();
        assert!(plain.matches(&shapes, &document("Plain", "ab", &[])));
        assert!(!plain.matches(&shapes, &document("Plain", "b", &[])));
        let text = "docid = a and count = 1";
        let both = Matcher::parse(&shapes, "Cart", Some("Line"), text).unwrap();
        let line = [r#"{"count":1}"#];
        assert!(both.matches(&shapes, &document("Cart", "a", &line)));
        assert!(!both.matches(&shapes, &document("Cart", "b", &line)));
        let all = Matcher::parse(&shapes, "Cart", Some("Line"), "").unwrap();
        assert!(all.matches(&shapes, &document("Cart", "b", &line)));
        assert!(!all.matches(&shapes, &document("Cart", "b", &[])), "it has no such item");
    }

    #[test]
    fn a_filter_that_does_not_fit_is_refused_by_the_name_of_its_field() {
        let shapes = shapes();
        let wrong = |class, item, text| Matcher::parse(&shapes, class, item, text).unwrap_err();
        let column = wrong("Cart", Some("Line"), "count > ");
        assert!(column.field == "filter" && column.problem.contains("column"), "{column}");
        assert!(wrong("Cart", Some("Line"), "weight > 1").problem.contains("article"));
        assert_eq!(wrong("Cart", Some("Other"), "docid = a").field, "item");
        assert_eq!(wrong("Plain", Some("Line"), "docid = a").field, "class");
        assert!(wrong("Cart", None, "count > 1").problem.contains("docid"));
        let aged = wrong("Old", Some("record"), "age > 1h");
        assert!(aged.field == "filter" && aged.problem.contains("age"), "{aged}");
    }
}
