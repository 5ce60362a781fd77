//! Liveness: from a quiet state, with no fault any more, a fair run converges and serves.
//!
//! Fair means: what is under way arrives, oldest kind first; who is down starts again; who was cut off
//! is reached again, and so is the config store; then the clocks go on, and so forth. It is one run and not all: the search before
//! it takes every order, up to the quiet state where this begins.

use super::bounds::Bounds;
use super::clients::Wish;
use super::flying::Flying;
use super::room::Room;
use super::seen::Seen;
use super::state::{Action, State};
use super::work::{Told, Work};
use crate::invariant::converged::{self, Moment};
use crate::invariant::{Verdict, Violation};
use rota_model::{ManagerNumber, RefusalKind, SessionState};
use rota_protocol::{Answer, Manager, OpResult};
use std::collections::BTreeMap;

/// Steps of the clocks after which a healed cluster must have converged.
const TICKS_MAX: u8 = 60;

/// Steps of the clocks after which a client must have been answered.
const ANSWER_TICKS_MAX: u8 = 20;

/// Messages between two steps of the clocks: more are a storm that feeds itself.
const MESSAGES_MAX: usize = 5_000;

/// Parts and steps that are kept before the room for fair runs is emptied: few enough to be taken from
/// memory that is at hand.
const PARTS_MAX: usize = 40_000;

/// A room of its own for fair runs, so that their states do not fill the search's.
pub struct Fair {
    room: Room,
    alive: Seen,
    /// Fair runs so far.
    pub runs: usize,
}

impl Fair {
    /// An empty room.
    pub fn new(room: &Room) -> Self {
        let room = healed(room);
        Self { room, alive: Seen::default(), runs: 0 }
    }

    /// Checks that a quiet state of the search's room lives.
    ///
    /// # Errors
    /// It does not, or something that must never happen does.
    pub fn check(&mut self, room: &Room, state: &State) -> Verdict {
        // What a state counts as is the same in all rooms: only what is new is brought here.
        if self.alive.get(room.parts.hash(&stripped(room, state))).is_some() {
            return Ok(());
        }
        if self.room.parts.managers.len() + self.room.known.steps() > PARTS_MAX {
            self.room = healed(room);
        }
        let state = &stripped(room, state);
        let mut state = self.bring(room, state);
        if self.is_known(&state) {
            return Ok(());
        }
        self.runs += 1;
        let mut way = vec![self.room.parts.hash(&state)];
        for _ in 0..TICKS_MAX {
            heal(&mut self.room, &mut state)?;
            deliver(&mut self.room, &mut state)?;
            if self.is_known(&state) {
                break;
            }
            way.push(self.room.parts.hash(&state));
            if missing(&self.room, &state).is_ok() {
                serve(&mut self.room, &mut state.clone())?;
                self.know(&way);
                return Ok(());
            }
            self.room.tick(&mut state)?;
        }
        if !self.is_known(&state) {
            missing(&self.room, &state)?;
        }
        self.know(&way);
        Ok(())
    }

    /// These states live.
    fn know(&mut self, way: &[u128]) {
        for hash in way {
            self.alive.insert(*hash, 0);
        }
    }

    fn is_known(&self, state: &State) -> bool {
        self.alive.get(self.room.parts.hash(state)).is_some()
    }

    /// The same state in this room.
    fn bring(&mut self, from: &Room, state: &State) -> State {
        let managers: Vec<_> = (0..state.managers.len())
            .map(|it| self.room.parts.keep_manager(from.parts.manager(state, it).clone()))
            .collect();
        let nodes: Vec<_> = (0..state.nodes.len())
            .map(|it| self.room.parts.keep_node(from.parts.node(state, it).clone()))
            .collect();
        let mut here = State {
            managers: managers.into(),
            nodes: nodes.into(),
            store: self.room.parts.keep_store(from.parts.store(state).clone()),
            clients: self.room.parts.keep_clients(from.parts.clients_of(state).clone()),
            net: Vec::new(),
            ..state.clone()
        };
        for number in &state.net {
            let number = self.room.parts.keep_flying(from.parts.flying.get(*number).clone());
            here.fly(number);
        }
        here
    }
}

/// A state without what does not matter to a fair run: what may still happen, and what nobody waits for
/// and may never be written; where that is written, the search looks too.
fn stripped(room: &Room, state: &State) -> State {
    let awaited = |it: &u32| !matches!(room.parts.flying.get(*it), Flying::Orphan { .. });
    let net = state.net.iter().copied().filter(awaited).collect();
    State { net, left: Default::default(), ..state.clone() }
}

/// A room in which whoever was cut off is reached again.
fn healed(room: &Room) -> Room {
    Room::new(&Bounds { cut: u32::MAX, ..room.bounds.clone() }, room.bug)
}

/// Ends what keeps processes down or apart. Who is down is found gone first: an empty machine gets
/// its number only then.
fn heal(room: &mut Room, state: &mut State) -> Verdict {
    if room.parts.store(state).away {
        room.set_away(state, false)?;
    }
    for at in 0..state.nodes.len() {
        if room.parts.node(state, at).silent {
            room.work(state, Work::Node(at, Told::Silence(false), false))?;
        }
    }
    let down = |room: &Room, state: &State, at: usize| {
        let host = room.parts.manager(state, at);
        host.process.is_none() && host.run > 0
    };
    for at in 0..state.managers.len() {
        if !down(room, state, at) {
            continue;
        }
        let number = room.parts.manager(state, at).number;
        for other in 0..state.managers.len() {
            room.work(state, Work::Manager(other, Told::Refused(number)))?;
            deliver(room, state)?;
        }
    }
    for at in 0..state.managers.len() {
        if down(room, state, at) {
            room.work(state, Work::Manager(at, Told::Start))?;
            deliver(room, state)?;
        }
    }
    Ok(())
}

/// Everything arrives, and everybody hears what the config store holds.
///
/// # Errors
/// Something that must never happen.
pub fn deliver(room: &mut Room, state: &mut State) -> Verdict {
    deliver_until(room, state, |_, _| false)
}

/// The same, until it has come to that.
///
/// # Errors
/// Something that must never happen.
pub fn deliver_until(
    room: &mut Room,
    state: &mut State,
    there: impl Fn(&Room, &State) -> bool,
) -> Verdict {
    for _ in 0..MESSAGES_MAX {
        if there(room, state) {
            return Ok(());
        }
        let under_way = |it: &&u32| room.receiver(state, room.parts.flying.get(**it)).is_some();
        if let Some(number) = state.net.iter().find(under_way) {
            room.act(state, Action::Arrive(*number))?;
            super::check::state(room, state)?;
            continue;
        }
        let Some(at) = (0..state.managers.len()).find(|at| has_more(room, state, *at)) else {
            return Ok(());
        };
        let told = if room.parts.manager(state, at).unsynced.is_empty() {
            Told::Watch
        } else {
            Told::Synced
        };
        room.work(state, Work::Manager(at, told))?;
    }
    Err(Violation::new("progress", format!("{MESSAGES_MAX} messages, and no end of them")))
}

fn has_more(room: &Room, state: &State, at: usize) -> bool {
    let (host, index) = (room.parts.manager(state, at), room.parts.store(state).state.index);
    let process = host.process.as_ref();
    process.is_some_and(|it| it.config_index() < index) || !host.unsynced.is_empty()
}

/// What a converged cluster still lacks.
///
/// # Errors
/// That.
pub fn missing(room: &Room, state: &State) -> Verdict {
    let Some(view) = room.view(state) else { return Ok(()) };
    let hosts: Vec<_> = (0..state.managers.len()).map(|it| room.parts.manager(state, it)).collect();
    let claimed = |host: &&&super::hosts::ManagerHost| {
        host.process.as_ref().is_some_and(|it| !has_left(view, it))
    };
    let running = hosts.iter().filter(claimed);
    let managers: BTreeMap<ManagerNumber, _> =
        running.filter_map(|it| Some((it.number, it.process.as_ref()?.stats()))).collect();
    let disks = hosts.iter().filter(|it| managers.contains_key(&it.number));
    let disks = disks.map(|it| (it.number, &it.disk)).collect();
    let instances = super::check::instances(room, state);
    let nodes = room.parts.store(state).state.nodes.values();
    let drained =
        nodes.filter(|it| it.closes(u64::MAX).is_some()).map(|it| it.node.clone()).collect();
    converged::check(&Moment { view, managers, disks, instances: &instances, drained })
}

fn has_left(view: &rota_ring::View, process: &Manager) -> bool {
    let entry = view.managers.get(&process.member().number);
    entry.is_some_and(|it| it.status == rota_model::ManagerStatus::Left)
}

/// Every id is read, opened and closed, through the first door that has its number.
fn serve(room: &mut Room, state: &mut State) -> Verdict {
    let claimed = |at: &usize| {
        room.parts.manager(state, *at).process.as_ref().is_some_and(Manager::is_claimed)
    };
    let Some(door) = (0..state.managers.len()).find(claimed) else {
        return Err(Violation::new("served", "no manager has its number"));
    };
    let door = room.parts.manager(state, door).number;
    for id in 0..room.keys.len() {
        for wish in [Wish::Get, Wish::Open, Wish::Close] {
            let call = room.ask(state, wish, id, door)?;
            answered(room, state, call, wish)?;
        }
    }
    Ok(())
}

fn answered(room: &mut Room, state: &mut State, call: usize, wish: Wish) -> Verdict {
    for _ in 0..ANSWER_TICKS_MAX {
        deliver(room, state)?;
        if room.parts.clients_of(state).asked[call].before.is_none() {
            return Ok(());
        }
        room.tick(state)?;
    }
    Err(Violation::new("served", format!("nobody answers a {wish:?}")))
}

/// Whether an answer says what it should once all is well.
pub fn is_fine(wish: Wish, result: &OpResult) -> bool {
    match (wish, result) {
        (Wish::Open, Ok(Answer::Opened { session, .. })) => {
            session.record.state == SessionState::Ready
        }
        (Wish::Open, Err(refusal)) => refusal.kind == RefusalKind::NoCapacity,
        (Wish::Close, Ok(Answer::Closed { finished, .. })) => *finished,
        (Wish::Close | Wish::Get, Err(refusal)) => refusal.kind == RefusalKind::NotFound,
        (Wish::Get, Ok(Answer::Got { .. })) => true,
        (Wish::Open | Wish::Close | Wish::Get, Ok(_)) => false,
    }
}
