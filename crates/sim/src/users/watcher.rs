//! A watcher that follows every partition by long polls.

use crate::calls::CallFor;
use crate::counters::Corner;
use crate::event::Event;
use crate::ground::Ground;
use crate::invariant::watch_gaps::Watched;
use crate::network::Place;
use crate::setup::other_space;
use rota_model::{Filter, ListCursor, LogPos, ManagerNumber, PullOp, SlotId};
use rota_protocol::{Answer, Op, OpResult};
use std::collections::BTreeMap;

/// What the watcher knows of each partition, and where it goes on.
#[derive(Clone, Debug, Default)]
pub struct Watcher {
    /// By partition.
    pub parts: BTreeMap<ManagerNumber, Following>,
}

/// Where the watch of one partition stands.
#[derive(Clone, Debug, Default)]
pub struct Following {
    /// What it knows.
    pub watched: Watched,
    /// Changes up to here are known.
    pub from: Option<LogPos>,
    /// The end of a snapshot's page.
    snapshot_after: Option<ListCursor>,
    /// When the last pull was asked for.
    asked_us: u64,
    /// What was committed before this has been shown.
    fresh_us: u64,
}

/// What is watched of a partition: of every second one, the sessions of one namespace, which are few,
/// so that most of what is committed concerns nobody.
pub fn filter_of(part: ManagerNumber) -> Filter {
    let namespace = (!part.0.is_multiple_of(2)).then(other_space);
    Filter { namespace, ..Filter::default() }
}

impl Watcher {
    /// Whether every partition has answered a pull that was asked for after that moment, to the end.
    pub fn has_caught_up(&self, since_us: u64) -> bool {
        let is_fresh = |it: &Following| it.fresh_us > since_us && !it.watched.is_in_snapshot();
        self.parts.values().all(is_fresh)
    }

    /// The watcher pulls from a partition through any manager.
    pub fn on_due(&mut self, ground: &mut Ground, part: ManagerNumber) {
        let through = ground.rng.index(ground.machines.numbers.len());
        let through = ground.machines.numbers[through].0;
        let now_us = ground.now_us();
        let following = self.parts.entry(part).or_default();
        following.asked_us = now_us;
        let op = Op::Pull(PullOp {
            slot: SlotId(part.0),
            from: following.from,
            snapshot_after: following.snapshot_after.clone(),
            limit: 16,
            wait_ms: 300,
            filter: filter_of(part),
        });
        ground.call(through, CallFor::Pull(part), Place::OBSERVER, 1_000, op);
    }

    /// A pull was answered, or was not in time.
    pub fn on_pulled(
        &mut self,
        ground: &mut Ground,
        part: ManagerNumber,
        result: Option<OpResult>,
    ) {
        let following = self.parts.entry(part).or_default();
        let mut pause_us = 20_000;
        if let Some(Ok(Answer::Pulled(pulled))) = result {
            let goes_on = following.snapshot_after.is_some();
            if pulled.snapshot && following.from.is_some() && !goes_on {
                ground.counters.corner(Corner::OldPosition);
            }
            if goes_on {
                ground.counters.corner(Corner::SplitWatch);
            }
            following.watched.on_pulled(&pulled);
            // A page ends where it is full; that there is nothing more, only an empty one says.
            if pulled.events.is_empty() && !pulled.snapshot {
                following.fresh_us = following.asked_us;
            }
            following.from = Some(pulled.upto);
            following.snapshot_after = pulled.snapshot_next;
            pause_us = 1_000;
        }
        ground.queue.after(pause_us, Event::Pull(part));
    }
}
