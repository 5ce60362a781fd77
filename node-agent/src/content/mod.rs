//! The content that this node follows: classes, programs and actions that operators publish.
//!
//! ```text
//!  managers ── updates feed ──▶ follow ──▶ db: records            (DATA/content/REPOSITORY/records.redb)
//!           ── bodies ────────▶ download ▶ cache: files by digest (…/cache)
//!                               version: hard links of a commit   (…/versions/COMMIT-ACCESS, …/current)
//!                               catalog ──▶ the agent: classes, each with its folder
//! ```
//!
//! A session keeps the version that it began with: the folder stays until the last such session has ended. So does that
//! of a repository that the node follows no more.

mod cache;
mod db;
mod download;
mod effects;
mod follow;
mod left;
mod repository;
mod status;
mod version;

pub use follow::{Following, start};
pub use status::{ContentStatus, Standing};
pub use version::{content_of_version, files_of_version, version_at_start};

/// Below the data folder.
const FOLDER: &str = "content";
