//! What documents of sessions and pools hold: each type is the content of one item, as JSON. Managers
//! write them, and clients that keep a session's document in step read them.
//!
//! A session is the document of class [`SESSION_CLASS`] in the session's namespace whose id is the
//! session's id. Its ctime is the life, its version the version of the session. Items:
//!
//! | item | type | there |
//! |---|---|---|
//! | [`SPEC_ITEM`] | [`crate::SessionSpec`] | always |
//! | [`STANDING_ITEM`] | [`Standing`] | always |
//! | [`MACHINE_ITEM`] | [`Machine`] | once a machine has reported a state |
//! | [`LIFETIME_ITEM`] | [`crate::Lifetime`] | where something holds for the life |
//! | [`REQUEST_ITEM`], by request id | [`Remembered`] | as long as the request is remembered |
//!
//! Beside it lie documents of class [`REQUEST_CLASS`], each with one more item [`REQUEST_ITEM`].
//!
//! A pool is the document of class [`POOL_CLASS`] in the space for configuration whose id is the pool's name,
//! with the item [`SETTINGS_ITEM`] ([`crate::PoolSettings`]) and items [`CLASS_ITEM`] ([`crate::ClassText`]). What its owner ordered is the document of class
//! [`ORDERS_CLASS`] with that id, and the item [`ORDERS_ITEM`].
//!
//! A stable number is the document of class [`NUMBER_CLASS`] in the space for configuration with the item
//! [`NUMBER_ITEM`] ([`StableNumber`]). Its id is the name of its entry: `Type[.parent].uuid`, or `last` for
//! the UUID.
//!
//! The stable numbers of the sessions of a node are one document of class [`SESSION_NUMBERS_CLASS`] in the space
//! for configuration, with the item [`SESSION_NUMBERS_ITEM`] ([`SessionNumbers`]). Its id is the name of the
//! node's entry.

use crate::digest::AttributesDigest;
use crate::ids::{NodeId, PoolName, ProvisionerName};
use crate::session::{EarlierSpec, Outcome, Placement};
use crate::stamp::Stamp;
use crate::state::{Exit, Reason, SessionState};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Class of the documents of sessions.
pub const SESSION_CLASS: &str = "session";
/// Class of the documents by which operators describe pools, in the space for configuration.
pub const POOL_CLASS: &str = "Pool";
/// Class of the documents of what owners of pools ordered, in the space for configuration.
pub const ORDERS_CLASS: &str = "orders";
/// Class of the documents that hold one [`StableNumber`] each, in the space for configuration.
pub const NUMBER_CLASS: &str = "stable-number";
/// Class of the documents that hold the [`SessionNumbers`] of one node each, in the space for configuration.
pub const SESSION_NUMBERS_CLASS: &str = "session-numbers";
/// Class of the documents that hold one [`Remembered`] each, beside the document of their session: what a
/// session remembers of more requests than its own document holds.
pub const REQUEST_CLASS: &str = "request";
/// Class of the documents that hold the life cycles of one session each, and their history. They outlive the document
/// of their session.
pub const LIFE_CLASS: &str = "life";
/// The classes of documents that managers write for themselves alone: no operation changes one, and no import
/// brings one.
pub const OWN_CLASSES: [&str; 6] =
    [SESSION_CLASS, LIFE_CLASS, REQUEST_CLASS, ORDERS_CLASS, NUMBER_CLASS, SESSION_NUMBERS_CLASS];
/// The singleton that holds a [`crate::SessionSpec`].
pub const SPEC_ITEM: &str = "spec";
/// The singleton that holds a [`Standing`].
pub const STANDING_ITEM: &str = "state";
/// The singleton that holds a [`Machine`].
pub const MACHINE_ITEM: &str = "machine";
/// The singleton that holds a [`crate::Lifetime`].
pub const LIFETIME_ITEM: &str = "lifetime";
/// The items that hold a [`Remembered`] each; their keys are request ids.
pub const REQUEST_ITEM: &str = "request";
/// The singleton that holds the [`crate::PoolSettings`] of a pool.
pub const SETTINGS_ITEM: &str = "settings";
/// The items of a pool that hold a [`crate::ClassText`] each; their keys are names of classes.
pub const CLASS_ITEM: &str = "class";
/// The singleton that holds the [`Orders`] of a pool.
pub const ORDERS_ITEM: &str = "orders";
/// The singleton that holds a [`StableNumber`].
pub const NUMBER_ITEM: &str = "number";
/// The singleton that holds [`SessionNumbers`].
pub const SESSION_NUMBERS_ITEM: &str = "numbers";

/// How a life of a session stands, and where.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Standing {
    /// State.
    pub state: SessionState,
    /// Why, once it is closing or ended.
    pub reason: Option<Reason>,
    /// A sentence about the reason, for people; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// How its program or machine ended, if that is known.
    pub exit: Option<Exit>,
    /// How long a close gives its program to end, in milliseconds; left out: as its class says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_ms: Option<u64>,
    /// Where it runs or ran. `None` only for a life that found no node.
    pub placement: Option<Placement>,
    /// Of a life that has ended and had attributes, which its [`SPEC_ITEM`] holds no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attributes: Option<AttributesDigest>,
}

/// What a node last reported of a session's state machine.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// The state.
    pub state: String,
    /// Number of the change that led to it, by the node's count.
    pub change: u64,
}

/// A request that is remembered, so that its repetition gets the same answer. Its id is the item's
/// key.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Remembered {
    /// When it was first seen (owner's wall clock).
    pub at: Stamp,
    /// What became of it.
    pub fate: RememberedFate,
    /// What the life that it is about ran, where that is not what [`SPEC_ITEM`] says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran: Option<Arc<EarlierSpec>>,
}

/// What became of a request that is remembered.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RememberedFate {
    /// An open that is still being carried out.
    Opening,
    /// An open that was answered so.
    Opened {
        /// The outcome.
        outcome: Outcome,
        /// The life that was answered.
        life: Stamp,
        /// The version that was answered.
        version: Stamp,
        /// Where that life ran; left out when that is where [`Standing`] says.
        placement: Option<Placement>,
    },
    /// An open whose life ended before it was READY.
    Failed {
        /// The life that did not start.
        life: Stamp,
    },
    /// A close of that life.
    Closed {
        /// The life that was closed.
        life: Stamp,
    },
}

/// The number of a resource that stays, or the last number that was given to resources of a type and parent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StableNumber {
    /// From 1 on.
    pub number: u64,
    /// The resource is there. One that is not keeps its number for a time.
    pub valid: bool,
    /// When the number or the validity last changed, in milliseconds since 1970.
    pub changed_ms: u64,
}

/// The stable numbers of the sessions of a node.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionNumbers {
    /// The pool of the node.
    pub pool: String,
    /// The node.
    pub node: String,
    /// The last number that was given there.
    pub last: Option<StableNumber>,
    /// Those that have one.
    pub sessions: Vec<SessionNumber>,
}

/// The stable number of a session within its node.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionNumber {
    /// Its namespace.
    pub namespace: String,
    /// Its id.
    pub id: String,
    /// From 1 on.
    pub number: u64,
    /// It runs there. A session that does not keeps its number for a time.
    pub valid: bool,
    /// When the number or the validity last changed, in milliseconds since 1970.
    pub changed_ms: u64,
}

/// The one decision of a pool that is in flight, so that a new owner does not decide twice.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Orders {
    /// Counts decisions; names of new nodes are made from it.
    pub decisions: u64,
    /// Nodes that were ordered, and are expected.
    pub ordered: Vec<NodeId>,
    /// When they are expected no longer, in milliseconds since 1970.
    pub lapses_wall_ms: u64,
    /// Nodes that were ordered before, and are overdue: they may come all the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overdue: Vec<NodeId>,
    /// When all of them are given up, in milliseconds since 1970.
    #[serde(default)]
    pub given_up_wall_ms: u64,
    /// Why the last order started nothing, for people; empty while all is well.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub failure: String,
    /// Why what is left of a node could not be ended, for people; empty while nothing fails so.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub end_failure: String,
    /// Those of the last order that did not start. They may have left something behind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<NodeId>,
    /// Nothing of those was begun: nobody knew the provisioner. So they left nothing behind.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub none_begun: bool,
    /// The failure is that nodes are overdue. They may come yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_late: bool,
    /// Nodes that are expected no more, and of which something may be left.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub to_clear: Vec<NodeId>,
    /// By node that is replaced, which other one was ordered for it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub successors: BTreeMap<NodeId, NodeId>,
    /// By the first decision of each, whose the nodes are from then on: what is left of them is ended by the one that
    /// started them, whatever the pool says by now.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub provisioners: BTreeMap<u64, ProvisionerName>,
}

/// Which decision of a pool has given a node its name, if one has.
pub fn decision_of(pool: &PoolName, node: &NodeId) -> Option<u64> {
    let rest = node.as_str().strip_prefix(pool.as_str())?.strip_prefix('-')?;
    let (decision, place) = rest.split_once('-')?;
    place.parse::<u32>().ok()?;
    decision.parse().ok()
}

impl Orders {
    /// Who started the nodes of a decision, as far as that is remembered.
    pub fn provisioner_of(&self, decision: u64) -> Option<&ProvisionerName> {
        let mut until = self.provisioners.range(..=decision);
        until.next_back().or_else(|| self.provisioners.first_key_value()).map(|it| it.1)
    }

    /// What may still come at that moment: who is late is overdue, and at last given up. Who did not start is given
    /// up when the order lapses. `has_come`: whether a node is there.
    #[must_use]
    pub fn as_of(mut self, wall_ms: u64, has_come: impl Fn(&NodeId) -> bool) -> Self {
        if wall_ms >= self.lapses_wall_ms {
            let failed = std::mem::take(&mut self.failed);
            let late = std::mem::take(&mut self.ordered).into_iter();
            let (never, late): (Vec<_>, Vec<_>) = late.partition(|it| failed.contains(it));
            if !std::mem::take(&mut self.none_begun) {
                self.to_clear.extend(never);
            }
            self.overdue.extend(late);
        }
        if wall_ms >= self.given_up_wall_ms {
            self.to_clear.append(&mut self.overdue);
        }
        for nodes in [&mut self.ordered, &mut self.overdue, &mut self.to_clear] {
            nodes.retain(|node| !has_come(node));
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_were_ordered_are_expected_then_overdue_and_then_given_up() {
        let node = |id: &str| NodeId::parse(id).unwrap();
        let orders = Orders {
            ordered: vec![node("a"), node("b")],
            lapses_wall_ms: 10,
            overdue: vec![node("c")],
            given_up_wall_ms: 70,
            ..Orders::default()
        };
        let names =
            |nodes: &[NodeId]| nodes.iter().map(|it| it.as_str().to_owned()).collect::<String>();
        let at = |wall_ms: u64, failure: &str| {
            let failed = if failure.is_empty() { Vec::new() } else { vec![node("a")] };
            let orders = Orders { failure: failure.to_owned(), failed, ..orders.clone() };
            let now = orders.as_of(wall_ms, |it| it.as_str() == "b");
            (names(&now.ordered), names(&now.overdue))
        };
        let both = |one: &str, two: &str| (one.to_owned(), two.to_owned());
        assert_eq!(at(9, ""), both("a", "c"));
        assert_eq!(at(10, ""), both("", "ca"));
        assert_eq!(at(70, ""), both("", ""));
        assert_eq!(at(10, "no such program"), both("", "c"));
        let failed = Orders { failed: vec![node("a")], ..orders.clone() };
        let left = |orders: Orders| names(&orders.as_of(10, |_| false).to_clear);
        assert_eq!(left(failed.clone()), "a");
        assert_eq!(left(Orders { none_begun: true, ..failed }), "");
    }
}
