//! What a manager sends to the config store, and what a watch shows it.

use crate::counters::Fault;
use crate::event::{Event, Phase};
use crate::mutants::stores::lateness;
use crate::network::{Place, STRAGGLER_US_MAX};
use crate::packet::Packet;
use crate::site::AtManager;

impl AtManager<'_> {
    /// A manager's watch of the config store: it shows the state if that is newer than shown last.
    pub fn on_watch(&mut self, run: u64, again: bool) {
        let again_us = self.ground.rng.within(500_000, 1_500_000);
        if self.host.run != run || self.host.process.is_none() {
            return;
        }
        let me = self.place();
        if self.host.waiting.watched.is_none_or(|it| it < self.store.state().index) {
            let cut = self.ground.network.is_cut(Place::Store, me)
                || self.ground.network.is_cut(me, Place::Store);
            if cut {
                self.ground.feel(Place::Store, me);
            } else {
                let state = self.store.shown_to(self.ground, me, self.host.known_epoch());
                self.ground.send(Place::Store, me, Some(run), Packet::Watch(state));
            }
        }
        if again {
            self.ground.queue.after(again_us, Event::Watch(self.number, run, true));
        }
    }

    /// Sends a compare-and-set; sometimes it arrives long after.
    pub(crate) fn send_cas(&mut self, packet: Packet) {
        if let Packet::Cas { change, .. } = &packet
            && let Some(delay_us) = lateness(self, change)
        {
            self.send_later(delay_us, packet);
        } else if self.ground.phase == Phase::Chaos && self.ground.rng.permille(60) {
            self.ground.counters.fault(Fault::LateCas);
            let delay_us = self.ground.rng.within(200_000, STRAGGLER_US_MAX);
            self.send_later(delay_us, packet);
        } else {
            self.ground.send(self.place(), Place::Store, None, packet);
        }
    }

    /// A compare-and-set leaves later.
    pub(crate) fn send_later(&mut self, delay_us: u64, packet: Packet) {
        let from = self.place();
        let line = || format!("sends late by {delay_us} us: {}", packet.line());
        self.ground.trace.line(self.ground.queue.now_us(), from, line);
        let (run, serial, packet) = (None, 0, Box::new(packet));
        let event = Event::Arrive { from, to: Place::Store, run, serial, packet };
        self.ground.queue.after(delay_us, event);
    }
}
