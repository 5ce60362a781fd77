//! The JSON forms of items and names, as callers of the operations here write and read them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rota_docstore::{
    Attachment, Content, DocName, Exception, FieldError, ItemName, Namespace, codes,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Names an item: a singleton has no key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ItemAt {
    pub class: String,
    #[serde(default)]
    pub key: Option<String>,
}

impl ItemAt {
    pub fn name(&self) -> Result<ItemName, FieldError> {
        ItemName::new(&self.class, self.key.as_deref())
    }
}

/// An item with exactly one of three contents; raw bytes in base64. JSON stays the text that it is: read
/// as a value, large numbers would lose digits, and of two fields of one name one would be lost.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ItemForm {
    pub class: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub json: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attachment: Option<AttachmentForm>,
}

/// The description of an attachment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AttachmentForm {
    pub mime: String,
    pub size: u64,
    /// 64 small hexadecimal digits.
    pub sha256: String,
}

impl ItemForm {
    pub fn of(name: &ItemName, content: &Content) -> Result<Self, FieldError> {
        let (class, key) = (name.class().to_owned(), name.key().map(str::to_owned));
        let empty = Self { class, key, json: None, raw: None, attachment: None };
        Ok(match content {
            Content::Json(text) => {
                let text = RawValue::from_string(text.as_str().to_owned());
                let text = text.map_err(|it| FieldError::new("json", it.to_string()))?;
                Self { json: Some(text), ..empty }
            }
            Content::Raw(bytes) => Self { raw: Some(STANDARD.encode(bytes)), ..empty },
            Content::Attachment(it) => {
                let (mime, sha256) = (it.mime().to_owned(), it.sha256().to_string());
                let attachment = Some(AttachmentForm { mime, size: it.size(), sha256 });
                Self { attachment, ..empty }
            }
        })
    }

    pub fn name(&self) -> Result<ItemName, FieldError> {
        ItemName::new(&self.class, self.key.as_deref())
    }

    pub fn content(&self) -> Result<Content, FieldError> {
        match (&self.json, &self.raw, &self.attachment) {
            (Some(json), None, None) => Content::json(json.get()),
            (None, Some(text), None) => Content::raw(bytes_of("raw", text)?),
            (None, None, Some(it)) => {
                let attachment = Attachment::new(&it.mime, it.size, it.sha256.parse()?)?;
                Ok(Content::Attachment(attachment.into()))
            }
            _ => {
                let problem = "must be exactly one of json (not null), raw and attachment";
                Err(FieldError::new("content", problem))
            }
        }
    }
}

/// Bytes in base64.
pub(crate) fn bytes_of(field: &str, text: &str) -> Result<Vec<u8>, FieldError> {
    let wrong = |it| FieldError::new(field, format!("is not base64: {it}"));
    STANDARD.decode(text).map_err(wrong)
}

/// Says where in the parameters a field is wrong.
pub(crate) fn at(place: &str, error: FieldError) -> Exception {
    FieldError::new(format!("{place}.{}", error.field), error.problem).into()
}

/// The name of a document, or what is wrong with it at that place of the parameters.
pub(crate) fn name_at(
    place: &str,
    space: &Namespace,
    class: &str,
    docid: &str,
) -> Result<DocName, Exception> {
    DocName::new(space, class, docid).map_err(|it| at(place, it))
}

/// All mistakes in one exception.
pub(crate) fn all_of(mistakes: Vec<FieldError>) -> Exception {
    let all: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
    let exception = Exception::new(codes::INVALID, all.join("; "));
    mistakes.into_iter().fold(exception, Exception::with_field)
}
