//! Data folders of nodes that are lost, and two machines under one id: who may take a boot's place.

use crate::counters::{Corner, Fault};
use crate::event::{Event, Phase};
use crate::network::Place;
use crate::node_host::Leaving;
use crate::setup::node_address;
use crate::world::World;
use rota_model::node_msg::ENDED_BOOTS_MAX;
use rota_model::{BootId, Refusal};
use rota_node::{AfterRefusal, Node, NodeInput, after_refusal};

/// What a node's data folder remembers of its boots.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Folder {
    /// Those of this folder, newest last, and the machine that each ran on: a folder is copied, too.
    boots: Vec<(BootId, usize)>,
    /// Where the clock of its machine is behind, by which part: half, a quarter, an eighth.
    behind: Option<u32>,
}

impl World {
    /// The number of a machine's next boot, and those that its folder proves to be over.
    pub fn next_boot(&mut self, index: usize) -> (BootId, Vec<BootId>) {
        // A clock that all share; how much it goes on is left to rng.
        let clock = self.boots.last().map_or(0, |it| it.0) + self.ground.rng.within(1, 1_000_000);
        let believed = self.plant_believes_folders();
        let Some(host) = self.nodes.get_mut(index) else { return (BootId(clock), Vec::new()) };
        let folder = &mut host.folder;
        let behind = folder.behind.map_or(0, |part| clock >> part.min(63));
        let last = folder.boots.last().map_or(0, |it| it.0.0);
        let mut boot = BootId((clock - behind).max(last + 1));
        while !self.boots.insert(boot) {
            boot = BootId(boot.0 + 1);
        }
        // What runs on another machine cannot be seen from this one.
        let here = folder.boots.iter().filter(|(_, machine)| *machine == index || believed);
        let ended = here.map(|(boot, _)| *boot).collect();
        folder.boots.push((boot, index));
        let surplus = folder.boots.len().saturating_sub(ENDED_BOOTS_MAX);
        folder.boots.drain(..surplus);
        (boot, ended)
    }

    /// A node dies, and comes back with a fresh folder, some on a machine whose clock is behind.
    pub fn lose_folder(&mut self, fault: Fault) {
        let index = self.ground.rng.index(self.nodes.len());
        let behind = self.ground.rng.permille(300).then_some(1);
        // Mostly before its boot is lost, and always before some node has anything else to do.
        let away_us = self.ground.rng.within(1_000, self.ground.setup.timing.node_lost_ms * 500);
        if self.nodes[index].agent.is_some() {
            self.ground.took_effect(fault);
            self.kill_node(index);
            self.nodes[index].folder = Folder { boots: Vec::new(), behind };
            self.ground.queue.after(away_us, Event::BootNode(index));
        }
    }

    /// A second agent under one id starts, on a machine of its own, and works for a while: every other time
    /// with a copy of the first one's folder.
    pub fn start_twin(&mut self, fault: Fault) {
        let index = self.ground.rng.index(self.nodes.len());
        let id = self.nodes[index].id.clone();
        let address = format!("twin-of-{}", node_address(&id));
        let lost_us = self.ground.setup.timing.node_lost_ms * 1000;
        let length_us = self.ground.rng.within(lost_us / 4, lost_us * 4);
        if !self.nodes.iter().any(|it| it.address == address) {
            self.add_machine(id, address.clone());
        }
        let Some(twin) = self.nodes.iter().position(|it| it.address == address) else { return };
        if self.nodes[twin].agent.is_none() {
            self.ground.took_effect(fault);
            if length_us.is_multiple_of(2) {
                self.nodes[twin].folder = self.nodes[index].folder.clone();
                self.ground.counters.fault(Fault::FolderCopied);
            }
            self.boot_node(twin);
            let run = self.nodes[twin].run;
            self.ground.queue.after(length_us, Event::Retire(twin, run));
        }
    }

    /// A second agent ends.
    pub fn on_retire(&mut self, index: usize, run: u64) {
        if self.nodes.get(index).is_some_and(|it| it.run == run) {
            self.kill_node(index);
        }
    }

    /// Whether a machine is a second one under its id.
    fn is_twin(&self, index: usize) -> bool {
        self.nodes.get(index).is_some_and(|it| it.address != node_address(&it.id))
    }

    /// Whether a machine is not to start any more: in a healed cluster each id has one.
    pub fn is_retired(&self, index: usize) -> bool {
        self.ground.phase != Phase::Chaos && self.is_twin(index)
    }

    /// Ends every second agent for good.
    pub fn retire_twins(&mut self) {
        for index in 0..self.nodes.len() {
            if self.is_twin(index) {
                self.kill_node(index);
            }
        }
    }

    /// A manager did not register a boot.
    pub fn on_register_refused(&mut self, index: usize, refusal: &Refusal) {
        let now_us = self.ground.now_us();
        let line = || format!("is not registered: {refusal}");
        self.ground.trace.line(now_us, Place::Node(index), line);
        let Some(host) = self.nodes.get_mut(index) else { return };
        let registered = host.agent.as_ref().is_some_and(Node::is_registered);
        match after_refusal(refusal) {
            // It is repeated until it is answered; a cluster that is well does not get there.
            AfterRefusal::Again | AfterRefusal::End => {}
            AfterRefusal::Wait { .. } => self.ground.counters.corner(Corner::BootWaited),
            // One that goes on from a journal hears of the verdict that fell before.
            AfterRefusal::BootAnew
                if host.agent.as_ref().is_some_and(|it| registered && it.managers().is_empty()) =>
            {
                let (run, boot, sent_mono_ms) = (host.run, host.boot, host.mono_ms(now_us));
                let renewed = rota_model::node_msg::Renewed::Lost;
                self.tell_node(index, run, NodeInput::Renewed { boot, sent_mono_ms, renewed });
            }
            AfterRefusal::BootAnew if registered && host.leaving != Leaving::Left => {}
            AfterRefusal::BootAnew => {
                if let Some(part) = &mut host.folder.behind {
                    *part += 1;
                    self.ground.counters.corner(Corner::BootBehind);
                }
                self.kill_node(index);
                let delay_us = self.ground.rng.within(1_000, 200_000);
                self.ground.queue.after(delay_us, Event::BootNode(index));
            }
        }
    }

    /// The first machine whose agent did not get in, among those that stay.
    pub fn outside(&self) -> Option<String> {
        let hosts = self.nodes.iter().enumerate().filter(|(index, _)| !self.is_twin(*index));
        let mut out =
            hosts.filter(|(_, host)| !host.agent.as_ref().is_some_and(Node::is_registered));
        out.next().map(|(_, host)| format!("{} {:?} is not registered", host.id, host.boot))
    }

    /// The first machine that is still ending something, or has news that no manager acknowledged.
    /// What is ending is rightly said to be live until it has ended.
    pub fn restless(&self) -> Option<String> {
        self.nodes.iter().find_map(|host| {
            let agent = host.agent.as_ref()?;
            if let Some(ending) = agent.live().find(|it| it.phase == rota_node::Phase::Stopping) {
                return Some(format!("{} is ending {}", host.id, ending.key));
            }
            let news = agent.outbox_sessions();
            (news > 0).then(|| format!("{} has news of {news} sessions", host.id))
        })
    }
}
