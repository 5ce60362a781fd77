//! The document of what programs of a session printed last, beside that of the session. It outlives their nodes.

use rota_docstore::{Digest, DocName, Document, Keyed, Schema};
use rota_model::{FieldError, NodeId, SessionKey, Stamp};
use serde::{Deserialize, Serialize};

/// Class of the documents that keep what programs printed last: one of a session.
pub const OUTPUT_CLASS: &str = "session-output";
/// Lives whose output is kept; that of the oldest one goes.
pub const OUTPUT_LIVES_MAX: usize = 4;
/// Most bytes that are kept of each output of a life.
pub const OUTPUT_BYTES_MAX: u64 = 1024 * 1024;
/// Most bytes of an output that stand in the document itself. Bodies cost files on every copy; documents cost memory.
pub const OUTPUT_TEXT_BYTES_MAX: u64 = 1024;
/// How long it may be kept at most, in milliseconds: 30 days.
pub const OUTPUT_KEPT_MS_MAX: u64 = 30 * 86_400_000;

/// The end of one output.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutputEnd {
    /// How many bytes of the output come before.
    pub from: u64,
    /// How many are kept.
    pub bytes: u64,
    /// The bytes, where they are few, and text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Else they are the attachment with this digest, which is its key, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Digest>,
}

impl OutputEnd {
    /// The body in which the bytes lie, if they lie in one.
    pub fn body(&self) -> Option<Digest> {
        self.sha256.filter(|_| self.text.is_none())
    }
}

/// What the program of one life printed last. An item; its key is the life.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeptOutput {
    /// Where it ran.
    pub node: NodeId,
    /// Until when it is kept.
    pub until: Stamp,
    /// Left out where it printed nothing there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<OutputEnd>,
    /// The same of the other one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<OutputEnd>,
}

impl KeptOutput {
    /// Of both outputs, as far as there is something.
    pub fn ends(&self) -> impl Iterator<Item = &OutputEnd> {
        self.stdout.iter().chain(&self.stderr)
    }
}

impl Keyed for KeptOutput {
    const CLASS: &'static str = "life";
}

/// Adds the class of what programs printed last.
#[must_use]
pub fn with_outputs(schema: Schema) -> Schema {
    schema.class(OUTPUT_CLASS, |it| it.keyed::<KeptOutput>())
}

/// Name of the document of what a session's programs printed last. It lies in the slot of the session.
pub fn output_name(key: &SessionKey) -> DocName {
    DocName::new(&key.namespace, OUTPUT_CLASS, key.id.as_str())
        .expect("ids of sessions are ids of documents")
}

/// What a document keeps, by life.
///
/// # Errors
/// It does not read as such.
pub fn kept_outputs(document: &Document) -> Result<Vec<(Stamp, KeptOutput)>, FieldError> {
    let of_class = document.existing().filter(|(name, _)| name.class() == KeptOutput::CLASS);
    let mut kept = Vec::new();
    for key in of_class.filter_map(|(name, _)| name.key()) {
        let life = key.parse().map_err(|_| FieldError::new("life", "is no stamp"));
        let life = life.and_then(Stamp::parse)?;
        kept.extend(document.keyed::<KeptOutput>(key)?.map(|it| (life, it)));
    }
    kept.sort_by_key(|it| it.0);
    Ok(kept)
}

/// Whether nothing that a document keeps is wanted any more.
pub fn is_output_over(document: &Document, now: Stamp) -> bool {
    kept_outputs(document).is_ok_and(|kept| kept.iter().all(|it| it.1.until < now))
}
