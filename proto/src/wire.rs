//! What is wrong with a message, and the small steps that every conversion is made of.

use rota_model::{ClusterName, FieldError, NAME_BYTES_MAX, Refusal};

/// Longest sentence of a node about one of its sessions, in bytes. It is kept in the session's
/// document; what is longer is cut off.
const SENTENCE_BYTES_MAX: usize = 4 * 1024;

/// A message from the wire (or the disk) that is no value of the model.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{field} {problem}")]
pub struct WireError {
    /// The field, as `Message.field` of the .proto files.
    pub field: &'static str,
    /// What is wrong with it, with the limit where there is one.
    pub problem: String,
}

impl WireError {
    /// A mistake in `field`.
    pub fn new(field: &'static str, problem: impl Into<String>) -> Self {
        Self { field, problem: problem.into() }
    }
}

impl From<WireError> for FieldError {
    fn from(error: WireError) -> Self {
        FieldError::new(error.field, error.problem)
    }
}

impl From<WireError> for Refusal {
    fn from(error: WireError) -> Self {
        Refusal::invalid(vec![error.into()])
    }
}

/// The content of a field that must be set.
pub(crate) fn required<T>(field: &'static str, value: Option<T>) -> Result<T, WireError> {
    value.ok_or_else(|| WireError::new(field, "is missing"))
}

/// A message in a field that must be set, converted.
pub(crate) fn convert<W, T>(field: &'static str, value: Option<W>) -> Result<T, WireError>
where
    T: TryFrom<W>,
    WireError: From<T::Error>,
{
    Ok(T::try_from(required(field, value)?)?)
}

/// A message in a field that may be unset, converted.
pub(crate) fn optional<W, T>(value: Option<W>) -> Result<Option<T>, WireError>
where
    T: TryFrom<W>,
    WireError: From<T::Error>,
{
    Ok(value.map(T::try_from).transpose()?)
}

/// Every message of a repeated field, converted.
pub(crate) fn each<W, T>(values: Vec<W>) -> Result<Vec<T>, WireError>
where
    T: TryFrom<W>,
    WireError: From<T::Error>,
{
    values.into_iter().map(|it| T::try_from(it).map_err(WireError::from)).collect()
}

/// Puts the field's name on the mistake of a model type that does not know where it stands.
pub(crate) fn named<T>(field: &'static str, parsed: Result<T, FieldError>) -> Result<T, WireError> {
    parsed.map_err(|error| WireError::new(field, error.problem))
}

/// Refuses a message of another cluster.
pub(crate) fn check_cluster(
    field: &'static str,
    cluster: &ClusterName,
    given: &str,
) -> Result<(), WireError> {
    if given == cluster.as_str() {
        return Ok(());
    }
    let problem = format!("is {given:?}; this process belongs to {cluster:?}");
    Err(WireError::new(field, problem))
}

/// A name that may be left out by leaving it empty.
pub(crate) fn unless_empty<T>(
    field: &'static str,
    text: &str,
    parse: impl FnOnce(&str) -> Result<T, FieldError>,
) -> Result<Option<T>, WireError> {
    if text.is_empty() { Ok(None) } else { named(field, parse(text)).map(Some) }
}

/// A text that is kept in documents: an address, or the name of a state.
pub(crate) fn short(field: &'static str, text: String) -> Result<String, WireError> {
    let length = text.len();
    if length > NAME_BYTES_MAX {
        let problem = format!("is {length} bytes long; the limit is {NAME_BYTES_MAX}");
        return Err(WireError::new(field, problem));
    }
    Ok(text)
}

/// A sentence that is kept in documents.
pub(crate) fn sentence(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(SENTENCE_BYTES_MAX));
    text
}

/// A length that the model keeps as `usize`, for the wire.
pub(crate) fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

// Conversions that cannot fail are `From` and give this error through the standard library.
impl From<std::convert::Infallible> for WireError {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_sentences_are_cut_off_between_characters_and_long_names_refused() {
        let long = "é".repeat(SENTENCE_BYTES_MAX);
        assert_eq!(sentence(format!("x{long}")).len(), SENTENCE_BYTES_MAX - 1);
        assert_eq!(sentence("short".into()), "short");
        let error = short("Exit.final_state", "x".repeat(256)).unwrap_err();
        assert_eq!(error.to_string(), "Exit.final_state is 256 bytes long; the limit is 255");
    }
}
