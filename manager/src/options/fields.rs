//! Declared fields of documents: by which of their properties they are searched.

use rota_docstore::field::check_field_name;
use rota_docstore::name::ATTACHMENT_CLASS;
use rota_docstore::{DocName, FieldType, ItemName};
use rota_model::{FieldError, Namespace};
use std::collections::BTreeSet;
use std::path::Path;
use toml::{Table, Value};

/// The flag, and the field of its mistakes.
pub const FLAG: &str = "--fields-file";
/// Longest file.
const BYTES_MAX: u64 = 256 * 1024;
/// Most classes of documents: each has an index in each partition, and others must find room beside.
const CLASSES_MAX: usize = 16;
/// Most fields in all: each is looked for in each item that is written.
const FIELDS_MAX: usize = 256;

const TYPES: [(&str, FieldType); 8] = [
    ("string", FieldType::String),
    ("int", FieldType::Int),
    ("long", FieldType::Long),
    ("double", FieldType::Double),
    ("strings", FieldType::Strings),
    ("ints", FieldType::Ints),
    ("longs", FieldType::Longs),
    ("doubles", FieldType::Doubles),
];

/// A property of the JSON items of a class, by which documents are searched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeclaredField {
    /// Class of the documents.
    pub class: String,
    /// Class of their items.
    pub item: String,
    /// Name of the property.
    pub name: String,
    /// Its type.
    pub is: FieldType,
}

/// What stands in a file, in order of classes and names. Without a file there are none.
pub(super) fn check(path: Option<&Path>, wrong: &mut Vec<FieldError>) -> Vec<DeclaredField> {
    let Some(path) = path else { return Vec::new() };
    let at = path.display();
    let mut tell = |problem: String| wrong.push(FieldError::new(FLAG, format!("{at}: {problem}")));
    match read(path).and_then(|text| parsed(&text)) {
        Err(problem) => {
            tell(problem);
            Vec::new()
        }
        Ok(table) => {
            let mut all = Vec::new();
            fields(&table, &mut all, &mut tell);
            bounded(&all, &mut tell);
            all
        }
    }
}

fn read(path: &Path) -> Result<String, String> {
    let length = std::fs::metadata(path).map_err(|it| it.to_string())?.len();
    if length > BYTES_MAX {
        return Err(format!("is {length} bytes long; the limit is {BYTES_MAX}"));
    }
    std::fs::read_to_string(path).map_err(|it| it.to_string())
}

fn parsed(text: &str) -> Result<Table, String> {
    text.parse::<Table>().map_err(|error| {
        let at = error.span().map_or(0, |it| it.start);
        let line = text.bytes().take(at).filter(|it| *it == b'\n').count() + 1;
        format!("line {line}: {}", error.message().replace('\n', ", "))
    })
}

fn fields(table: &Table, all: &mut Vec<DeclaredField>, tell: &mut impl FnMut(String)) {
    for (class, items) in table {
        let name = DocName::new(&Namespace::default_space(), class, "x");
        if let Err(error) = name {
            tell(format!("class {class:?} {}", error.problem));
        }
        let Value::Table(items) = items else {
            tell(format!("{class} must be a table of items, as in [{class}.Line]"));
            continue;
        };
        for (item, fields) in items {
            let place = format!("{class}.{item}");
            match ItemName::singleton(item) {
                Err(error) => tell(format!("class {item:?} of items of {class} {}", error.problem)),
                Ok(_) if item == ATTACHMENT_CLASS => {
                    tell(format!("{place} are attachments, which have no fields"));
                }
                Ok(_) => {}
            }
            let Value::Table(fields) = fields else {
                tell(format!("{place} must be a table of fields, as in [{place}]"));
                continue;
            };
            for (name, is) in fields {
                if let Err(error) = check_field_name(name) {
                    tell(format!("{place}: field {}", error.problem));
                }
                match field_type(is) {
                    Some(is) => {
                        let (class, item, name) = (class.clone(), item.clone(), name.clone());
                        all.push(DeclaredField { class, item, name, is });
                    }
                    None => {
                        let known = TYPES.map(|it| it.0).join(", ");
                        tell(format!("{place}: {name} is {is}; it must be one of {known}"));
                    }
                }
            }
        }
    }
}

fn field_type(value: &Value) -> Option<FieldType> {
    TYPES.iter().find(|it| value.as_str() == Some(it.0)).map(|it| it.1)
}

fn bounded(all: &[DeclaredField], tell: &mut impl FnMut(String)) {
    let classes: BTreeSet<&str> = all.iter().map(|it| it.class.as_str()).collect();
    if classes.len() > CLASSES_MAX {
        tell(format!("declares {} classes; the limit is {CLASSES_MAX}", classes.len()));
    }
    if all.len() > FIELDS_MAX {
        tell(format!("declares {} fields; the limit is {FIELDS_MAX}", all.len()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(text: &str) -> (Vec<DeclaredField>, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fields.toml");
        std::fs::write(&path, text).unwrap();
        let mut wrong = Vec::new();
        let all = check(Some(&path), &mut wrong);
        (all, wrong.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn every_type_has_its_word() {
        let lines = TYPES.map(|it| format!("f-{} = \"{}\"\n", it.0, it.0)).concat();
        let (all, wrong) = checked(&format!("[Cart.Line]\n{lines}"));
        assert_eq!(wrong, Vec::<String>::new());
        assert_eq!(all.len(), TYPES.len());
        let strings = DeclaredField {
            class: "Cart".into(),
            item: "Line".into(),
            name: "f-strings".into(),
            is: FieldType::Strings,
        };
        assert!(all.contains(&strings), "{all:?}");
        assert_eq!(check(None, &mut Vec::new()), []);
    }

    #[test]
    fn each_mistake_names_the_file_the_class_and_the_field() {
        for (text, parts) in [
            ("[Cart.Line]\narticle = ", ["fields.toml: line 2:", ""]),
            ("Cart = 1", ["Cart must be a table of items", "[Cart.Line]"]),
            ("[Cart]\nLine = 1", ["Cart.Line must be a table of fields", "[Cart.Line]"]),
            ("[Cart.Line]\narticle = \"text\"", ["Cart.Line: article is \"text\"", "string, int"]),
            ("[Cart.Line]\narticle = 7", ["Cart.Line: article is 7", "one of string"]),
            ("[Cart.Line]\ndocid = \"int\"", ["Cart.Line: field \"docid\"", "letters"]),
            ("[\"a/b\".Line]\na = \"int\"", ["class \"a/b\"", "slash"]),
            ("[Cart.P]\na = \"int\"", ["Cart.P are attachments", "no fields"]),
        ] {
            let (_, wrong) = checked(text);
            let told = wrong.join("; ");
            assert!(told.starts_with(FLAG), "{told}");
            assert!(parts.iter().all(|it| told.contains(it)), "{parts:?} in {told:?}");
        }
        let many = (0..17).map(|it| format!("[C{it}.L]\na = \"int\"\n")).collect::<String>();
        assert!(checked(&many).1.concat().contains("declares 17 classes; the limit is 16"));
        let mut wrong = Vec::new();
        check(Some(Path::new("/no/such")), &mut wrong);
        assert!(wrong[0].to_string().contains("/no/such: No such file"), "{}", wrong[0]);
    }
}
