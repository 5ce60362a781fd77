//! Random histories: whatever managers, runtime and network do, the promises hold. The checks look
//! at inputs and effects only, as a manager and a process table would see them.

use crate::world::*;
use proptest::prelude::*;
use rota_model::node_msg::{NodeAnswer, Renewed, ReportEvent, ToNode};
use rota_model::{BootId, Epoch, Exit, Reason, SessionKey, Token};
use rota_node::{LeaseState, NodeEffect, NodeInput, ReportId, StopHow};
use std::collections::{BTreeMap, BTreeSet};

/// One step of a history. Small numbers, so that things collide.
#[derive(Clone, Debug)]
enum Step {
    Create {
        id: u8,
        seq: u64,
        pe: u64,
        whole: bool,
    },
    Destroy {
        id: u8,
        seq: u64,
        pe: u64,
    },
    Scan {
        pe: u64,
    },
    WrongBoot {
        id: u8,
        seq: u64,
    },
    Replay {
        at: usize,
    },
    Runtime {
        pick: usize,
        act: u8,
    },
    MachineState {
        pick: usize,
    },
    Pass {
        ms: u64,
        renewed: bool,
    },
    Ack {
        pick: usize,
    },
    Leave,
    Lost,
}

fn step() -> impl Strategy<Value = Step> {
    let (id, seq, pe) = (0_u8..4, 1_u64..8, 1_u64..5);
    prop_oneof![
        10 => (id.clone(), seq.clone(), pe.clone(), any::<bool>())
            .prop_map(|(id, seq, pe, whole)| Step::Create { id, seq, pe, whole }),
        4 => (id.clone(), seq.clone(), pe.clone())
            .prop_map(|(id, seq, pe)| Step::Destroy { id, seq, pe }),
        2 => pe.prop_map(|pe| Step::Scan { pe }),
        1 => (id, seq).prop_map(|(id, seq)| Step::WrongBoot { id, seq }),
        4 => any::<usize>().prop_map(|at| Step::Replay { at }),
        10 => (any::<usize>(), 0_u8..6).prop_map(|(pick, act)| Step::Runtime { pick, act }),
        2 => any::<usize>().prop_map(|pick| Step::MachineState { pick }),
        6 => (0_u64..6_000, prop::bool::weighted(0.8))
            .prop_map(|(ms, renewed)| Step::Pass { ms, renewed }),
        3 => any::<usize>().prop_map(|pick| Step::Ack { pick }),
        1 => Just(Step::Leave),
        1 => Just(Step::Lost),
    ]
}

/// What a process table and a manager with a perfect memory know.
#[derive(Default)]
struct Witness {
    /// What the runtime was asked to start and has not said to be gone.
    running: BTreeMap<SessionKey, Token>,
    /// How urgently each of those was asked to stop.
    stopping: BTreeMap<SessionKey, StopHow>,
    ever_started: BTreeSet<(SessionKey, Token)>,
    /// Said to be dead, full, refused or destroyed.
    refused: BTreeSet<(SessionKey, Token)>,
    /// Highest epoch obeyed for each slot.
    obeyed: BTreeMap<u32, Epoch>,
    /// Which attempt each call was about.
    calls: BTreeMap<u64, (SessionKey, Token)>,
    sent: Vec<ToNode>,
    in_flight: BTreeMap<ReportId, SessionKey>,
    /// Ends that were reported, by attempt.
    changes: u64,
    booted_anew: bool,
}

impl Witness {
    fn on_effects(&mut self, world: &World, effects: &[NodeEffect]) {
        for effect in effects {
            assert!(
                !self.booted_anew,
                "after boot anew nothing more: {effect:?}"
            );
            match effect {
                NodeEffect::Start { key, token, .. } => self.on_start(world, key, *token),
                NodeEffect::Stop { key, token, how } => {
                    assert_eq!(self.running.get(key), Some(token), "stops what runs");
                    let before = self.stopping.insert(key.clone(), *how);
                    assert!(before.is_none_or(|it| it < *how), "only more urgent");
                }
                NodeEffect::Answer { answer, .. } => self.on_answer(answer.call, &answer.answer),
                NodeEffect::Report { id, item, .. } => {
                    self.in_flight
                        .retain(|it, key| it == id || *key != item.key);
                    self.in_flight.insert(*id, item.key.clone());
                    if matches!(item.event, ReportEvent::Ended { .. }) {
                        assert_ne!(self.running.get(&item.key), Some(&item.token), "it is gone");
                    }
                }
                NodeEffect::BootAnew => {
                    assert!(self.running.is_empty(), "boots anew with nothing running");
                    self.booted_anew = true;
                }
                NodeEffect::Left => assert!(self.running.is_empty()),
                NodeEffect::Renew { .. } | NodeEffect::Lease { .. } => {}
            }
        }
        let load = world.node.load();
        assert!(
            load.used <= load.places,
            "used {} of {}",
            load.used,
            load.places
        );
        let live: BTreeMap<_, _> = world
            .node
            .live()
            .map(|it| (it.key.clone(), it.token))
            .collect();
        assert_eq!(live, self.running, "the node's table is the process table");
    }

    fn on_start(&mut self, world: &World, key: &SessionKey, token: Token) {
        assert!(
            self.ever_started.insert((key.clone(), token)),
            "{key} {token} started twice"
        );
        assert!(
            !self.refused.contains(&(key.clone(), token)),
            "{key} {token} was refused before"
        );
        let other = self.running.insert(key.clone(), token);
        assert_eq!(other, None, "two live tokens of {key}");
        assert_eq!(
            world.node.lease(),
            LeaseState::Valid,
            "started without a lease"
        );
    }

    fn on_answer(&mut self, call: u64, answer: &NodeAnswer) {
        let Some((key, token)) = self.calls.get(&call).cloned() else {
            return;
        };
        match answer {
            NodeAnswer::Dead(_) | NodeAnswer::Full | NodeAnswer::Destroyed { .. } => {
                assert_ne!(
                    self.running.get(&key),
                    Some(&token),
                    "said dead while it runs"
                );
                self.refused.insert((key, token));
            }
            NodeAnswer::OtherLive { token: other } => {
                assert_eq!(self.running.get(&key), Some(other));
                self.refused.insert((key, token));
            }
            NodeAnswer::Running { .. } => assert_eq!(self.running.get(&key), Some(&token)),
            NodeAnswer::Scanned { .. } | NodeAnswer::Fenced { .. } | NodeAnswer::WrongBoot => {}
        }
    }

    /// What the fence must have allowed: any answer but a refusal obeys the sender.
    fn on_obeyed(&mut self, message: &ToNode, effects: &[NodeEffect]) {
        let head = message.head();
        let mine = full_answers(effects)
            .into_iter()
            .find(|it| it.call == head.call);
        let refused = mine.is_some_and(|it| {
            matches!(it.answer, NodeAnswer::Fenced { .. } | NodeAnswer::WrongBoot)
        });
        if refused || self.booted_anew {
            return;
        }
        for slot in head.range.first.0..=head.range.last.0 {
            let obeyed = self.obeyed.entry(slot).or_default();
            assert!(
                head.pe >= *obeyed,
                "slot {slot}: obeyed {} after {obeyed}",
                head.pe
            );
            *obeyed = head.pe;
        }
    }
}

fn id(number: u8) -> String {
    char::from(b'a' + number).to_string()
}

fn call(world: &mut World, witness: &mut Witness, message: ToNode) {
    let head = message.head();
    if let ToNode::Create { key, token, .. } | ToNode::Destroy { key, token, .. } = &message {
        witness.calls.insert(head.call, (key.clone(), *token));
    }
    witness.sent.push(message.clone());
    let was_lost = world.node.lease() == LeaseState::Lost;
    let effects = world.call(message.clone());
    if !was_lost {
        witness.on_obeyed(&message, &effects);
    }
    witness.on_effects(world, &effects);
}

fn runtime(world: &mut World, witness: &mut Witness, pick: usize, act: u8) {
    let Some((key, token)) = nth(&witness.running, pick) else {
        return;
    };
    let was_asked = witness.stopping.contains_key(&key);
    let address = format!("h:{}", token.0.seq.0);
    let ready = act == 1;
    let input = match act {
        0 | 1 => NodeInput::Started {
            key,
            token,
            address,
            ready,
        },
        2 => NodeInput::Ready {
            key,
            token,
            address,
        },
        3 => NodeInput::StartFailed {
            key,
            token,
            detail: "no".into(),
        },
        4 if was_asked => NodeInput::Stopped {
            key,
            token,
            exit: Some(Exit::Signal(9)),
        },
        _ => NodeInput::Ended {
            key,
            token,
            reason: Reason::Exited,
            exit: Some(Exit::Code(0)),
            detail: String::new(),
        },
    };
    if act >= 3 {
        let (gone, _) = nth(&witness.running, pick).unwrap();
        witness.running.remove(&gone);
        witness.stopping.remove(&gone);
    }
    let effects = world.give(input);
    witness.on_effects(world, &effects);
}

fn nth<V: Clone>(map: &BTreeMap<SessionKey, V>, pick: usize) -> Option<(SessionKey, V)> {
    let at = pick.checked_rem(map.len())?;
    map.iter()
        .nth(at)
        .map(|(key, value)| (key.clone(), value.clone()))
}

fn carry_out(world: &mut World, witness: &mut Witness, step: Step) {
    match step {
        Step::Create {
            id: number,
            seq,
            pe,
            whole,
        } => {
            let mut message = world.create_message(&id(number), token(1, seq), pe);
            if let ToNode::Create { head, slot, .. } = &mut message
                && !whole
            {
                head.range = range(slot.0, slot.0);
            }
            call(world, witness, message);
        }
        Step::Destroy {
            id: number,
            seq,
            pe,
        } => {
            let message = world.destroy_message(&id(number), token(1, seq), pe);
            call(world, witness, message);
        }
        Step::Scan { pe } => {
            let head = world.head(pe);
            call(
                world,
                witness,
                ToNode::Scan {
                    head,
                    after: None,
                    limit: 3,
                },
            );
        }
        Step::WrongBoot { id: number, seq } => {
            let mut message = world.create_message(&id(number), token(1, seq), 9);
            if let ToNode::Create { head, .. } = &mut message {
                head.boot = BootId(1);
            }
            call(world, witness, message);
        }
        Step::Replay { at } => {
            let Some(at) = at.checked_rem(witness.sent.len()) else {
                return;
            };
            let message = witness.sent[at].clone();
            call(world, witness, message);
        }
        Step::Runtime { pick, act } => runtime(world, witness, pick, act),
        Step::MachineState { pick } => {
            let Some((key, token)) = nth(&witness.running, pick) else {
                return;
            };
            witness.changes += 1;
            let change = witness.changes;
            let input = NodeInput::MachineState {
                key,
                token,
                state: "s".into(),
                change,
            };
            let effects = world.give(input);
            witness.on_effects(world, &effects);
        }
        Step::Pass { ms, renewed } => {
            let effects = world.pass(ms, renewed);
            witness.on_effects(world, &effects);
        }
        Step::Ack { pick } => {
            let Some(at) = pick.checked_rem(witness.in_flight.len()) else {
                return;
            };
            let report = *witness.in_flight.keys().nth(at).unwrap();
            witness.in_flight.remove(&report);
            let effects = world.give(NodeInput::ReportsAcked { ids: vec![report] });
            witness.on_effects(world, &effects);
        }
        Step::Leave => {
            let effects = world.give(NodeInput::Leave);
            witness.on_effects(world, &effects);
        }
        Step::Lost => {
            let sent_mono_ms = world.now;
            let renewed = Renewed::Lost;
            let effects = world.give(NodeInput::Renewed {
                boot: BOOT,
                sent_mono_ms,
                renewed,
            });
            witness.on_effects(world, &effects);
        }
    }
}

fn calm(steps: impl Strategy<Value = Step>) -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(steps, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn no_history_breaks_a_promise(
        places in 1_u32..4,
        steps in calm(step()),
        ends in any::<bool>(),
    ) {
        let mut small = config();
        small.places = places;
        let mut world = World::with(small);
        let mut witness = Witness::default();
        for step in steps {
            // Most histories should be long: leaving and being lost end all that is interesting.
            let last = matches!(step, Step::Leave | Step::Lost);
            if last && !ends {
                continue;
            }
            carry_out(&mut world, &mut witness, step);
        }
    }

    #[test]
    fn when_everything_ended_and_is_acknowledged_only_dead_tokens_are_left(
        steps in calm(step()),
    ) {
        let mut world = World::registered();
        let mut witness = Witness::default();
        for step in steps {
            if !matches!(step, Step::Leave | Step::Lost) {
                carry_out(&mut world, &mut witness, step);
            }
        }
        for (key, token) in witness.running.clone() {
            witness.running.remove(&key);
            witness.stopping.remove(&key);
            let effects = world.give(NodeInput::Stopped { key, token, exit: None });
            witness.on_effects(&world, &effects);
        }
        for _ in 0..10 {
            let ids: Vec<ReportId> = witness.in_flight.keys().copied().collect();
            witness.in_flight.clear();
            let effects = world.give(NodeInput::ReportsAcked { ids });
            witness.on_effects(&world, &effects);
        }
        prop_assert_eq!(world.node.outbox_sessions(), 0);
        prop_assert_eq!((world.node.load().used, world.node.live_digest()), (0, 0));
        let tombstone_ms = world.node.config().timing.tombstone_ms;
        world.pass(tombstone_ms * 2, true);
        prop_assert_eq!(world.node.dead_count(), 0);
    }
}
