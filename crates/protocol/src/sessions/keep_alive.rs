//! Clients say that they use a session. Nothing is written for it: whoever begins to lead the partition under a new
//! epoch knows of no use before the first one that it hears of, so it never takes a session for idle too early.

use crate::log::at::At;
use crate::sessions::read::{key_of, not_found, view_at_node, visible};
use crate::sessions::uses::Uses;
use rota_messages::{Answer, OpResult};
use rota_model::{KeepAliveOp, Refusal, RefusalKind, Retry, SessionRecord, SessionState, Stamp};

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

/// Keeps a session alive, once it is known that nobody else owned the partition when the call arrived.
pub(crate) fn keep_alive(led: &At<'_>, uses: &mut Uses, op: &KeepAliveOp) -> OpResult {
    let record = visible(led, &key_of(led.env, &op.key)).ok_or_else(|| not_found(&op.key))?;
    if let Some(refusal) = refuses(&record, op.life) {
        return Err(refusal);
    }
    let idle_ms = uses.note(&record, led.env.now.mono_ms);
    let session = view_at_node(led, record);
    Ok(Answer::KeptAlive { session, idle_ms })
}
