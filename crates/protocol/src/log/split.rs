//! A new number's arc is cut out of the partition that holds it, at every manager for itself when it
//! adopts the View that says so.
//!
//! ```text
//!  before:  |-------------- partition 30 --------------|
//!  after:   |-- partition 20 --|----- partition 30 ----|   the same positions, each its own writes
//! ```
//! Nothing moves on disk, since documents are kept by slot: the new partition's record is written,
//! and from then on a restart counts its documents there. A disk that never heard of it holds them
//! under the other one's name; the View says of which ([`rota_ring::Split`]).
//!
//! Both halves keep the log's positions and begin a new epoch, so Sync goes on from them as after any
//! change of owner. The owner asks for the split while its log is at rest (as when members are
//! added), so no entry is ever committed in one half and lost in the other.

use crate::contents::fills::fills;
use crate::log::replica::{Replica, Run};
use rota_messages::{DocKey, Entry, Write};
use rota_model::node_msg::SlotRange;
use std::collections::VecDeque;

/// Takes the writes of `arc` out of entries; each keeps its place in both logs.
fn cut_entries(entries: &mut VecDeque<Entry>, arc: SlotRange) -> (VecDeque<Entry>, usize) {
    let mut bytes = 0;
    let mut taken = VecDeque::with_capacity(entries.len());
    for entry in entries {
        let (inside, outside): (Vec<Write>, Vec<Write>) =
            entry.writes.iter().cloned().partition(|write| arc.contains(write.key.slot));
        let (at, request) = (entry.at, entry.request.clone());
        *entry = Entry::new(at, outside, request.clone());
        taken.push_back(Entry::new(at, inside, request));
        bytes += taken.back().map_or(0, Entry::bytes);
    }
    (taken, bytes)
}

impl Replica {
    /// Takes out the copy of an arc: its documents, and its part of the log.
    pub fn cut(&mut self, arc: SlotRange) -> Replica {
        let (window, window_bytes) = cut_entries(&mut self.window.entries, arc);
        let (tail, tail_bytes) = cut_entries(&mut self.tail.entries, arc);
        self.window.bytes = self.window.entries.iter().map(Entry::bytes).sum();
        self.tail.bytes = self.tail.entries.iter().map(Entry::bytes).sum();
        self.tail.fills = self.tail.entries.iter().map(fills).sum();
        let tail_fills = tail.iter().map(fills).sum();
        let mut taken = Replica {
            pe: self.pe,
            high_water: self.high_water,
            settled_water: self.settled_water,
            base: self.base,
            window: Run { entries: window, bytes: window_bytes, fills: 0 },
            tail: Run { entries: tail, bytes: tail_bytes, fills: tail_fills },
            last: self.last,
            committed: self.committed,
            durable: self.durable,
            whole: self.whole,
            ..Replica::default()
        };
        let is_inside = |key: &&DocKey| arc.contains(key.slot);
        let keys: Vec<DocKey> = self.docs.keys().filter(is_inside).cloned().collect();
        for key in keys {
            let doc = self.docs.get(&key).cloned();
            self.set(&key, None);
            taken.set(&key, doc);
        }
        let keys: Vec<DocKey> = self.latest.keys().filter(is_inside).cloned().collect();
        for key in keys {
            if let Some(latest) = self.latest.remove(&key) {
                taken.latest.insert(key, latest);
            }
        }
        taken
    }
}
