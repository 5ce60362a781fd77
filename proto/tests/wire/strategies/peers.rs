//! Messages between managers.

use super::Any;
use super::names::*;
use super::records::{doc_key, entry, keyed_doc, write};
use super::requests::{answer, op, refusal};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use rota_messages::{Chunk, Envelope, Message};
use rota_model::*;
use std::sync::Arc;

pub fn part_epochs() -> Any<Vec<(ManagerNumber, Epoch)>> {
    vec((number(), epoch()), 0..4).boxed()
}

pub fn copying() -> Any<Message> {
    let report = (number(), epoch(), at(), at(), vec(doc_key(), 0..3)).prop_map(
        |(part, pe, last, committed, touched)| Message::SyncReport {
            part,
            pe,
            last,
            committed,
            touched,
        },
    );
    let piece = (any::<u64>(), any::<u64>());
    let data = (number(), epoch(), at(), piece, vec(write(), 0..3)).prop_map(
        |(part, pe, at, (piece, pieces), writes)| {
            let writes = Arc::new(writes);
            Message::SyncData { part, pe, at, piece, pieces, writes }
        },
    );
    let taken = (number(), epoch(), any::<u64>())
        .prop_map(|(part, pe, taken)| Message::SyncApplied { part, pe, taken });
    let docs = vec(keyed_doc(), 0..3);
    let where_to = (number(), epoch(), any::<u64>(), any::<u64>());
    let chunk = (where_to, at(), at(), of(doc_key()), of(doc_key()), docs, stamp()).prop_map(
        |((part, pe, learn, number), start, upto, after, through, docs, forgotten)| {
            let chunk = Chunk { pe, learn, number, start, upto, after, through, docs, forgotten };
            Message::SnapshotChunk { part, chunk }
        },
    );
    let ack = (number(), epoch(), any::<u64>(), any::<u64>())
        .prop_map(|(part, pe, learn, chunk)| Message::SnapshotAck { part, pe, learn, chunk });
    prop_oneof![report, data, taken, chunk, ack].boxed()
}

pub fn message() -> Any<Message> {
    let request = (any::<u64>(), any::<u64>(), op())
        .prop_map(|(rid, deadline_ms, op)| Message::Request { rid, deadline_ms, op: Box::new(op) });
    let result = prop_oneof![4 => answer().prop_map(Ok), 1 => refusal().prop_map(Err)];
    let answer = (any::<u64>(), result)
        .prop_map(|(rid, result)| Message::Answer { rid, result: Box::new(result) });
    let prepare = (number(), epoch(), at(), at(), vec(entry(), 0..3)).prop_map(
        |(part, pe, committed, after, entries)| Message::Prepare {
            part,
            pe,
            committed,
            after,
            entries,
        },
    );
    let place = || (number(), epoch(), any::<u64>().prop_map(Seq));
    prop_oneof![
        3 => request,
        3 => answer,
        3 => prepare,
        1 => place().prop_map(|(part, pe, seq)| Message::Ack { part, pe, seq }),
        1 => place().prop_map(|(part, pe, seq)| Message::Nack { part, pe, seq }),
        1 => (number(), epoch()).prop_map(|(part, pe)| Message::SyncAsk { part, pe }),
        3 => copying(),
        1 => (any::<u64>(), part_epochs())
            .prop_map(|(round, parts)| Message::ReadIndex { round, parts }),
        1 => (any::<u64>(), part_epochs())
            .prop_map(|(round, parts)| Message::ReadIndexConfirmed { round, parts }),
        1 => vec((number(), at()), 0..4).prop_map(|committed| Message::Heartbeat { committed }),
        1 => "[a-z0-9.:]{0,20}".prop_map(|reply_to| Message::Probe { reply_to }),
        1 => (any::<u64>().prop_map(Incarnation), any::<bool>())
            .prop_map(|(incarnation, runs)| Message::Probed { incarnation, runs }),
        1 => (name(PoolName::parse), vec((resources(), any::<u32>()), 0..4), any::<u64>())
            .prop_map(|(pool, waiting, index)| Message::NodeWanted { pool, waiting, index }),
        1 => (name(PoolName::parse), ".{0,40}")
            .prop_map(|(pool, why)| Message::NodesFailed { pool, why }),
    ]
    .boxed()
}

pub fn member() -> Any<MemberId> {
    (number(), any::<u64>().prop_map(Incarnation))
        .prop_map(|(number, incarnation)| MemberId { number, incarnation })
        .boxed()
}

pub fn envelope() -> Any<Envelope> {
    (member(), member(), epoch(), message())
        .prop_map(|(from, to, epoch, message)| Envelope { from, to, epoch, message })
        .boxed()
}
