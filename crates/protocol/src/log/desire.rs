//! What a partition's owner wants changed in the View.

use rota_model::{ManagerNumber, MemberId};
use rota_ring::FoundAgain;

/// What a partition's owner wants changed in the View.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Desire {
    Add(Vec<MemberId>),
    Shrink(MemberId),
    Bump,
    /// That newcomer's arc is to be cut out.
    Split(ManagerNumber),
    /// Who leaves the ring goes: enough others hold everything.
    Release,
    /// Acknowledged writes are lost: that manager is to find again what it can.
    GiveUp(MemberId),
    /// That one holds more, and is to do it.
    HandRecovery(MemberId),
    /// That one has found so much.
    Recovered(MemberId, FoundAgain),
}
