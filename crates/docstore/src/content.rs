//! What an item holds: JSON, raw bytes, or the description of an attachment.

use crate::json::to_json;
use rota_model::FieldError;
use serde::de::Error as _;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Most bytes of one item's content. Larger things are attachments.
pub const CONTENT_BYTES_MAX: usize = 1024 * 1024;
/// Deepest nesting of lists and objects in JSON: what is deeper could be written, but not read back
/// into most types.
pub const JSON_DEPTH_MAX: usize = 100;
/// Longest mime type, in bytes.
pub const MIME_BYTES_MAX: usize = 255;

/// A SHA-256 digest. Its text is 64 small hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for Digest {
    type Err = FieldError;
    fn from_str(text: &str) -> Result<Self, FieldError> {
        let wrong = || FieldError::new("sha256", "is not 64 small hexadecimal digits");
        let is_digit = |it: u8| it.is_ascii_digit() || (b'a'..=b'f').contains(&it);
        if text.len() != 64 || !text.bytes().all(is_digit) {
            return Err(wrong());
        }
        let mut bytes = [0; 32];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).map_err(|_| wrong())?;
        }
        Ok(Self(bytes))
    }
}

/// As its text where people read it, else as its 32 bytes.
impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            self.0.serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        if from.is_human_readable() {
            String::deserialize(from)?.parse().map_err(D::Error::custom)
        } else {
            Ok(Self(<[u8; 32]>::deserialize(from)?))
        }
    }
}

/// Describes an attachment: the content of an item of class `P`. The item's key names it; its
/// bytes are stored elsewhere, once per digest.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Attachment {
    mime: Box<str>,
    size: u64,
    sha256: Digest,
}

impl Attachment {
    /// From its parts. The mime type is not interpreted: at most [`MIME_BYTES_MAX`] bytes, no
    /// control characters; it may be empty, and may end in a mark such as `.g` for packed bodies.
    pub fn new(mime: &str, size: u64, sha256: Digest) -> Result<Self, FieldError> {
        check_mime(mime)?;
        Ok(Self { mime: mime.into(), size, sha256 })
    }

    /// The mime type.
    pub fn mime(&self) -> &str {
        &self.mime
    }

    /// The size of the body in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The digest of the body.
    pub fn sha256(&self) -> Digest {
        self.sha256
    }
}

/// At most [`MIME_BYTES_MAX`] bytes, no control characters.
pub(crate) fn check_mime(mime: &str) -> Result<(), FieldError> {
    let length = mime.len();
    if length > MIME_BYTES_MAX {
        let problem = format!("is {length} bytes long; the limit is {MIME_BYTES_MAX}");
        return Err(FieldError::new("mime", problem));
    }
    if mime.contains(char::is_control) {
        return Err(FieldError::new("mime", "has a control character"));
    }
    Ok(())
}

/// The content of an existing item. Clones share it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Content {
    /// A JSON text that was checked. Never `null`: an item without content does not exist.
    Json(JsonText),
    /// Bytes that the store does not interpret.
    Raw(Arc<[u8]>),
    /// An attachment's description. Only items of class `P` have it.
    Attachment(Arc<Attachment>),
}

/// A JSON text that parses and is not `null`. Clones share it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct JsonText(Arc<str>);

impl JsonText {
    /// Checks a text, field `json`: it parses, is nested at most [`JSON_DEPTH_MAX`] deep, and is
    /// not `null`.
    pub fn parse(text: &str) -> Result<Self, FieldError> {
        if let Err(error) = serde_json::from_str::<IgnoredAny>(text) {
            return Err(FieldError::new("json", format!("does not parse: {error}")));
        }
        check_json(text)?;
        Ok(Self(text.into()))
    }

    /// A text that was checked when it was written. If it was changed since, it fails to be read.
    pub(crate) fn checked_before(text: &str) -> Self {
        Self(text.into())
    }

    /// The text of a value, without null fields. It parses, since a serializer wrote it, but a value
    /// may be nested too deep to be read back: field `json`.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, FieldError> {
        let text = to_json(value)
            .map_err(|error| FieldError::new("json", format!("cannot be written: {error}")))?;
        check_json(&text)?;
        Ok(Self(text.into()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The value of a type; an error names the field `json`.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, FieldError> {
        read_json(&self.0)
    }
}

/// The value of a type in a JSON text; an error names the field `json`.
pub(crate) fn read_json<T: DeserializeOwned>(text: &str) -> Result<T, FieldError> {
    serde_json::from_str(text)
        .map_err(|error| FieldError::new("json", format!("does not fit its type: {error}")))
}

/// Refuses a text that parses and is nested too deep, or is `null`.
fn check_json(text: &str) -> Result<(), FieldError> {
    // Few brackets cannot be nested deep, and they are counted faster.
    let depth = if brackets(text) <= JSON_DEPTH_MAX { 0 } else { depth(text) };
    if depth > JSON_DEPTH_MAX {
        let problem = format!("is nested {depth} deep; the limit is {JSON_DEPTH_MAX}");
        return Err(FieldError::new("json", problem));
    }
    if text.trim_ascii() == "null" {
        return Err(FieldError::new("json", "is null, which stands for a destroyed item"));
    }
    Ok(())
}

/// How many lists and objects begin in a text, or seem to inside its strings.
fn brackets(text: &str) -> usize {
    let is_open = |byte: &u8| u8::from(matches!(byte, b'[' | b'{'));
    // Piece by piece, so that each sum fits one byte: then many are added with one instruction.
    let pieces = text.as_bytes().chunks(usize::from(u8::MAX));
    pieces.map(|piece| usize::from(piece.iter().map(is_open).sum::<u8>())).sum()
}

/// How deep lists and objects are nested in a text that parses.
fn depth(text: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let (mut is_in_string, mut is_escaped) = (false, false);
    for byte in text.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_in_string => is_escaped = true,
            b'"' => is_in_string = !is_in_string,
            b'[' | b'{' if !is_in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !is_in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

impl fmt::Debug for JsonText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn check_content_length(length: usize) -> Result<(), FieldError> {
    if length > CONTENT_BYTES_MAX {
        let problem = format!("is {length} bytes long; the limit is {CONTENT_BYTES_MAX}");
        return Err(FieldError::new("content", problem));
    }
    Ok(())
}

impl Content {
    /// JSON from a text, which must parse, be at most [`CONTENT_BYTES_MAX`] long and not `null`.
    pub fn json(text: &str) -> Result<Self, FieldError> {
        check_content_length(text.len())?;
        Ok(Self::Json(JsonText::parse(text)?))
    }

    /// JSON of a value, without null fields.
    pub fn json_of<T: Serialize + ?Sized>(value: &T) -> Result<Self, FieldError> {
        Self::of_text(JsonText::of(value)?)
    }

    /// JSON of a text, at most [`CONTENT_BYTES_MAX`] long.
    pub(crate) fn of_text(text: JsonText) -> Result<Self, FieldError> {
        check_content_length(text.as_str().len())?;
        Ok(Self::Json(text))
    }

    /// Raw bytes, at most [`CONTENT_BYTES_MAX`].
    pub fn raw(bytes: impl Into<Arc<[u8]>>) -> Result<Self, FieldError> {
        let bytes = bytes.into();
        check_content_length(bytes.len())?;
        Ok(Self::Raw(bytes))
    }

    /// What it counts in the primary volume (item bytes): the bytes of a JSON text or of raw content; for
    /// an attachment its mime type, 8 for the size and 32 for the digest.
    pub fn volume(&self) -> u64 {
        let bytes = match self {
            Content::Json(text) => text.as_str().len(),
            Content::Raw(bytes) => bytes.len(),
            Content::Attachment(it) => it.mime.len() + 40,
        };
        bytes as u64
    }

    /// The attachment that is described here, if one is.
    pub fn as_attachment(&self) -> Option<&Attachment> {
        match self {
            Content::Attachment(it) => Some(it),
            Content::Json(_) | Content::Raw(_) => None,
        }
    }

    /// `JSON`, `raw` or `attachment`, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Content::Json(_) => "JSON",
            Content::Raw(_) => "raw",
            Content::Attachment(_) => "attachment",
        }
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Content::Json(text) => write!(f, "{text:?}"),
            Content::Raw(bytes) => write!(f, "{} raw bytes", bytes.len()),
            Content::Attachment(it) => write!(f, "{it:?}"),
        }
    }
}

/// What of `these` is not among `others`, in order; what stands there several times counts each time.
/// Of what a document names after a change and before it: what it gains. The other way round: what it
/// gives up.
pub fn beyond<T: Ord>(
    these: impl IntoIterator<Item = T>,
    others: impl IntoIterator<Item = T>,
) -> Vec<T> {
    let mut these: Vec<T> = these.into_iter().collect();
    if these.is_empty() {
        // Nearly no document names an attachment.
        return these;
    }
    let mut others: Vec<T> = others.into_iter().collect();
    these.sort_unstable();
    others.sort_unstable();
    let mut others = others.into_iter().peekable();
    these.retain(|item| {
        while others.next_if(|other| other < item).is_some() {}
        others.next_if(|other| other == item).is_none()
    });
    these
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_that_does_not_parse_or_is_null_is_refused() {
        for wrong in ["", "{", "{\"a\":}", "[1,]", "nul", "1 2", "null", " null\n"] {
            assert_eq!(Content::json(wrong).unwrap_err().field, "json", "{wrong}");
        }
        assert!(Content::json(&"[".repeat(100_000)).is_err());
        assert!(Content::json_of(&None::<u8>).is_err());
        let nested = |depth| (0..depth).fold(serde_json::Value::from(1), |it, _| vec![it].into());
        assert!(Content::json_of(&nested(100)).is_ok());
        let error = Content::json_of(&nested(101)).unwrap_err();
        assert_eq!(error.problem, "is nested 101 deep; the limit is 100");
        assert!(Content::json(&format!("{}1{}", "[".repeat(99_999), "]".repeat(99_999))).is_err());
        let brackets = "[\\\"{".repeat(200);
        assert!(Content::json(&format!("\"{brackets}\"")).is_ok());
        assert!(Content::json("{\"a\":null}").is_ok());
    }

    #[test]
    fn content_has_a_limit() {
        let long = vec![0; CONTENT_BYTES_MAX + 1];
        let error = Content::raw(long).unwrap_err();
        assert_eq!(error.problem, "is 1048577 bytes long; the limit is 1048576");
        assert!(Content::json(&" ".repeat(CONTENT_BYTES_MAX + 1)).is_err());
    }

    #[test]
    fn what_one_side_has_beyond_the_other_counts_each_time_that_it_stands_there_more_often() {
        assert_eq!(beyond([3, 1, 2, 1], [2, 1, 4]), [1, 3]);
        assert_eq!(beyond([2, 1, 4], [3, 1, 2, 1]), [4]);
        assert_eq!(beyond([5, 5], []), [5, 5]);
        assert!(beyond([], [5, 5]).is_empty() && beyond([1, 2, 3], [3, 2, 1]).is_empty());
    }

    #[test]
    fn a_digest_reads_back_and_nothing_else_does() {
        let digest = Digest([0xa5; 32]);
        let text = digest.to_string();
        assert_eq!(text.parse::<Digest>(), Ok(digest));
        for wrong in ["", &text[1..], &text.to_uppercase(), &text.replace('a', "+")] {
            assert!(wrong.parse::<Digest>().is_err(), "{wrong}");
        }
        let odd = format!("{}é", &text[2..]);
        assert!(odd.parse::<Digest>().is_err());
    }

    #[test]
    fn a_mime_type_is_checked_for_its_length_only() {
        let digest = Digest([0; 32]);
        assert!(Attachment::new("", 0, digest).is_ok());
        assert!(Attachment::new("text/plain.g", 3, digest).is_ok());
        assert!(Attachment::new("a\nb", 3, digest).is_err());
        assert_eq!(Attachment::new(&"x".repeat(256), 3, digest).unwrap_err().field, "mime");
    }
}
