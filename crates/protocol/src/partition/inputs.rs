//! Inputs that go through the partitions of a manager: heartbeats, confirm rounds, news of nodes, work that came
//! back.

use crate::log::at::At;
use crate::log::env::{Env, NameOf};
use crate::nodes::calls::{CallFor, CallWhat, NodesWanted};
use crate::partition::led::Led;
use crate::partition::partitions::Partitions;
use crate::partition::state::Partition;
use crate::pools::state::Pools;
use crate::ports::note::Transition;
use crate::ports::work::Worked;
use crate::sessions::withdraw::end_earlier;
use rota_messages::{Message, PartitionMeta};
use rota_model::node_msg::{FromNode, NodeAnswer};
use rota_model::{Epoch, LogPos, ManagerNumber, MemberId, NodeId, PoolName};
use rota_ring::View;
use std::collections::BTreeMap;

impl Partitions {
    /// What only an owner does, where this manager owns that partition.
    pub(crate) fn led<'a>(
        &'a mut self,
        number: &ManagerNumber,
        env: &'a mut Env,
    ) -> Option<Led<'a>> {
        self.get_mut(number)?.led(env)
    }

    pub(crate) fn on_heartbeat(
        &mut self,
        env: &Env,
        from: MemberId,
        committed: &[(ManagerNumber, LogPos)],
    ) {
        for (number, at) in committed {
            let owner = env.view().parts.get(number).map(|part| part.owner);
            if let Some(part) = self.get_mut(number).filter(|_| owner == Some(from.number)) {
                part.log.commit_here(env, *at);
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
            let known = self.get(number).map(|it| it.log.replica.pe);
            let entry = view.as_ref().and_then(|view| view.parts.get(number));
            known == Some(*pe) && entry.is_some_and(|it| it.pe == *pe && it.owner == from.number)
        };
        let held: Vec<(ManagerNumber, Epoch)> = asked.iter().copied().filter(holds).collect();
        if asked
            .iter()
            .any(|(number, pe)| self.get(number).is_some_and(|part| part.log.replica.pe < *pe))
        {
            env.store.refresh = true;
        }
        env.send(from.number, Message::ReadIndexConfirmed { round, parts: held });
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
            let Some(mut led) = part.led(env) else { continue };
            if led.at.lead.pe == *pe && led.at.lead.has_or_adds(from) {
                led.on_confirmed(from.number, round);
            }
        }
    }

    pub(crate) fn begin_rounds(&mut self, env: &mut Env) {
        let mut asked: BTreeMap<ManagerNumber, Vec<(ManagerNumber, Epoch)>> = BTreeMap::new();
        let wants = |part: &mut Partition| part.led(env).is_some_and(|led| led.wants_round());
        if !self.awake_mut().any(wants) {
            return;
        }
        let round = env.next_id(NameOf::Round);
        for part in self.awake_mut() {
            let Some(mut led) = part.led(env) else { continue };
            for peer in led.begin_round(round) {
                let named = (led.at.log.number, led.at.log.replica.pe);
                asked.entry(peer).or_default().push(named);
            }
        }
        for (peer, parts) in asked {
            env.send(peer, Message::ReadIndex { round, parts });
        }
    }

    pub(crate) fn on_node_wanted(&mut self, env: &mut Env, wanted: &NodesWanted) {
        self.at_pool(env, &wanted.pool, |pools, at| pools.on_node_wanted(at, wanted));
    }

    pub(crate) fn on_provisioned(
        &mut self,
        env: &mut Env,
        pool: &PoolName,
        (begun, failed): (bool, &[NodeId]),
    ) {
        self.at_pool(env, pool, |pools, at| pools.on_provisioned(at, pool, (begun, failed)));
    }

    pub(crate) fn on_node_cleared(
        &mut self,
        env: &mut Env,
        pool: &PoolName,
        (node, failure): (&NodeId, Option<&str>),
    ) {
        self.at_pool(env, pool, |pools, at| pools.on_node_cleared(at, pool, node, failure));
    }

    /// At the owner of a pool.
    fn at_pool(
        &mut self,
        env: &mut Env,
        pool: &PoolName,
        go: impl FnOnce(&mut Pools, &mut At<'_>),
    ) {
        let Some(view) = env.view.clone() else {
            return;
        };
        let number = view.home(rota_ring::slot_of_pool(pool, view.m));
        if let Some(mut led) = self.led(&number, env) {
            go(&mut led.residents.pools, &mut led.at);
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
        let Some(mut led) = part.led(env) else { return };
        let sessions = &mut led.residents.sessions;
        match asked.what {
            CallWhat::Create { key, token } | CallWhat::Destroy { key, token } => {
                if matches!(answer, NodeAnswer::Running { .. }) {
                    end_earlier(&mut led.at, (&key, token), (&node, boot));
                }
                sessions.on_node_answer(&mut led.at, &key, token, answer);
            }
            CallWhat::Act { key, event, token } => {
                led.residents.lives.on_acted(&mut led.at, (&key, &event, token), answer);
            }
            // What an earlier epoch asked raised no fence to this one.
            CallWhat::Look | CallWhat::Scan if led.at.log.replica.pe != asked.pe => {}
            CallWhat::Look => sessions.on_look_answer(&mut led.at, call, answer),
            CallWhat::Scan => {
                let next = sessions.scanning.on_scanned(&mut led.at, &node, asked.boot, answer);
                led.go_on(next);
            }
        }
        part.heed_halt(env);
    }

    /// A connection to a node was opened: what was sent before may be lost.
    pub(crate) fn on_node_connected(&mut self, env: &mut Env, node: &NodeId) {
        env.nodes.on_connection(node, false);
        for part in self.awake_mut() {
            if let Some(mut led) = part.led(env) {
                led.residents.sessions.work.on_node_connected(&mut led.at, node);
            }
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
            if let Some(mut led) = self.led(&part, env) {
                led.residents.sessions.work.on_unsent(&mut led.at, &key, token, call);
            }
        }
    }

    /// What an operation worked for came back.
    pub(crate) fn on_worked(&mut self, env: &mut Env, work: u64, worked: &Worked) {
        let Some(it) = env.documents_env.works.running.remove(&work) else { return };
        let is_waited_for = self.led(&it.part, env).is_some_and(|mut led| {
            led.residents.documents.on_worked(&mut led.at, it.origin, work, worked)
        });
        if !is_waited_for {
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
            && let Some((part, origin)) = env.documents_env.works.queue.pop_front()
        {
            if let Some(mut led) = self.led(&part, env) {
                led.residents.documents.on_worker(&mut led.at, origin);
            }
        }
    }

    /// Forgets those that do not wait for a worker any more.
    pub(crate) fn tick_works(&mut self, env: &mut Env) {
        env.documents_env.works.queue.retain(|(part, origin)| {
            let leader = self.get_mut(part).and_then(|it| it.leader_mut());
            leader.is_some_and(|it| it.residents.documents.waits_for_worker(*origin))
        });
    }

    /// The View says that this run is out: it lets go of everything.
    pub(crate) fn release_all(&mut self, env: &mut Env) {
        for part in self.awake_mut() {
            part.step_down(env);
            part.stop_learning();
            part.log.syncing = None;
            part.log.chunk_acks.clear();
        }
    }

    /// A copy that never ran is exact while it is empty. The disk must say so before the first
    /// claim: the run that claims may end before it hears of it.
    pub(crate) fn intend_founding(&mut self, env: &mut Env, view: &View) {
        for (number, entry) in &view.parts {
            if entry.has(env.config.number) {
                let meta = PartitionMeta {
                    pe: entry.pe,
                    last: LogPos::ZERO,
                    whole: true,
                    forgotten: env.stamps.forgotten,
                    found_from: None,
                };
                env.persist_part(*number, meta);
                if let Some(part) = self.get_mut(number) {
                    part.log.replica.whole = true;
                    part.log.replica.pe = part.log.replica.pe.max(entry.pe);
                }
            }
        }
    }

    /// The disk must know the epoch of a take-over before it happens, or the next restart would
    /// take this disk for an old one.
    pub(crate) fn intend_epoch(&mut self, env: &mut Env, part: ManagerNumber, pe: Epoch) {
        if let Some(partition) = self.get_mut(&part) {
            // Here too: this run may be taken out before it hears that it was in, and claims again.
            partition.log.replica.pe = pe;
            let meta = partition.log.meta(env);
            env.persist_part(part, meta);
        }
    }
}
