//! Where the View and the node registry live: a port, and what stands behind it.
//!
//! ```text
//!   manager ── ConfigStore ──┬── fake      in this process, for tests
//!                            └── embedded  HTTP/1.1 + JSON ──> rota-config-store, one durable file
//! ```
//!
//! * [`port`]: the trait, its errors, and what a change must satisfy before any store looks at it.
//! * [`wire`]: the store's state and requests as JSON, for the wire and for the file.
//! * [`fake`], [`embedded`]: the adapters.
//! * [`watcher`]: a task that follows a store and says since when it is away.

pub mod embedded;
pub mod fake;
pub mod port;
pub mod watcher;
pub mod wire;

pub use embedded::EmbeddedStore;
pub use fake::{FakeStore, Outage};
pub use port::{CasReply, ConfigStore, StoreError, StoreFuture};
pub use watcher::{Trouble, Watcher};
