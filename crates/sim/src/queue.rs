//! The event queue: simulated time, and what happens when.

use std::collections::BTreeMap;

/// Events by simulated time; events of one moment in the order in which they were scheduled.
#[derive(Clone, Debug)]
pub struct Queue<E> {
    events: BTreeMap<(u64, u64), E>,
    scheduled: u64,
    now_us: u64,
}

impl<E> Default for Queue<E> {
    fn default() -> Self {
        Self { events: BTreeMap::new(), scheduled: 0, now_us: 0 }
    }
}

impl<E> Queue<E> {
    /// Simulated time in microseconds since the start of the run.
    pub fn now_us(&self) -> u64 {
        self.now_us
    }

    /// Schedules an event; the past means now.
    pub fn at(&mut self, at_us: u64, event: E) {
        self.scheduled += 1;
        self.events.insert((at_us.max(self.now_us), self.scheduled), event);
    }

    /// Schedules an event after some time.
    pub fn after(&mut self, delay_us: u64, event: E) {
        self.at(self.now_us.saturating_add(delay_us), event);
    }

    /// The next event that is due at or before `until_us`; time moves to it. Without one, time
    /// moves to `until_us`.
    pub fn next_until(&mut self, until_us: u64) -> Option<E> {
        let due = self.events.first_entry().filter(|it| it.key().0 <= until_us);
        match due {
            Some(entry) => {
                self.now_us = entry.key().0;
                Some(entry.remove())
            }
            None => {
                self.now_us = self.now_us.max(until_us);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_order_of_time_then_of_scheduling() {
        let mut queue = Queue::default();
        queue.at(20, 'c');
        queue.at(10, 'a');
        queue.at(10, 'b');
        assert_eq!(queue.next_until(15), Some('a'));
        assert_eq!(queue.next_until(15), Some('b'));
        assert_eq!(queue.next_until(15), None);
        assert_eq!(queue.now_us(), 15);
        queue.at(5, 'd');
        assert_eq!(queue.next_until(30), Some('d'));
        assert_eq!(queue.next_until(30), Some('c'));
        assert_eq!(queue.now_us(), 20);
    }
}
