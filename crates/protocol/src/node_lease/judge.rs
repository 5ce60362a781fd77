//! The judge of a node: the owner of the node's slot. It answers renewals only after a confirm
//! round begun after they arrived, counts the full time from its own beginning, and declares LOST
//! by a compare-and-set that fails when the View has changed.

use crate::log::at::At;
use crate::log::env::Env;
use crate::log::lead::Phase;
use crate::log::resident::{Resident, RoundEnd, Turn};
use crate::log::state::Log;
use crate::node_lease::reply::{addresses, answer, not_judge};
use crate::node_lease::state::{Judged, NodeLeases, Renewal};
use crate::ports::io::Effect;
use rota_model::node_msg::{NodeCall, Renewed, ToNode, ToldLimit};
use rota_model::{NodeId, NodeState, PoolName};
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
        self.start_judging(led);
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
                RoundEnd::Confirmed => self.on_renewal_confirmed(led, renewal),
                RoundEnd::Unread => not_judge(led.env, renewal.call, &renewal.renew.node),
            }
        }
    }

    fn tick(&mut self, led: &mut At<'_>, turn: Turn) {
        match turn {
            Turn::Expired => {
                for renewal in self.forget(led.env.now.mono_ms) {
                    answer(led.env, renewal.call, Renewed::NotServing);
                }
            }
            Turn::Ask => self.call_silent_nodes(led),
            Turn::Rest | Turn::Last => {}
        }
    }

    /// Nodes whose renewals wait for a round that will never end ask again at once.
    fn step_down(&mut self, env: &mut Env) {
        let now = std::mem::take(&mut self.renewals_now);
        let next = std::mem::take(&mut self.renewals_next);
        for renewal in now.into_iter().chain(next) {
            answer(env, renewal.call, Renewed::NotServing);
        }
    }
}

impl NodeLeases {
    /// Counts from now for every node of this partition.
    fn start_judging(&mut self, led: &mut At<'_>) {
        self.judged.clear();
        self.judge_new(led);
    }

    fn judge_new(&mut self, led: &At<'_>) {
        let m = led.env.view().m;
        let range = led.log.range;
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

    /// A renewal arrives at the judge.
    pub fn on_renew(&mut self, led: &mut At<'_>, renewal: Renewal) {
        let known = led.env.nodes.reg.contains_key(&renewal.renew.node);
        if !known {
            // The registry here may be older than that node.
            led.env.store.refresh = true;
            return answer(led.env, renewal.call, Renewed::NotServing);
        }
        // One for each registered node: who renews again has given the earlier one up.
        let waiting = &mut self.renewals_next;
        let node = |it: &Renewal| it.renew.node == renewal.renew.node;
        if let Some(earlier) = waiting.iter().position(node) {
            let earlier = waiting.swap_remove(earlier);
            answer(led.env, earlier.call, Renewed::NotServing);
        }
        waiting.push(renewal);
    }

    /// Nobody else judged this node when the renewal arrived.
    pub fn on_renewal_confirmed(&mut self, led: &mut At<'_>, renewal: Renewal) {
        let Renewal { call, renew, .. } = renewal;
        match led.env.nodes.reg.get(&renew.node) {
            Some(_) if led.env.nodes.is_over(&renew.node, renew.boot) => {
                answer(led.env, call, Renewed::Lost);
            }
            Some(reg) if reg.boot == renew.boot => {
                if led.env.may_be_declared_lost(reg) {
                    return answer(led.env, call, Renewed::NotServing);
                }
                let load_limit = told_limit(led.env, &reg.pool);
                let heard = Judged::heard(led.env, reg);
                self.judged.insert(renew.node, heard);
                let (epoch, managers) = (led.env.epoch(), addresses(led.env));
                answer(led.env, call, Renewed::Granted { epoch, managers, load_limit });
            }
            Some(_) | None => {
                // The registry here is older than that boot.
                led.env.store.refresh = true;
                answer(led.env, call, Renewed::NotServing);
            }
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
        self.judge_new(led);
        // One that may still be written is due again at once: its node is granted nothing until then.
        let is_due = |node: &NodeId, judged: &Judged| {
            led.env.now.mono_ms >= judged.heard_ms + led.env.config.timing.node_lost_ms
                || led.env.fleet.loss_verdicts.get(node) == Some(&judged.revision)
        };
        let (node, _) = self.judged.iter().find(|(node, judged)| is_due(node, judged))?;
        let mut to = led.env.nodes.reg.get(node)?.clone();
        let expect_revision = to.revision;
        led.env.fleet.loss_verdicts.insert(to.node.clone(), expect_revision);
        to.revision += 1;
        to.state = NodeState::Lost;
        Some(Change {
            expect_epoch: Some(led.env.epoch()),
            view: None,
            node: Some(NodeChange { expect_revision, to }),
        })
    }
}

/// What to write of a node of this partition of which nothing was heard since it has long been gone.
pub(crate) fn long_gone(env: &Env, log: &Log) -> Option<NodeChange> {
    let m = env.view().m;
    let is_due = |it: &&NodeReg| {
        it.state.is_gone()
            && !it.is_forgotten()
            && log.range.contains(slot_of_node(&it.node, m))
            && env.nodes.is_unheard_for(&it.node, FORGOTTEN_MS, env.now.mono_ms)
    };
    let reg = env.nodes.reg.values().find(is_due)?;
    let to = reg.ordered(NodeOrder::Forget, env.now.wall_ms).ok().flatten()?;
    Some(NodeChange { expect_revision: reg.revision, to })
}

/// What a node of that pool is told of its limit: nothing by a manager that does not know the pools yet.
fn told_limit(env: &Env, pool: &PoolName) -> ToldLimit {
    if !env.documents_env.knows_spaces {
        return ToldLimit::Nothing;
    }
    let limit = env.nodes.settings(pool).and_then(|it| it.load_limit);
    limit.map_or(ToldLimit::AsStarted, ToldLimit::Of)
}
