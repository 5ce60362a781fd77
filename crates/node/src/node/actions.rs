//! Actions of sessions that live here: one at a time for each session, and each caller hears how its own ended.
//!
//! Nothing of this is written down for the next agent. An action ends with its agent, and its manager asks again.

use super::Node;
use super::calls::Attempt;
use crate::io::{NodeEffect, NodeInput};
use crate::live::Stage;
use rota_model::node_msg::{Action, ActionEnd, NodeAnswer};
use rota_model::{SessionKey, Token};
use std::collections::VecDeque;

/// Most actions of one session that wait for the one that runs. A manager asks for one at a time; with less, the
/// repetitions of an earlier owner could keep a later one out.
pub const ACTIONS_WAITING_MAX: usize = 16;

/// What was asked for of one session, the one that runs first.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Asked {
    token: Token,
    actions: VecDeque<Pending>,
}

/// An action, and who waits for its end.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Pending {
    action: Action,
    /// Stream and call.
    waiters: VecDeque<(u64, u64)>,
}

impl Pending {
    fn is(&self, life_cycle: &str, word: &str) -> bool {
        (self.action.life_cycle.as_str(), self.action.word.as_str()) == (life_cycle, word)
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
        let asked = self.actions.entry(key.clone());
        let asked = asked.or_insert_with(|| Asked { token, actions: VecDeque::new() });
        let mut known = asked.actions.iter_mut();
        if let Some(same) = known.find(|it| it.is(&action.life_cycle, &action.word)) {
            if !same.waiters.contains(&waiter) {
                if same.waiters.len() >= waiters_max {
                    same.waiters.pop_front();
                }
                same.waiters.push_back(waiter);
            }
            return None;
        }
        if asked.actions.len() > ACTIONS_WAITING_MAX {
            let report = format!("{ACTIONS_WAITING_MAX} actions of the session wait already");
            return Some(failed("BUSY", &report));
        }
        let waiters = VecDeque::from([waiter]);
        asked.actions.push_back(Pending { action: action.clone(), waiters });
        if asked.actions.len() == 1 {
            self.begin_action(key);
        }
        None
    }

    /// Runtime: an action has ended.
    pub(super) fn on_acted(&mut self, input: NodeInput) {
        let NodeInput::Acted { key, token, life_cycle, word, end } = input else { return };
        let Some(asked) = self.actions.get_mut(&key).filter(|it| it.token == token) else {
            return;
        };
        let is_first = asked.actions.front().is_some_and(|it| it.is(&life_cycle, &word));
        let Some(ended) = asked.actions.pop_front_if(|_| is_first) else { return };
        for (stream, call) in ended.waiters {
            self.answer(stream, call, NodeAnswer::Acted { end: end.clone() });
        }
        match self.live.of(&key, token).map(|it| it.stage) {
            Some(Stage::Running) => self.begin_action(&key),
            Some(Stage::Starting { .. } | Stage::Stopping { .. }) | None => self.end_actions(&key),
        }
    }

    /// The session is over: whoever waits for an action of it is told so.
    pub(super) fn end_actions(&mut self, key: &SessionKey) {
        let asked = self.actions.remove(key);
        for pending in asked.into_iter().flat_map(|it| it.actions) {
            for (stream, call) in pending.waiters {
                self.answer(stream, call, not_running("the session ended"));
            }
        }
    }

    /// Nobody hears answers on that stream any more. What runs goes on.
    pub(super) fn actions_without(&mut self, stream: u64) {
        for pending in self.actions.values_mut().flat_map(|it| it.actions.iter_mut()) {
            pending.waiters.retain(|(of, _)| *of != stream);
        }
    }

    fn begin_action(&mut self, key: &SessionKey) {
        let first = self.actions.get(key).and_then(|it| Some((it.token, it.actions.front()?)));
        let Some((token, first)) = first else {
            self.actions.remove(key);
            return;
        };
        let action = Box::new(first.action.clone());
        let spec = self.live.of(key, token).map(|it| it.spec.clone());
        let Some(spec) = spec else { return };
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
