//! What holds while much is copied: messages and what is on its way stay bounded, and it ends.

use crate::table::*;
use rota_docstore::{Document, DocumentParts};
use rota_model::node_msg::{NodeAnswer, ToNode};
use rota_model::{LogPos, ManagerNumber, Namespace, SlotId, Stamp};
use rota_protocol::{Doc, DocKey, DocName, Envelope, Message, Transition};
use std::sync::Arc;

/// How many documents a manager's disk holds of a partition.
fn held(table: &Table, n: u32, part: u32) -> usize {
    let home = |slot| table.view().home(slot).0;
    table.disks[&n].docs.keys().filter(|key| home(key.slot) == part).count()
}

#[test]
fn a_copy_that_is_wanted_no_more_is_dropped_once_the_others_have_theirs() {
    let mut table = Table::laid_with(1);
    for n in NUMBERS {
        table.start(n);
    }
    table.settle();
    table.pass(500);
    table.register("n1", 7);
    let ids: Vec<String> = (0..40).map(|it| format!("s{it}")).collect();
    for id in &ids {
        opened(table.call(300, open(id, "r1")));
    }
    // The first partition is at 300 and 600. While 600 is away, 1000 takes a copy.
    table.kill(600);
    table.pass(2_500);
    assert!(held(&table, 1000, 300) > 5);
    let before: Vec<usize> = [300, 1000].map(|n| held(&table, n, 1000)).into();
    table.start(600);
    table.pass(2_500);
    assert_eq!(held(&table, 1000, 300), 0);
    assert_eq!(held(&table, 600, 300), held(&table, 300, 300));
    assert_eq!([300, 1000].map(|n| held(&table, n, 1000)).to_vec(), before, "these are wanted");
    // It comes again when it is wanted again.
    table.kill(600);
    table.pass(2_500);
    assert_eq!(held(&table, 1000, 300), held(&table, 300, 300));
    table.kill(300);
    table.pass(3_000);
    for id in &ids {
        assert_eq!(got(table.call(1000, get(id))).record.state, rota_model::SessionState::Ready);
    }
}

#[test]
fn what_is_dropped_piece_by_piece_goes_without_a_pause() {
    let mut table = Table::laid_with(1);
    table.sizes.purge_docs = 1;
    NUMBERS.iter().for_each(|n| table.start(*n));
    table.settle();
    table.pass(500);
    table.register_with("n1", 7, 200);
    for number in 0..120 {
        opened(table.call(300, open(&format!("s{number}"), "r1")));
    }
    table.kill(600);
    table.pass(2_500);
    let many = held(&table, 1000, 300);
    assert!(many > 20, "{many}");
    table.start(600);
    table.pass_until("the first is dropped", 5_000, |it| held(it, 1000, 300) < many);
    // At each tick of a manager that has something to do, and not of one at rest.
    table.pass_until("all is dropped", many as u64 * 25, |it| held(it, 1000, 300) == 0);
}

/// Attributes of nearly the largest size.
const LARGE: usize = 60 * 1024;

/// What one message may hold: the size after which it takes no further document, and a document.
const MESSAGE_BYTES_MAX: usize = 600 * 1024;

/// What waits to be sent from one manager to another, `manager/src/outbox.rs`.
const OUTBOX_BYTES: usize = 16 * 1024 * 1024;

fn roomy() -> Table {
    let mut table = Table::serving();
    table.places = 2_000;
    table.register("n1", 8);
    table
}

fn digests(table: &Table, n: u32) -> Vec<u64> {
    table.managers[&n].stats().parts.iter().map(|it| it.digest).collect()
}

fn assert_whole(table: &Table) {
    assert!(table.view().parts.values().all(|part| part.isr.len() == 3), "{:?}", table.view());
    assert_eq!(digests(table, 300), digests(table, 600));
    assert_eq!(digests(table, 300), digests(table, 1000));
    assert!(table.message_max <= MESSAGE_BYTES_MAX, "{}", table.message_max);
    assert!(table.under_way_max <= OUTBOX_BYTES, "{}", table.under_way_max);
}

#[test]
fn a_manager_rejoins_hundreds_of_sessions_with_large_attributes() {
    let mut table = roomy();
    for index in 0..400 {
        opened(table.call(300, open_large(&format!("s{index}"), &format!("r{index}"), LARGE)));
    }
    table.kill(600);
    table.pass(1_500);
    for index in 400..500 {
        opened(table.call(300, open_large(&format!("s{index}"), &format!("r{index}"), LARGE)));
    }
    let before = table.count(Transition::LearnStarted);
    table.start(600);
    table.pass(4_000);
    assert_whole(&table);
    // It is copied once for each partition: nothing had to begin anew.
    assert_eq!(table.count(Transition::LearnStarted) - before, 3);
    assert_eq!(table.count(Transition::LearnRestarted), 0);
    assert_eq!(table.count(Transition::MemberDropped), 0);
}

#[test]
fn what_gathered_while_a_copy_was_silent_is_sent_again_in_bounded_parts() {
    let mut table = roomy();
    table.lose = Box::new(|envelope| envelope.to.number == ManagerNumber(600));
    let opens: Vec<u64> = (0..400)
        .map(|index| {
            let entry = if index % 2 == 0 { 300 } else { 1000 };
            table.ask(entry, open_large(&format!("s{index}"), &format!("r{index}"), LARGE))
        })
        .collect();
    table.pass(300);
    table.lose = Box::new(|_| false);
    for call in opens {
        opened(table.wait_for(call, 5_000));
    }
    table.pass(1_000);
    assert_eq!(table.count(Transition::TakenOut), 0, "a silence of 300 ms is no suspicion");
    assert_whole(&table);
}

#[test]
fn a_new_owner_overwrites_large_differences_in_pieces() {
    let mut table = roomy();
    // 600 gets the entries and never hears that they are committed; then their owner is gone.
    let owner = 1000;
    table.lose = Box::new(move |envelope| {
        envelope.from.number == ManagerNumber(owner) && envelope.message.name() == "heartbeat"
    });
    let mine: Vec<String> =
        (0..400).map(|it| format!("s{it}")).filter(|id| table.owner(id) == owner).collect();
    assert!(mine.len() > 60, "{}", mine.len());
    table.manual_nodes = true;
    let opens: Vec<u64> =
        mine.iter().map(|id| table.ask(300, open_large(id, &format!("r-{id}"), LARGE))).collect();
    table.kill(owner);
    table.manual_nodes = false;
    for call in opens {
        opened(table.wait_for(call, 9_000));
    }
    table.lose = Box::new(|_| false);
    table.start(owner);
    table.pass(4_000);
    assert_whole(&table);
}

#[test]
fn a_document_of_any_class_outlives_a_take_over_and_reaches_learners_and_their_disks() {
    let mut table = Table::serving();
    let owner = table.owner("a");
    let others: Vec<u32> = NUMBERS.into_iter().filter(|it| *it != owner).collect();
    for other in &others {
        table.kill(*other);
        table.pass(1_500);
    }
    table.kill(owner);
    // Nothing writes it yet: it stands on the disk, in the slot that gives the partition its name.
    let name = DocName::new(&Namespace::default_space(), "note", "x").expect("a name");
    let at = Stamp::from_epoch_ms(1_800_000_000_000);
    let document = Document::from_parts(DocumentParts {
        name: name.clone(),
        ctime: at,
        version: at,
        dtime: at,
        is_deleted: false,
        items: Vec::new(),
    });
    let doc = Doc::new(Arc::new(document.expect("it is whole"))).expect("it is a document");
    let key = DocKey::new(SlotId(owner), name);
    let disk = table.disks.get_mut(&owner).expect("it has a disk");
    disk.docs.insert(key.clone(), Arc::new(doc.clone()));
    table.start(owner);
    table.pass(4_000);
    for other in &others {
        table.start(*other);
        table.pass(4_000);
    }
    assert_whole(&table);
    for n in NUMBERS {
        assert_eq!(table.disks[&n].docs.get(&key).map(|it| &**it), Some(&doc), "disk of M{n}");
    }
}

/// What a node says while its owner writes nothing is not taken, so the node is asked once more.
#[test]
fn a_node_that_answered_during_a_wedge_is_asked_at_once_when_the_wedge_is_given_up() {
    let mut table = Table::laid_with(1);
    table.start_all();
    table.register("n1", 7);
    let (owner, newcomer) = (300, 600);
    let mut ids = (0..).map(|it| format!("s{it}")).filter(|it| table.owner(it) == owner);
    let (id, other) = (ids.next().unwrap(), ids.next().unwrap());
    drop(ids);
    table.kill(newcomer);
    table.pass(2_500);
    table.manual_nodes = true;
    let opening = table.ask(owner, open(&id, "r1"));
    // The node is asked twice, and will be asked again two seconds after that.
    table.pass(1_100);
    // The newcomer gets everything, and its owner does not hear of the last entry.
    let is_news = |it: &Envelope| it.from.number == ManagerNumber(600);
    table.lose = Box::new(move |it| is_news(it) && !matches!(it.message, Message::Answer { .. }));
    table.start(newcomer);
    table.pass(40);
    let held = table.disks[&newcomer].parts[&ManagerNumber(owner)].last;
    table.ask(owner, open(&other, "r2"));
    let wedged = table.count(Transition::Wedged);
    table.lose = Box::new(move |envelope| {
        let Message::Ack { pe, seq, .. } = envelope.message else { return false };
        is_news(envelope) && LogPos::new(pe, seq) > held
    });
    let end = table.now_ms + 600;
    while table.count(Transition::Wedged) == wedged {
        assert!(table.now_ms < end, "no wedge began");
        table.pass(20);
    }
    table.manual_nodes = false;
    let of_it = |(_, call): &&(u32, ToNode)| matches!(call, ToNode::Create { key: asked, .. } if *asked == key(&id));
    let (_, create) = table.node_calls.iter().rfind(of_it).unwrap();
    let running =
        NodeAnswer::Running { address: "n1:2".into(), ready: true, remark: String::new() };
    let call = create.head().call;
    table.node_says(owner, "n1", call, running);
    table.pass(100);
    assert!(!table.replies.contains_key(&opening), "the wedge was not held");
    opened(table.wait_for(opening, 1_000));
}

#[test]
fn with_the_config_store_away_nobody_wedges_to_add_a_copy() {
    let mut table = Table::serving();
    for index in 0..20 {
        opened(table.call(300, open(&format!("s{index}"), &format!("r{index}"))));
    }
    table.kill(600);
    table.pass(1_500);
    // 600 is about to learn the last of it when the config store goes.
    table.lose = Box::new(|it| matches!(it.message, Message::SnapshotChunk { .. }));
    table.start(600);
    // New opens wait for it no longer.
    table.pass(6_000);
    table.store_away = true;
    table.lose = Box::new(|_| false);
    let before = table.count(Transition::Wedged);
    for round in 0..60 {
        table.pass(1_000);
        for n in [300, 1000] {
            let id = format!("{n} {round}");
            let call = table.ask(n, open(&id, "r"));
            opened(table.wait_for(call, 200));
            let call = table.ask(n, close(&id, "c"));
            closed(table.wait_for(call, 200));
        }
    }
    assert_eq!(table.count(Transition::Wedged), before);
    table.store_away = false;
    table.pass(5_000);
    assert_whole(&table);
}
