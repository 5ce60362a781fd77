//! `/route`: where a session answers, for a gateway that has a request for it. A gateway may have it opened.
//!
//! ```text
//!  nginx ── auth_request ──▶ /route?session=ID&class=CLASS ── Get ──▶ READY: 204 with Rota-Address, Rota-Life
//!                                  │ is not there, and the header Rota-Gateway: 1, and the class says open_on_demand
//!                                  └─ Open ──▶ 204 as well
//! ```
//! A page cannot set that header without being asked about it first, so no link of a foreign page opens anything.
//! A lost session that its class has opened again comes back by itself, with its attributes: it is never opened here.

use super::call::Call;
use super::error::Failed;
use super::shown::Session;
use super::tree::{Answer, Tree};
use crate::rpc::deadline::deadline_of;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use axum::response::IntoResponse as _;
use rota_model::{ClassName, FieldError, Refusal, RefusalKind, Retry};
use rota_proto::refusal;
use rota_proto::v1::sessions_server::Sessions as _;
use rota_proto::v1::{self, SessionState};
use std::sync::Arc;
use tokio::time::Instant;
use tonic::Request;

/// With `1`: the caller stands between a client and the session, and may have it opened.
const GATEWAY: HeaderName = HeaderName::from_static("rota-gateway");

/// Where the session answers, `host:port`.
const ADDRESS: HeaderName = HeaderName::from_static("rota-address");

/// Which existence of its id answers there.
const LIFE: HeaderName = HeaderName::from_static("rota-life");

/// Advice to who comes while a session starts, in milliseconds.
const SOON_MS: u64 = 200;

/// What is asked for.
struct Wanted {
    namespace: String,
    session: String,
    /// What is opened where nothing lives; empty: the class that the id had.
    class: String,
    is_gateway: bool,
}

impl Tree {
    /// Whether a class says that its sessions are opened on demand. Of names that are none, no class does.
    fn opens_on_demand(&self, class: &str) -> bool {
        let class = ClassName::parse(class).ok();
        class.is_some_and(|it| self.shared.seen.borrow().on_demand.contains(&it))
    }
}

/// Why a session that is not there is not opened; `None`: it may be.
fn not_opened(tree: &Tree, wanted: &Wanted, class: &str) -> Option<String> {
    if !wanted.is_gateway {
        return Some(format!("without the header {GATEWAY}: 1 nothing is opened"));
    }
    if class.is_empty() {
        return Some("no class is given to open it with".to_owned());
    }
    if !tree.opens_on_demand(class) {
        return Some(format!(
            "class {class:?} does not say open_on_demand = true in the pool where it goes (pool in its text; else \
             default)"
        ));
    }
    None
}

/// What the record says of the id.
enum Found {
    /// It answers, or is about to.
    Lives(Box<v1::Session>),
    /// It comes back by itself. An open could begin another life, without its attributes.
    ComesBack(Refusal),
    /// Nothing lives. The class that it had, if it is known, and the refusal of who does not open it.
    Nothing { class: String, why: Refusal },
}

/// Whether a session is not there yet, and comes without being opened again.
pub fn is_coming(session: &v1::Session) -> bool {
    match session.state() {
        SessionState::Pending | SessionState::Starting => true,
        SessionState::Lost => is_reopened(session),
        SessionState::Unspecified
        | SessionState::Ready
        | SessionState::Closing
        | SessionState::Closed
        | SessionState::Failed => false,
    }
}

/// Whether it was lost and its class has it opened again: its next life has that reason until it is READY.
fn is_reopened(session: &v1::Session) -> bool {
    session.reason() == v1::Reason::Reopening
}

/// The refusal of who asks for a session that is coming.
pub fn not_yet(session: &v1::Session) -> Refusal {
    let (id, named) = (&session.id, Session::of(session.clone()));
    let reason =
        if named.reason.is_empty() { String::new() } else { format!(" ({})", named.reason) };
    let text = format!("session {id:?} is {}{reason}", named.state);
    Refusal::new(RefusalKind::InProgress, Retry::AfterMs(SOON_MS), text)
}

fn found(session: v1::Session) -> Found {
    if is_coming(&session) && is_reopened(&session) {
        return Found::ComesBack(not_yet(&session));
    }
    let (id, state) = (&session.id, session.state());
    let named = Session::of(session.clone());
    let refused = |kind, retry, text: String| Found::Nothing {
        class: session.class.clone(),
        why: Refusal::new(kind, retry, text),
    };
    match state {
        SessionState::Ready => Found::Lives(Box::new(session)),
        SessionState::Pending | SessionState::Starting => {
            Found::Nothing { class: session.class.clone(), why: not_yet(&session) }
        }
        SessionState::Closing => {
            let text = format!("session {id:?} is being closed");
            refused(RefusalKind::Closing, Retry::AfterMs(SOON_MS), text)
        }
        SessionState::Unspecified
        | SessionState::Closed
        | SessionState::Failed
        | SessionState::Lost => {
            let text = format!("session {id:?} is {} ({})", named.state, named.reason);
            refused(RefusalKind::NotFound, Retry::WhenChanged, text)
        }
    }
}

/// The answer for a session that lives.
fn route(session: &v1::Session) -> Answer {
    if session.address.is_empty() {
        let problem = format!("has no address: class {:?} has no port", session.class);
        let refused = Refusal::invalid(vec![FieldError::new("session", problem)]);
        return Err(Refusal { retry: Retry::WhenChanged, ..refused }.into());
    }
    let address = HeaderValue::from_str(&session.address).map_err(|_| {
        let text = format!("the address {:?} is no text for a header", session.address);
        Failed::from(Refusal::new(RefusalKind::Internal, Retry::Never, text))
    })?;
    let headers = [(ADDRESS, address), (LIFE, HeaderValue::from(session.life))];
    Ok((StatusCode::NO_CONTENT, headers).into_response())
}

/// `/route`.
pub async fn show(State(tree): State<Arc<Tree>>, uri: Uri, headers: HeaderMap) -> Answer {
    let mut call = Call::new(&uri, &headers)?;
    let wanted = Wanted {
        namespace: call.given("namespace").unwrap_or_else(|| "default".to_owned()),
        session: call.text("session"),
        class: call.text("class"),
        is_gateway: headers.contains_key(GATEWAY),
    };
    if headers.get(GATEWAY).is_some_and(|it| it != "1") {
        call.wrong("Rota-Gateway", "must be 1");
    }
    if let Err(mistake) = rota_model::SessionId::check(&wanted.session) {
        call.wrong("session", mistake.problem);
    }
    let stale_ok = call.is_set("stale_ok");
    let (namespace, id) = (wanted.namespace.clone(), wanted.session.clone());
    let get = call.request(v1::GetRequest { namespace, id, stale_ok })?;
    let metadata = get.metadata().clone();
    let deadline = deadline_of(&metadata);
    let found = match tree.sessions.get(get).await {
        Ok(got) => found(got.into_inner().session.unwrap_or_default()),
        Err(status) => {
            let why = refusal::refusal(&status);
            if why.kind != RefusalKind::NotFound {
                return Err(status.into());
            }
            Found::Nothing { class: String::new(), why }
        }
    };
    let (class, why) = match found {
        Found::Lives(session) => return route(&session),
        Found::ComesBack(why) => return Err(why.into()),
        Found::Nothing { class, why } => (class, why),
    };
    let class = if wanted.class.is_empty() { class } else { wanted.class.clone() };
    if let Some(reason) = not_opened(&tree, &wanted, &class) {
        let message = format!("{}; {reason}", why.message);
        return Err(Refusal { message, ..why }.into());
    }
    let (namespace, id) = (wanted.namespace, wanted.session);
    let open = v1::OpenRequest { namespace, id, class, ..v1::OpenRequest::default() };
    let mut request = Request::new(open);
    // One deadline for both calls.
    request.set_timeout(deadline.saturating_duration_since(Instant::now()));
    let opened = tree.sessions.open(request).await?.into_inner();
    route(&opened.session.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(state: SessionState, reason: v1::Reason) -> v1::Session {
        v1::Session { state: state.into(), reason: reason.into(), ..Default::default() }
    }

    #[test]
    fn a_session_that_comes_back_is_never_opened() {
        for state in [SessionState::Lost, SessionState::Pending, SessionState::Starting] {
            let it = session(state, v1::Reason::Reopening);
            assert!(is_coming(&it));
            let Found::ComesBack(why) = found(it) else { panic!("{state:?} may be opened") };
            assert_eq!((why.kind, why.retry), (RefusalKind::InProgress, Retry::AfterMs(SOON_MS)));
            assert!(why.message.ends_with("(REOPENING)"), "{}", why.message);
        }
        let lost = session(SessionState::Lost, v1::Reason::NodeLost);
        assert!(!is_coming(&lost));
        let Found::Nothing { why, .. } = found(lost) else { panic!("it is lost") };
        assert_eq!(why.kind, RefusalKind::NotFound);
        let ready = found(session(SessionState::Ready, v1::Reason::Unspecified));
        assert!(matches!(ready, Found::Lives(_)));
    }
}
