//! Leases of nodes. Every owner grants what a node has in its partition, after a confirm round begun after the renewal
//! arrived. The owner of the node's slot also counts the full time from its own beginning, and then declares
//! the node LOST by a compare-and-set that fails when the View has changed. That shuts the boot out. What ran
//! there is over for each owner when its own grant is ([`crate::nodes::granted`]).

use crate::log::at::At;
use crate::log::env::Env;
use crate::log::lead::Phase;
use crate::log::resident::{Resident, RoundEnd, Turn};
use crate::log::state::Log;
use crate::node_lease::reply::{addresses, over, said};
use crate::node_lease::state::{Judged, NodeLeases, Renewal};
use crate::ports::io::Effect;
use rota_model::NodeState;
use rota_model::node_msg::{Grant, NodeCall, ToNode};
use rota_ring::{Change, NodeChange, NodeOrder, NodeReg, slot_of_node};

/// For how long a node that is gone is shown to operators.
const FORGOTTEN_MS: u64 = 3_600_000;

impl Judged {
    fn heard(env: &Env, reg: &NodeReg) -> Judged {
        let heard_ms = env.now.mono_ms;
        let call_ms = heard_ms + env.config.timing.renew_ms * 5 / 4;
        Judged { boot: reg.boot, revision: reg.revision, heard_ms, call_ms }
    }
}

impl Resident for NodeLeases {
    fn begin(_: &Env, _: &Phase) -> Self {
        Self::default()
    }

    fn serve(&mut self, led: &mut At<'_>) {
        led.env.leases.granted.begin(led.log.number, led.env.now.mono_ms);
        self.judged.clear();
        self.count_new(led);
    }

    fn wants_round(&self) -> bool {
        !self.renewals_next.is_empty()
    }

    fn round_begins(&mut self) {
        self.renewals_now = std::mem::take(&mut self.renewals_next);
    }

    fn round_ended(&mut self, led: &mut At<'_>, end: RoundEnd) {
        for renewal in std::mem::take(&mut self.renewals_now) {
            match end {
                RoundEnd::Confirmed => self.on_renewal_confirmed(led, &renewal),
                RoundEnd::Unread => said(led.env, &renewal.node, renewal.call, None),
            }
        }
    }

    fn tick(&mut self, led: &mut At<'_>, turn: Turn) {
        match turn {
            Turn::Ask => self.call_silent_nodes(led),
            Turn::Expired | Turn::Rest | Turn::Last => {}
        }
    }

    /// Nodes whose renewals wait for a round that will never end ask again soon.
    fn step_down(&mut self, env: &mut Env) {
        let now = std::mem::take(&mut self.renewals_now);
        let next = std::mem::take(&mut self.renewals_next);
        for renewal in now.into_iter().chain(next) {
            said(env, &renewal.node, renewal.call, None);
        }
    }
}

impl NodeLeases {
    /// Counts from now for nodes of this partition that it has not met.
    fn count_new(&mut self, led: &At<'_>) {
        let m = led.env.view().m;
        let range = led.log.range;
        // What is left of a node may be dropped from the registry before this owner saw that it is gone.
        self.judged.retain(|node, _| led.env.nodes.reg.contains_key(node));
        for reg in led.env.nodes.reg.values() {
            if !range.contains(slot_of_node(&reg.node, m)) || reg.state.is_gone() {
                self.judged.remove(&reg.node);
                continue;
            }
            let judged = self.judged.entry(reg.node.clone());
            let judged = judged.or_insert_with(|| Judged::heard(led.env, reg));
            if judged.boot != reg.boot || judged.revision != reg.revision {
                // A verdict that is under way expects the older entry and cannot land.
                *judged = Judged::heard(led.env, reg);
            }
        }
    }

    /// A renewal arrives at an owner. One of that node that waits for the next round is given up.
    pub fn on_renew(&mut self, renewal: Renewal) {
        self.renewals_next.retain(|it| it.node != renewal.node);
        self.renewals_next.push(renewal);
    }

    /// Nobody else owned this partition when the renewal arrived: what the node has there may go on.
    fn on_renewal_confirmed(&mut self, led: &mut At<'_>, renewal: &Renewal) {
        let Renewal { call, node, boot } = renewal;
        let reg = led.env.nodes.reg.get(node).filter(|reg| reg.boot == *boot);
        match reg {
            _ if led.env.nodes.is_over(node, *boot) => over(led.env, node, *call),
            Some(reg) => {
                if led.log.range.contains(slot_of_node(node, led.env.view().m)) {
                    let heard = Judged::heard(led.env, reg);
                    self.judged.insert(node.clone(), heard);
                }
                let number = led.log.number;
                // From now on this owner waits until this grant is over.
                led.env.leases.granted.grant(number, node, *boot, led.env.now.mono_ms);
                let grant = Grant { range: led.log.range, pe: led.lead.pe };
                said(led.env, node, *call, Some(grant));
            }
            None => said(led.env, node, *call, None),
        }
    }

    /// Tells nodes that should have renewed who runs the ring. All that such a node knows may have left
    /// within the time between two renewals, and it would end what it runs in a ring that is well.
    pub fn call_silent_nodes(&mut self, led: &mut At<'_>) {
        let (range, now) = (led.log.range, led.env.now.mono_ms);
        let (pe, again_ms) = (led.lead.pe, now + led.env.config.timing.renew_ms);
        for (node, judged) in self.judged.iter_mut().filter(|(_, it)| now >= it.call_ms) {
            judged.call_ms = again_ms;
            let Some(reg) = led.env.nodes.reg.get(node) else { continue };
            let (node, address) = (node.clone(), reg.address.clone());
            let head = NodeCall { call: 0, boot: judged.boot, pe, range };
            let message =
                ToNode::Meet { head, epoch: led.env.epoch(), managers: addresses(led.env) };
            led.env.effects.push(Effect::ToNode { node, address, message });
        }
    }

    /// Gives the verdict that is due, if any.
    pub fn verdict(&mut self, led: &mut At<'_>) -> Option<Change> {
        self.count_new(led);
        let lost_ms = led.env.config.timing.node_lost_ms;
        let is_due = |judged: &Judged| led.env.now.mono_ms >= judged.heard_ms + lost_ms;
        let (node, _) = self.judged.iter().find(|(_, judged)| is_due(judged))?;
        let mut to = led.env.nodes.reg.get(node)?.clone();
        to.revision += 1;
        to.state = NodeState::Lost;
        Some(Change {
            expect_epoch: Some(led.env.epoch()),
            view: None,
            node: Some(NodeChange::to(to)),
        })
    }
}

/// What to write of a node of this partition of which nothing was heard since it has long been gone.
pub(crate) fn long_gone(env: &Env, log: &Log) -> Option<NodeChange> {
    let m = env.view().m;
    let is_due = |reg: &&NodeReg| {
        reg.state.is_gone()
            && !reg.is_forgotten()
            && log.range.contains(slot_of_node(&reg.node, m))
            && env.nodes.is_unheard_for(&reg.node, FORGOTTEN_MS, env.now.mono_ms)
    };
    let reg = env.nodes.reg.values().find(is_due)?;
    let to = reg.ordered(NodeOrder::Forget, env.now.wall_ms).ok().flatten()?;
    Some(NodeChange { drops: env.drops_with(&to), ..NodeChange::to(to) })
}
