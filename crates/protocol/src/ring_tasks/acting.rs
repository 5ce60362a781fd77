//! Running an action of a session again that failed.

use crate::ring_tasks::state::{Of, Order};
use rota_docstore::Exception;
use rota_messages::Op;
use rota_messages::lives::{Event, FireOp, LivesOp};
use rota_model::{FieldError, SessionId, SessionKey};
use rota_tasks::{ActWork, TaskKey};

/// An action that is run again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Acting {
    op: FireOp,
    /// How often it is tried again after this run.
    pub retries: u32,
    is_asked: bool,
}

impl Acting {
    pub fn new(key: &TaskKey, work: ActWork) -> Result<Self, Exception> {
        let ActWork { id, origin, life_cycle, word, retries } = work;
        let wrong = |it: FieldError| FieldError::new("param", format!("id: {}", it.problem));
        let id = SessionId::parse(&id).map_err(wrong)?;
        let session = SessionKey::new(key.ns.clone(), id);
        let op = FireOp { key: session, origin, event: Event { life_cycle, word } };
        // Its task counts its first run as none.
        Ok(Self { op, retries: retries.saturating_sub(1), is_asked: false })
    }

    pub fn orders(&mut self) -> Vec<Order> {
        if std::mem::replace(&mut self.is_asked, true) {
            return Vec::new();
        }
        vec![(Of::Act, Op::Lives(LivesOp::Fire(Box::new(self.op.clone()))))]
    }

    pub fn is_asked(&self) -> bool {
        self.is_asked
    }
}
