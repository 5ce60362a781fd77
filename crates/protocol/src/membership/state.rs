//! What a manager has beside its partitions, one value for one concern.

use crate::log::env::ReadFor;
use crate::membership::purpose::Purpose;
use crate::membership::standing::{Probes, Standing};
use crate::membership::waiting::{Waiting, WaitingNode};
use rota_messages::Identity;
use rota_model::{Epoch, Incarnation, ManagerNumber, MemberId, Nonce};
use rota_ring::UnderWay;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Its number: where it stands with it, and what it knows of others for that.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Membership {
    pub standing: Standing,
    pub identity: Identity,
    /// What this run means to take, or has asked for.
    pub claiming: Option<(Incarnation, Nonce)>,
    /// Who runs, as far as a claim must know it.
    pub probes: Probes,
    /// Whether it may come into a ring in which nobody reserved its number.
    pub joins: bool,
    /// An operator says that the disk which its number had is gone for good.
    pub force_lost: bool,
}

/// What is read of the config store, and asked of it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ViewChanges {
    /// Compare-and-sets that are under way.
    pub asked: BTreeMap<u64, Purpose>,
    /// No change of the View is asked for before this: the outcome of one is unknown, and a config
    /// store that is away says so at once.
    pub next_ms: u64,
    /// The View in which a partition's wish came to nothing, and which was read anew for that.
    pub doubted: Epoch,
    /// Consistent reads that are under way, and the partitions that wait for them.
    pub reads: BTreeMap<u64, Vec<(ManagerNumber, Epoch, ReadFor)>>,
    /// Index of the newest state of the config store that was adopted.
    pub index: u64,
    /// Why what the config store showed last is not followed.
    pub refused: Option<String>,
}

/// Who is silent.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct FailureDetector {
    /// When each peer was heard last, and which run of it.
    pub heard: BTreeMap<ManagerNumber, (MemberId, u64)>,
    /// How often each peer was taken out, and when last.
    pub accused: BTreeMap<ManagerNumber, (u32, u64)>,
    /// Managers that copy, or should copy, a partition together with this one, by the newest View: who is
    /// still to be copied to, a newcomer for one, must be missed too.
    pub sharing: Arc<BTreeSet<ManagerNumber>>,
    /// Peers that look gone to somebody outside, and when that was said last.
    pub signalled: BTreeMap<MemberId, u64>,
    pub ticked_ms: u64,
    pub beat_ms: u64,
}

/// Orders of operators that wait.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Orders {
    pub ring: VecDeque<Waiting>,
    /// Those about nodes.
    pub nodes: VecDeque<WaitingNode>,
}

/// How far the join or the leave is that the View names.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct RingProgress {
    pub under_way: UnderWay,
    /// The newest epoch in which this manager, as a newcomer, held all that it should.
    pub arrived: Epoch,
}

impl Membership {
    pub fn new(identity: Identity) -> Self {
        let standing = Standing::outside();
        let (claiming, probes) = (None, Probes::default());
        Self { standing, identity, claiming, probes, joins: false, force_lost: false }
    }
}

impl ViewChanges {
    pub fn new(next_ms: u64) -> Self {
        let (asked, reads) = (BTreeMap::new(), BTreeMap::new());
        Self { asked, next_ms, doubted: Epoch(0), reads, index: 0, refused: None }
    }
}

impl FailureDetector {
    pub fn new(ticked_ms: u64) -> Self {
        let (heard, accused, signalled) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { heard, accused, sharing: Arc::default(), signalled, ticked_ms, beat_ms: 0 }
    }
}

impl FailureDetector {
    /// Feeds what decides what it does next. With whom partitions are shared follows from the View.
    pub fn fingerprint(&self, into: &mut impl Hasher) {
        let Self { heard, accused, sharing: _, signalled, ticked_ms, beat_ms } = self;
        (heard, accused, signalled, ticked_ms, beat_ms).hash(into);
    }
}
