//! How stale what is read may be.

/// How stale a document may be that an operation asks for, in milliseconds. 0: not at all; only
/// then it may be changed, and is validated.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Tolerance(pub u64);

impl Tolerance {
    /// The newest state, which stays so until the operation is valid.
    pub const NONE: Tolerance = Tolerance(0);

    /// That many seconds.
    pub const fn seconds(seconds: u32) -> Self {
        Self(seconds as u64 * 1_000)
    }
}
