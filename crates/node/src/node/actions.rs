//! Actions of sessions that live here: one at a time for each session, and each caller hears how its own ended.
//!
//! Nothing of this is written down for the next agent. An action ends with its agent, and its manager asks again.

use super::Node;
use super::calls::Attempt;
use crate::io::{NodeEffect, NodeInput};
use crate::live::Stage;
use rota_model::node_msg::{Action, ActionEnd, NodeAnswer};
use rota_model::{SessionKey, Token};
use std::collections::{BTreeMap, VecDeque};

/// Most actions of one session that wait for the one that runs. A manager asks for one at a time; with less, the
/// repetitions of an earlier owner could keep a later one out.
pub const ACTIONS_WAITING_MAX: usize = 16;

/// The actions of all sessions.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Actions {
    of: BTreeMap<SessionKey, Asked>,
}

/// What was asked for of one session, the one that runs first.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Asked {
    token: Token,
    actions: VecDeque<Pending>,
}

/// An action, and who waits for its end.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Pending {
    action: Action,
    waiters: VecDeque<ActionWaiter>,
}

/// Stream and call.
type ActionWaiter = (u64, u64);

/// What follows from a call for an action.
enum Taken {
    /// It waits, or is one that is under way.
    Waits,
    /// It is the only one, and is to begin.
    Begins,
    /// Too many wait already.
    Busy,
}

impl Pending {
    fn is(&self, life_cycle: &str, word: &str) -> bool {
        (self.action.life_cycle.as_str(), self.action.word.as_str()) == (life_cycle, word)
    }

    fn wait(&mut self, waiter: ActionWaiter, waiters_max: usize) {
        if self.waiters.contains(&waiter) {
            return;
        }
        if self.waiters.len() >= waiters_max {
            self.waiters.pop_front();
        }
        self.waiters.push_back(waiter);
    }
}

impl Actions {
    /// Somebody asks for an action of an attempt that runs.
    fn ask(
        &mut self,
        (key, token): (&SessionKey, Token),
        action: &Action,
        waiter: ActionWaiter,
        waiters_max: usize,
    ) -> Taken {
        let asked = self.of.entry(key.clone());
        let asked = asked.or_insert_with(|| Asked { token, actions: VecDeque::new() });
        let mut known = asked.actions.iter_mut();
        if let Some(same) = known.find(|it| it.is(&action.life_cycle, &action.word)) {
            same.wait(waiter, waiters_max);
            return Taken::Waits;
        }
        if asked.actions.len() > ACTIONS_WAITING_MAX {
            return Taken::Busy;
        }
        let waiters = VecDeque::from([waiter]);
        asked.actions.push_back(Pending { action: action.clone(), waiters });
        if asked.actions.len() == 1 { Taken::Begins } else { Taken::Waits }
    }

    /// The action that runs has ended. Gives who waited for it; `None` when another one runs.
    fn ended(
        &mut self,
        (key, token): (&SessionKey, Token),
        (life_cycle, word): (&str, &str),
    ) -> Option<VecDeque<ActionWaiter>> {
        let asked = self.of.get_mut(key).filter(|it| it.token == token)?;
        let ended = asked.actions.pop_front_if(|it| it.is(life_cycle, word))?;
        Some(ended.waiters)
    }

    /// The action of a session that is to run now. A session of which none is left is forgotten.
    fn first(&mut self, key: &SessionKey) -> Option<(Token, Action)> {
        let first = self.of.get(key).and_then(|it| Some((it.token, it.actions.front()?)));
        let first = first.map(|(token, it)| (token, it.action.clone()));
        if first.is_none() {
            self.of.remove(key);
        }
        first
    }

    /// The session is over. Gives who waited for an action of it.
    pub(super) fn end(&mut self, key: &SessionKey) -> impl Iterator<Item = ActionWaiter> + use<> {
        let asked = self.of.remove(key);
        asked.into_iter().flat_map(|it| it.actions).flat_map(|it| it.waiters)
    }

    /// Nobody hears answers on that stream any more. What runs goes on.
    pub(super) fn close_stream(&mut self, stream: u64) {
        for pending in self.of.values_mut().flat_map(|it| it.actions.iter_mut()) {
            pending.waiters.retain(|(of, _)| *of != stream);
        }
    }
}

impl Node {
    /// `None`: the answer comes when the action has ended.
    pub(super) fn on_act(
        &mut self,
        attempt: &Attempt<'_>,
        waiter: (u64, u64),
        action: &Action,
    ) -> Option<NodeAnswer> {
        let Attempt { key, token, .. } = *attempt;
        match self.live.of(key, token).map(|it| it.stage) {
            Some(Stage::Running) => {}
            Some(Stage::Starting { .. }) => return Some(not_running("the session starts")),
            Some(Stage::Stopping { .. }) => return Some(not_running("the session is being ended")),
            None => return Some(not_running("this attempt does not live here")),
        }
        let waiters_max = self.config.bounds.waiters_max;
        match self.actions.ask((key, token), action, waiter, waiters_max) {
            Taken::Waits => None,
            Taken::Begins => {
                self.begin_action(key);
                None
            }
            Taken::Busy => {
                let report = format!("{ACTIONS_WAITING_MAX} actions of the session wait already");
                Some(failed("BUSY", &report))
            }
        }
    }

    /// Runtime: an action has ended.
    pub(super) fn on_acted(&mut self, input: NodeInput) {
        let NodeInput::Acted { key, token, life_cycle, word, end } = input else { return };
        let Some(waiters) = self.actions.ended((&key, token), (&life_cycle, &word)) else {
            return;
        };
        for (stream, call) in waiters {
            self.answer(stream, call, NodeAnswer::Acted { end: end.clone() });
        }
        match self.live.of(&key, token).map(|it| it.stage) {
            Some(Stage::Running) => self.begin_action(&key),
            Some(Stage::Starting { .. } | Stage::Stopping { .. }) | None => self.end_actions(&key),
        }
    }

    /// The session is over: whoever waits for an action of it is told so.
    pub(super) fn end_actions(&mut self, key: &SessionKey) {
        for (stream, call) in self.actions.end(key) {
            self.answer(stream, call, not_running("the session ended"));
        }
    }

    fn begin_action(&mut self, key: &SessionKey) {
        let Some((token, action)) = self.actions.first(key) else { return };
        let spec = self.live.of(key, token).map(|it| it.spec.clone());
        let Some(spec) = spec else { return };
        let action = Box::new(action);
        self.effects.push(NodeEffect::Act { key: key.clone(), token, spec, action });
    }
}

fn not_running(why: &str) -> NodeAnswer {
    failed("NOT-RUNNING", why)
}

fn failed(code: &str, report: &str) -> NodeAnswer {
    NodeAnswer::Acted {
        end: ActionEnd::Failed { code: code.to_owned(), report: report.to_owned() },
    }
}
