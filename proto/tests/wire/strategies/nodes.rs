//! Messages between managers and node-agents.

use super::Any;
use super::names::*;
use super::records::spec;
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;
use rota_model::node_msg::*;
use rota_model::*;

pub fn to_node() -> Any<ToNode> {
    let head =
        || {
            (any::<u64>(), boot(), epoch(), slot_range())
                .prop_map(|(call, boot, pe, range)| NodeCall { call, boot, pe, range })
        };
    let what = (key(), slot(), token(), stamp(), spec());
    let create = (head(), what, any::<u64>(), of(request_id())).prop_map(
        |(head, (key, slot, token, life, spec), deadline_ms, request)| ToNode::Create {
            head,
            key,
            slot,
            token,
            life,
            deadline_ms,
            spec,
            request,
        },
    );
    let destroy = (head(), key(), slot(), token(), of(0..=GRACE_MS_MAX), of(request_id()))
        .prop_map(|(head, key, slot, token, grace_ms, request)| ToNode::Destroy {
            head,
            key,
            slot,
            token,
            grace_ms,
            request,
        });
    let scan = (head(), of(key()), any::<u32>()).prop_map(|(head, after, limit)| ToNode::Scan {
        head,
        after,
        limit,
    });
    let act = (head(), key(), slot(), token(), (stamp(), any::<u32>(), any::<u64>(), ".{0,20}"));
    let act = act.prop_map(|(head, key, slot, token, (life, failures, timeout_ms, document))| {
        let (life_cycle, word) = ("bill".to_owned(), "paid@261128000000000".to_owned());
        let action = Action { life, life_cycle, word, failures, timeout_ms, document };
        ToNode::Act { head, key, slot, token, action: Box::new(action) }
    });
    let meet = (head(), epoch(), managers()).prop_map(|(head, epoch, managers)| ToNode::Meet {
        head,
        epoch,
        managers,
    });
    prop_oneof![create, destroy, act, scan, meet].boxed()
}

pub fn dead() -> Any<DeadToken> {
    prop_oneof![
        (select(vec![Blame::Node, Blame::Session]), text())
            .prop_map(|(blame, detail)| DeadToken::NeverStarted { blame, detail }),
        (reason(), of(exit()), text()).prop_map(|(reason, exit, detail)| DeadToken::Ended {
            reason,
            exit,
            detail
        }),
    ]
    .boxed()
}

pub fn alive() -> Any<Alive> {
    let machine = ("[a-z]{0,6}", any::<u64>());
    (address(), any::<bool>(), of(reason()), stamp(), spec(), machine)
        .prop_map(|(address, ready, ends, life, spec, (machine_state, machine_change))| Alive {
            address,
            ready,
            ends,
            life,
            spec,
            machine_state,
            machine_change,
        })
        .boxed()
}

pub fn from_node() -> Any<FromNode> {
    let fate = prop_oneof![
        alive().prop_map(|it| ScanFate::Live(Box::new(it))),
        dead().prop_map(ScanFate::Dead),
    ];
    let item = (key(), token(), fate).prop_map(|(key, token, fate)| ScanItem { key, token, fate });
    let answer = prop_oneof![
        (address(), any::<bool>(), ".{0,20}")
            .prop_map(|(address, ready, remark)| NodeAnswer::Running { address, ready, remark }),
        dead().prop_map(NodeAnswer::Dead),
        Just(NodeAnswer::Full),
        token().prop_map(|token| NodeAnswer::OtherLive { token }),
        (of(exit()), ".{0,20}").prop_map(|(exit, detail)| NodeAnswer::Destroyed { exit, detail }),
        (vec(item, 0..3), any::<bool>(), token())
            .prop_map(|(items, more, highest)| NodeAnswer::Scanned { items, more, highest }),
        epoch().prop_map(|fence| NodeAnswer::Fenced { fence }),
        Just(NodeAnswer::WrongBoot),
        ".{0,20}".prop_map(|output| NodeAnswer::Acted { end: ActionEnd::Done { output } }),
        ("[A-Z]{1,6}", ".{0,20}").prop_map(|(code, report)| NodeAnswer::Acted {
            end: ActionEnd::Failed { code, report }
        }),
    ];
    (any::<u64>(), name(NodeId::parse), boot(), load(), answer)
        .prop_map(|(call, node, boot, load, answer)| FromNode { call, node, boot, load, answer })
        .boxed()
}

/// The cluster that everything belongs to.
pub fn cluster() -> ClusterName {
    ClusterName::parse("c").unwrap()
}

fn needs() -> Any<Needs> {
    (1..=PLACES_MAX, any::<u32>(), any::<u32>(), labels())
        .prop_map(|(weight, cpu_millis, memory_mib, labels)| Needs {
            weight,
            cpu_millis,
            memory_mib,
            labels,
        })
        .boxed()
}

/// What a class says of lives, by a number.
fn life_facts(number: u32) -> LifeFacts {
    let steady_ms = number.into();
    let rule = Restarts { times: 3, delay_ms: 1, delay_max_ms: 2, steady_ms };
    let events = ["c".to_owned()].into();
    // More is bounded on the wire.
    let retries = number % (ACTION_RETRIES_MAX + 1);
    let action = Handler::Action { events, retries, timeout_ms: 4 };
    LifeFacts {
        idle_ms: Some(u64::from(number) + 1_000),
        close_grace_max_ms: Some(5),
        restarts: Some(rule),
        life_cycles: [("a".to_owned(), Handler::Mark), ("b".to_owned(), action)].into(),
        ..LifeFacts::default()
    }
}

pub fn register() -> Any<Register> {
    let state = select(vec![NodeState::Ready, NodeState::Removed]);
    let classes = vec(name(ClassName::parse), 0..3);
    let boots = (boot(), vec(boot(), 0..ENDED_BOOTS_MAX));
    let who = (name(NodeId::parse), boots, "[a-z.]{1,9}:[1-9][0-9]{0,3}");
    let lease = (any::<u64>(), any::<u64>(), any::<u64>());
    let lease = lease.prop_map(|(renew_ms, lease_term_ms, lease_kill_ms)| LeaseTimes {
        renew_ms,
        lease_term_ms,
        lease_kill_ms,
    });
    let sandbox = select(&[None, Some(Sandbox::None), Some(Sandbox::Basic)][..]);
    let times = (lease, any::<u64>(), sandbox);
    let has = (resources(), labels(), needs());
    (who, name(PoolName::parse), has, classes, state, times)
        .prop_map(|((node, (boot, ended_boots), address), pool, has, classes, state, times)| {
            let (lease, tombstone_ms, sandbox) = times;
            let (offers, labels, needs) = has;
            let digests = classes.iter().zip(1..).map(|(it, at)| (it.clone(), ClassDigest(at)));
            let digests = digests.collect();
            let facts = classes.iter().take(1).map(|class| {
                let needs_weight = needs.weight;
                let reopens = needs.weight.is_multiple_of(2);
                let disturb = Disturb::ALL[needs.weight as usize % 3];
                let (pool, needs) = (Some(pool.clone()), needs.clone());
                let opens_on_demand = needs.weight.is_multiple_of(3);
                let only_its_pool = needs.weight.is_multiple_of(5);
                let facts = ClassFacts {
                    pool,
                    needs,
                    reopens,
                    disturb,
                    opens_on_demand,
                    only_its_pool,
                    life: Box::new(life_facts(needs_weight)),
                };
                (class.clone(), facts)
            });
            let facts = facts.collect();
            Register {
                node,
                boot,
                ended_boots,
                address,
                pool,
                offers,
                labels,
                classes,
                digests,
                facts,
                sandbox,
                state,
                lease,
                tombstone_ms,
            }
        })
        .boxed()
}

pub fn managers() -> Any<Vec<(ManagerNumber, String)>> {
    vec((number(), address()), 0..4).boxed()
}

pub fn registered() -> Any<Registered> {
    (epoch(), any::<u32>(), vec((slot_range(), epoch()), 0..4), managers())
        .prop_map(|(epoch, m, fences, managers)| Registered { epoch, m, fences, managers })
        .boxed()
}

pub fn renew() -> Any<Renew> {
    (name(NodeId::parse), boot(), load())
        .prop_map(|(node, boot, load)| Renew { node, boot, load })
        .boxed()
}

fn grants() -> Any<(Vec<Grant>, bool)> {
    let grant = (slot_range(), epoch()).prop_map(|(range, pe)| Grant { range, pe });
    (vec(grant, 0..4), any::<bool>()).boxed()
}

pub fn renewed() -> Any<Renewed> {
    prop_oneof![
        (epoch(), managers(), 0..=1_001u32, grants()).prop_map(
            |(epoch, managers, permille, (grants, more))| {
                let load_limit = match permille {
                    0 => ToldLimit::AsStarted,
                    it => LoadLimit::of_permille(it).map_or(ToldLimit::Nothing, ToldLimit::Of),
                };
                let retires = permille.is_multiple_of(2);
                Renewed::Heard { epoch, managers, load_limit, grants, more, retires }
            }
        ),
        Just(Renewed::Lost),
        Just(Renewed::NotServing),
    ]
    .boxed()
}
