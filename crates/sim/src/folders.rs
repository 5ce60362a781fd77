//! Data folders of nodes that are lost, and two machines under one id: who may take a boot's place.

use crate::counters::Corner;
use crate::event::Phase;
use crate::mutants::bug::Bug;
use crate::node_host::Leaving;
use crate::setup::node_address;
use crate::site::AtNode;
use rota_model::node_msg::Renewed;
use rota_model::{BootId, Refusal};
use rota_node::{AfterRefusal, Node, NodeInput, after_refusal};

impl AtNode<'_> {
    /// The number of a machine's next boot, and those that its folder proves to be over.
    pub fn next_boot(&mut self) -> (BootId, Vec<BootId>) {
        let believes = self.bug() == Some(Bug::FolderBelieved);
        let boots = &mut self.ground.machines.boots;
        // A clock that all share; how much it goes on is left to rng.
        let clock = boots.last().map_or(0, |it| it.0) + self.ground.rng.within(1, 1_000_000);
        self.host.folder.next_boot(clock, (self.index, believes), boots)
    }

    /// Whether the machine is a second one under its id.
    pub fn is_twin(&self) -> bool {
        self.ground.machines.nodes()[self.index].address != node_address(&self.host.id)
    }

    /// Whether the machine is not to start any more: in a healed cluster each id has one.
    pub fn is_retired(&self) -> bool {
        self.ground.phase != Phase::Chaos && self.is_twin()
    }

    /// A manager did not register a boot.
    pub fn on_register_refused(&mut self, refusal: &Refusal) {
        let now_us = self.ground.now_us();
        let line = || format!("is not registered: {refusal}");
        self.ground.trace.line(now_us, self.place(), line);
        let host = &mut *self.host;
        let registered = host.agent.as_ref().is_some_and(Node::is_registered);
        match after_refusal(refusal) {
            // It is repeated until it is answered; a cluster that is well does not get there.
            AfterRefusal::Again | AfterRefusal::End => {}
            AfterRefusal::Wait { .. } => self.ground.counters.corner(Corner::BootWaited),
            // One that goes on from a journal hears of the verdict that fell before.
            AfterRefusal::BootAnew
                if host.agent.as_ref().is_some_and(|it| registered && it.managers().is_empty()) =>
            {
                let (boot, sent_mono_ms) = (host.boot, host.mono_ms(now_us));
                self.tell(NodeInput::Renewed { boot, sent_mono_ms, renewed: Renewed::Lost });
            }
            AfterRefusal::BootAnew if registered && host.leaving != Leaving::Left => {}
            AfterRefusal::BootAnew => {
                if host.folder.catch_up() {
                    self.ground.counters.corner(Corner::BootBehind);
                }
                self.boot_anew((1_000, 200_000));
            }
        }
    }
}
