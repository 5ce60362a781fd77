//! Categories: of files, and those of control records, which begin with `$`.

use rota_model::FieldError;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use std::fmt;

/// Longest name of a fileset category, in bytes.
pub const CATEGORY_BYTES_MAX: usize = 64;

/// Of files that no rule names.
const DEFAULT: SmolStr = SmolStr::new_static("default");

/// The name of a fileset: small letters, digits, `-` and `_`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "SmolStr", into = "SmolStr")]
pub struct FilesetName(SmolStr);

impl FilesetName {
    /// From its text. Field: `category`.
    ///
    /// # Errors
    /// It is empty or too long, or has another character.
    pub fn parse(text: &str) -> Result<Self, FieldError> {
        let is_fine =
            |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || b"-_".contains(&it);
        if text.is_empty() || text.len() > CATEGORY_BYTES_MAX || !text.bytes().all(is_fine) {
            let shown: String = text.chars().take(80).collect();
            let problem = format!(
                "is {shown:?}; it must be 1 to {CATEGORY_BYTES_MAX} small letters, digits, - and _"
            );
            return Err(FieldError::new("category", problem));
        }
        Ok(Self(SmolStr::new(text)))
    }

    /// Of files that no rule names.
    pub fn default_name() -> Self {
        Self(DEFAULT)
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FilesetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for FilesetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<SmolStr> for FilesetName {
    type Error = FieldError;
    fn try_from(text: SmolStr) -> Result<Self, FieldError> {
        Self::parse(&text)
    }
}

impl From<FilesetName> for SmolStr {
    fn from(it: FilesetName) -> Self {
        it.0
    }
}

/// What a record is about.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Category {
    /// `$commit`: a commit to which files belong.
    Commit,
    /// `$latest`: the newest commit.
    Latest,
    /// `$category`: the newest commit that changed a fileset.
    Fileset,
    /// `$acm`: what this node may see, as a hash.
    Access,
    /// `$fingerprint`: what the node itself had when it last brought something up to date.
    Fingerprint,
    /// `$refresh`: a refresh has begun and has not ended.
    Refresh,
    /// `$obsolete`: a cached file that records may have ceased to name.
    Obsolete,
    /// A file of a fileset.
    File(FilesetName),
}

impl Category {
    /// From its text.
    ///
    /// # Errors
    /// It is neither a control category nor a name of a fileset.
    pub fn parse(text: &str) -> Result<Self, FieldError> {
        Ok(match text {
            "$commit" => Self::Commit,
            "$latest" => Self::Latest,
            "$category" => Self::Fileset,
            "$acm" => Self::Access,
            "$fingerprint" => Self::Fingerprint,
            "$refresh" => Self::Refresh,
            "$obsolete" => Self::Obsolete,
            name => Self::File(FilesetName::parse(name)?),
        })
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Commit => "$commit",
            Self::Latest => "$latest",
            Self::Fileset => "$category",
            Self::Access => "$acm",
            Self::Fingerprint => "$fingerprint",
            Self::Refresh => "$refresh",
            Self::Obsolete => "$obsolete",
            Self::File(name) => name.as_str(),
        }
    }
}

impl fmt::Display for Category {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn categories_come_back_from_their_text_and_others_are_refused() {
        for text in ["$commit", "$latest", "$category", "$acm", "$fingerprint", "$refresh", "a-1_b"]
        {
            assert_eq!(Category::parse(text).unwrap().as_str(), text);
        }
        for text in ["", "$other", "A", "a b", "a/b", &"x".repeat(65)] {
            assert!(Category::parse(text).is_err(), "{text}");
        }
    }
}
