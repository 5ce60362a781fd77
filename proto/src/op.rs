//! Requests that managers pass to owners, and their answers.

use crate::documents::peer::{
    document_answer, document_answer_from, document_op, document_op_from,
};
use crate::documents::search::{found_from, found_to_wire};
use crate::record::{outcome, reason_number, request_text, stamp_or_none, state};
use crate::session::{Session, contact_to_wire, unplaced};
use crate::v1;
use crate::wire::{
    WireError, convert, each, named, optional, required, sentence, short, unless_empty,
};
use rota_messages::{Answer, Op, OpResult};
use rota_model::node_msg::{ReportEvent, ReportItem};
use rota_model::{
    BootId, ClassName, CloseOp, Filter, GRACE_MS_MAX, GetOp, ListCursor, ListOp, ManagerNumber,
    Namespace, NodeId, OpenOp, PAGE_SIZE_MAX, Page, PullOp, Pulled, Refusal, RequestId,
    SessionRecord, SessionSpec, SessionView, SlotId, Stamp,
};
use std::sync::Arc;

impl From<OpenOp> for v1::OpenOp {
    fn from(op: OpenOp) -> Self {
        Self {
            key: Some((&op.key).into()),
            spec: Some(op.spec.into()),
            request: op.request.as_str().into(),
            remember: op.remember,
            pool_named: op.pool_named,
        }
    }
}

impl TryFrom<v1::OpenOp> for OpenOp {
    type Error = WireError;
    fn try_from(op: v1::OpenOp) -> Result<Self, WireError> {
        Ok(OpenOp {
            key: convert("OpenOp.key", op.key)?,
            spec: convert("OpenOp.spec", op.spec)?,
            request: named("OpenOp.request", RequestId::parse(&op.request))?,
            remember: op.remember,
            pool_named: op.pool_named,
        })
    }
}

impl From<&CloseOp> for v1::CloseOp {
    fn from(op: &CloseOp) -> Self {
        Self {
            key: Some((&op.key).into()),
            life: op.life.map_or(0, Stamp::as_u64),
            request: request_text(Some(&op.request)),
            by_operator: op.by_operator,
            grace_ms: op.grace_ms,
        }
    }
}

impl TryFrom<v1::CloseOp> for CloseOp {
    type Error = WireError;
    fn try_from(op: v1::CloseOp) -> Result<Self, WireError> {
        Ok(CloseOp {
            key: convert("CloseOp.key", op.key)?,
            life: stamp_or_none("CloseOp.life", op.life)?,
            request: named("CloseOp.request", RequestId::parse(&op.request))?,
            by_operator: op.by_operator,
            grace_ms: op.grace_ms.map(|it| it.min(GRACE_MS_MAX)),
        })
    }
}

impl From<&GetOp> for v1::GetOp {
    fn from(op: &GetOp) -> Self {
        Self { key: Some((&op.key).into()), stale_ok: op.stale_ok }
    }
}

impl TryFrom<v1::GetOp> for GetOp {
    type Error = WireError;
    fn try_from(op: v1::GetOp) -> Result<Self, WireError> {
        Ok(GetOp { key: convert("GetOp.key", op.key)?, stale_ok: op.stale_ok })
    }
}

impl From<&Filter> for v1::FilterOp {
    fn from(filter: &Filter) -> Self {
        let text = |it: Option<&str>| it.map_or_else(String::new, Into::into);
        Self {
            states: filter.states.iter().map(|it| v1::SessionState::from(*it).into()).collect(),
            node: text(filter.node.as_ref().map(NodeId::as_str)),
            class: text(filter.class.as_ref().map(ClassName::as_str)),
            namespace: text(filter.namespace.as_ref().map(Namespace::as_str)),
            key: filter.key.as_ref().map(Into::into),
        }
    }
}

impl TryFrom<v1::FilterOp> for Filter {
    type Error = WireError;
    fn try_from(filter: v1::FilterOp) -> Result<Self, WireError> {
        let states = filter.states.iter().map(|it| state("FilterOp.states", *it));
        Ok(Filter {
            states: states.collect::<Result<_, _>>()?,
            node: unless_empty("FilterOp.node", &filter.node, NodeId::parse)?,
            class: unless_empty("FilterOp.class", &filter.class, ClassName::parse)?,
            namespace: unless_empty("FilterOp.namespace", &filter.namespace, Namespace::parse)?,
            key: optional(filter.key)?,
        })
    }
}

impl From<&ListCursor> for v1::ListCursor {
    fn from(cursor: &ListCursor) -> Self {
        Self { slot: cursor.slot.0, after: cursor.after.as_ref().map(Into::into) }
    }
}

impl TryFrom<v1::ListCursor> for ListCursor {
    type Error = WireError;
    fn try_from(cursor: v1::ListCursor) -> Result<Self, WireError> {
        Ok(ListCursor { slot: SlotId(cursor.slot), after: optional(cursor.after)? })
    }
}

impl From<&ListOp> for v1::ListOp {
    fn from(op: &ListOp) -> Self {
        Self {
            from: Some((&op.from).into()),
            limit: op.limit,
            filter: Some((&op.filter).into()),
            stale_ok: op.stale_ok,
        }
    }
}

impl TryFrom<v1::ListOp> for ListOp {
    type Error = WireError;
    fn try_from(op: v1::ListOp) -> Result<Self, WireError> {
        if !(1..=PAGE_SIZE_MAX).contains(&op.limit) {
            let problem = format!("is {}; it must lie in [1, {PAGE_SIZE_MAX}]", op.limit);
            return Err(WireError::new("ListOp.limit", problem));
        }
        Ok(ListOp {
            from: convert("ListOp.from", op.from)?,
            limit: op.limit,
            filter: convert("ListOp.filter", op.filter)?,
            stale_ok: op.stale_ok,
        })
    }
}

impl From<&PullOp> for v1::PullOp {
    fn from(op: &PullOp) -> Self {
        Self {
            slot: op.slot.0,
            from: op.from.map(Into::into),
            snapshot_after: op.snapshot_after.as_ref().map(Into::into),
            limit: op.limit,
            wait_ms: op.wait_ms,
            filter: Some((&op.filter).into()),
        }
    }
}

impl TryFrom<v1::PullOp> for PullOp {
    type Error = WireError;
    fn try_from(op: v1::PullOp) -> Result<Self, WireError> {
        Ok(PullOp {
            slot: SlotId(op.slot),
            from: optional(op.from)?,
            snapshot_after: optional(op.snapshot_after)?,
            limit: op.limit,
            wait_ms: op.wait_ms,
            filter: convert("PullOp.filter", op.filter)?,
        })
    }
}

impl From<ReportItem> for v1::ReportItem {
    fn from(item: ReportItem) -> Self {
        use v1::report_item::{Event, MachineState, Ready};
        let event = match item.event {
            ReportEvent::Ready { address, remark } => Event::Ready(Ready { address, remark }),
            ReportEvent::Ended { reason, exit, detail } => {
                let reason = reason_number(Some(reason));
                Event::Ended(v1::dead_token::Ended { reason, exit: exit.map(Into::into), detail })
            }
            ReportEvent::MachineState { state, change } => {
                Event::MachineState(MachineState { state, change })
            }
        };
        Self {
            key: Some((&item.key).into()),
            node: item.node.as_str().into(),
            boot: item.boot.0,
            token: Some(item.token.into()),
            event: Some(event),
        }
    }
}

impl TryFrom<v1::ReportItem> for ReportItem {
    type Error = WireError;
    fn try_from(item: v1::ReportItem) -> Result<Self, WireError> {
        use v1::report_item::Event;
        let event = match required("ReportItem.event", item.event)? {
            Event::Ready(ready) => {
                let address = short("Ready.address", ready.address)?;
                ReportEvent::Ready { address, remark: sentence(ready.remark) }
            }
            Event::Ended(ended) => {
                let (reason, exit, detail) = crate::node::ended(ended)?;
                ReportEvent::Ended { reason, exit, detail }
            }
            Event::MachineState(machine) => {
                let state = short("MachineState.state", machine.state)?;
                ReportEvent::MachineState { state, change: machine.change }
            }
        };
        Ok(ReportItem {
            key: convert("ReportItem.key", item.key)?,
            node: named("ReportItem.node", NodeId::parse(&item.node))?,
            boot: BootId(item.boot),
            token: convert("ReportItem.token", item.token)?,
            event,
        })
    }
}

/// A request on its way to an owner.
pub(crate) fn request_to_wire(rid: u64, deadline_ms: u64, op: Op) -> v1::PeerRequest {
    use v1::peer_request::Op as WireOp;
    let op = match op {
        Op::Open(op) => WireOp::Open(op.into()),
        Op::Close(op) => WireOp::Close((&op).into()),
        Op::Get(op) => WireOp::Get((&op).into()),
        Op::KeepAlive(op) => WireOp::KeepAlive(op.into()),
        Op::Lives(op) => WireOp::Lives(op.into()),
        Op::List(op) => WireOp::List((&op).into()),
        Op::Pull(op) => WireOp::Pull((&op).into()),
        Op::Report(item) => WireOp::Report(item.into()),
        Op::Mend(op) => WireOp::Mend(op.into()),
        Op::Numbers(op) => WireOp::Numbers(op.into()),
        Op::Tasks(op) => WireOp::Tasks(op.into()),
        Op::Search(op) => WireOp::Search((&op).into()),
        Op::Documents(op) => document_op(op),
    };
    v1::PeerRequest { rid, deadline_ms, op: Some(op) }
}

/// The request in a message to an owner.
pub(crate) fn op_from_wire(op: Option<v1::peer_request::Op>) -> Result<Op, WireError> {
    use v1::peer_request::Op as WireOp;
    Ok(match required("PeerRequest.op", op)? {
        WireOp::Open(op) => Op::Open(op.try_into()?),
        WireOp::Close(op) => Op::Close(op.try_into()?),
        WireOp::Get(op) => Op::Get(op.try_into()?),
        WireOp::KeepAlive(op) => Op::KeepAlive(op.try_into()?),
        WireOp::Lives(op) => Op::Lives(op.try_into()?),
        WireOp::List(op) => Op::List(op.try_into()?),
        WireOp::Pull(op) => Op::Pull(op.try_into()?),
        WireOp::Report(item) => Op::Report(item.try_into()?),
        WireOp::Mend(op) => Op::Mend(op.try_into()?),
        WireOp::Numbers(op) => Op::Numbers(op.try_into()?),
        WireOp::Tasks(op) => Op::Tasks(op.try_into()?),
        WireOp::Search(op) => Op::Search(op.try_into()?),
        op @ (WireOp::Operate(_)
        | WireOp::Sync(_)
        | WireOp::Documents(_)
        | WireOp::Clear(_)
        | WireOp::Import(_)
        | WireOp::Copy(_)
        | WireOp::Follow(_)
        | WireOp::Watch(_)) => Op::Documents(document_op_from(op)?),
    })
}

impl From<&SessionView> for v1::SessionView {
    fn from(view: &SessionView) -> Self {
        let attributes = (*view.record.spec.attributes).clone();
        let session = unplaced(&view.record, attributes, view.owner, view.epoch);
        let (node_state, node_unheard_ms) = contact_to_wire(view.node.as_ref());
        let failed_actions = view.failed_actions;
        Self {
            session: Some(v1::Session { node_state, node_unheard_ms, failed_actions, ..session }),
            placement: view.record.placement.as_ref().map(Into::into),
            machine_change: view.record.machine_change,
        }
    }
}

impl TryFrom<v1::SessionView> for SessionView {
    type Error = WireError;
    fn try_from(view: v1::SessionView) -> Result<Self, WireError> {
        let it: Session = convert("SessionView.session", view.session)?;
        let attributes = Arc::new(it.attributes);
        let record = SessionRecord {
            key: it.key,
            spec: SessionSpec { class: it.class, pool: it.pool, attributes, life: None },
            life: it.life,
            version: it.version,
            state: it.state,
            reason: it.reason,
            detail: it.detail,
            exit: it.exit,
            grace_ms: None,
            placement: optional(view.placement)?,
            attributes_digest: it.attributes_digest,
            machine_state: it.machine_state,
            machine_change: view.machine_change,
            lifetime: it.lifetime,
            requests: Vec::new(),
        };
        let (owner, epoch, node) = (it.owner, it.epoch, it.contact);
        let failed_actions = it.failed_actions;
        Ok(SessionView { record: Arc::new(record), owner, epoch, node, failed_actions })
    }
}

/// An owner's answer on its way back.
pub(crate) fn answer_to_wire(rid: u64, result: OpResult) -> v1::PeerAnswer {
    use v1::peer_answer::{Closed, Got, KeptAlive, Listed, Opened, Reported, Result as WireResult};
    let result = match result {
        Ok(Answer::Opened { outcome, session, ended_since }) => WireResult::Opened(Opened {
            outcome: v1::Outcome::from(outcome).into(),
            session: Some((&session).into()),
            ended_since,
        }),
        Ok(Answer::Closed { finished, session }) => {
            WireResult::Closed(Closed { finished, session: Some((&session).into()) })
        }
        Ok(Answer::Got { session, stale }) => {
            WireResult::Got(Got { session: Some((&session).into()), stale })
        }
        Ok(Answer::KeptAlive { session, idle_ms }) => {
            WireResult::KeptAlive(KeptAlive { session: Some((&session).into()), idle_ms })
        }
        Ok(Answer::Listed(page)) => WireResult::Listed(Listed {
            sessions: page.sessions.iter().map(Into::into).collect(),
            next: page.next.as_ref().map(Into::into),
            stale: page.stale,
        }),
        Ok(Answer::Pulled(pulled)) => WireResult::Pulled(v1::peer_answer::Pulled {
            part: pulled.part.0,
            events: pulled.events.iter().map(Into::into).collect(),
            snapshot: pulled.snapshot,
            upto: Some(pulled.upto.into()),
            snapshot_next: pulled.snapshot_next.as_ref().map(Into::into),
        }),
        Ok(Answer::Reported) => WireResult::Reported(Reported {}),
        Ok(Answer::Mended(mended)) => WireResult::Mended(mended.into()),
        Ok(Answer::Numbers(numbers)) => WireResult::Numbers(numbers.into()),
        Ok(Answer::Tasks(page)) => WireResult::Tasks(page.into()),
        Ok(Answer::Lives(it)) => WireResult::Lives(it.into()),
        Ok(Answer::Found(found)) => WireResult::Found(found_to_wire(&found)),
        Ok(Answer::Documents(answer)) => document_answer(answer),
        Err(refusal) => WireResult::Refusal(refusal.into()),
    };
    v1::PeerAnswer { rid, result: Some(result) }
}

/// The answer in a message from an owner.
pub(crate) fn answer_from_wire(
    result: Option<v1::peer_answer::Result>,
) -> Result<OpResult, WireError> {
    use v1::peer_answer::Result as WireResult;
    let answer = match required("PeerAnswer.result", result)? {
        WireResult::Opened(opened) => Answer::Opened {
            outcome: outcome("PeerAnswer.Opened.outcome", opened.outcome)?,
            session: convert("PeerAnswer.Opened.session", opened.session)?,
            ended_since: opened.ended_since,
        },
        WireResult::Closed(closed) => Answer::Closed {
            finished: closed.finished,
            session: convert("PeerAnswer.Closed.session", closed.session)?,
        },
        WireResult::Got(got) => Answer::Got {
            session: convert("PeerAnswer.Got.session", got.session)?,
            stale: got.stale,
        },
        WireResult::KeptAlive(kept) => Answer::KeptAlive {
            session: convert("PeerAnswer.KeptAlive.session", kept.session)?,
            idle_ms: kept.idle_ms,
        },
        WireResult::Listed(page) => Answer::Listed(Page {
            sessions: each(page.sessions)?,
            next: optional(page.next)?,
            stale: page.stale,
        }),
        WireResult::Pulled(pulled) => Answer::Pulled(Pulled {
            part: ManagerNumber(pulled.part),
            events: each(pulled.events)?,
            snapshot: pulled.snapshot,
            upto: convert("PeerAnswer.Pulled.upto", pulled.upto)?,
            snapshot_next: optional(pulled.snapshot_next)?,
        }),
        WireResult::Reported(_) => Answer::Reported,
        WireResult::Mended(mended) => Answer::Mended(mended.try_into()?),
        WireResult::Numbers(numbers) => Answer::Numbers(numbers.try_into()?),
        WireResult::Tasks(page) => Answer::Tasks(page.try_into()?),
        WireResult::Lives(it) => Answer::Lives(it.try_into()?),
        WireResult::Found(found) => Answer::Found(found_from(found)?),
        answer @ (WireResult::Operated(_)
        | WireResult::Synced(_)
        | WireResult::Documents(_)
        | WireResult::Cleared(_)
        | WireResult::Imported(_)
        | WireResult::Followed(_)
        | WireResult::Watched(_)
        | WireResult::Exception(_)) => Answer::Documents(document_answer_from(answer)?),
        WireResult::Refusal(refusal) => return Ok(Err(Refusal::try_from(refusal)?)),
    };
    Ok(Ok(answer))
}
