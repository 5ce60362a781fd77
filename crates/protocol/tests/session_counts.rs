//! What a copy counts of its sessions, against a look at each of them.

use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;
use rota_model::*;
use rota_protocol::replica::Replica;
use rota_protocol::{Doc, DocKey, Entry, Sizes, Write};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What happens to a copy.
#[derive(Clone, Debug)]
enum Step {
    /// A session's record is written, or its document goes.
    Append(u8, Option<(SessionState, Option<(u8, u64)>)>),
    /// So many of the entries that wait are committed.
    Commit(u64),
    /// Those that wait are given up.
    Drop,
    /// The log begins anew with what is there.
    Restart,
}

fn step() -> BoxedStrategy<Step> {
    let standing = (select(SessionState::ALL.to_vec()), of((0..3_u8, 1..3_u64)));
    prop_oneof![
        6 => (0..5_u8, of(standing)).prop_map(|(id, standing)| Step::Append(id, standing)),
        2 => (1..4_u64).prop_map(Step::Commit),
        1 => Just(Step::Drop),
        1 => Just(Step::Restart),
    ]
    .boxed()
}

fn node(number: u8) -> NodeId {
    NodeId::parse(&format!("node-{number}")).unwrap()
}

fn record(id: u8, state: SessionState, at: Option<(u8, u64)>, version: Stamp) -> SessionRecord {
    let id = SessionId::parse(&format!("id-{id}")).unwrap();
    let token = Token(LogPos::new(Epoch(1), Seq(1)));
    let class = ClassName::parse("c").unwrap();
    SessionRecord {
        key: SessionKey::new(Namespace::parse("shop").unwrap(), id),
        spec: SessionSpec {
            class,
            pool: PoolName::default_pool(),
            attributes: Arc::default(),
            life: None,
        },
        life: version,
        version,
        state,
        reason: None,
        detail: String::new(),
        exit: None,
        grace_ms: None,
        placement: at.map(|(number, boot)| Placement {
            node: node(number),
            boot: BootId(boot),
            token,
            address: String::new(),
        }),
        attributes_digest: None,
        machine_state: String::new(),
        machine_change: 0,
        requests: Vec::new(),
        lifetime: None,
    }
}

fn take(replica: &mut Replica, step: Step, number: u64) {
    match step {
        Step::Append(id, standing) => {
            let version = Stamp::from_epoch_ms(1_800_000_000_000 + number);
            let name = record(id, SessionState::Closed, None, version);
            let key = DocKey::new(SlotId(100), Doc::session_after(None, name).name().clone());
            let doc = standing.map(|(state, at)| {
                Arc::new(Doc::session_after(None, record(id, state, at, version)))
            });
            let at = replica.next_pos(Epoch(1));
            replica.append(Entry::new(at, vec![Write { key, doc }], None));
        }
        Step::Commit(count) => {
            let seq = replica.committed.seq.0 + count;
            let at = LogPos::new(Epoch(1), Seq(seq)).min(replica.last);
            replica.commit_to(at, &Sizes::default());
        }
        Step::Drop => {
            replica.drop_tail();
            replica.last = replica.committed;
        }
        Step::Restart => replica.restart_at(replica.last),
    }
}

/// What a look at each session gives.
fn counted(replica: &Replica) -> (BTreeMap<SessionState, u64>, BTreeMap<NodeId, u64>) {
    let (mut by_state, mut by_node) = (BTreeMap::new(), BTreeMap::new());
    for brief in replica.docs.values().filter_map(|doc| doc.brief()) {
        *by_state.entry(brief.state).or_default() += 1;
        if let Some((node, _)) = brief.at.as_ref().filter(|_| !brief.state.is_ended()) {
            *by_node.entry(node.clone()).or_default() += 1;
        }
    }
    (by_state, by_node)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn a_copy_finds_by_its_counts_what_a_look_at_each_session_finds(steps in vec(step(), 1..40)) {
        let mut replica = Replica::default();
        for (number, step) in (0..).zip(steps) {
            take(&mut replica, step, number);
            let (by_state, by_node) = counted(&replica);
            prop_assert_eq!(replica.counts.session_counts.by_state(), &by_state);
            prop_assert_eq!(replica.counts.session_counts.by_node(), by_node);
            // In the same order, too: what is done for each leans on it.
            let under_way: Vec<&DocKey> = replica.sessions_under_way().collect();
            let looked: Vec<&DocKey> = replica
                .sessions()
                .filter(|(_, brief)| {
                    use SessionState::{Closing, Pending, Starting};
                    matches!(brief.state, Pending | Starting | Closing)
                })
                .map(|(key, _)| key)
                .collect();
            prop_assert_eq!(under_way, looked);
            for (lost, boot) in [(0, 1), (1, 1), (1, 2)] {
                let is_over = |it: &NodeId, at: BootId| *it == node(lost) && at <= BootId(boot);
                let over = replica.sessions_over(is_over);
                let looked: Vec<DocKey> = replica
                    .sessions()
                    .filter(|(_, brief)| !brief.state.is_ended())
                    .filter(|(_, brief)| brief.at.as_ref().is_some_and(|(it, at)| is_over(it, *at)))
                    .map(|(key, _)| key.clone())
                    .collect();
                prop_assert_eq!(over, looked);
            }
        }
    }
}
