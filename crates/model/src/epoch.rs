//! What orders things: epochs, log positions, tokens, incarnations, boot ids.

use crate::ids::number;
use serde::{Deserialize, Serialize};
use std::fmt;

number!(
    /// Number of a View, and (as `pe`) of the View in which a partition last changed.
    /// Every compare-and-set of the View adds one.
    Epoch(u64), "e"
);
number!(
    /// Place of an entry in a partition's log. Grows by one per entry, over owners too.
    Seq(u64), "q"
);
number!(
    /// Which run of a manager. Grows by one at each registration.
    Incarnation(u64), "i"
);
number!(
    /// A random number that tells two claims to one incarnation apart.
    Nonce(u64), "n"
);
number!(
    /// Names one start of a node-agent. Grows from boot to boot of one node, so that a late
    /// registration of an earlier boot is not taken for news.
    BootId(u64), "b"
);

impl Epoch {
    /// The next epoch.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl Incarnation {
    /// The next incarnation.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// A place in a partition's log. Positions order by epoch first: a new owner's entries come after
/// everything that an earlier owner wrote. Between replicas only positions order, never versions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct LogPos {
    /// The partition's epoch under which the entry was written.
    pub pe: Epoch,
    /// Its number.
    pub seq: Seq,
}

impl LogPos {
    /// Before every entry.
    pub const ZERO: LogPos = LogPos { pe: Epoch(0), seq: Seq(0) };

    /// A position from its parts.
    pub fn new(pe: Epoch, seq: Seq) -> Self {
        Self { pe, seq }
    }
}

impl fmt::Display for LogPos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.pe, self.seq)
    }
}

impl fmt::Debug for LogPos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{self}")
    }
}

/// Names one attempt to run a session on a node: the log position of its PENDING entry. A node
/// runs a token at most once; tokens of one id never repeat and grow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(pub LogPos);

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{}", self.0)
    }
}

/// The time as a decision sees it. Both clocks are given by the driver (or the simulator).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Now {
    /// Milliseconds of a clock that never steps; deadlines are measured on it.
    pub mono_ms: u64,
    /// Milliseconds since 1970, for stamps only; it may step.
    pub wall_ms: u64,
}
