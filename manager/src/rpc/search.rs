//! One page of a search of the whole ring: every owner gives its page behind the same place, and they are put together.

use super::Shared;
use super::owners::{Failure, mixed_up, some_view};
use crate::clock::now;
use rota_docstore::{DocName, FieldError};
use rota_model::{Refusal, RefusalKind, Retry, SessionView, SlotId};
use rota_protocol::api::Reader;
use rota_protocol::session_search::session_name;
use rota_protocol::{Answer, Found, Op, SearchOp};
use rota_search::{Limits, Page, Position, Search, Slots, merge};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Between two rounds of questions, when slots changed owners in between.
const PAUSE: Duration = Duration::from_millis(20);

/// What is asked of every owner.
pub struct Question {
    /// The search.
    pub search: Search,
    /// Behind this place.
    pub after: Option<Position>,
    /// Most results.
    pub limit: u32,
    /// Who reads; `None`: an operator.
    pub reader: Option<Reader>,
    /// Of sessions: they themselves are wanted.
    pub with_sessions: bool,
}

/// A page of the whole ring.
pub struct Gathered {
    /// Its results.
    pub page: Page,
    /// Of a search for sessions: they themselves, in the order of the page.
    pub sessions: Vec<SessionView>,
}

/// Asks every owner at once, and once more when slots were missed because they changed owners.
pub async fn gather(
    shared: &Shared,
    question: Question,
    deadline: Instant,
) -> Result<Gathered, Failure> {
    let Question { search, after, limit, reader, with_sessions } = question;
    let limits = Limits::new(usize::try_from(limit).unwrap_or(usize::MAX));
    let limits = limits.map_err(|it| Failure::from(Refusal::invalid(vec![it])))?;
    let now = now();
    let reader = reader.map(Arc::new);
    loop {
        let view = some_view(shared, deadline).await?;
        let ask = |slot: u32| {
            let op = SearchOp {
                reader: reader.clone(),
                slot: SlotId(slot),
                query: search.query().clone(),
                after: after.clone(),
                now,
                limit,
                with_sessions,
            };
            shared.mailbox.begin(Op::Search(op), deadline)
        };
        let begun: Vec<_> = view.parts.keys().map(|it| ask(it.0)).collect();
        let mut parts = Vec::new();
        let mut sessions = BTreeMap::new();
        for begun in begun {
            let answer = begun.answer().await?;
            let Answer::Found(found) = answer else { return Err(mixed_up(&answer)) };
            let found = found?;
            if search.query().special.is_some() && !found.is_special {
                return Err(of_earlier_version());
            }
            add(found, &mut parts, &mut sessions);
        }
        let all = SlotId(0)..=SlotId(view.m.saturating_sub(1));
        match merge(&search, all, parts, limits) {
            Ok(page) => {
                let session = |name: &DocName| sessions.remove(name);
                let sessions =
                    page.hits.iter().map(|it| &it.at.place.name).filter_map(session).collect();
                return Ok(Gathered { page, sessions });
            }
            Err(missing) if Instant::now() + PAUSE >= deadline => return Err(moving(&missing)),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// A partition that goes around the end of the ring has two pieces of slots, and one page.
fn add(
    found: Found,
    parts: &mut Vec<(Slots, Page)>,
    sessions: &mut BTreeMap<DocName, SessionView>,
) {
    let Found { slots, page, sessions: views, .. } = found;
    for view in views {
        let name = session_name(&view.record.key);
        // Two owners may have told of one session: the later one has the later version.
        let is_newer = |known: &SessionView| known.record.version < view.record.version;
        if sessions.get(&name).is_none_or(is_newer) {
            sessions.insert(name, view);
        }
    }
    for (number, (first, last)) in slots.into_iter().enumerate() {
        let mut page = page.clone();
        if number > 0 {
            page.documents_read = 0;
        }
        parts.push((first..=last, page));
    }
}

fn of_earlier_version() -> Failure {
    let text =
        "an owner is of an earlier version, which knows no special searches; upgrade every manager";
    Failure::Refused(Refusal::new(RefusalKind::NotServing, Retry::WhenChanged, text))
}

fn moving(missing: &FieldError) -> Failure {
    let text = format!("slots change owners, and this search did not reach all of them: {missing}");
    let retry = Retry::AfterMs(200);
    Failure::Refused(Refusal::new(RefusalKind::NotServing, retry, text))
}
