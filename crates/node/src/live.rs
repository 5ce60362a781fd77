//! Sessions that live here: one token per session id, by construction.

use crate::io::StopHow;
use crate::node::Phase;
use rota_model::node_msg::{Alive, Blame, NodeAnswer};
use rota_model::{Epoch, Reason, Resources, SessionKey, SessionSpec, SlotId, Stamp, Token};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

/// A session, from the order to start it until nothing of it runs any more.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub(crate) struct Live {
    pub(crate) slot: SlotId,
    pub(crate) token: Token,
    pub(crate) stage: Stage,
    /// Empty until the runtime said it.
    pub(crate) address: String,
    pub(crate) ready: bool,
    /// What its opener should know of it, as the runtime said.
    pub(crate) remark: String,
    /// What it runs, and the life that it is: managers that lost their record ask for them.
    pub(crate) spec: SessionSpec,
    /// See `spec`.
    pub(crate) life: Stamp,
    /// What it takes of this node: as its class said when it was started.
    pub(crate) takes: Resources,
    /// Scale-in must not end it: as its class said when it was started.
    #[serde(default)]
    pub(crate) kept: bool,
    /// The machine's state, if it is one.
    pub(crate) machine: Option<HeldState>,
    /// Highest epoch of a manager that asked to destroy it.
    pub(crate) destroyed_by: Option<Epoch>,
    /// An earlier agent began it.
    #[serde(skip)]
    pub(crate) resumed: bool,
    /// Calls that wait for its start or its end.
    #[serde(skip)]
    pub(crate) waiters: VecDeque<Waiter>,
}

/// The state that a machine is in.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub(crate) struct HeldState {
    pub(crate) state: String,
    /// How many transitions led there.
    pub(crate) change: u64,
    /// Whether managers are told its states.
    pub(crate) told: bool,
}

/// How far it has got.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub(crate) enum Stage {
    /// The runtime was asked to start it; at this time it is stopped if it has not.
    Starting { not_after_ms: u64 },
    /// It runs.
    Running,
    /// The runtime was asked to stop it.
    Stopping { how: StopHow, cause: StopCause, kill_at_ms: Option<u64> },
}

/// Why a session is being stopped: the first cause stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub(crate) enum StopCause {
    /// Its manager asked for it.
    Destroyed,
    /// The runtime did not say in time that it runs.
    StartTooLate,
    /// No manager renewed the lease, or the boot was declared lost.
    LeaseOver,
    /// The node leaves.
    Leaving,
}

impl StopCause {
    pub(crate) fn reason(self) -> Reason {
        match self {
            StopCause::Destroyed => Reason::ClosedByClient,
            StopCause::StartTooLate => Reason::StartTimeout,
            StopCause::LeaseOver => Reason::LeaseNotRenewed,
            StopCause::Leaving => Reason::Drained,
        }
    }

    /// Whose fault it is when the session had not begun to run.
    pub(crate) fn blame(self) -> Blame {
        match self {
            StopCause::Destroyed | StopCause::StartTooLate => Blame::Session,
            StopCause::LeaseOver | StopCause::Leaving => Blame::Node,
        }
    }

    pub(crate) fn detail(self) -> &'static str {
        match self {
            // The reason says it all, and most dead tokens are of this kind.
            StopCause::Destroyed => "",
            StopCause::StartTooLate => "its node could not start it within the time for a create",
            StopCause::LeaseOver => "the owner of its slot did not renew its lease",
            StopCause::Leaving => "its node left",
        }
    }
}

/// A call whose answer is not known yet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Waiter {
    pub(crate) stream: u64,
    pub(crate) call: u64,
    pub(crate) wants: Wants,
}

/// What a waiting call asked for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Wants {
    Create,
    Destroy,
}

impl Live {
    pub(crate) fn phase(&self) -> Phase {
        match self.stage {
            Stage::Starting { .. } => Phase::Starting,
            Stage::Running => Phase::Running,
            Stage::Stopping { .. } => Phase::Stopping,
        }
    }

    pub(crate) fn cause(&self) -> Option<StopCause> {
        match self.stage {
            Stage::Stopping { cause, .. } => Some(cause),
            Stage::Starting { .. } | Stage::Running => None,
        }
    }

    /// The answer to a create of it. `None` while that is not known yet: while it stops, something of it may
    /// run, and "dead" is true only when that is gone.
    pub(crate) fn running(&self) -> Option<NodeAnswer> {
        match self.stage {
            Stage::Running => Some(NodeAnswer::Running {
                address: self.address.clone(),
                ready: self.ready,
                remark: self.remark.clone(),
            }),
            Stage::Starting { .. } | Stage::Stopping { .. } => None,
        }
    }

    /// As the next agent takes it over: whoever waits asks again.
    pub(crate) fn without_waiters(&self) -> Self {
        Self { waiters: VecDeque::new(), ..self.clone() }
    }

    /// What managers are told of it that may have lost their record.
    pub(crate) fn shown(&self) -> Alive {
        let machine = self.machine.clone().filter(|it| it.told);
        let (machine_state, machine_change) =
            machine.map_or((String::new(), 0), |it| (it.state, it.change));
        Alive {
            address: self.address.clone(),
            ready: self.ready,
            ends: self.cause().map(StopCause::reason),
            life: self.life,
            spec: self.spec.clone(),
            machine_state,
            machine_change,
        }
    }

    pub(crate) fn wait(&mut self, waiter: Waiter, waiters_max: usize) {
        if self.waiters.contains(&waiter) {
            return;
        }
        if self.waiters.len() >= waiters_max {
            self.waiters.pop_front();
        }
        self.waiters.push_back(waiter);
    }

    fn deadline(&self) -> Option<u64> {
        match self.stage {
            Stage::Starting { not_after_ms } => Some(not_after_ms),
            Stage::Running => None,
            Stage::Stopping { kill_at_ms, .. } => kill_at_ms,
        }
    }
}

/// All sessions that live here.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct LiveSessions {
    sessions: BTreeMap<SessionKey, Live>,
    /// Deadlines of those that start or stop.
    deadlines: BTreeSet<(u64, SessionKey)>,
    /// What all of them take.
    taken: Resources,
    /// How many of them scale-in must not end.
    kept: u32,
    /// Those that changed since [`Self::take_changed`].
    changed: BTreeSet<SessionKey>,
}

impl LiveSessions {
    pub(crate) fn get(&self, key: &SessionKey) -> Option<&Live> {
        self.sessions.get(key)
    }

    /// A session with its key as it is held here.
    pub(crate) fn entry(&self, key: &SessionKey) -> Option<(&SessionKey, &Live)> {
        self.sessions.get_key_value(key)
    }

    pub(crate) fn of(&self, key: &SessionKey, token: Token) -> Option<&Live> {
        self.sessions.get(key).filter(|it| it.token == token)
    }

    /// Changes a session, if that token of it lives, and keeps the index of deadlines.
    pub(crate) fn change<T>(
        &mut self,
        key: &SessionKey,
        token: Token,
        change: impl FnOnce(&mut Live) -> T,
    ) -> Option<T> {
        let live = self.sessions.get_mut(key).filter(|it| it.token == token)?;
        let before = live.deadline();
        self.changed.insert(key.clone());
        let result = change(live);
        let after = live.deadline();
        if before != after {
            if let Some(before) = before {
                self.deadlines.remove(&(before, key.clone()));
            }
            self.deadlines.extend(after.map(|it| (it, key.clone())));
        }
        Some(result)
    }

    /// Adds a session. No token of it lives.
    pub(crate) fn add(&mut self, key: &SessionKey, live: Live) {
        self.deadlines.extend(live.deadline().map(|it| (it, key.clone())));
        self.taken = self.taken.plus(live.takes);
        self.kept += u32::from(live.kept);
        self.changed.insert(key.clone());
        let before = self.sessions.insert(key.clone(), live);
        debug_assert!(before.is_none(), "{key} lived already");
    }

    pub(crate) fn remove(&mut self, key: &SessionKey, token: Token) -> Option<Live> {
        self.of(key, token)?;
        let live = self.sessions.remove(key)?;
        self.changed.insert(key.clone());
        self.taken = self.taken.minus(live.takes);
        self.kept -= u32::from(live.kept);
        if let Some(deadline) = live.deadline() {
            self.deadlines.remove(&(deadline, key.clone()));
        }
        Some(live)
    }

    /// Those that changed since this was asked last.
    pub(crate) fn take_changed(&mut self) -> BTreeSet<SessionKey> {
        std::mem::take(&mut self.changed)
    }

    /// What all of them take.
    pub(crate) fn taken(&self) -> Resources {
        self.taken
    }

    /// How many of them scale-in must not end.
    pub(crate) fn kept(&self) -> u32 {
        self.kept
    }

    pub(crate) fn len(&self) -> usize {
        self.sessions.len()
    }

    pub(crate) fn after<'a>(
        &'a self,
        key: Option<&SessionKey>,
    ) -> impl Iterator<Item = (&'a SessionKey, &'a Live)> + use<'a> {
        let from = key.cloned().map_or(Bound::Unbounded, Bound::Excluded);
        self.sessions.range((from, Bound::Unbounded))
    }

    /// Forgets every call that waits for this stream.
    pub(crate) fn close_stream(&mut self, stream: u64) {
        for live in self.sessions.values_mut() {
            live.waiters.retain(|it| it.stream != stream);
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<u64> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// The first session whose deadline has passed.
    pub(crate) fn overdue(&self, now: u64) -> Option<(SessionKey, Token)> {
        let (_, key) = self.deadlines.first().filter(|(at, _)| *at <= now)?;
        self.sessions.get(key).map(|it| (key.clone(), it.token))
    }
}
