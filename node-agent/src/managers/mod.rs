//! The node's calls to its managers: registration, signs of life, reports.

mod channels;
mod hearing;
mod keep_alive;
mod registration;
mod renewal;
mod reports;

pub use channels::Channels;
pub use hearing::Hearing;
pub use keep_alive::keep_alive;
pub use registration::{Outcome, register, sign_off};
pub use renewal::renew;
pub use reports::{Report, Reporter};
