//! Life cycles under chaos: nodes run the actions of sessions, which take their time and fail. And what is still to
//! happen at the end.

use crate::event::Event;
use crate::ledger::{Fired, Ran};
use crate::mutants::Bug;
use crate::network::Place;
use crate::setup::ACTS;
use crate::world::World;
use rota_lifecycle::Managed;
use rota_model::node_msg::{Action, ActionEnd, ToNode};
use rota_model::{BootId, SessionKey, Stamp, Token};
use rota_node::NodeInput;
use rota_protocol::life_documents::{life_session, managed_in};
use xxhash_rust::xxh3::xxh3_64;

impl World {
    /// The runtime runs an action. How long it takes, and how it ends, follows from what it is.
    pub fn start_action(
        &mut self,
        index: usize,
        run: u64,
        key: SessionKey,
        token: Token,
        action: Action,
    ) {
        let now_us = self.ground.now_us();
        let Some(host) = self.nodes.get(index) else { return };
        let (node, boot) = host.name();
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
        if self.plant_leaves_actions() {
            let end = ActionEnd::Done { output: String::new() };
            self.ground.queue.after(takes_us, Event::TellNode(index, run, Box::new(input(end))));
            return;
        }
        let line = || format!("RUNS the action {name} of {key} token {token}");
        self.ground.trace.line(now_us, Place::Node(index), line);
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
        let number = self.ground.checker.ledger.actions.len();
        self.ground.checker.ledger.actions.push(ran);
        let end = match is_done {
            true => ActionEnd::Done { output: String::new() },
            false => ActionEnd::Failed { code: "EXIT-3".to_owned(), report: "no".to_owned() },
        };
        self.ground.queue.after(takes_us, Event::Acted(index, run, number, Box::new(input(end))));
    }

    /// The runtime runs no action beside a program that has ended.
    pub fn refuse_action(
        &mut self,
        index: usize,
        run: u64,
        key: SessionKey,
        token: Token,
        action: Action,
    ) {
        let Action { life_cycle, word, .. } = action;
        let (code, report) = ("NOT-RUNNING".to_owned(), "its program ended".to_owned());
        let end = ActionEnd::Failed { code, report };
        let input = NodeInput::Acted { key, token, life_cycle, word, end };
        self.ground.queue.after(100, Event::TellNode(index, run, Box::new(input)));
    }

    /// A node with a planted bug runs an action that it should not run.
    pub(crate) fn plant_on_action(&mut self, index: usize, message: &ToNode) {
        let ToNode::Act { key, token, action, .. } = message else { return };
        let of = |it: &&Ran| it.index == index && it.token == *token && it.word == action.word;
        let runs =
            self.ground.checker.ledger.actions.iter().filter(of).any(|it| it.to_us.is_none());
        let instances = &self.ground.checker.ledger.instances;
        let is_live = instances.iter().any(|it| it.token == *token && it.to.is_none());
        let is_wrong = match self.bug() {
            Some(Bug::ActionTwice) => runs,
            Some(Bug::ActionUnguarded) => !is_live,
            Some(_) | None => false,
        };
        let run = self.nodes.get(index).filter(|_| is_wrong).map(|it| it.run);
        if let Some(run) = run {
            self.start_action(index, run, key.clone(), *token, (**action).clone());
        }
    }

    /// An action comes to its end, if nothing ended it before.
    pub fn on_acted(&mut self, index: usize, run: u64, number: usize, input: NodeInput) {
        let now_us = self.ground.now_us();
        let Some(ran) = self.ground.checker.ledger.actions.get_mut(number) else { return };
        if ran.to_us.is_none() {
            ran.to_us = Some(now_us);
            self.tell_node(index, run, input);
        }
    }

    /// The agent of a machine is gone, and what it ran of actions.
    pub fn end_actions_on(&mut self, index: usize) {
        self.end_actions(|it| it.index == index);
    }

    /// An attempt of a session has ended, and its action with it. Two machines may have one id.
    pub fn end_actions_of(&mut self, boot: BootId, token: Token) {
        self.end_actions(|it| (it.boot, it.token) == (boot, token));
    }

    fn end_actions(&mut self, is_meant: impl Fn(&Ran) -> bool) {
        let now_us = self.ground.now_us();
        let of = |it: &&mut Ran| it.to_us.is_none() && is_meant(it);
        for ran in self.ground.checker.ledger.actions.iter_mut().filter(of) {
            (ran.to_us, ran.is_done) = (Some(now_us), false);
        }
    }

    /// The life cycles of every partition, as their owners hold them.
    fn life_cycles(&self) -> Vec<(SessionKey, Managed, Stamp)> {
        let Some(view) = &self.store.state().view else { return Vec::new() };
        let mut found = Vec::new();
        for (number, host) in &self.managers {
            let now = Stamp::from_epoch_ms(host.wall_ms(self.ground.now_us()));
            for (key, doc) in &host.disk.durable().docs {
                if view.part_of(key.slot).1.owner != *number {
                    continue;
                }
                let session = life_session(&key.name);
                found.extend(session.zip(managed_in(doc)).map(|(it, managed)| (it, managed, now)));
            }
        }
        found
    }

    fn session_runs(&self, key: &SessionKey) -> bool {
        let instances = &self.ground.checker.ledger.instances;
        instances.iter().any(|it| it.key == *key && it.to.is_none())
    }

    /// Something that is due and has not fired, of a session that runs, at the end.
    pub fn event_waits(&self) -> Option<String> {
        let mut all = self.life_cycles().into_iter().filter(|(_, managed, _)| !managed.has_ended());
        all.find_map(|(key, managed, now)| {
            let due = managed.due(now.minus_ms(500)).into_iter().next()?;
            let text = format!("{} {} of {key} is due and has not fired", due.life_cycle, due.word);
            self.session_runs(&key).then_some(text)
        })
    }

    /// Whether an event of a session that runs is still to fire, or its action to be tried again.
    pub fn events_come(&self) -> bool {
        let comes = |managed: &Managed| !managed.has_ended() && managed.next_at().is_some();
        let events =
            self.life_cycles().iter().any(|(key, it, _)| comes(it) && self.session_runs(key));
        events || self.actions_are_tried_again()
    }

    /// What actions have succeeded, as life cycles say at the end.
    pub fn note_fired(&mut self) {
        let all = self.life_cycles();
        let fired = all.iter().flat_map(|(key, managed, _)| {
            let held = managed.items().filter(|(_, it)| it.fired.is_some()).map(|it| it.0);
            let past = managed.history().iter().filter(|it| it.fired.is_some()).map(|it| &it.item);
            let items = held.chain(past).filter(|it| it.life_cycle().as_str() == ACTS);
            items.map(|it| Fired { key: key.clone(), word: it.last().to_string() })
        });
        self.ground.checker.ledger.fired = fired.collect();
    }
}
