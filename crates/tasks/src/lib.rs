//! Tasks: work that an operation leaves for later. Pure: whoever calls says what time it is.
//!
//! * [`Cron`]: the short text that says when a periodic task runs.

mod cron;

pub use cron::Cron;
