//! Life cycles under chaos: nodes run the actions of sessions, which take their time and fail.

use crate::event::Event;
use crate::ledger::Ran;
use crate::mutants::bug::Bug;
use crate::site::AtNode;
use rota_model::node_msg::{Action, ActionEnd};
use rota_model::{SessionKey, Token};
use rota_node::NodeInput;
use xxhash_rust::xxh3::xxh3_64;

impl AtNode<'_> {
    /// The runtime runs an action. How long it takes, and how it ends, follows from what it is.
    pub fn start_action(&mut self, key: SessionKey, token: Token, action: Action) {
        let now_us = self.ground.now_us();
        let (index, run, (node, boot)) = (self.index, self.host.run, self.host.name());
        let Action { life_cycle, word, failures, .. } = action;
        let hash = xxh3_64(format!("{key} {word} {failures}").as_bytes());
        let takes_us = if hash.is_multiple_of(8) { 2_000_000 } else { 1_000 + hash % 200_000 };
        let is_done = failures >= 2 || !hash.is_multiple_of(5);
        let name = word.clone();
        let input = |end| NodeInput::Acted {
            key: key.clone(),
            token,
            life_cycle: life_cycle.clone(),
            word: word.clone(),
            end,
        };
        if self.bug() == Some(Bug::ActionUnrun) {
            let end = ActionEnd::Done { output: String::new() };
            return self.hears(takes_us, input(end));
        }
        let line = || format!("RUNS the action {name} of {key} token {token}");
        self.ground.trace.line(now_us, self.place(), line);
        let ran = Ran {
            key: key.clone(),
            token,
            index,
            node,
            boot,
            word: word.clone(),
            from_us: now_us,
            to_us: None,
            is_done,
        };
        let verdict =
            crate::invariant::actions_alone::check_start(&self.ground.checker.ledger, &ran);
        self.ground.checker.judge(now_us, verdict);
        let number = self.ground.checker.ledger.actions.ran.len();
        self.ground.checker.ledger.actions.ran.push(ran);
        let end = match is_done {
            true => ActionEnd::Done { output: String::new() },
            false => ActionEnd::Failed { code: "EXIT-3".to_owned(), report: "no".to_owned() },
        };
        self.ground.queue.after(takes_us, Event::Acted(index, run, number, Box::new(input(end))));
    }

    /// The runtime runs no action beside a program that has ended.
    pub fn refuse_action(&mut self, key: SessionKey, token: Token, action: Action) {
        let Action { life_cycle, word, .. } = action;
        let (code, report) = ("NOT-RUNNING".to_owned(), "its program ended".to_owned());
        let end = ActionEnd::Failed { code, report };
        self.hears(100, NodeInput::Acted { key, token, life_cycle, word, end });
    }
}
