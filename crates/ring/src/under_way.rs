//! Since when a join or a leave has come no further. Whatever else changes the View meanwhile, and however
//! often, gives it no more time: others wait for their turn.

use crate::view::{Part, RingTransition, View};
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
    /// How much is to be done until the end of what is under way: copies to be made, handed on or dropped, an
    /// arc to be cut out and owned.
    pub fn steps_left(&self) -> usize {
        self.transition.map_or(0, |it| left(self, it))
    }
}

fn left(view: &View, transition: RingTransition) -> usize {
    let number = transition.number();
    let of_part = |(part, it): (&ManagerNumber, &Part)| {
        let wanted = view.wanted(*part);
        let missing = wanted.iter().filter(|wanted| !it.has(**wanted));
        match transition {
            RingTransition::Join { .. } => {
                let stand_ins = it.isr.iter().filter(|it| !wanted.contains(&it.number));
                missing.filter(|it| **it == number).count() + stand_ins.count()
            }
            RingTransition::Leave { .. } => missing.count() + usize::from(it.has(number)),
        }
    };
    let copies: usize = view.parts.iter().map(of_part).sum();
    let arc = match (transition, view.parts.get(&number)) {
        (RingTransition::Leave { .. }, _) => 0,
        (RingTransition::Join { .. }, None) => 2,
        (RingTransition::Join { .. }, Some(own)) => usize::from(own.owner != number),
    };
    copies + arc
}
