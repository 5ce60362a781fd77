//! How much documents of applications may fill at one manager, in all of its copies together: they are
//! all in memory.
//!
//! The owner of a document refuses what would make it grow beyond that; what is there may stay, and
//! shrink. Memories of operations count, and may go an eighth beyond it: they go by themselves. What ends
//! a document is never refused, with what that leaves: there are no more of these than documents. A copy takes what its owner took:
//! it could not refuse without falling behind. So the ceiling is the same at all managers. Descriptions of namespaces always have room, with what remembers their
//! changes: an operator must be able to switch off what fills it.

use crate::contents::fills::{Filling, counts, of_application};
use crate::log::at::At;
use crate::ports::slots::CONFIGURATION;
use rota_docstore::space::{Limits, SPACE_CLASS};
use rota_docstore::{Exception, FieldError, Usage, codes};
use rota_messages::documents::OUTPUT_CLASS;
use rota_messages::{Doc, DocKey, Write};
use rota_model::Stamp;
use std::sync::Arc;

/// How much more there is room for when an operation only has to be remembered: a part of what
/// documents may fill. Full documents are to get smaller with an operation time, too.
const MEMORIES_SHARE: u64 = 8;

/// What programs printed is taken up to this part of what documents may fill: what is kept by default must leave room for
/// what somebody stores.
const OUTPUT_SHARE: u64 = 2;

/// Refuses output that would fill more than its share of what a namespace may hold.
fn check_share(led: &At<'_>, writes: &[Write]) -> Result<(), Exception> {
    let Some(space) = writes.first().map(|it| it.key.name.space()) else { return Ok(()) };
    let documents_env = &led.env.documents_env;
    let limits = documents_env.spaces.limits(space);
    let share = |it: Option<u64>| it.map(|it| it / OUTPUT_SHARE);
    let limits = Limits {
        documents: share(limits.documents),
        item_bytes: share(limits.item_bytes),
        attachment_bytes: share(limits.attachment_bytes),
    };
    let beside = documents_env.counted.beside(led.log.number, led.env.epoch());
    let before = led.log.replica.usage(space).plus(beside.usage(space));
    let after = writes.iter().fold(before, |usage, write| {
        let found = led.log.replica.get(&write.key);
        let of = |doc: Option<&Arc<Doc>>| Usage::of(doc.and_then(|it| of_application(it)));
        usage.plus(of(write.doc.as_ref())).minus(of(found))
    });
    limits.check(before, after).map_err(|error| {
        let problem = format!("{} (what programs printed gets a half)", error.problem);
        Exception::of_field(codes::LIMIT, FieldError::new(error.field, problem))
    })
}

fn is_description(DocKey { name, .. }: &DocKey) -> bool {
    name.space() == CONFIGURATION && name.class() == SPACE_CLASS
}

/// Makes room for what is about to be written, or says why there is none. What ends a document always
/// has room; what only remembers operations has [`MEMORIES_SHARE`] more.
pub(crate) fn take_room(led: &mut At<'_>, writes: &[Write]) -> Result<(), Exception> {
    if writes.iter().any(|it| is_description(&it.key)) {
        return Ok(());
    }
    let (mut before, mut after, mut ends) = (Filling::default(), Filling::default(), false);
    for Write { key, doc } in writes {
        let found = led.log.replica.get(key);
        before.add(found);
        after.add(doc.as_ref());
        let is_there =
            |doc: Option<&Arc<Doc>>| doc.and_then(|it| of_application(it)).is_some_and(counts);
        ends |= is_there(found) && !is_there(doc.as_ref());
    }
    let is_output = writes.iter().any(|it| it.key.name.class() == OUTPUT_CLASS && it.doc.is_some());
    if is_output && after.documents > before.documents {
        check_share(led, writes)?;
    }
    let (manager, limit) = (&led.env.config.id, led.env.config.documents.bytes_max);
    let limit = if is_output { limit / OUTPUT_SHARE } else { limit };
    let filled =
        led.env.held.document_bytes.saturating_add(after.all().saturating_sub(before.all()));
    let growth = after.documents.saturating_sub(before.documents);
    let grown = led.env.held.document_bytes.saturating_add(growth);
    if growth > 0 && grown > limit {
        let problem =
            format!("of all documents at manager {manager} would be {grown}; the limit is {limit}");
        return Err(Exception::of_field(codes::LIMIT, FieldError::new("bytes", problem)));
    }
    let limit = limit.saturating_add(limit / MEMORIES_SHARE);
    if after.beside > before.beside && filled > limit && !ends {
        let problem = format!(
            "cannot be remembered: bytes of all documents and memories of operations at manager \
             {manager} would be {filled}; the limit is {limit}"
        );
        let exception =
            Exception::of_field(codes::BUSY, FieldError::new("operation_time", problem));
        let now = Stamp::from_epoch_ms(led.env.now.wall_ms);
        let oldest = led.log.replica.counts.memories.operations.oldest();
        let wait = oldest.map(|it| led.env.documents_env.rules(led.slots()).ms_to_forget(it, now));
        return Err(wait.into_iter().fold(exception, Exception::after));
    }
    led.env.held.document_bytes = filled;
    Ok(())
}
