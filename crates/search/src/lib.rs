//! Indexed fields of documents, searches in pages, and the filter language. Pure: whoever calls says what
//! time it is, and reads documents.
//!
//! ```text
//!  Schema::field ─▶ Shapes ─▶ Index ◀── change(before, after): every change of a document
//!                     │         │
//!  text ─▶ Filter ─▶ Query ─▶ Search ──▶ page(after, limits) ─▶ Page ─┬─▶ merge ─▶ Page of the ring
//!            │                                  of another owner ─────┘      └─▶ token ─▶ next page
//!            └─▶ matches: a session or a task, without an index
//! ```
//! * [`Fields`], [`Filter`]: the language. [`Values`]: whatever a filter is asked about.
//! * [`Shapes`], [`Index`]: what of which documents is indexed.
//! * [`Query`], [`Search`]: what is searched, and in which order.
//! * [`Limits`], [`Page`], [`merge`]: results, so many at a time.
//! * [`Matcher`]: a filter that is asked about one document after another.
//! * [`SpecialSearches`]: searches of an application's own.
//!
//! A search has one total order of results, which depends on nothing but the search: by the value that it is
//! sorted by, then namespace, docid and key. A page token is a place in that order. It names no owner and
//! no index, so the next page may come from whoever has the documents then.
//!
//! **Invariant:** what does not change while pages are fetched is on exactly one of them.

mod fields;
pub mod filter;
mod index;
mod page;
mod query;
mod shapes;
mod single;
mod special;
mod value;

pub use fields::{AGE_MS_MAX, DOCID, Fields, KEY, Kind};
pub use filter::{CONDITIONS_MAX, FILTER_BYTES_MAX, Filter, Values};
pub use index::{Index, Place, Size};
pub use page::{HITS_MAX, Hit, Limits, Page, Read, Slots, merge};
pub use query::{Position, Query, Search, Sort, Wanted};
pub use shapes::{Derive, Shapes};
pub use single::Matcher;
pub use special::{
    PARAMETERS_BYTES_MAX, PLACES_MAX, Special, SpecialSearch, SpecialSearches, View,
};
pub use value::{Comparison, Condition, LETTERS_KEPT, Number, Test, Value};
