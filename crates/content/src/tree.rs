//! All files of a commit.

use crate::category::FilesetName;
use crate::path::{FILES_MAX, FilePath};
use crate::record::{File, Hash};
use rota_docstore::Digest;
use rota_model::{FieldError, Labels, PoolName};
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// What is said of a fileset.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Fileset {
    /// Whether nodes download it by themselves.
    pub eager: bool,
    /// Whose nodes may see it; without any: those of all pools.
    pub pools: BTreeSet<PoolName>,
    /// Which labels a node must have to see it.
    pub labels: Labels,
    /// The newest commit that changed it; none while it has no file.
    pub commit: Option<Hash>,
}

impl Fileset {
    /// Every node sees it, and downloads it.
    pub fn for_everybody() -> Self {
        Self { eager: true, pools: BTreeSet::new(), labels: Labels::default(), commit: None }
    }
}

/// A file of a commit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TreeFile {
    /// Where it lies.
    pub path: FilePath,
    /// To which fileset it belongs.
    pub fileset: FilesetName,
    /// The commit that made it what it is.
    pub commit: Hash,
    /// What it is.
    pub file: File,
}

/// All files of a commit, and its filesets.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tree {
    files: Vec<TreeFile>,
    filesets: BTreeMap<FilesetName, Fileset>,
    /// Which bodies hold the files, and how large these are.
    bodies: BTreeMap<Digest, u64>,
    /// The text of the rules that it was made with.
    rules: String,
}

/// What differs between two trees at one path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Difference<'a> {
    /// It was not there.
    Added(&'a TreeFile),
    /// It is another.
    Changed {
        /// What it was.
        from: &'a TreeFile,
        /// What it is.
        to: &'a TreeFile,
    },
    /// It is not there any more.
    Removed(&'a TreeFile),
}

impl Tree {
    /// From its parts, which may come from elsewhere.
    ///
    /// # Errors
    /// Files are not in the order of their paths, belong to no fileset, or lie in no body.
    pub fn new(
        files: Vec<TreeFile>,
        filesets: BTreeMap<FilesetName, Fileset>,
        bodies: BTreeMap<Digest, u64>,
    ) -> Result<Self, FieldError> {
        let wrong = |problem: String| Err(FieldError::new("tree", problem));
        if files.len() > FILES_MAX {
            return wrong(format!("has {} files; the limit is {FILES_MAX}", files.len()));
        }
        if let Some(pair) = files.windows(2).find(|it| it[0].path >= it[1].path) {
            return wrong(format!("has {:?} not after {:?}", pair[1].path, pair[0].path));
        }
        for it in &files {
            let fits = |bytes: &u64| {
                it.file.offset.checked_add(it.file.bytes).is_some_and(|end| end <= *bytes)
            };
            if !bodies.get(&it.file.body).is_some_and(fits) {
                return wrong(format!("has no bytes for {:?}", it.path));
            }
            if !filesets.contains_key(&it.fileset) {
                return wrong(format!("has no fileset {} for {:?}", it.fileset, it.path));
            }
        }
        Ok(Self { files, filesets, bodies, rules: String::new() })
    }

    /// Made with rules of this text.
    #[must_use]
    pub fn with_rules(self, rules: String) -> Self {
        Self { rules, ..self }
    }

    /// The files alone, in the order of their paths, to be compared with those of another.
    pub(crate) fn of_files(files: Vec<TreeFile>) -> Self {
        Self { files, ..Self::default() }
    }

    /// In the order of their paths.
    pub fn files(&self) -> &[TreeFile] {
        &self.files
    }

    /// By name.
    pub fn filesets(&self) -> &BTreeMap<FilesetName, Fileset> {
        &self.filesets
    }

    /// The text of `content.toml`, as it was published; empty: there was none.
    pub fn rules(&self) -> &str {
        &self.rules
    }

    /// Whether it has the rules of another, and the same filesets with the same commits.
    pub fn has_rules_of(&self, other: &Self) -> bool {
        self.filesets == other.filesets && self.rules == other.rules
    }

    /// The bodies that hold the files, with their sizes.
    pub fn bodies(&self) -> &BTreeMap<Digest, u64> {
        &self.bodies
    }

    /// All bytes of its files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|it| it.file.bytes).sum()
    }

    /// The file at a path.
    pub fn file(&self, path: &str) -> Option<&TreeFile> {
        let at = self.files.binary_search_by(|it| it.path.as_str().cmp(path)).ok()?;
        self.files.get(at)
    }

    /// What differs from an earlier tree, in the order of paths. Where the bytes lie does not count.
    pub fn differences<'a>(&'a self, from: &'a Tree) -> Vec<Difference<'a>> {
        self.compared(from, is_same)
    }

    /// The same for records, which also say which commit and where the bytes lie. A file that went and came back has
    /// another commit, and one whose body was made again lies elsewhere.
    pub(crate) fn told_differences<'a>(&'a self, from: &'a Tree) -> Vec<Difference<'a>> {
        self.compared(from, |one, other| one == other)
    }

    fn compared<'a>(
        &'a self,
        from: &'a Tree,
        is_same: impl Fn(&TreeFile, &TreeFile) -> bool,
    ) -> Vec<Difference<'a>> {
        let (mut old, mut new) = (from.files.iter().peekable(), self.files.iter().peekable());
        let mut all = Vec::new();
        loop {
            let order = match (old.peek(), new.peek()) {
                (None, None) => return all,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(one), Some(other)) => one.path.cmp(&other.path),
            };
            match order {
                Ordering::Less => all.extend(old.next().map(Difference::Removed)),
                Ordering::Greater => all.extend(new.next().map(Difference::Added)),
                Ordering::Equal => {
                    if let (Some(from), Some(to)) = (old.next(), new.next())
                        && !is_same(from, to)
                    {
                        all.push(Difference::Changed { from, to });
                    }
                }
            }
        }
    }
}

/// Whether a file is as it was. Where its bytes lie does not count.
pub(crate) fn is_same(one: &TreeFile, other: &TreeFile) -> bool {
    let key = |it: &TreeFile| (it.file.sha256, it.file.executable);
    one.fileset == other.fileset && key(one) == key(other)
}
