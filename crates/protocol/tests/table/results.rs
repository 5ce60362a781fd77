//! What an answer is expected to be.

use rota_model::{Outcome, RefusalKind, SessionView};
use rota_protocol::{Answer, OpResult};

pub fn opened(result: OpResult) -> (Outcome, SessionView) {
    match result {
        Ok(Answer::Opened { outcome, session, .. }) => (outcome, session),
        other => panic!("not opened: {other:?}"),
    }
}

pub fn got(result: OpResult) -> SessionView {
    match result {
        Ok(Answer::Got { session, .. }) => session,
        other => panic!("not got: {other:?}"),
    }
}

pub fn closed(result: OpResult) -> SessionView {
    match result {
        Ok(Answer::Closed { finished: true, session }) => session,
        other => panic!("not closed: {other:?}"),
    }
}

pub fn refused(result: OpResult) -> RefusalKind {
    result.expect_err("it was not refused").kind
}
