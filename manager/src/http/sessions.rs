//! Sessions: lists, and one.

use super::call::{Call, last_with_verb, segments};
use super::error::Failed;
use super::filter::{Within, filter, refused};
use super::links::encoded;
use super::paging::{SIZE, TOKEN, links};
use super::shown::Session;
use super::tags::has_it;
use super::tree::{Answer, Tree};
use super::verbs::{SESSION_VERBS, wrong_method};
use super::watch;
use super::which::Which;
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use rota_model::PAGE_SIZE_MAX;
use rota_proto::v1;
use rota_proto::v1::sessions_server::Sessions as _;
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;

/// A page of them.
#[derive(Serialize)]
struct Sessions {
    sessions: Vec<Session>,
    stale: bool,
    next_page_token: String,
    links: Value,
}

/// A page of a list.
pub async fn page(tree: &Tree, uri: &Uri, headers: &HeaderMap, within: Within) -> Answer {
    let mut call = Call::new(uri, headers)?;
    let (filter, mut same) = filter(&mut call, &within);
    let page_size = call.number::<u32>(SIZE);
    if page_size == Some(0) {
        call.wrong(SIZE, format!("is 0; it must be 1 to {PAGE_SIZE_MAX}"));
    }
    let (page_token, stale_ok) = (call.text(TOKEN), call.is_set("stale_ok"));
    same.push((SIZE, page_size.map(|it| it.to_string()).unwrap_or_default()));
    same.push(("stale_ok", if stale_ok { "true".to_owned() } else { String::new() }));
    let (r#where, sort) = (call.text("where"), call.text("sort"));
    let descending = call.is_set("descending");
    same.push(("where", r#where.clone()));
    same.push(("sort", sort.clone()));
    same.push(("descending", if descending { "true".to_owned() } else { String::new() }));
    let (list, numbers) = match within {
        Within::Ring => ("/v1/sessions".to_owned(), None),
        Within::Namespace(name) => (format!("/v1/namespaces/{}/sessions", encoded(&name)), None),
        Within::Node { list, numbers, .. } => (list, Some(numbers)),
    };
    let shown = |session: v1::Session| {
        let Some(numbers) = &numbers else { return Session::of(session) };
        let number = numbers.get(&(session.namespace.clone(), session.id.clone())).copied();
        Session::of(session).numbered(number, &list)
    };
    let request = v1::ListRequest {
        filter: Some(filter),
        page_size: page_size.unwrap_or(0),
        page_token,
        stale_ok,
        r#where,
        sort,
        descending,
    };
    let request = call.request(request)?;
    let place = tree.place().await?;
    let listed = tree.sessions.list(request).await.map_err(refused)?.into_inner();
    let next = listed.next_page_token;
    let sessions: Vec<Session> = listed.sessions.into_iter().map(shown).collect();
    let links = links(&list, &same, &next);
    let stale = listed.stale;
    place.holds(&Sessions { sessions, stale, next_page_token: next, links })
}

/// Of the whole ring.
pub async fn of_ring(State(tree): State<Arc<Tree>>, uri: Uri, headers: HeaderMap) -> Answer {
    page(&tree, &uri, &headers, Within::Ring).await
}

/// Of a namespace.
pub async fn of_namespace(State(tree): State<Arc<Tree>>, uri: Uri, headers: HeaderMap) -> Answer {
    let namespace = segments(&uri)?.into_iter().nth(1).unwrap_or_default();
    page(&tree, &uri, &headers, Within::Namespace(namespace)).await
}

/// The entity tag of a session: it changes with its version, and with the owner that tells it.
fn tag(session: &v1::Session) -> String {
    format!("W/\"{}.{}\"", session.version, session.epoch)
}

/// A session with its tag.
fn tagged(code: StatusCode, tag: &str, body: impl IntoResponse) -> Response {
    let mut response = (code, body).into_response();
    if let Ok(tag) = HeaderValue::from_str(tag) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}

async fn show(tree: &Tree, headers: &HeaderMap, mut call: Call, which: Which) -> Answer {
    let Which { namespace, id } = which;
    let stale_ok = call.is_set("stale_ok");
    let request = call.request(v1::GetRequest { namespace, id, stale_ok })?;
    let got = tree.sessions.get(request).await?.into_inner();
    Ok(answer(headers, got, |it| it))
}

/// The answer to a get, unless the caller has it already.
pub fn answer(
    headers: &HeaderMap,
    got: v1::GetResponse,
    with: impl FnOnce(Session) -> Session,
) -> Response {
    let session = got.session.unwrap_or_default();
    let tag = tag(&session);
    if has_it(headers, &tag) {
        return tagged(StatusCode::NOT_MODIFIED, &tag, ());
    }
    let shown = with(Session { stale: Some(got.stale), ..Session::of(session) });
    tagged(StatusCode::OK, &tag, Json(shown))
}

/// One, by the path; or the watch of it.
pub async fn by_path(State(tree): State<Arc<Tree>>, uri: Uri, headers: HeaderMap) -> Answer {
    if let Some(last) = watch::verb(&uri) {
        return watch::by_path(&tree, &uri, &headers, &last).await;
    }
    // A name that ends so is written with %3A.
    let (last, verb) = last_with_verb(&uri, &SESSION_VERBS);
    if verb.is_some() {
        return Ok(wrong_method(uri).await);
    }
    let call = Call::new(&uri, &headers)?;
    show(&tree, &headers, call, Which::of_path(&uri, &last)?).await
}

/// One, by the query.
pub async fn by_query(State(tree): State<Arc<Tree>>, uri: Uri, headers: HeaderMap) -> Answer {
    let mut call = Call::new(&uri, &headers)?;
    let which = Which::of_query(&mut call);
    show(&tree, &headers, call, which).await
}

impl Tree {
    /// What this manager tells operators of the ring.
    pub async fn inspect(&self, call: Call) -> Result<v1::InspectResponse, Failed> {
        use rota_proto::v1::operator_server::Operator as _;
        let request = call.request(v1::InspectRequest {})?;
        Ok(self.operator.inspect(request).await?.into_inner())
    }
}
