//! The flow of numbered things to one other manager: what was sent, what is on its disk, and how much may
//! be under way at once.
//!
//! What is under way waits in a bounded outbox on its way. Without a bound here, the resending
//! after a gap or a break would fill that outbox, which then drops, which is the next gap.

use crate::settings::sizes::Sizes;
use rota_model::LogPos;
use std::collections::VecDeque;

/// The log's flow to one other manager.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Flow {
    /// Last entry that was sent.
    pub sent: LogPos,
    /// Last entry that is on its disk.
    pub acked: LogPos,
    pub(crate) under_way: VecDeque<UnderWay>,
    pub(crate) entries: usize,
    pub(crate) bytes: usize,
    pub patience: Patience,
    /// Where sending last went back to, and when.
    pub(crate) rewound: Option<(LogPos, u64)>,
}

/// A Prepare that is not acknowledged.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct UnderWay {
    pub(crate) upto: LogPos,
    pub(crate) entries: usize,
    pub(crate) bytes: usize,
}

impl Flow {
    /// A flow that goes on after `sent`; nothing is acknowledged yet.
    pub fn new(sent: LogPos, now_ms: u64) -> Self {
        Self {
            sent,
            acked: LogPos::ZERO,
            under_way: VecDeque::new(),
            entries: 0,
            bytes: 0,
            patience: Patience::new(now_ms),
            rewound: None,
        }
    }

    /// Whether another Prepare may be sent.
    pub fn has_room(&self, sizes: &Sizes) -> bool {
        self.entries < sizes.flight_entries && self.bytes < sizes.flight_bytes
    }

    /// So many entries were sent, the last of them at `upto`.
    pub fn on_sent(&mut self, upto: LogPos, entries: usize, bytes: usize, now_ms: u64) {
        self.under_way.push_back(UnderWay { upto, entries, bytes });
        self.entries += entries;
        self.bytes += bytes;
        self.sent = upto;
        self.patience.moved_ms = now_ms;
    }

    /// Everything through `at` is on the receiver's disk. False when that was known.
    pub fn on_acked(&mut self, at: LogPos, now_ms: u64) -> bool {
        if at <= self.acked {
            return false;
        }
        while self.under_way.front().is_some_and(|it| it.upto <= at) {
            let done = self.under_way.pop_front();
            self.entries -= done.as_ref().map_or(0, |it| it.entries);
            self.bytes -= done.as_ref().map_or(0, |it| it.bytes);
        }
        self.acked = at;
        // It may have been sent before sending went back.
        self.sent = self.sent.max(at);
        self.patience.on_progress(now_ms);
        true
    }

    /// The receiver has nothing after `at`: send again from there. Every Prepare behind a gap
    /// reports that gap; only one report in `pause_ms` is heard, or each would cost a resending.
    ///
    /// A report in that pause may also tell that the receiver can take what it could not take yet: a body has come.
    /// So the receiver is asked again after the shortest pause.
    pub fn rewind(&mut self, at: LogPos, now_ms: u64, pause_ms: u64) -> bool {
        if at < self.acked || at >= self.sent {
            return false;
        }
        if self.rewound.is_some_and(|(to, ms)| to == at && now_ms < ms + pause_ms) {
            self.patience.asked = 0;
            return false;
        }
        while let Some(lost) = self.under_way.pop_back_if(|it| it.upto > at) {
            self.entries -= lost.entries;
            self.bytes -= lost.bytes;
        }
        self.sent = at;
        self.rewound = Some((at, now_ms));
        true
    }
}

/// When a silent receiver is asked again.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Patience {
    /// When something was sent or acknowledged last.
    pub(crate) moved_ms: u64,
    /// How often the receiver was asked since the last progress.
    pub(crate) asked: u32,
}

impl Patience {
    pub fn new(now_ms: u64) -> Self {
        Self { moved_ms: now_ms, asked: 0 }
    }

    pub fn on_progress(&mut self, now_ms: u64) {
        *self = Self::new(now_ms);
    }

    /// Whether to ask now. The pause doubles up to eight times.
    pub fn is_over(&mut self, now_ms: u64, pause_ms: u64) -> bool {
        let over = now_ms >= self.moved_ms + (pause_ms << self.asked.min(3));
        if over {
            (self.moved_ms, self.asked) = (now_ms, self.asked + 1);
        }
        over
    }
}

/// Numbered messages that a receiver takes in order.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Pieces {
    /// It has all before this one.
    pub taken: u64,
    /// The next to send.
    pub next: u64,
    pub patience: Patience,
}

impl Pieces {
    pub fn new(now_ms: u64) -> Self {
        Self { taken: 0, next: 0, patience: Patience::new(now_ms) }
    }

    /// The number to send now, if `most` may be under way and `made` exist.
    pub fn send(&mut self, most: usize, made: u64) -> Option<u64> {
        let most = u64::try_from(most).unwrap_or(u64::MAX);
        let due = self.next < made && self.next < self.taken.saturating_add(most);
        let number = self.next;
        self.next += u64::from(due);
        due.then_some(number)
    }

    /// It has all before `taken`. False when that was known.
    pub fn on_taken(&mut self, taken: u64, now_ms: u64) -> bool {
        if taken <= self.taken {
            return false;
        }
        self.taken = taken;
        self.next = self.next.max(taken);
        self.patience.on_progress(now_ms);
        true
    }

    /// Nothing moved for so long: send again from the first that it lacks. One piece, and the
    /// others when it is there: the receiver may be slow, and not have lost anything.
    pub fn rewind(&mut self, now_ms: u64, pause_ms: u64) -> bool {
        let over = self.patience.is_over(now_ms, pause_ms);
        if over {
            self.next = self.taken;
        }
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_model::{Epoch, Seq};

    fn at(seq: u64) -> LogPos {
        LogPos::new(Epoch(3), Seq(seq))
    }

    fn small() -> Sizes {
        Sizes { flight_entries: 4, flight_bytes: 100, ..Sizes::default() }
    }

    #[test]
    fn no_more_is_under_way_than_the_sizes_allow_until_it_is_acknowledged() {
        let mut flow = Flow::new(at(1), 0);
        flow.on_sent(at(3), 2, 60, 0);
        assert!(flow.has_room(&small()));
        flow.on_sent(at(4), 1, 60, 0);
        assert!(!flow.has_room(&small()), "120 bytes are under way");
        assert!(flow.on_acked(at(3), 5));
        assert!(flow.has_room(&small()));
        flow.on_sent(at(7), 3, 1, 6);
        assert!(!flow.has_room(&small()), "4 entries are under way");
        assert!(!flow.on_acked(at(3), 7), "that was known");
    }

    #[test]
    fn a_gap_is_sent_again_once_however_often_it_is_reported() {
        let mut flow = Flow::new(at(1), 0);
        for seq in 2..=4 {
            flow.on_sent(at(seq), 1, 40, 0);
        }
        assert!(flow.rewind(at(2), 10, 100));
        assert_eq!((flow.sent, flow.has_room(&small())), (at(2), true));
        flow.on_sent(at(4), 2, 80, 10);
        assert!(!flow.rewind(at(2), 11, 100), "the same gap, reported by a later Prepare");
        assert!(flow.rewind(at(2), 110, 100), "it was lost again");
        assert!(flow.on_acked(at(4), 120), "an earlier sending arrived after all");
        assert_eq!(flow.sent, at(4));
        assert!(!flow.rewind(at(3), 300, 100), "old news");
    }

    #[test]
    fn a_receiver_that_reports_its_gap_too_often_is_asked_again_after_the_shortest_pause() {
        let mut flow = Flow::new(at(1), 0);
        flow.on_sent(at(2), 1, 40, 0);
        assert!(flow.patience.is_over(100, 100) && flow.patience.is_over(300, 100));
        assert!(flow.rewind(at(1), 300, 100));
        flow.on_sent(at(2), 1, 40, 300);
        assert!(!flow.rewind(at(1), 307, 100), "it could take it since, and says so at once");
        assert!(!flow.patience.is_over(399, 100) && flow.patience.is_over(400, 100));
    }

    #[test]
    fn a_silent_receiver_is_asked_after_doubling_pauses() {
        let mut flow = Flow::new(at(1), 0);
        flow.on_sent(at(2), 1, 1, 0);
        let asked: Vec<u64> = (0..2_000).filter(|ms| flow.patience.is_over(*ms, 100)).collect();
        assert_eq!(asked, [100, 300, 700, 1500]);
        assert!(flow.on_acked(at(2), 2_000));
        assert!(!flow.patience.is_over(2_099, 100) && flow.patience.is_over(2_100, 100));
    }
}
