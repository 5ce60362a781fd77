//! One step of assigning: from what there is to documents.

use crate::log::at::At;
use crate::numbers::state::{STEP_MS, StableNumbers};
use crate::ports::number_keys as keys;
use crate::ports::slots::{CONFIGURATION, slot_of_spaces};
use rota_ids::{Entry, Key, Name, Numbers, collapse};
use rota_messages::documents::{number_name, read_number};
use rota_messages::{Doc, DocKey, Write};
use rota_model::items::{NUMBER_CLASS, POOL_CLASS, StableNumber};
use rota_model::{ManagerStatus, PoolName, SlotId, Stamp};
use rota_ring::NodeReg;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Most changes of one step: one entry of the log of some 30 KiB.
const CHANGES_MAX: usize = 100;

impl StableNumbers {
    /// At the owner of all descriptions: assigns what is to be assigned, if something changed.
    pub fn assign(&mut self, led: &mut At<'_>) {
        let Some(config) = led.env.config.numbers else { return };
        let now = (led.env.nodes.index, led.env.epoch());
        let is_due = self.outdated_wall_ms.is_some_and(|at| led.env.now.wall_ms >= at);
        if (self.settled == Some(now) && !is_due)
            || led.env.now.mono_ms < self.next_ms
            || !led.may_begin()
        {
            return;
        }
        let slot = slot_of_spaces(led.env.view().m);
        if led.env.view().home(slot) != led.log.number {
            return;
        }
        let mut numbers = kept(led, slot, config.retention_ms);
        let there = there(led, slot);
        let settled = numbers.settle(&there, CHANGES_MAX, led.env.now.wall_ms);
        let writes = writes(led, slot, collapse(settled.changes));
        if !writes.is_empty() {
            led.write(writes, None);
        }
        self.settled = (!settled.more).then_some(now);
        self.outdated_wall_ms = numbers.next_outdated_ms();
        self.next_ms = led.env.now.mono_ms + STEP_MS;
    }
}

/// Documents of a class of the space for configuration in a slot, with everything that was appended.
fn documents<'a>(
    led: &'a At<'_>,
    slot: SlotId,
    class: &'static str,
) -> impl Iterator<Item = &'a Arc<Doc>> {
    let replica = &led.log.replica;
    let from = DocKey::first_of(slot);
    let committed = replica.docs.range(from.clone()..).map(|it| it.0);
    let appended = replica.latest.range(from..).map(|it| it.0);
    let in_slot = move |it: &&DocKey| it.slot == slot;
    let keys: BTreeSet<&DocKey> =
        committed.take_while(in_slot).chain(appended.take_while(in_slot)).collect();
    let of_class = move |it: &&DocKey| it.name.class() == class && it.name.space() == CONFIGURATION;
    keys.into_iter().filter(of_class).filter_map(|key| replica.get(key))
}

/// The numbers that were assigned. A document that does not read as one counts for nothing, and what needs its name
/// takes its place.
fn kept(led: &At<'_>, slot: SlotId, retention_ms: u64) -> Numbers {
    let mut numbers = Numbers::new(retention_ms);
    for doc in documents(led, slot, NUMBER_CLASS) {
        let Ok(name) = Name::parse(doc.name().docid()) else { continue };
        let Ok(Some(StableNumber { number, valid, changed_ms })) = read_number(doc.document())
        else {
            continue;
        };
        // Refused only if two have one number: the second one gets another.
        drop(numbers.restore(name, Entry { number, valid, changed_ms }));
    }
    numbers
}

/// All that has a number, in the order in which those that are new get theirs.
fn there(led: &At<'_>, slot: SlotId) -> Vec<Key> {
    let managers = led.env.view().managers.values();
    let managers = managers.filter(|it| it.status != ManagerStatus::Left);
    let nodes = || led.env.nodes.reg.values().filter(|it| !it.is_forgotten());
    let described = documents(led, slot, POOL_CLASS).filter(|it| !it.document().is_deleted());
    let described = described.filter_map(|it| PoolName::parse(it.name().docid()).ok());
    let pools: BTreeSet<PoolName> = described.chain(nodes().map(|it| it.pool.clone())).collect();
    let mut by_pool: Vec<&NodeReg> = nodes().collect();
    by_pool.sort_by_key(|it| (&it.pool, &it.node));
    let managers = managers.map(|it| keys::of_manager(&it.id));
    let pools = pools.iter().map(keys::of_pool);
    let nodes = by_pool.into_iter().map(|it| keys::of_node(&it.pool, &it.node));
    managers.chain(pools).chain(nodes).collect()
}

/// A version above all that was told of this partition.
pub(crate) fn next_version(led: &At<'_>) -> Stamp {
    let now = Stamp::from_epoch_ms(led.env.now.wall_ms);
    let told = led.log.replica.high_water.max(led.env.stamps.forgotten).max(led.stamps_above());
    now.max(told.next())
}

/// The documents that say so. Each has a version of its own, above all that was told of this partition: who
/// follows asks for what is newer.
fn writes(
    led: &At<'_>,
    slot: SlotId,
    changes: impl IntoIterator<Item = (Name, Option<Entry>)>,
) -> Vec<Write> {
    let mut version = next_version(led);
    let mut writes = Vec::new();
    for (name, entry) in changes {
        let Ok(name) = number_name(&name.to_string()) else { continue };
        let before = led.log.replica.get(&DocKey::new(slot, name.clone())).cloned();
        if entry.is_none() && before.as_ref().is_none_or(|it| it.document().is_deleted()) {
            continue;
        }
        let entry = entry.map(|Entry { number, valid, changed_ms }| StableNumber {
            number,
            valid,
            changed_ms,
        });
        let doc = Doc::number_after(before.as_deref(), name, entry.as_ref(), version);
        version = version.max(doc.version()).next();
        writes.push(Write::of(slot, doc));
    }
    writes
}
