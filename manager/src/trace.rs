//! The way of a request, for logs: the same request id at the manager where it entered, at the
//! owner, at the copies and at the node. Nothing here costs more than a comparison unless
//! `rota_manager=debug` is asked for.

use rota_model::node_msg::ToNode;
use rota_model::{NodeId, RequestId};
use rota_protocol::api::Place;
use rota_protocol::{DocumentOp, Entry, Envelope, Message, Note, Op, Transition};
use tracing::{Level, debug, enabled, info, trace, warn};

/// A client's call was given to the decisions.
pub fn entered(call: u64, op: &Op) {
    if !enabled!(Level::DEBUG) {
        return;
    }
    let (kind, request) = (op.kind().as_str(), op.request_id().map_or("", RequestId::as_str));
    match op.place() {
        Place::Session(session) => debug!(call, request, %session, kind, "a request"),
        Place::Node(pool, node) => debug!(call, %pool, %node, kind, "a request"),
        Place::Slot(_) => trace!(call, ?op, "a page"),
        Place::Documents(DocumentOp::Operate(op)) => {
            debug!(call, operation = %op.request.operation, docid = %op.docid, "operate");
        }
        Place::Documents(op) => trace!(call, ?op, "documents"),
    }
}

/// A message of a peer was given to the decisions.
pub fn received(envelope: &Envelope) {
    if enabled!(Level::DEBUG) {
        message("received", &envelope.from.to_string(), &envelope.message);
    }
}

/// A message goes to a peer.
pub fn sent(envelope: &Envelope) {
    if enabled!(Level::DEBUG) {
        message("sent", &envelope.to.to_string(), &envelope.message);
    }
}

fn message(way: &str, peer: &str, message: &Message) {
    match message {
        Message::Request { rid, op, .. } => {
            let request = op.request_id().map_or("", RequestId::as_str);
            debug!(way, peer, rid, request, "forwarded request");
        }
        Message::Prepare { part, entries, .. } => {
            for Entry { at, request, .. } in entries {
                let request = request.as_ref().map_or("", RequestId::as_str);
                debug!(way, peer, %part, %at, request, "entry");
            }
        }
        Message::Answer { .. }
        | Message::Ack { .. }
        | Message::Nack { .. }
        | Message::SyncAsk { .. }
        | Message::SyncReport { .. }
        | Message::SyncData { .. }
        | Message::SyncApplied { .. }
        | Message::ReadIndex { .. }
        | Message::ReadIndexConfirmed { .. }
        | Message::SnapshotChunk { .. }
        | Message::SnapshotAck { .. }
        | Message::Heartbeat { .. }
        | Message::Probe { .. }
        | Message::Probed { .. }
        | Message::NodeWanted { .. }
        | Message::NodesFailed { .. } => {}
    }
    trace!(way, peer, ?message, "message");
}

/// A node is asked for something.
pub fn asked(node: &NodeId, message: &ToNode) {
    if !enabled!(Level::DEBUG) {
        return;
    }
    match message {
        ToNode::Create { key, token, request, .. } => {
            let request = request.as_ref().map_or("", RequestId::as_str);
            debug!(%node, session = %key, %token, request, "create");
        }
        ToNode::Destroy { key, token, request, .. } => {
            let request = request.as_ref().map_or("", RequestId::as_str);
            debug!(%node, session = %key, %token, request, "destroy");
        }
        ToNode::Act { key, token, action, .. } => {
            debug!(%node, session = %key, %token, life_cycle = action.life_cycle, word = action.word, "act");
        }
        ToNode::Scan { head, .. } => debug!(%node, pe = %head.pe, "scan"),
        ToNode::Meet { epoch, .. } => debug!(%node, %epoch, "meet: it has not renewed"),
    }
}

/// A step of the protocol.
pub fn noted(note: &Note) {
    let step = note.transition.as_str();
    let part = note.part.map(|it| it.0);
    let text = note.text.as_str();
    if is_loss(note.transition) {
        warn!(step, part, "{text}");
    } else if is_news(note.transition) {
        info!(step, part, "{text}");
    } else {
        debug!(step, part, "{text}");
    }
}

/// What was acknowledged is gone, or may be; or the config store holds what cannot be obeyed; or operations
/// take so long that others find no worker.
fn is_loss(step: Transition) -> bool {
    matches!(
        step,
        Transition::ViewRefused
            | Transition::LastCopyLost
            | Transition::GivenUp
            | Transition::RecoveryHandedOn
            | Transition::Recovered
            | Transition::WorkOverdue
            | Transition::WorkRefused
            | Transition::TaskGivenUp
    )
}

/// What belongs to single sessions is for debugging; what belongs to the ring is news.
#[allow(clippy::too_many_lines, reason = "it is a list")]
fn is_news(step: Transition) -> bool {
    match step {
        Transition::Claimed
        | Transition::OthersGone
        | Transition::ViewAdopted
        | Transition::ViewRefused
        | Transition::SyncStarted
        | Transition::Serving
        | Transition::SteppedDown
        | Transition::LoneTakeOver
        | Transition::ScanDone
        | Transition::LastCopyLost
        | Transition::GivenUp
        | Transition::RecoveryHandedOn
        | Transition::Recovered
        | Transition::LearnStarted
        | Transition::LearnRestarted
        | Transition::Wedged
        | Transition::MemberAdded
        | Transition::MemberDropped
        | Transition::CopyDropped
        | Transition::JoinStarted
        | Transition::ArcSplit
        | Transition::ArcCut
        | Transition::JoinFinished
        | Transition::JoinRolledBack
        | Transition::JoinGivenUp
        | Transition::JoinCancelled
        | Transition::LeaveStarted
        | Transition::LeaverReleased
        | Transition::LeaveFinished
        | Transition::HasLeft
        | Transition::LeaveRolledBack
        | Transition::LeaveGivenUp
        | Transition::LeaveCancelled
        | Transition::StandInStarted
        | Transition::EpochRenewed
        | Transition::Suspected
        | Transition::TakenOut
        | Transition::NodeLost
        | Transition::NodeRegistered
        | Transition::NodeOrdered
        | Transition::NamespaceLearned
        | Transition::WorkOverdue
        | Transition::WorkRefused
        | Transition::WorkDropped
        | Transition::NodesOrdered
        | Transition::NodeEnds
        | Transition::OrderFailed
        | Transition::TaskNotStarted
        | Transition::TaskLost
        | Transition::TaskGivenUp
        | Transition::NodeNotCleared => true,
        // Repeated every second while a node waits; the node says it once.
        Transition::NodeUnproven
        | Transition::SuffixReplaced
        | Transition::GapResent
        | Transition::CasConflict
        | Transition::CasUnknown
        | Transition::Redriven
        | Transition::OpenPending
        | Transition::OpenCreated
        | Transition::OpenExisted
        | Transition::RequestRepeated
        | Transition::NodeRefused
        | Transition::NodeUnable
        | Transition::Withdrawn
        | Transition::OpenFailed
        | Transition::CloseStarted
        | Transition::CloseFinished
        | Transition::Ended
        | Transition::SessionLost
        | Transition::SessionReopened
        | Transition::SessionRestarted
        | Transition::SessionExpired
        | Transition::SessionUpdated
        | Transition::EventFired
        | Transition::ActionBegan
        | Transition::ActionFailed
        | Transition::LifeCyclesEnded
        | Transition::SessionDrained
        | Transition::Fenced
        | Transition::Forwarded
        | Transition::ForwardRetried
        | Transition::ReadConfirmed
        | Transition::Operated
        | Transition::OperationRead
        | Transition::OperationPaused
        | Transition::WorkBegun
        | Transition::DocumentsFetched
        | Transition::CopiesSynced
        | Transition::NamespaceRefused
        | Transition::TombstonePurged
        | Transition::TaskStarted
        | Transition::TaskWentOn
        | Transition::Searched
        | Transition::Copied
        | Transition::RingTaskBegan
        | Transition::TaskEnded
        | Transition::TaskFailed
        | Transition::ItemsForgotten => false,
    }
}
