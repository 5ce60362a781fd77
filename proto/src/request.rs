//! Requests of clients, checked. Every mistake of a request is listed in one refusal.

use crate::lives::options_at;
use crate::mistakes::Mistakes;
use crate::position::{Position, page_token, parse_page_token};
use crate::record::{check_attributes, state};
use crate::v1;
use rota_model::{
    Attributes, ClassName, CloseOp, FieldError, Filter, GRACE_MS_MAX, GetOp, ListCursor, ListOp,
    Namespace, NodeId, OpenOp, PAGE_SIZE_MAX, PoolName, Refusal, RequestId, SessionId, SessionKey,
    SessionSpec, SlotId, Stamp,
};
use std::sync::Arc;

/// Sessions in a page of a list whose request does not say.
pub const PAGE_SIZE_DEFAULT: u32 = 100;

/// A watch: which sessions, and from where on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Watch {
    /// Which to show; one session when its key is set.
    pub filter: Filter,
    /// Further conditions, which whoever serves the watch looks at.
    pub selected: rota_search::Filter,
    /// Go on from here; `None` begins with a snapshot.
    pub position: Option<Position>,
}

/// An event for a session's state machine.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SendEvent {
    /// Which session.
    pub key: SessionKey,
    /// Name of the event.
    pub event: String,
    /// Only this life.
    pub life: Option<Stamp>,
}

impl Mistakes {
    pub(crate) fn key(&mut self, namespace: &str, id: &str) -> Option<SessionKey> {
        let namespace = self.namespace(namespace);
        let id = self.note(SessionId::parse(id));
        Some(SessionKey::new(namespace?, id?))
    }

    /// That of a session that may be begun.
    fn new_key(&mut self, namespace: &str, id: &str) -> Option<SessionKey> {
        let given = self.given("namespace", namespace, Namespace::parse_new);
        let id = self.note(SessionId::parse_new(id));
        Some(SessionKey::new(given?.unwrap_or_else(Namespace::default_space), id?))
    }

    pub(crate) fn life(&mut self, life: u64) -> Option<Option<Stamp>> {
        self.stamp_or_none("life", life)
    }

    /// A stamp where 0 is none.
    pub(crate) fn stamp_or_none(&mut self, field: &str, stamp: u64) -> Option<Option<Stamp>> {
        if stamp == 0 {
            return Some(None);
        }
        self.note_in(field, Stamp::parse(stamp)).map(Some)
    }

    /// The caller's request id, or a fresh one, and whether it was the caller's.
    fn request(
        &mut self,
        request: &str,
        fresh: impl FnOnce() -> RequestId,
    ) -> Option<(RequestId, bool)> {
        if request.is_empty() {
            return Some((fresh(), false));
        }
        self.note(RequestId::parse(request)).map(|it| (it, true))
    }

    fn attributes(&mut self, attributes: Attributes) -> Option<Arc<Attributes>> {
        let mut names_fit = true;
        for name in attributes.keys() {
            // Attribute names follow the rules of every name, but have no type of their own.
            let checked = ClassName::parse_new(name).map_err(|mistake| {
                let problem = format!("have a name, {}, that {}", quoted(name), mistake.problem);
                FieldError::new("attributes", problem)
            });
            names_fit &= self.note(checked).is_some();
        }
        self.note(check_attributes(&attributes))?;
        names_fit.then(|| Arc::new(attributes))
    }

    /// How many sessions a page of a list has.
    pub(crate) fn page_size(&mut self, asked: u32) -> Option<u32> {
        match asked {
            0 => Some(PAGE_SIZE_DEFAULT),
            size @ 1..=PAGE_SIZE_MAX => Some(size),
            size => {
                let problem = format!("is {size}; the limit is {PAGE_SIZE_MAX}");
                self.note(Err(FieldError::new("page_size", problem)))
            }
        }
    }

    pub(crate) fn filter(&mut self, filter: Option<v1::Filter>) -> Option<Filter> {
        let filter = filter.unwrap_or_default();
        let mut states = Vec::with_capacity(filter.states.len());
        for number in filter.states {
            let parsed = state("filter.states", number).map_err(FieldError::from);
            states.extend(self.note(parsed));
        }
        let node = self.given("filter.node_id", &filter.node_id, NodeId::parse);
        let class = self.given("filter.class", &filter.class, ClassName::parse);
        let namespace = self.given("filter.namespace", &filter.namespace, Namespace::parse);
        let (node, class, namespace) = (node?, class?, namespace?);
        Some(Filter { states, node, class, namespace, key: None })
    }
}

/// Most characters of a wrong name that are repeated to its caller.
const QUOTED_CHARS_MAX: usize = 40;

/// The beginning of what a caller sent, as text without control characters.
fn quoted(text: &str) -> String {
    match text.char_indices().nth(QUOTED_CHARS_MAX) {
        Some((end, _)) => format!("{:?}...", text.get(..end).unwrap_or_default()),
        None => format!("{text:?}"),
    }
}

/// Checks an open. Relative times of life-cycle items count from `now`. Without a request id it gets a fresh one, which is not worth remembering.
pub fn open(
    request: v1::OpenRequest,
    now: Stamp,
    fresh: impl FnOnce() -> RequestId,
) -> Result<OpenOp, Refusal> {
    let mut mistakes = Mistakes::default();
    let key = mistakes.new_key(&request.namespace, &request.id);
    let class = mistakes.note(ClassName::parse_new(&request.class));
    let pool = mistakes.given("pool", &request.pool, PoolName::parse_new);
    let attributes = mistakes.attributes(request.attributes);
    let life = mistakes.note_all(options_at(request.life.unwrap_or_default(), now));
    let name = mistakes.request(&request.request_id, fresh);
    let op = (|| {
        let pool = pool?;
        let pool_named = pool.is_some();
        let pool = pool.unwrap_or_else(PoolName::default_pool);
        let spec = SessionSpec { class: class?, pool, attributes: attributes?, life: life? };
        let (request, remember) = name?;
        Some(OpenOp { key: key?, spec, pool_named, request, remember })
    })();
    mistakes.finish(op)
}

/// Checks a close. Without a request id it gets a fresh one.
pub fn close(
    request: v1::CloseRequest,
    fresh: impl FnOnce() -> RequestId,
) -> Result<CloseOp, Refusal> {
    let mut mistakes = Mistakes::default();
    let key = mistakes.key(&request.namespace, &request.id);
    let life = mistakes.life(request.life);
    let name = mistakes.request(&request.request_id, fresh);
    let grace_ms = mistakes.note(grace(request.grace_ms));
    let by_operator = request.although_off;
    let op = || {
        let (key, life, request, grace_ms) = (key?, life?, name?.0, grace_ms?);
        Some(CloseOp { key, life, request, grace_ms, by_operator })
    };
    let op = op();
    mistakes.finish(op)
}

fn grace(ms: Option<u64>) -> Result<Option<u64>, FieldError> {
    match ms {
        Some(long) if long > GRACE_MS_MAX => {
            let problem = format!("is {long} ms; the limit is {GRACE_MS_MAX} ms");
            Err(FieldError::new("grace_ms", problem))
        }
        other => Ok(other),
    }
}

/// Checks a get.
pub fn get(request: v1::GetRequest) -> Result<GetOp, Refusal> {
    let mut mistakes = Mistakes::default();
    let key = mistakes.key(&request.namespace, &request.id);
    mistakes.finish(key.map(|key| GetOp { key, stale_ok: request.stale_ok }))
}

/// Checks a list without conditions as text and without an order: one page of the whole ring, from the page token's cursor or slot 0 on.
pub fn list(request: v1::ListRequest) -> Result<ListOp, Refusal> {
    let mut mistakes = Mistakes::default();
    let limit = mistakes.page_size(request.page_size);
    let filter = mistakes.filter(request.filter);
    let from = match &filter {
        _ if request.page_token.is_empty() => Some(ListCursor { slot: SlotId(0), after: None }),
        // A token can only be judged beside its filter.
        None => None,
        Some(filter) => mistakes.note(parse_page_token(&request.page_token, filter)),
    };
    let op = (|| {
        let (from, limit, filter) = (from?, limit?, filter?);
        Some(ListOp { from, limit, filter, stale_ok: request.stale_ok })
    })();
    mistakes.finish(op)
}

/// Checks a watch.
pub fn watch(request: &v1::WatchRequest) -> Result<Watch, Refusal> {
    let mut mistakes = Mistakes::default();
    let mut filter = mistakes.filter(request.filter.clone());
    if !request.id.is_empty() {
        let key = mistakes.key(&request.namespace, &request.id);
        filter = filter.map(|it| Filter { key, ..it });
    } else if !request.namespace.is_empty() {
        let problem = "names the space of `id`, which is empty; use filter.namespace";
        mistakes.note::<()>(Err(FieldError::new("namespace", problem)));
    }
    let position = if request.position.is_empty() {
        Some(None)
    } else {
        mistakes.note(Position::from_bytes(&request.position)).map(Some)
    };
    let selected = mistakes.selected(&request.r#where);
    let watch = (|| Some(Watch { filter: filter?, selected: selected?, position: position? }))();
    mistakes.finish(watch)
}

/// Checks an event for a session's machine.
pub fn send(request: v1::SendRequest) -> Result<SendEvent, Refusal> {
    let mut mistakes = Mistakes::default();
    let key = mistakes.key(&request.namespace, &request.id);
    let life = mistakes.life(request.life);
    // Events follow the rules of every name; which ones there are, the class knows.
    let event = mistakes.note_in("event", ClassName::parse(&request.event));
    let send = (|| {
        event?;
        Some(SendEvent { key: key?, event: request.event, life: life? })
    })();
    mistakes.finish(send)
}

// The way back: what clients of this code send.

impl From<OpenOp> for v1::OpenRequest {
    fn from(op: OpenOp) -> Self {
        Self {
            namespace: op.key.namespace.as_str().into(),
            id: op.key.id.as_str().into(),
            class: op.spec.class.as_str().into(),
            life: op.spec.life.as_deref().map(Into::into),
            attributes: Arc::unwrap_or_clone(op.spec.attributes),
            pool: if op.pool_named { op.spec.pool.as_str().into() } else { String::new() },
            request_id: if op.remember { op.request.as_str().into() } else { String::new() },
        }
    }
}

impl From<CloseOp> for v1::CloseRequest {
    fn from(op: CloseOp) -> Self {
        Self {
            namespace: op.key.namespace.as_str().into(),
            id: op.key.id.as_str().into(),
            life: op.life.map_or(0, Stamp::as_u64),
            request_id: op.request.as_str().into(),
            although_off: op.by_operator,
            grace_ms: op.grace_ms,
        }
    }
}

impl From<GetOp> for v1::GetRequest {
    fn from(op: GetOp) -> Self {
        Self {
            namespace: op.key.namespace.as_str().into(),
            id: op.key.id.as_str().into(),
            stale_ok: op.stale_ok,
        }
    }
}

/// A client's filter. The key of a watch travels beside it, not in it.
impl From<&Filter> for v1::Filter {
    fn from(filter: &Filter) -> Self {
        let v1::FilterOp { states, node, class, namespace, key: _ } = filter.into();
        Self { states, node_id: node, class, namespace }
    }
}

impl From<&ListOp> for v1::ListRequest {
    fn from(op: &ListOp) -> Self {
        let from_start = op.from == ListCursor { slot: SlotId(0), after: None };
        let token = || page_token(&op.from, &op.filter);
        Self {
            filter: Some((&op.filter).into()),
            page_size: op.limit,
            page_token: if from_start { String::new() } else { token() },
            stale_ok: op.stale_ok,
            ..Self::default()
        }
    }
}

impl From<&Watch> for v1::WatchRequest {
    fn from(watch: &Watch) -> Self {
        let (id, namespace) = (watch.filter.key.as_ref())
            .map_or_else(Default::default, |key| (key.id.as_str(), key.namespace.as_str()));
        Self {
            id: id.into(),
            namespace: namespace.into(),
            filter: Some((&watch.filter).into()),
            position: watch.position.as_ref().map(Position::to_bytes).unwrap_or_default(),
            r#where: watch.selected.to_string(),
        }
    }
}

impl From<SendEvent> for v1::SendRequest {
    fn from(send: SendEvent) -> Self {
        Self {
            namespace: send.key.namespace.as_str().into(),
            id: send.key.id.as_str().into(),
            event: send.event,
            life: send.life.map_or(0, Stamp::as_u64),
        }
    }
}
