//! One page out of those of several managers, each of some slots.

use super::{Filling, Limits, Page};
use crate::query::{Position, Search};
use rota_model::{FieldError, SlotId};
use std::ops::RangeInclusive;

/// The slots whose documents a page is about.
pub type Slots = RangeInclusive<SlotId>;

/// Puts pages behind one position together. They must be about all slots that are asked for: an error of
/// the field `slots` names the first one that none is about. Pages of two owners may be about one slot,
/// as when a View changes between the two: what both have is there once, as of the later version.
///
/// The page ends where the first of its parts does that had to stop early. So its end is a place in the
/// order of results, and the next page may be asked of whoever owns the slots then.
pub fn merge(
    search: &Search,
    asked: Slots,
    parts: Vec<(Slots, Page)>,
    limits: Limits,
) -> Result<Page, FieldError> {
    let order = |one: &Position, two: &Position| search.compare(one, two);
    check_slots(asked, parts.iter().map(|it| &it.0))?;
    let mut documents_read = 0;
    let mut end: Option<Position> = None;
    let mut hits = Vec::new();
    for (_, page) in parts {
        documents_read += page.documents_read;
        hits.extend(page.hits);
        end = match (end, page.next) {
            (Some(one), Some(two)) if order(&one, &two).is_le() => Some(one),
            (_, Some(two)) => Some(two),
            (one, None) => one,
        };
    }
    hits.retain(|it| end.as_ref().is_none_or(|end| order(&it.at, end).is_le()));
    hits.sort_by(|one, two| order(&one.at, &two.at).then(two.version.cmp(&one.version)));
    // What both have differs in its version only: the later one comes first, and stays.
    hits.dedup_by(|two, one| two.at == one.at);
    let mut filling = Filling::new(limits);
    for hit in hits {
        if !filling.add(hit) {
            let next = filling.last();
            return Ok(Page { hits: filling.hits, next, documents_read });
        }
    }
    Ok(Page { hits: filling.hits, next: end, documents_read })
}

fn check_slots<'a>(asked: Slots, parts: impl Iterator<Item = &'a Slots>) -> Result<(), FieldError> {
    let mut parts: Vec<(u32, u32)> = parts.map(|it| (it.start().0, it.end().0)).collect();
    parts.sort_unstable();
    let (mut missing, last) = (u64::from(asked.start().0), asked.end().0);
    for (from, to) in parts {
        if u64::from(from) <= missing {
            missing = missing.max(u64::from(to) + 1);
        }
    }
    if missing <= u64::from(last) {
        let problem = format!("from {missing} on are in no page: their owner must be asked, too");
        return Err(FieldError::new("slots", problem));
    }
    Ok(())
}
