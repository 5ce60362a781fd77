//! Takes inputs apart, hands each to the room that it is for, and gives the effects of a batch out.

pub(crate) mod fingerprint;
pub(crate) mod hearing;
pub(crate) mod inputs;
pub(crate) mod inspect;
pub(crate) mod restart;
pub(crate) mod waits;
