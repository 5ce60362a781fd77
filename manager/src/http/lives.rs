//! Sessions with a life: `POST` of `:keepalive` and `:update`, and what an open asks for; `GET` of `/life`.

use super::call::{Call, segments};
use super::links;
use super::shown::{LifeShown, Session};
use super::tree::{Answer, Tree};
use super::which::Which;
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::IntoResponse as _;
use rota_proto::v1;
use rota_proto::v1::sessions_server::Sessions as _;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The answer to a keep-alive.
#[derive(Serialize)]
struct KeptAlive {
    /// For how long nobody had said that it is used; `null` where nobody ever has.
    idle_ms: Option<u64>,
    session: Session,
}

/// An event whose action failed.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Event {
    life_cycle: String,
    word: String,
}

impl From<Event> for v1::LifeEvent {
    fn from(it: Event) -> Self {
        Self { life_cycle: it.life_cycle, word: it.word }
    }
}

/// What an open asks for instead of what its class says.
pub fn options(call: &mut Call) -> Option<v1::LifeOptions> {
    call.open_object("life").then(|| v1::LifeOptions {
        idle_ms: call.field("life.idle_ms"),
        max_life_ms: call.field("life.max_life_ms"),
        start_timeout_ms: call.field("life.start_timeout_ms"),
        close_grace_ms: call.field("life.close_grace_ms"),
        restarts: call.field("life.restarts"),
        managed_state: call.field("life.managed_state"),
    })
}

/// Says that a session is used.
pub async fn keep_alive(tree: &Tree, mut call: Call, which: Which) -> Answer {
    let Which { namespace, id } = which;
    let request = v1::KeepAliveRequest { namespace, id, life: call.field("life") };
    let kept = tree.sessions.keep_alive(call.request(request)?).await?.into_inner();
    let session = Session::of(kept.session.unwrap_or_default());
    Ok(Json(KeptAlive { idle_ms: kept.idle_ms, session }).into_response())
}

/// What a change says: an attribute that is `null` goes.
fn change(call: &mut Call, which: Which) -> v1::UpdateRequest {
    let mut attributes = BTreeMap::new();
    let mut remove_attributes = Vec::new();
    for (name, value) in call.field::<BTreeMap<String, Option<String>>>("attributes") {
        match value {
            Some(value) => drop(attributes.insert(name, value)),
            None => remove_attributes.push(name),
        }
    }
    let mut events = |name| {
        let events: Vec<Event> = call.field(name);
        events.into_iter().map(v1::LifeEvent::from).collect()
    };
    let (skip, retry) = (events("skip"), events("retry"));
    v1::UpdateRequest {
        namespace: which.namespace,
        id: which.id,
        life: call.field("life"),
        if_version: call.field("if_version"),
        attributes,
        remove_attributes,
        add_state: call.field("add_state"),
        remove_state: call.field("remove_state"),
        finish: call.field("finish"),
        skip,
        retry,
    }
}

/// Changes attributes and life cycles.
pub async fn update(tree: &Tree, mut call: Call, which: Which) -> Answer {
    let (namespace, id) = (which.namespace.clone(), which.id.clone());
    let request = change(&mut call, which);
    let updated = tree.sessions.update(call.request(request)?).await?.into_inner();
    Ok(shown(updated.life, &namespace, &id))
}

fn shown(life: Option<v1::Life>, namespace: &str, id: &str) -> axum::response::Response {
    let own = links::session(namespace, id, "/life");
    let session = links::session(namespace, id, "");
    Json(LifeShown::of(life.unwrap_or_default(), &own, &session)).into_response()
}

async fn show(tree: &Tree, call: Call, which: Which) -> Answer {
    let (namespace, id) = (which.namespace.clone(), which.id.clone());
    let Which { namespace: of, id: one } = which;
    let request = call.request(v1::GetLifeRequest { namespace: of, id: one })?;
    let got = tree.sessions.get_life(request).await?.into_inner();
    Ok(shown(got.life, &namespace, &id))
}

/// How the life cycles of a session stand, by the path.
pub async fn by_path(State(tree): State<Arc<Tree>>, uri: Uri, headers: HeaderMap) -> Answer {
    let call = Call::new(&uri, &headers)?;
    let mut parts = segments(&uri)?.into_iter();
    let namespace = parts.nth(1).unwrap_or_default();
    let id = parts.nth(1).unwrap_or_default();
    show(&tree, call, Which { namespace, id }).await
}

/// The same by the query.
pub async fn by_query(State(tree): State<Arc<Tree>>, uri: Uri, headers: HeaderMap) -> Answer {
    let mut call = Call::new(&uri, &headers)?;
    let which = Which::of_query(&mut call);
    show(&tree, call, which).await
}

#[cfg(test)]
mod tests {
    use super::super::call::tests::fields;
    use super::*;
    use serde_json::{Value, json};

    fn call(body: Value) -> Call {
        let Value::Object(body) = body else { panic!("{body} is no object") };
        let mut call = Call::default();
        call.body = body;
        call
    }

    fn which() -> Which {
        Which { namespace: "default".to_owned(), id: "a".to_owned() }
    }

    #[test]
    fn what_an_open_asks_for_is_read_and_each_mistake_has_its_whole_name() {
        let mut it = call(json!({"life": {"idle_ms": 5000, "managed_state": ["a x@+1m"]}}));
        let asked = options(&mut it).unwrap();
        assert_eq!((asked.idle_ms, asked.max_life_ms), (Some(5_000), None));
        assert_eq!(asked.managed_state, ["a x@+1m"]);
        assert!(it.request(()).is_ok());
        assert_eq!(options(&mut call(json!({"life": null}))), None);
        let mut it = call(json!({"life": {"idle_ms": "5s", "idel": 1}}));
        options(&mut it);
        assert_eq!(fields(it.request(()).unwrap_err()), ["life.idle_ms", "life.idel"]);
        let mut it = call(json!({"life": 7, "life.idle_ms": 5000}));
        assert_eq!(options(&mut it), None);
        assert_eq!(fields(it.request(()).unwrap_err()), ["life", "life.idle_ms"]);
        let mut it = call(json!({"life": {}, "life.idle_ms": 5000}));
        options(&mut it);
        assert_eq!(fields(it.request(()).unwrap_err()), ["life.idle_ms"]);
    }

    #[test]
    fn an_attribute_that_is_null_goes_and_one_with_a_text_is_set() {
        let mut it = call(json!({
            "attributes": {"a": "1", "b": null}, "if_version": 7,
            "skip": [{"life_cycle": "a", "word": "x@+1m"}],
        }));
        let change = change(&mut it, which());
        assert_eq!(change.attributes, [("a".to_owned(), "1".to_owned())].into());
        assert_eq!((change.remove_attributes, change.if_version), (vec!["b".to_owned()], 7));
        assert_eq!(change.skip[0].life_cycle, "a");
        assert!(it.request(()).is_ok());
    }

    #[test]
    fn a_wrong_change_is_told_by_field() {
        let mut it = call(json!({"attributes": {"a": 1}, "retry": [{"life_cycle": "a"}], "x": 1}));
        change(&mut it, which());
        let told = fields(it.request(()).unwrap_err());
        assert_eq!(told, ["attributes", "retry", "x"]);
    }
}
