//! Disturbances of the network: who does not hear whom, for how long, and where messages are slow, lost and repeated.

use crate::counters::Fault;
use crate::event::Event;
use crate::ground::Ground;
use crate::network::{Disturbance, NetworkProfile, Place};
use std::collections::BTreeSet;

impl Ground {
    pub(crate) fn hide_store_from_one(&mut self, fault: Fault) {
        let number = self.some_manager();
        let both = self.rng.permille(700);
        let managers = BTreeSet::from([Place::Manager(number)]);
        self.cut(fault, managers, BTreeSet::from([Place::Store]), both);
    }

    /// What it writes is written, and it does not hear so.
    pub(crate) fn hide_one_from_store(&mut self, fault: Fault) {
        let managers = BTreeSet::from([Place::Manager(self.some_manager())]);
        self.cut(fault, BTreeSet::from([Place::Store]), managers, false);
    }

    /// Not at all, or only in one direction.
    pub(crate) fn hide_peers_from_one(&mut self, fault: Fault) {
        let me = Place::Manager(self.some_manager());
        let (both, hears) = (self.rng.permille(500), self.rng.permille(500));
        let (mut peers, me) = (self.manager_places(), BTreeSet::from([me]));
        peers.retain(|it| !me.contains(it));
        let (from, to) = if hears { (me, peers) } else { (peers, me) };
        self.cut(fault, from, to, both);
    }

    pub(crate) fn isolate_manager(&mut self, fault: Fault) {
        let number = self.some_manager();
        let both = self.rng.permille(600);
        let mut others = self.manager_places();
        others.remove(&Place::Manager(number));
        others.insert(Place::Store);
        self.cut(fault, BTreeSet::from([Place::Manager(number)]), others, both);
    }

    pub(crate) fn hide_store(&mut self, fault: Fault) {
        let all = self.manager_places();
        self.cut(fault, all, BTreeSet::from([Place::Store]), true);
    }

    pub(crate) fn reset_stream(&mut self, fault: Fault) {
        let index = self.rng.index(self.machines.nodes().len());
        let managers = self.manager_places();
        if self.is_there(Place::Node(index)) && managers.iter().any(|it| self.is_there(*it)) {
            self.took_effect(fault);
        }
        self.connect_node(index);
    }

    /// How long a disturbance lasts: mostly not long.
    pub(crate) fn length_us(&mut self) -> u64 {
        let longest_us = self.setup.fault_ms_max * 1000;
        self.rng.skewed(20_000, longest_us)
    }

    fn manager_places(&self) -> BTreeSet<Place> {
        self.machines.managers().iter().map(|it| Place::Manager(*it)).collect()
    }

    /// Two groups of managers, nodes and the store.
    fn two_groups(&mut self) -> (BTreeSet<Place>, BTreeSet<Place>) {
        let mut places = self.manager_places();
        places.extend((0..self.machines.nodes().len()).map(Place::Node));
        places.insert(Place::Store);
        places.into_iter().partition(|_| self.rng.permille(400))
    }

    pub(crate) fn split(&mut self, fault: Fault) {
        let (one, other) = self.two_groups();
        self.cut(fault, one, other, fault == Fault::Partition);
    }

    pub(crate) fn spoil_network_profile(&mut self, fault: Fault) {
        let (one, other) = self.two_groups();
        let network_profile = NetworkProfile {
            delay_us: self.rng.within(0, 60_000),
            jitter_us: self.rng.within(0, 250_000),
            loss_permille: self.rng.within(0, 350),
            repeat_permille: self.rng.within(0, 300),
        };
        self.begin_disturbance(fault, (one, other), true, Some(network_profile));
    }

    pub(crate) fn cut(
        &mut self,
        fault: Fault,
        from: BTreeSet<Place>,
        to: BTreeSet<Place>,
        both_ways: bool,
    ) {
        self.begin_disturbance(fault, (from, to), both_ways, None);
    }

    /// Without a network profile nothing passes.
    fn begin_disturbance(
        &mut self,
        fault: Fault,
        (from, to): (BTreeSet<Place>, BTreeSet<Place>),
        both_ways: bool,
        network_profile: Option<NetworkProfile>,
    ) {
        let (cut, network_profile) =
            (network_profile.is_none(), network_profile.unwrap_or_default());
        let id = self.name();
        let lost_us = self.setup.timing.node_lost_ms * 1000;
        let length_us = self.length_us() + if fault == Fault::NodeApart { lost_us } else { 0 };
        let line = || {
            let arrow = if both_ways { "<->" } else { "->" };
            format!("{from:?} {arrow} {to:?}, cut: {cut}, {network_profile:?}, for {length_us} us")
        };
        self.trace.line(self.queue.now_us(), Place::Store, line);
        let felt = false;
        self.network.disturb(Disturbance {
            id,
            fault,
            felt,
            from,
            to,
            both_ways,
            cut,
            network_profile,
        });
        self.queue.after(length_us, Event::Calm(id));
    }

    /// A disturbance ends: broken streams to nodes are opened again.
    pub(crate) fn on_calm(&mut self, id: u64) {
        let Some(ended) = self.network.calm(id) else { return };
        for index in 0..self.machines.nodes().len() {
            let node = Place::Node(index);
            if ended.cut && (ended.from.contains(&node) || ended.to.contains(&node)) {
                self.connect_node(index);
            }
        }
    }

    pub(crate) fn isolate_node(&mut self, fault: Fault) {
        let index = self.rng.index(self.machines.nodes().len());
        let (from, managers) = (BTreeSet::from([Place::Node(index)]), self.manager_places());
        self.cut(fault, from, managers, true);
    }
}
