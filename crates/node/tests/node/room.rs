//! What a node has room for, and what it says of its load.

use crate::world::*;
use rota_model::node_msg::{Blame, DeadToken, NodeAnswer, ToldLimit};
use rota_model::{ClassDigest, ClassFacts, ClassText, Disturb, LoadLimit, Needs, Resources};

#[test]
fn full_is_remembered_when_room_comes() {
    let mut small = config();
    small.offers.places = 1;
    let mut world = World::with(small);
    world.run("a", token(1, 1));
    assert_eq!(answer(&world.create("b", token(1, 2))), NodeAnswer::Full);
    world.ended("a", token(1, 1));
    let again = world.create("b", token(1, 2));
    let detail = "the node had no room".to_owned();
    let why = DeadToken::NeverStarted { blame: Blame::Node, detail };
    assert_eq!(answer(&again), NodeAnswer::Dead(why));
    assert_eq!(starts(&again), 0);
    assert_eq!(starts(&world.create("b", token(1, 3))), 1);
}

#[test]
fn the_load_limit_counts_what_is_used_before_the_newcomer() {
    let mut limited = config();
    limited.load_limit = LoadLimit::of_permille(250).unwrap();
    let mut world = World::with(limited);
    for (at, id) in ["a", "b", "c"].iter().enumerate() {
        assert_eq!(starts(&world.create(id, token(1, at as u64 + 1))), 1, "{id}");
    }
    // 3 of 10 places are 300 thousandths; 2 of 10 were 200.
    assert_eq!(answer(&world.create("d", token(1, 4))), NodeAnswer::Full);
}

#[test]
fn a_heavy_session_takes_its_weight_and_nothing_that_is_not_there() {
    let mut heavy = config();
    let needs = Needs { weight: 6, memory_mib: 100, ..Needs::default() };
    let facts = ClassFacts { needs, ..ClassFacts::default() };
    heavy.classes.insert(spec("heavy").class, ClassText { digest: ClassDigest(2), facts });
    heavy.offers.memory_mib = 250;
    let mut world = World::with(heavy);
    assert_eq!(starts(&world.create_of("a", token(1, 1), "heavy")), 1);
    assert_eq!(world.node.load().used, Resources { places: 6, cpu_millis: 0, memory_mib: 100 });
    // 6 of 10 places are in use.
    assert_eq!(answer(&world.create_of("b", token(1, 2), "heavy")), NodeAnswer::Full);
    assert_eq!(starts(&world.create("c", token(1, 3))), 1);
    assert_eq!(world.node.load().used.places, 7);
}

#[test]
fn the_limit_of_the_pool_comes_with_renewals_and_goes_with_them() {
    let mut limited = config();
    limited.load_limit = LoadLimit::of_permille(100).unwrap();
    let mut world = World::with(limited);
    let refused = |world: &mut World, id: &str, seq: u64| {
        let effects = world.create(id, token(1, seq));
        starts(&effects) == 0 && answer(&effects) == NodeAnswer::Full
    };
    assert!(!refused(&mut world, "a", 1));
    assert!(refused(&mut world, "b", 2), "one of ten places is the limit");
    world.load_limit = LoadLimit::of_permille(200).map_or(ToldLimit::Nothing, ToldLimit::Of);
    world.grant(1_000);
    assert!(!refused(&mut world, "c", 3));
    assert!(refused(&mut world, "d", 4));
    // A manager that has just started tells nothing.
    world.load_limit = ToldLimit::Nothing;
    world.grant(1_000);
    assert!(refused(&mut world, "d", 6));
    world.load_limit = ToldLimit::AsStarted;
    world.grant(1_000);
    world.destroy("c", token(1, 3));
    world.stopped("c", token(1, 3));
    assert!(refused(&mut world, "e", 5));
}

#[test]
fn sessions_that_scale_in_must_not_end_are_told_with_the_load() {
    let mut config = config();
    let text = |disturb| ClassText {
        facts: ClassFacts { disturb, ..ClassFacts::default() },
        ..ClassDigest(1).into()
    };
    config.classes = [(spec("builtin").class, text(Disturb::Always))].into();
    let mut world = World::with(config.clone());
    world.run("a", token(1, 1));
    assert_eq!((world.node.load().used.places, world.node.load().kept), (1, 0));
    config.classes = [(spec("builtin").class, text(Disturb::Never))].into();
    world.node.offer(config.classes);
    world.run("b", token(1, 2));
    assert_eq!(world.node.load().kept, 1, "each by the text that it was started by");
    world.destroy("b", token(1, 2));
    assert_eq!(world.node.load().kept, 1, "it may run on for a while");
    world.stopped("b", token(1, 2));
    assert_eq!(world.node.load().kept, 0);
}
