//! Disturbances: what goes wrong, when, and for how long. Only what meets somebody counts: a cut
//! with the first message that it stops, a slow disk with the first sync, a kill of who runs.

use crate::counters::Fault;
use crate::event::{Event, Phase};
use crate::manager_host::ManagerHost;
use crate::network::{Disturbance, NetworkProfile, Place};
use crate::setup::manager_address;
use crate::world::World;
use rota_model::ManagerNumber;
use rota_protocol::Input;
use std::collections::BTreeSet;

/// Begins a disturbance.
type Begin = fn(&mut World, Fault);

/// Disturbances and how often each is drawn.
const MENU: &[(u64, Fault, Begin)] = &[
    (12, Fault::ManagerCrash, World::crash_one),
    (2, Fault::ClusterCrash, World::crash_all),
    (3, Fault::MachinesLost, World::lose_machines),
    (9, Fault::ManagerJoins, World::start_newcomer),
    (11, Fault::ManagerLeaves, World::order_leave),
    (4, Fault::TransitionCancelled, World::order_cancel),
    (8, Fault::ManagerReturns, World::return_manager),
    (2, Fault::NodeCordoned, World::order_cordon),
    (5, Fault::NodeDrained, World::order_drain),
    (6, Fault::NodeUncordoned, World::order_uncordon),
    (10, Fault::NodeForgotten, World::order_forget),
    (8, Fault::MendOrdered, World::order_mends),
    (8, Fault::ManagerPause, World::pause_manager),
    (8, Fault::FalseSuspicion, World::suspect_falsely),
    (8, Fault::Partition, World::split),
    (7, Fault::OneWayPartition, World::split),
    (9, Fault::ManagerIsolated, World::isolate_manager),
    (6, Fault::BadNetworkProfile, World::spoil_network_profile),
    (4, Fault::StoreAway, World::hide_store_from_one),
    (3, Fault::StoreUnheard, World::hide_one_from_store),
    (4, Fault::PeersAway, World::hide_peers_from_one),
    (2, Fault::StoreDown, World::hide_store),
    (4, Fault::NodeIsolated, World::isolate_node),
    (4, Fault::NodeApart, World::part_node),
    (5, Fault::NodeRestart, World::restart_node),
    (3, Fault::NodeCrash, World::crash_node),
    (5, Fault::AgentRestart, World::restart_agent),
    (4, Fault::NodePause, World::pause_node),
    (2, Fault::NodeLeave, World::leave_node),
    (2, Fault::FolderLost, World::lose_folder),
    (2, Fault::NodeTwin, World::start_twin),
    (4, Fault::StreamReset, World::reset_stream),
    (4, Fault::ClockStep, World::step_clock),
    (5, Fault::SlowDisk, World::slow_disk),
];

impl World {
    /// The next disturbance, and when the one after it comes.
    pub fn on_disturb(&mut self) {
        if self.ground.phase != Phase::Chaos {
            return;
        }
        let total: u64 = MENU.iter().map(|(weight, _, _)| weight).sum();
        let mut draw = self.ground.rng.within(0, total - 1);
        for (weight, fault, begin) in MENU {
            if let Some(rest) = draw.checked_sub(*weight) {
                draw = rest;
                continue;
            }
            let line = || format!("=== {} ===", fault.as_str());
            self.ground.trace.line(self.ground.queue.now_us(), Place::Store, line);
            begin(self, *fault);
            break;
        }
        let pause_us = self.ground.rng.within(20, self.ground.setup.calm_ms_max) * 1000;
        self.ground.queue.after(pause_us, Event::Disturb);
    }

    fn crash_one(&mut self, _: Fault) {
        let number = self.some_manager();
        // The crash itself is counted where it happens, whatever its cause.
        self.ground.disturbed += u64::from(self.ground.is_there(Place::Manager(number)));
        self.crash_for_a_while(number);
    }

    fn crash_all(&mut self, fault: Fault) {
        let all: Vec<ManagerNumber> = self.managers.keys().copied().collect();
        // With one left to die it is the crash of one.
        match all.iter().filter(|it| self.ground.is_there(Place::Manager(**it))).count() {
            0 => {}
            1 => self.ground.disturbed += 1,
            _ => self.ground.took_effect(fault),
        }
        for number in all {
            self.crash_for_a_while(number);
        }
    }

    /// The next newcomer, if one is left, begins to join. From now on everything may happen to it
    /// that happens to managers.
    fn start_newcomer(&mut self, fault: Fault) {
        let Some((number, id)) = self.ground.setup.newcomers.pop() else { return };
        let config = self.ground.setup.manager_config(number, &id);
        let mut host = ManagerHost::new(config);
        host.joins = true;
        self.managers.insert(number, host);
        self.ground.setup.numbers.push((number, id));
        self.start_manager(number);
        self.ground.took_effect(fault);
    }

    fn hide_store_from_one(&mut self, fault: Fault) {
        let number = self.some_manager();
        let both = self.ground.rng.permille(700);
        let managers = BTreeSet::from([Place::Manager(number)]);
        self.cut(fault, managers, BTreeSet::from([Place::Store]), both);
    }

    /// What it writes is written, and it does not hear so.
    fn hide_one_from_store(&mut self, fault: Fault) {
        let managers = BTreeSet::from([Place::Manager(self.some_manager())]);
        self.cut(fault, BTreeSet::from([Place::Store]), managers, false);
    }

    /// Not at all, or only in one direction.
    fn hide_peers_from_one(&mut self, fault: Fault) {
        let me = Place::Manager(self.some_manager());
        let (both, hears) = (self.ground.rng.permille(500), self.ground.rng.permille(500));
        let (mut peers, me) = (self.manager_places(), BTreeSet::from([me]));
        peers.retain(|it| !me.contains(it));
        let (from, to) = if hears { (me, peers) } else { (peers, me) };
        self.cut(fault, from, to, both);
    }

    fn isolate_manager(&mut self, fault: Fault) {
        let number = self.some_manager();
        let both = self.ground.rng.permille(600);
        let mut others = self.manager_places();
        others.remove(&Place::Manager(number));
        others.insert(Place::Store);
        self.cut(fault, BTreeSet::from([Place::Manager(number)]), others, both);
    }

    fn hide_store(&mut self, fault: Fault) {
        let all = self.manager_places();
        self.cut(fault, all, BTreeSet::from([Place::Store]), true);
    }

    fn reset_stream(&mut self, fault: Fault) {
        let index = self.ground.rng.index(self.nodes.len());
        let managers = self.manager_places();
        if self.ground.is_there(Place::Node(index))
            && managers.iter().any(|it| self.ground.is_there(*it))
        {
            self.ground.took_effect(fault);
        }
        self.connect_node(index);
    }

    fn slow_disk(&mut self, _: Fault) {
        let (number, length_us) = (self.some_manager(), self.length_us());
        let until_us = self.ground.now_us() + length_us;
        if let Some(host) = self.managers.get_mut(&number) {
            host.slow_disk_until_us = until_us;
            host.slow_disk_felt = false;
        }
    }

    fn length_us(&mut self) -> u64 {
        let longest_us = self.ground.setup.fault_ms_max * 1000;
        self.ground.rng.skewed(20_000, longest_us)
    }

    /// A manager of the ring, or one that is to come into it.
    pub fn some_manager(&mut self) -> ManagerNumber {
        let index = self.ground.rng.index(self.ground.setup.numbers.len());
        self.ground.setup.numbers[index].0
    }

    fn manager_places(&self) -> BTreeSet<Place> {
        self.managers.keys().map(|it| Place::Manager(*it)).collect()
    }

    fn crash_for_a_while(&mut self, number: ManagerNumber) {
        self.crash_manager(number);
        let length_us = self.length_us();
        self.ground.queue.after(length_us, Event::StartManager(number));
    }

    fn pause_manager(&mut self, fault: Fault) {
        let (number, length_us) = (self.some_manager(), self.length_us());
        let until_us = self.ground.now_us() + length_us;
        let host = self.managers.get_mut(&number).filter(|it| it.process.is_some());
        if let Some(host) = host.filter(|it| it.paused_until_us < until_us) {
            host.paused_until_us = until_us;
            let run = host.run;
            self.ground.checker.deadlines.on_paused(number, run, until_us);
            self.ground.took_effect(fault);
        }
    }

    fn suspect_falsely(&mut self, fault: Fault) {
        let (accuser, accused) = (self.some_manager(), self.some_manager());
        let process = self.managers.get(&accused).and_then(|it| it.process.as_ref());
        let Some(member) = process.map(|it| it.member()) else { return };
        if accuser != accused && self.ground.is_there(Place::Manager(accuser)) {
            self.ground.took_effect(fault);
            self.tell_later(accuser, 0, Input::Signal { member });
            let (number, address) = (accused, manager_address(accused));
            self.tell_later(accuser, 0, Input::PeerRefused { number, address });
        }
    }

    /// Two groups of managers, nodes and the store.
    fn two_groups(&mut self) -> (BTreeSet<Place>, BTreeSet<Place>) {
        let mut places = self.manager_places();
        places.extend((0..self.nodes.len()).map(Place::Node));
        places.insert(Place::Store);
        places.into_iter().partition(|_| self.ground.rng.permille(400))
    }

    fn split(&mut self, fault: Fault) {
        let (one, other) = self.two_groups();
        self.cut(fault, one, other, fault == Fault::Partition);
    }

    fn spoil_network_profile(&mut self, fault: Fault) {
        let (one, other) = self.two_groups();
        let network_profile = NetworkProfile {
            delay_us: self.ground.rng.within(0, 60_000),
            jitter_us: self.ground.rng.within(0, 250_000),
            loss_permille: self.ground.rng.within(0, 350),
            repeat_permille: self.ground.rng.within(0, 300),
        };
        self.begin_disturbance(fault, (one, other), true, Some(network_profile));
    }

    fn cut(&mut self, fault: Fault, from: BTreeSet<Place>, to: BTreeSet<Place>, both_ways: bool) {
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
        let id = self.ground.name();
        let lost_us = self.ground.setup.timing.node_lost_ms * 1000;
        let length_us = self.length_us() + if fault == Fault::NodeApart { lost_us } else { 0 };
        let line = || {
            let arrow = if both_ways { "<->" } else { "->" };
            format!("{from:?} {arrow} {to:?}, cut: {cut}, {network_profile:?}, for {length_us} us")
        };
        self.ground.trace.line(self.ground.queue.now_us(), Place::Store, line);
        let felt = false;
        self.ground.network.disturb(Disturbance {
            id,
            fault,
            felt,
            from,
            to,
            both_ways,
            cut,
            network_profile,
        });
        self.ground.queue.after(length_us, Event::Calm(id));
    }

    /// A disturbance ends: broken streams to nodes are opened again.
    pub fn on_calm(&mut self, id: u64) {
        let Some(ended) = self.ground.network.calm(id) else { return };
        for index in 0..self.nodes.len() {
            let node = Place::Node(index);
            if ended.cut && (ended.from.contains(&node) || ended.to.contains(&node)) {
                self.connect_node(index);
            }
        }
    }

    fn isolate_node(&mut self, fault: Fault) {
        let index = self.ground.rng.index(self.nodes.len());
        let (from, managers) = (BTreeSet::from([Place::Node(index)]), self.manager_places());
        self.cut(fault, from, managers, true);
    }

    /// Mostly the owner of its slot: that one declares it lost, and others grant it leases until they see that.
    fn part_node(&mut self, fault: Fault) {
        let index = self.ground.rng.index(self.nodes.len());
        let any = self.some_manager();
        let view = self.store.state().view.clone().filter(|_| self.ground.rng.permille(700));
        let owner = view
            .zip(self.nodes.get(index))
            .map(|(view, host)| view.owner_of(rota_ring::slot_of_node(&host.id, view.m)));
        let to = BTreeSet::from([Place::Manager(owner.unwrap_or(any))]);
        self.cut(fault, BTreeSet::from([Place::Node(index)]), to, true);
    }

    fn restart_node(&mut self, fault: Fault) {
        let length_us = self.ground.rng.within(1_000, 400_000);
        self.kill_for(fault, length_us);
    }

    fn crash_node(&mut self, fault: Fault) {
        let length_us = self.ground.setup.timing.node_lost_ms * 1000 + self.length_us();
        self.kill_for(fault, length_us);
    }

    fn kill_for(&mut self, fault: Fault, length_us: u64) {
        let index = self.ground.rng.index(self.nodes.len());
        if self.nodes[index].agent.is_some() {
            self.ground.took_effect(fault);
            self.kill_node(index);
            self.ground.queue.after(length_us, Event::BootNode(index));
        }
    }

    fn leave_node(&mut self, fault: Fault) {
        let index = self.ground.rng.index(self.nodes.len());
        if self.paused_until(Place::Node(index)).is_none() && self.ask_to_leave(index) {
            self.ground.took_effect(fault);
        }
    }

    fn pause_node(&mut self, fault: Fault) {
        let (index, length_us) = (self.ground.rng.index(self.nodes.len()), self.length_us());
        let until_us = self.ground.now_us() + length_us;
        let host = self.nodes.get_mut(index).filter(|it| it.agent.is_some());
        if let Some(host) = host.filter(|it| it.paused_until_us < until_us) {
            host.paused_until_us = until_us;
            self.ground.took_effect(fault);
        }
    }

    fn step_clock(&mut self, fault: Fault) {
        if !self.ground.setup.clocks_step {
            return;
        }
        let (number, ahead_ms) = (self.some_manager(), self.ground.rng.within(40_000, 160_000));
        if let Some(host) = self.managers.get_mut(&number) {
            let stepped = host.process.is_some() && host.wall_ahead_ms != ahead_ms;
            host.wall_ahead_ms = ahead_ms;
            if stepped {
                self.ground.took_effect(fault);
            }
        }
    }

    /// Ends every disturbance and brings everybody back. Who is paused comes back by itself.
    pub fn heal(&mut self) {
        self.ground.network.calm_all();
        self.ground.network.stragglers = false;
        self.ground.network.base = NetworkProfile { loss_permille: 0, ..self.ground.network.base };
        for number in self.managers.keys().copied().collect::<Vec<_>>() {
            if let Some(host) = self.managers.get_mut(&number) {
                host.slow_disk_until_us = 0;
                host.away = false;
            }
            self.ground.queue.after(1_000, Event::StartManager(number));
        }
        self.retire_twins();
        for index in 0..self.nodes.len() {
            self.nodes[index].registered_lost_until_us = 0;
            self.nodes[index].refuses_until_us = 0;
            self.nodes[index].dies_next = false;
            if self.nodes[index].agent.is_none() {
                self.ground.queue.after(1_000, Event::BootNode(index));
            } else {
                self.connect_node(index);
            }
        }
    }
}
