//! `/v1/namespaces/{namespace}/tasks`: what administrators see of tasks, and order about one.

use super::call::{Asked, Call, decoded, last_with_verb, segments};
use super::error::Failed;
use super::filter::refused;
use super::links::encoded;
use super::paging::{SIZE, TOKEN, links};
use super::shown::without_prefix;
use super::tree::{Answer, Tree, missing};
use super::verbs::{TASK_VERBS, wrong_method};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, Uri};
use axum::response::IntoResponse as _;
use rota_model::{FieldError, Refusal, RefusalKind, Retry};
use rota_proto::documents::ADMIN_KEY_METADATA;
use rota_proto::tasks::TASKS_PAGE_MAX;
use rota_proto::v1;
use rota_proto::v1::documents_server::Documents as _;
use rota_proto::v1::tasks_server::Tasks as _;
use rota_protocol::Task;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;
use tonic::metadata::MetadataMap;

/// The class of the documents that are tasks.
const CLASS: &str = "Task";

/// A task, as `ringctl task show -o json` shows it.
#[derive(Serialize)]
struct Shown {
    namespace: String,
    id: String,
    operation: String,
    state: String,
    param: Option<Value>,
    param_document: Option<String>,
    info: String,
    retry: u32,
    start_at: Option<u64>,
    start_time: Option<u64>,
    queue: u32,
    exception: Option<String>,
    report: Option<String>,
    cron: Option<String>,
    paused: bool,
    progress: Option<Value>,
    next_run: Option<u64>,
    links: Value,
}

/// A page of them.
#[derive(Serialize)]
struct Tasks {
    tasks: Vec<Shown>,
    next_page_token: String,
    links: Value,
}

/// What became of an order.
#[derive(Serialize)]
struct Ordered {
    namespace: String,
    id: String,
    /// None: it was deleted.
    task: Option<Shown>,
}

/// The answer of an owner to an order.
#[derive(Deserialize)]
struct Answered {
    task: Option<Task>,
}

/// The answer of an owner to who reads documents.
#[derive(Deserialize)]
struct Read {
    documents: Vec<ReadDocument>,
}

#[derive(Deserialize)]
struct ReadDocument {
    #[serde(default)]
    items: Vec<ReadItem>,
}

#[derive(Deserialize)]
struct ReadItem {
    json: Task,
}

fn list_of(namespace: &str) -> String {
    format!("/v1/namespaces/{}/tasks", encoded(namespace))
}

impl Shown {
    fn of(it: v1::Task) -> Self {
        let state = it.state();
        let id = format!("{{{}}}{}", it.place, it.task_id);
        let (param, param_document) = match it.param {
            Some(v1::task::Param::Json(text)) => (serde_json::from_str(&text).ok(), None),
            Some(v1::task::Param::Document(docid)) => (None, Some(docid)),
            None => (None, None),
        };
        let given = |text: String| Some(text).filter(|it| !it.is_empty());
        let stamp = |number: u64| Some(number).filter(|it| *it > 0);
        let waits = matches!(state, v1::TaskState::Waiting | v1::TaskState::Lost);
        let links = json!({"self": format!("{}/{}", list_of(&it.namespace), encoded(&id))});
        Self {
            id,
            state: without_prefix(state.as_str_name(), "TASK_STATE_"),
            param,
            param_document,
            start_at: stamp(it.start_at),
            start_time: stamp(it.start_time),
            next_run: stamp(it.start_at).filter(|_| waits),
            exception: given(it.exception),
            report: given(it.report),
            cron: given(it.cron),
            namespace: it.namespace,
            operation: it.operation,
            info: it.info,
            retry: it.retry,
            queue: it.queue,
            paused: it.paused,
            progress: it.progress.map(|it| json!({"done": it.done, "failed": it.failed})),
            links,
        }
    }
}

fn states(call: &mut Call) -> (Vec<i32>, String) {
    let (mut states, mut names) = (Vec::new(), Vec::new());
    for given in call.all("state") {
        names.extend(given.split(',').map(str::to_owned));
    }
    for name in &names {
        let state = v1::TaskState::from_str_name(&format!("TASK_STATE_{name}"));
        match state.filter(|it| *it != v1::TaskState::Unspecified) {
            Some(state) => states.push(state.into()),
            None => {
                let known = "WAITING, RUNNING, LOST, PARKED, PAUSED";
                call.wrong("state", format!("is {name:?}; it must be one of {known}"));
            }
        }
    }
    (states, names.join(","))
}

/// The filter that a call says, and its fields, which the next page has as well.
fn filter(call: &mut Call, namespace: &str) -> (v1::TaskFilter, Vec<(&'static str, String)>) {
    let (states, names) = states(call);
    let filter = v1::TaskFilter {
        namespace: namespace.to_owned(),
        operation: call.text("operation"),
        info_prefix: call.text("info"),
        started_from: call.number("started_from").unwrap_or(0),
        started_before: call.number("started_before").unwrap_or(0),
        retry_min: call.number("retry_min").unwrap_or(0),
        states,
        periodic: call.is_set("periodic"),
    };
    let number = |it: u64| if it > 0 { it.to_string() } else { String::new() };
    let same = vec![
        ("operation", filter.operation.clone()),
        ("info", filter.info_prefix.clone()),
        ("started_from", number(filter.started_from)),
        ("started_before", number(filter.started_before)),
        ("retry_min", number(filter.retry_min.into())),
        ("state", names),
        ("periodic", if filter.periodic { "true".to_owned() } else { String::new() }),
    ];
    (filter, same)
}

/// Those of a namespace.
pub async fn list(State(tree): State<Arc<Tree>>, uri: Uri, headers: HeaderMap) -> Answer {
    let mut call = Call::new(&uri, &headers)?;
    let namespace = segments(&uri)?.into_iter().nth(1).unwrap_or_default();
    let (filter, mut same) = filter(&mut call, &namespace);
    let page_size = call.number::<u32>(SIZE);
    if page_size.is_some_and(|it| !(1..=TASKS_PAGE_MAX).contains(&it)) {
        let size = page_size.unwrap_or(0);
        call.wrong(SIZE, format!("is {size}; it must be 1 to {TASKS_PAGE_MAX}"));
    }
    let page_token = call.text(TOKEN);
    same.push((SIZE, page_size.map(|it| it.to_string()).unwrap_or_default()));
    let page_size = page_size.unwrap_or(0);
    let request = v1::ListTasksRequest { filter: Some(filter), page_size, page_token };
    let request = call.request(request)?;
    let place = tree.place().await?;
    let listed = tree.tasks.list_tasks(request).await.map_err(refused)?.into_inner();
    let next = listed.next_page_token;
    let links = links(&list_of(&namespace), &same, &next);
    let tasks = listed.tasks.into_iter().map(Shown::of).collect();
    place.holds(&Tasks { tasks, next_page_token: next, links })
}

/// Which task a path names, with the verb after it.
fn which(uri: &Uri) -> Result<(String, String, Option<&'static str>), FieldError> {
    let (last, verb) = last_with_verb(uri, &TASK_VERBS);
    let namespace = segments(uri)?.into_iter().nth(1).unwrap_or_default();
    Ok((namespace, decoded(&last)?, verb))
}

/// The key of an administrator, if the caller has one.
fn admin_of(metadata: &MetadataMap) -> String {
    let key = metadata.get(ADMIN_KEY_METADATA).and_then(|it| it.to_str().ok());
    key.unwrap_or_default().to_owned()
}

/// Runs an operation at the id of a task's document. Its answer is JSON.
async fn operate<T: for<'a> Deserialize<'a>>(
    tree: &Tree,
    metadata: &MetadataMap,
    (namespace, id): (&str, &str),
    (operation, parameters): (&str, Value),
) -> Result<T, Failed> {
    let request = v1::OperateRequest {
        namespace: namespace.to_owned(),
        operation: operation.to_owned(),
        parameters: parameters.to_string(),
        docid: id.to_owned(),
        admin: admin_of(metadata),
        ..Default::default()
    };
    let asked = Asked::begin(metadata).with(request);
    let answer = tree.documents.operate(asked).await?.into_inner();
    let text = match answer.body {
        Some(v1::operate_response::Body::Json(text)) => text,
        Some(v1::operate_response::Body::Binary(_)) | None => String::new(),
    };
    serde_json::from_str(&text).map_err(|error| {
        let text = format!("the answer to {operation} cannot be read: {error}");
        Refusal::new(RefusalKind::Internal, Retry::Never, text).into()
    })
}

/// One.
pub async fn one(State(tree): State<Arc<Tree>>, uri: Uri, headers: HeaderMap) -> Answer {
    let request = Call::new(&uri, &headers)?.request(())?;
    let (namespace, id, verb) = which(&uri)?;
    if verb.is_some() {
        return Ok(wrong_method(uri).await);
    }
    // Whoever may not list tasks reads none here.
    tree.shared.check_admin(request.metadata())?;
    let documents = json!([{"class": CLASS, "docid": id}]);
    let reading = ("document.read", json!({"documents": documents}));
    let read: Read = operate(&tree, request.metadata(), (&namespace, &id), reading).await?;
    let item = read.documents.into_iter().flat_map(|it| it.items).next();
    let Some(ReadItem { json: task }) = item else {
        return Err(missing("task", &id, &list_of(&namespace)));
    };
    Ok(Json(Shown::of(v1::Task::from(&task))).into_response())
}

/// Carries an order out.
async fn order(
    tree: &Tree,
    (metadata, verb): (&MetadataMap, &str),
    (namespace, id): (String, String),
    at: Option<u64>,
) -> Answer {
    let parameters = match at {
        Some(at) => json!({"docid": id, "at": at}),
        None => json!({"docid": id}),
    };
    let operation = format!("task.{verb}");
    let order = (&*operation, parameters);
    let answered: Answered = operate(tree, metadata, (&namespace, &id), order).await?;
    let task = answered.task.as_ref().map(|it| Shown::of(v1::Task::from(it)));
    Ok(Json(Ordered { namespace, id, task }).into_response())
}

/// Orders have no names here, so a repetition is another order: a task runs at least once in any case.
fn refuse_key(call: &mut Call, headers: &HeaderMap) {
    if headers.contains_key(HeaderName::from_static("idempotency-key")) {
        call.wrong("Idempotency-Key", "is of no use: orders about tasks are not remembered here, so a repetition is another order");
    }
}

/// Deletes one.
pub async fn delete(State(tree): State<Arc<Tree>>, uri: Uri, headers: HeaderMap) -> Answer {
    let mut call = Call::new(&uri, &headers)?;
    refuse_key(&mut call, &headers);
    let request = call.request(())?;
    let (namespace, id, verb) = which(&uri)?;
    if verb.is_some() {
        return Ok(wrong_method(uri).await);
    }
    order(&tree, (request.metadata(), "delete"), (namespace, id), None).await
}

/// By the path, whose last part ends with the verb.
pub async fn by_path(
    State(tree): State<Arc<Tree>>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let (namespace, id, verb) = which(&uri)?;
    let Some(verb) = verb else { return Ok(wrong_method(uri).await) };
    let mut call = Call::with_body(&uri, &headers, &tree.bodies, body).await?;
    refuse_key(&mut call, &headers);
    let mut at = None;
    if ["advance", "postpone"].contains(&verb) {
        at = call.field::<Option<u64>>("at");
        if at.is_none() {
            call.wrong("at", "is missing: the new start, a stamp (YYMMDDhhmmssmmm, UTC)");
        }
    }
    let request = call.request(())?;
    order(&tree, (request.metadata(), verb), (namespace, id), at).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_a_task_and_perhaps_an_order() {
        let parts = |path: &str| which(&path.parse().unwrap()).unwrap();
        let (space, id) = ("a b".to_owned(), "{c/7}4f".to_owned());
        let path = "/v1/namespaces/a%20b/tasks/%7Bc%2F7%7D4f";
        assert_eq!(parts(path), (space.clone(), id.clone(), None));
        assert_eq!(parts(&format!("{path}:retry")), (space, id, Some("retry")));
    }

    #[test]
    fn a_filter_goes_to_the_next_page_and_names_its_mistakes() {
        let uri = "/v1/x?state=WAITING,GONE&retry_min=2&info=a&periodic=true".parse().unwrap();
        let mut call = Call::new(&uri, &HeaderMap::new()).unwrap();
        let (filter, same) = filter(&mut call, "shop");
        assert_eq!((filter.retry_min, filter.periodic, filter.states.len()), (2, true, 1));
        let same: Vec<_> = same.into_iter().filter(|it| !it.1.is_empty()).collect();
        assert_eq!(same.len(), 4);
        assert_eq!(super::super::call::tests::fields(call.request(()).unwrap_err()), ["state"]);
    }
}
