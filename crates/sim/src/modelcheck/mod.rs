//! The protocol as it ships, every order of events within bounds: the managers of `rota_protocol`, the
//! nodes of `rota_node` and the View of `rota_ring`, the very code, between a network, a config store,
//! disks and clients that may do whatever the bounds allow.
//!
//! * [`bounds`], [`left`]: what may happen, and how often; [`suite`]: the searches.
//! * [`explore`]: the search; [`state`]: what it searches; [`actions`]: what may happen in a state.
//! * [`room`], [`work`]: how one state becomes the next, and what is left out of consideration and why.
//! * [`known`]: what is computed once, and what came about.
//! * [`hosts`], [`names`], [`flying`], [`clients`]: processes, messages, and what clients know.
//! * [`late`]: messages that matter to nobody any more.
//! * [`check`]: what must hold in each state; [`fair`]: what must come in the end.
//! * [`mutant`]: bugs that are planted to prove that they would be found.

pub mod actions;
pub mod bounds;
pub mod check;
pub mod clients;
pub mod explore;
pub mod fair;
pub mod flying;
pub mod hosts;
pub mod known;
pub mod late;
pub mod left;
pub mod mutant;
pub mod names;
mod node_host;
pub mod room;
pub mod seen;
pub mod state;
pub mod suite;
pub mod words;
pub mod work;

pub use bounds::Bounds;
pub use explore::{Broken, Explored, Progress, explore, explore_telling, explore_watching};
pub use left::Left;
