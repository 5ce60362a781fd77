//! The ground under the black-box tests: real processes in a folder of their own.
//!
//! ```text
//!  TestFolder ──▶ Cluster (`ringctl dev`) ──▶ managers, node-agents, config store
//!      │     ├──▶ Assembled: Consul, managers and nodes, each started by the test
//!      │     ├──▶ Launched: one process alone
//!      │     └──▶ Booted: a system of its own, with a real systemd
//!      └── processes::of_folder: whatever still runs for this test, found by the folder's name
//! ```
//!
//! * Ports are free ones; a test kills by pid, and only what it started.
//! * A test ends with [`Cluster::end`], which fails when any process is left.
//! * A test that fails ends its processes and keeps its folder, and prints where it is.
//! * Nothing sleeps for a while and hopes: [`eventually`] waits for a condition, with a deadline.

mod assembled;
mod binaries;
mod booted;
pub mod brief;
pub mod busy;
mod classes;
mod cluster;
mod condition;
mod engine;
mod folder;
mod following;
mod http;
mod launched;
pub mod namespaces;
mod postgres;
pub mod processes;
pub mod programs;
pub mod recorded;
mod ringctl;
mod servers;
pub mod sessions;
mod skipped;
pub mod small;

pub use assembled::{Assembled, Leases, Member, Places};
pub use binaries::{binary, checkout};
pub use booted::{Booted, ControlGroups};
pub use classes::{classes_of, shipped_classes_and};
pub use cluster::{Cluster, Document, Manager, Node, Store};
pub use condition::{PATIENCE, eventually};
pub use engine::Engine;
pub use folder::TestFolder;
pub use following::Following;
pub use http::{Event, EventStream, HttpRequest, Page, http_ask, http_get, http_post};
pub use launched::{Ended, Launched, run_to_end};
pub use postgres::PostgresServer;
pub use ringctl::{Ran, ringctl, ringctl_in};
pub use servers::ConsulServer;
pub use skipped::skipped;
