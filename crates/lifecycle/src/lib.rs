//! Life cycles of a session: what happens to it at set times, and what waits for what. Pure: whoever calls says
//! what time it is.
//!
//! ```text
//!   reminder note@2026-11-28T09:00:00Z      the event note of the life cycle reminder, at that time
//!   bill reminder?note                      when note of reminder has been reached
//!   key made retire@261201000000000         made is a mark; only the last word has something to fire
//!
//!   edit ──▶ held ── due ──▶ an action ── fire, skip ──▶ fired ── all of its life cycle ──▶ history
//!             │  ▲                │                                                            │
//!             │  └──── retry ── fail                                                  purge ──▶ gone
//!             └── edit (remove) ──▶ gone; to the history when it has fired
//! ```
//!
//! * [`LifeItem`], [`Word`], [`Name`]: the grammar. Printing an item gives back its text.
//! * [`Managed`]: the life cycles of one session, as one document holds them.
//! * [`Edit`]: what a commit adds, removes and finishes. It is taken whole or refused whole.
//! * [`Due`]: what is to fire. [`Failure`]: why it did not.
//! * [`Patch`]: what an action prints to change its session.
//!
//! A commit calls [`Managed::fire`], [`Managed::fail`], [`Managed::edit`] as it needs them, then
//! [`Managed::fire_marks`] once. After it, [`Managed::due`] says which actions to start.
//!
//! **Invariant:** an event fires at most once, and every due event stays due until it fired, failed or went.

mod cycles;
mod edit;
mod engine;
mod item;
mod managed;
mod name;
mod patch;
mod time;

pub use edit::Edit;
pub use engine::Due;
pub use item::{ITEM_BYTES_MAX, LifeItem, Word};
pub use managed::{
    CODE_BYTES_MAX, Failure, Fired, HISTORY_MAX, Held, ITEMS_BYTES_MAX, ITEMS_MAX, Managed, Past,
    REPORT_BYTES_MAX,
};
pub use name::{NAME_BYTES_MAX, Name, RESERVED};
pub use patch::{PATCH_BYTES_MAX, Patch};
