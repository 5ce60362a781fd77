//! The config store as a place of the network: what it is asked, and what it answers and shows.

use crate::counters::Fault;
use crate::event::{Event, Phase};
use crate::network::{Place, STRAGGLER_US_MAX};
use crate::packet::Packet;
use crate::world::World;
use rota_model::{ClusterName, Epoch, ManagerNumber};
use rota_protocol::CasOutcome;
use rota_ring::{ConfigState, Dropped, View};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Of so many answers during chaos.
const OTHER_RING_PERMILLE: u64 = 10;

fn other_ring() -> ClusterName {
    ClusterName::parse("another").expect("a short name")
}

/// Partitions that a write made.
fn new_parts(before: &ConfigState, after: &ConfigState) -> Vec<ManagerNumber> {
    let parts = |state: &ConfigState| {
        let view = state.view.iter();
        view.flat_map(|view| view.parts.keys().copied()).collect::<BTreeSet<_>>()
    };
    parts(after).difference(&parts(before)).copied().collect()
}

impl World {
    /// A packet reaches the config store.
    pub fn store_gets(&mut self, from: Place, packet: Packet) {
        let Place::Manager(number) = from else { return };
        let run = self.managers.get(&number).map(|it| it.run);
        if let Packet::Read { read } = packet {
            let state = self.shown_config(from);
            self.ground.send(Place::Store, from, run, Packet::ReadDone { read, state });
        } else if let Packet::Cas { cas, generation, change } = packet {
            let written = self.write_config((number, generation), &change);
            let state = self.store.state().clone();
            let outcome =
                if written { CasOutcome::Done(state) } else { CasOutcome::Conflict(state) };
            if written && self.ground.phase == Phase::Chaos && self.ground.rng.permille(60) {
                if run == Some(generation) && self.ground.is_there(from) {
                    self.ground.counters.fault(Fault::CasAnswerLost);
                }
                return;
            }
            let packet = Packet::CasDone { cas, outcome };
            self.ground.send(Place::Store, from, Some(generation), packet);
        }
    }

    /// What the config store shows to a manager: during chaos, seldom, a View of another ring and its nodes,
    /// of which there are none; or, to one that knows a later View, an old backup that was written since.
    pub fn shown_config(&mut self, to: Place) -> ConfigState {
        let state = self.store.state();
        let chaos =
            self.ground.phase == Phase::Chaos && self.ground.rng.permille(OTHER_RING_PERMILLE);
        let Some(view) = state.view.as_deref().filter(|_| chaos) else { return state.clone() };
        let epoch = Epoch(view.epoch.0 + self.ground.rng.within(0, 3));
        let view = match self.ground.rng.permille(500) {
            true => View { epoch, r: view.r + 1, ..view.clone() },
            false => View { epoch, cluster: other_ring(), ..view.clone() },
        };
        let index = state.index + self.ground.rng.within(0, 3);
        if let Some(backup) = self.old_backup(to) {
            let shown = ConfigState { index: index + 1, ..backup.clone() };
            if self.ground.is_there(to) {
                self.ground.counters.fault(Fault::OldStoreShown);
            }
            return shown;
        }
        if self.ground.is_there(to) {
            self.ground.counters.fault(Fault::OtherRingShown);
        }
        ConfigState {
            index,
            view: Some(Arc::new(view)),
            nodes: BTreeMap::new(),
            dropped: Dropped::default(),
        }
    }

    /// Now and then, a backup that is older than what that manager knows.
    fn old_backup(&self, to: Place) -> Option<&ConfigState> {
        let Place::Manager(number) = to else { return None };
        let known = self.managers.get(&number)?.process.as_ref()?.view()?.epoch;
        let backup = self.store.backup().filter(|it| it.epoch() < known)?;
        self.store.state().index.is_multiple_of(3).then_some(backup)
    }

    /// Compares and sets; tells the watches.
    pub fn write_config(
        &mut self,
        author: (ManagerNumber, u64),
        change: &rota_ring::Change,
    ) -> bool {
        let now_us = self.ground.now_us();
        let before = self.store.state().clone();
        let written = self.store.cas(change);
        let line = || {
            let fate = if written { "writes" } else { "refuses" };
            format!("{fate} for M{}: {}", author.0, crate::packet::brief_change(change))
        };
        self.ground.trace.line(now_us, Place::Store, line);
        self.ground.trace.mark((now_us, "cas", author, written));
        if written {
            let disks = self.managers.iter().map(|(n, host)| (*n, host.disk_as_acked())).collect();
            self.ground.checker.on_config(now_us, author, (&before, self.store.state()), &disks);
            self.forget_told();
            for part in new_parts(&before, self.store.state()) {
                self.ground.queue.after(400_000, Event::Pull(part));
                self.ground.queue.after(400_000, Event::Documents(part));
            }
            for number in self.managers.keys().copied().collect::<Vec<_>>() {
                let late = self.ground.phase == Phase::Chaos && self.ground.rng.permille(40);
                let delay_us = self.ground.rng.within(100, if late { 900_000 } else { 5_000 });
                if late && self.ground.is_there(Place::Manager(number)) {
                    self.ground.counters.fault(Fault::LateWatch);
                }
                let run = self.managers.get(&number).map_or(0, |it| it.run);
                self.ground.queue.after(delay_us, Event::Watch(number, run, false));
            }
        }
        written
    }

    /// Sends a compare-and-set; sometimes it arrives long after.
    pub fn send_cas(&mut self, number: ManagerNumber, packet: Packet) {
        if let Packet::Cas { change, .. } = &packet
            && let Some(delay_us) = self.plant_lateness(number, change)
        {
            self.send_later(number, delay_us, packet);
        } else if self.ground.phase == Phase::Chaos && self.ground.rng.permille(60) {
            self.ground.counters.fault(Fault::LateCas);
            let delay_us = self.ground.rng.within(200_000, STRAGGLER_US_MAX);
            self.send_later(number, delay_us, packet);
        } else {
            self.ground.send(Place::Manager(number), Place::Store, None, packet);
        }
    }
}
