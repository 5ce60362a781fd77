//! Walking through TOML while gathering every mistake instead of stopping at the first.

use rota_model::FieldError;
use std::fmt;
use std::ops::RangeInclusive;
use toml::{Table, Value};

/// One mistake in a class file.
#[derive(Clone, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub struct ClassMistake {
    /// The file.
    pub file: String,
    /// Path of the field, `transitions[3].to`; empty when the text is no TOML at all.
    pub field: String,
    /// What is wrong.
    pub problem: String,
}

impl fmt::Display for ClassMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.field.is_empty() {
            return write!(f, "{}: {}", self.file, self.problem);
        }
        write!(f, "{}: {} {}", self.file, self.field, self.problem)
    }
}

/// The mistakes of one file.
pub(super) struct Mistakes {
    file: String,
    list: Vec<ClassMistake>,
}

impl Mistakes {
    pub(super) fn of(file: &str) -> Self {
        Self { file: file.to_owned(), list: Vec::new() }
    }

    pub(super) fn add(&mut self, field: impl Into<String>, problem: impl Into<String>) {
        let (file, field, problem) = (self.file.clone(), field.into(), problem.into());
        self.list.push(ClassMistake { file, field, problem });
    }

    /// A value that was checked, or its mistake under the path of the field.
    pub(super) fn checked<T>(&mut self, field: &str, result: Result<T, FieldError>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.add(field, error.problem);
                None
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn into_list(self) -> Vec<ClassMistake> {
        self.list
    }
}

/// A table whose fields are taken out one by one; what is left at the end is unknown.
pub(super) struct Fields {
    path: String,
    table: Table,
}

impl Fields {
    pub(super) fn new(path: impl Into<String>, table: Table) -> Self {
        Self { path: path.into(), table }
    }

    pub(super) fn path(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// The path of the table itself.
    pub(super) fn here(&self) -> &str {
        &self.path
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.table.contains_key(name)
    }

    pub(super) fn is_empty_list(&self, name: &str) -> bool {
        self.table.get(name).and_then(Value::as_array).is_some_and(Vec::is_empty)
    }

    pub(super) fn take(&mut self, name: &str) -> Option<Value> {
        self.table.remove(name)
    }

    /// A text that must be there.
    pub(super) fn text(&mut self, name: &str, mistakes: &mut Mistakes) -> Option<String> {
        if !self.has(name) {
            mistakes.add(self.path(name), "is missing");
        }
        self.optional_text(name, mistakes)
    }

    /// A text that may be there.
    pub(super) fn optional_text(&mut self, name: &str, mistakes: &mut Mistakes) -> Option<String> {
        let path = self.path(name);
        self.take(name).and_then(|value| text_of(value, &path, mistakes))
    }

    /// A truth value that may be there.
    pub(super) fn optional_bool(&mut self, name: &str, mistakes: &mut Mistakes) -> Option<bool> {
        let value = self.take(name)?;
        if value.as_bool().is_none() {
            let problem = format!("is {}; it must be true or false", a(&value));
            mistakes.add(self.path(name), problem);
        }
        value.as_bool()
    }

    /// A whole number that may be there.
    pub(super) fn optional_number(
        &mut self,
        name: &str,
        bounds: RangeInclusive<u32>,
        mistakes: &mut Mistakes,
    ) -> Option<u32> {
        let value = self.take(name)?;
        let number = value.as_integer().and_then(|it| u32::try_from(it).ok());
        let number = number.filter(|it| bounds.contains(it));
        if number.is_none() {
            let is = value.as_integer().map_or_else(|| a(&value).to_owned(), |it| it.to_string());
            let problem = format!(
                "is {is}; it must be a whole number from {} to {}",
                bounds.start(),
                bounds.end()
            );
            mistakes.add(self.path(name), problem);
        }
        number
    }

    /// A list that may be there.
    pub(super) fn optional_list(&mut self, name: &str, mistakes: &mut Mistakes) -> Vec<Value> {
        match self.take(name) {
            None => Vec::new(),
            Some(Value::Array(list)) => list,
            Some(other) => {
                mistakes.add(self.path(name), format!("is {}; it must be a list", a(&other)));
                Vec::new()
            }
        }
    }

    /// A list of texts that may be there; wrong items are left out.
    pub(super) fn optional_texts(&mut self, name: &str, mistakes: &mut Mistakes) -> Vec<String> {
        let list = self.optional_list(name, mistakes);
        let path = self.path(name);
        let texts = list.into_iter().enumerate();
        texts.filter_map(|(at, it)| text_of(it, &format!("{path}[{at}]"), mistakes)).collect()
    }

    /// A table of texts that may be there; wrong items are left out.
    pub(super) fn optional_text_table(
        &mut self,
        name: &str,
        mistakes: &mut Mistakes,
    ) -> Vec<(String, String)> {
        let path = self.path(name);
        let Some(table) = self.optional_table(name, mistakes) else {
            return Vec::new();
        };
        let entries = table.table.into_iter();
        entries
            .filter_map(|(key, value)| {
                let text = text_of(value, &format!("{path}.{key}"), mistakes)?;
                Some((key, text))
            })
            .collect()
    }

    /// A table that may be there.
    pub(super) fn optional_table(&mut self, name: &str, mistakes: &mut Mistakes) -> Option<Fields> {
        let value = self.take(name)?;
        let problem = format!("is {}; it must be a table", a(&value));
        if let Value::Table(table) = value {
            return Some(Fields::new(self.path(name), table));
        }
        mistakes.add(self.path(name), problem);
        None
    }

    /// Everything that was not taken, in order of name.
    pub(super) fn rest(self) -> impl Iterator<Item = (String, Value)> {
        self.table.into_iter()
    }

    /// Whatever was not taken is a mistake.
    pub(super) fn finish(self, known: &str, mistakes: &mut Mistakes) {
        for name in self.table.keys() {
            mistakes.add(self.path(name), format!("is not a field; known are {known}"));
        }
    }
}

/// The kind of a value, with its article.
pub(super) fn a(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "a text",
        Value::Integer(_) => "a number",
        Value::Float(_) => "a decimal number",
        Value::Boolean(_) => "true or false",
        Value::Datetime(_) => "a date or time",
        Value::Array(_) => "a list",
        Value::Table(_) => "a table",
    }
}

pub(super) fn text_of(value: Value, path: &str, mistakes: &mut Mistakes) -> Option<String> {
    let problem = format!("is {}; it must be a text", a(&value));
    if let Value::String(text) = value {
        return Some(text);
    }
    mistakes.add(path, problem);
    None
}
