//! How a watch joins its partitions into one stream with one position. Pure.
//!
//! Partitions move on independently. A position names, for each partition whose first snapshot is
//! complete, the place in its log up to which everything was delivered; so what a resumed watch
//! delivers twice is at most one answer of each partition, and it misses nothing.

use rota_model::{LogPos, ManagerNumber, Pulled};
use rota_proto::Position;
use std::collections::BTreeMap;

/// One message of the stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Item<Event> {
    /// What changed; `None` only moves the position or tells `caught_up`.
    pub event: Option<Event>,
    /// Everything up to here was delivered.
    pub position: Position,
    /// Part of a partition's snapshot.
    pub snapshot: bool,
    /// Every partition's first snapshot is complete.
    pub caught_up: bool,
}

/// Where to ask a new partition first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Start {
    /// Changes after this; `None` asks for a snapshot.
    pub from: Option<LogPos>,
    /// The client may have been told of what is there.
    pub knows: bool,
}

/// Where to ask a partition next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ask<Cursor> {
    /// Changes after this; `None` asks for a snapshot.
    pub from: Option<LogPos>,
    /// The snapshot goes on after this.
    pub snapshot_after: Option<Cursor>,
    /// The client may have been told of what is there when this snapshot began, or when the next one will.
    pub knows: bool,
}

impl<Cursor: Clone> Ask<Cursor> {
    /// The first time.
    pub fn first(start: Start) -> Self {
        Self { from: start.from, snapshot_after: None, knows: start.knows }
    }

    /// Where to ask after an answer.
    pub fn after<Event>(&self, pulled: &Pulled<Event, Cursor>) -> Self {
        let snapshot_after = pulled.snapshot_next.clone();
        let knows = self.knows || snapshot_after.is_none();
        Self { from: Some(pulled.upto), snapshot_after, knows }
    }
}

/// The state of one watch.
#[derive(Debug)]
pub struct Merge {
    /// Partitions, and whether their first snapshot (or, when resumed, first answer) is complete.
    settled: BTreeMap<ManagerNumber, bool>,
    position: Position,
    is_resumed: bool,
    told: bool,
}

impl Merge {
    /// A watch over no partitions yet, which goes on from `position`. `is_resumed`: it is one of an earlier
    /// answer.
    pub fn new(position: Position, is_resumed: bool) -> Self {
        Self { settled: BTreeMap::new(), position, is_resumed, told: false }
    }

    /// Sets the partitions: gives those that are new, and where to ask them. Positions of
    /// partitions that are no more are forgotten.
    pub fn set_parts(
        &mut self,
        parts: impl IntoIterator<Item = ManagerNumber>,
    ) -> Vec<(ManagerNumber, Start)> {
        let before = std::mem::take(&mut self.settled);
        for part in parts {
            self.settled.insert(part, before.get(&part).copied().unwrap_or(false));
        }
        self.position.parts.retain(|part, _| self.settled.contains_key(part));
        let new = self.settled.keys().filter(|part| !before.contains_key(part));
        // What a new partition has was another one's: the client was told of it there. Before it has caught
        // up it may be, too, unless the first View has just come.
        let knows = self.is_resumed || !before.is_empty();
        let start = |part: &ManagerNumber| {
            (*part, Start { from: self.position.parts.get(part).copied(), knows })
        };
        new.map(start).collect()
    }

    /// Takes a partition's answer; gives what to send, in order.
    pub fn take<Event, Cursor>(&mut self, pulled: Pulled<Event, Cursor>) -> Vec<Item<Event>> {
        let Some(settled) = self.settled.get_mut(&pulled.part) else { return Vec::new() };
        let complete = !pulled.snapshot || pulled.snapshot_next.is_none();
        let before = self.position.parts.get(&pulled.part).copied();
        *settled |= complete;
        if pulled.snapshot {
            // Until this snapshot is complete, a break must begin it anew.
            self.position.parts.remove(&pulled.part);
        }
        let event_item = |position: &Position, event| Item {
            event: Some(event),
            position: position.clone(),
            snapshot: pulled.snapshot,
            caught_up: false,
        };
        let mut items = Vec::with_capacity(pulled.events.len() + 1);
        let mut events = pulled.events.into_iter().peekable();
        while let Some(event) = events.next() {
            if complete && events.peek().is_none() {
                self.position.parts.insert(pulled.part, pulled.upto);
            }
            items.push(event_item(&self.position, event));
        }
        if complete {
            self.position.parts.insert(pulled.part, pulled.upto);
        }
        let caught_up = !self.told && self.settled.values().all(|it| *it);
        self.told |= caught_up;
        let moved = items.is_empty() && complete && before != Some(pulled.upto);
        if caught_up || moved {
            let position = self.position.clone();
            // Also a snapshot of nothing is told as one: what a client still holds is gone.
            let snapshot = pulled.snapshot;
            items.push(Item { event: None, position, snapshot, caught_up });
        }
        items
    }
}

#[cfg(test)]
mod tests {
    use super::super::list::tests::session;
    use super::*;
    use rota_model::{Epoch, ListCursor, Seq, SlotId};

    const A: ManagerNumber = ManagerNumber(100);
    const B: ManagerNumber = ManagerNumber(400);

    fn at(seq: u64) -> LogPos {
        LogPos::new(Epoch(1), Seq(seq))
    }

    fn changes(part: ManagerNumber, ids: &[&str], upto: u64) -> Pulled {
        let events = ids.iter().map(|id| session(id, 0)).collect();
        Pulled { part, events, snapshot: false, upto: at(upto), snapshot_next: None }
    }

    fn snapshot(part: ManagerNumber, ids: &[&str], upto: u64, more: bool) -> Pulled {
        let next = ListCursor { slot: SlotId(3), after: None };
        let changes = changes(part, ids, upto);
        Pulled { snapshot: true, snapshot_next: more.then_some(next), ..changes }
    }

    fn started() -> Merge {
        let mut merge = Merge::new(position(&[]), false);
        let new = merge.set_parts([A, B]);
        assert_eq!(new, [(A, Start::default()), (B, Start::default())]);
        merge
    }

    fn position(parts: &[(ManagerNumber, u64)]) -> Position {
        Position { cluster: 7, parts: parts.iter().map(|(part, seq)| (*part, at(*seq))).collect() }
    }

    #[test]
    fn caught_up_is_told_once_when_every_first_snapshot_is_complete() {
        let mut merge = started();
        let first = merge.take(snapshot(A, &["a"], 5, true));
        assert_eq!(first.len(), 1);
        assert!(first[0].snapshot && first[0].position == position(&[]));
        assert!(!merge.take(snapshot(A, &["b"], 5, false)).iter().any(|it| it.caught_up));
        let last = merge.take(snapshot(B, &[], 2, false));
        assert_eq!(last.len(), 1);
        assert!(last[0].caught_up && last[0].event.is_none());
        assert_eq!(last[0].position, position(&[(A, 5), (B, 2)]));
        assert!(!merge.take(changes(A, &["c"], 6)).iter().any(|it| it.caught_up));
    }

    #[test]
    fn only_the_last_event_of_an_answer_moves_the_position() {
        let mut merge = started();
        merge.take(snapshot(A, &[], 5, false));
        let items = merge.take(changes(A, &["a", "b"], 9));
        assert_eq!(items[0].position, position(&[(A, 5)]));
        assert_eq!(items[1].position, position(&[(A, 9)]));
    }

    #[test]
    fn an_unfinished_snapshot_leaves_its_partition_out_of_the_position() {
        let mut merge = started();
        merge.take(snapshot(A, &[], 5, false));
        merge.take(snapshot(B, &[], 5, false));
        let too_old = merge.take(snapshot(A, &["a"], 90, true));
        assert!(too_old[0].snapshot);
        assert_eq!(too_old[0].position, position(&[(B, 5)]));
        let done = merge.take(snapshot(A, &["b"], 90, false));
        assert_eq!(done[0].position, position(&[(A, 90), (B, 5)]));
    }

    #[test]
    fn an_answer_without_events_moves_the_position_when_there_is_something_to_move() {
        let mut merge = started();
        merge.take(snapshot(A, &[], 5, false));
        assert_eq!(merge.take(changes(A, &[], 5)), []);
        let moved = merge.take(changes(A, &[], 7));
        assert_eq!(moved.len(), 1);
        assert_eq!(moved[0].position, position(&[(A, 7)]));
    }

    #[test]
    fn a_resumed_watch_asks_from_its_position_and_snapshots_what_is_new() {
        let mut merge = Merge::new(position(&[(A, 5), (ManagerNumber(7), 1)]), true);
        let new = merge.set_parts([A, B]);
        assert_eq!(new[0], (A, Start { from: Some(at(5)), knows: true }));
        assert_eq!(new[1], (B, Start { from: None, knows: true }));
        merge.take(changes(A, &[], 5));
        let items = merge.take(snapshot(B, &["b"], 3, false));
        assert_eq!(items.last().unwrap().position, position(&[(A, 5), (B, 3)]));
        assert!(items.last().unwrap().caught_up);
    }

    #[test]
    fn a_snapshot_goes_on_at_the_position_at_which_it_began() {
        let pulled = snapshot(A, &["a"], 5, true);
        let ask = Ask::first(Start::default()).after(&pulled);
        assert_eq!((ask.from, &ask.snapshot_after), (Some(at(5)), &pulled.snapshot_next));
        assert!(!ask.knows, "the client is told of it for the first time");
        assert!(ask.after(&snapshot(A, &["b"], 5, false)).knows);
    }

    #[test]
    fn what_a_new_partition_has_was_told_as_what_another_one_had() {
        let mut merge = started();
        let new = merge.set_parts([A, B, ManagerNumber(700)]);
        assert_eq!(new, [(ManagerNumber(700), Start { from: None, knows: true })]);
    }

    #[test]
    fn answers_of_partitions_that_are_no_more_are_dropped() {
        let mut merge = started();
        assert_eq!(merge.set_parts([B]), []);
        assert_eq!(merge.take(snapshot(A, &["a"], 5, false)), []);
        assert!(merge.take(snapshot(B, &[], 1, false))[0].caught_up);
    }
}
