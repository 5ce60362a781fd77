//! What comes in and goes out: inputs, effects, what a driver waits for. Nothing here decides.

pub mod bodies;
pub mod carry_out;
pub mod io;
pub mod note;
pub mod number_keys;
pub mod slots;
pub mod task_work;
pub mod wait;
pub mod work;
