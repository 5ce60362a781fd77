//! What operators do with namespaces.

use super::owners::{Failure, mixed_up, operate, sync};
use super::{Shared, export, list};
use crate::mailbox::PendingCall;
use crate::rpc::deadline::deadline_of;
use prost::Message as _;
use rota_docstore::space::SPACE_CLASS;
use rota_docstore::{
    Body, Description, DocName, Document, Exception, FieldError, Namespace, Phase, Stamp,
    SyncRequest, Update, Usage, codes,
};
use rota_model::{Filter, ListCursor, ListOp, SessionKey, SessionState, SlotId};
use rota_proto::documents::{
    NamespaceState, UPDATES_BYTES_MAX, in_call, request, status as exception_status,
};
use rota_proto::v1;
use rota_protocol::api::{ClearOp, FollowOp, OperateOp, PageOp};
use rota_protocol::operate::{self, SPACES_DOCID};
use rota_protocol::{Answer, DocumentAnswer, DocumentCursor, DocumentOp, Op};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status, Streaming};

/// How long one step of a stream may take.
pub(super) const STEP: Duration = Duration::from_secs(10);

/// How long an answer waits for what namespaces hold. The partitions are asked at the same time, and whoever
/// has them answers within milliseconds.
const USAGE_WAIT: Duration = Duration::from_secs(2);

/// Messages of a stream that wait for its reader.
pub(super) const STREAM_MESSAGES_MAX: usize = 4;

/// The service of namespaces.
pub struct NamespacesService {
    /// What the services share.
    pub shared: Arc<Shared>,
}

/// What the configuration says of a namespace.
enum Described {
    /// This.
    Yes(Box<Description>, Stamp),
    /// It was deleted not long ago.
    Ended,
    Never,
}

pub(super) fn configuration() -> Namespace {
    Namespace::parse(operate::CONFIGURATION).expect("z is a name")
}

fn missing(name: &Namespace) -> Failure {
    let problem = format!("{name} does not exist: it was not created, and nothing is in it");
    let field = FieldError::new("name", problem);
    Exception::of_field(codes::NAMESPACE, field).into()
}

/// Runs one of the operations on descriptions. Tells what it made of the document that is to be shown, in the
/// same answer: what was done is not told as a failure because of a later question.
pub(super) async fn administer(
    shared: &Shared,
    operation: &str,
    shown: SyncRequest,
    parameters: &Value,
    admin: String,
) -> Result<(Body, Option<Update>), Failure> {
    let request = rota_docstore::Request::new(configuration(), operation);
    let mut request = request.with(parameters).map_err(Exception::from)?;
    request.who.admin = admin;
    request.syncs = vec![shown];
    let op = OperateOp { request: Arc::new(request), docid: SPACES_DOCID.to_owned() };
    let answer = operate(shared, op, Instant::now() + STEP).await?;
    Ok((answer.body, answer.updates.into_iter().next().map(|it| it.1)))
}

/// Descriptions of one class, in order of what they describe. Those that were taken away are left out.
pub(super) async fn descriptions(
    shared: &Shared,
    class: &str,
) -> Result<Vec<Arc<Document>>, Failure> {
    let (mut since, mut documents) = (Stamp::MIN, BTreeMap::new());
    loop {
        let op = Op::Documents(DocumentOp::Follow(FollowOp { since, wait_ms: 0, held: None }));
        let answer = shared.mailbox.call(op, Instant::now() + STEP).await?;
        let Answer::Documents(DocumentAnswer::Followed { documents: news, .. }) = answer else {
            return Err(mixed_up(&answer));
        };
        // As many as go into one message; the rest is newer.
        let Some(latest) = news.iter().map(|it| it.version()).max() else { break };
        since = latest;
        documents.extend(
            news.into_iter()
                .map(|it| (it.name().docid().to_owned(), it))
                .filter(|(_, it)| it.name().class() == class),
        );
    }
    Ok(documents.into_values().filter(|it| !it.is_deleted()).collect())
}

/// Runs one of the operations on namespaces, and tells what it made of this one.
async fn configure(
    shared: &Shared,
    operation: &str,
    name: &Namespace,
    parameters: &Value,
    admin: String,
) -> Result<Described, Failure> {
    let shown = description_of(name)?;
    let (_, update) = administer(shared, operation, shown, parameters, admin).await?;
    let described = read(update);
    Ok(described.map_err(|it| it.at(Phase::Synchronisation))?)
}

/// The same for what changes the description of a namespace that need not have been created: one that is
/// shown gets the description as which it is shown, and then this is done.
async fn configure_shown(
    shared: &Shared,
    operation: &str,
    name: &Namespace,
    parameters: &Value,
    (admin, deadline): (String, Instant),
) -> Result<Described, Failure> {
    match configure(shared, operation, name, parameters, admin.clone()).await {
        Err(Failure::Raised(it)) if *it.code() == codes::NAMESPACE => {}
        done => return done,
    }
    let NamespaceState { description, .. } = shown(shared, name, deadline).await?;
    create_missing(shared, name, &description, &admin).await?;
    configure(shared, operation, name, parameters, admin).await
}

fn description_of(name: &Namespace) -> Result<SyncRequest, Exception> {
    let name = DocName::new(&configuration(), SPACE_CLASS, name.as_str())?;
    Ok(SyncRequest { name, held: None })
}

/// The description in the answer to a question for all of it.
fn read(update: Option<Update>) -> Result<Described, Exception> {
    Ok(match update {
        Some(Update::Full(document)) if !document.is_deleted() => {
            let description = document.one::<Description>()?;
            Described::Yes(Box::new(description.unwrap_or_default()), document.version())
        }
        Some(Update::Full(_) | Update::Deleted { .. }) => Described::Ended,
        Some(
            Update::Unchanged { .. }
            | Update::Changes(_)
            | Update::Absent { .. }
            | Update::SourceBehind { .. },
        )
        | None => Described::Never,
    })
}

/// Creates a namespace that is on.
async fn create(
    shared: &Shared,
    name: &Namespace,
    description: &Description,
    admin: String,
) -> Result<Described, Failure> {
    let readers: Vec<&str> = description.readers.iter().map(Namespace::as_str).collect();
    let parameters = json!({
        "name": name.as_str(), "create": true, "description": description.description,
        "limits": description.limits, "readers": readers,
    });
    configure(shared, "namespace.put", name, &parameters, admin).await
}

/// Creates a namespace as it is described, also switched off, unless it exists.
pub(super) async fn create_missing(
    shared: &Shared,
    name: &Namespace,
    description: &Description,
    admin: &str,
) -> Result<(), Failure> {
    if let Described::Yes(..) = described(shared, name).await? {
        return Ok(());
    }
    match create(shared, name, description, admin.to_owned()).await {
        // Somebody else was faster.
        Err(Failure::Raised(it)) if *it.code() == codes::EXISTS => return Ok(()),
        created => {
            created?;
        }
    }
    if description.off.is_some() {
        let parameters = json!({"name": name.as_str(), "off": description.off});
        configure(shared, "namespace.switch", name, &parameters, admin.to_owned()).await?;
    }
    Ok(())
}

async fn described(shared: &Shared, name: &Namespace) -> Result<Described, Failure> {
    let syncs = vec![description_of(name)?];
    let updates = sync(shared, None, syncs, false, Instant::now() + STEP).await?;
    Ok(read(updates.into_iter().next().map(|it| it.1))?)
}

/// Until when an answer waits for what owners of other slots know, so that it comes before its caller gives up.
pub(super) fn usage_until(deadline: Instant) -> Instant {
    let now = Instant::now();
    now + (deadline.saturating_duration_since(now) / 2).min(USAGE_WAIT)
}

/// What a namespace holds, all owners together.
async fn usage(shared: &Shared, space: &Namespace, until: Instant) -> Result<Usage, Failure> {
    let view = shared.seen.borrow().view.clone();
    let numbers = view.iter().flat_map(|view| view.parts.keys());
    let begun: Vec<PendingCall> = numbers
        .map(|number| {
            // The last slot of its partition: little is looked at, and the sum is of the partition.
            let from = DocumentCursor { slot: SlotId(number.0), after: None };
            let space = space.clone();
            let op = PageOp { from, limit: 1, space, class: None, by_operator: true };
            shared.mailbox.begin(Op::Documents(DocumentOp::Page(op)), until)
        })
        .collect();
    let mut all = Usage::default();
    for begun in begun {
        let answer = begun.answer().await?;
        let Answer::Documents(DocumentAnswer::Page(page)) = answer else {
            return Err(mixed_up(&answer));
        };
        all = all.plus(page.usage);
    }
    Ok(all)
}

/// Why it is not known what a namespace holds.
fn unknown(failure: Failure) -> String {
    Status::from(failure).message().to_owned()
}

/// A namespace that is described, with what it holds if that can be had.
async fn state_of(
    shared: &Shared,
    name: &Namespace,
    described: Described,
    deadline: Instant,
) -> Result<NamespaceState, Failure> {
    let Described::Yes(description, version) = described else { return Err(missing(name)) };
    let usage = usage(shared, name, usage_until(deadline)).await.map_err(unknown);
    let (name, version) = (name.clone(), Some(version));
    Ok(NamespaceState { name, description: *description, usage, version })
}

/// The same, also of one that nobody described: `default` in any case, others while something is in
/// them. They are on, without limits.
async fn shown(
    shared: &Shared,
    name: &Namespace,
    deadline: Instant,
) -> Result<NamespaceState, Failure> {
    let described = described(shared, name).await?;
    if matches!(described, Described::Yes(..)) {
        return state_of(shared, name, described, deadline).await;
    }
    let usage = usage(shared, name, usage_until(deadline)).await;
    if *name != Namespace::default_space() {
        // What it holds decides whether there is such a namespace.
        let documents = usage.as_ref().map_or(0, |it| it.documents);
        if documents == 0 && live_session(shared, name).await?.is_none() {
            usage?;
            return Err(missing(name));
        }
    }
    let (name, usage, description) = (name.clone(), usage.map_err(unknown), Description::default());
    Ok(NamespaceState { name, description, usage, version: None })
}

/// Any session of a namespace that has not ended.
async fn live_session(shared: &Shared, name: &Namespace) -> Result<Option<SessionKey>, Failure> {
    let (mut from, filter) = (Some(ListCursor { slot: SlotId(0), after: None }), live());
    while let Some(cursor) = from {
        // By an operator: not refused, although it may be switched off.
        let op = ListOp { from: cursor, limit: 100, filter: filter.clone(), stale_ok: false };
        let page = list::gather(shared, op, Instant::now() + STEP).await?;
        let mut keys = page.sessions.iter().map(|it| &it.record.key);
        if let Some(found) = keys.find(|it| it.namespace == *name) {
            return Ok(Some(found.clone()));
        }
        from = page.next;
    }
    Ok(None)
}

/// Refused while it is on, or has sessions that have not ended. `false`: it is gone already.
async fn check_deletable(shared: &Shared, name: &Namespace) -> Result<bool, Failure> {
    let description = match described(shared, name).await? {
        Described::Yes(description, _) => description,
        Described::Ended => return Ok(false),
        Described::Never => return Err(missing(name)),
    };
    if description.off.is_none() {
        let message = format!("namespace {name} is on; switch it off first");
        return Err(Exception::business("ON", message).into());
    }
    if let Some(found) = live_session(shared, name).await? {
        let message = format!(
            "session {found} has not ended; close it first, as operators can although the namespace is off \
             (ringctl session close --although-off)"
        );
        return Err(Exception::business("SESSIONS", message).into());
    }
    Ok(true)
}

/// Sessions that have not ended. Their namespace is looked at here, since lists by namespace are
/// refused while it is switched off.
fn live() -> Filter {
    use SessionState::{Closing, Pending, Ready, Starting};
    Filter { states: vec![Pending, Starting, Ready, Closing], ..Filter::default() }
}

/// Deletes everything, and says how far it is.
async fn delete(
    shared: Arc<Shared>,
    name: Namespace,
    admin: String,
    out: mpsc::Sender<Result<v1::DeleteNamespaceResponse, Status>>,
) {
    let (mut deleted, mut next) = (0, Some(DocumentCursor::default()));
    while let Some(from) = next {
        let clear = ClearOp { from, space: name.clone() };
        let op = Op::Documents(DocumentOp::Clear(clear));
        let cleared = match shared.mailbox.call(op, Instant::now() + STEP).await {
            Ok(Answer::Documents(DocumentAnswer::Cleared { deleted, next })) => Ok((deleted, next)),
            Ok(other) => Err(mixed_up(&other)),
            Err(refusal) => Err(refusal.into()),
        };
        let told = match cleared {
            Ok((some, from)) => {
                (deleted, next) = (deleted + some, from);
                Ok(v1::DeleteNamespaceResponse { deleted, done: false })
            }
            Err(failure) => {
                next = None;
                Err(failure.into())
            }
        };
        let is_over = told.is_err();
        // A reader that is gone wants no more of it. Asking again goes on.
        if out.send(told).await.is_err() || is_over {
            return;
        }
    }
    let removed =
        configure(&shared, "namespace.remove", &name, &json!({"name": name.as_str()}), admin).await;
    let last = removed.map(|_| v1::DeleteNamespaceResponse { deleted, done: true });
    let told = |failure| in_call("namespace.remove", Status::from(failure));
    let _ = out.send(last.map_err(told)).await;
}

/// The parameters of the operation `namespace.set`.
fn setting(set: &request::Set) -> Value {
    let mut limits = Map::new();
    for (name, most) in [
        ("documents", set.documents),
        ("item_bytes", set.item_bytes),
        ("attachment_bytes", set.attachment_bytes),
    ] {
        limits.extend(most.map(|it| (name.to_owned(), json!(it))));
    }
    let names = |them: &[Namespace]| them.iter().map(|it| json!(it.as_str())).collect();
    let (add, remove): (Vec<_>, Vec<_>) = (names(&set.add_readers), names(&set.remove_readers));
    json!({
        "name": set.name.as_str(),
        "description": set.description,
        "limits": limits,
        "add_readers": add,
        "remove_readers": remove,
    })
}

impl NamespacesService {
    fn check_admin(&self, metadata: &MetadataMap) -> Result<String, Status> {
        self.shared.check_admin(metadata)
    }

    /// Those after a name that fit into one response, in order of their names.
    async fn list(
        &self,
        after: &str,
        deadline: Instant,
    ) -> Result<v1::ListNamespacesResponse, Failure> {
        let described = descriptions(&self.shared, SPACE_CLASS).await?;
        let mut listed = v1::ListNamespacesResponse::default();
        let (mut bytes, mut missed) = (0, None);
        for document in described.iter().filter(|it| it.name().docid() > after) {
            let name = Namespace::parse(document.name().docid()).map_err(Exception::from)?;
            let description = document.one::<Description>().map_err(Exception::from)?;
            // Who could not be asked of one namespace is not waited for again.
            let usage = match &missed {
                None => usage(&self.shared, &name, usage_until(deadline)).await.map_err(unknown),
                Some(why) => Err(String::clone(why)),
            };
            missed = usage.as_ref().err().cloned();
            let (description, version) =
                (description.unwrap_or_default(), Some(document.version()));
            let state = NamespaceState { name, description, usage, version };
            let info = v1::NamespaceInfo::from(&state);
            bytes += info.encoded_len() + 8;
            if bytes > UPDATES_BYTES_MAX {
                listed.more = true;
                break;
            }
            listed.namespaces.push(info);
        }
        Ok(listed)
    }
}

type Deleting = ReceiverStream<Result<v1::DeleteNamespaceResponse, Status>>;
type Exporting = ReceiverStream<Result<v1::NamespaceRecord, Status>>;

#[tonic::async_trait]
impl v1::namespaces_server::Namespaces for NamespacesService {
    type DeleteNamespaceStream = Deleting;
    type ExportNamespaceStream = Exporting;

    async fn create_namespace(
        &self,
        request: Request<v1::CreateNamespaceRequest>,
    ) -> Result<Response<v1::NamespaceInfo>, Status> {
        let asked = async {
            let (admin, deadline) = self.shared.admitted(request.metadata())?;
            let request::Create { name, description } =
                request::create(request.into_inner()).map_err(|it| exception_status(&it))?;
            let created = create(&self.shared, &name, &description, admin).await?;
            Ok::<_, Status>(Response::new(
                (&state_of(&self.shared, &name, created, deadline).await?).into(),
            ))
        };
        asked.await.map_err(|it| in_call("namespace.put", it))
    }

    async fn list_namespaces(
        &self,
        request: Request<v1::ListNamespacesRequest>,
    ) -> Result<Response<v1::ListNamespacesResponse>, Status> {
        let deadline = deadline_of(request.metadata());
        Ok(Response::new(self.list(&request.get_ref().after, deadline).await?))
    }

    async fn get_namespace(
        &self,
        request: Request<v1::GetNamespaceRequest>,
    ) -> Result<Response<v1::NamespaceInfo>, Status> {
        let asked = async {
            let deadline = deadline_of(request.metadata());
            let name =
                request::name(&request.get_ref().name).map_err(|it| exception_status(&it))?;
            Ok::<_, Status>(Response::new((&shown(&self.shared, &name, deadline).await?).into()))
        };
        asked.await.map_err(|it| in_call("namespace.get", it))
    }

    async fn switch_namespace(
        &self,
        request: Request<v1::SwitchNamespaceRequest>,
    ) -> Result<Response<v1::NamespaceInfo>, Status> {
        let asked = async {
            let (admin, deadline) = self.shared.admitted(request.metadata())?;
            let request::Switch { name, off } =
                request::switch(request.into_inner()).map_err(|it| exception_status(&it))?;
            let parameters = json!({"name": name.as_str(), "off": off});
            let by = (admin, deadline);
            let switched =
                configure_shown(&self.shared, "namespace.switch", &name, &parameters, by);
            let switched = switched.await?;
            Ok::<_, Status>(Response::new(
                (&state_of(&self.shared, &name, switched, deadline).await?).into(),
            ))
        };
        asked.await.map_err(|it| in_call("namespace.switch", it))
    }

    async fn set_namespace(
        &self,
        request: Request<v1::SetNamespaceRequest>,
    ) -> Result<Response<v1::NamespaceInfo>, Status> {
        let asked = async {
            let (admin, deadline) = self.shared.admitted(request.metadata())?;
            let set = request::set(request.into_inner()).map_err(|it| exception_status(&it))?;
            let (name, parameters) = (&set.name, setting(&set));
            let changed = configure_shown(
                &self.shared,
                "namespace.set",
                name,
                &parameters,
                (admin, deadline),
            )
            .await?;
            Ok::<_, Status>(Response::new(
                (&state_of(&self.shared, name, changed, deadline).await?).into(),
            ))
        };
        asked.await.map_err(|it| in_call("namespace.set", it))
    }

    async fn delete_namespace(
        &self,
        request: Request<v1::DeleteNamespaceRequest>,
    ) -> Result<Response<Deleting>, Status> {
        let asked = async {
            let admin = self.check_admin(request.metadata())?;
            let name =
                request::name(&request.get_ref().name).map_err(|it| exception_status(&it))?;
            let (out, stream) = mpsc::channel(STREAM_MESSAGES_MAX);
            if check_deletable(&self.shared, &name).await? {
                tokio::spawn(delete(self.shared.clone(), name, admin, out));
            } else {
                let done = v1::DeleteNamespaceResponse { deleted: 0, done: true };
                out.send(Ok(done)).await.expect("it has room, and its reader is here");
            }
            Ok::<_, Status>(Response::new(ReceiverStream::new(stream)))
        };
        asked.await.map_err(|it| in_call("namespace.remove", it))
    }

    async fn export_namespace(
        &self,
        request: Request<v1::ExportNamespaceRequest>,
    ) -> Result<Response<Exporting>, Status> {
        let asked = async {
            self.check_admin(request.metadata())?;
            let name =
                request::name(&request.get_ref().name).map_err(|it| exception_status(&it))?;
            let state = shown(&self.shared, &name, Instant::now() + STEP).await?;
            let (out, stream) = mpsc::channel(STREAM_MESSAGES_MAX);
            tokio::spawn(export::write(self.shared.clone(), state, out));
            Ok::<_, Status>(Response::new(ReceiverStream::new(stream)))
        };
        asked.await.map_err(|it| in_call("namespace.export", it))
    }

    async fn import_namespace(
        &self,
        request: Request<Streaming<v1::ImportNamespaceRequest>>,
    ) -> Result<Response<v1::ImportNamespaceResponse>, Status> {
        let asked = async {
            let admin = self.check_admin(request.metadata())?;
            let deadline = deadline_of(request.metadata());
            let response =
                export::read(&self.shared, request.into_inner(), admin, deadline).await?;
            Ok::<_, Status>(Response::new(response))
        };
        asked.await.map_err(|it| in_call("namespace.import", it))
    }
}
