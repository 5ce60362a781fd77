//! The searches: what they have in common, and those that find planted bugs.

mod ci;
mod nightly;

pub use ci::ci;
pub use nightly::nightly;

use super::bounds::{Bounds, From, Times};
use super::hosts::BEGUN_SHORT;
use super::left::Left;
use super::room::LEASE_OVER;
use crate::mutants::Bug;
use rota_protocol::Transition;

const NOTHING: Left = Left::NOTHING.starts(2);

const THREE: Bounds = Bounds {
    name: "n=3 r=1: open, close",
    numbers: &[10, 30, 50],
    r: 1,
    newcomers: &[],
    nodes: 2,
    places: 4,
    ids: &[(10, 10)],
    opened: 0,
    doors: &[10, 30],
    readers: &[10, 30],
    accuser: u32::MAX,
    mortal: u32::MAX,
    from: From::Rest,
    all_act: false,
    cut: u32::MAX,
    deaf: u32::MAX,
    left: NOTHING.opens(1).closes(1),
    leaver: u32::MAX,
    disk_apart: false,
    times: Times::Repeat,
    lives: true,
    shows: &[],
    states_max: 1_500_000,
};

/// What must come about ([`Bounds::shows`]): a tombstone is forgotten;
const PURGES: &[&str] = &[Transition::TombstonePurged.as_str()];
/// somebody stands in for a copy that is missing;
const STANDS_IN: &[&str] = &[Transition::StandInStarted.as_str()];
/// a life is begun although a copy is missing;
const BEGINS_SHORT: &[&str] = &[BEGUN_SHORT];
/// a Create is taken back of which nothing was sent;
const WITHDRAWS: &[&str] = &[Transition::Withdrawn.as_str()];
/// a node ends what it runs;
const LEASE_IS_OVER: &[&str] = &[LEASE_OVER];
/// a node, and what ran there, is lost.
const LOSES: &[&str] = &[Transition::NodeLost.as_str(), Transition::SessionLost.as_str()];

/// A node is lost, whatever its owners wait for.
const LOSES_NODE: &[&str] = &[Transition::NodeLost.as_str()];

/// One manager, no copies.
const ONE: Bounds = Bounds { numbers: &[10], r: 0, doors: &[10], ..THREE };
/// Two managers, each a copy of the other.
const TWO: Bounds = Bounds { numbers: &[10, 40], doors: &[10, 40], ..THREE };
/// A number comes between two others, and takes the id's arc from the second.
const JOIN: Bounds =
    Bounds { newcomers: &[20], ids: &[(30, 20)], doors: &[30], opened: 1, ..THREE };
/// Every manager holds everything.
const WIDE: Bounds = Bounds { r: 2, doors: &[10], ..THREE };
/// One id lives.
const OPENED: Bounds = Bounds { opened: 1, ..THREE };
/// The owner of the id leaves.
const LEAVE: Bounds = Bounds { opened: 1, leaver: 10, doors: &[30], ..THREE };
/// The same, and the number is added: nobody hears of that but the newcomer, and it is cut off from all
/// others.
const UNHEARD: Bounds =
    Bounds { from: From::Added, cut: 20, accuser: 20, doors: &[20], readers: &[20, 30], ..JOIN };
/// Two numbers come, into one arc.
const TWO_JOINS: Bounds = Bounds {
    numbers: &[10, 50],
    newcomers: &[30, 40],
    ids: &[(50, 30)],
    doors: &[50],
    opened: 1,
    ..THREE
};
/// Two numbers come, into one arc of a ring of three.
const THREE_TWO_JOINS: Bounds = Bounds {
    numbers: &[10, 30, 60],
    newcomers: &[40, 50],
    ids: &[(60, 40)],
    doors: &[60],
    ..TWO_JOINS
};
/// A node is drained on which a session may run.
const DRAIN: Bounds = Bounds { opened: 1, doors: &[10], ..THREE };
/// Leases end.
const LEASE: Bounds =
    Bounds { times: Times::Lease, doors: &[10], opened: 1, nodes: 1, shows: LOSES, ..THREE };
/// The same, and the session lies in the partition whose owner judges its node.
const LEASE_AT_OWNER: Bounds = Bounds { ids: &[(30, 30)], doors: &[30], ..LEASE };

/// The owner of the node hears nothing of it, and declares it lost; the owner of the session hears it.
const NODE_UNHEARD: Bounds = Bounds { deaf: 30, from: From::DeclaredLost, ..LEASE };

/// The owner of the session judges its node, and hears nothing of it. Others do.
const OWNER_DEAF: Bounds = Bounds { deaf: 30, shows: LEASE_IS_OVER, ..LEASE_AT_OWNER };

/// A number may come while something is due that takes long; one certain manager takes others for gone.
const JOIN_IN_TIME: Bounds = Bounds { nodes: 1, accuser: 30, ..JOIN };
/// A node is about to end what it runs.
const LEASE_ENDS: Bounds =
    Bounds { times: Times::Lease, from: From::LeaseEnds, shows: LEASE_IS_OVER, ..JOIN_IN_TIME };
/// A node is about to be lost.
const LOSING: Bounds =
    Bounds { times: Times::Lease, from: From::Losing, shows: LOSES, ..JOIN_IN_TIME };
/// The id was closed, and is about to be forgotten.
const TOMBSTONE_GOES: Bounds =
    Bounds { times: Times::Tombstone, from: From::Ended, shows: PURGES, ..JOIN_IN_TIME };
/// A copy has been missing for almost so long that another is made, and that opens wait for it no longer.
const COPY_MISSED: Bounds = Bounds {
    times: Times::Copies,
    from: From::Missed,
    ids: &[(30, 30)],
    doors: &[30],
    shows: STANDS_IN,
    ..OPENED
};
/// The same, and a number may come.
const JOIN_MISSED: Bounds =
    Bounds { times: Times::Copies, from: From::Missed, shows: STANDS_IN, ..JOIN_IN_TIME };

/// The smallest bounds within which a planted bug is found. `None` for bugs of what a model leaves out
/// (documents, lists, watches, bodies, disks that go back): the simulator finds those.
pub fn bounds_for(bug: Bug) -> Option<Bounds> {
    let (bounds, left) = found_within(bug)?;
    Some(Bounds { name: bug.as_str(), lives: is_seen_at_rest(bug), left, ..bounds })
}

#[allow(clippy::too_many_lines, reason = "it is a list")]
fn found_within(bug: Bug) -> Option<(Bounds, Left)> {
    let (n, rejoin) = (NOTHING, NOTHING.suspicions(1).ticks(3));
    let of = |bounds, left| Some((bounds, left));
    match bug {
        Bug::BootIgnored => of(Bounds { doors: &[10], ..THREE }, n.opens(1).boots(1)),
        Bug::StaleConfirm | Bug::AddedUnasked | Bug::LoneUnread => Some(of_reads(bug)),
        Bug::FullAssumed | Bug::UnsentAssumed | Bug::WithdrawnLater => Some(of_creates(bug)),
        Bug::SuffixKept | Bug::HiddenTail => of(WIDE, n.opens(1).crashes(1)),
        Bug::NoRedrive => of(TWO, n.opens(1).crashes(1)),
        Bug::TimeoutThenProceed => of(TWO, n.opens(1)),
        Bug::AckBeforeDisk => of(Bounds { disk_apart: true, ..TWO }, n.opens(1)),
        Bug::DestroyAssumed => of(Bounds { opened: 1, ..TWO }, n.closes(1)),
        Bug::CarelessStore => of(TWO, n.suspicions(2)),
        Bug::EmptySnapshot | Bug::EarlyMember => of(Bounds { opened: 1, ..TWO }, rejoin),
        Bug::GrantUnwaited => of(NODE_UNHEARD, n.ticks(1)),
        Bug::NewOwnerUnwaited => of(NODE_UNHEARD, n.ticks(1).suspicions(1)),
        Bug::GrantForAll => of(OWNER_DEAF, n.ticks(7)),
        Bug::JournalLate
        | Bug::AdoptedAnew
        | Bug::DeadForgotten
        | Bug::FencesForgotten
        | Bug::LeaseByItself
        | Bug::NewsForgotten => of_agents(bug),
        Bug::LeaseIgnored => of(LEASE, n.silences(1).ticks(9)),
        Bug::SplitUnfenced | Bug::EarlyHandOver | Bug::EmptyArc | Bug::ReplicaKept => {
            of(JOIN, n.joins(1).ticks(6))
        }
        Bug::JoinHidden => of(TWO_JOINS, n.joins(2).ticks(2)),
        Bug::CordonForgotten => of(DRAIN, n.drains(1).boots(1)),
        Bug::CordonUnseen => of(Bounds { opened: 0, ..DRAIN }, n.opens(1).drains(2)),
        Bug::DrainHidden => of(DRAIN, n.drains(1)),
        Bug::HandedToStranger => of(LEAVE, n.leaves(1).ticks(4)),
        Bug::FullForgotten
        | Bug::NoFence
        | Bug::RecoverySkipped
        | Bug::LateAckCounted
        | Bug::OldEpochAcked
        | Bug::RegisteredEarly
        | Bug::ServedUnsynced
        | Bug::ClaimedEarly
        | Bug::DestroyedForgotten
        | Bug::DeltaAfterLoss => of_epochs(bug),
        Bug::CopiesUnawaited
        | Bug::ShedEarly
        | Bug::BootUnfenced
        | Bug::BetterUnawaited
        | Bug::AddingForgotten
        | Bug::SyncSettled
        | Bug::LeaseFromAnswer
        | Bug::DeadlineIgnored
        | Bug::EndedForgotten
        | Bug::ScanSkipped
        | Bug::ScanUnfenced
        | Bug::GivenUpEarly
        | Bug::WrongR2
        | Bug::RequestForgotten
        | Bug::MemoryForgotten
        | Bug::WriteForgotten
        | Bug::BodyBoasted
        | Bug::ClosingReopened
        | Bug::LateChunk
        | Bug::LeaseNotAnew
        | Bug::BootUnproven
        | Bug::FolderBelieved
        | Bug::ChangeDenied
        | Bug::NewsDropped
        | Bug::ListMisses
        | Bug::WatchMisses
        | Bug::AllDisturbed
        | Bug::LeftEarly
        | Bug::ReleasedUnwedged
        | Bug::ClaimStays
        | Bug::LeftToTheGone
        | Bug::OneMayReturn
        | Bug::OtherRingFollowed
        | Bug::OldStoreFollowed
        | Bug::TaskEndApart
        | Bug::TaskUnrun
        | Bug::SearchUnbuilt
        | Bug::CopyForgotten
        | Bug::ActionTwice
        | Bug::ActionUnguarded
        | Bug::EventUnrun
        | Bug::ClosingRestarted
        | Bug::GoneActed
        | Bug::EndedActed
        | Bug::TimerLost
        | Bug::ActionUnrun
        | Bug::DropsUnsaid => None,
    }
}

/// Rules of agents that die alone.
fn of_agents(bug: Bug) -> Option<(Bounds, Left)> {
    let n = NOTHING.resumes(1);
    let anew = Bounds { opened: 1, doors: &[10], ..THREE };
    let fences = n.closes(1).suspicions(1).copies(1).ticks(1);
    let lease = NOTHING.silences(1).ticks(6).resumes(4);
    let rows: [(Bug, Bounds, Left); 6] = [
        (Bug::JournalLate, TWO, n.opens(1).losses(1).ticks(1)),
        (Bug::AdoptedAnew, anew, n.opens(1)),
        (Bug::DeadForgotten, TWO, n.opens(1).closes(1).copies(1)),
        (Bug::FencesForgotten, Bounds { opened: 1, ..TWO }, fences),
        (Bug::LeaseByItself, LEASE, lease),
        (Bug::NewsForgotten, Bounds { opened: 1, ..TWO }, n.ends(1).losses(1).ticks(1)),
    ];
    rows.into_iter().find(|row| row.0 == bug).map(|(_, bounds, left)| (bounds, left))
}

/// Rules of reads: a get that is told what no longer holds.
fn of_reads(bug: Bug) -> (Bounds, Left) {
    let read = NOTHING.gets(1).closes(1).suspicions(1);
    let stale = Bounds { nodes: 1, readers: &[30], ..UNHEARD };
    match bug == Bug::StaleConfirm {
        true => (OPENED, read),
        false if bug == Bug::LoneUnread => (Bounds { numbers: &[30], ..stale }, read),
        false => (stale, read),
    }
}

/// Whether only a fair run shows it, since something is never done that should be.
fn is_seen_at_rest(bug: Bug) -> bool {
    matches!(
        bug,
        Bug::NoRedrive
            | Bug::HiddenTail
            | Bug::ReplicaKept
            | Bug::LeaseIgnored
            | Bug::DrainHidden
            | Bug::DeltaAfterLoss
            | Bug::NewsForgotten
    )
}

/// Bounds for bugs of Creates that go to another node too early.
fn of_creates(bug: Bug) -> (Bounds, Left) {
    let n = NOTHING;
    if bug == Bug::WithdrawnLater {
        return (TWO, n.opens(1).crashes(1).refusals(1));
    }
    let refusals = u8::from(bug == Bug::UnsentAssumed);
    (THREE, n.opens(1).refusals(refusals))
}

/// Bounds for bugs of what is said under another epoch or before its time, of fences, and of losses.
fn of_epochs(bug: Bug) -> Option<(Bounds, Left)> {
    Some(match (bug, NOTHING) {
        (Bug::FullForgotten, n) => {
            let ids = &[(10, 10), (30, 30)];
            let full = Bounds { ids, opened: 1, places: 1, doors: &[10], ..THREE };
            (full, n.opens(1).closes(1).copies(1))
        }
        (Bug::NoFence, n) => {
            let left = n.closes(1).suspicions(1).copies(1).ticks(1);
            (Bounds { opened: 1, ..TWO }, left)
        }
        (Bug::RecoverySkipped, n) => {
            let left = n.crashes(2).wipes(2).starts(2).ticks(1);
            (Bounds { opened: 1, doors: &[10], ..THREE }, left)
        }
        (Bug::LateAckCounted, n) => {
            let two_ids = Bounds { ids: &[(10, 10), (10, 10)], ..WIDE };
            (two_ids, n.opens(2).suspicions(1))
        }
        (Bug::OldEpochAcked, n) => (TWO, n.opens(1).suspicions(1)),
        (Bug::RegisteredEarly, n) => (Bounds { doors: &[10], ..THREE }, n.opens(1).boots(1)),
        (Bug::ServedUnsynced, n) => (WIDE, n.opens(1).crashes(1)),
        (Bug::ClaimedEarly, n) => (Bounds { opened: 1, ..ONE }, n.crashes(1).starts(1)),
        (Bug::DestroyedForgotten, n) => (TWO, n.opens(1).closes(1)),
        (Bug::DeltaAfterLoss, n) => {
            let apart = Bounds { disk_apart: true, doors: &[10], ..TWO };
            (apart, n.opens(1).crashes(2).starts(2))
        }
        (_, _) => return None,
    })
}
