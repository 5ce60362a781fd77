//! Content that nodes run: classes, programs, actions, and what they need. Operators publish a folder as a *commit*;
//! nodes follow the newest one. Pure: files, clocks and managers are the caller's.
//!
//! ```text
//!  folder ── Rules ──▶ Scanned ── Draft ──▶ Tree ──▶ a commit of a repository (documents and attachments)
//!                                            │
//!                            Viewer ── Feed ─┴─▶ records ──▶ Refresh ──▶ FileDb, cache     (a node)
//! ```
//!
//! * [`FilePath`], [`Clashes`]: which names files may have.
//! * [`Rules`]: `content.toml`, which says to which *fileset category* a file belongs.
//! * [`Tree`], [`Draft`]: all files of a commit, and how the next commit is made of the one before it.
//! * [`Access`], [`feed()`]: what a node may see, and the records that it is told.
//! * [`Follows`]: which commit the nodes of a pool get.
//! * [`refresh`], [`steps`]: how a node brings its records and files up to date, in eight steps and their order.
//!
//! **Invariant:** `$latest` of a node names a commit only when every record of it is stored.

mod access;
mod category;
mod commit;
mod draft;
mod feed;
mod follow;
mod memory;
mod path;
mod record;
pub mod refresh;
mod rules;
pub mod steps;
mod tree;

pub use access::{Access, Viewer};
pub use category::{CATEGORY_BYTES_MAX, Category, FilesetName};
pub use commit::{COMMITS_KEPT, COMMITS_KEPT_MAX, Commit, Head, Held, MESSAGE_BYTES_MAX, TreeBody};
pub use draft::{BODIES_MAX, Draft, PACK_BYTES, Pack, Scanned, WHOLE_FROM_BYTES, restored};
pub use feed::feed;
pub use follow::{CONTENT_CLASS, FOLLOWS_CLASS, Follows, check_repository, with_content};
pub use memory::MemoryDb;
pub use path::{Clashes, FILES_MAX, FilePath, PATH_BYTES_MAX};
pub use record::{ACCESS_PATH, Detail, File, Hash, LATEST_PATH, Record, Status};
pub use refresh::FileDb;
pub use rules::{RULES_BYTES_MAX, RULES_FILE, Rules};
pub use tree::{Difference, Fileset, Tree, TreeFile};
