//! The View: who is in the ring, and who owns and copies each partition.

use crate::place;
use rota_model::{
    ClusterName, ClusterTimes, Epoch, Incarnation, LogPos, ManagerId, ManagerNumber, ManagerStatus,
    MemberId, Nonce, PeerTimes, SlotId, Stamp, node_msg::SlotRange,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Format of the View as it stands in the config store, as long as nobody has joined.
pub const VIEW_FORMAT: u32 = 1;

/// Format of a View with splits or a transition: a build that knows only the first format would lose
/// them with its next write, so it must refuse to read them.
pub const VIEW_FORMAT_SPLIT: u32 = 2;

/// Format of a View with [`PartitionEntry::stamps_above`], for the same reason.
pub const VIEW_FORMAT_LOSS: u32 = 3;

/// The formats that this build reads.
pub const VIEW_FORMATS: [u32; 3] = [VIEW_FORMAT, VIEW_FORMAT_SPLIT, VIEW_FORMAT_LOSS];

/// The first format that can hold these, in a View without splits.
pub fn least_format(
    parts: &BTreeMap<ManagerNumber, PartitionEntry>,
    transition: Option<&RingTransition>,
) -> u32 {
    if parts.values().any(|it| it.stamps_above.is_some()) {
        return VIEW_FORMAT_LOSS;
    }
    transition.map_or(VIEW_FORMAT, |_| VIEW_FORMAT_SPLIT)
}

/// What the config store holds under the View's key. The epoch is inside the value, so that two
/// Views never compare equal. It changes only by the functions of [`crate::change`].
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct View {
    /// [`VIEW_FORMAT`], or [`VIEW_FORMAT_SPLIT`] once somebody has joined, or [`VIEW_FORMAT_LOSS`] once a
    /// partition was found again.
    pub format: u32,
    /// Name of the cluster.
    pub cluster: ClusterName,
    /// Number of this View.
    pub epoch: Epoch,
    /// Slots of the ring.
    pub m: u32,
    /// Successors that hold copies.
    pub r: u32,
    /// Most managers.
    pub managers_max: u32,
    /// Times that all managers share. `None` in a View that was founded by a build that did not keep
    /// them: the next claim puts its own there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<ClusterTimes>,
    /// Reserved numbers.
    pub managers: BTreeMap<ManagerNumber, ManagerEntry>,
    /// Partitions, by the reserved number that ends them.
    pub parts: BTreeMap<ManagerNumber, PartitionEntry>,
    /// What is under way. One thing at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transition: Option<RingTransition>,
    /// Partitions that were cut out of another one: a disk from before that holds their documents
    /// under the other one's name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub splits: BTreeMap<ManagerNumber, Split>,
}

/// What a ring keeps from its first View to its last. It tells one ring's Views from another's.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RingShape {
    /// The cluster's name.
    pub cluster: ClusterName,
    /// How many slots.
    pub m: u32,
    /// How many successors have a copy.
    pub r: u32,
}

impl std::fmt::Display for RingShape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cluster {}, m = {}, r = {}", self.cluster, self.m, self.r)
    }
}

/// A change of who is in the ring that takes several steps.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum RingTransition {
    /// A new number comes in ([`crate::join`]).
    Join {
        /// The number.
        number: ManagerNumber,
        /// Epoch of the View in which it came.
        since: Epoch,
    },
    /// A number leaves ([`crate::leave`]).
    Leave {
        /// The number.
        number: ManagerNumber,
        /// Epoch of the View in which it began.
        since: Epoch,
    },
}

impl RingTransition {
    /// The number that comes or goes.
    pub fn number(self) -> ManagerNumber {
        match self {
            RingTransition::Join { number, .. } | RingTransition::Leave { number, .. } => number,
        }
    }

    /// Epoch of the View in which it began.
    pub fn since(self) -> Epoch {
        match self {
            RingTransition::Join { since, .. } | RingTransition::Leave { since, .. } => since,
        }
    }
}

impl std::fmt::Display for RingTransition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RingTransition::Join { number, since } => {
                write!(f, "the join of number {number} (since epoch {since})")
            }
            RingTransition::Leave { number, since } => {
                write!(f, "the leave of number {number} (since epoch {since})")
            }
        }
    }
}

/// Where a partition comes from that was not there at first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Split {
    /// The partition that held its slots before.
    pub from: ManagerNumber,
    /// Epoch of the View that cut it out.
    pub epoch: Epoch,
}

/// A reserved number.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct ManagerEntry {
    /// The manager's own name.
    pub id: ManagerId,
    /// Where it serves gRPC, `host:port`.
    pub grpc: String,
    /// Where it serves HTTP, `host:port`.
    pub http: String,
    /// Its newest run; 0 before the first.
    pub incarnation: Incarnation,
    /// Tells two claims to that incarnation apart.
    pub nonce: Nonce,
    /// State.
    pub status: ManagerStatus,
    /// How often its newest run says that it is there, and how patient that is. `None` before its first
    /// run, and of a build that did not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_times: Option<PeerTimes>,
}

impl ManagerEntry {
    /// Whether it counts when copies are wanted.
    pub fn is_up(&self) -> bool {
        self.status == ManagerStatus::Active
    }

    /// Whether it may own and copy, and so must be reached: who leaves goes on until others do.
    pub fn serves(&self) -> bool {
        matches!(self.status, ManagerStatus::Active | ManagerStatus::Leaving)
    }

    /// Whether the number was ever taken. Who never ran has acknowledged nothing.
    pub(crate) fn has_run(&self) -> bool {
        self.incarnation > Incarnation(0)
    }
}

/// A member of a partition's ISR: a manager that certainly holds every committed write.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct IsrMember {
    /// The manager.
    pub number: ManagerNumber,
    /// The epoch under which it acknowledged everything before it was put in, or the epoch of its
    /// last take-over from its own disk. A disk that saw less is not exact.
    pub since: Epoch,
}

/// Whether a partition serves from its copies or must be found again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum PartitionState {
    /// The ISR holds every committed write.
    Active,
    /// The last copy is gone or too old: nobody is answered.
    Recovering,
}

/// A partition's entry in the View.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct PartitionEntry {
    /// Epoch of the change that last touched owner, ISR, state or range.
    pub pe: Epoch,
    /// Who decides.
    pub owner: ManagerNumber,
    /// Who holds every committed write; in order of joining.
    pub isr: Vec<IsrMember>,
    /// Epoch of the last take-over from a lone disk, or of the last recovery.
    pub base_pe: Epoch,
    /// State.
    pub state: PartitionState,
    /// While it is being found again: why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<Loss>,
    /// What was found the newest time that this happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovered: Option<Recovered>,
    /// Since then: stamps that were given out before and are forgotten lie below, unless clocks were far
    /// apart. Lives that begin here, and versions of documents, are above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stamps_above: Option<Stamp>,
}

/// What the owner of a partition that is found again has of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct FoundAgain {
    /// As in [`Recovered`].
    pub sessions: u64,
    /// As in [`Recovered`].
    pub held: LogPos,
    /// As in [`PartitionEntry`].
    pub stamps_above: Stamp,
}

/// Why no copy of a partition is known to be complete.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub enum Loss {
    /// A disk without it came in the place of its last copy.
    #[default]
    Gone,
    /// The disk of its last copy saw less than was acknowledged.
    Behind,
    /// A node knew of a later attempt than its owner, whose disk went back.
    NodeKnewMore,
}

impl Loss {
    /// Every one.
    pub const ALL: [Loss; 3] = [Loss::Gone, Loss::Behind, Loss::NodeKnewMore];

    /// Its name in messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Loss::Gone => "gone",
            Loss::Behind => "behind",
            Loss::NodeKnewMore => "node knew more",
        }
    }
}

impl std::fmt::Display for Loss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Loss::Gone => "its last copy was lost",
            Loss::Behind => "its last copy was older than what had been acknowledged",
            Loss::NodeKnewMore => {
                "a node knew of a later attempt than its owner, whose disk had gone back"
            }
        })
    }
}

/// A partition that was found again from the nodes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Recovered {
    /// Epoch of the View that says so.
    pub epoch: Epoch,
    /// Sessions that ran, and were found.
    pub sessions: u64,
    /// Through where the disk that it began from held what was acknowledged, at best. Zero for an
    /// empty one.
    pub held: LogPos,
    /// Why that was necessary.
    #[serde(default)]
    pub loss: Loss,
}

impl std::fmt::Display for Recovered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Recovered { epoch, sessions, held, loss } = self;
        write!(
            f,
            "{loss}, and it was found again at epoch {epoch}: {sessions} sessions were found running; "
        )?;
        let what = "documents, records of ended sessions and request ids";
        match *held {
            LogPos::ZERO => write!(f, "{what} from before are gone"),
            held => write!(
                f,
                "one disk held everything up to {held} at best; {what} that came after it, if there \
                 were any, are gone"
            ),
        }
    }
}

impl PartitionEntry {
    /// What people are to be told of it: that it is being found again, or what was found.
    pub fn account(&self) -> Option<String> {
        match self.state {
            PartitionState::Active => self.recovered.map(|it| it.to_string()),
            PartitionState::Recovering => Some(format!(
                "{}: it is being found again from the nodes, and nobody is answered before",
                self.loss.unwrap_or_default()
            )),
        }
    }

    /// Whether `number` is in the ISR.
    pub fn has(&self, number: ManagerNumber) -> bool {
        self.isr.iter().any(|it| it.number == number)
    }

    /// Whether `number` is the only copy.
    pub fn is_lone(&self, number: ManagerNumber) -> bool {
        self.isr.len() == 1 && self.has(number)
    }
}

/// What is wrong with a View that was read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ViewError {
    /// Written by another version.
    #[error("the View has format {0}; this build reads formats up to {VIEW_FORMAT_LOSS}")]
    Format(u32),
    /// A rule of the View does not hold.
    #[error("the View is broken: {0}")]
    Broken(String),
}

impl View {
    /// Whether that very run may still be at work: it is the newest of its number, and is not out.
    pub fn may_run(&self, member: MemberId) -> bool {
        let entry = self.managers.get(&member.number);
        let is_in = entry.is_some_and(|it| it.serves() || it.status == ManagerStatus::Joining);
        is_in && self.member(member.number) == Some(member)
    }

    /// The member that `number` is at this epoch.
    pub fn member(&self, number: ManagerNumber) -> Option<MemberId> {
        let entry = self.managers.get(&number)?;
        Some(MemberId { number, incarnation: entry.incarnation })
    }

    /// Whether that very run of a manager is Up.
    pub fn is_up(&self, number: ManagerNumber) -> bool {
        self.managers.get(&number).is_some_and(ManagerEntry::is_up)
    }

    /// How many managers are Up.
    pub fn up_count(&self) -> usize {
        self.managers.values().filter(|it| it.is_up()).count()
    }

    /// The partition that holds a slot: its home by arithmetic.
    pub fn home(&self, slot: SlotId) -> ManagerNumber {
        place::home(&self.parts, slot).unwrap_or_default()
    }

    /// The partition that holds a slot, and its entry.
    pub fn part_of(&self, slot: SlotId) -> (ManagerNumber, &PartitionEntry) {
        let number = self.home(slot);
        (number, self.parts.get(&number).expect("a View has at least one partition"))
    }

    /// Who owns a slot now.
    pub fn owner_of(&self, slot: SlotId) -> ManagerNumber {
        self.part_of(slot).1.owner
    }

    /// The slots of partition `n`.
    pub fn range(&self, n: ManagerNumber) -> SlotRange {
        place::range(&self.parts, n, self.m)
    }

    /// All reserved numbers in ring order from `n`.
    pub fn ring_from(&self, n: ManagerNumber) -> impl Iterator<Item = ManagerNumber> {
        place::ring_from(&self.managers, n)
    }

    /// The r successors of `n`: fewer when the ring is smaller.
    pub fn successors(&self, n: ManagerNumber) -> Vec<ManagerNumber> {
        self.ring_from(n).filter(|it| *it != n).take(self.r as usize).collect()
    }

    /// Who should hold partition `n`: the first r+1 Up managers at or after it.
    pub fn wanted(&self, n: ManagerNumber) -> Vec<ManagerNumber> {
        self.ring_from(n).filter(|it| self.is_up(*it)).take(self.r as usize + 1).collect()
    }

    /// Checks what every View must satisfy. A View from outside is refused when this fails.
    pub fn check(&self) -> Result<(), ViewError> {
        if !VIEW_FORMATS.contains(&self.format) {
            return Err(ViewError::Format(self.format));
        }
        let broken = |text: String| Err(ViewError::Broken(text));
        if self.format == VIEW_FORMAT && (self.transition.is_some() || !self.splits.is_empty()) {
            return broken(format!("format {VIEW_FORMAT} has neither transition nor splits"));
        }
        let was_lost = self.parts.values().any(|it| it.stamps_above.is_some());
        if self.format < VIEW_FORMAT_LOSS && was_lost {
            return broken(format!("format {} has no stamps_above", self.format));
        }
        if self.m == 0 || self.parts.is_empty() {
            return broken("it has no slots or no partitions".into());
        }
        if self.managers.len() > self.managers_max as usize {
            return broken(format!("it has more than {} managers", self.managers_max));
        }
        if let Some(n) = self.managers.keys().find(|n| n.0 >= self.m) {
            return broken(format!("number {n} lies outside [0, {})", self.m));
        }
        for (n, part) in &self.parts {
            if !self.managers.contains_key(n) {
                return broken(format!("nobody reserved the number of partition {n}"));
            }
            if part.pe > self.epoch || part.base_pe > part.pe {
                return broken(format!("partition {n} is newer than its View"));
            }
            if !part.has(part.owner) {
                return broken(format!("owner {} of partition {n} is no copy", part.owner));
            }
            for member in &part.isr {
                let twice = part.isr.iter().filter(|it| it.number == member.number).count() > 1;
                if twice || !self.managers.contains_key(&member.number) {
                    return broken(format!("copy {} of partition {n}", member.number));
                }
                if member.since > part.pe {
                    let (number, since) = (member.number, member.since);
                    return broken(format!("copy {number} of partition {n} is of epoch {since}"));
                }
            }
        }
        self.check_steps()
    }

    /// What this ring never changes.
    pub fn shape(&self) -> RingShape {
        RingShape { cluster: self.cluster.clone(), m: self.m, r: self.r }
    }

    /// Checks that this is a View of that ring: a ring keeps its shape. A View from outside is refused
    /// when this fails, as with [`View::check`].
    pub fn check_shape(&self, ring: &RingShape) -> Result<(), ViewError> {
        if (&self.cluster, self.m, self.r) == (&ring.cluster, ring.m, ring.r) {
            return Ok(());
        }
        let now = self.shape();
        Err(ViewError::Broken(format!("it is of another ring: {now}, and not {ring}")))
    }

    /// What several steps left behind: splits, and who comes or goes.
    fn check_steps(&self) -> Result<(), ViewError> {
        let broken = |text: String| Err(ViewError::Broken(text));
        if let Some(it) = self.transition
            && !self.managers.contains_key(&it.number())
        {
            return broken(format!("{it} is under way, and nobody has that number"));
        }
        if let Some(it) = self.transition.filter(|it| it.since() > self.epoch) {
            return broken(format!("{it} is newer than its View"));
        }
        for (n, entry) in &self.managers {
            let leaves = entry.status == ManagerStatus::Leaving;
            if leaves != (self.leaver() == Some(*n)) {
                return broken(format!(
                    "number {n} is {}, and that is not under way",
                    entry.status
                ));
            }
            let is_left = entry.status == ManagerStatus::Left;
            if is_left && self.parts.values().any(|part| part.has(*n)) {
                return broken(format!("number {n} has left, and is a copy"));
            }
        }
        for (n, split) in &self.splits {
            let pe = self.parts.get(n).map(|part| part.pe);
            let is_there = self.parts.contains_key(&split.from) && split.from != *n;
            if !is_there || pe.is_none_or(|pe| pe < split.epoch) {
                return broken(format!("partition {n} does not come from {}", split.from));
            }
        }
        Ok(())
    }
}
