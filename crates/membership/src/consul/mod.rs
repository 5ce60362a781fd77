//! Consul as the config store, as the list of who serves where, and as a detector of the dead.
//!
//! ```text
//!   ConsulStore ── one key: PREFIX/state ──── reads ?consistent, compare-and-set, blocking query
//!   Registration ─ PREFIX-manager, PREFIX-node, each with a gRPC health check of one second
//!   Marks ──────── keys of their own, by compare-and-set: what is to be done once
//!   PeerHealth ─── blocking query of a service's health ──▶ managers that look gone: suspicions
//! ```
//!
//! Everything goes to the local agent, over plain HTTP, with a deadline on every call. View and
//! node registry stand in one key so that one compare-and-set guards both, and so that a read shows
//! them as they stood at one moment. The value is the state's JSON of [`crate::wire`]; the index
//! of the state is inside it, because Consul's own index may go back.
//!
//! An outcome that nobody knows is never called a conflict: only the answer `false` of Consul is
//! one, and after it the key is read again. Neither the HTTP client nor Consul's agents send a
//! write twice that may have been carried out.
//!
//! Consul's *sessions* are not used: they are slow to expire, and the lease of a node and the
//! compare-and-set of the View already say who may act.

mod address;
mod agent;
mod health;
mod key;
mod marks;
mod service;
mod store;

pub use address::ConsulAddress;
pub use agent::Agent;
pub use health::PeerHealth;
pub use marks::{Mark, Marks};
pub use service::{Registration, Service, ServiceKind};
pub use store::{ConsulStore, VALUE_BYTES_MAX};
