//! A load whose history is recorded, and the checks of that history.
//!
//! ```text
//!  Load: clients ── each call's begin and end ──▶ Book ──▶ history.jsonl in the test's folder
//!                                                   │
//!  nodes' logs ── executions ──▶ judge ◀────────────┘
//!                                  └── rota_sim: history, one_instance
//! ```

mod book;
mod executions;
mod load;
mod outage;
mod verdict;

pub use book::{Book, Recorded, Shown, Told, Wish, now_us};
pub use executions::{Execution, executions, key_of};
pub use load::{Classes, Clients, Load, Recording};
pub use outage::Outage;
pub use verdict::judge;
