//! How items of a class are copied to documents of other classes, as a schema declares it.

use crate::name::ItemName;

/// How the items of a class are copied.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopyRule {
    /// The classes of documents that hold copies.
    pub to: Vec<&'static str>,
    /// What stands between the key of an item and the id of its document.
    pub separator: char,
}

impl CopyRule {
    /// The key under which others hold an item of that document.
    pub fn key(&self, item: &ItemName, docid: &str) -> String {
        item.key().map_or_else(|| docid.to_owned(), |key| format!("{key}{}{docid}", self.separator))
    }
}
