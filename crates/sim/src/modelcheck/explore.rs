//! The search: breadth first, so that the first way to a broken promise is a shortest one. Of the
//! states that were seen only hashes of 128 bits are kept, and how each was reached first; a way is
//! told by walking it again.

use super::bounds::{Bounds, From, Late};
use super::clients::Wish;
use super::fair::{self, Fair};
use super::flying::Flying;
use super::known::Came;
use super::room::{LEASE_OVER, Room, owner_of_node};
use super::seen::Seen;
use super::state::{Action, State};
use super::work::{Told, Work};
use super::{check, words};
use crate::invariant::{Verdict, Violation};
use crate::mutants::Bug;
use rota_model::ManagerNumber;
use rota_protocol::Transition;
use std::collections::BTreeSet;

/// What a search came to.
#[derive(Clone, Debug)]
pub struct Explored {
    /// Name of its bounds.
    pub name: &'static str,
    /// States that were reached.
    pub states: usize,
    /// Steps between them.
    pub steps: usize,
    /// Fair runs from quiet states.
    pub fair_runs: usize,
    /// What came about in its steps, by name of the transition.
    pub came: BTreeSet<&'static str>,
    /// What should have come about and did not ([`Bounds::shows`]).
    pub unshown: Vec<&'static str>,
    /// Whether every state within the bounds was reached.
    pub exhausted: bool,
    /// What was found broken, if anything: a shortest way to it.
    pub broken: Option<Broken>,
}

/// A promise that is broken.
#[derive(Clone, Debug)]
pub struct Broken {
    /// The rule, and what was seen.
    pub violation: Violation,
    /// The way to it, in words.
    pub trace: Vec<String>,
}

struct Search {
    room: Room,
    fair: Option<Fair>,
    seen: Seen,
    /// For each state: the one before it, and which of its actions led here.
    before: Vec<(u32, u16)>,
    steps: usize,
}

/// Searches all states within bounds, with a planted bug if one is given.
pub fn explore(bounds: &Bounds, bug: Option<Bug>) -> Explored {
    explore_telling(bounds, bug, |_| {})
}

/// How far a search is, after one more level.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Steps from the start.
    pub depth: usize,
    /// States so far.
    pub states: usize,
    /// Of those, the ones just reached.
    pub newest: usize,
    /// Fair runs so far.
    pub fair_runs: usize,
    /// Different managers, nodes, config stores, clients and messages among them.
    pub parts: [usize; 5],
}

/// The same, telling how far it is.
pub fn explore_telling(bounds: &Bounds, bug: Option<Bug>, tell: impl FnMut(Progress)) -> Explored {
    // With a bug, nobody knows what may still matter.
    let late = if bug.is_none() { Late::Goes } else { Late::Stays };
    explore_with(bounds, bug, late, tell)
}

/// Searches the same, with all messages that come too late; fails when one of them matters after all.
pub fn explore_watching(bounds: &Bounds) -> Explored {
    explore_with(bounds, None, Late::Watched, |_| {})
}

fn explore_with(
    bounds: &Bounds,
    bug: Option<Bug>,
    late: Late,
    mut tell: impl FnMut(Progress),
) -> Explored {
    let nobody = u32::MAX;
    let mut room = Room::new(&Bounds { cut: nobody, deaf: nobody, ..bounds.clone() }, None);
    let named = [
        (bounds.left.managers.suspicions, bounds.accuser),
        (bounds.left.managers.crashes, bounds.mortal),
    ];
    for (_, number) in named.iter().filter(|(left, _)| *left > 0) {
        let is_apart = room.bystanders.contains(&ManagerNumber(*number));
        assert!(!is_apart, "{}: {number} is a bystander, and does nothing", bounds.name);
    }
    let start = settled(&mut room).expect("an undisturbed ring settles");
    let (mut room, start) = replanted(room, &start, bug);
    let fair = bounds.lives.then(|| Fair::new(&room));
    let hash = room.parts.hash(&start);
    (room.bug, room.late) = (bug, late);
    (room.bounds.cut, room.bounds.deaf) = (bounds.cut, bounds.deaf);
    let mut search = Search { room, fair, seen: Seen::default(), before: vec![(0, 0)], steps: 0 };
    search.seen.insert(hash, 0);
    let found = search.run(&start, &mut tell);
    let fair_runs = search.fair.as_ref().map_or(0, |it| it.runs);
    let (name, states, steps) = (bounds.name, search.before.len(), search.steps);
    let (exhausted, broken) = match found {
        Ok(exhausted) => (exhausted, None),
        Err((at, action, violation)) => {
            let trace = search.way_to(&start, at, action);
            (false, Some(Broken { violation, trace }))
        }
    };
    let Room { came: Came { ever: came, after }, .. } = search.room;
    let unshown = bounds.shows.iter().copied().filter(|it| !after.contains(it)).collect();
    Explored { name, states, steps, fair_runs, came, unshown, exhausted, broken }
}

impl Explored {
    /// Whether all states were reached, nothing is broken, and what the search is there for came about.
    pub fn is_fine(&self) -> bool {
        self.exhausted && self.broken.is_none() && self.unshown.is_empty()
    }
}

impl Search {
    /// Gives whether everything was reached; or the state and the action after which a rule is broken.
    fn run(
        &mut self,
        start: &State,
        tell: &mut impl FnMut(Progress),
    ) -> Result<bool, (u32, Option<u16>, Violation)> {
        self.look(start).map_err(|violation| (0, None, violation))?;
        let mut level = vec![(0_u32, start.clone())];
        for depth in 0.. {
            if level.is_empty() {
                break;
            }
            let room = &self.room;
            let parts = [
                room.parts.managers.len(),
                room.parts.nodes.len(),
                room.parts.stores.len(),
                room.parts.clients.len(),
                room.parts.flying.len(),
            ];
            let (states, newest) = (self.before.len(), level.len());
            let fair_runs = self.fair.as_ref().map_or(0, |it| it.runs);
            tell(Progress { depth, states, newest, fair_runs, parts });
            let mut next = Vec::new();
            for (at, state) in level {
                let actions = self.room.actions(&state);
                for (index, action) in actions.into_iter().enumerate() {
                    let index = u16::try_from(index).expect("few things may happen at once");
                    self.steps += 1;
                    let broken = |violation| (at, Some(index), violation);
                    let mut after = state.clone();
                    self.room.act(&mut after, action).map_err(broken)?;
                    self.room.watch_late(&state, &after).map_err(broken)?;
                    let number = u32::try_from(self.before.len()).expect("bounded by states_max");
                    if self.seen.insert(self.room.parts.hash(&after), number).is_some() {
                        continue;
                    }
                    self.before.push((at, index));
                    self.look(&after).map_err(broken)?;
                    if self.before.len() >= self.room.bounds.states_max {
                        return Ok(false);
                    }
                    next.push((number, after));
                }
            }
            level = next;
        }
        Ok(true)
    }

    fn look(&mut self, state: &State) -> Verdict {
        check::state(&self.room, state)?;
        match &mut self.fair {
            Some(fair) if self.room.is_quiet(state) => {
                fair.check(&self.room, state).map_err(|violation| {
                    Violation::new(
                        violation.rule,
                        format!("in a fair run from there: {}", violation.text),
                    )
                })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// The way to a state, and one action further, in words.
    fn way_to(&mut self, start: &State, at: u32, last: Option<u16>) -> Vec<String> {
        let mut ways: Vec<u16> = last.into_iter().collect();
        let mut number = at;
        while number != 0 {
            let (before, action) = self.before[number as usize];
            ways.push(action);
            number = before;
        }
        ways.reverse();
        let mut state = start.clone();
        let mut trace = Vec::new();
        for index in ways {
            let actions = self.room.actions(&state);
            let Some(action) = actions.get(usize::from(index)) else { break };
            trace.push(words::of(&self.room, &state, *action));
            if self.room.act(&mut state, *action).is_err() {
                break;
            }
        }
        trace
    }
}

/// A ring at rest: everybody has its number, every node is registered, the ids that should live do.
///
/// # Errors
/// It does not come to rest.
pub fn settled(room: &mut Room) -> Result<State, Violation> {
    let mut state = room.founded();
    state.left = Default::default();
    for at in 0..state.managers.len() {
        let number = room.parts.manager(&state, at).number;
        if room.bounds.numbers.contains(&number.0) {
            room.work(&mut state, Work::Manager(at, Told::Start))?;
            fair::deliver(room, &mut state)?;
        }
    }
    for _ in 0..3 {
        room.tick(&mut state)?;
        fair::deliver(room, &mut state)?;
    }
    for at in 0..state.nodes.len() {
        room.work(&mut state, Work::Node(at, Told::Start, false))?;
        fair::deliver(room, &mut state)?;
    }
    let (doors, numbers) = (room.bounds.doors, room.bounds.numbers);
    let door = doors.iter().find(|it| numbers.contains(it)).unwrap_or(&numbers[0]);
    let door = ManagerNumber(*door);
    for id in 0..room.bounds.opened {
        room.ask(&mut state, Wish::Open, id, door)?;
        fair::deliver(room, &mut state)?;
    }
    for _ in 0..10 {
        room.tick(&mut state)?;
        fair::deliver(room, &mut state)?;
        if fair::missing(room, &state).is_ok() {
            return began(room, state);
        }
    }
    fair::missing(room, &state)?;
    Ok(state)
}

/// From rest to where the bounds begin.
fn began(room: &mut Room, mut state: State) -> Result<State, Violation> {
    match room.bounds.from {
        From::Rest => {}
        From::Adding => drop(adding(room, &mut state)?),
        From::Added => {
            let number = adding(room, &mut state)?;
            room.land(&mut state, number)?;
        }
        From::LeaseEnds => {
            room.silence(&mut state, 0)?;
            until_next_step(room, &mut state, LEASE_OVER)?;
        }
        From::Losing => {
            room.silence(&mut state, 0)?;
            until_next_step(room, &mut state, Transition::NodeLost.as_str())?;
        }
        From::DeclaredLost => {
            let owner = owner_of_node(&room.bounds, 0).expect("a ring of managers");
            room.bounds.deaf = owner.0;
            until_next_step(room, &mut state, Transition::NodeLost.as_str())?;
        }
        From::Ended => {
            room.ask(&mut state, Wish::Close, 0, ManagerNumber(room.bounds.doors[0]))?;
            fair::deliver(room, &mut state)?;
            until_next_step(room, &mut state, Transition::TombstonePurged.as_str())?;
        }
        From::Missed => missed(room, &mut state)?,
    }
    Ok(at_zero(room, state))
}

/// The last number is cut off from the others and taken for gone, and comes back to the config store alone,
/// until the next step of the clocks ends the wait for its copies.
fn missed(room: &mut Room, state: &mut State) -> Verdict {
    let last = room.numbers[room.numbers.len() - 1];
    room.bounds.cut = last.0;
    room.work(state, Work::Manager(0, Told::Refused(last)))?;
    fair::deliver(room, state)?;
    until_next_step(room, state, Transition::StandInStarted.as_str())
}

/// The clocks go on until something comes about with the next step.
fn until_next_step(room: &mut Room, state: &mut State, what: &str) -> Verdict {
    for _ in 0..20 {
        let mut next = state.clone();
        room.came.ever.clear();
        room.tick(&mut next)?;
        fair::deliver(room, &mut next)?;
        if room.came.ever.contains(what) {
            return Ok(());
        }
        *state = next;
    }
    Err(Violation::new("progress", format!("what the search begins with is not there: {what}")))
}

/// The newcomer joins, until a compare-and-set is under way that adds it: this one.
fn adding(room: &mut Room, state: &mut State) -> Result<u32, Violation> {
    let newcomer = ManagerNumber(room.bounds.newcomers[0]);
    let at = room.place_of(newcomer).expect("a host of its own for each");
    room.work(state, Work::Manager(at, Told::Start))?;
    for _ in 0..10 {
        fair::deliver_until(room, state, |room, state| adds(room, state, newcomer).is_some())?;
        if let Some(number) = adds(room, state, newcomer) {
            return Ok(number);
        }
        room.tick(state)?;
    }
    Err(Violation::new("progress", format!("nobody adds {newcomer}")))
}

/// A compare-and-set that is under way and makes that one a copy of a partition in which something lies.
fn adds(room: &Room, state: &State, newcomer: ManagerNumber) -> Option<u32> {
    let now = room.view(state)?;
    let lacks = |part: &ManagerNumber| now.parts.get(part).is_some_and(|it| !it.has(newcomer));
    let tracked: Vec<_> = room.tracked.iter().filter(|it| lacks(it)).collect();
    state.net.iter().copied().find(|number| {
        let Flying::Cas { change, .. } = room.parts.flying.get(*number) else { return false };
        let next = change.view.as_ref();
        let has = |part: &ManagerNumber| {
            let part = next.and_then(|view| view.parts.get(part));
            part.is_some_and(|it| it.has(newcomer))
        };
        tracked.iter().any(|it| has(it))
    })
}

/// The steps of the clocks that it took do not count.
fn at_zero(room: &Room, mut state: State) -> State {
    state.left = room.bounds.left;
    state
}

/// The same state in a fresh room with a bug planted.
fn replanted(room: Room, start: &State, bug: Option<Bug>) -> (Room, State) {
    let mut fresh = Room::new(&room.bounds, bug);
    let managers = start
        .managers
        .iter()
        .map(|it| fresh.parts.keep_manager(room.parts.managers.get(*it).clone()));
    let managers = managers.collect();
    let nodes = start
        .nodes
        .iter()
        .map(|it| fresh.parts.keep_node(room.parts.nodes.get(*it).clone()))
        .collect();
    let store = fresh.parts.keep_store(room.parts.store(start).clone());
    let clients = fresh.parts.keep_clients(room.parts.clients_of(start).clone());
    let mut state = State { managers, nodes, store, clients, net: Vec::new(), ..start.clone() };
    for number in &start.net {
        let message = fresh.parts.keep_flying(room.parts.flying.get(*number).clone());
        state.fly(message);
    }
    (fresh, state)
}

/// One action, for the words.
pub type Step = Action;
