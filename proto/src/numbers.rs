//! Stable numbers of sessions on the wire: of operators, and between managers.

use crate::mistakes::Mistakes;
use crate::session::unexpected;
use crate::v1;
use crate::wire::{WireError, each, named};
use rota_messages::Answer;
use rota_model::items::SessionNumber;
use rota_model::node_msg::SlotRange;
use rota_model::{
    Epoch, NodeId, NumbersOp, PoolName, Refusal, SESSION_NUMBERS_MAX, SessionsThere, SlotId,
};

/// Checks what an operator asks.
///
/// # Errors
/// A refusal that names every wrong field.
pub fn session_numbers(request: &v1::SessionNumbersRequest) -> Result<NumbersOp, Refusal> {
    let mut mistakes = Mistakes::default();
    let pool = mistakes.note_in("pool", PoolName::parse(&request.pool));
    let node = mistakes.note_in("node", NodeId::parse(&request.node));
    let op = pool.and_then(|pool| Some(NumbersOp { pool, node: node?, there: None }));
    mistakes.finish(op)
}

/// The response.
///
/// # Errors
/// The owner answered something else.
pub fn session_numbers_response(answer: Answer) -> Result<v1::SessionNumbersResponse, Refusal> {
    let Answer::Numbers(numbers) = answer else {
        return Err(unexpected("numbers"));
    };
    Ok(v1::SessionNumbersResponse { sessions: numbers.into_iter().map(Into::into).collect() })
}

impl From<SessionNumber> for v1::SessionNumber {
    fn from(it: SessionNumber) -> Self {
        let SessionNumber { namespace, id, number, valid, changed_ms } = it;
        Self { namespace, id, number, valid, changed_ms }
    }
}

impl From<v1::SessionNumber> for SessionNumber {
    fn from(it: v1::SessionNumber) -> Self {
        let v1::SessionNumber { namespace, id, number, valid, changed_ms } = it;
        Self { namespace, id, number, valid, changed_ms }
    }
}

impl From<NumbersOp> for v1::NumbersOp {
    fn from(op: NumbersOp) -> Self {
        let there = op.there.map(|there| v1::SessionsThere {
            pe: there.pe.0,
            first_slot: there.range.first.0,
            last_slot: there.range.last.0,
            sessions: there.sessions.iter().map(Into::into).collect(),
        });
        Self { pool: op.pool.as_str().into(), node: op.node.as_str().into(), there }
    }
}

impl TryFrom<v1::NumbersOp> for NumbersOp {
    type Error = WireError;
    fn try_from(op: v1::NumbersOp) -> Result<Self, WireError> {
        let there = op.there.map(|there| -> Result<SessionsThere, WireError> {
            let (first, last) = (SlotId(there.first_slot), SlotId(there.last_slot));
            let count = there.sessions.len();
            if count > SESSION_NUMBERS_MAX {
                let problem = format!("has {count} sessions; the limit is {SESSION_NUMBERS_MAX}");
                return Err(WireError::new("NumbersOp.there", problem));
            }
            let range = SlotRange { first, last };
            Ok(SessionsThere { pe: Epoch(there.pe), range, sessions: each(there.sessions)? })
        });
        Ok(NumbersOp {
            pool: named("NumbersOp.pool", PoolName::parse(&op.pool))?,
            node: named("NumbersOp.node", NodeId::parse(&op.node))?,
            there: there.transpose()?,
        })
    }
}

impl From<Vec<SessionNumber>> for v1::peer_answer::Numbers {
    fn from(numbers: Vec<SessionNumber>) -> Self {
        Self { sessions: numbers.into_iter().map(Into::into).collect() }
    }
}

impl TryFrom<v1::peer_answer::Numbers> for Vec<SessionNumber> {
    type Error = WireError;
    fn try_from(numbers: v1::peer_answer::Numbers) -> Result<Self, WireError> {
        Ok(numbers.sessions.into_iter().map(Into::into).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_model::{Namespace, SessionId, SessionKey};

    #[test]
    fn what_is_wrong_with_a_question_is_named() {
        let refusal = session_numbers(&v1::SessionNumbersRequest::default()).unwrap_err();
        let fields: Vec<&str> = refusal.fields.iter().map(|it| it.field.as_str()).collect();
        assert_eq!(fields, ["pool", "node"]);
    }

    #[test]
    fn a_report_comes_over_whole_and_one_that_is_too_long_is_refused() {
        let id = SessionId::parse("a").unwrap();
        let key = SessionKey::new(Namespace::parse("default").unwrap(), id);
        let range = SlotRange { first: SlotId(9), last: SlotId(3) };
        let op = |sessions| NumbersOp {
            pool: PoolName::default_pool(),
            node: NodeId::parse("n1").unwrap(),
            there: Some(SessionsThere { pe: Epoch(5), range, sessions }),
        };
        let one = op(vec![key.clone()]);
        assert_eq!(NumbersOp::try_from(v1::NumbersOp::from(one.clone())), Ok(one));
        let many = v1::NumbersOp::from(op(vec![key; SESSION_NUMBERS_MAX + 1]));
        let error = NumbersOp::try_from(many).unwrap_err().to_string();
        assert_eq!(error, "NumbersOp.there has 1001 sessions; the limit is 1000");
    }
}
