//! Durable records with group commit.
mod counters;
pub mod disk;
mod engine;
mod error;
mod folder;
mod log;
mod record;
mod redb_engine;
mod writer;

pub use counters::Counters;
pub use disk::{Disk, DiskFile, RealDisk};
pub use engine::{Engine, EngineKind, KEY_BYTES_MAX, KvWrite, VALUE_BYTES_MAX, Visit};
pub use error::EngineError;
pub use folder::{FORMAT, Label};
pub use log::{LogEngine, LogSettings};
pub use redb_engine::{RedbEngine, RedbSettings};
pub use writer::*;
