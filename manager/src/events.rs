//! What happened here lately: the newest events, in memory, for operators.
//!
//! ```text
//!  driver ── what was committed, steps of the ring ──▶ log (bounded) ──▶ pages for who asks, and who follows
//! ```

use rota_model::{ManagerNumber, Stamp};
use rota_proto::events::{EventPosition, EventsAsk, of_session};
use rota_proto::v1;
use rota_protocol::Note;
use rota_protocol::events::{RingEventKind, SessionEvent};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;

/// Events that are kept.
const EVENTS_MAX: usize = 8_192;
/// Most bytes of the sentence of one; what is longer is cut.
const TEXT_BYTES_MAX: usize = 1_024;
/// Events of a page.
const PAGE: usize = 500;

#[derive(Debug, Default)]
struct Kept {
    /// How many fell out.
    gone: u64,
    events: VecDeque<Arc<v1::Event>>,
}

/// The newest events of this run.
#[derive(Clone, Debug)]
pub struct EventLog {
    manager: ManagerNumber,
    run: Arc<str>,
    /// A lock, because those who ask have a task each; it is held for one page.
    kept: Arc<Mutex<Kept>>,
    newest: Arc<watch::Sender<u64>>,
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
}

impl EventLog {
    /// Of a run that begins.
    pub fn new(manager: ManagerNumber) -> Self {
        let mut run = uuid::Uuid::new_v4().simple().to_string();
        run.truncate(8);
        let newest = Arc::new(watch::Sender::new(0));
        Self { manager, run: run.into(), kept: Arc::default(), newest }
    }

    /// What was committed for sessions.
    pub fn committed(&self, events: Vec<SessionEvent>) {
        self.push(events.into_iter().map(|it| of_session(it, self.manager)));
    }

    /// A step of the protocol, if it is one that operators look for.
    pub fn noted(&self, note: &Note, wall_ms: u64) {
        let Some(kind) = RingEventKind::parse(note.transition.as_str()) else { return };
        self.push([v1::Event {
            at: Stamp::from_epoch_ms(wall_ms).as_u64(),
            manager: self.manager.0,
            kind: kind.as_str().to_owned(),
            partition: note.part.map(|it| it.0),
            text: note.text.clone(),
            ..v1::Event::default()
        }]);
    }

    fn push(&self, events: impl IntoIterator<Item = v1::Event>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut seq = kept.gone + kept.events.len() as u64;
        for mut event in events {
            seq += 1;
            event.position = EventPosition { run: self.run.to_string(), seq }.to_string();
            event.text.truncate(event.text.floor_char_boundary(TEXT_BYTES_MAX));
            kept.events.push_back(Arc::new(event));
            if kept.events.len() > EVENTS_MAX {
                kept.events.pop_front();
                kept.gone += 1;
            }
        }
        drop(kept);
        self.newest.send_replace(seq);
    }

    /// Where to begin, and whether something before that is not kept any more.
    pub fn start(&self, ask: &EventsAsk) -> (u64, bool) {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (from, missed) = match &ask.after {
            Some(it) if *it.run == *self.run => (it.seq.max(kept.gone), it.seq < kept.gone),
            Some(_) => (kept.gone, true),
            None => (kept.gone, false),
        };
        let Some(last) = ask.last else { return (from, missed) };
        let wanted = kept.events.iter().enumerate().rev().filter(|(_, it)| ask.wants(it));
        let first = wanted.take(last).last().map(|(at, _)| kept.gone + at as u64);
        (first.map_or(from, |it| it.max(from)), missed)
    }

    /// The events that are asked for after that one, a page of them at most.
    pub fn page(&self, ask: &EventsAsk, after: u64) -> Page {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let skip = usize::try_from(after.saturating_sub(kept.gone)).unwrap_or(usize::MAX);
        let mut page =
            Page { missed: after < kept.gone, upto: after.max(kept.gone), ..Page::default() };
        for event in kept.events.iter().skip(skip) {
            if page.events.len() == PAGE {
                return page;
            }
            page.upto += 1;
            if ask.wants(event) {
                page.events.push(event.clone());
            }
        }
        page.is_last = true;
        page
    }

    /// Tells when something newer comes.
    pub fn newest(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_protocol::Transition;

    fn note(text: &str) -> Note {
        Note { transition: Transition::TakenOut, part: None, text: text.to_owned(), end: None }
    }

    fn log(events: usize) -> EventLog {
        let log = EventLog::new(ManagerNumber(300));
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
        let after = |seq| EventPosition { run: log.run.to_string(), seq };
        let start = |after| log.start(&EventsAsk { after, ..EventsAsk::default() });
        assert_eq!(start(None), (10, false), "nothing was asked that is missing");
        assert_eq!(start(Some(after(9))), (10, true));
        assert_eq!(start(Some(after(10))), (10, false));
        let other_run = EventPosition { run: "0123abcd".to_owned(), seq: 8_000 };
        assert_eq!(start(Some(other_run)), (10, true), "an earlier run of this manager");
        assert!(log.page(&EventsAsk::default(), 3).missed);
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
        let ask = EventsAsk { last: Some(9), ..EventsAsk::default() };
        assert_eq!(log.page(&ask, log.start(&ask).0).events.len(), 5);
    }

    #[test]
    fn a_long_sentence_is_cut_at_a_character() {
        let log = EventLog::new(ManagerNumber(300));
        log.noted(&note(&"ü".repeat(TEXT_BYTES_MAX)), 0);
        let page = log.page(&EventsAsk::default(), 0);
        assert_eq!(page.events[0].text.len(), TEXT_BYTES_MAX);
    }
}
