//! What operators want of a node, and the only ways in which that changes.
//!
//! ```text
//!            cordon                  drain
//!   READY ──────────▶ CORDONED ──────────────▶ DRAINING     an owner closes what runs there once
//!     ▲  └────────── drain ───────────────────▶   │         the time that it was given is over
//!     └────────────── uncordon ───────────────────┘         cordon: the drain stops
//! ```
//! The wish belongs to the node and not to its boot: a restart keeps it, LOST and REMOVED too. One that is gone may
//! be forgotten.

use crate::config::NodeReg;
use rota_model::{NodeId, NodeState};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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
            Self::Cordoned => NodeState::Cordoned,
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
        let wish = match order {
            NodeOrder::Cordon => NodeWish::Cordoned,
            NodeOrder::Uncordon | NodeOrder::Forget => NodeWish::Serves,
            NodeOrder::Drain(time) => NodeWish::Drained {
                closes_at_ms: match (time, self.wish) {
                    (DrainTime::Unlimited, _) => None,
                    (DrainTime::AsBefore, NodeWish::Drained { closes_at_ms }) => closes_at_ms,
                    // At once, whichever owner's clock is behind.
                    (
                        DrainTime::AsBefore,
                        NodeWish::Serves | NodeWish::Cordoned | NodeWish::Forgotten,
                    )
                    | (DrainTime::Ms(0), _) => Some(0),
                    (DrainTime::Ms(ms), _) => Some(wall_ms.saturating_add(ms)),
                },
            },
        };
        if wish == self.wish {
            return Ok(None);
        }
        let state = wish.shown(if self.state.is_gone() { self.state } else { NodeState::Ready });
        Ok(Some(NodeReg { wish, state, revision: self.revision + 1, ..self.clone() }))
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

    /// Whether what runs there is to be closed, at that wall clock.
    pub fn is_to_close(&self, wall_ms: u64) -> bool {
        match self.wish {
            NodeWish::Drained { closes_at_ms: Some(at_ms) } => {
                !self.state.is_gone() && wall_ms >= at_ms
            }
            NodeWish::Drained { closes_at_ms: None }
            | NodeWish::Cordoned
            | NodeWish::Serves
            | NodeWish::Forgotten => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_model::{BootId, PoolName};

    fn node(state: NodeState, wish: NodeWish) -> NodeReg {
        NodeReg {
            node: NodeId::parse("n").unwrap(),
            boot: BootId(3),
            unproven: None,
            address: "n:1".to_owned(),
            pool: PoolName::default_pool(),
            places: 4,
            cpu_millis: 0,
            memory_mib: 0,
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
        assert!(!drained.is_to_close(14) && drained.is_to_close(15));
        let stopped = drained.ordered(NodeOrder::Cordon, 20).unwrap().unwrap();
        assert!(stopped.state == NodeState::Cordoned && !stopped.is_to_close(100));
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
        assert!(drained.is_to_close(5), "without a time they are closed at once");
        assert_eq!(drained.ordered(as_before, 9), Ok(None));
        let waits = drained.ordered(NodeOrder::Drain(DrainTime::Unlimited), 9).unwrap().unwrap();
        assert!(!waits.is_to_close(u64::MAX));
        assert_eq!(waits.ordered(as_before, 10), Ok(None));
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
