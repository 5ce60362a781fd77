//! Every mistake of a request, gathered until all of it was looked at.

use rota_model::{FieldError, Namespace, Refusal};

/// The mistakes that were found so far.
#[derive(Default)]
pub(crate) struct Mistakes(Vec<FieldError>);

impl Mistakes {
    pub(crate) fn note<T>(&mut self, parsed: Result<T, FieldError>) -> Option<T> {
        parsed.map_err(|mistake| self.0.push(mistake)).ok()
    }

    /// Notes every mistake of something that has several.
    pub(crate) fn note_all<T>(&mut self, parsed: Result<T, Vec<FieldError>>) -> Option<T> {
        parsed.map_err(|mistakes| self.0.extend(mistakes)).ok()
    }

    /// Like `note`, for a value whose type does not know the field's name.
    pub(crate) fn note_in<T>(&mut self, field: &str, parsed: Result<T, FieldError>) -> Option<T> {
        self.note(parsed.map_err(|mistake| FieldError::new(field, mistake.problem)))
    }

    /// The value that every part was found for, or all mistakes.
    pub(crate) fn found<T>(self, value: Option<T>) -> Result<T, Vec<FieldError>> {
        value.filter(|_| self.0.is_empty()).ok_or(self.0)
    }

    /// The value that every part was found for, or a refusal with all mistakes.
    pub(crate) fn finish<T>(self, value: Option<T>) -> Result<T, Refusal> {
        self.found(value).map_err(Refusal::invalid)
    }

    pub(crate) fn namespace(&mut self, namespace: &str) -> Option<Namespace> {
        if namespace.is_empty() {
            return Some(Namespace::default_space());
        }
        self.note(Namespace::parse(namespace))
    }

    /// Names of namespaces, each of which must be given.
    pub(crate) fn namespaces(&mut self, field: &str, names: &[String]) -> Vec<Namespace> {
        let mut parsed = Vec::with_capacity(names.len());
        for (at, name) in names.iter().enumerate() {
            parsed.extend(self.note_in(&format!("{field}[{at}]"), Namespace::parse(name)));
        }
        parsed
    }

    /// A name that may be left out.
    pub(crate) fn given<T>(
        &mut self,
        field: &str,
        text: &str,
        parse: impl FnOnce(&str) -> Result<T, FieldError>,
    ) -> Option<Option<T>> {
        if text.is_empty() {
            return Some(None);
        }
        self.note_in(field, parse(text)).map(Some)
    }
}
