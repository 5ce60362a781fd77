//! Who waits for the answer to a request, and why a life ends for which an open waits.

use rota_model::{ManagerNumber, MemberId};

/// Where a request came from: this manager's own clients, or a peer on behalf of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Origin {
    Here {
        rid: u64,
    },
    Peer {
        from: MemberId,
        rid: u64,
    },
    /// The tasks of that partition, which this manager owns.
    Task {
        part: ManagerNumber,
        rid: u64,
    },
}

impl Origin {
    /// The manager that waits.
    pub fn manager(&self, me: ManagerNumber) -> ManagerNumber {
        match self {
            Self::Here { .. } | Self::Task { .. } => me,
            Self::Peer { from, .. } => from.number,
        }
    }
}

/// Why a life ends whose open waits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Ending {
    /// No node took it. The open begins anew once that is committed.
    Unplaced,
    /// A close came. The open is told so once that is finished.
    Overtaken,
}
