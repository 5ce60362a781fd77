//! A look at the life cycles of one session: they begin, fire, or end with it.

use crate::contents::lives::{HISTORY_KEPT_MS, managed_in, session_of};
use crate::lives::acting::Acts;
use crate::lives::state::{ACTIONS_MAX, Lives, Wanted, about, is_managed, purged_before};
use crate::log::at::At;
use crate::log::resident::RequestHandler;
use crate::managed::retry::settled_retries;
use crate::managed::{begun, is_mark, write_of};
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
    /// It is on its way: it is looked at again when its record changes. With a life that is READY also by what is not
    /// committed yet, so that its action goes on.
    OnItsWay(Option<Stamp>),
    /// It has ended, and nothing follows.
    Over,
}

fn stands(led: &At<'_>, session: &DocKey) -> Stands {
    let replica = &led.log.replica;
    if replica.latest.contains_key(session) {
        let written = replica.record(session).filter(|it| it.state == SessionState::Ready);
        return Stands::OnItsWay(written.map(|it| it.life));
    }
    match replica.docs.get(session).and_then(|it| it.session()) {
        None => Stands::Over,
        Some(record) if record.state == SessionState::Ready => Stands::Ready(record.clone()),
        Some(record) if record.state.is_ended() && !record.is_reopened() => Stands::Over,
        Some(_) => Stands::OnItsWay(None),
    }
}

impl Lives {
    /// Looks at a document that nobody has written since it was committed. Gives what is to be written. `since_ms`: it
    /// has waited for room since then, and there is some.
    pub(super) fn look(
        &mut self,
        led: &mut At<'_>,
        (key, since_ms): (&DocKey, Option<u64>),
        now: Stamp,
    ) -> Vec<Write> {
        // It is armed anew when that is committed.
        if led.log.replica.latest.contains_key(key) {
            return Vec::new();
        }
        let held = led.log.replica.docs.get(key).and_then(|it| managed_in(it));
        let Some(session) = session_of(key) else { return Vec::new() };
        match stands(led, &session) {
            Stands::OnItsWay(life) => {
                if self.acting.get(key).is_some_and(|it| Some(it.life) != life) {
                    self.acting.remove(key);
                }
                Vec::new()
            }
            Stands::Over => {
                self.acting.remove(key);
                self.answer_wanted(led, key, |_| true);
                self.end(led, key, held, now)
            }
            Stands::Ready(record) => self.go_on(led, (key, since_ms), (held, &record), now),
        }
    }

    /// The session has ended. One that ended so soon that nobody looked has no document of its life cycles yet.
    fn end(&self, led: &mut At<'_>, key: &DocKey, held: Option<Managed>, now: Stamp) -> Vec<Write> {
        let session = session_of(key).and_then(|it| led.log.replica.docs.get(&it)?.session());
        let unseen = session.filter(|it| is_managed(it));
        if held.is_none() && unseen.is_none() {
            return Vec::new();
        }
        let held = held.unwrap_or_else(|| Managed::new(Stamp::MIN));
        let mut managed = match unseen {
            Some(record) => begun(Some(held.clone()), record, now),
            None => held.clone(),
        };
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
    ) -> Vec<Write> {
        let is_gone = managed.has_ended() && managed.is_empty();
        if before == managed && !is_gone {
            return Vec::new();
        }
        let floor = led.stamps_above().max(Stamp::from_epoch_ms(led.env.now.wall_ms));
        let mut writes = vec![write_of(&led.log.replica, key, managed, floor)];
        if let Some(session) = about(key) {
            writes.extend(settled_retries(
                &led.log.replica,
                (key.slot, &session),
                (before, managed),
                None,
            ));
        }
        writes
    }

    /// The session runs: fires what is only marked, or begins an action.
    fn go_on(
        &mut self,
        led: &mut At<'_>,
        (key, since_ms): (&DocKey, Option<u64>),
        (held, record): (Option<Managed>, &SessionRecord),
        now: Stamp,
    ) -> Vec<Write> {
        let before = held.clone().unwrap_or_else(|| Managed::new(Stamp::MIN));
        let mut managed = begun(held, record, now);
        managed.purge(purged_before(now));
        let fired = managed.fire_marks(now, &|life_cycle, _| is_mark(record, life_cycle));
        for _ in &fired {
            led.env.note(Transition::EventFired, Some(led.log.number));
        }
        if before != managed {
            // What is due after that is found when it is committed.
            return self.changed(led, key, &before, &managed);
        }
        self.begin_next(led, (key, since_ms), record, &managed, now);
        Vec::new()
    }

    /// Begins the next action of a session, if none is under way.
    fn begin_next(
        &mut self,
        led: &mut At<'_>,
        (key, since_ms): (&DocKey, Option<u64>),
        record: &SessionRecord,
        managed: &Managed,
        now: Stamp,
    ) {
        // What fired, was removed, or neither failed nor is due, has nothing left to do.
        let is_open = |it: &Event| managed.may_run(&it.life_cycle, &it.word, now);
        // Marks wait for no action.
        let ahead = managed.next_after(now).into_iter().chain(managed.purge_at(HISTORY_KEPT_MS));
        self.arm(key, ahead.min());
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
        let Some(event) = wanted.or_else(due) else { return };
        let Some(placement) = record.placement.clone() else { return };
        let now_ms = led.env.now.mono_ms;
        let waits =
            self.acting.len() >= ACTIONS_MAX || self.crowd.is_ahead(&placement.node, now_ms);
        if since_ms.is_none() && waits {
            return self.crowd.join(&placement.node, key, now_ms);
        }
        let acts = Acts { placement, since_ms: since_ms.unwrap_or(now_ms) };
        self.begin(led, key, (record, acts), managed, event);
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
