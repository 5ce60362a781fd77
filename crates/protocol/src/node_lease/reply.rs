//! Renewals come in, and are answered when every partition of this manager has said what it grants.

use crate::log::env::Env;
use crate::nodes::renewals::Waiting;
use crate::ports::io::{Effect, Reply};
use rota_model::node_msg::{Grant, Renew, Renewed, ToldLimit};
use rota_model::{ManagerNumber, NodeId, PoolName};
use rota_ring::{NodeReg, slot_of_node};

/// Managers that a node should talk to.
pub(crate) fn addresses(env: &Env) -> Vec<(ManagerNumber, String)> {
    let managers = env.view.iter().flat_map(|view| view.managers.iter());
    let up = managers.filter(|(_, entry)| entry.serves() && !entry.grpc.is_empty());
    up.map(|(number, entry)| (*number, entry.grpc.clone())).collect()
}

/// A renewal arrives at a manager that owns so many partitions. False when it is answered already.
pub(crate) fn renewal_arrives(env: &mut Env, call: u64, renew: Renew, parts: usize) -> bool {
    if env.view.is_none() {
        answer(env, call, Renewed::NotServing);
        return false;
    }
    if env.nodes.is_over(&renew.node, renew.boot) {
        answer(env, call, Renewed::Lost);
        return false;
    }
    if env.nodes.reg.get(&renew.node).is_none_or(|reg| reg.boot != renew.boot) {
        // The registry here may be older than that node, or than its boot.
        env.store.refresh = true;
        answer(env, call, Renewed::NotServing);
        return false;
    }
    let times = (env.now.mono_ms, env.config.timing.renew_ms);
    let waiting = Waiting::new((call, renew), parts, times);
    if parts == 0 {
        heard(env, waiting);
        return false;
    }
    let earlier = env.leases.renewals.arrive(waiting);
    earlier.into_iter().for_each(|it| heard(env, it));
    true
}

/// A partition grants what it has on a node, or cannot.
pub(crate) fn said(env: &mut Env, node: &NodeId, call: u64, grant: Option<Grant>) {
    let whole = env.leases.renewals.said(node, call, grant);
    whole.into_iter().for_each(|it| heard(env, it));
}

/// The boot that renewed is over.
pub(crate) fn over(env: &mut Env, node: &NodeId, call: u64) {
    if env.leases.renewals.take(node, call).is_some() {
        answer(env, call, Renewed::Lost);
    }
}

/// Renewals wait no longer for partitions that say nothing.
pub(crate) fn give_up_renewals(env: &mut Env) {
    for late in env.leases.renewals.due(env.now.mono_ms) {
        heard(env, late);
    }
}

fn heard(env: &mut Env, waiting: Waiting) {
    let Waiting { call, renew, grants, more, .. } = waiting;
    let judges = env.view.as_ref().is_some_and(|view| {
        let slot = slot_of_node(&renew.node, view.m);
        grants.iter().any(|it| it.range.contains(slot))
    });
    let reg = env.nodes.reg.get(&renew.node).filter(|_| judges);
    let load_limit = reg.map_or(ToldLimit::Nothing, |it| told_limit(env, &it.pool));
    let retires = reg.is_some_and(NodeReg::retires);
    let (epoch, managers) = (env.epoch(), addresses(env));
    answer(env, call, Renewed::Heard { epoch, managers, load_limit, grants, more, retires });
}

fn answer(env: &mut Env, call: u64, result: Renewed) {
    env.effects.push(Effect::Reply { call, reply: Reply::Renewed(result) });
}

/// What a node of that pool is told of its limit: nothing by a manager that does not know the pools yet.
fn told_limit(env: &Env, pool: &PoolName) -> ToldLimit {
    if !env.documents_env.knows_spaces {
        return ToldLimit::Nothing;
    }
    let limit = env.nodes.settings(pool).and_then(|it| it.load_limit);
    limit.map_or(ToldLimit::AsStarted, ToldLimit::Of)
}
