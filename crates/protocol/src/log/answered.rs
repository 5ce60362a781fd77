//! Refusals that an owner gave to peers, for a while; and answers to operations.
//!
//! An entry manager repeats a request when its owner is silent, so a repetition may arrive after the
//! answer. What was carried out is remembered in the record, and repeating it changes nothing; what
//! was refused is remembered here, or the repetition would be carried out when nobody waits for it
//! any more: a close that found nothing would close the next life.
//!
//! An operation without a time of its caller's is in no document, whatever it came to. So every
//! answer to one is remembered here, and an entry manager never asks another run for it.
//!
//! Each is kept for as long as any request may wait at its entry manager. A run names its requests in
//! rising order; so when one is forgotten here, no caller waits any more for it or for one named
//! before, and a copy of those that still comes (this process may have been stopped for long) is not
//! carried out.

use crate::log::env::Env;
use crate::log::origin::Origin;
use rota_docstore::{Body, Exception, Phase, codes};
use rota_messages::{Answer, DocumentAnswer, Op, OpResult};
use rota_model::{MemberId, Refusal, RefusalKind, Retry};
use std::collections::{BTreeMap, VecDeque};

/// Most refusals that are kept, each a few hundred bytes. As many as requests may wait.
const ANSWERED_MAX: usize = crate::settings::sizes::REQUESTS_MAX;

/// Most runs of one peer of which is known what was forgotten. Of an earlier one nothing is on its way
/// for so long: its connections ended with it.
const RUNS_MAX: usize = 4;

/// Longest result of an operation that is kept, in bytes. Of a longer one only the fact is kept: who
/// asks again is told X-LOST of phase 5, so that he knows that it was carried out.
const RESULT_BYTES_MAX: usize = 1_024;

/// What was answered, oldest first.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Answered {
    results: BTreeMap<Origin, OpResult>,
    until: VecDeque<(u64, Origin)>,
    /// The highest name that was forgotten of each peer's run. Of the last runs of each peer only.
    forgotten: BTreeMap<MemberId, u64>,
}

impl Answered {
    /// Remembers a refusal, if the entry manager leaves it at that; and what becomes of an operation
    /// that must not be carried out twice.
    pub fn insert(&mut self, env: &Env, origin: Origin, op: &Op, result: &OpResult) {
        let is_final = result.as_ref().is_err_and(|it| !is_asked_again(it.kind));
        let from_peer = matches!(origin, Origin::Peer { .. });
        if !from_peer || !(op.is_once() || (op.changes() && is_final)) {
            return;
        }
        let result = kept(result);
        if self.until.len() >= ANSWERED_MAX {
            self.forget_oldest();
        }
        let until_ms = env.now.mono_ms + env.config.timing.answers_ms();
        if self.results.insert(origin, result).is_none() {
            self.until.push_back((until_ms, origin));
        }
    }

    /// What a request was answered; and the refusal of one whose answer may be forgotten.
    pub fn get(&self, origin: Origin, op: &Op) -> Option<OpResult> {
        if let Some(result) = self.results.get(&origin) {
            return Some(result.clone());
        }
        let Origin::Peer { from, rid } = origin else {
            return None;
        };
        let is_late = self.forgotten.get(&from).is_some_and(|it| rid <= *it);
        (is_late && op.changes()).then(|| Err(late_request()))
    }

    pub fn is_empty(&self) -> bool {
        self.until.is_empty()
    }

    /// When each is forgotten.
    pub fn deadlines(&self) -> impl Iterator<Item = u64> {
        self.until.iter().map(|it| it.0)
    }

    /// Forgets what no repetition asks for any more.
    pub fn forget(&mut self, now_ms: u64) {
        while self.until.front().is_some_and(|(until_ms, _)| *until_ms <= now_ms) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let Some((_, origin)) = self.until.pop_front() else {
            return;
        };
        self.results.remove(&origin);
        if let Origin::Peer { from, rid } = origin {
            let highest = self.forgotten.entry(from).or_insert(rid);
            *highest = rid.max(*highest);
            let of_peer = |it: &MemberId| it.number == from.number;
            if self.forgotten.keys().filter(|it| of_peer(it)).count() > RUNS_MAX
                && let Some(oldest) = self.forgotten.keys().copied().find(of_peer)
            {
                self.forgotten.remove(&oldest);
            }
        }
    }
}

/// What is kept of an answer. Updates are left out, as those that do not fit into a message: their caller
/// asks for them by themselves.
fn kept(result: &OpResult) -> OpResult {
    let Ok(Answer::Documents(DocumentAnswer::Operated(Ok(answer)))) = result else {
        return result.clone();
    };
    let length = match &answer.body {
        Body::Nothing => 0,
        Body::Json(text) => text.as_str().len(),
        Body::Binary { bytes, .. } => bytes.len(),
    };
    let operated = if length <= RESULT_BYTES_MAX {
        let (version, body) = (answer.version, answer.body.clone());
        Ok(rota_docstore::Answer { version, body, updates: Vec::new() })
    } else {
        let text = format!(
            "the operation was carried out at version {}, and its result of {length} bytes was lost on \
             the way",
            answer.version
        );
        Err(Exception::new(codes::LOST, text).at(Phase::Sending))
    };
    Ok(Answer::Documents(DocumentAnswer::Operated(operated)))
}

fn late_request() -> Refusal {
    let text = "the request came when its caller had given up; it may have been carried out before";
    Refusal::unknown_outcome(RefusalKind::DeadlineExceeded, Retry::Never, text)
}

/// Whether the entry manager asks again by itself after that, under the same name.
pub(crate) fn is_asked_again(kind: RefusalKind) -> bool {
    match kind {
        RefusalKind::NotOwner
        | RefusalKind::NotServing
        | RefusalKind::Closing
        | RefusalKind::Recovering => true,
        RefusalKind::InvalidArgument
        | RefusalKind::UnknownClass
        | RefusalKind::NotFound
        | RefusalKind::NoTransition
        | RefusalKind::LifeMismatch
        | RefusalKind::VersionMismatch
        | RefusalKind::RequestIdReused
        | RefusalKind::InProgress
        | RefusalKind::Provisioning
        | RefusalKind::NoCapacity
        | RefusalKind::StartFailed
        | RefusalKind::Closed
        | RefusalKind::Overloaded
        | RefusalKind::DeadlineExceeded
        | RefusalKind::ConfigStoreAway
        | RefusalKind::NamespaceOff
        | RefusalKind::UnknownNode
        | RefusalKind::BootUnproven
        | RefusalKind::Internal => false,
    }
}
