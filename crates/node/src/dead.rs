//! Tokens that never run (again). Bounded by time, not by count: to forget one early could hide a
//! session's end from its manager. What is forgotten still never runs: of each slot stays the
//! highest token that was forgotten, and no token up to it is started. (A manager may ask for one
//! long after: its partition may have been without an owner for longer than tokens are kept.)

use rota_model::node_msg::{DeadToken, SlotRange};
use rota_model::{LogPos, Seq, SessionKey, SlotId, Token};
use serde::{Deserialize, Serialize};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

/// A remembered token.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub(crate) struct Dead {
    pub(crate) slot: SlotId,
    pub(crate) why: DeadToken,
}

/// All remembered tokens.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct DeadTokens {
    tokens: BTreeMap<(SessionKey, Token), Dead>,
    /// Every token with the time at which it may be forgotten, in order of that time: all are kept
    /// equally long, from when they died.
    by_expiry: VecDeque<(u64, SessionKey, Token)>,
    /// The highest forgotten token of each slot. Tokens of a slot are given out in rising order.
    forgotten: BTreeMap<SlotId, Token>,
    /// What changed since [`Self::take_changes`].
    changes: Vec<DeadChange>,
}

/// One change of what is remembered of dead tokens.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub(crate) enum DeadChange {
    /// It is remembered until then, or longer than was said before.
    Kept { key: SessionKey, token: Token, dead: Dead, expires_ms: u64 },
    /// It is forgotten, if it was remembered: no token of its slot up to it is started.
    Forgotten { key: Option<SessionKey>, token: Token, slot: SlotId },
}

const FIRST: Token = Token(LogPos::ZERO);
const LAST: Token = Token(LogPos { pe: rota_model::Epoch(u64::MAX), seq: Seq(u64::MAX) });

impl DeadTokens {
    /// Remembers a token until `expires_ms`. One that is dead already stays as it is.
    pub(crate) fn bury(&mut self, key: &SessionKey, token: Token, dead: Dead, expires_ms: u64) {
        let entry = self.tokens.entry((key.clone(), token));
        if let Entry::Vacant(vacant) = entry {
            self.changes.push(DeadChange::Kept {
                key: key.clone(),
                token,
                dead: dead.clone(),
                expires_ms,
            });
            vacant.insert(dead);
            self.by_expiry.push_back((expires_ms, key.clone(), token));
        }
    }

    pub(crate) fn get(&self, key: &SessionKey, token: Token) -> Option<&DeadToken> {
        self.tokens.get(&(key.clone(), token)).map(|it| &it.why)
    }

    /// The highest dead token of a session.
    fn highest(&self, key: &SessionKey) -> Option<Token> {
        let of_key = self.tokens.range((key.clone(), FIRST)..=(key.clone(), LAST));
        of_key.map(|((_, token), _)| *token).next_back()
    }

    /// The highest token of a range of slots, remembered as dead or forgotten.
    pub(crate) fn highest_in(&self, range: SlotRange) -> Option<Token> {
        let dead = self.tokens.iter().filter(|(_, dead)| range.contains(dead.slot));
        let dead = dead.map(|((_, token), _)| *token).max();
        let forgotten = self.forgotten.iter().filter(|(slot, _)| range.contains(**slot));
        forgotten.map(|(_, token)| *token).max().max(dead)
    }

    /// Why a token that is not remembered is dead all the same, if it is.
    pub(crate) fn too_old(&self, key: &SessionKey, slot: SlotId, token: Token) -> Option<String> {
        if let Some(newer) = self.highest(key).filter(|it| *it > token) {
            return Some(format!("a newer attempt, {newer}, was seen here"));
        }
        let may_be_forgotten = self.forgotten.get(&slot).is_some_and(|it| token <= *it);
        may_be_forgotten.then(|| "so late a call could start what ended here before".to_owned())
    }

    /// All of them after that session, in order of key and token.
    pub(crate) fn after<'a>(
        &'a self,
        key: Option<&SessionKey>,
    ) -> impl Iterator<Item = (&'a SessionKey, Token, &'a Dead)> + use<'a> {
        let from = match key {
            Some(key) => Bound::Excluded((key.clone(), LAST)),
            None => Bound::Unbounded,
        };
        self.tokens.range((from, Bound::Unbounded)).map(|((key, token), it)| (key, *token, it))
    }

    pub(crate) fn len(&self) -> usize {
        self.tokens.len()
    }

    pub(crate) fn next_expiry(&self) -> Option<u64> {
        self.by_expiry.front().map(|(expires_ms, _, _)| *expires_ms)
    }

    /// Forgets what has expired; what `keep` still needs is kept until `later_ms`.
    pub(crate) fn expire(
        &mut self,
        now: u64,
        later_ms: u64,
        keep: impl Fn(&SessionKey, Token) -> bool,
    ) {
        while self.next_expiry().is_some_and(|it| it <= now) {
            let Some((_, key, token)) = self.by_expiry.pop_front() else {
                return;
            };
            let name = (key, token);
            if keep(&name.0, token) {
                let (key, dead) = (name.0.clone(), self.tokens.get(&name).cloned());
                let kept = |dead| DeadChange::Kept { key, token, dead, expires_ms: later_ms };
                self.changes.extend(dead.map(kept));
                self.by_expiry.push_back((later_ms, name.0, token));
            } else if let Some(Dead { slot, .. }) = self.tokens.remove(&name) {
                self.forget_up_to(slot, token);
                self.changes.push(DeadChange::Forgotten { key: Some(name.0), token, slot });
            }
        }
    }

    fn forget_up_to(&mut self, slot: SlotId, token: Token) {
        let highest = self.forgotten.entry(slot).or_insert(token);
        *highest = token.max(*highest);
    }

    /// What changed since this was asked last.
    pub(crate) fn take_changes(&mut self) -> Vec<DeadChange> {
        std::mem::take(&mut self.changes)
    }

    /// Everything, as changes of nothing. A forgotten token stands for all that its slot forgot, under no session.
    pub(crate) fn all(&self) -> impl Iterator<Item = DeadChange> + '_ {
        let forgotten = self.forgotten.iter().map(|(slot, token)| DeadChange::Forgotten {
            key: None,
            token: *token,
            slot: *slot,
        });
        let kept = self.by_expiry.iter().filter_map(|(expires_ms, key, token)| {
            let dead = self.tokens.get(&(key.clone(), *token))?.clone();
            let (key, token, expires_ms) = (key.clone(), *token, *expires_ms);
            Some(DeadChange::Kept { key, token, dead, expires_ms })
        });
        forgotten.chain(kept)
    }

    /// Those that changes lead to, which came one after the other.
    pub(crate) fn of(changes: impl IntoIterator<Item = DeadChange>) -> Self {
        let mut dead = Self::default();
        let mut expiries = BTreeMap::new();
        for (number, change) in changes.into_iter().enumerate() {
            match change {
                DeadChange::Kept { key, token, dead: kept, expires_ms } => {
                    expiries.insert((key.clone(), token), (expires_ms, number));
                    dead.tokens.insert((key, token), kept);
                }
                DeadChange::Forgotten { key, token, slot } => {
                    if let Some(name) = key.map(|it| (it, token)) {
                        expiries.remove(&name);
                        dead.tokens.remove(&name);
                    }
                    dead.forget_up_to(slot, token);
                }
            }
        }
        let mut order: Vec<_> =
            expiries.into_iter().map(|((key, token), at)| (at, key, token)).collect();
        order.sort();
        dead.by_expiry = order.into_iter().map(|((at, _), key, token)| (at, key, token)).collect();
        dead
    }
}
