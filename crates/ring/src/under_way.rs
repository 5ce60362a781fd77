//! Since when a join or a leave has come no further. Whatever else changes the View meanwhile, and however
//! often, gives it no more time: others wait for their turn.

use crate::view::{PartitionEntry, RingTransition, View};
use rota_model::ManagerNumber;

/// What is under way, as far as somebody has seen it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct UnderWay {
    transition: Option<RingTransition>,
    /// The least that was still to be done.
    left: usize,
    since: u64,
}

impl UnderWay {
    /// A View was seen, at that time of one clock.
    pub fn on_view(&mut self, view: &View, now: u64) {
        let left = view.steps_left();
        if self.transition != view.transition || left < self.left {
            *self = Self { transition: view.transition, left, since: now };
        }
    }

    /// For how long nothing has come of it, by that clock.
    pub fn stands_still(&self, now: u64) -> u64 {
        now.saturating_sub(self.since)
    }
}

impl View {
    /// How much is to be done until the end of what is under way, of what is its number's own: partitions of which
    /// a newcomer is to hold copies and does not, its arc, that it is to own; partitions of which who leaves still
    /// holds copies. 0 where nothing is under way.
    pub fn steps_left(&self) -> usize {
        let Some(transition) = self.transition else { return 0 };
        let number = transition.number();
        let holds = |part: &PartitionEntry| part.has(number);
        match transition {
            RingTransition::Join { .. } => {
                let lacks = |(n, part): &(&ManagerNumber, &PartitionEntry)| {
                    !holds(part) && self.wanted(**n).contains(&number)
                };
                // When its arc is cut out, that is one more partition that it lacks.
                let arc = match self.parts.get(&number) {
                    None => 3,
                    Some(own) => usize::from(own.owner != number),
                };
                arc + self.parts.iter().filter(lacks).count()
            }
            RingTransition::Leave { .. } => self.parts.values().filter(|it| holds(it)).count(),
        }
    }
}
