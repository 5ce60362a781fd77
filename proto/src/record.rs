//! Names, placements, writes and log entries: what managers copy to each other.

use crate::encoded::{DocBytes, sum};
use crate::life::options_from;
use crate::v1;
use crate::wire::{WireError, convert, named, required, short, unless_empty};
use rota_messages::{Doc, DocKey, DocName, Entry, Write};
use rota_model::{
    ATTRIBUTES_BYTES_MAX, Attributes, BootId, ClassName, Epoch, Exit, FieldError, Incarnation,
    LogPos, ManagerNumber, MemberId, Namespace, NodeId, Outcome, Placement, PoolName, Reason,
    RequestId, Seq, SessionId, SessionKey, SessionSpec, SessionState, SlotId, Stamp, Token,
};
use std::sync::Arc;

impl From<LogPos> for v1::LogPos {
    fn from(at: LogPos) -> Self {
        Self { pe: at.pe.0, seq: at.seq.0 }
    }
}

impl From<v1::LogPos> for LogPos {
    fn from(at: v1::LogPos) -> Self {
        LogPos::new(Epoch(at.pe), Seq(at.seq))
    }
}

impl From<Token> for v1::LogPos {
    fn from(token: Token) -> Self {
        token.0.into()
    }
}

impl From<v1::LogPos> for Token {
    fn from(at: v1::LogPos) -> Self {
        Token(at.into())
    }
}

impl From<MemberId> for v1::MemberId {
    fn from(member: MemberId) -> Self {
        Self { number: member.number.0, incarnation: member.incarnation.0 }
    }
}

impl From<v1::MemberId> for MemberId {
    fn from(member: v1::MemberId) -> Self {
        let number = ManagerNumber(member.number);
        MemberId { number, incarnation: Incarnation(member.incarnation) }
    }
}

impl From<&SessionKey> for v1::SessionKey {
    fn from(key: &SessionKey) -> Self {
        Self { namespace: key.namespace.as_str().into(), id: key.id.as_str().into() }
    }
}

impl TryFrom<v1::SessionKey> for SessionKey {
    type Error = WireError;
    fn try_from(key: v1::SessionKey) -> Result<Self, WireError> {
        let namespace = named("SessionKey.namespace", Namespace::parse(&key.namespace))?;
        Ok(SessionKey::new(namespace, named("SessionKey.id", SessionId::parse(&key.id))?))
    }
}

/// Checks the limit on all attribute names and values together.
pub(crate) fn check_attributes(attributes: &Attributes) -> Result<(), FieldError> {
    let bytes: usize = attributes.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes <= ATTRIBUTES_BYTES_MAX {
        return Ok(());
    }
    let problem = format!("are {bytes} bytes long together; the limit is {ATTRIBUTES_BYTES_MAX}");
    Err(FieldError::new("attributes", problem))
}

impl From<&SessionSpec> for v1::SessionSpec {
    fn from(spec: &SessionSpec) -> Self {
        Self {
            class: spec.class.as_str().into(),
            pool: spec.pool.as_str().into(),
            attributes: (*spec.attributes).clone(),
            life: spec.life.as_deref().map(Into::into),
        }
    }
}

impl From<SessionSpec> for v1::SessionSpec {
    fn from(spec: SessionSpec) -> Self {
        Self {
            class: spec.class.as_str().into(),
            pool: spec.pool.as_str().into(),
            attributes: Arc::unwrap_or_clone(spec.attributes),
            life: spec.life.as_deref().map(Into::into),
        }
    }
}

impl TryFrom<v1::SessionSpec> for SessionSpec {
    type Error = WireError;
    fn try_from(spec: v1::SessionSpec) -> Result<Self, WireError> {
        named("SessionSpec.attributes", check_attributes(&spec.attributes))?;
        Ok(SessionSpec {
            class: named("SessionSpec.class", ClassName::parse(&spec.class))?,
            pool: named("SessionSpec.pool", PoolName::parse(&spec.pool))?,
            attributes: Arc::new(spec.attributes),
            life: options_from(spec.life)?,
        })
    }
}

impl From<SessionState> for v1::SessionState {
    fn from(state: SessionState) -> Self {
        match state {
            SessionState::Pending => Self::Pending,
            SessionState::Starting => Self::Starting,
            SessionState::Ready => Self::Ready,
            SessionState::Closing => Self::Closing,
            SessionState::Closed => Self::Closed,
            SessionState::Failed => Self::Failed,
            SessionState::Lost => Self::Lost,
        }
    }
}

/// A session state from its number on the wire; unspecified is refused.
pub(crate) fn state(field: &'static str, number: i32) -> Result<SessionState, WireError> {
    match v1::SessionState::try_from(number) {
        Ok(v1::SessionState::Pending) => Ok(SessionState::Pending),
        Ok(v1::SessionState::Starting) => Ok(SessionState::Starting),
        Ok(v1::SessionState::Ready) => Ok(SessionState::Ready),
        Ok(v1::SessionState::Closing) => Ok(SessionState::Closing),
        Ok(v1::SessionState::Closed) => Ok(SessionState::Closed),
        Ok(v1::SessionState::Failed) => Ok(SessionState::Failed),
        Ok(v1::SessionState::Lost) => Ok(SessionState::Lost),
        Ok(v1::SessionState::Unspecified) | Err(_) => {
            Err(WireError::new(field, format!("{number} is not a session state")))
        }
    }
}

impl From<Reason> for v1::Reason {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::ClosedByClient => Self::ClosedByClient,
            Reason::ClosedByOperator => Self::ClosedByOperator,
            Reason::IdleTimeout => Self::IdleTimeout,
            Reason::MaxLifetime => Self::MaxLifetime,
            Reason::Exited => Self::Exited,
            Reason::StartTimeout => Self::StartTimeout,
            Reason::NodeLost => Self::NodeLost,
            Reason::Reopening => Self::Reopening,
            Reason::LeaseNotRenewed => Self::LeaseNotRenewed,
            Reason::Drained => Self::Drained,
            Reason::Restarting => Self::Restarting,
            Reason::Unhealthy => Self::Unhealthy,
            Reason::Internal => Self::Internal,
            Reason::NoCapacity => Self::NoCapacity,
        }
    }
}

/// A reason from its number on the wire; unspecified is none.
pub(crate) fn reason(field: &'static str, number: i32) -> Result<Option<Reason>, WireError> {
    match v1::Reason::try_from(number) {
        Ok(v1::Reason::Unspecified) => Ok(None),
        Ok(v1::Reason::ClosedByClient) => Ok(Some(Reason::ClosedByClient)),
        Ok(v1::Reason::ClosedByOperator) => Ok(Some(Reason::ClosedByOperator)),
        Ok(v1::Reason::IdleTimeout) => Ok(Some(Reason::IdleTimeout)),
        Ok(v1::Reason::MaxLifetime) => Ok(Some(Reason::MaxLifetime)),
        Ok(v1::Reason::Exited) => Ok(Some(Reason::Exited)),
        Ok(v1::Reason::StartTimeout) => Ok(Some(Reason::StartTimeout)),
        Ok(v1::Reason::NodeLost) => Ok(Some(Reason::NodeLost)),
        Ok(v1::Reason::Reopening) => Ok(Some(Reason::Reopening)),
        Ok(v1::Reason::LeaseNotRenewed) => Ok(Some(Reason::LeaseNotRenewed)),
        Ok(v1::Reason::Drained) => Ok(Some(Reason::Drained)),
        Ok(v1::Reason::Restarting) => Ok(Some(Reason::Restarting)),
        Ok(v1::Reason::Unhealthy) => Ok(Some(Reason::Unhealthy)),
        Ok(v1::Reason::Internal) => Ok(Some(Reason::Internal)),
        Ok(v1::Reason::NoCapacity) => Ok(Some(Reason::NoCapacity)),
        Err(_) => Err(WireError::new(field, format!("{number} is not a reason"))),
    }
}

/// A reason on the wire: its number, 0 for none.
pub(crate) fn reason_number(reason: Option<Reason>) -> i32 {
    reason.map_or(v1::Reason::Unspecified, v1::Reason::from).into()
}

impl From<Outcome> for v1::Outcome {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Created => Self::Created,
            Outcome::Existed => Self::Existed,
        }
    }
}

/// An outcome from its number on the wire; unspecified is refused.
pub(crate) fn outcome(field: &'static str, number: i32) -> Result<Outcome, WireError> {
    match v1::Outcome::try_from(number) {
        Ok(v1::Outcome::Created) => Ok(Outcome::Created),
        Ok(v1::Outcome::Existed) => Ok(Outcome::Existed),
        Ok(v1::Outcome::Unspecified) | Err(_) => {
            Err(WireError::new(field, format!("{number} is not an outcome")))
        }
    }
}

/// A stamp of the wire.
pub(crate) fn stamp(field: &'static str, number: u64) -> Result<Stamp, WireError> {
    named(field, Stamp::parse(number))
}

/// A stamp that may be missing: 0.
pub(crate) fn stamp_or_none(field: &'static str, number: u64) -> Result<Option<Stamp>, WireError> {
    if number == 0 { Ok(None) } else { stamp(field, number).map(Some) }
}

impl From<Exit> for v1::Exit {
    fn from(exit: Exit) -> Self {
        let how = match exit {
            Exit::Code(code) => v1::exit::How::Code(code),
            Exit::Signal(signal) => v1::exit::How::Signal(signal),
            Exit::FinalState(state) => v1::exit::How::FinalState(state),
        };
        Self { how: Some(how) }
    }
}

impl TryFrom<v1::Exit> for Exit {
    type Error = WireError;
    fn try_from(exit: v1::Exit) -> Result<Self, WireError> {
        Ok(match required("Exit.how", exit.how)? {
            v1::exit::How::Code(code) => Exit::Code(code),
            v1::exit::How::Signal(signal) => Exit::Signal(signal),
            v1::exit::How::FinalState(state) => Exit::FinalState(short("Exit.final_state", state)?),
        })
    }
}

impl From<&Placement> for v1::Placement {
    fn from(placement: &Placement) -> Self {
        Self {
            node: placement.node.as_str().into(),
            boot: placement.boot.0,
            token: Some(placement.token.into()),
            address: placement.address.clone(),
        }
    }
}

impl TryFrom<v1::Placement> for Placement {
    type Error = WireError;
    fn try_from(placement: v1::Placement) -> Result<Self, WireError> {
        Ok(Placement {
            node: named("Placement.node", NodeId::parse(&placement.node))?,
            boot: BootId(placement.boot),
            token: convert("Placement.token", placement.token)?,
            address: short("Placement.address", placement.address)?,
        })
    }
}

/// The highest forgotten stamp on the wire or on disk; 0 is none.
pub(crate) fn forgotten_stamp(field: &'static str, number: u64) -> Result<Stamp, WireError> {
    if number == 0 { Ok(Stamp::MIN) } else { stamp(field, number) }
}

impl From<&DocKey> for v1::DocKey {
    fn from(key: &DocKey) -> Self {
        Self { slot: key.slot.0, name: key.name.as_text().into() }
    }
}

impl TryFrom<v1::DocKey> for DocKey {
    type Error = WireError;
    fn try_from(key: v1::DocKey) -> Result<Self, WireError> {
        let name = named("DocKey.name", DocName::from_text(&key.name))?;
        Ok(DocKey::new(SlotId(key.slot), name))
    }
}

pub(crate) fn write_to_wire(write: &Write, docs: &mut DocBytes) -> v1::Write {
    let DocKey { slot, name, .. } = &write.key;
    match &write.doc {
        Some(doc) => doc_to_wire(*slot, doc, docs),
        None => v1::Write { slot: slot.0, removed: name.as_text().into(), ..Default::default() },
    }
}

pub(crate) fn doc_to_wire(slot: SlotId, doc: &Arc<Doc>, docs: &mut DocBytes) -> v1::Write {
    let bytes = docs.of(doc);
    v1::Write { slot: slot.0, sum: sum(&bytes), doc: Some(bytes), ..Default::default() }
}

pub(crate) fn write_from_wire(write: v1::Write, docs: &mut DocBytes) -> Result<Write, WireError> {
    let slot = SlotId(write.slot);
    let Some(bytes) = write.doc else {
        let name = named("Write.removed", DocName::from_text(&write.removed))?;
        return Ok(Write { key: DocKey::new(slot, name), doc: None });
    };
    let doc = docs.read(bytes, write.sum)?;
    Ok(Write { key: DocKey::new(slot, doc.name().clone()), doc: Some(doc) })
}

pub(crate) fn entry_to_wire(entry: &Entry, docs: &mut DocBytes) -> v1::Entry {
    v1::Entry {
        at: Some(entry.at.into()),
        writes: entry.writes.iter().map(|it| write_to_wire(it, docs)).collect(),
        request: request_text(entry.request.as_ref()),
    }
}

pub(crate) fn entry_from_wire(entry: v1::Entry, docs: &mut DocBytes) -> Result<Entry, WireError> {
    let writes = entry.writes.into_iter().map(|it| write_from_wire(it, docs));
    Ok(Entry::new(
        convert("Entry.at", entry.at)?,
        writes.collect::<Result<_, _>>()?,
        unless_empty("Entry.request", &entry.request, RequestId::parse)?,
    ))
}

/// A request id that is only told for traces: empty for none.
pub(crate) fn request_text(request: Option<&RequestId>) -> String {
    request.map_or_else(String::new, |it| it.as_str().into())
}
