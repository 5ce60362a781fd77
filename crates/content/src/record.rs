//! Records of the file database: one a file, and control records beside them.

use crate::category::{Category, FilesetName};
use crate::path::FilePath;
use rota_docstore::Digest;
use rota_model::FieldError;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use std::fmt;

/// Where the newest commit is named.
pub const LATEST_PATH: &str = ".rota/commit/$latest";
/// Where it stands what this node may see.
pub const ACCESS_PATH: &str = ".rota/acm/group";
/// What the node could see when it last brought itself up to date.
pub(crate) const ACCESS_FINGERPRINT_PATH: &str = ".rota/fingerprint/acm/group";
/// Where it stands that a refresh has begun.
pub(crate) const REFRESH_PATH: &str = ".rota/refresh";
/// Below this lie commits.
pub(crate) const COMMITS: &str = ".rota/commit/";
/// Below this lie the states of filesets.
pub(crate) const FILESETS: &str = ".rota/category/";
/// Below this lie cached files that may have to go.
pub(crate) const OBSOLETE: &str = ".rota/obsolete/";

/// Most hexadecimal digits of a hash.
const HASH_BYTES_MAX: usize = 64;
/// Digits of a short hash.
const SHORT: usize = 12;

/// A short hash that names a commit, or what a node may see: small hexadecimal digits.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "SmolStr", into = "SmolStr")]
pub struct Hash(SmolStr);

impl Hash {
    /// From its text. Field: `commit`.
    ///
    /// # Errors
    /// It is empty or too long, or has another character.
    pub fn parse(text: &str) -> Result<Self, FieldError> {
        let is_digit = |it: u8| it.is_ascii_digit() || (b'a'..=b'f').contains(&it);
        if text.is_empty() || text.len() > HASH_BYTES_MAX || !text.bytes().all(is_digit) {
            let shown: String = text.chars().take(80).collect();
            let problem = format!("is {shown:?}; it must be small hexadecimal digits");
            return Err(FieldError::new("commit", problem));
        }
        Ok(Self(SmolStr::new(text)))
    }

    /// The first twelve digits of a digest.
    pub fn short(digest: &Digest) -> Self {
        Self(SmolStr::new(&digest.to_string()[..SHORT]))
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<SmolStr> for Hash {
    type Error = FieldError;
    fn try_from(text: SmolStr) -> Result<Self, FieldError> {
        Self::parse(&text)
    }
}

impl From<Hash> for SmolStr {
    fn from(it: Hash) -> Self {
        it.0
    }
}

/// What a file is, and where its bytes are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct File {
    /// Of its bytes.
    pub sha256: Digest,
    /// How many there are.
    pub bytes: u64,
    /// Whether it can be run.
    pub executable: bool,
    /// The body that holds them: the file alone, or many files one after the other.
    pub body: Digest,
    /// Where they begin in the body.
    pub offset: u64,
}

/// Whether a file is there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Status {
    /// Available, and up to date.
    Published,
    /// The record, and what is cached of the file, are to go.
    Deleted,
}

/// What a record says beside its commit.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Detail {
    /// Nothing.
    None,
    /// Of a file.
    File(File),
    /// Of `$category`: whether nodes download the fileset by themselves.
    Fileset {
        /// Whether they do.
        eager: bool,
    },
    /// Of `$commit`: it may be one that no active file belongs to.
    Stale,
    /// Of `$refresh`: whether it began without an earlier commit to go on from.
    Refresh {
        /// Whether it did.
        full: bool,
    },
}

/// One record of the file database.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Record {
    /// Its key: the path of the file; of control records one below `.rota/`.
    pub path: SmolStr,
    /// What it is about.
    pub category: Category,
    /// The commit to which the file belongs; of control records, what they name.
    pub commit: Hash,
    /// Whether the file is there.
    pub status: Status,
    /// What else it says.
    pub detail: Detail,
}

impl Record {
    /// A control record.
    pub(crate) fn control(path: &str, category: Category, commit: Hash, detail: Detail) -> Self {
        Self { path: SmolStr::new(path), category, commit, status: Status::Published, detail }
    }

    /// Of a commit.
    pub fn commit(commit: &Hash) -> Self {
        let path = format!("{COMMITS}{commit}");
        Self::control(&path, Category::Commit, commit.clone(), Detail::None)
    }

    /// Which commit is the newest.
    pub fn latest(commit: Hash) -> Self {
        Self::control(LATEST_PATH, Category::Latest, commit, Detail::None)
    }

    /// The newest commit that changed a fileset.
    pub fn fileset(name: &FilesetName, commit: Hash, eager: bool) -> Self {
        let path = format!("{FILESETS}{name}");
        Self::control(&path, Category::Fileset, commit, Detail::Fileset { eager })
    }

    /// What this node may see.
    pub fn access(hash: Hash) -> Self {
        Self::control(ACCESS_PATH, Category::Access, hash, Detail::None)
    }

    /// A file.
    pub fn file(path: &FilePath, category: FilesetName, commit: Hash, file: File) -> Self {
        let (path, category) = (SmolStr::new(path.as_str()), Category::File(category));
        Self { path, category, commit, status: Status::Published, detail: Detail::File(file) }
    }

    /// What the record of a file says of it.
    pub fn as_file(&self) -> Option<&File> {
        match &self.detail {
            Detail::File(file) => Some(file),
            Detail::None | Detail::Fileset { .. } | Detail::Stale | Detail::Refresh { .. } => None,
        }
    }

    /// The fileset and the file of a record whose file is there.
    pub fn published(&self) -> Option<(&FilesetName, &File)> {
        match (&self.category, self.as_file()) {
            (Category::File(fileset), Some(file)) if self.status == Status::Published => {
                Some((fileset, file))
            }
            (
                Category::File(_)
                | Category::Commit
                | Category::Latest
                | Category::Fileset
                | Category::Access
                | Category::Fingerprint
                | Category::Refresh
                | Category::Obsolete,
                _,
            ) => None,
        }
    }

    /// Checks a record that came from elsewhere: its path is that of a file, or the one that belongs to its
    /// category, which is none of a node's own.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self) -> Result<(), FieldError> {
        let wrong = |problem: &str| {
            let problem = format!("{:?} of category {} {problem}", self.path, self.category);
            Err(FieldError::new("record", problem))
        };
        let name = |prefix: &str| self.path.strip_prefix(prefix).map(str::to_owned);
        let (is_its_path, is_its_detail) = match &self.category {
            Category::File(_) => {
                let ends = |it: &File| it.offset.checked_add(it.bytes).is_some();
                (FilePath::parse(&self.path).is_ok(), self.as_file().is_some_and(ends))
            }
            Category::Commit => {
                let own = name(COMMITS).is_some_and(|it| it == self.commit.as_str());
                (own, self.detail == Detail::None)
            }
            Category::Latest => (self.path == LATEST_PATH, self.detail == Detail::None),
            Category::Access => (self.path == ACCESS_PATH, self.detail == Detail::None),
            Category::Fileset => {
                let own = name(FILESETS).is_some_and(|it| FilesetName::parse(&it).is_ok());
                (own, matches!(self.detail, Detail::Fileset { .. }))
            }
            Category::Fingerprint | Category::Refresh | Category::Obsolete => {
                return wrong("is a node's own");
            }
        };
        if !is_its_path {
            return wrong("has another path");
        }
        if !is_its_detail {
            return wrong("says something else");
        }
        let is_file = matches!(self.category, Category::File(_));
        if self.status == Status::Deleted && !is_file && self.category != Category::Fileset {
            return wrong("cannot be deleted");
        }
        Ok(())
    }
}
