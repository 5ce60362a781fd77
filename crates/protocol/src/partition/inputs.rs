//! Inputs that go through the partitions of a manager: heartbeats, confirm rounds, news of nodes, work that came
//! back.

use crate::log::env::{Env, NameOf};
use crate::nodes::calls::{CallFor, CallWhat, NodesWanted};
use crate::partition::partitions::Parts;
use crate::ports::note::Transition;
use crate::ports::work::Worked;
use rota_messages::{Message, PartMeta};
use rota_model::node_msg::{FromNode, NodeAnswer};
use rota_model::{Epoch, LogPos, ManagerNumber, MemberId, NodeId};
use rota_ring::View;
use std::collections::BTreeMap;

impl Parts {
    pub(crate) fn on_heartbeat(
        &mut self,
        env: &Env,
        from: MemberId,
        committed: &[(ManagerNumber, LogPos)],
    ) {
        for (number, at) in committed {
            let owner = env.view().parts.get(number).map(|part| part.owner);
            if let Some(part) = self.get_mut(number).filter(|_| owner == Some(from.number)) {
                part.commit_here(env, *at);
            }
        }
    }

    pub(crate) fn on_confirm(
        &mut self,
        env: &mut Env,
        from: MemberId,
        round: u64,
        asked: Vec<(ManagerNumber, Epoch)>,
    ) {
        let view = env.view.clone();
        let holds = |(number, pe): &(ManagerNumber, Epoch)| {
            let known = self.get(number).map(|it| it.replica.pe);
            let entry = view.as_ref().and_then(|view| view.parts.get(number));
            known == Some(*pe) && entry.is_some_and(|it| it.pe == *pe && it.owner == from.number)
        };
        let held: Vec<(ManagerNumber, Epoch)> = asked.iter().copied().filter(holds).collect();
        if asked
            .iter()
            .any(|(number, pe)| self.get(number).is_some_and(|part| part.replica.pe < *pe))
        {
            env.store.refresh = true;
        }
        env.send(from.number, Message::Confirmed { round, parts: held });
    }

    pub(crate) fn on_confirmed(
        &mut self,
        env: &mut Env,
        from: MemberId,
        round: u64,
        held: &[(ManagerNumber, Epoch)],
    ) {
        for (number, pe) in held {
            let Some(part) = self.get_mut(number) else {
                continue;
            };
            let leading = part.leading.as_ref().filter(|it| it.lead.pe == *pe);
            if leading.is_some_and(|it| it.lead.has_or_adds(from)) {
                part.on_confirmed(env, from.number, round);
            }
        }
    }

    pub(crate) fn begin_rounds(&mut self, env: &mut Env) {
        let mut asked: BTreeMap<ManagerNumber, Vec<(ManagerNumber, Epoch)>> = BTreeMap::new();
        let now_ms = env.now.mono_ms;
        let wants = self.awake().any(|it| it.wants_round(now_ms));
        if !wants {
            return;
        }
        let round = env.next_id(NameOf::Round);
        for part in self.awake_mut() {
            for peer in part.begin_round(env, round) {
                asked.entry(peer).or_default().push((part.number, part.replica.pe));
            }
        }
        for (peer, parts) in asked {
            env.send(peer, Message::Confirm { round, parts });
        }
    }

    pub(crate) fn on_node_wanted(&mut self, env: &mut Env, wanted: &NodesWanted) {
        let Some(view) = env.view.clone() else {
            return;
        };
        let number = view.home(rota_ring::slot_of_pool(&wanted.pool, view.m));
        if let Some(part) = self.get_mut(&number) {
            part.on_node_wanted(env, wanted);
        }
    }

    pub(crate) fn on_node(&mut self, env: &mut Env, answer: FromNode) {
        let FromNode { call, node, boot, load, answer } = answer;
        if env.nodes.reg.get(&node).is_some_and(|reg| reg.boot == boot) {
            env.nodes.on_load(&node, boot, load);
            env.nodes.on_answer(&node);
            env.nodes.on_heard(&node, boot, env.now.mono_ms);
        }
        let Some(asked) = env.fleet.calls.remove(&call) else {
            return;
        };
        if asked.node != node {
            return;
        }
        let Some(part) = self.get_mut(&asked.part) else {
            return;
        };
        match asked.what {
            CallWhat::Create { key, token } | CallWhat::Destroy { key, token } => {
                if matches!(answer, NodeAnswer::Running { .. }) {
                    part.end_earlier(env, (&key, token), (&node, boot));
                }
                part.on_node_answer(env, &key, token, answer);
            }
            // What an earlier epoch asked raised no fence to this one.
            CallWhat::Scan if part.replica.pe != asked.pe => {}
            CallWhat::Scan => part.on_scanned(env, &node, asked.boot, answer),
        }
    }

    /// A connection to a node was opened: what was sent before may be lost.
    pub(crate) fn on_node_connected(&mut self, env: &mut Env, node: &NodeId) {
        env.nodes.on_connection(node, false);
        for part in self.awake_mut() {
            part.on_node_connected(env, node);
        }
    }

    /// No connection to a node could be opened. Nothing of these calls was sent, so nobody waits for their
    /// answers.
    pub(crate) fn on_node_unreached(
        &mut self,
        env: &mut Env,
        node: &NodeId,
        address: &str,
        unsent: Vec<u64>,
    ) {
        if env.nodes.reg.get(node).is_some_and(|it| it.address == address) {
            env.nodes.on_connection(node, true);
        }
        for call in unsent {
            let Some(CallFor { part, what, .. }) = env.fleet.calls.remove(&call) else {
                continue;
            };
            let CallWhat::Create { key, token } = what else { continue };
            if let Some(part) = self.get_mut(&part) {
                part.on_unsent(env, &key, token, call);
            }
        }
    }

    /// What an operation worked for came back.
    pub(crate) fn on_worked(&mut self, env: &mut Env, work: u64, worked: &Worked) {
        let Some(it) = env.desks.works.running.remove(&work) else { return };
        let part = self.get_mut(&it.part);
        if !part.is_some_and(|part| part.on_worked(env, it.origin, work, worked)) {
            let took_ms = env.now.mono_ms.saturating_sub(it.since_ms);
            let text = format!(
                "operation {} has worked for {took_ms} ms, and nobody waits for it any more: it changes \
                 nothing",
                it.operation
            );
            env.note_text(Transition::WorkDropped, Some(it.part), text);
        }
        self.begin_works(env);
    }

    /// Gives free workers to those that wait for one.
    fn begin_works(&mut self, env: &mut Env) {
        while env.has_worker()
            && let Some((part, origin)) = env.desks.works.queue.pop_front()
        {
            if let Some(part) = self.get_mut(&part) {
                part.on_worker(env, origin);
            }
        }
    }

    /// Forgets those that do not wait for a worker any more.
    pub(crate) fn tick_works(&mut self, env: &mut Env) {
        env.desks.works.queue.retain(|(part, origin)| {
            self.get_mut(part).is_some_and(|it| it.waits_for_worker(*origin))
        });
    }

    /// The View says that this run is out: it lets go of everything.
    pub(crate) fn let_go(&mut self, env: &mut Env) {
        for part in self.awake_mut() {
            part.step_down(env);
            part.learning = None;
            part.syncing = None;
            part.chunk_acks.clear();
        }
    }

    /// A copy that never ran is exact while it is empty. The disk must say so before the first
    /// claim: the run that claims may end before it hears of it.
    pub(crate) fn intend_founding(&mut self, env: &mut Env, view: &View) {
        for (number, entry) in &view.parts {
            if entry.has(env.config.number) {
                let meta = PartMeta {
                    pe: entry.pe,
                    last: LogPos::ZERO,
                    whole: true,
                    forgotten: env.stamps.forgotten,
                    found_from: None,
                };
                env.persist_part(*number, meta);
                if let Some(part) = self.get_mut(number) {
                    part.replica.whole = true;
                    part.replica.pe = part.replica.pe.max(entry.pe);
                }
            }
        }
    }

    /// The disk must know the epoch of a take-over before it happens, or the next restart would
    /// take this disk for an old one.
    pub(crate) fn intend_epoch(&mut self, env: &mut Env, part: ManagerNumber, pe: Epoch) {
        if let Some(partition) = self.get_mut(&part) {
            // Here too: this run may be taken out before it hears that it was in, and claims again.
            partition.replica.pe = pe;
            let meta = partition.meta(env);
            env.persist_part(part, meta);
        }
    }
}
