//! Takes inputs apart, hands each to the room that it is for, and gives the effects of a batch out.

pub(crate) mod inputs;
pub(crate) mod observe;
pub(crate) mod restart;
pub(crate) mod waits;
