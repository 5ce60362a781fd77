//! `Operator.Mend` on the wire: of operators, and between managers.

use crate::mistakes::Mistakes;
use crate::session::unexpected;
use crate::v1;
use crate::wire::{WireError, convert, named, optional, sentence};
use rota_messages::Answer;
use rota_model::{MendOp, MendStep, Mended, NodeId, Refusal};

/// Checks what an operator asks.
///
/// # Errors
/// A refusal that names every wrong field.
pub fn mend(request: &v1::MendRequest) -> Result<MendOp, Refusal> {
    let mut mistakes = Mistakes::default();
    let key = mistakes.key(&request.namespace, &request.id);
    let node = mistakes.note_in("node", NodeId::parse(&request.node));
    let dry_run = request.dry_run;
    let op = key.and_then(|key| Some(MendOp { key, node: node?, dry_run }));
    mistakes.finish(op)
}

/// The response.
///
/// # Errors
/// The owner answered something else.
pub fn mend_response(answer: Answer) -> Result<v1::MendResponse, Refusal> {
    let Answer::Mended(Mended { step, token, text }) = answer else {
        return Err(unexpected("mend"));
    };
    Ok(v1::MendResponse { step: step.as_str().into(), token: token.map(Into::into), text })
}

impl From<MendOp> for v1::MendRequest {
    fn from(op: MendOp) -> Self {
        Self {
            namespace: op.key.namespace.as_str().into(),
            id: op.key.id.as_str().into(),
            node: op.node.as_str().into(),
            dry_run: op.dry_run,
        }
    }
}

impl From<MendOp> for v1::MendOp {
    fn from(op: MendOp) -> Self {
        let (node, dry_run) = (op.node.as_str().into(), op.dry_run);
        Self { key: Some((&op.key).into()), node, dry_run }
    }
}

impl TryFrom<v1::MendOp> for MendOp {
    type Error = WireError;
    fn try_from(op: v1::MendOp) -> Result<Self, WireError> {
        Ok(MendOp {
            key: convert("MendOp.key", op.key)?,
            node: named("MendOp.node", NodeId::parse(&op.node))?,
            dry_run: op.dry_run,
        })
    }
}

impl From<Mended> for v1::peer_answer::Mended {
    fn from(mended: Mended) -> Self {
        let Mended { step, token, text } = mended;
        Self { step: step.as_str().into(), token: token.map(Into::into), text }
    }
}

impl TryFrom<v1::peer_answer::Mended> for Mended {
    type Error = WireError;
    fn try_from(mended: v1::peer_answer::Mended) -> Result<Self, WireError> {
        let step = MendStep::parse(&mended.step).ok_or_else(|| {
            WireError::new("Mended.step", format!("is {:?}, which is none", mended.step))
        })?;
        let token = optional(mended.token)?;
        Ok(Mended { step, token, text: sentence(mended.text) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_question_is_named() {
        let refusal = mend(&v1::MendRequest::default()).unwrap_err();
        let fields: Vec<&str> = refusal.fields.iter().map(|it| it.field.as_str()).collect();
        assert_eq!(fields, ["id", "node"]);
        let (id, node) = ("a".to_owned(), "n1".to_owned());
        let request = v1::MendRequest { id, node, dry_run: true, ..Default::default() };
        assert_eq!(mend(&request).map(v1::MendRequest::from).unwrap().namespace, "default");
    }
}
