//! Where things live: slots, homes, successors, the View and its changes. Pure.
//!
//! ```text
//!        slot = xxh3_64(placement key) % m
//!   0 ──────────── 300 ─────────── 700 ──────────── 1000 ── m-1 ─┐
//!   └ (1000, 300]  ┘  (300, 700]    ┘  (700, 1000]    ┘  ────────┘  wraps to 300
//! ```
//!
//! A manager's reserved number ends a *partition*: the slots after the previous number, up to and
//! including its own. The first reserved number at or after a slot is the slot's *home*; who owns
//! the partition at this moment is what the [`View`] says, and routing uses the View only.
//!
//! * [`place`]: hashing and the arithmetic of the ring.
//! * [`view`]: the View, one value under one key of the config store.
//! * [`change`]: the only ways a View changes, each a pure function to the next View.
//! * [`absent`]: who goes out with a claim, since nobody else is there to write it.
//! * [`arcs`]: which number a newcomer gets that has no wish.
//! * [`join`]: the changes by which a new number comes into the ring.
//! * [`leave`]: those by which one leaves it, and comes back.
//! * [`node_order`]: what operators want of nodes.
//! * [`config`]: everything in the config store, and a compare-and-set on it.

pub mod absent;
pub mod arcs;
pub mod change;
pub mod claim;
pub mod config;
pub mod join;
pub mod leave;
pub mod node_order;
pub mod place;
pub mod under_way;
pub mod view;

pub use absent::Others;
pub use arcs::Arcs;
pub use claim::{Claim, ClaimRefused};
pub use config::{Change, ConfigState, Dropped, NodeChange, NodeReg};
pub use leave::{CancelRefused, LeaveRefused};
pub use node_order::{DRAIN_MS_MAX, DrainTime, NodeOrder, NodeOrderRefused, NodeWish, Spares};
pub use place::{slot_of_document, slot_of_node, slot_of_pool, slot_of_session, together};
pub use under_way::UnderWay;
pub use view::{
    FoundAgain, IsrMember, Loss, ManagerEntry, PartitionEntry, PartitionState, Recovered,
    RingShape, RingTransition, Split, View, ViewError,
};
