//! What operators see.

use super::Any;
use super::names::*;
use super::nodes::register;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::select;
use rota_messages::{IndexStats, Numbered, PartitionStats, Stats};
use rota_model::node_msg::{NodeLoad, Register};
use rota_model::*;
use rota_ring::view::least_format;
use rota_ring::{
    IsrMember, Loss, ManagerEntry, NodeReg, NodeWish, PartitionEntry, PartitionState, Recovered,
    RingTransition, Spares, View,
};
use std::collections::BTreeMap;

fn manager() -> impl Strategy<Value = ManagerEntry> {
    (name(ManagerId::parse), address(), address(), any::<u64>()).prop_flat_map(
        |(id, grpc, http, incarnation)| {
            select(ManagerStatus::ALL).prop_map(move |status| ManagerEntry {
                id: id.clone(),
                grpc: grpc.clone(),
                http: http.clone(),
                incarnation: Incarnation(incarnation),
                nonce: Nonce(0),
                status,
                peer_times: (incarnation > 0)
                    .then_some(PeerTimes { heartbeat_ms: incarnation, suspect_ms: 7 }),
            })
        },
    )
}

/// Views that keep every rule of a View, with zeroes where the wire has nothing.
pub fn ring_view() -> Any<View> {
    let managers = btree_map((0..1024_u32).prop_map(ManagerNumber), manager(), 1..6);
    let pes = vec((0..100_u64, any::<bool>()), 6);
    let changes = proptest::option::of((0..100_u64, any::<bool>()));
    (managers, pes, name(ClusterName::parse), 0..4_u32, changes)
        .prop_map(|(mut managers, pes, cluster, r, changes)| {
            let numbers: Vec<ManagerNumber> = managers.keys().copied().collect();
            let part = |(index, (pe, active)): (usize, &(u64, bool))| {
                let copies = numbers.iter().cycle().skip(index);
                let isr = copies.take(numbers.len().min(r as usize + 1));
                let isr: Vec<_> =
                    isr.map(|it| IsrMember { number: *it, since: Epoch(0) }).collect();
                let state =
                    if *active { PartitionState::Active } else { PartitionState::Recovering };
                let owner = isr[0].number;
                let recovered = active.then_some(Recovered {
                    epoch: Epoch(*pe),
                    sessions: *pe,
                    held: LogPos::new(Epoch(*pe), Seq(7)),
                    loss: Loss::ALL[index % 3],
                });
                let loss = (!active).then_some(Loss::ALL[index % 3]);
                let stamps_above =
                    (*pe % 5 == 0).then(|| Stamp::from_epoch_ms(1_800_000_000_000 + *pe));
                let (pe, base_pe) = (Epoch(*pe), Epoch(0));
                PartitionEntry { pe, owner, isr, base_pe, state, loss, recovered, stamps_above }
            };
            let parts = pes.iter().enumerate().map(part);
            let parts: BTreeMap<_, _> = numbers.iter().copied().zip(parts).collect();
            let change = |(since, joins)| {
                let (number, since) = (numbers[0], Epoch(since));
                match joins {
                    true => RingTransition::Join { number, since },
                    false => RingTransition::Leave { number, since },
                }
            };
            let transition: Option<RingTransition> = changes.map(change);
            let leaver = matches!(transition, Some(RingTransition::Leave { .. }));
            for (number, entry) in &mut managers {
                let holds = parts.values().any(|it: &PartitionEntry| it.has(*number));
                if leaver && *number == numbers[0] {
                    entry.status = ManagerStatus::Leaving;
                } else if entry.status == ManagerStatus::Leaving
                    || (entry.status == ManagerStatus::Left && holds)
                {
                    entry.status = ManagerStatus::Down;
                }
            }
            View {
                format: least_format(&parts, transition.as_ref()),
                cluster,
                epoch: Epoch(100),
                m: 1024,
                r,
                managers_max: 100,
                times: None,
                parts,
                managers,
                transition,
                splits: BTreeMap::new(),
            }
        })
        .boxed()
}

fn node() -> Any<(NodeReg, NodeLoad)> {
    let times = proptest::option::of(any::<u64>());
    let spares = select(Spares::ALL.to_vec());
    let wish = (0..5, times, spares, any::<bool>());
    let wish = wish.prop_map(|(kind, closes_ms, spares, retires)| match kind {
        0 => NodeWish::Serves,
        1 => NodeWish::Cordoned,
        2 => NodeWish::Forgotten,
        3 => NodeWish::Replaced { closes_after_ms: closes_ms, spares },
        _ => NodeWish::Drained { closes_at_ms: closes_ms, spares, retires },
    });
    let node = (register(), select(NodeState::ALL), wish, resources());
    node.prop_map(|(register, state, wish, used)| {
        let load = NodeLoad { used, offered: register.offers, kept: used.places / 2 };
        let Register {
            node,
            boot,
            address,
            pool,
            offers,
            labels,
            classes,
            digests,
            facts,
            sandbox,
            ..
        } = register;
        (
            NodeReg {
                node,
                boot,
                unproven: None,
                address,
                pool,
                offers,
                labels,
                classes,
                digests,
                facts,
                sandbox,
                renew_ms: 0,
                state,
                wish,
                revision: 0,
            },
            load,
        )
    })
    .boxed()
}

fn node_numbers<'a>(
    nodes: impl Iterator<Item = &'a (NodeReg, NodeLoad)>,
) -> BTreeMap<NodeId, Numbered> {
    let uuid = "74f30be0-3151-11e6-8b2f-fcaa1429e144";
    let numbered = |number| Numbered { number, uuid: uuid.to_owned() };
    nodes.zip(1..).map(|((reg, _), number)| (reg.node.clone(), numbered(number))).collect()
}

pub fn stats() -> Any<Stats> {
    let sessions = btree_map(state(), any::<u64>(), 0..4);
    let lag =
        btree_map(number(), any::<u64>(), 0..3).prop_map(|it| it.into_iter().collect::<Vec<_>>());
    let role = select(&rota_proto::operator::ROLES[..]);
    let on_nodes = btree_map(register().prop_map(|it| it.node), any::<u64>(), 0..3);
    let waiting = btree_map(register().prop_map(|it| it.pool), any::<u64>(), 0..3);
    let marks = vec((at(), any::<u64>()), 0..3);
    let numbers = (any::<u64>(), any::<u64>());
    let part = (number(), role, at(), at(), sessions, lag, (on_nodes, waiting), numbers, marks)
        .prop_map(
            |(part, role, last, committed, sessions, lag, (on_nodes, waiting), numbers, marks)| {
                PartitionStats {
                    part,
                    role,
                    last,
                    committed,
                    sessions,
                    lag,
                    on_nodes,
                    waiting,
                    // They are not sent.
                    tasks: BTreeMap::new(),
                    copy_lag_ms: 0,
                    documents: numbers.0,
                    digest: numbers.1,
                    marks,
                }
            },
        );
    (vec(part, 0..3), vec(node(), 0..3), any::<u32>(), any::<bool>())
        .prop_map(|(parts, nodes, waiting, numbered)| Stats {
            parts,
            // Managers are those of the View.
            manager_numbers: BTreeMap::new(),
            node_numbers: node_numbers(nodes.iter().filter(|_| numbered)),
            nodes,
            requests_waiting: waiting as usize,
            works: waiting as usize / 2,
            works_overdue: waiting as usize / 3,
            indexes: IndexStats::default(),
        })
        .boxed()
}
