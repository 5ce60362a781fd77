//! Classes and their pools: where opens go, and which text of a class counts.

use crate::table::asking::{op, space};
use crate::table::*;
use rota_docstore::Request;
use rota_model::node_msg::Register;
use rota_model::{ClassDigest, ClassFacts, ClassName, NodeState, PoolName, RefusalKind};
use rota_protocol::operate::{CONFIGURATION, SPACES_DOCID};
use rota_protocol::{Answer, DocumentAnswer, Op};
use serde_json::json;

/// A node of pool `gpu`, whose text of class `big` says which pool it is for.
fn registers_big(table: &mut Table, node: &str, boot: u64, digest: u64, says: Option<&str>) {
    let classes = ["big".to_owned()];
    table.register_as(node, boot, 100, &classes, |register| {
        let class = ClassName::parse("big").expect("a short name");
        let name = |it: &str| PoolName::parse(it).expect("a short name");
        let facts = says.map(|pool| {
            let pool = Some(name(pool));
            (class.clone(), ClassFacts { pool, ..ClassFacts::default() })
        });
        let digests = [(class, ClassDigest(digest))].into();
        Register { pool: name("gpu"), digests, facts: facts.into_iter().collect(), ..register }
    });
}

/// An open of class `big` that names no pool.
fn open_big(id: &str, request: &str) -> Op {
    let mut op = open(id, request);
    if let Op::Open(open) = &mut op {
        open.pool_named = false;
        open.spec.class = ClassName::parse("big").expect("a short name");
    }
    op
}

#[test]
fn an_open_goes_to_the_pool_that_its_class_names_also_when_no_node_is_left_that_says_so() {
    let mut table = Table::laid();
    table.start_all();
    table.pass(500);
    let call = table.ask_within(300, open_big("a", "r0"), 500);
    let refusal = table.wait_for(call, 1_000).unwrap_err();
    assert!(refusal.message.contains("there is no pool \"default\""), "{refusal}");
    registers_big(&mut table, "g1", 1, 7, Some("gpu"));
    let call = table.ask(300, open_big("a", "r1"));
    let record = opened(table.wait_for(call, 1_000)).1.record;
    assert_eq!(record.spec.pool.as_str(), "gpu");
    // Its repetition asks for the pool that it got, wherever the class would go now.
    table.pass(1_000);
    let call = table.ask(600, open_big("a", "r1"));
    assert_eq!(opened(table.wait_for(call, 1_000)).1.record.life, record.life);
    // A node that leaves takes nothing with it.
    table.register_as("g1", 2, 100, &[], |it| Register { state: NodeState::Removed, ..it });
    table.pass(500);
    let call = table.ask_within(300, open_big("b", "r2"), 1_000);
    let refusal = table.wait_for(call, 2_000).unwrap_err();
    assert!(refusal.message.contains("pool \"gpu\" has no node"), "{refusal}");
}

#[test]
fn an_open_may_name_another_pool_unless_the_class_says_no() {
    let mut table = Table::laid();
    table.start_all();
    table.pass(500);
    table.register("n1", 1);
    let class = ClassName::parse("big").expect("a short name");
    let gpu = PoolName::parse("gpu").expect("a short name");
    let registers = |table: &mut Table, node: &str, pool: &PoolName, only: bool| {
        let facts =
            ClassFacts { pool: Some(gpu.clone()), only_its_pool: only, ..ClassFacts::default() };
        table.register_as(node, 1, 100, &["big".to_owned()], |register| Register {
            pool: pool.clone(),
            digests: [(class.clone(), ClassDigest(u64::from(only)))].into(),
            facts: [(class.clone(), facts)].into(),
            ..register
        });
        table.pass(1_500);
    };
    let named = |id: &str| {
        let mut op = open_big(id, id);
        if let Op::Open(open) = &mut op {
            open.pool_named = true;
        }
        op
    };
    registers(&mut table, "d1", &PoolName::default_pool(), false);
    let call = table.ask(300, named("a"));
    assert_eq!(opened(table.wait_for(call, 1_000)).1.record.spec.pool, PoolName::default_pool());
    registers(&mut table, "g1", &gpu, true);
    let call = table.ask(300, named("b"));
    let refusal = table.wait_for(call, 1_000).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::InvalidArgument);
    let told = "pool is default; class big says other_pools = false, so name gpu or none";
    assert_eq!(refusal.message, told);
    let call = table.ask(300, open_big("b", "c"));
    assert_eq!(opened(table.wait_for(call, 1_000)).1.record.spec.pool, gpu);
}

#[test]
fn of_several_texts_of_a_class_the_one_that_most_nodes_have_counts() {
    let mut table = Table::laid();
    table.start_all();
    table.pass(500);
    registers_big(&mut table, "g1", 1, 7, Some("gpu"));
    registers_big(&mut table, "g2", 2, 8, Some("other"));
    table.pass(1_500);
    let pool_of = |table: &mut Table, id: &str| {
        let call = table.ask_within(300, open_big(id, id), 2_500);
        let result = table.wait_for(call, 4_000);
        if let Err(refusal) = &result {
            return refusal.message.clone();
        }
        opened(result).1.record.spec.pool.to_string()
    };
    assert_eq!(pool_of(&mut table, "a"), "gpu", "of equally many the one that was there counts");
    registers_big(&mut table, "g3", 3, 8, Some("other"));
    table.pass(1_500);
    let refused = pool_of(&mut table, "b");
    assert!(refused.contains("there is no pool \"other\""), "{refused}");
    // Back again: the new text is the one that is rare.
    registers_big(&mut table, "g2", 4, 7, Some("gpu"));
    table.pass(1_500);
    assert_eq!(pool_of(&mut table, "c"), "gpu");
}

#[test]
fn a_class_is_opened_on_demand_where_the_text_that_counts_says_so_also_when_no_node_is_left() {
    let mut table = Table::laid();
    table.start_all();
    table.pass(500);
    let class = ClassName::parse("big").expect("a short name");
    let register = |table: &mut Table, node: &str, boot: u64, digest: u64, says: bool| {
        let classes = [class.to_string()];
        table.register_as(node, boot, 100, &classes, |register| {
            let facts = ClassFacts { opens_on_demand: says, ..ClassFacts::default() };
            let digests = [(class.clone(), ClassDigest(digest))].into();
            Register { digests, facts: [(class.clone(), facts)].into(), ..register }
        });
        table.pass(1_500);
    };
    let everybody_says = |table: &Table, says: bool| {
        for (number, manager) in &table.managers {
            assert_eq!(manager.classes_on_demand().contains(&class), says, "{number}");
        }
    };
    register(&mut table, "g1", 1, 7, true);
    everybody_says(&table, true);
    register(&mut table, "g2", 2, 8, false);
    everybody_says(&table, true);
    table.register_as("g1", 3, 100, &[], |it| Register { state: NodeState::Removed, ..it });
    table.pass(1_500);
    everybody_says(&table, false);
    register(&mut table, "g2", 4, 7, true);
    table.register_as("g2", 5, 100, &[], |it| Register { state: NodeState::Removed, ..it });
    table.pass(1_500);
    everybody_says(&table, true);
}

#[test]
fn a_class_that_moved_to_another_pool_goes_there() {
    let mut table = Table::laid();
    table.start_all();
    table.pass(500);
    registers_big(&mut table, "g1", 1, 7, Some("gpu"));
    table.pass(1_500);
    // The other pool's text says nothing of a pool; then no node of the first one has the class.
    let classes = ["big".to_owned()];
    table.register_as("z1", 2, 100, &classes, |register| {
        let digests = [(ClassName::parse("big").expect("short"), ClassDigest(9))].into();
        Register { pool: PoolName::parse("zed").expect("short"), digests, ..register }
    });
    table.register_as("g1", 3, 100, &["other".to_owned()], |register| {
        let digests = [(ClassName::parse("other").expect("short"), ClassDigest(5))].into();
        Register { pool: PoolName::parse("gpu").expect("short"), digests, ..register }
    });
    table.pass(1_500);
    let call = table.ask_within(300, open_big("a", "r1"), 1_000);
    let refusal = table.wait_for(call, 2_000).unwrap_err();
    assert!(refusal.message.contains("there is no pool \"default\""), "{refusal}");
}

#[test]
fn what_is_known_of_classes_is_found_again_when_a_description_was_taken_away() {
    let mut table = Table::laid();
    table.start_all();
    table.pass(500);
    registers_big(&mut table, "g1", 1, 7, Some("gpu"));
    table.pass(1_500);
    let run = |table: &mut Table, operation: &str| {
        let operation = Request::new(space(CONFIGURATION), operation);
        let operation = operation.with(&json!({"name": "gpu"})).expect("a small document");
        let call = table.ask(300, op(operation, SPACES_DOCID));
        let answer = table.wait_for(call, 1_000);
        assert!(matches!(&answer, Ok(Answer::Documents(DocumentAnswer::Operated(Ok(_))))));
        table.pass(1_000);
    };
    run(&mut table, "pool.remove");
    run(&mut table, "pool.create");
    table.register_as("g1", 2, 100, &[], |it| Register { state: NodeState::Removed, ..it });
    table.pass(1_500);
    let call = table.ask_within(300, open_big("b", "r2"), 1_000);
    let refusal = table.wait_for(call, 2_000).unwrap_err();
    assert!(refusal.message.contains("pool \"gpu\" has no node"), "{refusal}");
}
