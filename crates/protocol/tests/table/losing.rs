//! Disks that are lost, or go back to what they held once.

use super::*;
use rota_ring::{Change, PartitionState};

pub fn after_ms() -> u64 {
    Timing::default().recover_after_ms
}

/// Every manager is killed, and written DOWN; 1000 is the last member of every ISR. These lose their
/// disks, and an operator says so. Then all start.
pub fn lose(table: &mut Table, disks: &[u32]) {
    for n in NUMBERS {
        table.kill(n);
    }
    write_all_down(table);
    for n in NUMBERS {
        if disks.contains(&n) { table.start_lost(n) } else { table.start(n) }
    }
    while !table.managers.values().all(|it| it.is_claimed()) {
        table.pass(20);
    }
}

pub fn write_all_down(table: &mut Table) {
    for n in NUMBERS {
        let member = table.view().member(rota_model::ManagerNumber(n)).expect("it has that number");
        let gone = table.view().without(&[member]).expect("it was active");
        table.config = Change::view(gone).apply(&table.config).expect("the View is the newest");
    }
}

pub fn recovering(table: &Table) -> usize {
    table.view().parts.values().filter(|it| it.state == PartitionState::Recovering).count()
}

/// Every disk is lost but that of 1000, which comes back with old contents under the identity that it had
/// last; and everything is found again.
pub fn roll_back(table: &mut Table, old: BTreeMap<u32, Disk>) {
    lose(table, &NUMBERS);
    for n in NUMBERS {
        table.kill(n);
    }
    let identity = table.disks[&1000].identity.clone();
    table.disks = old;
    table.disks.get_mut(&1000).expect("1000 had a disk").identity = identity;
    for n in NUMBERS.into_iter().filter(|it| *it != 1000) {
        table.disks.remove(&n);
    }
    write_all_down(table);
    for n in NUMBERS {
        table.start(n);
    }
    table.settle();
    table.pass(after_ms() + 3_000);
    assert_eq!(recovering(table), 0, "{:?}", table.view());
}
