//! A look at the life cycles of one session: they begin, fire, or end with it.

use crate::contents::lives::{managed_in, session_of};
use crate::lives::state::{ACTIONS_MAX, Lives, Wanted, purged_before};
use crate::log::at::At;
use crate::log::resident::RequestHandler;
use crate::managed::{begun, facts, is_mark, write_of};
use crate::ports::note::Transition;
use rota_lifecycle::{Due, Managed};
use rota_messages::lives::{Event, LivesAnswer};
use rota_messages::{Answer, DocKey, Write};
use rota_model::{SessionRecord, SessionState, Stamp};
use std::sync::Arc;

/// How a session stands to its life cycles.
enum Stands {
    /// It is committed as READY: events may fire.
    Ready(Arc<SessionRecord>),
    /// It is on its way: it is looked at again when its record changes.
    OnItsWay,
    /// It has ended, and nothing follows.
    Over,
}

fn stands(led: &At<'_>, session: &DocKey) -> Stands {
    let replica = &led.log.replica;
    if replica.latest.contains_key(session) {
        return Stands::OnItsWay;
    }
    match replica.docs.get(session).and_then(|it| it.session()) {
        None => Stands::Over,
        Some(record) if record.state == SessionState::Ready => Stands::Ready(record.clone()),
        Some(record) if record.state.is_ended() && !record.is_reopened() => Stands::Over,
        Some(_) => Stands::OnItsWay,
    }
}

impl Lives {
    /// Looks at a document that nobody has written since it was committed. Gives what is to be written.
    pub(super) fn look(&mut self, led: &mut At<'_>, key: &DocKey, now: Stamp) -> Option<Write> {
        // It is armed anew when that is committed.
        if led.log.replica.latest.contains_key(key) {
            return None;
        }
        let held = led.log.replica.docs.get(key).and_then(|it| managed_in(it));
        let session = session_of(key)?;
        match stands(led, &session) {
            Stands::OnItsWay => {
                self.acting.remove(key);
                None
            }
            Stands::Over => {
                self.acting.remove(key);
                self.answer_wanted(led, key, |_| true);
                self.end(led, key, held?, now)
            }
            Stands::Ready(record) => self.go_on(led, key, (held, &record), now),
        }
    }

    /// The session has ended.
    fn end(&self, led: &mut At<'_>, key: &DocKey, held: Managed, now: Stamp) -> Option<Write> {
        let mut managed = held.clone();
        if !managed.has_ended() {
            led.env.note(Transition::LifeCyclesEnded, Some(led.log.number));
            managed.end(now);
        }
        managed.purge(purged_before(now));
        self.changed(led, key, &held, &managed)
    }

    fn changed(
        &self,
        led: &At<'_>,
        key: &DocKey,
        before: &Managed,
        managed: &Managed,
    ) -> Option<Write> {
        let is_gone = managed.has_ended() && managed.is_empty();
        let floor = led.stamps_above().max(Stamp::from_epoch_ms(led.env.now.wall_ms));
        (before != managed || is_gone).then(|| write_of(&led.log.replica, key, managed, floor))
    }

    /// The session runs: fires what is only marked, or begins an action.
    fn go_on(
        &mut self,
        led: &mut At<'_>,
        key: &DocKey,
        (held, record): (Option<Managed>, &SessionRecord),
        now: Stamp,
    ) -> Option<Write> {
        let before = held.clone().unwrap_or_else(|| Managed::new(Stamp::MIN));
        let mut managed = begun(held, record, now);
        managed.purge(purged_before(now));
        let fired = {
            let facts = facts(led.env, record);
            managed.fire_marks(now, &|life_cycle, _| is_mark(facts, life_cycle))
        };
        for _ in &fired {
            led.env.note(Transition::EventFired, Some(led.log.number));
        }
        if before != managed {
            // What is due after that is found when it is committed.
            return self.changed(led, key, &before, &managed);
        }
        self.begin_next(led, key, record, &managed, now);
        None
    }

    /// Begins the next action of a session, if none is under way.
    fn begin_next(
        &mut self,
        led: &mut At<'_>,
        key: &DocKey,
        record: &SessionRecord,
        managed: &Managed,
        now: Stamp,
    ) {
        // What fired, or was removed, has nothing left to do.
        let is_open = |it: &Event| managed.is_unfired(&it.life_cycle, &it.word);
        let chain = managed.origin();
        self.answer_wanted(led, key, |it| it.chain != chain || !is_open(&it.event));
        if let Some(acting) = self.acting.get(key) {
            if acting.life == record.life {
                return;
            }
            self.acting.remove(key);
        }
        let wanted = self.wanted.get(key).and_then(|it| it.first()).map(|it| it.event.clone());
        let due = || {
            let Due { life_cycle, word, .. } = managed.due(now).into_iter().next()?;
            Some(Event { life_cycle: life_cycle.to_string(), word: word.to_string() })
        };
        let Some(event) = wanted.or_else(due) else {
            return self.arm(key, managed.next_at().filter(|it| *it > now));
        };
        if self.acting.len() >= ACTIONS_MAX {
            self.crowded.insert(key.clone());
            return;
        }
        self.begin(led, key, record, managed, event);
    }

    /// Answers those who wait for an action of which nothing is left to do.
    fn answer_wanted(&mut self, led: &mut At<'_>, key: &DocKey, is_over: impl Fn(&Wanted) -> bool) {
        for it in self.take_wanted(key, is_over) {
            let answer = Answer::Lives(LivesAnswer::Fired(Ok(())));
            self.reply(led, it.origin, Ok(answer));
        }
    }
    /// Those who wait for an action, and do so no more.
    pub(super) fn take_wanted(
        &mut self,
        key: &DocKey,
        is_over: impl Fn(&Wanted) -> bool,
    ) -> Vec<Wanted> {
        let Some(wanted) = self.wanted.get_mut(key) else { return Vec::new() };
        let over = wanted.extract_if(.., |it| is_over(it)).collect();
        if wanted.is_empty() {
            self.wanted.remove(key);
        }
        over
    }
}
