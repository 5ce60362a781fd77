//! Where the View and the node registry live: a port, and what stands behind it.
//!
//! ```text
//!   manager ── ConfigStore ──┬── fake      in this process, for tests
//!                            ├── embedded  HTTP/1.1 + JSON ──> rota-config-store, one durable file
//!                            └── consul    HTTP/1.1 ──> local agent ──> Consul's servers, one key
//! ```
//!
//! * [`port`]: the trait, its errors, and what a change must satisfy before any store looks at it.
//! * [`wire`]: the store's state and requests as JSON, for the wire, the file and the key.
//! * [`fake`], [`embedded`], [`consul`]: the adapters; [`address`] picks one by its address.
//! * [`watcher`]: a task that follows a store and says since when it is away.
//!
//! [`consul`] also registers managers and node-agents as services with health checks, and tells
//! who looks gone.

pub mod address;
pub mod consul;
pub mod embedded;
pub mod fake;
pub mod port;
pub mod watcher;
pub mod wire;

pub use address::StoreAddress;
pub use consul::{ConsulAddress, ConsulStore};
pub use embedded::EmbeddedStore;
pub use fake::{FakeStore, Outage};
pub use port::{CasReply, ConfigStore, StoreError, StoreFuture};
pub use watcher::{Trouble, Watcher};
