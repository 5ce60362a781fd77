//! What clients asked, what they were told, and whether they may have been told that. The states of an
//! id form a line, as in [`crate::history`], and each answer must stand where the ones before it was asked
//! for left off, or further on: that is linearizability, of reads too.

use super::bounds::{Bounds, Times};
use super::names::CLASS;
use crate::invariant::{Verdict, Violation};
use rota_model::{
    ClassName, CloseOp, GetOp, ManagerNumber, Namespace, OpenOp, PoolName, RefusalKind, RequestId,
    SessionId, SessionKey, SessionRecord, SessionSpec, SessionState, SlotId, Stamp,
};
use rota_protocol::{Answer, Op, OpResult};
use rota_ring::{place, slot_of_session};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What a client wants.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Wish {
    /// That the session lives.
    Open,
    /// That it does not.
    Close,
    /// To know.
    Get,
}

/// One try of a request.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Asked {
    /// What.
    pub wish: Wish,
    /// Of which id.
    pub id: usize,
    /// Which request it repeats: its own number when it repeats none.
    pub of: usize,
    /// Through which manager.
    pub door: ManagerNumber,
    /// What was known when the request was first made; `None` once it was answered.
    pub before: Option<Box<Facts>>,
}

/// What clients know of one id.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Facts {
    /// Lives whose open was acknowledged.
    pub opened: BTreeSet<Stamp>,
    /// Lives whose close was acknowledged as finished.
    pub closed: BTreeSet<Stamp>,
    /// How far reads have shown it: the latest life, and how far that one.
    pub seen: Option<(Stamp, Phase)>,
    /// Somebody asked for a close, or the session may have ended otherwise: from then on nobody can
    /// say that it must live.
    pub may_end: bool,
}

/// How far a life has come: each goes one way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Phase {
    /// It is being opened.
    Opening,
    /// It runs.
    Live,
    /// It is being closed, or is over.
    Ended,
}

impl Phase {
    /// That of a record.
    fn of(state: SessionState) -> Self {
        match state {
            SessionState::Pending | SessionState::Starting => Phase::Opening,
            SessionState::Ready => Phase::Live,
            SessionState::Closing
            | SessionState::Closed
            | SessionState::Failed
            | SessionState::Lost => Phase::Ended,
        }
    }
}

impl Facts {
    /// How far the id had come, as answers show: whatever is asked from now on finds it so far at
    /// least.
    fn shown(&self) -> Option<(Stamp, Phase)> {
        let live = self.opened.last().map(|it| (*it, Phase::Live));
        let ended = self.closed.last().map(|it| (*it, Phase::Ended));
        self.seen.max(live).max(ended)
    }

    /// The life that must be found, whatever failed.
    pub fn owed(&self) -> Option<Stamp> {
        self.opened.last().copied().filter(|_| !self.may_end)
    }
}

/// All clients.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Clients {
    /// Every try, in order.
    pub asked: Vec<Asked>,
    /// By id.
    pub facts: Vec<Facts>,
    /// What has ended is forgotten within the search, also what ended without a word to any client.
    pub forgets: bool,
}

impl Clients {
    /// Clients that know nothing.
    pub fn new(bounds: &Bounds) -> Self {
        let facts = vec![Facts::default(); bounds.ids.len()];
        Self { asked: Vec::new(), facts, forgets: bounds.times == Times::Tombstone }
    }

    /// A client asks. Gives the number of the call.
    pub fn ask(&mut self, wish: Wish, id: usize, door: ManagerNumber) -> usize {
        let call = self.asked.len();
        if wish == Wish::Close {
            self.may_end(id);
        }
        let before = Some(Box::new(self.facts[id].clone()));
        self.asked.push(Asked { wish, id, of: call, door, before });
        call
    }

    /// A client asks the same again of another manager.
    pub fn ask_again(&mut self, call: usize, door: ManagerNumber) -> Option<usize> {
        let first = self.asked.get(call)?.clone();
        self.asked.push(Asked { door, ..first });
        Some(self.asked.len() - 1)
    }

    /// A session may end from now on: whatever was asked before may find it so.
    pub fn may_end(&mut self, id: usize) {
        self.facts[id].may_end = true;
        let under_way = self.asked.iter_mut().filter(|it| it.id == id);
        for before in under_way.filter_map(|it| it.before.as_mut()) {
            before.may_end = true;
        }
    }

    /// A client is answered.
    ///
    /// # Errors
    /// The answer breaks a promise.
    pub fn on_answer(&mut self, call: usize, result: &OpResult) -> Verdict {
        let Some(asked) = self.asked.get_mut(call) else { return Ok(()) };
        let id = asked.id;
        let Some(before) = asked.before.take() else { return Ok(()) };
        match result {
            Ok(Answer::Opened { session, .. }) => {
                let record = &session.record;
                if record.state != SessionState::Ready {
                    let text = format!("an open was answered {}", record.state);
                    return Err(Violation::new("S2", text));
                }
                open_again(&before, record)?;
                not_back(&before, record)?;
                self.facts[id].opened.insert(record.life);
            }
            Ok(Answer::Closed { finished: true, session }) => {
                self.facts[id].closed.insert(session.record.life);
            }
            Ok(Answer::Got { session, .. }) => {
                let record = &session.record;
                shown(&before, record)?;
                not_back(&before, record)?;
                let seen = &mut self.facts[id].seen;
                *seen = (*seen).max(Some((record.life, Phase::of(record.state))));
            }
            Err(refusal) if refusal.kind == RefusalKind::NotFound => {
                if let (Some(owed), Wish::Get) = (before.owed(), self.asked[call].wish) {
                    let text = format!("life {owed} was acknowledged, and is not found");
                    return Err(Violation::new("S2", text));
                }
                // What has ended is forgotten some day.
                let forgotten = self.forgets && before.may_end;
                let gone = before.shown().filter(|it| it.1 != Phase::Ended && !forgotten);
                if let (Some((life, phase)), Wish::Get) = (gone, self.asked[call].wish) {
                    let text = format!("life {life} was shown {phase:?}, and is not found");
                    return Err(Violation::new("linear", text));
                }
            }
            Ok(
                Answer::Closed { finished: false, .. }
                | Answer::Listed(_)
                | Answer::Pulled(_)
                | Answer::KeptAlive { .. }
                | Answer::Reported
                | Answer::Mended(_)
                | Answer::Numbers(_)
                | Answer::Tasks(_)
                | Answer::Lives(_)
                | Answer::Found(_)
                | Answer::Documents(_),
            )
            | Err(_) => {}
        }
        Ok(())
    }
}

/// S3: a life that was closed before an open was asked for is not opened by it.
fn open_again(before: &Facts, record: &SessionRecord) -> Verdict {
    if before.closed.contains(&record.life) {
        let text = format!("life {} was closed, and an open found it", record.life);
        return Err(Violation::new("S3", text));
    }
    if let Some(owed) = before.owed().filter(|it| *it != record.life) {
        let text = format!("life {owed} was acknowledged, and an open began {}", record.life);
        return Err(Violation::new("S2", text));
    }
    Ok(())
}

/// What a read shows must fit what was known before it was asked for.
fn shown(before: &Facts, record: &SessionRecord) -> Verdict {
    let over = record.state.is_ended() || record.state == SessionState::Closing;
    if before.closed.contains(&record.life) && !over {
        let text = format!("life {} was closed, and is shown {}", record.life, record.state);
        return Err(Violation::new("S3", text));
    }
    if let Some(owed) = before.owed()
        && (over || record.life != owed)
    {
        let text = format!(
            "life {owed} was acknowledged, and life {} is shown {}",
            record.life, record.state
        );
        return Err(Violation::new("S2", text));
    }
    Ok(())
}

/// Linearizability of answers: the lives of an id follow each other, each goes one way, and no answer
/// is older than one that came before it was asked for.
fn not_back(before: &Facts, record: &SessionRecord) -> Verdict {
    let now = (record.life, Phase::of(record.state));
    if let Some((life, phase)) = before.shown().filter(|it| *it > now) {
        let text = format!(
            "life {life} was shown {phase:?}, and a later answer shows life {} as {}",
            record.life, record.state
        );
        return Err(Violation::new("linear", text));
    }
    Ok(())
}

/// The ids of a model: names whose slots fall where the bounds want them.
pub fn keys(bounds: &Bounds) -> Vec<SessionKey> {
    let after = |numbers: &[u32]| numbers.iter().map(|it| (ManagerNumber(*it), ())).collect();
    let ring: std::collections::BTreeMap<ManagerNumber, ()> = after(bounds.numbers);
    let mut later = ring.clone();
    later.extend(bounds.newcomers.iter().map(|it| (ManagerNumber(*it), ())));
    let mut taken = BTreeSet::new();
    let mut find = |(home, then): (u32, u32)| {
        let fits = |slot: SlotId| {
            place::home(&ring, slot) == Some(ManagerNumber(home))
                && place::home(&later, slot) == Some(ManagerNumber(then))
        };
        let mut names = (0..10_000).map(|it| session_key(&format!("y{it}")));
        let found =
            names.find(|key| fits(slot_of_session(key, bounds.slots())) && !taken.contains(key));
        let found = found.expect("every arc holds some of so many names");
        taken.insert(found.clone());
        found
    };
    bounds.ids.iter().map(|it| find(*it)).collect()
}

fn session_key(id: &str) -> SessionKey {
    let namespace = Namespace::parse("default").expect("a short name");
    SessionKey::new(namespace, SessionId::parse(id).expect("a short name"))
}

/// The request of a call.
pub fn op_of(asked: &Asked, key: &SessionKey) -> Op {
    let request = RequestId::parse(&format!("r{}", asked.of)).expect("a short name");
    let key = key.clone();
    match asked.wish {
        Wish::Open => Op::Open(OpenOp {
            pool_named: true,
            key,
            spec: SessionSpec {
                class: ClassName::parse(CLASS).expect("a short name"),
                pool: PoolName::default_pool(),
                attributes: Arc::default(),
                life: None,
            },
            request,
            remember: true,
        }),
        Wish::Close => {
            Op::Close(CloseOp { key, life: None, request, grace_ms: None, by_operator: false })
        }
        Wish::Get => Op::Get(GetOp { key, stale_ok: false }),
    }
}
