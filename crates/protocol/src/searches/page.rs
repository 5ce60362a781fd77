//! A page of a search.

use crate::log::at::At;
use crate::ports::slots::{Slots, slot_of};
use crate::searches::built::Built;
use rota_docstore::{DocName, Exception, codes};
use rota_messages::{DocKey, Found, SearchOp};
use rota_model::items::SESSION_CLASS;
use rota_model::{SessionRecord, SessionView};
use rota_search::{HITS_MAX, Limits, Search};
use std::sync::Arc;

/// Refuses a client that must not search there.
pub(crate) fn check_reader(led: &At<'_>, op: &SearchOp) -> Result<(), Exception> {
    let Some(reader) = &op.reader else { return Ok(()) };
    let slots = Slots { m: led.env.view().m, range: led.log.range };
    let rules = led.env.documents_env.rules(slots);
    let asked = reader.service.as_str();
    reader.caller.check(&rules, &led.env.documents_env.spaces, &reader.space, asked)?;
    if op.query.space.as_ref() != Some(&reader.space) {
        let text = "documents of another namespace are searched by their own accounts only";
        return Err(Exception::new(codes::REFUSED, text));
    }
    Ok(())
}

/// The page that a search asks for, of an index that is whole.
pub(crate) fn found(led: &At<'_>, op: &SearchOp, built: &Built) -> Result<Found, Exception> {
    let m = led.env.view().m;
    let search = Search::new(op.query.clone(), built.index.shapes())?;
    let hits = usize::try_from(op.limit).unwrap_or(usize::MAX).clamp(1, HITS_MAX);
    let limits = Limits::new(hits)?;
    let read = |name: &DocName| built.read(|it| slot_of(it, m), name);
    let page = built.index.page(&search, op.after.as_ref(), op.now, limits, &read)?;
    let mut sessions = Vec::new();
    if op.with_sessions && op.query.class == SESSION_CLASS {
        for hit in &page.hits {
            let name = hit.at.place.name.clone();
            let key = DocKey::new(slot_of(&name, m), name);
            let doc = led.log.replica.docs.get(&key);
            let view = |record: &Arc<SessionRecord>| {
                let failed_actions = led.log.replica.counts.lives.failed_of(key.slot, record);
                let (record, owner, epoch) = (record.clone(), led.env.me.number, led.env.epoch());
                SessionView { record, owner, epoch, node: None, failed_actions }
            };
            sessions.extend(doc.and_then(|it| it.session()).map(view));
        }
    }
    let slots = led.log.range.intervals(m).to_vec();
    let is_special = op.query.special.is_some();
    Ok(Found { slots, page, sessions, is_special })
}
