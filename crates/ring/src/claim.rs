//! A manager's claim to its number, and why one is refused.

use crate::view::PartitionEntry;
use rota_model::{
    ClusterTimes, Epoch, Incarnation, ManagerId, ManagerNumber, ManagerStatus, Nonce, PeerTimes,
};
use std::collections::BTreeMap;

/// How many partitions a refusal names.
const NAMED_MAX: usize = 5;

/// A manager that wants its number: at its first start, after a restart, or after it was taken out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claim {
    /// The number.
    pub number: ManagerNumber,
    /// Its name.
    pub id: ManagerId,
    /// Where it serves gRPC.
    pub grpc: String,
    /// Where it serves HTTP.
    pub http: String,
    /// What its disk remembers: the last incarnation and nonce, and those it meant to take last.
    /// Empty for an empty disk.
    pub held: Vec<(Incarnation, Nonce)>,
    /// The incarnation that the disk certainly held.
    pub taken: Option<Incarnation>,
    /// Random; tells this claim apart.
    pub nonce: Nonce,
    /// Partitions on its disk, with the newest epoch that each saw.
    pub disk: BTreeMap<ManagerNumber, Epoch>,
    /// An operator says that the disk which this number had is gone for good.
    pub force_lost: bool,
    /// Times by which it judges nodes.
    pub times: ClusterTimes,
    /// How often it says that it is there, and how patient it is with others.
    pub peer_times: PeerTimes,
}

/// Why a claim is refused.
#[derive(Clone, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum ClaimRefused {
    /// Nobody reserved that number.
    #[error("number {0} is not reserved in this ring (reserved: {1})")]
    NotReserved(ManagerNumber, String),
    /// It belongs to another manager.
    #[error("number {number} belongs to manager {id:?} at {grpc}")]
    Taken {
        /// The number.
        number: ManagerNumber,
        /// Whose it is.
        id: ManagerId,
        /// Where that one serves.
        grpc: String,
    },
    /// It would judge nodes by other times than the others do.
    #[error("the managers of this cluster have other times: {0}")]
    OtherTimes(String),
    /// A newcomer's number does not exist.
    #[error("number {number} lies outside [0, {m}), the slots of this ring")]
    OutsideRing {
        /// The number.
        number: ManagerNumber,
        /// How many slots the ring has.
        m: u32,
    },
    /// A newcomer's name belongs to another number.
    #[error("manager {id:?} has number {number} in this ring already")]
    NameTaken {
        /// The name.
        id: ManagerId,
        /// Its number.
        number: ManagerNumber,
    },
    /// No newcomer fits in.
    #[error("this ring has {limit} managers, which is its limit")]
    RingFull {
        /// The limit.
        limit: u32,
    },
    /// No further number is reserved, but one that has left may be taken.
    #[error(
        "this ring has {limit} numbers, which is its limit; number {left} has left and may be taken"
    )]
    NumbersFull {
        /// The limit.
        limit: u32,
        /// The one of the widest arc that has left.
        left: ManagerNumber,
    },
    /// The ring changes in another way just now.
    #[error("number {number} cannot join now: {under_way} is under way, and one goes at a time")]
    InTransition {
        /// The newcomer's number.
        number: ManagerNumber,
        /// What is under way.
        under_way: crate::view::RingTransition,
    },
    /// It left.
    #[error(
        "number {0} has left this ring; a manager that was started with --join takes it again when \
         `ringctl join` tells it that number"
    )]
    HasLeft(ManagerNumber),
    /// A manager with that number runs, and this disk is not its disk.
    #[error(
        "number {number} is {status} (incarnation {incarnation}) and this data folder does not \
         hold that incarnation: another manager runs under it, or the folder is an old copy. An \
         empty folder may take the number while it is DOWN"
    )]
    NotThisDisk {
        /// The number.
        number: ManagerNumber,
        /// Its state.
        status: ManagerStatus,
        /// Its incarnation.
        incarnation: Incarnation,
    },
    /// The disk that this number had may hold the last copy of a partition, and this one is empty.
    #[error(
        "the manager that had number {number} held the last copy of {}: start it again with the data \
         folder that it had. If that is gone for good, tell an empty one to take the number with \
         `ringctl join --force-lost`: what only that folder held is lost then",
        named(.parts)
    )]
    LastCopy {
        /// The number.
        number: ManagerNumber,
        /// The partitions.
        parts: Vec<ManagerNumber>,
    },
    /// The disk ran that number later than the View knows of.
    #[error(
        "number {number} ran as incarnation {taken} in this data folder, and the config store knows \
         only of incarnation {incarnation}: the config store is new, or its data is an old copy. \
         Start it with the data that it had"
    )]
    StoreIsOlder {
        /// The number.
        number: ManagerNumber,
        /// The incarnation that the disk ran as.
        taken: Incarnation,
        /// The one that the View has.
        incarnation: Incarnation,
    },
    /// The disk knows of a View that the config store has forgotten.
    #[error(
        "partition {part} stands at epoch {pe} in this data folder, and the config store knows only \
         of epochs up to {epoch}: the config store is new, or its data is an old copy. Start it with \
         the data that it had"
    )]
    StoreIsBehind {
        /// The partition.
        part: ManagerNumber,
        /// Its epoch on the disk.
        pe: Epoch,
        /// The View's.
        epoch: Epoch,
    },
}

impl Claim {
    /// Whether its disk holds all that this partition's ISR holds (R2).
    pub(crate) fn is_exact(&self, n: ManagerNumber, part: &PartitionEntry) -> bool {
        let mine = part.isr.iter().find(|it| it.number == self.number);
        mine.is_some_and(|mine| self.disk.get(&n).is_some_and(|pe| *pe >= mine.since))
    }
}

/// Partitions, as a refusal names them: all, or the first ones.
fn named(parts: &[ManagerNumber]) -> String {
    let list: Vec<String> = parts.iter().take(NAMED_MAX).map(ToString::to_string).collect();
    let (list, more) = (list.join(", "), parts.len().saturating_sub(NAMED_MAX));
    let word = if parts.len() == 1 { "partition" } else { "partitions" };
    if more == 0 { format!("{word} {list}") } else { format!("{word} {list} and {more} more") }
}
