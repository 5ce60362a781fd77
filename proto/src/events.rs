//! What an operator asks of a manager's events, checked, and events on the wire.

use crate::mistakes::Mistakes;
use crate::v1;
use rota_messages::events::{ContentEvent, Event, SessionEvent};
pub use rota_messages::events::{RemarkKind, all_kinds};
use rota_model::{FieldError, ManagerNumber, Refusal, SessionKey};
use std::collections::BTreeSet;
use std::fmt;

/// Names an event at the manager that tells it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventPosition {
    /// The run of the manager.
    pub run: String,
    /// Counts up within it, from 1.
    pub seq: u64,
}

impl fmt::Display for EventPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.run, self.seq)
    }
}

impl EventPosition {
    /// From its text.
    ///
    /// # Errors
    /// It is none.
    pub fn parse(text: &str) -> Result<Self, FieldError> {
        let parts = text.split_once('-').and_then(|(run, seq)| {
            let is_run = (1..=32).contains(&run.len()) && run.chars().all(char::is_alphanumeric);
            Some((is_run.then(|| run.to_owned())?, seq.parse().ok()?))
        });
        let text = "is garbled; it must be the position of an event";
        let (run, seq) = parts.ok_or_else(|| FieldError::new("position", text))?;
        Ok(Self { run, seq })
    }
}

/// Which events an operator asks for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EventsAsk {
    /// After this one.
    pub after: Option<EventPosition>,
    /// Those to come as well.
    pub follow: bool,
    /// Of this session only.
    pub session: Option<SessionKey>,
    /// Of these kinds only; none: of every one.
    pub kinds: BTreeSet<String>,
    /// At most so many of those that are kept.
    pub last: Option<usize>,
}

impl EventsAsk {
    /// Whether an event is asked for.
    pub fn wants(&self, event: &v1::Event) -> bool {
        let is_of = |key: &SessionKey| {
            key.id.as_str() == event.id && key.namespace.as_str() == event.namespace
        };
        self.session.as_ref().is_none_or(is_of)
            && (self.kinds.is_empty() || self.kinds.contains(&event.kind))
    }
}

/// What an operator asks for, checked.
///
/// # Errors
/// A refusal that names each wrong field.
pub fn events(request: v1::EventsRequest) -> Result<EventsAsk, Refusal> {
    let v1::EventsRequest { after, follow, namespace, id, kinds, last } = request;
    let mut mistakes = Mistakes::default();
    let after = mistakes.given("after", &after, EventPosition::parse);
    let kinds = mistakes.note(known(kinds));
    let session = match (namespace.as_str(), id.as_str()) {
        ("", "") => Some(None),
        (_, "") => {
            let text = "is given without the id of a session";
            mistakes.note(Err(FieldError::new("namespace", text)))
        }
        (_, _) => mistakes.key(&namespace, &id).map(Some),
    };
    let last = usize::try_from(last).ok().filter(|it| *it > 0);
    let ask = after.zip(kinds).zip(session);
    let ask =
        ask.map(|((after, kinds), session)| EventsAsk { after, follow, session, kinds, last });
    mistakes.finish(ask)
}

fn known(kinds: Vec<String>) -> Result<BTreeSet<String>, FieldError> {
    match kinds.iter().find(|kind| all_kinds().all(|it| it != *kind)) {
        Some(kind) => {
            let all: Vec<&str> = all_kinds().collect();
            Err(FieldError::new("kinds", format!("{kind:?} is none of {}", all.join(", "))))
        }
        None => Ok(kinds.into_iter().collect()),
    }
}

/// What happened in a commit, as a manager tells it.
pub fn of_commit(it: Event, manager: ManagerNumber) -> v1::Event {
    match it {
        Event::Session(it) => of_session(it, manager),
        Event::Content(it) => of_content(it, manager),
    }
}

fn of_content(it: ContentEvent, manager: ManagerNumber) -> v1::Event {
    v1::Event {
        at: it.at.as_u64(),
        manager: manager.0,
        kind: it.kind.as_str().to_owned(),
        text: it.text,
        version: it.version.as_u64(),
        ..v1::Event::default()
    }
}

fn of_session(it: SessionEvent, manager: ManagerNumber) -> v1::Event {
    v1::Event {
        position: String::new(),
        at: it.at.as_u64(),
        manager: manager.0,
        kind: it.kind.as_str().to_owned(),
        namespace: it.session.namespace.to_string(),
        id: it.session.id.to_string(),
        life: it.life.map_or(0, |it| it.as_u64()),
        class: it.class.map(|it| it.to_string()).unwrap_or_default(),
        node: it.node.map(|it| it.to_string()).unwrap_or_default(),
        reason: it.reason.map(|it| it.as_str().to_owned()).unwrap_or_default(),
        partition: None,
        text: it.text,
        version: it.version.as_u64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(change: impl FnOnce(&mut v1::EventsRequest)) -> Result<EventsAsk, Vec<String>> {
        let mut request = v1::EventsRequest::default();
        change(&mut request);
        events(request).map_err(|it| it.fields.into_iter().map(|it| it.field).collect())
    }

    #[test]
    fn a_position_comes_back_as_it_was_given() {
        let position = EventPosition { run: "0a1b2c3d".to_owned(), seq: 8_193 };
        assert_eq!(EventPosition::parse(&position.to_string()), Ok(position));
        for garbled in ["-1", "0a1b2c3d", "0a1b2c3d-", "0a1b2c3d--1", "0a 1b-1", "0a1b2c3d-x"] {
            assert!(EventPosition::parse(garbled).is_err(), "{garbled:?}");
        }
        let long = format!("{}-1", "a".repeat(33));
        assert!(EventPosition::parse(&long).is_err());
    }

    #[test]
    fn nothing_given_asks_for_everything_that_is_kept() {
        assert_eq!(asked(|_| {}), Ok(EventsAsk::default()));
        let last = asked(|it| it.last = 3).map(|it| it.last);
        assert_eq!(last, Ok(Some(3)));
    }

    #[test]
    fn a_session_is_in_the_default_namespace_unless_another_one_is_named() {
        let of = |namespace: &str| {
            let ask = asked(|it| (it.namespace, it.id) = (namespace.to_owned(), "a".to_owned()));
            ask.map(|it| it.session.expect("it was given").to_string())
        };
        assert_eq!(of(""), of("default"));
        assert_ne!(of(""), of("shop"));
    }

    #[test]
    fn every_wrong_field_is_named() {
        let wrong = asked(|request| {
            request.after = "yesterday".to_owned();
            request.namespace = "shop".to_owned();
            request.kinds = vec!["session_opened".to_owned(), "opened".to_owned()];
        });
        assert_eq!(wrong, Err(["after", "kinds", "namespace"].map(str::to_owned).into()));
    }

    #[test]
    fn an_event_is_wanted_by_its_session_and_its_kind() {
        let event = |id: &str, kind: &str| v1::Event {
            namespace: "default".to_owned(),
            id: id.to_owned(),
            kind: kind.to_owned(),
            ..Default::default()
        };
        let of_a = asked(|it| it.id = "a".to_owned()).expect("it is right");
        assert!(of_a.wants(&event("a", "session_opened")));
        assert!(!of_a.wants(&event("b", "session_opened")) && !of_a.wants(&event("", "serving")));
        let kinds = asked(|it| it.kinds = vec!["node_lost".to_owned()]).expect("it is right");
        assert!(kinds.wants(&event("", "node_lost")) && !kinds.wants(&event("", "serving")));
    }
}
