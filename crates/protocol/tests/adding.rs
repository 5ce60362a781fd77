//! Who is added to the copies of a partition, and an owner that does not hear that it was.

use crate::table::*;
use rota_model::{ManagerNumber, NodeId, RefusalKind, SessionState, SlotId};
use rota_protocol::Input;
use rota_ring::{slot_of_node, slot_of_session};

/// So many that some lie in each partition.
const MANY: std::ops::Range<usize> = 2..14;

/// Whether a manager was just added to the partition of that slot.
fn was_added(table: &Table, newcomer: u32, slot: SlotId) -> bool {
    let part = &table.view().parts[&table.view().home(slot)];
    part.pe == table.view().epoch && part.has(ManagerNumber(newcomer))
}

#[test]
fn an_owner_that_may_have_added_a_copy_reads_and_renews_only_with_its_word() {
    let mut table = Table::serving();
    MANY.for_each(|n| table.register(&format!("n{n}"), 7));
    for n in MANY {
        opened(table.call(300, open(&format!("s{n}"), "r1")));
    }
    let [owner, copy, newcomer] = NUMBERS;
    table.kill(newcomer);
    table.pass(4_000);
    assert!(!table.view().is_up(ManagerNumber(newcomer)));
    // It comes back and learns; it is added, and neither the owner nor the other copy hears of that.
    table.late.insert(copy);
    table.unheard.insert(owner);
    table.start(newcomer);
    table.pass_until("the unheard write", 5_000, |it| it.late.contains(&owner));
    let added = |slot| was_added(&table, newcomer, slot);
    let mut ids = MANY.map(|n| format!("s{n}"));
    let id = ids.find(|it| added(slot_of_session(&key(it), 1024))).unwrap();
    let mut nodes = MANY.map(|n| format!("n{n}"));
    let node = nodes.find(|it| added(slot_of_node(&NodeId::parse(it).unwrap(), 1024))).unwrap();
    table.lose = Box::new(move |it| [it.from.number.0, it.to.number.0].contains(&newcomer));
    table.input(newcomer, Input::Config(table.config.clone()));
    // The newcomer misses both, takes them out, and goes on alone.
    table.pass_until("the newcomer owns it", 5_000, |it| it.owner(&id) == newcomer);
    let close = table.ask(newcomer, close(&id, "c1"));
    closed(table.wait_for(close, 5_000));
    let read = table.ask(owner, get(&id));
    let refusal = table.wait_for(read, 12_000).expect_err("it is closed elsewhere");
    assert_eq!(refusal.kind, RefusalKind::DeadlineExceeded, "{refusal}");
    let granted = table.granted(owner, &node);
    let slot = slot_of_node(&NodeId::parse(&node).unwrap(), 1024);
    assert!(!granted.iter().any(|it| it.range.contains(slot)), "{granted:?}");
    table.late.clear();
    table.lose = Box::new(|_| false);
    table.pass(5_000);
    assert_eq!(got(table.call(owner, get(&id))).record.state, SessionState::Closed);
}
