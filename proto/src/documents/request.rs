//! Requests of clients, checked. Every mistake of a request is listed in one A-INVALID exception
//! of phase 0.

use super::cursor::{page_token, parse_page_token};
use super::document::{digest, digest_bytes};
use super::exception::invalid;
pub use super::namespace_request::{Create, Set, Switch, create, name, set, switch};
use super::{DocumentCursor, PIECE_BYTES_MAX};
use crate::mistakes::Mistakes;
use crate::v1;
use bytes::Bytes;
use rota_docstore::document::ITEMS_MAX;
use rota_docstore::request::SYNCS_MAX;
use rota_docstore::{
    Caller, Credentials, Digest, DocName, Exception, Held, JsonText, Phase, Request, Stamp,
    SyncRequest, codes,
};
use rota_model::{FieldError, Namespace, RequestId, SlotId};
use rota_ring::slot_of_document;
use std::collections::BTreeSet;

/// Documents in a page of a list whose request does not say.
pub const PAGE_SIZE_DEFAULT: u32 = 100;
/// Most documents in a page of a list.
pub const PAGE_SIZE_MAX: u32 = 1_000;
/// Most bytes of an operation's parameters.
pub const PARAMETERS_BYTES_MAX: usize = 1024 * 1024;

/// Most bodies that the receiver of an export may say it has: as many as a document has items.
pub const BODIES_HELD_MAX: usize = ITEMS_MAX;

/// An operation to run, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Operate {
    /// What to run.
    pub request: Request,
    /// The id of any document that it will change, or read with tolerance 0.
    pub docid: String,
}

impl Operate {
    /// The slot whose owner runs it, on a ring of `m` slots.
    pub fn slot(&self, m: u32) -> SlotId {
        slot_of_document(&self.request.space, &self.docid, m)
    }
}

/// Copies to bring up to date.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sync {
    /// The namespace that reads.
    pub space: Namespace,
    /// Which, and what is held of each.
    pub documents: Vec<SyncRequest>,
    /// Accept what the owner did not confirm with its copies.
    pub stale_ok: bool,
    /// Who asks.
    pub caller: Caller,
}

/// One page of the documents of a namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct List {
    /// The namespace.
    pub space: Namespace,
    /// Only of this class.
    pub class: Option<String>,
    /// Most documents in the page.
    pub limit: u32,
    /// Begin here.
    pub from: DocumentCursor,
    /// Who asks.
    pub caller: Caller,
}

/// A body that is about to come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PutBody {
    /// The namespace.
    pub space: Namespace,
    /// A document that will name it.
    pub docid: String,
    /// Its size in bytes.
    pub size: u64,
    /// Its digest.
    pub sha256: Digest,
    /// Who asks.
    pub caller: Caller,
}

/// A body that is wanted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GetBody {
    /// The namespace.
    pub space: Namespace,
    /// A document that names it, or did not long ago.
    pub docid: String,
    /// Its digest.
    pub sha256: Digest,
    /// Begin at this byte.
    pub offset: u64,
    /// So many bytes; 0: all that follow.
    pub length: u64,
    /// Who asks.
    pub caller: Caller,
}

/// A document that is wanted with its attachments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExportDocument {
    /// The namespace that reads.
    pub space: Namespace,
    /// Which.
    pub name: DocName,
    /// What the receiver has of it.
    pub held: Option<Held>,
    /// Bodies that the receiver has, at most [`BODIES_HELD_MAX`].
    pub bodies: BTreeSet<Digest>,
    /// Who asks.
    pub caller: Caller,
    /// Without bodies, as [`Sync`] would tell it.
    pub items_only: bool,
    /// As in [`Sync`]; only with `items_only`.
    pub stale_ok: bool,
}

/// Who asks, of the fields that every request has for it; 0: no build is told.
macro_rules! caller {
    ($it:expr) => {
        Caller {
            build: Some($it.build).filter(|it| *it > 0),
            who: Credentials {
                account: $it.account.clone(),
                key: $it.key.clone(),
                admin: $it.admin.clone(),
            },
        }
    };
}
pub(super) use caller;

impl Mistakes {
    pub(crate) fn all<T>(self, value: Option<T>) -> Result<T, Exception> {
        self.found(value).map_err(invalid)
    }

    /// An id of a document: the rules are those of a whole name.
    pub(super) fn docid(&mut self, field: &str, docid: &str) -> Option<String> {
        let named = DocName::new(&Namespace::default_space(), "C", docid);
        self.note_in(field, named).map(|_| docid.to_owned())
    }

    pub(super) fn class(&mut self, field: &str, class: &str) -> Option<String> {
        let named = DocName::new(&Namespace::default_space(), class, "d");
        self.note_in(field, named).map(|_| class.to_owned())
    }

    fn document(&mut self, field: &str, name: Option<v1::DocumentName>) -> Option<DocName> {
        let Some(name) = name else {
            return self.note(Err(FieldError::new(field, "is missing")));
        };
        let space = match &*name.namespace {
            "" => Some(Namespace::default_space()),
            given => self.note_in(&format!("{field}.namespace"), Namespace::parse(given)),
        };
        let class = self.class(&format!("{field}.class"), &name.class);
        let docid = self.docid(&format!("{field}.docid"), &name.docid);
        let made = DocName::new(&space?, &class?, &docid?);
        Some(made.expect("its parts were checked one by one"))
    }

    fn held(&mut self, field: &str, held: v1::HeldDocument) -> Option<Held> {
        let mut stamp =
            |part: &str, number| self.note_in(&format!("{field}.{part}"), Stamp::parse(number));
        let ctime = stamp("ctime", held.ctime);
        let version = stamp("version", held.version);
        let dtime = stamp("dtime", held.dtime);
        self.note_in(&format!("{field}.dtime"), Held::new(ctime?, version?, dtime?))
    }

    fn syncs(&mut self, field: &str, syncs: Vec<v1::DocumentSync>) -> Option<Vec<SyncRequest>> {
        let mut checked = Vec::with_capacity(syncs.len());
        let wanted = syncs.len();
        for (at, sync) in syncs.into_iter().enumerate() {
            let name = self.document(&format!("{field}[{at}].name"), sync.name);
            let held = match sync.held {
                Some(held) => self.held(&format!("{field}[{at}].held"), held).map(Some),
                None => Some(None),
            };
            checked.extend(name.zip(held).map(|(name, held)| SyncRequest { name, held }));
        }
        (checked.len() == wanted).then_some(checked)
    }

    fn parameters(&mut self, text: &str) -> Option<Option<JsonText>> {
        let length = text.len();
        if length > PARAMETERS_BYTES_MAX {
            let problem = format!("are {length} bytes long; the limit is {PARAMETERS_BYTES_MAX}");
            return self.note(Err(FieldError::new("parameters", problem)));
        }
        self.given("parameters", text, JsonText::parse)
    }

    fn sha256(&mut self, bytes: &[u8]) -> Option<Digest> {
        self.note(digest(bytes))
    }
}

/// Refuses more than [`SYNCS_MAX`] documents before it looks at any of them: A-LIMIT.
fn check_count(field: &str, count: usize) -> Result<(), Exception> {
    if count > SYNCS_MAX {
        let problem = format!("are {count} documents; the limit is {SYNCS_MAX}");
        let exception = Exception::of_field(codes::LIMIT, FieldError::new(field, problem));
        return Err(exception.at(Phase::Before));
    }
    Ok(())
}

/// Checks an operation's shape; what it says is the store's to judge.
pub fn operate(request: v1::OperateRequest) -> Result<Operate, Exception> {
    check_count("syncs", request.syncs.len())?;
    let mut mistakes = Mistakes::default();
    let space = mistakes.namespace(&request.namespace);
    let parameters = mistakes.parameters(&request.parameters);
    let docid = mistakes.docid("docid", &request.docid);
    let operation_time = match request.operation_time {
        0 => Some(None),
        number => mistakes.note_in("operation_time", Stamp::parse(number)).map(Some),
    };
    let request_id = match &*request.request_id {
        "" => Some(None),
        given => mistakes.note(RequestId::parse(given)).map(Some),
    };
    let syncs = mistakes.syncs("syncs", request.syncs);
    let Caller { build, who } = caller!(request);
    let found = (|| {
        let request = Request {
            space: space?,
            operation: request.operation,
            parameters: parameters?,
            operation_time: operation_time?,
            request_id: request_id?,
            build,
            who,
            syncs: syncs?,
            task: None,
        };
        Some(Operate { request, docid: docid? })
    })();
    mistakes.all(found)
}

/// Checks a synchronisation.
pub fn sync(request: v1::SyncRequest) -> Result<Sync, Exception> {
    check_count("documents", request.documents.len())?;
    let mut mistakes = Mistakes::default();
    let space = mistakes.namespace(&request.namespace);
    let caller = caller!(request);
    let documents = mistakes.syncs("documents", request.documents);
    let stale_ok = request.stale_ok;
    let found = (|| Some(Sync { space: space?, documents: documents?, stale_ok, caller }))();
    mistakes.all(found)
}

/// Checks a list.
pub fn list(request: v1::ListDocumentsRequest) -> Result<List, Exception> {
    let mut mistakes = Mistakes::default();
    let space = mistakes.namespace(&request.namespace);
    let class = match &*request.class {
        "" => Some(None),
        given => mistakes.class("class", given).map(Some),
    };
    let limit = match request.page_size {
        0 => Some(PAGE_SIZE_DEFAULT),
        size @ 1..=PAGE_SIZE_MAX => Some(size),
        size => {
            let problem = format!("is {size}; the limit is {PAGE_SIZE_MAX}");
            mistakes.note(Err(FieldError::new("page_size", problem)))
        }
    };
    let from = match (&space, &class) {
        _ if request.page_token.is_empty() => Some(DocumentCursor::default()),
        (Some(space), Some(class)) => {
            mistakes.note(parse_page_token(&request.page_token, space, class.as_deref()))
        }
        // A token can only be judged beside the list that it continues.
        _ => None,
    };
    let caller = caller!(request);
    let found =
        (|| Some(List { space: space?, class: class?, limit: limit?, from: from?, caller }))();
    mistakes.all(found)
}

/// Checks the first message of a put.
pub fn put_body(request: Option<v1::PutBodyRequest>) -> Result<PutBody, Exception> {
    use v1::put_body_request::Part;
    let begin = match request.and_then(|it| it.part) {
        Some(Part::Begin(begin)) => begin,
        Some(Part::Bytes(_)) | None => {
            let field = FieldError::new("begin", "is missing: it must be the first message");
            return Err(invalid(vec![field]));
        }
    };
    let mut mistakes = Mistakes::default();
    let space = mistakes.namespace(&begin.namespace);
    let docid = mistakes.docid("docid", &begin.docid);
    let sha256 = mistakes.sha256(&begin.sha256);
    let (size, caller) = (begin.size, caller!(begin));
    let found =
        (|| Some(PutBody { space: space?, docid: docid?, size, sha256: sha256?, caller }))();
    mistakes.all(found)
}

/// Checks a later message of a put.
pub fn put_piece(request: v1::PutBodyRequest) -> Result<Bytes, Exception> {
    use v1::put_body_request::Part;
    let problem = match request.part {
        Some(Part::Bytes(bytes)) if bytes.len() <= PIECE_BYTES_MAX => return Ok(bytes),
        Some(Part::Bytes(bytes)) => {
            format!("are {}; the limit of one piece is {PIECE_BYTES_MAX}", bytes.len())
        }
        Some(Part::Begin(_)) | None => "are missing: they must follow the first message".to_owned(),
    };
    Err(invalid(vec![FieldError::new("bytes", problem)]))
}

/// Checks a get of a body.
pub fn get_body(request: &v1::GetBodyRequest) -> Result<GetBody, Exception> {
    let mut mistakes = Mistakes::default();
    let space = mistakes.namespace(&request.namespace);
    let docid = mistakes.docid("docid", &request.docid);
    let sha256 = mistakes.sha256(&request.sha256);
    let (offset, length, caller) = (request.offset, request.length, caller!(request));
    let found = (|| {
        let (space, docid, sha256) = (space?, docid?, sha256?);
        Some(GetBody { space, docid, sha256, offset, length, caller })
    })();
    mistakes.all(found)
}

/// Checks an export of a document.
pub fn export_document(request: v1::ExportDocumentRequest) -> Result<ExportDocument, Exception> {
    let count = request.bodies.len();
    if count > BODIES_HELD_MAX {
        let problem = format!("are {count}; the limit is {BODIES_HELD_MAX}");
        let exception = Exception::of_field(codes::LIMIT, FieldError::new("bodies", problem));
        return Err(exception.at(Phase::Before));
    }
    let mut mistakes = Mistakes::default();
    let caller = caller!(request);
    let name = mistakes.document("document", request.document);
    let held = match request.held {
        Some(held) => mistakes.held("held", held).map(Some),
        None => Some(None),
    };
    let mut bodies = BTreeSet::new();
    for (at, bytes) in request.bodies.iter().enumerate() {
        bodies.extend(mistakes.note_in(&format!("bodies[{at}]"), digest(bytes)));
    }
    let space = match (&*request.namespace, &name) {
        ("", Some(name)) => Namespace::parse(name.space()).ok(),
        (given, _) => mistakes.namespace(given),
    };
    let (items_only, stale_ok) = (request.items_only, request.stale_ok);
    if stale_ok && !items_only {
        mistakes.note::<()>(Err(FieldError::new("stale_ok", "is for items_only")));
    }
    let found = (|| {
        let (space, name, held) = (space?, name?, held?);
        Some(ExportDocument { space, name, held, bodies, caller, items_only, stale_ok })
    })();
    mistakes.all(found)
}

// The way back: what clients of this code send.

impl From<&Operate> for v1::OperateRequest {
    fn from(it: &Operate) -> Self {
        let Operate { request, docid } = it;
        Self {
            namespace: request.space.as_str().into(),
            operation: request.operation.clone(),
            parameters: request.parameters.as_ref().map_or("", JsonText::as_str).into(),
            docid: docid.clone(),
            operation_time: request.operation_time.map_or(0, Stamp::as_u64),
            request_id: request.request_id.as_ref().map_or("", |it| it.as_str()).into(),
            build: request.build.unwrap_or(0),
            account: request.who.account.clone(),
            key: request.who.key.clone(),
            admin: request.who.admin.clone(),
            syncs: request.syncs.iter().map(Into::into).collect(),
        }
    }
}

impl From<&Sync> for v1::SyncRequest {
    fn from(it: &Sync) -> Self {
        Self {
            namespace: it.space.as_str().into(),
            documents: it.documents.iter().map(Into::into).collect(),
            stale_ok: it.stale_ok,
            build: it.caller.build.unwrap_or(0),
            account: it.caller.who.account.clone(),
            key: it.caller.who.key.clone(),
            admin: it.caller.who.admin.clone(),
        }
    }
}

impl From<&List> for v1::ListDocumentsRequest {
    fn from(it: &List) -> Self {
        let token = || page_token(&it.from, &it.space, it.class.as_deref());
        let from_start = it.from == DocumentCursor::default();
        Self {
            namespace: it.space.as_str().into(),
            class: it.class.clone().unwrap_or_default(),
            page_size: it.limit,
            page_token: if from_start { String::new() } else { token() },
            build: it.caller.build.unwrap_or(0),
            account: it.caller.who.account.clone(),
            key: it.caller.who.key.clone(),
            admin: it.caller.who.admin.clone(),
        }
    }
}

impl From<&PutBody> for v1::PutBodyRequest {
    fn from(it: &PutBody) -> Self {
        let begin = v1::put_body_request::Begin {
            namespace: it.space.as_str().into(),
            docid: it.docid.clone(),
            size: it.size,
            sha256: digest_bytes(it.sha256),
            build: it.caller.build.unwrap_or(0),
            account: it.caller.who.account.clone(),
            key: it.caller.who.key.clone(),
            admin: it.caller.who.admin.clone(),
        };
        Self { part: Some(v1::put_body_request::Part::Begin(begin)) }
    }
}

impl From<&GetBody> for v1::GetBodyRequest {
    fn from(it: &GetBody) -> Self {
        Self {
            namespace: it.space.as_str().into(),
            docid: it.docid.clone(),
            sha256: digest_bytes(it.sha256),
            offset: it.offset,
            length: it.length,
            build: it.caller.build.unwrap_or(0),
            account: it.caller.who.account.clone(),
            key: it.caller.who.key.clone(),
            admin: it.caller.who.admin.clone(),
        }
    }
}

impl From<&ExportDocument> for v1::ExportDocumentRequest {
    fn from(it: &ExportDocument) -> Self {
        Self {
            namespace: it.space.as_str().into(),
            items_only: it.items_only,
            stale_ok: it.stale_ok,
            document: Some((&it.name).into()),
            held: it.held.map(Into::into),
            bodies: it.bodies.iter().map(|it| digest_bytes(*it)).collect(),
            build: it.caller.build.unwrap_or(0),
            account: it.caller.who.account.clone(),
            key: it.caller.who.key.clone(),
            admin: it.caller.who.admin.clone(),
        }
    }
}
