//! Pages of results: those of one index, and several put together.

mod merge;
mod ranges;
mod walk;

use crate::index::Index;
use crate::query::{Position, Search};
use rota_docstore::{Content, DocName, Document, Exception};
use rota_model::{FieldError, Stamp};
use std::sync::Arc;

pub use merge::{Slots, merge};
pub(crate) use ranges::{Merged, Range, entries};

/// Most results of a page.
pub const HITS_MAX: usize = 1_000;

/// What a page may cost. A page that reaches a limit ends early and says where the next one goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Most results: 1 to [`HITS_MAX`].
    pub hits: usize,
    /// Most bytes of contents; the first result is always there.
    pub bytes: u64,
    /// Most documents that are read. Too low: searches that find little need many pages. Too high: they
    /// hold up whatever else the caller's thread does, by some microseconds for each.
    pub documents: u64,
    /// So many entries of each condition are counted to find the rarest, and so many places are gathered
    /// and sorted at most. Too low: two conditions that are rare together are found on many pages. Too
    /// high: each page counts so many entries, of some 50 ns, for each condition.
    pub gathered: usize,
}

impl Limits {
    /// So many results, with usual limits for the rest. Field: `limit`.
    pub fn new(hits: usize) -> Result<Self, FieldError> {
        if !(1..=HITS_MAX).contains(&hits) {
            let problem = format!("is {hits}, and must be 1 to {HITS_MAX}");
            return Err(FieldError::new("limit", problem));
        }
        Ok(Self { hits, bytes: 1024 * 1024, documents: 5_000, gathered: 2_000 })
    }
}

/// One result.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Hit {
    /// Where it stands, which says its document and key.
    pub at: Position,
    /// The document's version.
    pub version: Stamp,
    /// The content of an item. `None` of documents and of derived fields.
    pub content: Option<Content>,
}

/// Some results, in order.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Page {
    /// The results; there may be none on a page that is not the last one.
    pub hits: Vec<Hit>,
    /// Everything up to here was looked at: the next page goes on behind it. `None`: this is the last page.
    pub next: Option<Position>,
    /// How many documents were read for it.
    pub documents_read: u64,
}

/// Finds a document by its name.
pub type Read<'a> = &'a dyn Fn(&DocName) -> Option<Arc<Document>>;

impl Index {
    /// The page behind a position; `None`: the first one. `read` gives documents as the index was told
    /// of them last. `now` is what ages are reckoned from. Errors are those of a special search.
    pub fn page(
        &self,
        search: &Search,
        after: Option<&Position>,
        now: Stamp,
        limits: Limits,
        read: Read<'_>,
    ) -> Result<Page, Exception> {
        walk::page(self, search, after, now, limits, read)
    }
}

/// Collects the results of a page in order.
pub(crate) struct Filling {
    limits: Limits,
    bytes: u64,
    pub(crate) hits: Vec<Hit>,
}

impl Filling {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, bytes: 0, hits: Vec::new() }
    }

    /// Adds a result. Says no, and takes nothing, when the page is full.
    pub(crate) fn add(&mut self, hit: Hit) -> bool {
        let bytes = hit.content.as_ref().map_or(0, Content::volume);
        let is_full = self.hits.len() >= self.limits.hits
            || !self.hits.is_empty() && self.bytes + bytes > self.limits.bytes;
        if !is_full {
            self.bytes += bytes;
            self.hits.push(hit);
        }
        !is_full
    }

    pub(crate) fn last(&self) -> Option<Position> {
        self.hits.last().map(|it| it.at.clone())
    }
}
