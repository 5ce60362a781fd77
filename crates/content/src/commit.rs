//! Commits of a repository, as its document keeps them.

use crate::record::Hash;
use rota_docstore::{Digest, Keyed, Singleton};
use rota_model::FieldError;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// How many commits a repository keeps where nothing else is said.
pub const COMMITS_KEPT: u32 = 20;
/// The most that it may keep.
pub const COMMITS_KEPT_MAX: u32 = 200;
/// Longest message and name of an author, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 4_096;

/// The attachment that lists the files of a commit.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TreeBody {
    /// Its digest.
    pub sha256: Digest,
    /// Its size.
    pub bytes: u64,
}

/// One commit. An item of class `Commit`; the key is its hash.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Commit {
    /// Its name.
    pub hash: Hash,
    /// Its place in the history: 1 for the first; 0 until it has one.
    #[serde(default)]
    pub number: u64,
    /// The commit that it follows; none for the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Hash>,
    /// When it was made, in milliseconds since 1970.
    pub at_ms: u64,
    /// What its author says of it.
    #[serde(default)]
    pub message: String,
    /// Who made it.
    #[serde(default)]
    pub author: String,
    /// The commit of git that it was made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The commit whose files it brought back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restores: Option<Hash>,
    /// Where its files are listed.
    pub tree: TreeBody,
    /// How many files it has.
    pub files: u64,
    /// How many bytes these have.
    pub bytes: u64,
    /// How many files it adds, changes and removes.
    pub changed: u64,
}

impl Keyed for Commit {
    const CLASS: &'static str = "Commit";
}

impl Commit {
    /// The name of a commit: a hash of what it follows, its files, and what is said of it.
    pub fn name(parent: Option<&Hash>, files: &Digest, at_ms: u64, said: [&str; 3]) -> Hash {
        let mut hash = Sha256::new();
        hash.update(parent.map_or("", Hash::as_str));
        hash.update(files.0);
        hash.update(at_ms.to_be_bytes());
        for text in said {
            hash.update(text.len().to_be_bytes());
            hash.update(text);
        }
        Hash::short(&Digest(hash.finalize().into()))
    }

    /// Checks the texts of a commit that came from elsewhere.
    ///
    /// # Errors
    /// One is too long.
    pub fn check(&self) -> Result<(), FieldError> {
        let source = self.source.as_deref().unwrap_or_default();
        for (field, text) in
            [("message", &*self.message), ("author", &*self.author), ("source", source)]
        {
            if text.len() > MESSAGE_BYTES_MAX {
                let bytes = text.len();
                let problem = format!("has {bytes} bytes; the limit is {MESSAGE_BYTES_MAX}");
                return Err(FieldError::new(field, problem));
            }
        }
        Ok(())
    }
}

/// Which commit is the newest. A singleton of the repository's document.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// Its hash.
    pub latest: Hash,
    /// Its number.
    pub number: u64,
    /// How many commits are kept.
    #[serde(default = "usual")]
    pub keep: u32,
}

fn usual() -> u32 {
    COMMITS_KEPT
}

impl Singleton for Head {
    const CLASS: &'static str = "Head";
}

/// Until which commit a body is needed. An item of class `Held`; the key is the body's digest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Held {
    /// The number of the newest commit with a file in it.
    pub until: u64,
}

impl Keyed for Held {
    const CLASS: &'static str = "Held";
}
