//! `Sessions.KeepAlive` on the wire: of clients, and between managers.

use crate::mistakes::Mistakes;
use crate::record::stamp_or_none;
use crate::session::{shown, unexpected};
use crate::v1;
use crate::wire::{WireError, convert};
use rota_messages::Answer;
use rota_model::{KeepAliveOp, NodeId, Refusal, Stamp};

/// Checks a keep-alive.
pub fn keep_alive(request: &v1::KeepAliveRequest) -> Result<KeepAliveOp, Refusal> {
    let mut mistakes = Mistakes::default();
    let key = mistakes.key(&request.namespace, &request.id);
    let life = mistakes.life(request.life);
    let op = key.and_then(|key| Some(KeepAliveOp { key, life: life? }));
    mistakes.finish(op)
}

/// The response to a keep-alive. `node_address` as in [`crate::session::session`].
pub fn keep_alive_response(
    answer: Answer,
    node_address: impl Fn(&NodeId) -> String,
) -> Result<v1::KeepAliveResponse, Refusal> {
    let Answer::KeptAlive { session, idle_ms } = answer else {
        return Err(unexpected("keep-alive"));
    };
    Ok(v1::KeepAliveResponse { session: Some(shown(session, node_address)), idle_ms })
}

impl From<KeepAliveOp> for v1::KeepAliveRequest {
    fn from(op: KeepAliveOp) -> Self {
        Self {
            namespace: op.key.namespace.as_str().into(),
            id: op.key.id.as_str().into(),
            life: op.life.map_or(0, Stamp::as_u64),
        }
    }
}

impl From<KeepAliveOp> for v1::KeepAliveOp {
    fn from(op: KeepAliveOp) -> Self {
        Self { key: Some((&op.key).into()), life: op.life.map_or(0, Stamp::as_u64) }
    }
}

impl TryFrom<v1::KeepAliveOp> for KeepAliveOp {
    type Error = WireError;
    fn try_from(op: v1::KeepAliveOp) -> Result<Self, WireError> {
        let life = stamp_or_none("KeepAliveOp.life", op.life)?;
        Ok(KeepAliveOp { key: convert("KeepAliveOp.key", op.key)?, life })
    }
}
