//! What may happen in a state, and what becomes of it.

use super::bounds::{STEP_MS, Times};
use super::clients::Wish;
use super::flying::Flying;
use super::left::Left;
use super::names::node_id;
use super::room::{Receiver, Room};
use super::state::{Action, State};
use super::work::{Fate, Told, Work};
use crate::invariant::Verdict;
use crate::mutants::Bug;
use crate::mutants::links;
use rota_model::ManagerNumber;
use rota_protocol::Manager;
use std::collections::VecDeque;

impl Room {
    /// Everything that may happen.
    pub fn actions(&self, state: &State) -> Vec<Action> {
        let mut list = Vec::new();
        self.of_messages(state, &mut list);
        let quiet = self.is_quiet(state);
        for at in 0..state.managers.len() {
            self.of_manager(state, at, &mut list);
        }
        if quiet && state.left.clocks.ticks > 0 {
            list.push(Action::Tick);
        }
        if self.parts.store(state).away {
            list.push(Action::Outage(false));
        } else if state.left.store.outages > 0 {
            list.push(Action::Outage(true));
        }
        self.of_nodes(state, &mut list);
        self.of_clients(state, &mut list);
        list
    }

    /// Whether nothing is under way: no message that somebody would take, no news of the config store,
    /// no write to a disk. A compare-and-set that nobody waits for may be written, or never.
    pub fn is_quiet(&self, state: &State) -> bool {
        let on_its_way = |number: &u32| {
            let message = self.parts.flying.get(*number);
            self.receiver(state, message).is_some()
        };
        !state.net.iter().any(on_its_way)
            && (0..state.managers.len()).all(|at| {
                !self.parts.has_news(state, at) && self.parts.manager(state, at).unsynced.is_empty()
            })
    }

    fn of_messages(&self, state: &State, list: &mut Vec<Action>) {
        let Left { network, store, nodes, .. } = &state.left;
        let (mut before, away) = (None, self.parts.store(state).away);
        for number in &state.net {
            if before.replace(*number) == Some(*number) {
                continue;
            }
            let message = self.parts.flying.get(*number);
            let is_orphan = matches!(message, Flying::Orphan { .. });
            let lands = if is_orphan { !away } else { self.receiver(state, message).is_some() };
            if !lands {
                continue;
            }
            list.push(Action::Arrive(*number));
            if matches!(message, Flying::Cas { .. }) {
                if store.unknowns > 0 {
                    list.push(Action::Unknown(*number));
                }
                if store.unheard > 0 && !away {
                    list.push(Action::Land(*number));
                }
                continue;
            }
            if matches!(message, Flying::Outcome { .. }) {
                continue;
            }
            let streamed = matches!(
                message,
                Flying::Peer(_) | Flying::ToNode { .. } | Flying::FromNode { .. }
            );
            if streamed && network.copies > 0 {
                list.push(Action::ArriveTwice(*number));
            }
            if network.losses > 0 && !is_orphan {
                list.push(Action::Lose(*number));
            }
            let calls = matches!(message, Flying::ToNode { .. });
            if nodes.resumes > 0 && calls && self.may_resume(state, message) {
                list.push(Action::ArriveTorn(*number));
            }
            let once = network.copies == self.bounds.left.network.copies;
            if network.refusals > 0 && once && matches!(message, Flying::ToNode { .. }) {
                list.push(Action::Refuse(*number));
            }
        }
    }

    fn of_manager(&self, state: &State, at: usize, list: &mut Vec<Action>) {
        let host = self.parts.manager(state, at);
        let Left { managers, operators, clocks, .. } = &state.left;
        let Some(process) = &host.process else {
            let known = host.run > 0;
            if known && managers.starts > 0 {
                list.push(Action::Start(at));
            } else if !known && operators.joins > 0 && !self.bounds.numbers.contains(&host.number.0)
            {
                list.push(Action::Join(at));
            }
            return;
        };
        let apart = self.bystanders.contains(&host.number);
        if managers.crashes > 0 && !apart && self.bounds.may_die(host.number) {
            list.push(Action::Crash(at, false));
            if managers.wipes > 0 {
                list.push(Action::Crash(at, true));
            }
        }
        if self.parts.has_news(state, at) {
            list.push(Action::Watch(at));
        }
        if !host.unsynced.is_empty() {
            list.push(Action::Synced(at));
        }
        if clocks.early > 0 && host.clock_ms == self.clock_ms(state) {
            list.push(Action::TickManager(at));
        }
        let accuses = self.bounds.may_accuse(host.number);
        let looks = process.is_claimed() || process.asks_others();
        for other in (0..state.managers.len()).filter(|it| *it != at && looks) {
            let peer = self.parts.manager(state, other);
            if apart || self.bystanders.contains(&peer.number) {
                continue;
            }
            let serves = process.view().and_then(|it| it.managers.get(&peer.number));
            if !serves.is_some_and(rota_ring::ManagerEntry::serves) {
                continue;
            }
            match &peer.process {
                None => list.push(Action::Notice(at, other)),
                Some(_) if managers.suspicions > 0 && accuses => {
                    list.push(Action::Suspect(at, other))
                }
                Some(_) => {}
            }
        }
        let is_leaver = host.number.0 == self.bounds.leaver;
        if operators.leaves > 0 && process.is_claimed() && !is_leaver {
            list.push(Action::Leave(at));
        }
        let under_way = process.view().is_some_and(|it| it.transition.is_some());
        if operators.cancels > 0 && process.is_claimed() && under_way {
            list.push(Action::Cancel(at));
        }
        self.drains(state, at, list);
    }

    /// Operators use the doors of clients.
    fn drains(&self, state: &State, at: usize, list: &mut Vec<Action>) {
        let host = self.parts.manager(state, at);
        let claimed = host.process.as_ref().is_some_and(Manager::is_claimed);
        if state.left.operators.drains > 0 && claimed && self.bounds.doors.contains(&host.number.0)
        {
            let nodes = &self.parts.store(state).state.nodes;
            let serves = |node: &usize| {
                let reg = nodes.get(&node_id(*node));
                reg.is_some_and(|it| it.wish.is_none() && !it.state.is_gone())
            };
            let serving = (0..state.nodes.len()).filter(serves);
            list.extend(serving.map(|node| Action::Drain(at, node)));
        }
    }

    fn of_nodes(&self, state: &State, list: &mut Vec<Action>) {
        let Left { nodes, clocks, .. } = &state.left;
        for at in 0..state.nodes.len() {
            let host = self.parts.node(state, at);
            if nodes.boots > 0 && host.agent.is_registered() {
                list.push(Action::Boot(at));
            }
            if nodes.resumes > 0 && host.agent.is_registered() {
                list.push(Action::Resume(at));
            }
            let leased = self.bounds.times == Times::Lease;
            if clocks.early > 0 && leased && host.clock_ms == self.clock_ms(state) {
                list.push(Action::TickNode(at));
            }
            if nodes.silences > 0 && !host.silent {
                list.push(Action::Silence(at));
            }
            if nodes.returns > 0 && host.silent {
                list.push(Action::Heard(at));
            }
            if nodes.ends > 0 {
                list.extend((0..host.programs.len()).map(|it| Action::End(at, it)));
            }
        }
    }

    fn of_clients(&self, state: &State, list: &mut Vec<Action>) {
        let may = &state.left.clients;
        let claimed = |door: &ManagerNumber| {
            let at = self.place_of(*door);
            let process = at.and_then(|it| self.parts.manager(state, it).process.as_ref());
            process.is_some_and(Manager::is_claimed)
        };
        let doors = self.bounds.doors.iter().map(|it| ManagerNumber(*it));
        for door in doors.filter(claimed) {
            for id in 0..self.keys.len() {
                for (wish, left) in [(Wish::Open, may.opens), (Wish::Close, may.closes)] {
                    if left > 0 {
                        list.push(Action::Ask(wish, id, door));
                    }
                }
            }
            let asked = self.parts.clients_of(state).asked.iter().enumerate();
            let again = asked.filter(|(call, asked)| {
                may.repeats > 0 && asked.of == *call && asked.before.is_some() && asked.door != door
            });
            list.extend(again.map(|(call, _)| Action::AskAgain(call, door)));
        }
        let readers = self.bounds.readers.iter().map(|it| ManagerNumber(*it));
        for reader in readers.filter(|it| may.gets > 0 && claimed(it)) {
            list.extend((0..self.keys.len()).map(|id| Action::Ask(Wish::Get, id, reader)));
        }
    }

    /// Does it.
    ///
    /// # Errors
    /// Something that must never happen.
    pub fn act(&mut self, state: &mut State, action: Action) -> Verdict {
        match action {
            Action::Arrive(number) => {
                state.land(number);
                self.arrive(state, number)
            }
            Action::ArriveTwice(number) => {
                state.left.network.copies -= 1;
                self.arrive(state, number)
            }
            Action::Lose(number) => {
                state.left.network.losses -= 1;
                state.land(number);
                Ok(())
            }
            Action::Refuse(number) => self.refuse(state, number),
            Action::Crash(at, wiped) => {
                state.left.managers.crashes -= 1;
                state.left.managers.wipes -= u8::from(wiped);
                self.work(state, Work::Manager(at, Told::Crash(wiped)))
            }
            Action::Start(at) => {
                state.left.managers.starts -= 1;
                self.work(state, Work::Manager(at, Told::Start))
            }
            Action::Notice(at, other) => {
                let number = self.parts.manager(state, other).number;
                self.work(state, Work::Manager(at, Told::Refused(number)))
            }
            Action::Suspect(at, other) => {
                state.left.managers.suspicions -= 1;
                let number = self.parts.manager(state, other).number;
                self.work(state, Work::Manager(at, Told::Refused(number)))
            }
            Action::Watch(at) => self.work(state, Work::Manager(at, Told::Watch)),
            Action::Synced(at) => self.work(state, Work::Manager(at, Told::Synced)),
            Action::Unknown(number) => self.unknown(state, number),
            Action::Land(number) => {
                state.left.store.unheard -= 1;
                self.land(state, number)
            }
            Action::Tick => {
                state.left.clocks.ticks -= 1;
                self.tick(state)
            }
            Action::TickManager(at) => {
                state.left.clocks.early -= 1;
                let clock_ms = self.clock_ms(state) + STEP_MS;
                self.work(state, Work::Manager(at, Told::Clock(clock_ms)))
            }
            Action::TickNode(at) => {
                state.left.clocks.early -= 1;
                let clock_ms = self.clock_ms(state) + STEP_MS;
                self.work(state, Work::Node(at, Told::Clock(clock_ms), false))
            }
            Action::Ask(..)
            | Action::AskAgain(..)
            | Action::Join(_)
            | Action::Leave(_)
            | Action::Cancel(_)
            | Action::Drain(..)
            | Action::Boot(_)
            | Action::Resume(_)
            | Action::ArriveTorn(_)
            | Action::End(..)
            | Action::Silence(_)
            | Action::Heard(_)
            | Action::Outage(_) => self.act_outside(state, action),
        }
    }

    /// What clients, operators and nodes do.
    fn act_outside(&mut self, state: &mut State, action: Action) -> Verdict {
        match action {
            Action::Ask(wish, id, door) => {
                match wish {
                    Wish::Open => state.left.clients.opens -= 1,
                    Wish::Close => state.left.clients.closes -= 1,
                    Wish::Get => state.left.clients.gets -= 1,
                }
                self.ask(state, wish, id, door).map(drop)
            }
            Action::AskAgain(call, door) => {
                state.left.clients.repeats -= 1;
                let mut clients = self.parts.clients_of(state).clone();
                let again = clients.ask_again(call, door);
                state.clients = self.parts.keep_clients(clients);
                self.call(state, again, door)
            }
            Action::Join(at) => {
                state.left.operators.joins -= 1;
                self.work(state, Work::Manager(at, Told::Start))
            }
            Action::Leave(at) => {
                state.left.operators.leaves -= 1;
                let number = ManagerNumber(self.bounds.leaver);
                self.work(state, Work::Manager(at, Told::Leave(number)))
            }
            Action::Cancel(at) => {
                state.left.operators.cancels -= 1;
                self.work(state, Work::Manager(at, Told::Cancel))
            }
            Action::Drain(at, node) => {
                state.left.operators.drains -= 1;
                self.may_end_on(state, node);
                self.work(state, Work::Manager(at, Told::Drain(node)))
            }
            Action::Boot(at) => {
                state.left.nodes.boots -= 1;
                self.may_end(state);
                self.work(state, Work::Node(at, Told::Boot, false))
            }
            Action::Resume(at) => {
                state.left.nodes.resumes -= 1;
                self.work(state, Work::Node(at, Told::Resume, false))
            }
            Action::ArriveTorn(number) => self.arrive_torn(state, number),
            Action::End(at, program) => self.end(state, at, program),
            Action::Silence(at) => self.cut_off(state, at),
            Action::Heard(at) => {
                state.left.nodes.returns -= 1;
                self.work(state, Work::Node(at, Told::Silence(false), false))
            }
            Action::Outage(away) => {
                state.left.store.outages -= u8::from(away);
                self.set_away(state, away)
            }
            Action::Arrive(_)
            | Action::ArriveTwice(_)
            | Action::Lose(_)
            | Action::Refuse(_)
            | Action::Crash(..)
            | Action::Start(_)
            | Action::Notice(..)
            | Action::Suspect(..)
            | Action::Watch(_)
            | Action::Unknown(_)
            | Action::Land(_)
            | Action::Synced(_)
            | Action::Tick
            | Action::TickManager(_)
            | Action::TickNode(_) => Ok(()),
        }
    }

    /// A link throws a call away of which nothing was sent, and says so.
    fn refuse(&mut self, state: &mut State, number: u32) -> Verdict {
        state.left.network.refusals -= 1;
        let Flying::ToNode { from, node, message } = self.parts.flying.get(number).clone() else {
            return Ok(());
        };
        if self.bug != Some(Bug::UnsentAssumed) {
            state.land(number);
        }
        let Some(at) = self.place_of_run(state, from) else { return Ok(()) };
        let told = match links::taken_back(self.bug, &node_id(node), &message) {
            Some(answer) => {
                let answer = Flying::FromNode { to: from, node, answer };
                Told::Flying(self.parts.keep_flying(answer))
            }
            None => Told::Unreached(node, message.head().call),
        };
        self.work(state, Work::Manager(at, told))
    }

    /// An agent dies while a message has half of its effect.
    fn arrive_torn(&mut self, state: &mut State, number: u32) -> Verdict {
        state.left.nodes.resumes -= 1;
        state.land(number);
        match self.receiver(state, self.parts.flying.get(number)) {
            Some(Receiver::Node(at)) => self.work(state, Work::Node(at, Told::Torn(number), false)),
            Some(Receiver::Manager(_)) | None => Ok(()),
        }
    }

    fn cut_off(&mut self, state: &mut State, at: usize) -> Verdict {
        state.left.nodes.silences -= 1;
        self.silence(state, at)
    }

    /// Whether the agent that a message reaches has a journal to go on from.
    fn may_resume(&self, state: &State, message: &Flying) -> bool {
        match self.receiver(state, message) {
            Some(Receiver::Node(at)) => self.parts.node(state, at).agent.is_registered(),
            Some(Receiver::Manager(_)) | None => false,
        }
    }

    fn end(&mut self, state: &mut State, at: usize, program: usize) -> Verdict {
        state.left.nodes.ends -= 1;
        self.may_end(state);
        let name = self.parts.node(state, at).programs.keys().nth(program).cloned();
        let Some((key, token)) = name else { return Ok(()) };
        self.work(state, Work::Node(at, Told::End(key, token), false))
    }

    /// A node is cut off.
    ///
    /// # Errors
    /// Something that must never happen.
    pub fn silence(&mut self, state: &mut State, at: usize) -> Verdict {
        self.may_end(state);
        self.work(state, Work::Node(at, Told::Silence(true), false))
    }

    /// A client asks. Gives its call.
    ///
    /// # Errors
    /// Something that must never happen.
    pub fn ask(
        &mut self,
        state: &mut State,
        wish: Wish,
        id: usize,
        door: ManagerNumber,
    ) -> Result<usize, crate::invariant::Violation> {
        let mut clients = self.parts.clients_of(state).clone();
        let call = clients.ask(wish, id, door);
        state.clients = self.parts.keep_clients(clients);
        self.call(state, Some(call), door)?;
        Ok(call)
    }

    fn call(&mut self, state: &mut State, call: Option<usize>, door: ManagerNumber) -> Verdict {
        match (call, self.place_of(door)) {
            (Some(call), Some(at)) => self.work(state, Work::Manager(at, Told::Call(call))),
            (None, _) | (_, None) => Ok(()),
        }
    }

    /// What runs on a node, or is meant to, may end with it.
    pub fn may_end(&mut self, state: &mut State) {
        let mut clients = self.parts.clients_of(state).clone();
        (0..self.keys.len()).for_each(|id| clients.may_end(id));
        state.clients = self.parts.keep_clients(clients);
    }

    /// What runs on that node may end, and what runs nowhere may be about to run there.
    fn may_end_on(&mut self, state: &mut State, node: usize) {
        let mut clients = self.parts.clients_of(state).clone();
        for id in 0..self.keys.len() {
            let runs = |at: &usize| {
                let programs = self.parts.node(state, *at).programs.keys();
                programs.into_iter().any(|(key, _)| *key == self.keys[id])
            };
            if !(0..state.nodes.len()).filter(|it| *it != node).any(|it| runs(&it)) {
                clients.may_end(id);
            }
        }
        state.clients = self.parts.keep_clients(clients);
    }

    fn arrive(&mut self, state: &mut State, number: u32) -> Verdict {
        let message = self.parts.flying.get(number);
        match message {
            Flying::Orphan { from, .. } => {
                let from = *from;
                self.write(state, from, number)?;
                self.forget_dead(state);
                Ok(())
            }
            Flying::Cas { from, cas, .. } => {
                let (from, cas) = (*from, *cas);
                let done = self.write(state, from.0, number)?;
                let fate = self.parts.fate(state, done);
                match self.place_of_run(state, from) {
                    Some(at) => self.work(state, Work::Manager(at, Told::Cas(cas, fate))),
                    None => Ok(()),
                }
            }
            Flying::Peer(_)
            | Flying::ToNode { .. }
            | Flying::FromNode { .. }
            | Flying::Outcome { .. }
            | Flying::Register { .. }
            | Flying::Registered { .. }
            | Flying::Renew { .. }
            | Flying::Renewed { .. }
            | Flying::Report { .. }
            | Flying::ReportAcked { .. } => match self.receiver(state, message) {
                Some(Receiver::Manager(at)) => {
                    self.work(state, Work::Manager(at, Told::Flying(number)))
                }
                Some(Receiver::Node(at)) => {
                    self.work(state, Work::Node(at, Told::Flying(number), false))
                }
                None => Ok(()),
            },
        }
    }

    fn unknown(&mut self, state: &mut State, number: u32) -> Verdict {
        state.left.store.unknowns -= 1;
        let Flying::Cas { from, cas, change } = self.parts.flying.get(number).clone() else {
            return Ok(());
        };
        state.land(number);
        let orphan = self.parts.keep_flying(Flying::Orphan { from: from.0, change });
        state.fly(orphan);
        match self.place_of_run(state, from) {
            Some(at) => self.work(state, Work::Manager(at, Told::Cas(cas, Fate::Unknown))),
            None => Ok(()),
        }
    }

    /// A compare-and-set is done, and its manager is told later.
    ///
    /// # Errors
    /// What it writes must not be written.
    pub fn land(&mut self, state: &mut State, number: u32) -> Verdict {
        let Flying::Cas { from, cas, .. } = *self.parts.flying.get(number) else { return Ok(()) };
        state.land(number);
        let done = self.write(state, from.0, number)?;
        let held = Box::new(self.parts.store(state).state.clone());
        let outcome = self.parts.keep_flying(Flying::Outcome { to: from, cas, done, held });
        state.fly(outcome);
        self.work_all(state, VecDeque::new())
    }

    /// All clocks go on by a step; whoever was ahead is level again.
    ///
    /// # Errors
    /// Something that must never happen.
    pub fn tick(&mut self, state: &mut State) -> Verdict {
        state.ticks += 1;
        let clock_ms = self.clock_ms(state);
        for at in 0..state.managers.len() {
            self.work(state, Work::Manager(at, Told::Clock(clock_ms)))?;
        }
        for at in 0..state.nodes.len() {
            self.work(state, Work::Node(at, Told::Clock(clock_ms), false))?;
        }
        Ok(())
    }
}
