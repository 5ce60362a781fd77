//! What operators order, and what came of it.

use rota_model::{Epoch, ManagerNumber};
use rota_ring::{NodeReg, RingTransition, View};

/// What an operator wants of the ring.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Order {
    /// That number leaves.
    Leave(ManagerNumber),
    /// What is under way when the order is looked at is taken back; if a number is given, only what is
    /// under way for that one.
    Cancel(Option<ManagerNumber>),
}

/// What an order came to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ordered {
    /// The number that the ring changes for.
    pub number: ManagerNumber,
    /// Epoch of a View that says so.
    pub epoch: Epoch,
    /// What was taken back.
    pub cancelled: Option<RingTransition>,
    /// What is under way now, by the order or before it.
    pub under_way: Option<RingTransition>,
    /// How many copies each partition will have, the owner's included.
    pub copies: usize,
    /// How many the ring wants.
    pub copies_wanted: usize,
}

impl Ordered {
    /// What that View says of the change for this number.
    pub fn new(view: &View, number: ManagerNumber) -> Self {
        Self {
            number,
            epoch: view.epoch,
            cancelled: None,
            under_way: view.transition,
            copies: view.copies_without(number),
            copies_wanted: view.r as usize + 1,
        }
    }
}

/// What an order about a node came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeOrdered {
    /// The node's entry, which is as ordered.
    pub reg: NodeReg,
    /// Whether it was otherwise before.
    pub changed: bool,
}
