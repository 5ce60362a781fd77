//! The ring as its first text describes it: a full mesh of managers, each with a list of its own; a
//! session lives at the first available manager at or after its number, which tells r successors
//! before and after it asks a node; a signal says who is gone; a new manager gets everything from
//! its successor and tells everybody that it knows.
//!
//! One id, whose number is A's, and a node for each attempt. Where the text leaves something open it is read in
//! its favour: what a joining manager gets comes at once, an asker learns at once whether somebody
//! is there, and nobody who is asked keeps a wrong memory over a restart, unless a [`Text`] has disks. Where
//! one flaw would hide another, a [`Text`] has the first mended.

mod message;

use message::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A manager, in ring order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Who {
    /// The one at the id's number.
    A,
    /// The next.
    B,
    /// The next.
    C,
    /// The last.
    D,
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What a manager knows of the session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Record {
    /// Which of the attempts to create it.
    pub instance: u8,
    /// Its node.
    pub node: u8,
    /// Who creates it.
    pub creator: Who,
    /// It was created; before that it is only meant to be.
    pub made: bool,
}

/// A session that a manager creates.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Opening {
    node: u8,
    /// Successors that have not confirmed.
    missing: BTreeSet<Who>,
}

/// A manager.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
struct Manager {
    up: bool,
    /// Its list: who is in the ring, and who of them is there.
    list: BTreeMap<Who, bool>,
    record: Option<Record>,
    openings: BTreeMap<u8, Opening>,
    /// Sessions that it closes, and successors that have not confirmed that.
    closings: BTreeMap<u8, BTreeSet<Who>>,
}

/// How often something may still happen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Left {
    /// Clients ask for the session.
    pub opens: u8,
    /// Clients close it.
    pub closes: u8,
    /// Managers crash.
    pub crashes: u8,
    /// Managers wait no longer for their successors.
    pub timeouts: u8,
    /// Messages between managers are lost.
    pub losses: u8,
    /// Somebody is called gone who is only slow.
    pub false_signals: u8,
    /// Managers join, or are restored.
    pub joins: u8,
}

/// The cluster at one moment.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct State {
    managers: BTreeMap<Who, Manager>,
    network: BTreeSet<Message>,
    running: BTreeSet<u8>,
    instances: u8,
    /// Sessions whose address a client was told, and none was asked to close.
    told: BTreeSet<u8>,
    /// Sessions of which a client was told that they are closed.
    closed: BTreeSet<u8>,
    told_after_close: bool,
    /// A client was told of a session, which runs, and was refused its close.
    refused: bool,
    left: Left,
}

/// What the text leaves to whoever builds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Text {
    /// Successors that hold a copy.
    pub r: usize,
    /// The owner first looks whether it knows the session. The text does not say so, and surely
    /// means it.
    pub looks_first: bool,
    /// The owner and its successors are told of a close, and the client is answered when they have
    /// confirmed it. The text tells successors of creations only.
    pub tells_closes: bool,
    /// A close comes after whatever else is under way to the same manager about that session.
    pub in_order: bool,
    /// Who returns has what its disk holds, unless its successor knows better.
    pub disks: bool,
    /// Managers join while nothing is under way, and everybody hears of that at once.
    pub joins_at_rest: bool,
    /// A join makes others drop copies of all sessions of which there are too many then. The text
    /// says so of those that move to the newcomer.
    pub drops_all: bool,
}

impl State {
    /// A ring of those managers, all of which know each other.
    pub fn ring(members: &[Who], left: Left) -> State {
        let list: BTreeMap<Who, bool> = members.iter().map(|it| (*it, true)).collect();
        let member = |who: &Who| {
            let manager = Manager { up: true, list: list.clone(), ..Manager::default() };
            (*who, manager)
        };
        State {
            managers: members.iter().map(member).collect(),
            network: BTreeSet::new(),
            running: BTreeSet::new(),
            instances: 0,
            told: BTreeSet::new(),
            closed: BTreeSet::new(),
            told_after_close: false,
            refused: false,
            left,
        }
    }

    fn up(&self) -> impl Iterator<Item = (Who, &Manager)> {
        self.managers.iter().filter(|(_, it)| it.up).map(|(who, it)| (*who, it))
    }

    fn is_up(&self, who: Who) -> bool {
        self.managers.get(&who).is_some_and(|it| it.up)
    }

    fn at(&mut self, who: Who) -> &mut Manager {
        self.managers.entry(who).or_default()
    }

    /// S1: two sessions of one id run.
    pub fn runs_twice(&self) -> bool {
        self.running.len() > 1
    }

    /// S2: a client was told of a session that no living manager knows any more, or that does not
    /// run and that nobody is about to create.
    pub fn is_lost(&self) -> bool {
        self.told.iter().any(|instance| {
            let knows = |it: &Manager| it.record.is_some_and(|it| it.instance == *instance);
            let creates = |it: &Manager| it.openings.contains_key(instance);
            let under_way = self.network.iter().any(|it| it.instance() == Some(*instance));
            let known = self.up().any(|(_, it)| knows(it));
            let alive = self.running.contains(instance) || self.up().any(|(_, it)| creates(it));
            !under_way && (!known || !alive)
        })
    }

    /// S3: a client was told of a session after its close was acknowledged.
    pub fn is_back(&self) -> bool {
        self.told_after_close
    }

    /// S4: two managers act as the owner of the id.
    pub fn has_two_owners(&self) -> bool {
        let acts = |who: Who, manager: &Manager| {
            let created = manager.record.is_some_and(|it| it.made && it.creator == who);
            created || !manager.openings.is_empty()
        };
        self.up().filter(|(who, it)| acts(*who, it)).count() > 1
    }

    /// A member does not know another one, and nothing is under way that would tell it.
    pub fn is_split(&self) -> bool {
        self.up().any(|(who, manager)| {
            self.up().any(|(other, _)| {
                let hello = Message::Hello { from: other, to: who };
                !manager.list.contains_key(&other) && !self.network.contains(&hello)
            })
        })
    }

    /// A client could not close what it was told of, and what still runs.
    pub fn is_refused(&self) -> bool {
        self.refused && self.told.iter().any(|it| self.running.contains(it))
    }

    /// The same, and a client may close once more.
    pub fn asked_again(&self) -> State {
        let left = Left { closes: self.left.closes + 1, ..self.left };
        State { left, ..self.clone() }
    }

    /// A client was told that a session is closed.
    pub fn is_closed(&self) -> bool {
        !self.closed.is_empty()
    }

    /// A member takes another one for gone that is there.
    pub fn is_suspicious(&self) -> bool {
        self.up().any(|(_, it)| self.up().any(|(other, _)| it.list.get(&other) == Some(&false)))
    }

    /// A copy is where neither the owner nor one of its `r` successors is.
    pub fn has_surplus(&self, r: usize) -> bool {
        self.up().skip(r + 1).any(|(_, it)| it.record.is_some())
    }

    /// Everything that may happen now, in words, and what comes of it.
    pub fn steps(&self, text: Text) -> Vec<(String, State)> {
        let mut steps = Vec::new();
        self.deliveries(text, &mut steps);
        let up: Vec<Who> = self.up().map(|(who, _)| who).collect();
        for who in up {
            self.opens(text, who, &mut steps);
            self.closes(who, &mut steps);
            self.timeouts(who, &mut steps);
            self.crash(text, who, &mut steps);
            self.signals(who, &mut steps);
        }
        for who in [Who::A, Who::B, Who::C, Who::D] {
            self.join(text, who, &mut steps);
        }
        steps
    }

    fn deliveries(&self, text: Text, steps: &mut Vec<(String, State)>) {
        for message in &self.network {
            let mut next = self.clone();
            next.network.remove(message);
            if self.left.losses > 0 && message.to().is_some() {
                let mut lost = next.clone();
                lost.left.losses -= 1;
                steps.push((format!("lost on the way: {message}"), lost));
            }
            if text.in_order && self.is_overtaking(*message) {
                continue;
            }
            next.deliver(text, *message);
            let told = next.told_closed_since(self);
            steps.push((format!("{message}{told}"), next));
        }
    }

    /// A close that comes before something else about that session which is under way to the same manager.
    fn is_overtaking(&self, message: Message) -> bool {
        let Message::Closed { to, instance, .. } = message else { return false };
        let is_earlier = |it: &Message| *it != message && it.to() == Some(to);
        self.network.iter().any(|it| is_earlier(it) && it.instance() == Some(instance))
    }

    /// What became of closes, in words.
    fn told_closed_since(&self, before: &State) -> &'static str {
        let closings = |it: &State| it.up().map(|(_, it)| it.closings.len()).sum::<usize>();
        if self.closed.len() > before.closed.len() {
            " and tells the client that it is closed"
        } else if closings(self) > closings(before) {
            " and tells who has copies"
        } else {
            ""
        }
    }

    fn send(&mut self, message: Message) {
        if message.to().is_none_or(|it| self.is_up(it)) {
            self.network.insert(message);
        }
    }

    fn deliver(&mut self, text: Text, message: Message) {
        match message {
            Message::Intent { from, to, record } => {
                self.at(to).record = Some(record);
                self.send(Message::Heard { from: to, to: from, instance: record.instance });
            }
            Message::Heard { from, to, instance } => {
                let opening = self.at(to).openings.get_mut(&instance);
                if opening.is_some_and(|it| it.missing.remove(&from)) {
                    self.create(to, instance);
                }
            }
            Message::Create { from, instance, .. } => {
                self.running.insert(instance);
                self.send(Message::Created { to: from, instance });
            }
            Message::Created { to, instance } => {
                if let Some(opening) = self.at(to).openings.remove(&instance) {
                    let record = Record { instance, node: opening.node, creator: to, made: true };
                    self.at(to).record = Some(record);
                    self.told.insert(instance);
                    for other in self.successors(to, text.r) {
                        self.send(Message::Made { to: other, record });
                    }
                }
            }
            Message::Made { to, record } => self.at(to).record = Some(record),
            Message::Destroy { from, instance, .. } => {
                self.running.remove(&instance);
                self.send(Message::Destroyed { to: from, instance });
            }
            Message::Destroyed { to, instance } => {
                self.at(to).record = None;
                let told = if text.tells_closes { self.copies(to, text.r) } else { Vec::new() };
                for other in &told {
                    self.send(Message::Closed { from: to, to: *other, instance });
                }
                self.at(to).closings.insert(instance, told.into_iter().collect());
                self.close(to, instance);
            }
            Message::Closed { from, to, instance } => {
                let record = &mut self.at(to).record;
                *record = record.filter(|it| it.instance != instance);
                self.send(Message::HeardClosed { from: to, to: from, instance });
            }
            Message::HeardClosed { from, to, instance } => {
                if let Some(missing) = self.at(to).closings.get_mut(&instance) {
                    missing.remove(&from);
                }
                self.close(to, instance);
            }
            Message::Hello { from, to } => {
                self.at(to).list.insert(from, true);
            }
        }
    }

    /// The first `r` available managers after one, by its own list.
    fn successors(&self, who: Who, r: usize) -> Vec<Who> {
        let Some(manager) = self.managers.get(&who) else { return Vec::new() };
        let after = manager.list.range(who..).chain(manager.list.range(..who));
        let there = after.filter(|(other, there)| **there && **other != who);
        there.map(|(other, _)| *other).take(r).collect()
    }

    /// Who else is to have the session, by the list of one: its owner and that one's `r` successors.
    fn copies(&self, who: Who, r: usize) -> Vec<Who> {
        let list = self.managers.get(&who).into_iter().flat_map(|it| &it.list);
        let there = list.filter(|(_, there)| **there).map(|(other, _)| *other).take(r + 1);
        there.filter(|other| *other != who).collect()
    }

    /// The node is asked when nobody is missing.
    fn create(&mut self, from: Who, instance: u8) {
        let Some(opening) = self.at(from).openings.get(&instance) else { return };
        if opening.missing.is_empty() {
            let node = opening.node;
            self.send(Message::Create { from, instance, node });
        }
    }

    /// The client is told of its close when nobody is missing.
    fn close(&mut self, by: Who, instance: u8) {
        let closings = &mut self.at(by).closings;
        if closings.get(&instance).is_some_and(BTreeSet::is_empty) {
            closings.remove(&instance);
            self.closed.insert(instance);
        }
    }

    /// Whom a manager takes for the owner, if that answers.
    fn owner_by(&self, through: Who) -> Option<Who> {
        let list = &self.managers.get(&through)?.list;
        let owner = list.iter().find(|(_, there)| **there).map(|(who, _)| *who);
        owner.filter(|it| self.is_up(*it))
    }

    /// A client asks through a manager, which reaches the one that it takes for the owner.
    fn opens(&self, text: Text, through: Who, steps: &mut Vec<(String, State)>) {
        let Some(manager) = self.managers.get(&through).filter(|_| self.left.opens > 0) else {
            return;
        };
        let Some((home, there)) = manager.list.first_key_value() else { return };
        let Some(owner) = self.owner_by(through) else { return };
        let mut begun = self.clone();
        begun.left.opens -= 1;
        let gone = if *there { String::new() } else { format!(" (which takes {home} for gone)") };
        let asks = format!("a client asks {owner} for y through {through}{gone}");
        let known = begun.at(owner).record.filter(|_| text.looks_first || !*there);
        if let Some(record) = known {
            if *there && !record.made {
                // Who creates it lets others wait; only a successor answers for what is not there.
                return;
            }
            begun.told_after_close |= begun.closed.contains(&record.instance);
            begun.told.insert(record.instance);
            steps.push((format!("{asks} and is told that y is on N{}", record.node), begun));
            return;
        }
        let instance = begun.instances;
        begun.instances += 1;
        // The first session brings its node to the limit T.
        let node = instance;
        let record = Record { instance, node, creator: owner, made: false };
        let missing: BTreeSet<Who> = begun.successors(owner, text.r).into_iter().collect();
        for other in &missing {
            begun.send(Message::Intent { from: owner, to: *other, record });
        }
        begun.at(owner).record = Some(record);
        begun.at(owner).openings.insert(instance, Opening { node, missing });
        begun.create(owner, instance);
        steps.push((format!("{asks}: {owner} chooses N{node} and tells its successors"), begun));
    }

    /// A client closes through a manager. Only who created the session ends it. When the first
    /// manager is gone the text refuses at once; in its favour the next one is asked.
    fn closes(&self, through: Who, steps: &mut Vec<(String, State)>) {
        let owner = self.owner_by(through).filter(|_| self.left.closes > 0);
        let Some(owner) = owner else { return };
        let Some(record) = self.managers.get(&owner).and_then(|it| it.record) else { return };
        let Record { instance, node, creator: from, made } = record;
        let mut next = self.clone();
        next.left.closes -= 1;
        let closes = format!("a client closes y through {through}");
        if !self.is_up(from) {
            let refuses = "which created it and does not answer, and tells the client of an error";
            next.refused = true;
            steps.push((format!("{closes}: {owner} asks {from}, {refuses}"), next));
        } else if made {
            next.told.remove(&instance);
            next.send(Message::Destroy { from, instance, node });
            steps.push((format!("{closes}: {from} asks N{node}"), next));
        }
    }

    fn timeouts(&self, who: Who, steps: &mut Vec<(String, State)>) {
        let openings = self.managers.get(&who).into_iter().flat_map(|it| &it.openings);
        for (instance, opening) in openings {
            if self.left.timeouts > 0 && !opening.missing.is_empty() {
                let mut next = self.clone();
                next.left.timeouts -= 1;
                if let Some(opening) = next.at(who).openings.get_mut(instance) {
                    opening.missing.clear();
                }
                next.create(who, *instance);
                let node = opening.node;
                steps.push((format!("{who} has waited long enough and asks N{node}"), next));
            }
        }
        // For a close it is waited as long as anything may still come of it.
        let closings = self.managers.get(&who).into_iter().flat_map(|it| it.closings.keys());
        let may_come = |it: &u8| self.network.iter().any(|message| message.tells_of_close(*it));
        for instance in closings.filter(|it| self.left.timeouts > 0 && !may_come(it)) {
            let mut next = self.clone();
            next.left.timeouts -= 1;
            next.at(who).closings.insert(*instance, BTreeSet::new());
            next.close(who, *instance);
            let told = next.told_closed_since(self);
            steps.push((format!("{who} has waited long enough{told}"), next));
        }
    }

    fn crash(&self, text: Text, who: Who, steps: &mut Vec<(String, State)>) {
        if self.left.crashes > 0 {
            let mut next = self.clone();
            next.left.crashes -= 1;
            let record = next.at(who).record.filter(|_| text.disks);
            *next.at(who) = Manager { record, ..Manager::default() };
            next.network.retain(|it| it.to() != Some(who));
            steps.push((format!("{who} crashes"), next));
        }
    }

    /// The signal that somebody is gone reaches a manager.
    fn signals(&self, who: Who, steps: &mut Vec<(String, State)>) {
        let list = self.managers.get(&who).into_iter().flat_map(|it| &it.list);
        for (other, _) in list.filter(|(other, there)| **there && **other != who) {
            let mut next = self.clone();
            next.at(who).list.insert(*other, false);
            if !self.is_up(*other) {
                steps.push((format!("{who} is told that {other} is gone"), next));
            } else if self.left.false_signals > 0 {
                next.left.false_signals -= 1;
                steps.push((format!("{who} is told that {other} is gone, which is slow"), next));
            }
        }
    }

    /// A manager that is not in the ring joins by its successor.
    fn join(&self, text: Text, who: Who, steps: &mut Vec<(String, State)>) {
        let must_wait = text.joins_at_rest && !self.network.is_empty();
        if self.left.joins == 0 || self.is_up(who) || must_wait {
            return;
        }
        let up = |it: &&Who| self.is_up(**it);
        let after = self.managers.range(who..).chain(self.managers.range(..who));
        let Some(contact) = after.map(|(it, _)| it).find(up).copied() else { return };
        let mut next = self.clone();
        next.left.joins -= 1;
        let from = next.at(contact);
        from.list.insert(who, true);
        let (list, given) = (from.list.clone(), from.record);
        let tells = list.iter().filter(|(it, there)| **there && **it != who && **it != contact);
        let tells: Vec<Who> = tells.map(|(it, _)| *it).collect();
        let record = next.at(who).record;
        *next.at(who) = Manager { up: true, list, record, ..Manager::default() };
        next.move_to(text, who, given);
        for to in tells {
            let hello = Message::Hello { from: who, to };
            if text.joins_at_rest && next.is_up(to) {
                next.deliver(text, hello);
            } else {
                next.send(hello);
            }
        }
        let again = if self.managers.contains_key(&who) { "is restored from" } else { "joins by" };
        steps.push((format!("{who} {again} {contact} and tells everybody it knows"), next));
    }

    /// A newcomer gets what is to be its own, and copies of what its predecessors own. What is its
    /// own goes from the manager behind its `r` successors.
    fn move_to(&mut self, text: Text, newcomer: Who, given: Option<Record>) {
        let ring: Vec<Who> = self.up().map(|(who, _)| who).collect();
        if ring.iter().take(text.r + 1).any(|it| *it == newcomer) {
            let record = &mut self.at(newcomer).record;
            *record = given.or(*record);
        }
        let owns = ring.first() == Some(&newcomer);
        if let Some(last) = ring.get(text.r + 1).filter(|_| owns || text.drops_all) {
            self.at(*last).record = None;
        }
    }
}
