//! Whole clusters in one thread from one seed.
//!
//! Managers, nodes, the config store and clients run under a simulated network, simulated clocks
//! and simulated disks. Everything that happens follows from the seed: delay, loss, repetition,
//! reordering, crashes and restarts, false suspicion, late writes of the config store.
//!
//! * [`ground`]: what every machine stands on, and nothing that decides: simulated time, the network, the random
//!   numbers, the observer; [`event`]: what happens.
//! * [`users`]: clients, writers of documents, watchers, and who describes the pool. They see the ground alone.
//! * [`world`]: the event loop, over the ground, the users and the machines.
//! * [`site`]: one machine, the ground, and a planted bug. What happens at the machine is given that, and reaches no
//!   other machine. Of a manager: `manager_process` (what it is told), `manager_effects`, `manager_disk`, [`link`] (its
//!   calls to nodes); state in [`manager_host`]. Of a node: `node_process` (what it is told, and its effects),
//!   [`program_host`] (programs under keepers), `agent_host` (agents that die alone); state in [`node_host`].
//! * [`fault`]: what goes wrong; [`orders`]: what operators want; [`run`]: from phase to phase.
//! * [`checker`] and [`invariant`]: what must hold; [`history`]: what clients saw, checked for real
//!   processes too.
//! * [`mutants`]: bugs that are planted to prove that they would be caught.
//!
//! Beside that, [`modelcheck`] searches every order of events within bounds, with the code that ships, and shows
//! that the removal of each rule is noticed. [`paper`] is the ring of the first text, refuted.

pub mod actions;
mod agent_host;
mod at_rest;
pub mod blob_store;
mod body_moves;
pub mod calls;
pub mod checker;
pub mod copying;
pub mod counters;
mod cuts;
pub mod disk;
pub mod disk_book;
pub mod event;
pub mod fault;
pub mod folders;
pub mod gone_events;
pub mod ground;
pub mod history;
pub mod invariant;
pub mod ledger;
pub mod life;
mod life_cycles;
pub mod link;
pub mod losses;
pub mod machines;
mod manager_disk;
mod manager_effects;
pub mod manager_host;
mod manager_orders;
mod manager_process;
mod manager_store;
pub mod modelcheck;
pub mod mutants;
pub mod network;
pub mod node_host;
pub mod node_orders;
mod node_process;
pub mod orders;
pub mod outage;
pub mod packet;
pub mod paper;
pub mod program_host;
pub mod queue;
pub mod rng;
pub mod run;
mod scan;
pub mod setup;
pub mod site;
pub mod store;
mod store_host;
mod tasks;
pub mod trace;
pub mod users;
pub mod world;
pub mod writing;

pub use counters::{Corner, Counters, Fault};
pub use mutants::Bug;
pub use run::{Outcome, run};
