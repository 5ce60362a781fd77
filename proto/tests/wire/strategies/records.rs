//! Records, documents, log entries, and what a disk holds.

use super::Any;
use super::names::*;
use proptest::collection::{btree_map, btree_set, vec};
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;
use rota_docstore::{Document, DocumentParts};
use rota_messages::documents::{orders_name, session_name};
use rota_messages::{Doc, DocKey, DocName, Entry, Identity, PartitionMeta, Write};
use rota_model::items::Orders;
use rota_model::*;
use std::collections::BTreeMap;
use std::sync::Arc;

pub fn attributes() -> Any<Attributes> {
    btree_map("[a-z]{1,6}", ".{0,12}", 0..4).boxed()
}

pub fn life_options() -> Any<Option<Arc<LifeOptions>>> {
    let times = (of(IDLE_MS_MIN..=LIFE_MS_MAX), of(1_000..=LIFE_MS_MAX));
    let node = (of(100..=START_TIMEOUT_MS_MAX), of(0..=GRACE_MS_MAX), of(0..=RESTARTS_MAX));
    (times, node, btree_set("x[a-z]{1,4} [a-z]{1,5}", 0..3))
        .prop_map(|((idle_ms, max_life_ms), node, managed_state)| {
            let (start_timeout_ms, close_grace_ms, restarts) = node;
            let asked = LifeOptions {
                idle_ms,
                max_life_ms,
                start_timeout_ms,
                close_grace_ms,
                restarts,
                managed_state,
            };
            (!asked.is_default()).then(|| Arc::new(asked))
        })
        .boxed()
}

/// What a client is shown of what holds for a life.
pub fn lifetime() -> Any<Option<Arc<Lifetime>>> {
    (of(1..=LIFE_MS_MAX), of(1..=LIFE_MS_MAX), 0..9_u32, of(stamp()))
        .prop_map(|(idle_ms, max_life_ms, restarts, restart_at)| {
            let it = Lifetime { idle_ms, max_life_ms, restarts, restart_at, ..Lifetime::default() };
            (!it.is_default()).then(|| Arc::new(it))
        })
        .boxed()
}

pub fn spec() -> Any<SessionSpec> {
    let pool = prop_oneof![Just(PoolName::default_pool()), name(PoolName::parse)];
    (name(ClassName::parse), pool, attributes(), life_options())
        .prop_map(|(class, pool, attributes, life)| {
            let attributes = Arc::new(attributes);
            SessionSpec { class, pool, attributes, life }
        })
        .boxed()
}

pub fn placement() -> Any<Placement> {
    (name(NodeId::parse), boot(), token(), address())
        .prop_map(|(node, boot, token, address)| Placement { node, boot, token, address })
        .boxed()
}

pub fn request_entry() -> Any<RequestEntry> {
    let outcome = select(vec![Outcome::Created, Outcome::Existed]);
    let opened =
        (outcome, stamp(), stamp(), placement()).prop_map(|(outcome, life, version, placement)| {
            RequestFate::Opened { outcome, life, version, placement }
        });
    let fate = prop_oneof![
        Just(RequestFate::Opening),
        opened,
        stamp().prop_map(|life| RequestFate::Failed { life }),
        stamp().prop_map(|life| RequestFate::Closed { life }),
    ];
    (request_id(), stamp(), fate)
        .prop_map(|(id, at, fate)| RequestEntry { id, at, fate, ran: None })
        .boxed()
}

/// Requests, each id once, in their order.
fn requests() -> Any<Vec<RequestEntry>> {
    let by_id = |entries: Vec<RequestEntry>| {
        let entries = entries.into_iter().map(|it| (it.id.clone(), it));
        let by_id: std::collections::BTreeMap<_, _> = entries.collect();
        let mut requests: Vec<RequestEntry> = by_id.into_values().collect();
        requests.sort_by(RequestEntry::order);
        requests
    };
    vec(request_entry(), 0..4).prop_map(by_id).boxed()
}

pub fn record() -> Any<SessionRecord> {
    let what = (key(), spec(), stamp(), stamp(), state());
    let exit = (of(exit()), of(0..=GRACE_MS_MAX));
    let how = (of(reason()), text(), exit, of(placement()), (text(), any::<u64>()));
    (what, how, requests(), lifetime())
        .prop_map(|((key, spec, one, other, state), how, requests, lifetime)| {
            let (reason, detail, (exit, grace_ms), placement, (machine_state, machine_change)) =
                how;
            SessionRecord {
                key,
                spec,
                life: one.min(other),
                version: one.max(other),
                state,
                reason,
                detail,
                exit,
                grace_ms,
                placement,
                attributes_digest: None,
                machine_state,
                machine_change,
                requests,
                lifetime,
            }
        })
        .boxed()
}

pub fn doc() -> Any<Doc> {
    let pool = (
        name(PoolName::parse),
        any::<u64>(),
        vec(name(NodeId::parse), 0..3),
        any::<u64>(),
        ("[a-z ]{0,8}", name(ProvisionerName::parse), stamp()),
    )
        .prop_map(|(pool, decisions, ordered, lapses_wall_ms, (failure, provisioner, now))| {
            let overdue: Vec<NodeId> = ordered.iter().take(1).cloned().collect();
            let given_up_wall_ms = decisions;
            let pairs = overdue.iter().cloned().zip(ordered.iter().cloned());
            let successors = pairs.collect();
            let orders = Orders {
                decisions,
                ordered,
                lapses_wall_ms,
                failed: overdue.clone(),
                none_begun: decisions % 2 == 0,
                is_late: decisions % 3 == 0,
                to_clear: overdue.clone(),
                overdue,
                given_up_wall_ms,
                end_failure: failure.chars().rev().collect(),
                failure,
                successors,
                provisioners: BTreeMap::from([(decisions, provisioner)]),
            };
            Doc::orders_after(None, &pool, orders, now)
        });
    let session = record().prop_map(|it| Doc::session_after(None, it));
    prop_oneof![4 => session, 1 => pool, 1 => note()].boxed()
}

/// A document of a class that means nothing to managers.
fn note() -> Any<Doc> {
    (key(), stamp(), any::<bool>())
        .prop_map(|(key, at, is_deleted)| {
            let name = DocName::new(&key.namespace, "note", key.id.as_str()).expect("a name");
            let (ctime, version, dtime) = (at, at, at);
            let parts =
                DocumentParts { name, ctime, version, dtime, is_deleted, items: Vec::new() };
            let document = Document::from_parts(parts).expect("it is whole");
            Doc::new(Arc::new(document)).expect("any other class will do")
        })
        .boxed()
}

pub fn doc_key() -> Any<DocKey> {
    let doc_name = prop_oneof![
        4 => key().prop_map(|key| session_name(&key)),
        1 => name(PoolName::parse).prop_map(|pool| orders_name(&pool)),
    ];
    (slot(), doc_name).prop_map(|(slot, name)| DocKey::new(slot, name)).boxed()
}

/// A document under its key.
pub fn keyed_doc() -> Any<(DocKey, Arc<Doc>)> {
    (slot(), doc())
        .prop_map(|(slot, doc)| (DocKey::new(slot, doc.name().clone()), Arc::new(doc)))
        .boxed()
}

pub fn write() -> Any<Write> {
    prop_oneof![
        keyed_doc().prop_map(|(key, doc)| Write { key, doc: Some(doc) }),
        doc_key().prop_map(|key| Write { key, doc: None }),
    ]
    .boxed()
}

pub fn entry() -> Any<Entry> {
    (at(), vec(write(), 0..3), of(request_id()))
        .prop_map(|(at, writes, request)| Entry::new(at, writes, request))
        .boxed()
}

pub fn part_meta() -> Any<PartitionMeta> {
    (epoch(), at(), any::<bool>(), stamp(), of(at()))
        .prop_map(|(pe, last, whole, forgotten, found_from)| PartitionMeta {
            pe,
            last,
            whole,
            forgotten,
            found_from,
        })
        .boxed()
}

pub fn identity() -> Any<Identity> {
    let claimed = || of((any::<u64>().prop_map(Incarnation), any::<u64>().prop_map(Nonce)));
    (claimed(), claimed()).prop_map(|(taken, intended)| Identity { taken, intended }).boxed()
}
