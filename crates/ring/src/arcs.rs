//! The arcs of a ring, and which number a newcomer gets that has no wish.

use crate::view::View;
use rota_model::{ManagerNumber, ManagerStatus};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// The arcs between reserved numbers. A newcomer's is one before it is cut out, and so is that of one that
/// was taken out before.
#[derive(Clone, Copy, Debug)]
pub struct Arcs<'a> {
    view: &'a View,
}

/// What lies between two neighbouring numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Arc {
    /// How many slots.
    length: u32,
    /// The number after which it begins.
    before: ManagerNumber,
    /// The number at which it ends.
    n: ManagerNumber,
}

impl View {
    /// The arcs between reserved numbers.
    pub fn arcs(&self) -> Arcs<'_> {
        Arcs { view: self }
    }
}

impl Arcs<'_> {
    /// The number for a newcomer that has no wish: one that has left, if its arc is as wide as what
    /// halving would give, or if no further number can be reserved; else the one that halves the
    /// widest arc. `None` when every slot is a number of somebody.
    pub fn free_number(self) -> Option<ManagerNumber> {
        let halving = self.halving_number();
        let half = self.all().map(|it| it.length).max().unwrap_or(0) / 2;
        let takes = |left: &Arc| left.length >= half || halving.is_none() || self.is_full();
        self.widest_left().filter(takes).map(|left| left.n).or(halving)
    }

    /// The number that halves the widest arc, the first of several. `None` when every slot is a number.
    pub fn halving_number(self) -> Option<ManagerNumber> {
        let Arc { length, before, .. } = self.all().max_by_key(|it| (it.length, Reverse(it.n)))?;
        // The newcomer gets the first half of the arc.
        (length > 1).then(|| ManagerNumber((before.0 + length / 2) % self.view.m))
    }

    /// The number that a newcomer has to take again, since no further one can be reserved. `None` while one
    /// can, or when none has left.
    pub(crate) fn left_if_full(self) -> Option<ManagerNumber> {
        self.widest_left().filter(|_| self.is_full()).map(|left| left.n)
    }

    /// Whether no further number can be reserved.
    fn is_full(self) -> bool {
        self.view.managers.len() >= self.view.managers_max as usize
    }

    /// The widest arc of those whose number has left, the first of several.
    fn widest_left(self) -> Option<Arc> {
        let status = |n: ManagerNumber| self.view.managers.get(&n).map(|it| it.status);
        let left = self.all().filter(|it| status(it.n) == Some(ManagerStatus::Left));
        left.max_by_key(|it| (it.length, Reverse(it.n)))
    }

    fn all(self) -> impl Iterator<Item = Arc> {
        let View { managers, parts, .. } = self.view;
        let m = self.view.m;
        let numbers: BTreeSet<ManagerNumber> =
            managers.keys().chain(parts.keys()).copied().collect();
        let before: Vec<ManagerNumber> =
            numbers.last().into_iter().chain(&numbers).copied().collect();
        before.into_iter().zip(numbers).map(move |(before, n)| {
            let length = (n.0 + m - before.0) % m;
            // A lone number's arc is the whole ring.
            Arc { length: if length == 0 { m } else { length }, before, n }
        })
    }
}
