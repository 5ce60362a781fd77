//! Clients say that they use a session. Nothing is written for it: whoever begins to lead the partition under a new
//! epoch knows of no use before the first one that it hears of, so it never takes a session for idle too early.

use crate::log::at::At;
use crate::log::origin::Origin;
use crate::log::resident::RequestHandler;
use crate::sessions::read::{key_of, not_found, view_at_node, visible};
use crate::sessions::state::Sessions;
use rota_messages::Answer;
use rota_model::{
    KeepAliveOp, Refusal, RefusalKind, Retry, SessionKey, SessionRecord, SessionState, Stamp,
};
use std::collections::BTreeMap;

/// When sessions were used last: an entry for each one that lives and was.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Uses {
    /// In which life, and when.
    last: BTreeMap<SessionKey, (Stamp, u64)>,
}

impl Uses {
    /// A session is used now. Gives for how long it was not, if that is known.
    pub fn note(&mut self, record: &SessionRecord, now_ms: u64) -> Option<u64> {
        let before = self.last.insert(record.key.clone(), (record.life, now_ms));
        let (_, at_ms) = before.filter(|(life, _)| *life == record.life)?;
        Some(now_ms.saturating_sub(at_ms))
    }

    /// When a life was used last, as far as this owner knows.
    pub fn last(&self, key: &SessionKey, life: Stamp) -> Option<u64> {
        self.last.get(key).filter(|it| it.0 == life).map(|it| it.1)
    }

    /// A life has ended.
    pub fn forget(&mut self, key: &SessionKey) {
        self.last.remove(key);
    }
}

/// Why a session is not kept alive, or changed, if so.
pub(crate) fn refuses(record: &SessionRecord, life: Option<Stamp>) -> Option<Refusal> {
    let why = match record.state {
        // Not CLOSING: a manager asks again for who gets that, until a later life may be meant.
        SessionState::Closing => "is being closed",
        SessionState::Lost if record.is_reopened() => {
            "waits for a node that has room for its next life"
        }
        SessionState::Closed | SessionState::Failed | SessionState::Lost => "has ended",
        _ if life.is_some_and(|life| life != record.life) => {
            let text = format!("session {} lives life {}", record.key, record.life);
            return Some(Refusal::new(RefusalKind::LifeMismatch, Retry::Never, text));
        }
        SessionState::Pending | SessionState::Starting | SessionState::Ready => return None,
    };
    let text = format!("session {} {why}: it is {}", record.key, record.state.as_str());
    Some(Refusal::new(RefusalKind::NotFound, Retry::WhenChanged, text))
}

impl Sessions {
    /// Nobody else owned the partition when the call arrived.
    pub fn on_keep_alive_confirmed(&mut self, led: &mut At<'_>, origin: Origin, op: &KeepAliveOp) {
        let Some(record) = visible(led, &key_of(led.env, &op.key)) else {
            return self.reply(led, origin, Err(not_found(&op.key)));
        };
        if let Some(refusal) = refuses(&record, op.life) {
            return self.reply(led, origin, Err(refusal));
        }
        let idle_ms = self.uses.note(&record, led.env.now.mono_ms);
        let session = view_at_node(led, record);
        self.reply(led, origin, Ok(Answer::KeptAlive { session, idle_ms }));
    }
}
