//! Actions of sessions: who may ask, one at a time, and who hears of the end.

use crate::world::*;
use rota_model::node_msg::{Action, ActionEnd, NodeAnswer, NodeCall, ToNode};
use rota_model::{BootId, Epoch, Stamp, Token};
use rota_node::{ACTIONS_WAITING_MAX, NodeEffect, NodeInput, StopHow};

fn action(word: &str) -> Action {
    Action {
        life: Stamp::MIN,
        life_cycle: "mail".to_owned(),
        word: word.to_owned(),
        failures: 0,
        timeout_ms: 1_000,
        document: "{}".to_owned(),
    }
}

fn act_with(
    world: &mut World,
    head: NodeCall,
    id: &str,
    token: Token,
    word: &str,
) -> Vec<NodeEffect> {
    let (key, action) = (key(id), Box::new(action(word)));
    let slot = slot(&key);
    world.call(ToNode::Act { head, key, slot, token, action })
}

fn act(world: &mut World, id: &str, token: Token, word: &str) -> Vec<NodeEffect> {
    let head = world.head(1);
    act_with(world, head, id, token, word)
}

fn acted(world: &mut World, id: &str, token: Token, word: &str, output: &str) -> Vec<NodeEffect> {
    let (key, life_cycle) = (key(id), "mail".to_owned());
    let end = ActionEnd::Done { output: output.to_owned() };
    world.give(NodeInput::Acted { key, token, life_cycle, word: word.to_owned(), end })
}

/// The words of the actions that are to run.
fn begun(effects: &[NodeEffect]) -> Vec<String> {
    let word = |effect: &NodeEffect| {
        let NodeEffect::Act { action, .. } = effect else { return None };
        Some(action.word.clone())
    };
    effects.iter().filter_map(word).collect()
}

fn outputs(effects: &[NodeEffect]) -> Vec<(u64, String)> {
    let of = full_answers(effects).into_iter().map(|answer| {
        let NodeAnswer::Acted { end } = answer.answer else { panic!("{answer:?}") };
        match end {
            ActionEnd::Done { output } => (answer.call, output),
            ActionEnd::Failed { code, .. } => (answer.call, code),
        }
    });
    of.collect()
}

#[test]
fn an_action_runs_for_the_attempt_that_runs_and_its_end_answers() {
    let mut world = World::registered();
    world.run("a", token(1, 1));
    let effects = act(&mut world, "a", token(1, 1), "paid@1");
    assert_eq!((begun(&effects), answers(&effects).len()), (vec!["paid@1".to_owned()], 0));
    let effects = acted(&mut world, "a", token(1, 1), "paid@1", "{\"a\":1}");
    assert_eq!(outputs(&effects)[0].1, "{\"a\":1}");
    assert_eq!(acted(&mut world, "a", token(1, 1), "paid@1", "late"), vec![]);
}

#[test]
fn what_does_not_run_here_acts_for_nobody() {
    let mut world = World::registered();
    world.create("a", token(1, 1));
    let refused = |effects: &[NodeEffect]| outputs(effects)[0].1.clone();
    assert_eq!(refused(&act(&mut world, "a", token(1, 1), "x")), "NOT-RUNNING");
    world.started("a", token(1, 1), true);
    assert_eq!(refused(&act(&mut world, "a", token(1, 2), "x")), "NOT-RUNNING");
    assert_eq!(refused(&act(&mut world, "b", token(1, 1), "x")), "NOT-RUNNING");
    world.destroy("a", token(1, 1));
    assert_eq!(refused(&act(&mut world, "a", token(1, 1), "x")), "NOT-RUNNING");
}

#[test]
fn an_action_is_refused_below_the_fence_and_for_another_boot() {
    let mut world = World::registered();
    world.run("a", token(1, 1));
    let head = NodeCall { boot: BootId(99), ..world.head(1) };
    let effects = act_with(&mut world, head, "a", token(1, 1), "x");
    assert_eq!(answers(&effects), [NodeAnswer::WrongBoot]);
    world.scan(7, None, 1);
    let effects = act(&mut world, "a", token(1, 1), "x");
    assert_eq!(answers(&effects), [NodeAnswer::Fenced { fence: Epoch(7) }]);
    assert_eq!(begun(&effects), [] as [String; 0]);
}

#[test]
fn a_repetition_joins_what_runs_and_after_the_end_it_runs_again() {
    let mut world = World::registered();
    world.run("a", token(1, 1));
    act(&mut world, "a", token(1, 1), "x");
    let again = act(&mut world, "a", token(1, 1), "x");
    assert_eq!(again, vec![]);
    let ends = outputs(&acted(&mut world, "a", token(1, 1), "x", "done"));
    assert_eq!(ends.len(), 2);
    assert!(ends[0].0 < ends[1].0 && ends.iter().all(|it| it.1 == "done"), "{ends:?}");
    assert_eq!(begun(&act(&mut world, "a", token(1, 1), "x")), ["x"]);
}

#[test]
fn one_action_of_a_session_runs_at_a_time_in_the_order_asked_and_others_do_not_wait_for_it() {
    let mut world = World::registered();
    world.run("a", token(1, 1));
    world.run("b", token(1, 2));
    act(&mut world, "a", token(1, 1), "first");
    for number in 0..ACTIONS_WAITING_MAX {
        let effects = act(&mut world, "a", token(1, 1), &format!("{number}"));
        assert_eq!(effects, vec![], "it waits");
    }
    let busy = act(&mut world, "a", token(1, 1), "one too many");
    assert_eq!(outputs(&busy)[0].1, "BUSY");
    assert_eq!(begun(&act(&mut world, "b", token(1, 2), "other")), ["other"]);
    let next = acted(&mut world, "a", token(1, 1), "first", "");
    assert_eq!(begun(&next), ["0"]);
    let next = acted(&mut world, "a", token(1, 1), "0", "");
    assert_eq!(begun(&next), ["1"]);
}

#[test]
fn whoever_waits_hears_that_the_session_ended_and_nothing_more_begins() {
    let mut world = World::registered();
    world.run("a", token(1, 1));
    act(&mut world, "a", token(1, 1), "x");
    act(&mut world, "a", token(1, 1), "y");
    let effects = world.destroy("a", token(1, 1));
    assert_eq!(stops(&effects), [("a".to_owned(), StopHow::Class)]);
    let effects = acted(&mut world, "a", token(1, 1), "x", "in time");
    let codes: Vec<String> = outputs(&effects).into_iter().map(|it| it.1).collect();
    assert_eq!((codes, begun(&effects)), (vec!["in time".into(), "NOT-RUNNING".into()], vec![]));
    world.run("b", token(1, 2));
    act(&mut world, "b", token(1, 2), "x");
    let ended = world.ended("b", token(1, 2));
    assert_eq!(outputs(&ended)[0].1, "NOT-RUNNING");
}

#[test]
fn an_answer_for_a_stream_that_is_gone_is_given_to_nobody() {
    let mut world = World::registered();
    world.run("a", token(1, 1));
    act(&mut world, "a", token(1, 1), "x");
    world.give(NodeInput::StreamClosed { stream: 5 });
    assert_eq!(acted(&mut world, "a", token(1, 1), "x", ""), vec![]);
}

#[test]
fn the_next_agent_runs_what_is_asked_for_again() {
    let mut world = World::registered();
    world.run("a", token(1, 1));
    act(&mut world, "a", token(1, 1), "x");
    world.resume().expect("it goes on");
    assert_eq!(begun(&act(&mut world, "a", token(1, 1), "x")), ["x"]);
}
