//! Which classes of documents there are, and which items each may have.

use crate::content::{Content, JsonText};
use crate::copy_rule::CopyRule;
use crate::document::Document;
use crate::field::{self, FieldType, check_field_name};
use crate::name::{ATTACHMENT_CLASS, ItemName, MEMORY_CLASS, check_class};
use rota_model::FieldError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;

/// A JSON item of which a document has at most one.
pub trait Singleton: Serialize + DeserializeOwned {
    /// The class of the item; keep it short.
    const CLASS: &'static str;
}

/// A JSON item of which a document has any number, each with its key.
pub trait Keyed: Serialize + DeserializeOwned {
    /// The class of the items; keep it short.
    const CLASS: &'static str;
}

/// What items of one class are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Kind {
    is_keyed: bool,
    form: Form,
}

/// What items of one class hold.
#[derive(Clone, Copy, Debug)]
enum Form {
    /// JSON that reads as a type.
    Json(fn(&JsonText) -> Result<(), FieldError>),
    Raw,
    Attachment,
}

impl PartialEq for Form {
    /// Two types may share a check: then they are the same for this purpose, too.
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Form {}

impl Form {
    fn name(self) -> &'static str {
        match self {
            Form::Json(_) => "JSON",
            Form::Raw => "raw",
            Form::Attachment => "attachment",
        }
    }
}

/// The items that documents of one class may have. Built by [`Schema::class`].
#[derive(Clone, Debug)]
pub struct ClassSchema {
    items: BTreeMap<&'static str, Kind>,
    /// Fields by which documents are searched, by the class of their items.
    fields: BTreeMap<&'static str, BTreeMap<&'static str, FieldType>>,
    /// Which are copied to other documents, by the class of the items.
    pub(crate) copies: BTreeMap<&'static str, CopyRule>,
    /// Items of other classes may be there, too: JSON or raw, with a key or without.
    is_free: bool,
    /// Operations may read such documents and never change them.
    is_read_only: bool,
    /// One that is destroyed leaves no trace.
    is_traceless: bool,
}

impl ClassSchema {
    fn new() -> Self {
        let attachment = Kind { is_keyed: true, form: Form::Attachment };
        let items = BTreeMap::from([(ATTACHMENT_CLASS, attachment)]);
        let (fields, copies) = (BTreeMap::new(), BTreeMap::new());
        Self { items, fields, copies, is_free: false, is_read_only: false, is_traceless: false }
    }

    /// Of what remembers operations.
    fn of_memories() -> Self {
        let memory = Kind { is_keyed: true, form: Form::Json(reads::<serde_json::Value>) };
        let items = BTreeMap::from([(MEMORY_CLASS, memory)]);
        let (fields, copies) = (BTreeMap::new(), BTreeMap::new());
        Self { items, fields, copies, is_free: false, is_read_only: false, is_traceless: false }
    }

    fn free() -> Self {
        Self { is_free: true, ..Self::new() }
    }

    fn declare(&mut self, class: &'static str, kind: Kind) -> &mut Self {
        check_class("class", class).expect("classes in the code are valid");
        let known = self.items.insert(class, kind);
        assert!(known.is_none(), "class {class} is declared twice");
        self
    }

    /// Documents may have one item `T`.
    pub fn singleton<T: Singleton>(&mut self) -> &mut Self {
        self.declare(T::CLASS, Kind { is_keyed: false, form: Form::Json(reads::<T>) })
    }

    /// Documents may have items `T`, each with a key.
    pub fn keyed<T: Keyed>(&mut self) -> &mut Self {
        self.declare(T::CLASS, Kind { is_keyed: true, form: Form::Json(reads::<T>) })
    }

    /// Documents may have one raw item of that class.
    pub fn raw_singleton(&mut self, class: &'static str) -> &mut Self {
        self.declare(class, Kind { is_keyed: false, form: Form::Raw })
    }

    /// Documents may have raw items of that class, each with a key.
    pub fn raw_keyed(&mut self, class: &'static str) -> &mut Self {
        self.declare(class, Kind { is_keyed: true, form: Form::Raw })
    }

    /// Documents may have items of other classes, too: JSON or raw, with a key or without.
    pub fn any(&mut self) -> &mut Self {
        self.is_free = true;
        self
    }

    /// Documents are searched by a top-level property of their JSON items of that class. An operation
    /// that stores another type there is refused. Panics when the field is declared twice, has no valid
    /// name, or belongs to items that are not JSON.
    pub fn field(&mut self, item: &'static str, name: &'static str, is: FieldType) -> &mut Self {
        check_field_name(name).expect("names of fields in the code are valid");
        let is_json = match self.items.get(item).map(|it| it.form) {
            Some(Form::Json(_)) => true,
            Some(Form::Raw | Form::Attachment) => false,
            None => self.is_free,
        };
        assert!(is_json, "items of class {item} are not declared as JSON");
        let known = self.fields.entry(item).or_default().insert(name, is);
        assert!(known.is_none(), "field {name} of {item} is declared twice");
        self
    }
}

fn reads<T: DeserializeOwned>(text: &JsonText) -> Result<(), FieldError> {
    text.read::<T>().map(|_| ())
}

/// All classes of documents of an application. Made once at start.
///
/// Every class of documents also has items of class `P` (attachments), and there are documents of class
/// `H` (remembered operations).
#[derive(Clone, Debug)]
pub struct Schema {
    classes: BTreeMap<&'static str, ClassSchema>,
    /// Classes that were not declared.
    others: Option<ClassSchema>,
}

impl Default for Schema {
    fn default() -> Self {
        Self::new()
    }
}

impl Schema {
    /// No class yet, but for what remembers operations.
    pub fn new() -> Self {
        let memories = (MEMORY_CLASS, ClassSchema::of_memories());
        Self { classes: BTreeMap::from([memories]), others: None }
    }

    /// Adds a class of documents with the items that `declare` names. Panics, as classes stand in
    /// the code, when a class is declared twice or its name is not valid.
    #[must_use]
    pub fn class(
        mut self,
        class: &'static str,
        declare: impl FnOnce(&mut ClassSchema) -> &mut ClassSchema,
    ) -> Self {
        check_class("class", class).expect("classes in the code are valid");
        let mut items = ClassSchema::new();
        declare(&mut items);
        let known = self.classes.insert(class, items);
        assert!(known.is_none(), "class {class} is declared twice");
        self
    }

    /// Lets operations read documents of a class and never change them: somebody else keeps them.
    /// A class that was not declared has any items. Panics when the class is not valid.
    #[must_use]
    pub fn read_only(mut self, class: &'static str) -> Self {
        check_class("class", class).expect("classes in the code are valid");
        self.classes.entry(class).or_insert_with(ClassSchema::free).is_read_only = true;
        self
    }

    /// Lets destroyed documents of a class leave no trace. Only for names that are never used again: a copy of a
    /// former life could not be told from the next one. Panics when the class was not declared.
    #[must_use]
    pub fn traceless(mut self, class: &'static str) -> Self {
        self.classes.get_mut(class).expect("the class was declared").is_traceless = true;
        self
    }

    /// Whether destroyed documents of that class leave no trace.
    pub fn is_traceless(&self, class: &str) -> bool {
        self.items_of(class).is_ok_and(|it| it.is_traceless)
    }

    /// Lets there be documents of every class that is not declared. Their items are of any class:
    /// JSON or raw, with a key or without.
    #[must_use]
    pub fn open(mut self) -> Self {
        self.others = Some(ClassSchema::free());
        self
    }

    /// Whether documents of that class were declared, with items or as read-only.
    pub fn is_declared(&self, class: &str) -> bool {
        self.classes.contains_key(class)
    }

    /// Whether operations may read documents of that class, and never change them.
    pub fn is_read_only(&self, class: &str) -> bool {
        self.items_of(class).is_ok_and(|it| it.is_read_only)
    }

    /// Refuses a class of documents that was not declared: field `class`.
    pub fn check_class(&self, class: &str) -> Result<(), FieldError> {
        self.items_of(class).map(|_| ())
    }

    /// The declared fields of a class of documents: class of items, field, type.
    pub fn fields(
        &self,
        class: &str,
    ) -> impl Iterator<Item = (&'static str, &'static str, FieldType)> {
        let items = self.classes.get(class).into_iter().flat_map(|it| &it.fields);
        items.flat_map(|(item, fields)| fields.iter().map(|(name, is)| (*item, *name, *is)))
    }

    /// What was declared of a class.
    pub(crate) fn declared(&self, class: &str) -> Option<&ClassSchema> {
        self.classes.get(class)
    }

    /// All classes of documents that were declared, in order.
    pub fn classes(&self) -> impl Iterator<Item = &'static str> {
        self.classes.keys().copied()
    }

    /// Refuses JSON in which a declared field has another type than its own: the error has the name of
    /// that field. Content that is stored already may differ, and is not found by that field.
    pub fn check_fields(
        &self,
        doc_class: &str,
        item: &ItemName,
        content: &Content,
    ) -> Result<(), FieldError> {
        let declared = self.classes.get(doc_class).or(self.others.as_ref());
        let fields = declared.and_then(|it| it.fields.get(item.class()));
        match (fields, content) {
            (Some(fields), Content::Json(text)) => field::check_fields(fields, text),
            (_, Content::Json(_) | Content::Raw(_) | Content::Attachment(_)) => Ok(()),
        }
    }

    fn items_of(&self, class: &str) -> Result<&ClassSchema, FieldError> {
        let unknown = || FieldError::new("class", format!("{class:?} of documents is unknown"));
        self.classes.get(class).or(self.others.as_ref()).ok_or_else(unknown)
    }

    /// Refuses an item that documents of that class may not have: an unknown class (field
    /// `class`), a key where none belongs or none where one does (`key`), the wrong kind of
    /// content (`content`). Whether JSON fits its type is not looked at: see
    /// [`Schema::check_foreign`].
    pub fn check_item(
        &self,
        doc_class: &str,
        item: &ItemName,
        content: &Content,
    ) -> Result<(), FieldError> {
        self.kind_of(doc_class, item, content).map(|_| ())
    }

    /// Like [`Schema::check_item`], for content that was not written by a type of this program: its
    /// JSON must read as its type, and its declared fields must have theirs.
    pub fn check_foreign(
        &self,
        doc_class: &str,
        item: &ItemName,
        content: &Content,
    ) -> Result<(), FieldError> {
        match (self.kind_of(doc_class, item, content)?.form, content) {
            (Form::Json(reads), Content::Json(text)) => {
                reads(text)?;
                self.check_fields(doc_class, item, content)
            }
            (Form::Json(_) | Form::Raw | Form::Attachment, _) => Ok(()),
        }
    }

    /// Refuses a document of elsewhere, an import for instance, with anything that
    /// [`Schema::check_foreign`] refuses.
    pub fn check_document(&self, document: &Document) -> Result<(), FieldError> {
        let class = document.name().class();
        self.check_class(class)?;
        document.existing().try_for_each(|(item, content)| self.check_foreign(class, item, content))
    }

    fn kind_of(
        &self,
        doc_class: &str,
        item: &ItemName,
        content: &Content,
    ) -> Result<Kind, FieldError> {
        let class = item.class();
        let unknown =
            || FieldError::new("class", format!("{class:?} of items is unknown in {doc_class:?}"));
        let items = self.items_of(doc_class)?;
        let kind = match items.items.get(class) {
            Some(kind) => *kind,
            None if items.is_free => free_kind(item, content)?,
            None => return Err(unknown()),
        };
        if kind.is_keyed != item.key().is_some() {
            let rule = if kind.is_keyed { "must be there" } else { "must not be there" };
            return Err(FieldError::new("key", format!("{rule} in items of class {class:?}")));
        }
        if kind.form.name() != content.kind() {
            let (is, must) = (content.kind(), kind.form.name());
            let problem = format!("of an item of class {class:?} is {is}, and must be {must}");
            return Err(FieldError::new("content", problem));
        }
        Ok(kind)
    }
}

/// What an item of a class is that nobody declared: as it comes. Attachments have their own class.
fn free_kind(item: &ItemName, content: &Content) -> Result<Kind, FieldError> {
    let form = match content {
        Content::Json(_) => Form::Json(reads::<serde_json::Value>),
        Content::Raw(_) => Form::Raw,
        Content::Attachment(_) => {
            let problem = format!("of class {:?} is an attachment, not JSON or raw", item.class());
            return Err(FieldError::new("content", problem));
        }
    };
    Ok(Kind { is_keyed: item.key().is_some(), form })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Serialize, Deserialize)]
    struct Head {
        title: String,
    }
    impl Singleton for Head {
        const CLASS: &'static str = "Hd";
    }

    fn schema() -> Schema {
        Schema::new().class("Book", |it| it.singleton::<Head>().raw_keyed("Pg"))
    }

    #[test]
    fn what_was_not_declared_is_refused_by_name() {
        let schema = schema();
        let json = Content::json(r#"{"title":"x"}"#).unwrap();
        let one = |class: &str| ItemName::singleton(class).unwrap();
        let problem = |doc: &str, item: &ItemName, content: &Content| {
            schema.check_foreign(doc, item, content).unwrap_err().to_string()
        };
        assert_eq!(schema.check_foreign("Book", &one("Hd"), &json), Ok(()));
        assert_eq!(problem("Film", &one("Hd"), &json), r#"class "Film" of documents is unknown"#);
        assert_eq!(
            problem("Book", &one("Zz"), &json),
            r#"class "Zz" of items is unknown in "Book""#
        );
        let keyed = ItemName::keyed("Hd", "k").unwrap();
        assert_eq!(
            problem("Book", &keyed, &json),
            r#"key must not be there in items of class "Hd""#
        );
        assert_eq!(
            problem("Book", &one("Pg"), &json),
            r#"key must be there in items of class "Pg""#
        );
        let page = ItemName::keyed("Pg", "1").unwrap();
        assert!(problem("Book", &page, &json).starts_with("content of an item"));
        let other = Content::json(r#"{"name":"x"}"#).unwrap();
        assert!(problem("Book", &one("Hd"), &other).starts_with("json does not fit its type"));
    }

    #[test]
    fn a_declared_field_of_another_type_is_refused_by_its_name() {
        let schema = Schema::new()
            .class("Book", |it| it.any().field("Hd", "pages", FieldType::Int))
            .class("Film", |it| it.singleton::<Head>().field("Hd", "title", FieldType::String));
        let one = ItemName::singleton("Hd").unwrap();
        let problem = |json: &str| {
            let content = Content::json(json).unwrap();
            schema.check_foreign("Book", &one, &content).map_err(|it| it.to_string())
        };
        assert_eq!(problem(r#"{"pages":7}"#), Ok(()));
        assert_eq!(problem(r#"{"other":"x"}"#), Ok(()));
        let expected = "pages is \"7\", and must be an integer of 32 bits";
        assert_eq!(problem(r#"{"pages":"7"}"#), Err(expected.into()));
        let fields: Vec<_> = schema.fields("Film").collect();
        assert_eq!(fields, [("Hd", "title", FieldType::String)]);
        assert_eq!(schema.fields("None").count(), 0);
    }

    #[test]
    #[should_panic(expected = "items of class Pg are not declared as JSON")]
    fn a_field_of_raw_items_is_a_mistake_in_the_code() {
        let _ =
            Schema::new().class("Book", |it| it.raw_keyed("Pg").field("Pg", "a", FieldType::Int));
    }

    #[test]
    fn an_open_schema_takes_every_class_with_json_and_raw_items() {
        let schema = schema().read_only("session").open();
        let json = Content::json("[1]").unwrap();
        let raw = Content::raw(vec![1]).unwrap();
        let one = ItemName::singleton("Any").unwrap();
        let keyed = ItemName::keyed("Any", "k").unwrap();
        for (item, content) in [(&one, &json), (&one, &raw), (&keyed, &json), (&keyed, &raw)] {
            assert_eq!(schema.check_foreign("Film", item, content), Ok(()));
        }
        let attachment = ItemName::singleton("P").unwrap();
        let problem = schema.check_foreign("Film", &attachment, &json).unwrap_err().to_string();
        assert_eq!(problem, r#"key must be there in items of class "P""#);
        // What was declared stays as narrow as before.
        let problem = schema.check_foreign("Book", &one, &json).unwrap_err().to_string();
        assert_eq!(problem, r#"class "Any" of items is unknown in "Book""#);
        let read_only = ["Film", "Book", "session"].map(|it| schema.is_read_only(it));
        assert_eq!(read_only, [false, false, true]);
    }
}
