//! The judge of a node: the owner of the node's slot. It answers renewals only after a confirm
//! round begun after they arrived, counts the full time from its own beginning, and declares LOST
//! by a compare-and-set that fails when the View has changed.

use crate::log::env::Env;
use crate::node_lease::reply::{addresses, answer};
use crate::node_lease::state::{Judged, Renewal};
use crate::partition::state::Partition;
use crate::ports::io::Effect;
use rota_model::node_msg::{NodeCall, Renewed, ToNode};
use rota_model::{NodeId, NodeState};
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

impl Partition {
    /// Counts from now for every node of this partition.
    pub fn start_judging(&mut self, env: &Env) {
        if let Some(leading) = &mut self.leading {
            leading.residents.leases.judged.clear();
        }
        self.judge_new(env);
    }

    fn judge_new(&mut self, env: &Env) {
        let m = env.view().m;
        let range = self.range;
        let Some(leading) = &mut self.leading else {
            return;
        };
        for reg in env.nodes.reg.values() {
            if !range.contains(slot_of_node(&reg.node, m)) || reg.state.is_gone() {
                leading.residents.leases.judged.remove(&reg.node);
                continue;
            }
            let judged = leading.residents.leases.judged.entry(reg.node.clone());
            let judged = judged.or_insert_with(|| Judged::heard(env, reg));
            if judged.boot != reg.boot || judged.revision != reg.revision {
                // A verdict that is under way expects the older entry and cannot land.
                *judged = Judged::heard(env, reg);
            }
        }
    }

    /// A renewal arrives at the judge.
    pub fn on_renew(&mut self, env: &mut Env, renewal: Renewal) {
        let known = env.nodes.reg.contains_key(&renewal.renew.node);
        let Some(leading) = self.leading.as_mut().filter(|_| known) else {
            // The registry here may be older than that node.
            env.store.refresh |= !known;
            return answer(env, renewal.call, Renewed::NotServing);
        };
        // One for each registered node: who renews again has given the earlier one up.
        let waiting = &mut leading.residents.leases.renewals_next;
        let node = |it: &Renewal| it.renew.node == renewal.renew.node;
        if let Some(earlier) = waiting.iter().position(node) {
            let earlier = waiting.swap_remove(earlier);
            answer(env, earlier.call, Renewed::NotServing);
        }
        waiting.push(renewal);
    }

    /// Nobody else judged this node when the renewal arrived.
    pub fn on_renewal_confirmed(&mut self, env: &mut Env, renewal: Renewal) {
        let Renewal { call, renew, .. } = renewal;
        let Some(leading) = &mut self.leading else {
            return;
        };
        match env.nodes.reg.get(&renew.node) {
            Some(_) if env.nodes.is_over(&renew.node, renew.boot) => {
                answer(env, call, Renewed::Lost);
            }
            Some(reg) if reg.boot == renew.boot => {
                if env.is_condemned(reg) {
                    return answer(env, call, Renewed::NotServing);
                }
                let heard = Judged::heard(env, reg);
                leading.residents.leases.judged.insert(renew.node, heard);
                let (epoch, managers) = (env.epoch(), addresses(env));
                answer(env, call, Renewed::Granted { epoch, managers });
            }
            Some(_) | None => {
                // The registry here is older than that boot.
                env.store.refresh = true;
                answer(env, call, Renewed::NotServing);
            }
        }
    }

    /// Tells nodes that should have renewed who runs the ring. All that such a node knows may have left
    /// within the time between two renewals, and it would end what it runs in a ring that is well.
    pub fn call_silent_nodes(&mut self, env: &mut Env) {
        let (range, now) = (self.range, env.now.mono_ms);
        let Some(leading) = &mut self.leading else { return };
        let (pe, again_ms) = (leading.lead.pe, now + env.config.timing.renew_ms);
        for (node, judged) in
            leading.residents.leases.judged.iter_mut().filter(|(_, it)| now >= it.call_ms)
        {
            judged.call_ms = again_ms;
            let Some(reg) = env.nodes.reg.get(node) else { continue };
            let (node, address) = (node.clone(), reg.address.clone());
            let head = NodeCall { call: 0, boot: judged.boot, pe, range };
            let message = ToNode::Meet { head, epoch: env.epoch(), managers: addresses(env) };
            env.effects.push(Effect::ToNode { node, address, message });
        }
    }

    /// What to write of a node of this partition of which nothing was heard since it has long been gone.
    pub(crate) fn long_gone(&self, env: &Env) -> Option<NodeChange> {
        self.leading.as_ref().filter(|it| it.lead.is_open())?;
        let m = env.view().m;
        let is_due = |it: &&NodeReg| {
            it.state.is_gone()
                && !it.is_forgotten()
                && self.range.contains(slot_of_node(&it.node, m))
                && env.nodes.is_unheard_for(&it.node, FORGOTTEN_MS, env.now.mono_ms)
        };
        let reg = env.nodes.reg.values().find(is_due)?;
        let to = reg.ordered(NodeOrder::Forget, env.now.wall_ms).ok().flatten()?;
        Some(NodeChange { expect_revision: reg.revision, to })
    }

    /// Gives the verdict that is due, if any.
    pub fn verdict(&mut self, env: &mut Env) -> Option<Change> {
        self.judge_new(env);
        let leading = self.leading.as_ref()?;
        // One that may still be written is due again at once: its node is granted nothing until then.
        let is_due = |node: &NodeId, judged: &Judged| {
            env.now.mono_ms >= judged.heard_ms + env.config.timing.node_lost_ms
                || env.fleet.condemned.get(node) == Some(&judged.revision)
        };
        let (node, _) =
            leading.residents.leases.judged.iter().find(|(node, judged)| is_due(node, judged))?;
        let mut to = env.nodes.reg.get(node)?.clone();
        let expect_revision = to.revision;
        env.fleet.condemned.insert(to.node.clone(), expect_revision);
        to.revision += 1;
        to.state = NodeState::Lost;
        Some(Change {
            expect_epoch: Some(env.epoch()),
            view: None,
            node: Some(NodeChange { expect_revision, to }),
        })
    }
}
