//! What happened here lately: the newest events, in memory, for operators.
//!
//! ```text
//!  driver ── what was committed, steps of the ring ──▶ log (bounded) ──▶ pages for who asks, and who follows
//! ```

use rota_model::{ManagerNumber, Stamp};
use rota_proto::events::{EventPosition, EventsAsk, of_commit};
use rota_proto::v1;
use rota_protocol::events::{Event, RingEventKind, SessionEventKind};
use rota_protocol::{Note, Transition};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{Semaphore, watch};

/// Events that are kept, of sessions and of all else each: very many of sessions push none of the ring out.
const EVENTS_MAX: usize = 8_192;
/// Most bytes of the sentence of one; what is longer is cut.
const TEXT_BYTES_MAX: usize = 1_024;
/// Events of a page.
const PAGE: usize = 500;
/// Most that are told at once, lists and watches together.
const READERS_MAX: usize = 256;

/// Events of one sort, with their numbers.
#[derive(Debug, Default)]
struct Sort {
    /// The newest that fell out.
    gone: u64,
    /// How many did.
    dropped: u64,
    events: VecDeque<(u64, Arc<v1::Event>)>,
}

impl Sort {
    fn push(&mut self, seq: u64, event: v1::Event) {
        self.events.push_back((seq, Arc::new(event)));
        if self.events.len() > EVENTS_MAX
            && let Some((oldest, _)) = self.events.pop_front()
        {
            self.gone = oldest;
            self.dropped += 1;
        }
    }

    /// Those after that one, in order.
    fn after(&self, seq: u64) -> impl DoubleEndedIterator<Item = &(u64, Arc<v1::Event>)> {
        let from = self.events.partition_point(|it| it.0 <= seq);
        self.events.range(from..)
    }
}

#[derive(Debug, Default)]
struct Kept {
    /// The newest one.
    seq: u64,
    sessions: Sort,
    /// Of the ring, and of content.
    others: Sort,
}

impl Kept {
    /// The sorts that may have what is asked for.
    fn sorts(&self, ask: &EventsAsk) -> impl Iterator<Item = &Sort> {
        let is_of_session = |it: &String| SessionEventKind::parse(it).is_some();
        // Of the others, only this one may be about a session. They are few, and stay long.
        let is_other = |kind: &String| {
            let is_about_one = kind == RingEventKind::TaskGivenUp.as_str();
            !is_of_session(kind) && (ask.session.is_none() || is_about_one)
        };
        let others = ask.kinds.is_empty() || ask.kinds.iter().any(is_other);
        let sessions = ask.kinds.is_empty() || ask.kinds.iter().any(is_of_session);
        [(sessions, &self.sessions), (others, &self.others)]
            .into_iter()
            .filter(|it| it.0)
            .map(|it| it.1)
    }

    /// The newest one that may have been asked for, and fell out.
    fn gone(&self, ask: &EventsAsk) -> u64 {
        self.sorts(ask).map(|it| it.gone).max().unwrap_or(0)
    }

    /// What is asked for after that one, the oldest first.
    fn wanted(&self, ask: &EventsAsk, after: u64) -> Vec<(u64, Arc<v1::Event>)> {
        let all = self.sorts(ask).flat_map(|it| it.after(after)).filter(|it| ask.wants(&it.1));
        let mut all: Vec<_> = all.cloned().collect();
        all.sort_unstable_by_key(|it| it.0);
        all
    }
}

/// The newest events of this run.
#[derive(Clone, Debug)]
pub struct EventLog {
    manager: ManagerNumber,
    run: Arc<str>,
    /// When this run began.
    since: Stamp,
    /// A lock, because those who ask have a task each; it is held for one page.
    kept: Arc<Mutex<Kept>>,
    newest: Arc<watch::Sender<u64>>,
    /// Which steps are events, by their place among all.
    kinds: Arc<[Option<RingEventKind>]>,
    /// Places of those that are told.
    pub places: Arc<Semaphore>,
}

/// A part of what is kept.
#[derive(Debug, Default)]
pub struct Page {
    /// Oldest first.
    pub events: Vec<Arc<v1::Event>>,
    /// Events that should come before these are not kept.
    pub missed: bool,
    /// Everything up to this one was looked at.
    pub upto: u64,
    /// There is nothing newer.
    pub is_last: bool,
    /// How many of all events fell out.
    pub dropped: u64,
}

impl EventLog {
    /// Of a run that begins at that time, in milliseconds since 1970.
    pub fn new(manager: ManagerNumber, wall_ms: u64) -> Self {
        let mut run = uuid::Uuid::new_v4().simple().to_string();
        run.truncate(8);
        let newest = Arc::new(watch::Sender::new(0));
        let kinds = Transition::ALL.iter().map(|it| RingEventKind::parse(it.as_str())).collect();
        let places = Arc::new(Semaphore::new(READERS_MAX));
        let (run, since) = (run.into(), Stamp::from_epoch_ms(wall_ms));
        Self { manager, run, since, kept: Arc::default(), newest, kinds, places }
    }

    /// Since when this run remembers.
    pub fn since(&self) -> Stamp {
        self.since
    }

    /// What was committed.
    pub fn committed(&self, events: Vec<Event>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        for event in events {
            kept.seq += 1;
            let is_of_session = matches!(event, Event::Session(_));
            let (seq, event) = (kept.seq, self.named(kept.seq, of_commit(event, self.manager)));
            let sort = if is_of_session { &mut kept.sessions } else { &mut kept.others };
            sort.push(seq, event);
        }
        self.newest.send_replace(kept.seq);
    }

    /// A step of the protocol, if it is one that operators look for.
    pub fn noted(&self, note: &Note, wall_ms: u64) {
        let Some(Some(kind)) = self.kinds.get(note.transition as usize) else { return };
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.seq += 1;
        let session = note.session.as_deref();
        let event = v1::Event {
            at: Stamp::from_epoch_ms(wall_ms).as_u64(),
            manager: self.manager.0,
            kind: kind.as_str().to_owned(),
            namespace: session.map(|it| it.namespace.to_string()).unwrap_or_default(),
            id: session.map(|it| it.id.to_string()).unwrap_or_default(),
            node: note.node.as_ref().map(ToString::to_string).unwrap_or_default(),
            partition: note.part.map(|it| it.0),
            text: note.text.clone(),
            ..v1::Event::default()
        };
        let (seq, event) = (kept.seq, self.named(kept.seq, event));
        kept.others.push(seq, event);
        self.newest.send_replace(kept.seq);
    }

    fn named(&self, seq: u64, mut event: v1::Event) -> v1::Event {
        event.position = self.position(seq);
        event.text.truncate(event.text.floor_char_boundary(TEXT_BYTES_MAX));
        event
    }

    /// The position of an event.
    pub fn position(&self, seq: u64) -> String {
        EventPosition { run: self.run.to_string(), seq }.to_string()
    }

    /// After which event to begin, and whether some that are asked for before the first one are not told.
    pub fn start(&self, ask: &EventsAsk) -> (u64, bool) {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = kept.gone(ask);
        let (from, missed) = match &ask.after {
            Some(it) if *it.run == *self.run => (it.seq, it.seq < gone),
            Some(_) => (0, true),
            None => (0, gone > 0),
        };
        let Some(last) = ask.last else { return (from, missed) };
        let wanted = kept.wanted(ask, from);
        match wanted.len().checked_sub(last) {
            // Whoever asks for the last ones alone knows that there are others.
            Some(0) | None => (from, missed),
            Some(more) => (wanted[more].0 - 1, ask.after.is_some()),
        }
    }

    /// The events that are asked for after that one, a page of them at most.
    pub fn page(&self, ask: &EventsAsk, after: u64) -> Page {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut wanted = kept.wanted(ask, after);
        let is_last = wanted.len() <= PAGE;
        wanted.truncate(PAGE);
        let upto = match wanted.last() {
            Some(it) if !is_last => it.0,
            Some(_) | None => kept.seq.max(after),
        };
        let events = wanted.into_iter().map(|it| it.1).collect();
        let dropped = kept.sessions.dropped + kept.others.dropped;
        Page { events, missed: after < kept.gone(ask), upto, is_last, dropped }
    }

    /// Tells when something newer comes.
    pub fn newest(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_protocol::events::{ContentEvent, ContentEventKind, SessionEvent};

    fn note(text: &str) -> Note {
        let text = text.to_owned();
        let (node, session) = (None, None);
        Note { transition: Transition::TakenOut, part: None, node, session, text, end: None }
    }

    fn log(events: usize) -> EventLog {
        let log = EventLog::new(ManagerNumber(300), 1_800_000_000_000);
        (1..=events).for_each(|it| log.noted(&note(&it.to_string()), 1_800_000_000_000));
        log
    }

    fn texts(page: &Page) -> Vec<&str> {
        page.events.iter().map(|it| it.text.as_str()).collect()
    }

    #[test]
    fn every_kind_of_the_ring_is_a_step_that_managers_count() {
        let steps: Vec<&str> = Transition::ALL.iter().map(|it| it.as_str()).collect();
        for kind in RingEventKind::ALL {
            assert!(steps.contains(&kind.as_str()), "{kind:?}");
        }
    }

    #[test]
    fn a_step_that_no_operator_looks_for_is_no_event() {
        let log = log(1);
        log.noted(&Note { transition: Transition::ReadConfirmed, ..note("2") }, 0);
        assert_eq!(texts(&log.page(&EventsAsk::default(), 0)), ["1"]);
    }

    #[test]
    fn pages_follow_each_other_until_nothing_is_newer() {
        let log = log(PAGE + 2);
        let ask = EventsAsk::default();
        let first = log.page(&ask, 0);
        assert_eq!((first.events.len(), first.is_last), (PAGE, false));
        let second = log.page(&ask, first.upto);
        assert_eq!(texts(&second), ["501", "502"]);
        assert!(second.is_last && !second.missed);
        log.noted(&note("503"), 0);
        assert_eq!(texts(&log.page(&ask, second.upto)), ["503"]);
    }

    #[test]
    fn what_fell_out_is_told_as_missed() {
        let log = log(EVENTS_MAX + 10);
        let after = |seq| Some(EventPosition { run: log.run.to_string(), seq });
        let start = |after| log.start(&EventsAsk { after, ..EventsAsk::default() });
        assert!(start(None).1 && start(after(9)).1 && !start(after(10)).1);
        let other_run = EventPosition { run: "0123abcd".to_owned(), seq: 8_000 };
        assert!(start(Some(other_run)).1, "an earlier run of this manager");
        let page = log.page(&EventsAsk::default(), 3);
        assert!(page.missed && page.events[0].text == "11");
        assert_eq!((page.dropped, log.since()), (10, Stamp::from_epoch_ms(1_800_000_000_000)));
        let last = EventsAsk { last: Some(5), ..EventsAsk::default() };
        assert!(!log.start(&last).1, "there are as many as were asked for");
        let kinds = ["session_opened".to_owned()].into();
        let of_sessions = EventsAsk { kinds, after: after(3), ..EventsAsk::default() };
        assert!(!log.start(&of_sessions).1, "none of those fell out");
    }

    fn opened(id: &str) -> Event {
        let (space, id) =
            (rota_model::Namespace::default_space(), rota_model::SessionId::parse(id));
        Event::Session(SessionEvent {
            at: Stamp::MIN,
            version: Stamp::MIN,
            kind: SessionEventKind::Opened,
            session: rota_model::SessionKey::new(space, id.expect("an id")),
            life: None,
            class: None,
            node: None,
            reason: None,
            text: String::new(),
        })
    }

    #[test]
    fn a_step_about_a_node_names_it_beside_the_sentence() {
        let log = log(0);
        let node = Some(rota_model::NodeId::parse("n1").expect("a name"));
        log.noted(&Note { transition: Transition::NodeLost, node, ..note("node n1 boot 5") }, 0);
        assert_eq!(log.page(&EventsAsk::default(), 0).events[0].node, "n1");
    }

    #[test]
    fn a_step_about_a_task_of_a_session_is_told_with_what_happened_to_that() {
        let log = log(1);
        log.committed(vec![opened("a"), opened("b")]);
        let (space, id) =
            (rota_model::Namespace::default_space(), rota_model::SessionId::parse("a"));
        let key = rota_model::SessionKey::new(space, id.expect("an id"));
        let session = Some(Box::new(key.clone()));
        log.noted(&Note { transition: Transition::TaskGivenUp, session, ..note("2") }, 0);
        let of_it = EventsAsk { session: Some(key), ..EventsAsk::default() };
        assert_eq!(texts(&log.page(&of_it, 0)), ["", "2"]);
        let kinds: std::collections::BTreeSet<String> = ["task_given_up".to_owned()].into();
        for ask in [of_it, EventsAsk::default()] {
            let page = log.page(&EventsAsk { kinds: kinds.clone(), ..ask }, 0);
            assert_eq!((page.events[0].id.as_str(), page.events.len()), ("a", 1));
        }
    }

    #[test]
    fn what_happens_to_content_is_kept_with_what_happens_to_the_ring() {
        let log = log(1);
        (0..EVENTS_MAX + 10).for_each(|it| log.committed(vec![opened(&it.to_string())]));
        log.committed(vec![Event::Content(ContentEvent {
            at: Stamp::MIN,
            version: Stamp::MIN,
            kind: ContentEventKind::Published,
            text: "main is at aa".to_owned(),
        })]);
        let kinds = ["taken_out", "content_published"].map(str::to_owned).into();
        let ask = EventsAsk { kinds, ..EventsAsk::default() };
        assert_eq!(texts(&log.page(&ask, log.start(&ask).0)), ["1", "main is at aa"]);
    }

    #[test]
    fn very_many_events_of_sessions_push_none_of_the_ring_out() {
        let log = log(1);
        (0..EVENTS_MAX + 10).for_each(|it| log.committed(vec![opened(&it.to_string())]));
        log.noted(&note("2"), 0);
        let kinds: std::collections::BTreeSet<String> = ["taken_out".to_owned()].into();
        let ask = EventsAsk { kinds, ..EventsAsk::default() };
        assert_eq!((texts(&log.page(&ask, 0)), log.start(&ask).1), (vec!["1", "2"], false));
        let all = log.page(&EventsAsk::default(), 0);
        assert!(all.missed && all.events[0].text == "1" && all.events[1].id == "10");
    }

    #[test]
    fn the_last_ones_are_counted_among_those_that_are_asked_for() {
        let log = log(3);
        log.noted(&Note { transition: Transition::NodeLost, ..note("4") }, 0);
        log.noted(&note("5"), 0);
        let kinds = ["taken_out".to_owned()].into();
        let ask = EventsAsk { last: Some(2), kinds, ..EventsAsk::default() };
        let (from, missed) = log.start(&ask);
        assert_eq!((texts(&log.page(&ask, from)), missed), (vec!["3", "5"], false));
        let after = Some(EventPosition { run: log.run.to_string(), seq: 2 });
        let (from, missed) = log.start(&EventsAsk { after, ..ask });
        assert_eq!((from, missed), (2, false), "both that follow");
        let after = Some(EventPosition { run: log.run.to_string(), seq: 0 });
        let ask = EventsAsk { last: Some(2), after, ..EventsAsk::default() };
        assert!(log.start(&ask).1, "more follow than are told");
        let ask = EventsAsk { last: Some(9), ..EventsAsk::default() };
        assert_eq!(log.page(&ask, log.start(&ask).0).events.len(), 5);
    }

    #[test]
    fn a_long_sentence_is_cut_at_a_character() {
        let log = EventLog::new(ManagerNumber(300), 1_800_000_000_000);
        log.noted(&note(&"ü".repeat(TEXT_BYTES_MAX)), 0);
        let page = log.page(&EventsAsk::default(), 0);
        assert_eq!(page.events[0].text.len(), TEXT_BYTES_MAX);
    }
}
