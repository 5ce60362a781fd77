//! What commits tell of sessions and content: the difference that a write of a document makes.

use crate::contents::lives::managed_in;
use crate::ports::slots::CONFIGURATION;
use rota_content::{CONTENT_CLASS, Commit, FOLLOWS_CLASS, Follows, Head};
use rota_docstore::{Document, Singleton};
use rota_lifecycle::{LifeItem, Managed};
use rota_messages::documents::life_session;
use rota_messages::events::{
    ContentEvent, ContentEventKind, Event, SessionEvent, SessionEventKind,
};
use rota_messages::{Doc, DocKey};
use rota_model::items::{LIFE_CLASS, SESSION_CLASS};
use rota_model::{SessionKey, SessionRecord, SessionState, Stamp};

/// Whether writes of a document may tell something.
pub(crate) fn tells(key: &DocKey) -> bool {
    matches!(key.name.class(), SESSION_CLASS | LIFE_CLASS) || is_content(key)
}

/// Whether a document is one of content: other namespaces may have classes of the same names.
fn is_content(key: &DocKey) -> bool {
    key.name.space() == CONFIGURATION && matches!(key.name.class(), CONTENT_CLASS | FOLLOWS_CLASS)
}

/// What is told of a write when it is committed.
pub(crate) fn told(
    key: &DocKey,
    before: Option<&Doc>,
    after: Option<&Doc>,
    now: Stamp,
) -> Vec<Event> {
    let Some(after) = after else { return Vec::new() };
    // Versions may run ahead of the clock after a take-over.
    let when = When { at: after.version().min(now), version: after.version() };
    if is_content(key) {
        let before = before.map(|it| &**it.document());
        let told = of_content(key, before, after.document());
        let event = told.map(|(kind, text)| {
            Event::Content(ContentEvent { at: when.at, version: when.version, kind, text })
        });
        return event.into_iter().collect();
    }
    of_session(key, before, after, when).into_iter().map(Event::Session).collect()
}

/// What a write of a repository, or of what a pool follows, comes to. What cannot be read tells nothing.
fn of_content(
    key: &DocKey,
    before: Option<&Document>,
    after: &Document,
) -> Option<(ContentEventKind, String)> {
    let name = key.name.docid();
    if key.name.class() == FOLLOWS_CLASS {
        let (earlier, follows) = (before.and_then(one::<Follows>), one::<Follows>(after));
        let Some(follows) = follows.as_ref() else {
            earlier?;
            let text = format!("nodes of pool {name} follow nothing");
            return Some((ContentEventKind::Unfollowed, text));
        };
        let commit = follows.commit.as_ref();
        let commit = commit.map_or("its newest commit".to_owned(), |it| format!("commit {it}"));
        let share = match follows.canary_percent {
            0 => String::new(),
            share => format!(", and {share} % of them the newest"),
        };
        let text = format!("nodes of pool {name} follow {}: {commit}{share}", follows.repository);
        return (earlier.as_ref() != Some(follows)).then_some((ContentEventKind::Followed, text));
    }
    let earlier = before.and_then(one::<Head>);
    let Some(head) = one::<Head>(after) else {
        earlier?;
        return Some((ContentEventKind::Removed, format!("{name} is gone, with all its commits")));
    };
    if earlier.is_some_and(|it| it.latest == head.latest) {
        return None;
    }
    let commit = after.keyed::<Commit>(head.latest.as_str()).ok().flatten()?;
    let Commit { hash, files, changed, author, message, .. } = &commit;
    let message = message.lines().next().unwrap_or_default();
    let (kind, how) = match &commit.restores {
        Some(earlier) => (ContentEventKind::RolledBack, format!(" with the files of {earlier}")),
        None => (ContentEventKind::Published, String::new()),
    };
    let said = [author.as_str(), message].map(str::trim).into_iter().filter(|it| !it.is_empty());
    let said: String = said.map(|it| format!("; {it}")).collect();
    Some((kind, format!("{name} is at {hash}{how}: {files} files, {changed} differ{said}")))
}

/// A singleton of a document that is there.
fn one<T: Singleton>(document: &Document) -> Option<T> {
    let is_there = !document.is_deleted();
    is_there.then(|| document.one::<T>().ok().flatten()).flatten()
}

fn of_session(key: &DocKey, before: Option<&Doc>, after: &Doc, when: When) -> Vec<SessionEvent> {
    if let Some(record) = after.session() {
        let before = before.and_then(Doc::session);
        return of_record(before.map(|it| &**it), record, when).into_iter().collect();
    }
    match (life_session(&key.name), managed_in(after)) {
        (Some(session), Some(managed)) => {
            of_life(&session, before.and_then(managed_in).as_ref(), &managed, when)
        }
        (Some(_), None) | (None, _) => Vec::new(),
    }
}

/// When something was written, and the version of that.
#[derive(Clone, Copy)]
struct When {
    at: Stamp,
    version: Stamp,
}

fn of_record(
    before: Option<&SessionRecord>,
    after: &SessionRecord,
    when: When,
) -> Option<SessionEvent> {
    let before = before.filter(|it| it.life == after.life);
    let is_new = before.is_none_or(|it| it.state != after.state);
    let kind = match after.state {
        SessionState::Pending => {
            let is_placed = is_new || before.and_then(SessionRecord::token) != after.token();
            is_placed.then_some(SessionEventKind::Placed)?
        }
        SessionState::Starting => return None,
        SessionState::Ready if is_new => SessionEventKind::Opened,
        SessionState::Ready => {
            let is_changed = before.is_some_and(|it| it.spec.attributes != after.spec.attributes);
            is_changed.then_some(SessionEventKind::Changed)?
        }
        SessionState::Closing => is_new.then_some(SessionEventKind::Closing)?,
        SessionState::Closed => is_new.then_some(SessionEventKind::Closed)?,
        SessionState::Failed => is_new.then_some(SessionEventKind::Failed)?,
        SessionState::Lost => is_new.then_some(SessionEventKind::Lost)?,
    };
    let placement = after.placement.as_ref();
    let address = placement.map_or("", |it| it.address.as_str());
    let text = match (kind, &after.exit) {
        (SessionEventKind::Opened, _) if !address.is_empty() => format!("at {address}"),
        (SessionEventKind::Closed | SessionEventKind::Failed, Some(exit)) => {
            let (exit, gap) = (exit.to_string(), if after.detail.is_empty() { "" } else { "; " });
            format!("{exit}{gap}{}", after.detail)
        }
        _ => after.detail.clone(),
    };
    Some(SessionEvent {
        at: when.at,
        version: when.version,
        kind,
        session: after.key.clone(),
        life: Some(after.life),
        class: Some(after.spec.class.clone()),
        node: placement.map(|it| it.node.clone()),
        reason: after.reason,
        text,
    })
}

fn of_life(
    session: &SessionKey,
    before: Option<&Managed>,
    after: &Managed,
    when: When,
) -> Vec<SessionEvent> {
    let before = before.filter(|it| it.origin() == after.origin());
    let event = |kind, text| SessionEvent {
        at: when.at,
        version: when.version,
        kind,
        session: session.clone(),
        life: None,
        class: None,
        node: None,
        reason: None,
        text,
    };
    let fired_before = |item: &LifeItem| {
        let word = item.last().to_string();
        before.is_some_and(|it| it.fired(item.life_cycle().as_str(), &word).is_some())
    };
    let held = after.items().filter_map(|(item, held)| Some((item, held.fired?)));
    // The history grows at its end.
    let newest = before.and_then(|it| it.history().last());
    let past = after.history().iter().rev().take_while(|it| Some(*it) != newest);
    let past = past.filter(|it| it.origin == after.origin());
    let past = past.filter_map(|it| Some((&it.item, it.fired?)));
    let mut events = Vec::new();
    for (item, fired) in held.chain(past).filter(|(item, _)| !fired_before(item)) {
        let how = if fired.skipped { " (skipped)" } else { "" };
        events.push(event(SessionEventKind::EventFired, format!("{item}{how}")));
    }
    for (item, failure) in after.items().filter_map(|(item, it)| Some((item, it.failed.as_ref()?)))
    {
        let word = item.last().to_string();
        let earlier = before.and_then(|it| it.held(item.life_cycle().as_str(), &word));
        let earlier = earlier.and_then(|it| it.failed.as_ref());
        if earlier.is_none_or(|it| it.attempts < failure.attempts || it.at < failure.at) {
            let report = failure.report.lines().next().unwrap_or_default();
            let text = format!("{item}: attempt {}, {} {report}", failure.attempts, failure.code);
            events.push(event(SessionEventKind::ActionFailed, text.trim_end().to_owned()));
        }
    }
    events
}
