//! What operators want of a node, and the only ways in which that changes.
//!
//! ```text
//!            cordon                  drain
//!   READY ──────────▶ CORDONED ──────────────▶ DRAINING     an owner closes what runs there once
//!     ▲  └────────── drain ───────────────────▶   │         the time that it was given is over
//!     └────────────── uncordon ───────────────────┘         cordon: the drain stops
//!
//!   READY ── replace ──▶ CORDONED ── another node came ──▶ DRAINING ──▶ empty: it retires
//!   READY ── its pool shrinks ───────────────────────────▶ DRAINING ──▶ empty: it retires
//! ```
//! The wish belongs to the node and not to its boot: a restart keeps it, LOST and REMOVED too. One that is gone may
//! be forgotten.

use crate::config::NodeReg;
use rota_model::{Disturb, NodeId, NodeState, PoolName};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Which sessions of a node that is to be empty are not closed but waited for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spares {
    /// Those whose class says `disturb = "never"`.
    #[default]
    Never,
    /// None.
    Nobody,
    /// All but those whose class says `disturb = "always"`: nobody asked for it, the pool shrinks.
    AllButAlways,
}

impl Spares {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Never, Self::Nobody, Self::AllButAlways];

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Nobody => "nobody",
            Self::AllButAlways => "all_but_always",
        }
    }

    fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a session of such a class is only waited for.
    pub fn spares(self, disturb: Disturb) -> bool {
        match self {
            Self::Never => disturb == Disturb::Never,
            Self::Nobody => false,
            Self::AllButAlways => disturb != Disturb::Always,
        }
    }
}

/// What operators want of a node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeWish {
    /// It takes sessions.
    #[default]
    Serves,
    /// It keeps what it has and takes no more.
    Cordoned,
    /// It takes no more, and is to become empty.
    Drained {
        /// When owners begin to close what still runs there, in ms of their wall clocks since 1970; 0
        /// is at once. `None`: never, it is only waited for.
        closes_at_ms: Option<u64>,
        /// Which sessions are only waited for.
        #[serde(default, skip_serializing_if = "Spares::is_default")]
        spares: Spares,
        /// It ends as soon as it runs nothing.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        retires: bool,
    },
    /// It takes no more. Once its pool has started another node, it is drained, and retires.
    Replaced {
        /// What the drain says then: after so many ms owners begin to close what still runs there. `None`: never.
        closes_after_ms: Option<u64>,
        /// Which sessions are only waited for then.
        #[serde(default, skip_serializing_if = "Spares::is_default")]
        spares: Spares,
    },
    /// It is gone, and nobody is to hear of it any more. Its entry stays as a trace, without its classes: that
    /// its last boot is over is what ends sessions that may still turn up in a record. A new boot of the node
    /// serves again.
    Forgotten,
}

impl NodeWish {
    /// Whether nothing is wished.
    pub fn is_none(&self) -> bool {
        *self == Self::Serves
    }

    /// The state of a node that is there, `boot` being what its boot said of itself.
    pub fn shown(self, boot: NodeState) -> NodeState {
        match self {
            _ if boot.is_gone() => boot,
            Self::Serves | Self::Forgotten => boot,
            Self::Cordoned | Self::Replaced { .. } => NodeState::Cordoned,
            Self::Drained { .. } => NodeState::Draining,
        }
    }
}

/// How long sessions may end by themselves when their node is drained.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DrainTime {
    /// As long as the drain that is under way said; not at all when none is.
    AsBefore,
    /// So many ms from now.
    Ms(u64),
    /// As long as they like.
    Unlimited,
    /// Not at all, whatever their class says.
    Force,
}

impl DrainTime {
    /// After how many ms what runs is closed, and what is spared. A deadline holds for all.
    fn closes(self) -> (Option<u64>, Spares) {
        match self {
            // At once, whichever owner's clock is behind.
            Self::AsBefore | Self::Ms(0) => (Some(0), Spares::Never),
            Self::Ms(ms) => (Some(ms), Spares::Nobody),
            Self::Unlimited => (None, Spares::Never),
            Self::Force => (Some(0), Spares::Nobody),
        }
    }
}

/// When what runs is closed that may go on for so many ms from now; 0 stays 0.
fn closes_at(closes_after_ms: Option<u64>, wall_ms: u64) -> Option<u64> {
    closes_after_ms.map(|ms| if ms == 0 { 0 } else { wall_ms.saturating_add(ms) })
}

/// Longest time of [`DrainTime::Ms`]: a year. What is longer means no limit.
pub const DRAIN_MS_MAX: u64 = 366 * 24 * 3_600_000;

/// An operator's order about a node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NodeOrder {
    /// Nothing more is placed there. A drain that is under way stops.
    Cordon,
    /// Nothing more is placed there, and what runs there is to end.
    Drain(DrainTime),
    /// It takes sessions again.
    Uncordon,
    /// It is gone, and is to be shown no more.
    Forget,
    /// Nothing more is placed there. Its pool starts another node, and it is drained like that then.
    Replace(DrainTime),
    /// By the owner of its pool: the other node has come, so it is drained now. Of one that is not replaced any more
    /// nothing is wanted.
    Succeeded,
    /// By the owner of its pool: it is drained and retires. Of one of which something else is wanted that stays.
    ScaleIn,
}

/// Why an order about a node is refused. Nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NodeOrderRefused {
    /// Nobody registered it.
    #[error("node {0} is not registered (registered: {1})")]
    Unknown(NodeId, String),
    /// Nothing runs there any more.
    #[error("node {0} is {1}: nothing runs there; to uncordon it is all that can be ordered")]
    Gone(NodeId, NodeState),
    /// It is there, or may be.
    #[error(
        "node {0} is {1}, and only one that is LOST or REMOVED is forgotten: tell its agent to end, or wait \
         until it is lost"
    )]
    There(NodeId, NodeState),
    /// Nobody would start another one.
    #[error(
        "node {0} is of pool {1}, which has no provisioner to start another one: start one yourself, then drain \
         {0}; or describe the pool with a provisioner"
    )]
    NoProvisioner(NodeId, PoolName),
}

fn drained(time: DrainTime, wall_ms: u64, retires: bool) -> NodeWish {
    let (after_ms, spares) = time.closes();
    NodeWish::Drained { closes_at_ms: closes_at(after_ms, wall_ms), spares, retires }
}

/// Whether the successor of a replaced node has come.
fn is_succeeded(wish: NodeWish) -> bool {
    match wish {
        NodeWish::Drained { spares, retires, .. } => retires && spares != Spares::AllButAlways,
        NodeWish::Serves | NodeWish::Cordoned | NodeWish::Replaced { .. } | NodeWish::Forgotten => {
            false
        }
    }
}

impl NodeReg {
    /// The entry as it is after an order at that wall clock; `None` when it says so already.
    ///
    /// # Errors
    /// The node is gone, and the order is neither to uncordon nor to forget it; or it is there, and is to be
    /// forgotten.
    pub fn ordered(
        &self,
        order: NodeOrder,
        wall_ms: u64,
    ) -> Result<Option<NodeReg>, NodeOrderRefused> {
        if order == NodeOrder::Forget {
            return self.forgotten();
        }
        if self.state.is_gone() && order != NodeOrder::Uncordon {
            return Err(NodeOrderRefused::Gone(self.node.clone(), self.state));
        }
        let wish = self.wish_after(order, wall_ms);
        if wish == self.wish {
            return Ok(None);
        }
        let state = wish.shown(if self.state.is_gone() { self.state } else { NodeState::Ready });
        Ok(Some(NodeReg { wish, state, revision: self.revision + 1, ..self.clone() }))
    }

    fn wish_after(&self, order: NodeOrder, wall_ms: u64) -> NodeWish {
        match (order, self.wish) {
            (NodeOrder::Cordon, _) => NodeWish::Cordoned,
            (NodeOrder::Uncordon | NodeOrder::Forget, _) => NodeWish::Serves,
            (NodeOrder::Drain(DrainTime::AsBefore), NodeWish::Drained { spares, .. })
                if spares != Spares::AllButAlways =>
            {
                self.wish
            }
            // One that is replaced ends all the same.
            (NodeOrder::Drain(time), wish) => drained(time, wall_ms, is_succeeded(wish)),
            // It is replaced already.
            (NodeOrder::Replace(DrainTime::AsBefore), NodeWish::Replaced { .. }) => self.wish,
            (NodeOrder::Replace(DrainTime::AsBefore), wish) if is_succeeded(wish) => wish,
            (NodeOrder::Replace(time), wish) if is_succeeded(wish) => drained(time, wall_ms, true),
            (NodeOrder::Replace(time), _) => {
                let (closes_after_ms, spares) = time.closes();
                NodeWish::Replaced { closes_after_ms, spares }
            }
            (NodeOrder::Succeeded, NodeWish::Replaced { closes_after_ms, spares }) => {
                let closes_at_ms = closes_at(closes_after_ms, wall_ms);
                NodeWish::Drained { closes_at_ms, spares, retires: true }
            }
            (NodeOrder::ScaleIn, NodeWish::Serves) => {
                let spares = Spares::AllButAlways;
                NodeWish::Drained { closes_at_ms: Some(0), spares, retires: true }
            }
            (NodeOrder::Succeeded | NodeOrder::ScaleIn, wish) => wish,
        }
    }

    fn forgotten(&self) -> Result<Option<NodeReg>, NodeOrderRefused> {
        if !self.state.is_gone() {
            return Err(NodeOrderRefused::There(self.node.clone(), self.state));
        }
        if self.is_forgotten() {
            return Ok(None);
        }
        let (classes, digests, facts) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        let (wish, revision) = (NodeWish::Forgotten, self.revision + 1);
        Ok(Some(NodeReg { wish, classes, digests, facts, revision, ..self.clone() }))
    }

    /// Whether only a trace of it is left, which nobody is shown.
    pub fn is_forgotten(&self) -> bool {
        self.wish == NodeWish::Forgotten
    }

    /// Which sessions there are only waited for, if what runs there is to be closed at that wall clock.
    pub fn closes(&self, wall_ms: u64) -> Option<Spares> {
        match self.wish {
            NodeWish::Drained { closes_at_ms: Some(at_ms), spares, .. } => {
                (!self.state.is_gone() && wall_ms >= at_ms).then_some(spares)
            }
            NodeWish::Drained { closes_at_ms: None, .. }
            | NodeWish::Replaced { .. }
            | NodeWish::Cordoned
            | NodeWish::Serves
            | NodeWish::Forgotten => None,
        }
    }

    /// What is wanted of the node's next boot. One that was to end and did so was started again by somebody.
    pub fn wish_of_next_boot(&self) -> NodeWish {
        let has_ended = self.state == NodeState::Removed
            && matches!(self.wish, NodeWish::Drained { retires: true, .. });
        if has_ended || self.is_forgotten() { NodeWish::Serves } else { self.wish }
    }

    /// Whether it is to end as soon as it runs nothing.
    pub fn retires(&self) -> bool {
        match self.wish {
            NodeWish::Drained { retires, .. } => retires && !self.state.is_gone(),
            NodeWish::Replaced { .. }
            | NodeWish::Cordoned
            | NodeWish::Serves
            | NodeWish::Forgotten => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_model::BootId;

    fn node(state: NodeState, wish: NodeWish) -> NodeReg {
        NodeReg {
            node: NodeId::parse("n").unwrap(),
            boot: BootId(3),
            unproven: None,
            address: "n:1".to_owned(),
            pool: PoolName::default_pool(),
            offers: rota_model::Resources::of_places(4),
            labels: rota_model::Labels::new(),
            classes: Vec::new(),
            digests: BTreeMap::new(),
            facts: BTreeMap::new(),
            sandbox: None,
            renew_ms: 0,
            state,
            wish,
            revision: 7,
        }
    }

    const READY: NodeState = NodeState::Ready;

    fn closes(it: &NodeReg, wall_ms: u64) -> bool {
        it.closes(wall_ms).is_some()
    }

    #[test]
    fn a_boot_that_was_proved_over_stays_so_when_a_later_one_is_lost() {
        let lost = node(NodeState::Lost, NodeWish::Serves);
        assert!(lost.is_proved_over(BootId(2)) && !lost.is_proved_over(BootId(3)));
        assert!(!lost.is_proved_over(BootId(4)), "an old registry shows less");
        let unproven = NodeReg { unproven: Some(BootId(1)), ..lost };
        assert!(unproven.is_proved_over(BootId(2)) && !unproven.is_proved_over(BootId(1)));
        assert!(!unproven.is_proved_over(BootId(3)));
        let removed = node(NodeState::Removed, NodeWish::Serves);
        assert!(removed.is_proved_over(BootId(3)));
    }

    #[test]
    fn orders_lead_from_state_to_state_and_back() {
        let ready = node(READY, NodeWish::Serves);
        let cordoned = ready.ordered(NodeOrder::Cordon, 5).unwrap().unwrap();
        assert_eq!((cordoned.state, cordoned.revision), (NodeState::Cordoned, 8));
        let drained = cordoned.ordered(NodeOrder::Drain(DrainTime::Ms(10)), 5).unwrap().unwrap();
        assert_eq!(drained.state, NodeState::Draining);
        assert!(!closes(&drained, 14) && closes(&drained, 15));
        let stopped = drained.ordered(NodeOrder::Cordon, 20).unwrap().unwrap();
        assert!(stopped.state == NodeState::Cordoned && !closes(&stopped, 100));
        let back = drained.ordered(NodeOrder::Uncordon, 20).unwrap().unwrap();
        assert_eq!((back.state, back.wish), (READY, NodeWish::Serves));
    }

    #[test]
    fn an_order_that_was_carried_out_changes_nothing_when_it_is_repeated() {
        let ready = node(READY, NodeWish::Serves);
        assert_eq!(ready.ordered(NodeOrder::Uncordon, 5), Ok(None));
        let cordoned = ready.ordered(NodeOrder::Cordon, 5).unwrap().unwrap();
        assert_eq!(cordoned.ordered(NodeOrder::Cordon, 6), Ok(None));
        let as_before = NodeOrder::Drain(DrainTime::AsBefore);
        let drained = ready.ordered(as_before, 5).unwrap().unwrap();
        assert!(closes(&drained, 5), "without a time they are closed at once");
        assert_eq!(drained.ordered(as_before, 9), Ok(None));
        let waits = drained.ordered(NodeOrder::Drain(DrainTime::Unlimited), 9).unwrap().unwrap();
        assert!(!closes(&waits, u64::MAX));
        assert_eq!(waits.ordered(as_before, 10), Ok(None));
    }

    #[test]
    fn a_drain_without_a_deadline_waits_for_those_that_are_never_disturbed_until_it_is_forced() {
        let ready = node(READY, NodeWish::Serves);
        let drained = |reg: &NodeReg, time| {
            let next = reg.ordered(NodeOrder::Drain(time), 5).unwrap();
            next.unwrap_or_else(|| reg.clone())
        };
        let spared = |reg: &NodeReg, wall_ms| {
            let spares = reg.closes(wall_ms).unwrap();
            Disturb::ALL.into_iter().filter(|it| spares.spares(*it)).collect::<Vec<_>>()
        };
        let at_once = drained(&ready, DrainTime::Ms(0));
        assert_eq!(spared(&at_once, 5), [Disturb::Never]);
        let forced = drained(&at_once, DrainTime::Force);
        assert_eq!(spared(&forced, 5), []);
        assert_eq!(drained(&forced, DrainTime::AsBefore), forced);
        let in_time = drained(&ready, DrainTime::Ms(10));
        assert!(in_time.closes(14).is_none() && spared(&in_time, 15).is_empty());
    }

    #[test]
    fn a_pool_that_shrinks_closes_only_what_may_always_be_disturbed() {
        let ready = node(READY, NodeWish::Serves);
        let shrunk = ready.ordered(NodeOrder::ScaleIn, 5).unwrap().unwrap();
        let spares = shrunk.closes(5).unwrap();
        assert!(shrunk.retires() && spares.spares(Disturb::OnUpgrade));
        assert!(spares.spares(Disturb::Never) && !spares.spares(Disturb::Always));
        // What operators want comes first, before and after.
        for wish in [NodeOrder::Cordon, NodeOrder::Drain(DrainTime::AsBefore)] {
            let wanted = ready.ordered(wish, 5).unwrap().unwrap();
            assert_eq!(wanted.ordered(NodeOrder::ScaleIn, 5), Ok(None));
            let wanted = shrunk.ordered(wish, 5).unwrap().unwrap();
            assert!(!wanted.retires());
        }
        let replaced = shrunk.ordered(NodeOrder::Replace(DrainTime::AsBefore), 5).unwrap().unwrap();
        assert_eq!(replaced.state, NodeState::Cordoned, "another one comes first");
        let lost = NodeReg { state: NodeState::Lost, ..shrunk.clone() };
        assert!(!lost.retires() && lost.wish_of_next_boot() == shrunk.wish);
        let ended = NodeReg { state: NodeState::Removed, ..shrunk };
        assert_eq!(ended.wish_of_next_boot(), NodeWish::Serves);
    }

    #[test]
    fn who_is_replaced_is_drained_when_its_successor_has_come() {
        let ready = node(READY, NodeWish::Serves);
        assert_eq!(ready.ordered(NodeOrder::Succeeded, 5), Ok(None));
        let replaced = ready.ordered(NodeOrder::Replace(DrainTime::Ms(10)), 5).unwrap().unwrap();
        assert_eq!(replaced.state, NodeState::Cordoned);
        assert!(replaced.closes(100).is_none() && !replaced.retires());
        let again = NodeOrder::Replace(DrainTime::AsBefore);
        assert_eq!(replaced.ordered(again, 6), Ok(None));
        let drained = replaced.ordered(NodeOrder::Succeeded, 20).unwrap().unwrap();
        assert!(drained.retires() && drained.state == NodeState::Draining);
        assert_eq!((drained.closes(29), drained.closes(30)), (None, Some(Spares::Nobody)));
        assert_eq!(drained.ordered(again, 30), Ok(None));
        // A new deadline is a new deadline, and it ends all the same.
        for order in [NodeOrder::Replace(DrainTime::Force), NodeOrder::Drain(DrainTime::Force)] {
            let forced = drained.ordered(order, 21).unwrap().unwrap();
            assert_eq!((forced.closes(21), forced.retires()), (Some(Spares::Nobody), true));
        }
        let kept = replaced.ordered(NodeOrder::Uncordon, 20).unwrap().unwrap();
        assert_eq!(kept.ordered(NodeOrder::Succeeded, 30), Ok(None));
    }

    #[test]
    fn only_who_is_gone_is_forgotten_and_its_last_boot_stays_known() {
        let why = node(READY, NodeWish::Serves).ordered(NodeOrder::Forget, 5).unwrap_err();
        assert!(why.to_string().contains("node n is READY"), "{why}");
        let lost = node(NodeState::Lost, NodeWish::Cordoned);
        let trace = lost.ordered(NodeOrder::Forget, 5).unwrap().unwrap();
        assert_eq!((trace.state, trace.boot, trace.revision), (NodeState::Lost, BootId(3), 8));
        assert!(trace.is_forgotten() && !lost.is_forgotten());
        assert_eq!(trace.ordered(NodeOrder::Forget, 6), Ok(None));
        assert_eq!(NodeWish::Forgotten.shown(READY), READY, "a new boot serves");
    }

    #[test]
    fn who_is_gone_can_be_uncordoned_only_and_stays_gone() {
        let lost = node(NodeState::Lost, NodeWish::Cordoned);
        for order in [NodeOrder::Cordon, NodeOrder::Drain(DrainTime::Ms(1))] {
            let why = lost.ordered(order, 5).unwrap_err();
            assert!(why.to_string().contains("node n is LOST"), "{why}");
        }
        let back = lost.ordered(NodeOrder::Uncordon, 5).unwrap().unwrap();
        assert_eq!((back.state, back.wish), (NodeState::Lost, NodeWish::Serves));
        assert_eq!(NodeWish::Cordoned.shown(NodeState::Removed), NodeState::Removed);
        assert_eq!(NodeWish::Cordoned.shown(READY), NodeState::Cordoned);
    }
}
