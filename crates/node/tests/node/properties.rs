//! Random histories: whatever managers, runtime and network do, the promises hold. The checks look
//! at inputs and effects only, as a manager and a process table would see them. That they see
//! enough is shown by nodes with a planted bug, each of which is caught.

use crate::world::*;
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use rota_model::node_msg::{NodeAnswer, Renewed, ReportEvent, ToNode};
use rota_model::{BootId, Epoch, Exit, Reason, SessionKey, Token};
use rota_node::{EntryKind, LeaseState, NodeEffect, NodeInput, ReportId, StopHow};
use std::collections::{BTreeMap, BTreeSet};

/// One step of a history. Small numbers, so that things collide.
#[derive(Clone, Debug)]
enum Step {
    Create { id: u8, seq: u64, pe: u64, whole: bool },
    Destroy { id: u8, seq: u64, pe: u64 },
    Scan { pe: u64 },
    WrongBoot { id: u8, seq: u64 },
    Replay { at: usize },
    Runtime { pick: usize, act: u8 },
    MachineState { pick: usize },
    Pass { ms: u64, renewed: bool },
    Ack { pick: usize },
    Leave,
    Lost,
    Resume,
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
        2 => Just(Step::Resume),
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
    /// Machine states given so far.
    changes: u64,
    booted_anew: bool,
    bug: Bug,
}

/// A rule that the node under test does not keep.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Bug {
    #[default]
    None,
    FullForgotten,
    FenceIgnored,
    BootIgnored,
    DestroyForgotten,
}

impl Bug {
    fn call(self, world: &mut World, mut message: ToNode) -> Vec<NodeEffect> {
        let before = world.node.clone();
        let (ToNode::Create { head, .. }
        | ToNode::Destroy { head, .. }
        | ToNode::Act { head, .. }
        | ToNode::Scan { head, .. }
        | ToNode::Meet { head, .. }) = &mut message;
        match self {
            Bug::FenceIgnored => head.pe = Epoch(9),
            Bug::BootIgnored => head.boot = BOOT,
            Bug::None | Bug::FullForgotten | Bug::DestroyForgotten => {}
        }
        let head = head.clone();
        let effects = world.call(message);
        let forgets = answers(&effects).iter().any(|answer| match self {
            Bug::FullForgotten => *answer == NodeAnswer::Full,
            Bug::DestroyForgotten => matches!(answer, NodeAnswer::Destroyed { .. }),
            Bug::None | Bug::FenceIgnored | Bug::BootIgnored => false,
        });
        if forgets {
            world.node = before;
            // Only the token is forgotten: the fence is raised as before.
            world.call(ToNode::Scan { head, after: None, limit: 1 });
        }
        effects
    }
}

impl Witness {
    fn on_effects(&mut self, world: &World, effects: &[NodeEffect]) {
        for effect in effects {
            assert!(!self.booted_anew, "after boot anew nothing more: {effect:?}");
            match effect {
                NodeEffect::Start { key, token, .. } => self.on_start(world, key, *token),
                NodeEffect::Stop { key, token, how } => {
                    assert_eq!(self.running.get(key), Some(token), "stops what runs");
                    let before = self.stopping.insert(key.clone(), *how);
                    assert!(before.is_none_or(|it| how.may_hasten(it)), "only more urgent");
                }
                NodeEffect::Answer { answer, .. } => self.on_answer(answer.call, &answer.answer),
                NodeEffect::Report { id, item, .. } => {
                    self.in_flight.retain(|it, key| it == id || *key != item.key);
                    self.in_flight.insert(*id, item.key.clone());
                    if matches!(item.event, ReportEvent::Ended { .. }) {
                        assert_ne!(self.running.get(&item.key), Some(&item.token), "it is gone");
                    }
                }
                NodeEffect::BootAnew => {
                    assert!(self.running.is_empty(), "boots anew with nothing running");
                    self.booted_anew = true;
                }
                NodeEffect::Left | NodeEffect::Retire => assert!(self.running.is_empty()),
                NodeEffect::Adopt { key, token, .. } => {
                    assert_eq!(self.running.get(key), Some(token), "adopts what runs");
                }
                NodeEffect::Act { key, token, .. } => {
                    assert_eq!(self.running.get(key), Some(token), "acts for what runs");
                }
                NodeEffect::Journal { .. }
                | NodeEffect::Renew { .. }
                | NodeEffect::Lease { .. } => {}
            }
        }
        let load = world.node.load();
        assert!(load.used.places <= load.offered.places, "used {load:?}");
        let live: BTreeMap<_, _> = world.node.live().map(|it| (it.key.clone(), it.token)).collect();
        assert_eq!(live, self.running, "the node's table is the process table");
    }

    fn on_start(&mut self, world: &World, key: &SessionKey, token: Token) {
        assert!(self.ever_started.insert((key.clone(), token)), "{key} {token} started twice");
        assert!(!self.refused.contains(&(key.clone(), token)), "{key} {token} was refused before");
        let other = self.running.insert(key.clone(), token);
        assert_eq!(other, None, "two live tokens of {key}");
        let slot = crate::world::slot(key);
        assert_eq!(world.node.lease_of(slot), LeaseState::Valid, "started without a lease");
    }

    fn on_answer(&mut self, call: u64, answer: &NodeAnswer) {
        let Some((key, token)) = self.calls.get(&call).cloned() else {
            return;
        };
        match answer {
            NodeAnswer::Dead(_) | NodeAnswer::Full | NodeAnswer::Destroyed { .. } => {
                assert_ne!(self.running.get(&key), Some(&token), "said dead while it runs");
                self.refused.insert((key, token));
            }
            NodeAnswer::OtherLive { token: other } => {
                assert_eq!(self.running.get(&key), Some(other));
                self.refused.insert((key, token));
            }
            NodeAnswer::Acted { .. } => {}
            NodeAnswer::Running { .. } => assert_eq!(self.running.get(&key), Some(&token)),
            NodeAnswer::Scanned { .. } | NodeAnswer::Fenced { .. } | NodeAnswer::WrongBoot => {}
        }
    }

    /// What the fence must have allowed: any answer but a refusal obeys the sender.
    fn on_obeyed(&mut self, message: &ToNode, effects: &[NodeEffect]) {
        let head = message.head();
        let mine = full_answers(effects).into_iter().find(|it| it.call == head.call);
        let refused = mine.is_some_and(|answer| {
            matches!(answer.answer, NodeAnswer::Fenced { .. } | NodeAnswer::WrongBoot)
        });
        if refused || self.booted_anew {
            return;
        }
        assert_eq!(head.boot, BOOT, "obeyed a call that was meant for another boot");
        for slot in head.range.first.0..=head.range.last.0 {
            let obeyed = self.obeyed.entry(slot).or_default();
            assert!(head.pe >= *obeyed, "slot {slot}: obeyed {} after {obeyed}", head.pe);
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
    let effects = witness.bug.call(world, message.clone());
    if !was_lost {
        witness.on_obeyed(&message, &effects);
    }
    witness.on_effects(world, &effects);
}

fn runtime(world: &mut World, witness: &mut Witness, pick: usize, act: u8) {
    let Some((key, token)) = nth(&witness.running, pick) else {
        return;
    };
    let picked = key.clone();
    let was_asked = witness.stopping.contains_key(&key);
    let address = format!("h:{}", token.0.seq.0);
    let ready = act == 1;
    let input = match act {
        0 | 1 => NodeInput::Started { key, token, address, ready, remark: String::new() },
        2 => NodeInput::Ready { key, token, address },
        3 => NodeInput::StartFailed { key, token, detail: "no".into() },
        4 if was_asked => {
            NodeInput::Stopped { key, token, exit: Some(Exit::Signal(9)), detail: String::new() }
        }
        _ => NodeInput::Ended {
            key,
            token,
            reason: Reason::Exited,
            exit: Some(Exit::Code(0)),
            detail: String::new(),
        },
    };
    if act >= 3 {
        witness.running.remove(&picked);
        witness.stopping.remove(&picked);
    }
    give(world, witness, input);
}

fn nth<V: Clone>(map: &BTreeMap<SessionKey, V>, pick: usize) -> Option<(SessionKey, V)> {
    let at = pick.checked_rem(map.len())?;
    map.iter().nth(at).map(|(key, value)| (key.clone(), value.clone()))
}

fn create(world: &mut World, witness: &mut Witness, attempt: (u8, u64), pe: u64, whole: bool) {
    let mut message = world.create_message(&id(attempt.0), token(1, attempt.1), pe);
    if let ToNode::Create { head, slot, .. } = &mut message
        && !whole
    {
        head.range = range(slot.0, slot.0);
    }
    call(world, witness, message);
}

fn carry_out(world: &mut World, witness: &mut Witness, step: Step) {
    match step {
        Step::Create { id, seq, pe, whole } => create(world, witness, (id, seq), pe, whole),
        Step::Destroy { id: number, seq, pe } => {
            let message = world.destroy_message(&id(number), token(1, seq), pe);
            call(world, witness, message);
        }
        Step::Scan { pe } => {
            let head = world.head(pe);
            call(world, witness, ToNode::Scan { head, after: None, limit: 3 });
        }
        Step::WrongBoot { id: number, seq } => {
            let mut message = world.create_message(&id(number), token(1, seq), 9);
            if let ToNode::Create { head, .. } = &mut message {
                head.boot = BootId(1);
            }
            call(world, witness, message);
        }
        Step::Replay { at } => {
            let Some(at) = at.checked_rem(witness.sent.len()) else { return };
            let message = witness.sent[at].clone();
            call(world, witness, message);
        }
        Step::Runtime { pick, act } => runtime(world, witness, pick, act),
        Step::MachineState { pick } => {
            let Some((key, token)) = nth(&witness.running, pick) else { return };
            witness.changes += 1;
            let change = witness.changes;
            give(
                world,
                witness,
                NodeInput::MachineState { key, token, state: "s".into(), change, told: true },
            );
        }
        Step::Pass { ms, renewed } => {
            let effects = world.pass(ms, renewed);
            witness.on_effects(world, &effects);
        }
        Step::Ack { pick } => {
            let Some(at) = pick.checked_rem(witness.in_flight.len()) else { return };
            let ids: Vec<ReportId> = witness.in_flight.keys().copied().skip(at).take(1).collect();
            witness.in_flight.retain(|it, _| !ids.contains(it));
            give(world, witness, NodeInput::ReportsAcked { ids });
        }
        Step::Leave => give(world, witness, NodeInput::Leave),
        Step::Lost => {
            let (boot, sent_mono_ms, renewed) = (BOOT, world.now, Renewed::Lost);
            give(world, witness, NodeInput::Renewed { boot, sent_mono_ms, renewed });
        }
        // A planted bug puts the node back, and its journal tells of it all the same.
        Step::Resume if witness.bug == Bug::None && !witness.booted_anew => {
            let kept = |node: &rota_node::Node| -> Vec<String> {
                // Of states that wait to be told only the newest stays.
                let kept = node.remembered().into_iter().filter(|it| it.kind() != EntryKind::News);
                let mut kept: Vec<String> = kept.map(|it| as_written(&it)).collect();
                kept.sort();
                kept
            };
            let (before, news) = (kept(&world.node), world.node.outbox_sessions());
            let Ok(effects) = world.resume() else {
                return assert_eq!(world.node.lease(), LeaseState::Lost);
            };
            assert_eq!(before, kept(&world.node), "the next agent knows what this one knew");
            assert_eq!(world.node.outbox_sessions(), news);
            witness.stopping.clear();
            witness.in_flight.clear();
            witness.on_effects(world, &effects);
        }
        Step::Resume => {}
    }
}

/// An entry as it stands in a journal, but for the time to start something: the next agent gives more.
fn as_written(entry: &rota_node::Entry) -> String {
    let text = serde_json::to_string(entry).expect("it is plain data");
    let Some((before, after)) = text.split_once("\"not_after_ms\":") else { return text };
    format!("{before}{}", after.trim_start_matches(|it: char| it.is_ascii_digit()))
}

fn give(world: &mut World, witness: &mut Witness, input: NodeInput) {
    let effects = world.give(input);
    witness.on_effects(world, &effects);
}

fn history() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..120)
}

fn live_through(places: u32, steps: Vec<Step>, ends: bool, bug: Bug) {
    let mut small = config();
    small.offers.places = places;
    let mut world = World::with(small);
    let mut witness = Witness { bug, ..Witness::default() };
    for step in steps {
        // Most histories should be long: leaving and being lost end all that is interesting.
        let last = matches!(step, Step::Leave | Step::Lost);
        if !last || ends {
            carry_out(&mut world, &mut witness, step);
        }
    }
}

/// What the witness says of a node with that bug.
fn verdict(bug: Bug) -> String {
    let config = ProptestConfig {
        cases: 2_000,
        failure_persistence: None,
        max_shrink_iters: 0,
        ..ProptestConfig::default()
    };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let result = runner.run(&(1_u32..4, history()), |(places, steps)| {
        live_through(places, steps, false, bug);
        Ok(())
    });
    result.map_or_else(|error| error.to_string(), |()| "nothing".into())
}

#[test]
fn a_node_that_forgets_a_full_answer_is_caught() {
    let verdict = verdict(Bug::FullForgotten);
    assert!(verdict.contains("was refused before"), "{verdict}");
}

#[test]
fn a_node_that_ignores_fences_is_caught() {
    let verdict = verdict(Bug::FenceIgnored);
    assert!(verdict.contains("obeyed"), "{verdict}");
}

#[test]
fn a_node_that_ignores_the_boot_id_is_caught() {
    let verdict = verdict(Bug::BootIgnored);
    assert!(verdict.contains("meant for another boot"), "{verdict}");
}

#[test]
fn a_node_that_forgets_what_it_destroyed_is_caught() {
    let verdict = verdict(Bug::DestroyForgotten);
    assert!(verdict.contains("was refused before"), "{verdict}");
}

#[test]
fn the_same_histories_find_nothing_in_a_node_without_bugs() {
    assert_eq!(verdict(Bug::None), "nothing");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn no_history_breaks_a_promise(
        places in 1_u32..4,
        steps in history(),
        ends in any::<bool>(),
    ) {
        live_through(places, steps, ends, Bug::None);
    }

    #[test]
    fn when_everything_ended_and_is_acknowledged_only_dead_tokens_are_left(
        steps in history(),
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
            give(&mut world, &mut witness, NodeInput::Stopped { key, token, exit: None, detail: String::new() });
        }
        for _ in 0..10 {
            let ids: Vec<ReportId> = witness.in_flight.keys().copied().collect();
            witness.in_flight.clear();
            give(&mut world, &mut witness, NodeInput::ReportsAcked { ids });
        }
        prop_assert_eq!(world.node.outbox_sessions(), 0);
        prop_assert_eq!(world.node.load().used, rota_model::Resources::default());
        let tombstone_ms = world.node.config().timing.tombstone_ms;
        world.pass(tombstone_ms * 2, true);
        prop_assert_eq!(world.node.dead_count(), 0);
    }
}
