//! Which names files of a repository may have.

use rota_model::FieldError;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use std::collections::BTreeMap;
use std::fmt;
use unicode_normalization::UnicodeNormalization;

/// Longest path of a file, in bytes.
pub const PATH_BYTES_MAX: usize = 1_024;
/// Longest part of a path, in bytes: what file systems take.
const PART_BYTES_MAX: usize = 255;
/// Most files of a commit.
pub const FILES_MAX: usize = 1_000_000;
/// Below this lie control records, which are no files.
pub(crate) const CONTROL: &str = ".rota";

/// The path of a file below the root of its repository, with `/` between its parts.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "SmolStr", into = "SmolStr")]
pub struct FilePath(SmolStr);

impl FilePath {
    /// From its text. Field: `path`.
    ///
    /// # Errors
    /// It is empty, absolute or too long; it has a part that is empty, `.`, `..` or too long, or a control
    /// character; or it lies where control records do.
    pub fn parse(text: &str) -> Result<Self, FieldError> {
        let wrong = |problem: String| Err(FieldError::new("path", problem));
        let shown = || text.chars().take(80).collect::<String>();
        if text.is_empty() || text.len() > PATH_BYTES_MAX {
            let bytes = text.len();
            return wrong(format!("has {bytes} bytes; it must have 1 to {PATH_BYTES_MAX}"));
        }
        if text.chars().any(char::is_control) {
            return wrong(format!("{:?} has a control character", shown()));
        }
        if text.starts_with('/') {
            return wrong(format!(
                "{:?} is absolute; it must begin at the root of the content",
                shown()
            ));
        }
        for part in text.split('/') {
            match part {
                "" => return wrong(format!("{:?} has an empty part", shown())),
                "." | ".." => return wrong(format!("{:?} has a part {part:?}", shown())),
                _ if part.len() > PART_BYTES_MAX => {
                    return wrong(format!(
                        "{:?} has a part of over {PART_BYTES_MAX} bytes",
                        shown()
                    ));
                }
                _ => {}
            }
        }
        if text == CONTROL || text.starts_with(".rota/") {
            return wrong(format!("{:?} lies in {CONTROL}, which is Rota's own", shown()));
        }
        Ok(Self(SmolStr::new(text)))
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What follows the last point of its name, unless the name begins there.
    pub fn extension(&self) -> Option<&str> {
        let name = self.0.rsplit('/').next()?;
        let (stem, extension) = name.rsplit_once('.')?;
        (!stem.is_empty()).then_some(extension)
    }

    /// Whether it is this, or lies below it.
    pub fn is_under(&self, above: &FilePath) -> bool {
        let rest = self.0.strip_prefix(above.as_str());
        rest.is_some_and(|it| it.is_empty() || it.starts_with('/'))
    }
}

impl fmt::Display for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl TryFrom<SmolStr> for FilePath {
    type Error = FieldError;
    fn try_from(text: SmolStr) -> Result<Self, FieldError> {
        Self::parse(&text)
    }
}

impl From<FilePath> for SmolStr {
    fn from(it: FilePath) -> Self {
        it.0
    }
}

/// Finds paths that some file systems take for one: they differ in capitals only, or in how Unicode writes their
/// characters; and paths of which one is a folder of the other.
#[derive(Debug, Default)]
pub struct Clashes {
    files: BTreeMap<String, FilePath>,
    /// With a file that lies in it.
    folders: BTreeMap<String, FilePath>,
}

impl Clashes {
    /// Takes one more path.
    ///
    /// # Errors
    /// It clashes with an earlier one, which is named.
    pub fn take(&mut self, path: &FilePath) -> Result<(), FieldError> {
        let folded = folded(path.as_str());
        let clash = |other: &FilePath, why: &str| {
            Err(FieldError::new("path", format!("{path:?} and {other:?} {why}")))
        };
        if let Some(other) = self.files.get(&folded) {
            return clash(other, "are one file where capitals or forms of Unicode do not count");
        }
        if let Some(inside) = self.folders.get(&folded) {
            return clash(inside, "cannot both be there: one is a folder of the other");
        }
        let ends = folded.match_indices('/').map(|(at, _)| at);
        let own_ends: Vec<usize> = path.as_str().match_indices('/').map(|(at, _)| at).collect();
        for (end, own_end) in ends.zip(own_ends) {
            let folder = &folded[..end];
            if let Some(other) = self.files.get(folder) {
                return clash(other, "cannot both be there: one is a folder of the other");
            }
            match self.folders.get(folder) {
                Some(inside) if inside.as_str().get(..own_end) != path.as_str().get(..own_end) => {
                    return clash(
                        inside,
                        "lie in one folder where capitals or forms of Unicode do not count",
                    );
                }
                Some(_) => {}
                None => {
                    self.folders.insert(folder.to_owned(), path.clone());
                }
            }
        }
        self.files.insert(folded, path.clone());
        Ok(())
    }
}

/// A text that is equal for names that some file systems take for one.
fn folded(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    text.nfkc().collect::<String>().to_lowercase().nfkc().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> FilePath {
        FilePath::parse(text).unwrap()
    }

    #[test]
    fn paths_that_leave_the_tree_or_cannot_be_files_are_refused_with_the_reason() {
        let long = "x".repeat(256);
        let very_long = "x/".repeat(600);
        for (text, why) in [
            ("", "has 0 bytes"),
            ("/etc/passwd", "is absolute"),
            ("a/../b", "has a part \"..\""),
            ("..", "has a part \"..\""),
            ("./a", "has a part \".\""),
            ("a//b", "has an empty part"),
            ("a/", "has an empty part"),
            ("a\0b", "has a control character"),
            ("a\nb", "has a control character"),
            (".rota/commit/x", "is Rota's own"),
            (&long, "has a part of over 255 bytes"),
            (&very_long, "has 1200 bytes"),
        ] {
            let error = FilePath::parse(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text:?}: {error}");
        }
        for text in ["a", "a.b/c..d", ".hidden", "rot/ä b", "..."] {
            assert_eq!(path(text).as_str(), text);
        }
    }

    #[test]
    fn an_extension_is_what_follows_the_last_point_of_a_name() {
        let of = |text: &str| path(text).extension().map(str::to_owned);
        assert_eq!(of("a.b/c.tar.gz"), Some("gz".to_owned()));
        assert_eq!(of("a.b/c"), None);
        assert_eq!(of(".profile"), None);
    }

    #[test]
    fn a_path_is_under_itself_and_its_folders_only() {
        assert!(path("a/b").is_under(&path("a")));
        assert!(path("a/b").is_under(&path("a/b")));
        assert!(!path("ab").is_under(&path("a")));
    }

    #[test]
    fn names_that_are_one_elsewhere_clash() {
        let of = |texts: &[&str]| {
            let mut clashes = Clashes::default();
            texts.iter().try_for_each(|it| clashes.take(&path(it))).map_err(|it| it.to_string())
        };
        assert_eq!(of(&["a", "b", "a.b", "c/a", "c/b", "d/a"]), Ok(()));
        for (texts, why) in [
            (["readme", "README"], "are one file"),
            (["caf\u{e9}", "cafe\u{301}"], "are one file"),
            (["a", "a/b"], "a folder of the other"),
            (["a/b", "a"], "a folder of the other"),
            (["a/b", "A/c"], "lie in one folder"),
            (["a/b", "A"], "a folder of the other"),
        ] {
            assert!(of(&texts).unwrap_err().contains(why), "{texts:?}");
        }
    }
}
