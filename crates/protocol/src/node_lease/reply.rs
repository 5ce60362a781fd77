//! Answers to renewals.

use crate::log::env::Env;
use crate::ports::io::{Effect, Reply};
use rota_model::node_msg::Renewed;
use rota_model::{ManagerNumber, NodeId};
use rota_ring::slot_of_node;

/// Managers that a node should talk to.
pub(crate) fn addresses(env: &Env) -> Vec<(ManagerNumber, String)> {
    let managers = env.view.iter().flat_map(|view| view.managers.iter());
    let up = managers.filter(|(_, entry)| entry.serves() && !entry.grpc.is_empty());
    up.map(|(number, entry)| (*number, entry.grpc.clone())).collect()
}

pub(crate) fn answer(env: &mut Env, call: u64, result: Renewed) {
    env.effects.push(Effect::Reply { call, reply: Reply::Renewed(result) });
}

/// Whose renewals another manager judges.
pub(crate) fn not_judge(env: &mut Env, call: u64, node: &NodeId) {
    let Some(view) = env.view.clone() else {
        return answer(env, call, Renewed::NotServing);
    };
    let judge = view.owner_of(slot_of_node(node, view.m));
    let (epoch, managers) = (view.epoch, addresses(env));
    answer(env, call, Renewed::NotJudge { judge, epoch, managers });
}
