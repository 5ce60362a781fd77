//! The config store as a place of the network: what it is asked, and what it answers and shows.

use crate::counters::Fault;
use crate::event::{Event, Phase};
use crate::ground::Ground;
use crate::manager_host::ManagerHost;
use crate::network::Place;
use crate::packet::Packet;
use crate::store::Store;
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
        let run = self.ground.machines.run_of(number);
        if let Packet::Read { read } = packet {
            let known = self.managers.get(&number).and_then(ManagerHost::known_epoch);
            let state = self.store.shown_to(&mut self.ground, from, known);
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
            for number in self.ground.machines.managers() {
                self.at_manager(number, |at| at.forget_told());
            }
            for part in new_parts(&before, self.store.state()) {
                self.ground.queue.after(400_000, Event::Pull(part));
                self.ground.queue.after(400_000, Event::Documents(part));
            }
            for number in self.ground.machines.managers() {
                let late = self.ground.phase == Phase::Chaos && self.ground.rng.permille(40);
                let delay_us = self.ground.rng.within(100, if late { 900_000 } else { 5_000 });
                if late && self.ground.is_there(Place::Manager(number)) {
                    self.ground.counters.fault(Fault::LateWatch);
                }
                let run = self.ground.machines.run_of(number).unwrap_or_default();
                self.ground.queue.after(delay_us, Event::Watch(number, run, false));
            }
        }
        written
    }
}

impl Store {
    /// What the config store shows to a manager: during chaos, seldom, a View of another ring and its nodes,
    /// of which there are none; or, to one that knows a later View, an old backup that was written since.
    pub fn shown_to(&self, ground: &mut Ground, to: Place, known: Option<Epoch>) -> ConfigState {
        let state = self.state();
        let chaos = ground.phase == Phase::Chaos && ground.rng.permille(OTHER_RING_PERMILLE);
        let Some(view) = state.view.as_deref().filter(|_| chaos) else { return state.clone() };
        let epoch = Epoch(view.epoch.0 + ground.rng.within(0, 3));
        let view = match ground.rng.permille(500) {
            true => View { epoch, r: view.r + 1, ..view.clone() },
            false => View { epoch, cluster: other_ring(), ..view.clone() },
        };
        let index = state.index + ground.rng.within(0, 3);
        if let Some(backup) = self.old_backup(known) {
            let shown = ConfigState { index: index + 1, ..backup.clone() };
            if ground.is_there(to) {
                ground.counters.fault(Fault::OldStoreShown);
            }
            return shown;
        }
        if ground.is_there(to) {
            ground.counters.fault(Fault::OtherRingShown);
        }
        ConfigState {
            index,
            view: Some(Arc::new(view)),
            nodes: BTreeMap::new(),
            dropped: Dropped::default(),
        }
    }

    /// Now and then, a backup that is older than what that manager knows.
    fn old_backup(&self, known: Option<Epoch>) -> Option<&ConfigState> {
        let backup = self.backup().filter(|it| known.is_some_and(|known| it.epoch() < known))?;
        self.state().index.is_multiple_of(3).then_some(backup)
    }
}
