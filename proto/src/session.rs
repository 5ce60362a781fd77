//! What clients are shown of a session, and the responses that carry it.

use crate::life::lifetime_from;
use crate::position::page_token;
use crate::record::{reason, reason_number, stamp, state};
use crate::v1;
use crate::wire::{WireError, named, optional, unless_empty};
use rota_messages::Answer;
use rota_model::{
    Attributes, AttributesDigest, ClassName, Epoch, Exit, Filter, Lifetime, ManagerNumber,
    Namespace, NodeContact, NodeId, NodeState, PoolName, Reason, Refusal, RefusalKind, Retry,
    SessionId, SessionKey, SessionRecord, SessionState, SessionView, Stamp,
};
use std::sync::Arc;

/// A session as a client reads it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Session {
    /// Its full name.
    pub key: SessionKey,
    /// What it runs.
    pub class: ClassName,
    /// The pool whose nodes may run it.
    pub pool: PoolName,
    /// Attributes that were given at the open, until it has ended.
    pub attributes: Attributes,
    /// What is kept of them then.
    pub attributes_digest: Option<AttributesDigest>,
    /// State.
    pub state: SessionState,
    /// Why, once it is closing or ended.
    pub reason: Option<Reason>,
    /// A sentence about the reason; may be empty.
    pub detail: String,
    /// How its program or machine ended, if that is known.
    pub exit: Option<Exit>,
    /// Where it answers, `host:port`; empty unless it is READY.
    pub address: String,
    /// Where it runs or ran.
    pub node: Option<NodeId>,
    /// Where managers reach that node, `host:port`; empty when it is not registered any more.
    pub node_address: String,
    /// The owner that answered.
    pub owner: ManagerNumber,
    /// Epoch of its View.
    pub epoch: Epoch,
    /// The life.
    pub life: Stamp,
    /// Grows with every change.
    pub version: Stamp,
    /// The machine's state, as its node last reported; empty for programs.
    pub machine_state: String,
    /// What holds for its life, if anything does.
    pub lifetime: Option<Arc<Lifetime>>,
    /// How the owner stands with that node.
    pub contact: Option<NodeContact>,
    /// How many of its actions have failed and not succeeded since.
    pub failed_actions: u32,
}

/// A session on the wire, without where it is.
pub(crate) fn unplaced(
    record: &SessionRecord,
    attributes: Attributes,
    owner: ManagerNumber,
    epoch: Epoch,
) -> v1::Session {
    let lifetime = record.lifetime.as_deref().cloned().unwrap_or_default();
    v1::Session {
        namespace: record.key.namespace.as_str().into(),
        id: record.key.id.as_str().into(),
        class: record.spec.class.as_str().into(),
        attributes,
        attributes_digest: digest_text(record),
        pool: record.spec.pool.as_str().into(),
        state: v1::SessionState::from(record.state).into(),
        reason: reason_number(record.reason),
        detail: record.detail.clone(),
        exit: record.exit.clone().map(Into::into),
        address: String::new(),
        node_id: String::new(),
        owner: owner.0,
        epoch: epoch.0,
        life: record.life.as_u64(),
        version: record.version.as_u64(),
        machine_state: record.machine_state.clone(),
        node_address: String::new(),
        node_state: String::new(),
        node_unheard_ms: None,
        idle_ms: lifetime.idle_ms,
        max_life_ms: lifetime.max_life_ms,
        restarts: lifetime.restarts,
        restart_at: lifetime.restart_at.map_or(0, Stamp::as_u64),
        failed_actions: 0,
    }
}

fn digest_text(record: &SessionRecord) -> String {
    record.attributes_digest.map(String::from).unwrap_or_default()
}

fn digest(text: &str) -> Result<Option<AttributesDigest>, WireError> {
    if text.is_empty() {
        return Ok(None);
    }
    let wrong = || WireError::new("Session.attributes_digest", format!("{text:?} is no digest"));
    AttributesDigest::parse(text).map(Some).ok_or_else(wrong)
}

/// How the owner stands with a session's node, on the wire.
pub(crate) fn contact_to_wire(contact: Option<&NodeContact>) -> (String, Option<u64>) {
    let state = contact.map_or("", |it| it.state.as_str());
    (state.into(), contact.and_then(|it| it.unheard_ms))
}

/// The same from the wire. Without a state there is none.
fn contact(state: &str, unheard_ms: Option<u64>) -> Result<Option<NodeContact>, WireError> {
    if state.is_empty() {
        return Ok(None);
    }
    let unknown = || WireError::new("Session.node_state", format!("{state:?} is no state"));
    let state = NodeState::parse(state).ok_or_else(unknown)?;
    Ok(Some(NodeContact { state, unheard_ms }))
}

/// A session for a client. `node_address` is where managers reach the session's node, empty when
/// it is not registered any more. The session's own address is shown only while it is READY.
pub fn session(view: SessionView, node_address: String) -> v1::Session {
    let SessionView { owner, epoch, failed_actions, .. } = view;
    let mut record = Arc::unwrap_or_clone(view.record);
    let attributes = Arc::unwrap_or_clone(std::mem::take(&mut record.spec.attributes));
    let session = unplaced(&record, attributes, owner, epoch);
    let (node_state, node_unheard_ms) = contact_to_wire(view.node.as_ref());
    let is_live = record.is_live();
    let (node_id, address) = match record.placement {
        Some(it) if is_live => (it.node.as_str().into(), it.address),
        Some(it) => (it.node.as_str().into(), String::new()),
        None => (String::new(), String::new()),
    };
    v1::Session {
        node_id,
        address,
        node_address,
        node_state,
        node_unheard_ms,
        failed_actions,
        ..session
    }
}

impl TryFrom<v1::Session> for Session {
    type Error = WireError;
    fn try_from(session: v1::Session) -> Result<Self, WireError> {
        let lifetime = lifetime_from(&session)?;
        let namespace = named("Session.namespace", Namespace::parse(&session.namespace))?;
        let id = named("Session.id", SessionId::parse(&session.id))?;
        Ok(Session {
            key: SessionKey::new(namespace, id),
            class: named("Session.class", ClassName::parse(&session.class))?,
            pool: named("Session.pool", PoolName::parse(&session.pool))?,
            attributes: session.attributes,
            attributes_digest: digest(&session.attributes_digest)?,
            state: state("Session.state", session.state)?,
            reason: reason("Session.reason", session.reason)?,
            detail: session.detail,
            exit: optional(session.exit)?,
            address: session.address,
            node: unless_empty("Session.node_id", &session.node_id, NodeId::parse)?,
            node_address: session.node_address,
            owner: ManagerNumber(session.owner),
            epoch: Epoch(session.epoch),
            life: stamp("Session.life", session.life)?,
            version: stamp("Session.version", session.version)?,
            machine_state: session.machine_state,
            lifetime,
            failed_actions: session.failed_actions,
            contact: contact(&session.node_state, session.node_unheard_ms)?,
        })
    }
}

/// Looks up where managers reach a node; empty when it is not registered any more.
pub(crate) fn shown(view: SessionView, node_address: impl Fn(&NodeId) -> String) -> v1::Session {
    let placement = view.record.placement.as_ref();
    let address = placement.map_or_else(String::new, |it| node_address(&it.node));
    session(view, address)
}

/// A defect of the caller: the answer belongs to another kind of request.
pub(crate) fn unexpected(request: &str) -> Refusal {
    let message = format!("the answer to a {request} is of another kind");
    Refusal::unknown_outcome(RefusalKind::Internal, Retry::Never, message)
}

/// The response to an open. `node_address` as in [`session`].
pub fn open_response(
    answer: Answer,
    node_address: impl Fn(&NodeId) -> String,
) -> Result<v1::OpenResponse, Refusal> {
    let Answer::Opened { outcome, session, ended_since } = answer else {
        return Err(unexpected("open"));
    };
    let outcome = v1::Outcome::from(outcome).into();
    Ok(v1::OpenResponse { outcome, session: Some(shown(session, node_address)), ended_since })
}

/// The response to a close. `node_address` as in [`session`].
pub fn close_response(
    answer: Answer,
    node_address: impl Fn(&NodeId) -> String,
) -> Result<v1::CloseResponse, Refusal> {
    let Answer::Closed { finished, session } = answer else {
        return Err(unexpected("close"));
    };
    Ok(v1::CloseResponse { finished, session: Some(shown(session, node_address)) })
}

/// The response to a get. `node_address` as in [`session`].
pub fn get_response(
    answer: Answer,
    node_address: impl Fn(&NodeId) -> String,
) -> Result<v1::GetResponse, Refusal> {
    let Answer::Got { session, stale } = answer else {
        return Err(unexpected("get"));
    };
    Ok(v1::GetResponse { session: Some(shown(session, node_address)), stale })
}

/// The response to a list: its page, with the token that continues it under the same filter.
/// `node_address` as in [`session`].
pub fn list_response(
    page: rota_model::Page,
    filter: &Filter,
    node_address: impl Fn(&NodeId) -> String,
) -> v1::ListResponse {
    let sessions = page.sessions.into_iter().map(|it| shown(it, &node_address));
    v1::ListResponse {
        sessions: sessions.collect(),
        next_page_token: page.next.map_or_else(String::new, |it| page_token(&it, filter)),
        stale: page.stale,
    }
}

/// The answer to a list that is a search.
pub fn searched_response(
    sessions: Vec<SessionView>,
    next_page_token: String,
    node_address: impl Fn(&NodeId) -> String,
) -> v1::ListResponse {
    let sessions = sessions.into_iter().map(|it| shown(it, &node_address)).collect();
    v1::ListResponse { sessions, next_page_token, stale: false }
}
