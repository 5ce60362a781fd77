//! Operations that work beside the decisions: on a snapshot, validated, bounded in time and number.

use crate::table::asking::*;
use crate::table::*;
use rota_docstore::*;
use rota_model::RefusalKind;
use rota_protocol::operate::{operations, schema};
use rota_protocol::{Transition, Wait};
use serde_json::{Value, json};

/// Counts up in a document that it names before, or that it only finds when it works.
struct Count {
    docids: Vec<String>,
    /// Only looks at them.
    looks: bool,
    /// How stale a document of elsewhere may be that it looks at, too.
    far: Option<String>,
}

impl Operation for Count {
    const NAME: &'static str = "count";
    type Parameters = Value;

    fn new(parameters: Value) -> Result<Self, Exception> {
        let docids = parameters["docids"].as_array().into_iter().flatten();
        let docids = docids.map(|it| it.as_str().unwrap_or_default().to_owned()).collect();
        let far = parameters["far"].as_str().map(str::to_owned);
        Ok(Self { docids, looks: parameters["looks"] == true, far })
    }

    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
        let first = transaction.name("Cart", &self.docids[0])?;
        if let Some(before) = transaction.repeated::<u64>(&first)? {
            return transaction.answer_json(&before);
        }
        let mut sum = 0;
        for docid in &self.docids {
            let name = transaction.name("Cart", docid)?;
            let edited = transaction.current(&name)?;
            let before = match edited.content("N", None) {
                Some(Content::Json(text)) => text.read::<u64>()?,
                Some(_) | None => 0,
            };
            sum += before + 1;
            if !self.looks {
                edited.ensure();
                let content = Content::json_of(&(before + 1))?;
                edited.put_content(&ItemName::singleton("N")?, content)?;
            }
        }
        if let Some(far) = &self.far {
            let name = transaction.name("Cart", far)?;
            sum += u64::from(transaction.recent(&name, Tolerance::seconds(5))?.exists()) * 1_000;
        }
        if !self.looks {
            transaction.remember(&first, &sum)?;
        }
        transaction.answer_json(&sum)
    }
}

fn count_of(parameters: &Value) -> rota_protocol::Op {
    let docid = parameters["docids"][0].as_str().unwrap().to_owned();
    op(request("count", parameters), &docid)
}

fn count(docid: &str) -> rota_protocol::Op {
    count_of(&json!({"docids": [docid]}))
}

fn look(docid: &str) -> rota_protocol::Op {
    count_of(&json!({"docids": [docid], "looks": true}))
}

/// A table at which somebody does the work by hand.
fn by_hand(works_max: usize) -> Table {
    let mut table = Table::laid();
    table.offer = Some((operations().with::<Count>(), schema()));
    table.documents.works_max = works_max;
    table.documents.work_ms = 1_500;
    table.start_all();
    table.register("n1", 7);
    table.manual_works = true;
    table
}

fn counted(result: rota_protocol::OpResult) -> Value {
    body(&operated(result).unwrap())
}

fn exception(result: rota_protocol::OpResult) -> Exception {
    operated(result).unwrap_err()
}

#[test]
fn while_an_operation_works_others_are_answered_and_its_caller_is_later() {
    let mut table = by_hand(8);
    let owner = owner_of(&table, "c");
    let entry = other_than(owner);
    let counting = table.ask(entry, count("c"));
    assert_eq!((table.works.len(), table.works[0].0), (1, owner));
    operated(table.call(entry, op(write("{c}2", 1), "{c}2"))).unwrap();
    operated(table.call(entry, op(read("c"), "c"))).unwrap();
    opened(table.call(entry, open("s", "r1")));
    // It is asked for again and again by its entry manager, and works once.
    table.pass(1_400);
    assert!(!table.replies.contains_key(&counting) && table.works.len() == 1);
    table.work_once();
    assert_eq!(counted(table.replies.remove(&counting).unwrap()), 1);
    assert_eq!(table.count(Transition::WorkBegun), 1);
}

#[test]
fn what_changed_while_it_worked_makes_it_work_again_on_a_new_snapshot() {
    let mut table = by_hand(8);
    let counting = table.ask(300, count("c"));
    // Two attempts find that somebody else was faster; the third one is let be.
    for n in 0..2 {
        operated(table.call(300, op(write("c", n), "c"))).unwrap();
        table.work_once();
        table.pass_until("the next attempt", 500, |it| !it.works.is_empty());
    }
    table.work_once();
    assert_eq!(counted(table.wait_for(counting, 500)), 1);
    // Of one that is never let be the caller hears.
    let counting = table.ask(300, count("c"));
    for n in 0..3 {
        table.pass_until("the next attempt", 500, |it| !it.works.is_empty());
        operated(table.call(300, op(write("c", 10 + n), "c"))).unwrap();
        table.work_once();
    }
    let exception = exception(table.wait_for(counting, 100));
    assert_eq!(*exception.code(), codes::CONTENTION);
    assert_eq!((exception.phase(), exception.details().attempts), (Phase::Validation, 3));
    let shown = body(&operated(table.call(300, op(read("c"), "c"))).unwrap());
    assert!(!shown.to_string().contains("\"value\":2"), "{shown}");
}

#[test]
fn what_only_looks_works_once_and_waits_for_what_it_saw_to_be_committed() {
    let mut table = by_hand(8);
    let owner = owner_of(&table, "c");
    table.lose = Box::new(|it| matches!(it.message, rota_protocol::Message::Prepare { .. }));
    table.ask(owner, op(write("c", 1), "c"));
    let looking = table.ask(owner, look("c"));
    table.work_once();
    table.pass(100);
    assert!(!table.replies.contains_key(&looking), "what it saw is at its owner alone");
    table.lose = Box::new(|_| false);
    assert_eq!(counted(table.wait_for(looking, 2_000)), 1);
    assert_eq!(table.count(Transition::WorkBegun), 1);
}

#[test]
fn nothing_works_before_the_copies_confirmed_who_owns_the_partition() {
    let mut table = by_hand(8);
    table.lose =
        Box::new(|it| matches!(it.message, rota_protocol::Message::ReadIndexConfirmed { .. }));
    let looking = table.ask(owner_of(&table, "c"), look("c"));
    table.pass(100);
    assert!(table.works.is_empty());
    table.lose = Box::new(|_| false);
    table.pass_until("work", 1_000, |it| !it.works.is_empty());
    table.work_once();
    assert_eq!(counted(table.wait_for(looking, 500)), 1);
}

#[test]
fn a_repetition_that_comes_while_the_first_one_works_changes_nothing_twice() {
    let mut table = by_hand(8);
    let mut asked = request("count", &json!({"docids": ["c"]}));
    asked.operation_time = Some(stamp(&table));
    let first = table.ask(300, op(asked.clone(), "c"));
    let second = table.ask(600, op(asked, "c"));
    assert_eq!(table.works.len(), 2);
    table.work_once();
    table.work_once();
    table.pass_until("the repetition's next attempt", 500, |it| !it.works.is_empty());
    table.work_once();
    let [first, second] = [first, second].map(|it| operated(table.wait_for(it, 500)).unwrap());
    assert_eq!((first.version, &first.body), (second.version, &second.body));
    assert_eq!(table.count(Transition::Operated), 1);
}

#[test]
fn beyond_its_quota_its_caller_is_told_so_and_what_it_comes_to_changes_nothing() {
    let mut table = by_hand(8);
    let counting = table.ask(300, count("c"));
    let exception = exception(table.wait_for(counting, 1_700));
    assert_eq!((exception.code(), exception.phase()), (&codes::QUOTA, Phase::Work));
    assert_eq!(
        (exception.details().operation.as_str(), exception.details().attempts),
        ("count", 0)
    );
    let overdue = table.said.iter().find(|(it, _)| *it == Transition::WorkOverdue).unwrap();
    assert!(overdue.1.contains("operation count works for longer than 1500 ms"), "{}", overdue.1);
    let owner = owner_of(&table, "c");
    let stats = |table: &Table| {
        let stats = table.managers[&owner].stats();
        (stats.works, stats.works_overdue)
    };
    assert_eq!(stats(&table), (1, 1));
    table.work_once();
    assert_eq!(stats(&table), (0, 0));
    assert_eq!((table.count(Transition::WorkDropped), table.count(Transition::Operated)), (1, 0));
}

#[test]
fn when_all_workers_work_another_one_waits_for_a_moment_and_is_refused_then() {
    let mut table = by_hand(2);
    let owner = owner_of(&table, "c");
    let stuck = [table.ask(owner, count("c")), table.ask(owner, count("{c}2"))];
    let [patient, late] = [count("{c}3"), count("{c}4")].map(|it| table.ask(owner, it));
    assert_eq!(table.works.len(), 2);
    table.pass(500);
    // The first one that waits gets the worker that is free first.
    table.work_once();
    assert_eq!(counted(table.wait_for(stuck[0], 100)), 1);
    assert_eq!(table.works.len(), 2);
    let exception = exception(table.wait_for(late, 600));
    assert_eq!((exception.code(), exception.phase()), (&codes::BUSY, Phase::Before));
    let text = exception.to_string();
    assert!(text.contains("2 operations of applications work at this manager already"), "{text}");
    // What works in the stream of the decisions needs no worker.
    operated(table.call(owner, op(write("{c}5", 1), "{c}5"))).unwrap();
    table.work_once();
    table.work_once();
    for call in [stuck[1], patient] {
        assert_eq!(counted(table.wait_for(call, 100)), 1);
    }
}

#[test]
fn an_owner_that_steps_down_while_an_operation_works_throws_its_result_away() {
    let mut table = by_hand(8);
    let owner = owner_of(&table, "c");
    // With a time of its caller's, another owner may be asked, too.
    let mut asked = request("count", &json!({"docids": ["c"]}));
    asked.operation_time = Some(stamp(&table));
    let counting = table.ask(other_than(owner), op(asked, "c"));
    // Peers miss it, and it goes on as a process.
    table.lose = Box::new(move |it| [it.from.number.0, it.to.number.0].contains(&owner));
    table.pass_until("another owner's work", 5_000, |it| it.works.len() > 1);
    assert_ne!(table.works[1].0, owner);
    table.work_once();
    assert_eq!((table.count(Transition::WorkDropped), table.count(Transition::Operated)), (1, 0));
    // When it is back, the partition may move once more.
    table.lose = Box::new(|_| false);
    while !table.replies.contains_key(&counting) {
        table.pass_until("work, or an answer", 2_000, |table| {
            !table.works.is_empty() || table.replies.contains_key(&counting)
        });
        while !table.works.is_empty() {
            table.work_once();
        }
    }
    assert_eq!(counted(table.replies.remove(&counting).unwrap()), 1);
    assert_eq!(table.count(Transition::Operated), 1);
}

#[test]
fn a_namespace_that_is_switched_off_meanwhile_takes_nothing_more() {
    let mut table = by_hand(8);
    table.manual_works = false;
    let put = configure("namespace.put", &json!({"name": "shop", "create": true}));
    operated(table.call(300, put)).unwrap();
    table.pass(2_000);
    table.manual_works = true;
    let counting = table.ask(300, count("c"));
    let off = configure("namespace.switch", &json!({"name": "shop", "off": "closed"}));
    operated(table.call(300, off)).unwrap();
    table.pass(500);
    table.work_once();
    let exception = exception(table.wait_for(counting, 500));
    assert_eq!((exception.code(), exception.phase()), (&codes::OFF, Phase::Validation));
    assert_eq!(table.count(Transition::Operated), 2, "the two of the namespace");
}

/// 300 documents are more than a snapshot begins with.
#[test]
fn of_a_large_slot_an_operation_gets_what_it_asks_for_one_after_another() {
    let mut table = by_hand(8);
    table.manual_works = false;
    let docids: Vec<String> = (0..300).map(|it| format!("{{c}}{it}")).collect();
    for docid in &docids {
        operated(table.call(300, op(write(docid, 1), docid))).unwrap();
    }
    // As many as one may open, none of them named before.
    let parameters = json!({"docids": docids[..DOCUMENTS_MAX]});
    let before = table.count(Transition::WorkBegun);
    let call = table.ask(300, count_of(&parameters));
    assert_eq!(counted(table.wait_for(call, 2_000)), DOCUMENTS_MAX);
    assert!(table.count(Transition::WorkBegun) > before + 1);
    let nothing = json!({"docids": ["{c}none"], "looks": true});
    let call = table.ask(300, count_of(&nothing));
    assert_eq!(counted(table.wait_for(call, 500)), 1, "that it does not exist is asked for, too");
}

/// What a memory lies beside, and how much was forgotten there, come together into the second snapshot.
#[test]
fn in_a_large_slot_a_repetition_is_found_with_the_second_snapshot_at_the_latest() {
    let mut table = by_hand(8);
    table.manual_works = false;
    for docid in (0..300).map(|it| format!("{{c}}{it}")) {
        operated(table.call(300, op(write(&docid, 1), &docid))).unwrap();
    }
    let mut asked = request("count", &json!({"docids": ["{c}0"]}));
    asked.operation_time = Some(stamp(&table));
    let done = [Transition::WorkBegun, Transition::Operated].map(|it| table.count(it));
    let answers = [(); 2].map(|()| operated(table.call(300, op(asked.clone(), "{c}0"))).unwrap());
    assert_eq!(answers[0].version, answers[1].version);
    assert_eq!(body(&answers[0]), 1);
    let [begun, operated] = [Transition::WorkBegun, Transition::Operated].map(|it| table.count(it));
    assert!(begun - done[0] <= 4, "two for each: {begun}");
    assert_eq!(operated - done[1], 1);
}

#[test]
fn documents_of_other_owners_come_by_way_of_the_cache() {
    let mut table = by_hand(8);
    table.manual_works = false;
    let (here, far) = (id_at(&table, 300, 0), id_at(&table, 600, 0));
    operated(table.call(300, op(write(&far, 7), &far))).unwrap();
    let parameters = json!({"docids": [here], "far": far});
    assert_eq!(counted(table.call(300, count_of(&parameters))), 1_001);
    assert_eq!(table.count(Transition::DocumentsFetched), 1);
    // The copy is fresh enough: it only has to come into the snapshot.
    assert_eq!(counted(table.call(300, count_of(&parameters))), 1_002);
    assert_eq!(table.count(Transition::DocumentsFetched), 1);
}

#[test]
fn a_caller_hears_at_its_deadline_whatever_works() {
    let mut table = by_hand(1);
    let owner = owner_of(&table, "c");
    let [works, waits] =
        [(count("c"), 400), (count("{c}2"), 600)].map(|(op, ms)| table.ask_within(owner, op, ms));
    for call in [works, waits] {
        let refusal = table.wait_for(call, 700).unwrap_err();
        assert_eq!(refusal.kind, RefusalKind::DeadlineExceeded);
        assert_eq!(refusal.changed, rota_model::Changed::No);
    }
    let waits: Vec<Wait> = table.managers[&owner].waits(table.now_ms);
    assert!(waits.iter().all(|it| it.table != "operations at work" || it.count == 0), "{waits:?}");
    table.work_once();
    assert_eq!(table.count(Transition::Operated), 0);
}
