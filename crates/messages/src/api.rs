//! Requests to the owner of a slot, and their answers: of clients, and of other managers on behalf
//! of theirs.

pub use crate::kinds::OpKind;
use crate::lives::{LivesAnswer, LivesOp};
pub use crate::polls::{
    CountedUsage, DocumentChange, DocumentEvent, FollowOp, ItemFilter, Poll, WatchOp,
    WatchedDocuments,
};
use crate::search::{Found, SearchOp};
use crate::tasks::{TasksOp, TasksPage};
use rota_docstore::{
    Caller, DocName, Document, Exception, Item, Request, SyncRequest, Update, Usage, Volumes,
};
use rota_model::items::SessionNumber;
use rota_model::node_msg::ReportItem;
use rota_model::{
    CloseOp, GetOp, KeepAliveOp, ListOp, MendOp, Mended, Namespace, NodeId, NumbersOp, OpenOp,
    Outcome, Page, PoolName, PullOp, Pulled, Refusal, RequestId, SessionKey, SessionView, SlotId,
    Stamp,
};
use std::sync::Arc;

/// Run an operation.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct OperateOp {
    /// What to run.
    pub request: Arc<Request>,
    /// Where: the id of a document of its namespace that shares their slot.
    pub docid: String,
}

/// What clients ask about documents that is no operation: the name by which checkers know it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Service {
    /// Updates of copies.
    Sync,
    /// A list.
    List,
    /// A document with its attachments.
    Export,
    /// The body of an attachment is to be stored.
    PutBody,
    /// The body of an attachment is wanted.
    GetBody,
    /// A search.
    Search,
    /// Changes of documents.
    Watch,
}

impl Service {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Sync,
        Self::List,
        Self::Export,
        Self::PutBody,
        Self::GetBody,
        Self::Search,
        Self::Watch,
    ];

    /// Its name; no operation of a manager has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sync => "document.sync",
            Self::List => "document.list",
            Self::Export => "document.export",
            Self::PutBody => "body.put",
            Self::GetBody => "body.get",
            Self::Search => "document.search",
            Self::Watch => "document.watch",
        }
    }
}

/// A client that asks something that is no operation. It is checked like those who run operations.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Reader {
    /// The namespace that reads.
    pub space: Namespace,
    /// What is asked for.
    pub service: Service,
    /// Who asks.
    pub caller: Caller,
}

impl Reader {
    /// Nobody in particular, for updates of copies.
    pub fn of(space: Namespace) -> Self {
        Self { space, service: Service::Sync, caller: Caller::default() }
    }
}

/// Bring copies of documents of one partition up to date.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SyncOp {
    /// Who reads; `None`: an operator, or a manager, who may read all.
    pub reader: Option<Arc<Reader>>,
    /// A slot of the partition.
    pub slot: SlotId,
    /// Which documents, and what is held of each.
    pub syncs: Vec<SyncRequest>,
    /// Accept an answer that was not confirmed with the other copies.
    pub stale_ok: bool,
}

/// Where a list of documents goes on: slots in order, and the documents of each by name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DocumentCursor {
    /// The slot.
    pub slot: SlotId,
    /// After this document of the slot; `None`: from its first one on.
    pub after: Option<DocName>,
}

/// The beginning of a list.
impl Default for DocumentCursor {
    fn default() -> Self {
        Self { slot: SlotId(0), after: None }
    }
}

/// A page of the documents of the partition that holds `from.slot`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PageOp {
    /// Where to start.
    pub from: DocumentCursor,
    /// Most documents in the answer.
    pub limit: u32,
    /// Of this namespace.
    pub space: Namespace,
    /// Of this class.
    pub class: Option<String>,
    /// An operator asks, who may also see a namespace that is switched off.
    pub by_operator: bool,
}

/// Delete documents of a namespace, in the partition that holds `from.slot`. Sessions and pools
/// stay.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ClearOp {
    /// Where to start.
    pub from: DocumentCursor,
    /// The namespace.
    pub space: Namespace,
}

/// Take over a document of an export.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ImportOp {
    /// The document.
    pub document: Arc<Document>,
}

/// Write items that were copied from another document, where the document here holds them in an older state.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CopyOp {
    /// The document that holds copies.
    pub name: DocName,
    /// The items: the version is that of the operation that made the content.
    pub items: Arc<Vec<Item>>,
}

/// A request to the owner of a slot.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    /// Open.
    Open(OpenOp),
    /// Close.
    Close(CloseOp),
    /// Get.
    Get(GetOp),
    /// A client uses a session.
    KeepAlive(KeepAliveOp),
    /// One page of one partition.
    List(ListOp),
    /// One long poll of one partition.
    Pull(PullOp),
    /// A node's report about one session; acknowledged when committed.
    Report(ReportItem),
    /// A look at what a node has of a session.
    Mend(MendOp),
    /// About the stable numbers of a node's sessions.
    Numbers(NumbersOp),
    /// About the tasks of one partition.
    Tasks(TasksOp),
    /// A search of one partition.
    Search(SearchOp),
    /// About the life of a session.
    Lives(LivesOp),
    /// Anything with documents of applications.
    Documents(DocumentOp),
}

/// What can be asked about documents of applications.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum DocumentOp {
    /// An operation.
    Operate(OperateOp),
    /// Updates of copies.
    Sync(SyncOp),
    /// One page of one partition.
    Page(PageOp),
    /// An end to the documents of a namespace in one partition.
    Clear(ClearOp),
    /// A document of an export.
    Import(ImportOp),
    /// Items of another document.
    Copy(CopyOp),
    /// One long poll of the descriptions of namespaces.
    Follow(FollowOp),
    /// One long poll of a watch.
    Watch(WatchOp),
}

impl DocumentOp {
    /// Whether it writes.
    pub fn changes(&self) -> bool {
        match self {
            DocumentOp::Operate(_)
            | DocumentOp::Clear(_)
            | DocumentOp::Import(_)
            | DocumentOp::Copy(_) => true,
            DocumentOp::Sync(_)
            | DocumentOp::Page(_)
            | DocumentOp::Follow(_)
            | DocumentOp::Watch(_) => false,
        }
    }
}

/// What a request is about.
#[derive(Clone, Copy, Debug)]
pub enum Place<'a> {
    /// A session.
    Session(&'a SessionKey),
    /// A slot, at most the last one of the ring.
    Slot(SlotId),
    /// The numbers of the sessions of a node, which is in a pool.
    Node(&'a PoolName, &'a NodeId),
    /// Documents.
    Documents(&'a DocumentOp),
}

/// What an owner needs for a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Needs {
    /// It may append something.
    pub writes: bool,
    /// The other copies must confirm it, by a commit or a round.
    pub copies: bool,
}

impl Op {
    /// Its kind.
    pub fn kind(&self) -> OpKind {
        match self {
            Op::Open(_) => OpKind::Open,
            Op::Close(_) => OpKind::Close,
            Op::Get(_) => OpKind::Get,
            Op::KeepAlive(_) => OpKind::KeepAlive,
            Op::List(_) => OpKind::List,
            Op::Pull(_) => OpKind::Pull,
            Op::Report(_) => OpKind::Report,
            Op::Mend(_) => OpKind::Mend,
            Op::Numbers(_) => OpKind::Numbers,
            Op::Tasks(_) => OpKind::Tasks,
            Op::Search(_) => OpKind::Search,
            Op::Lives(_) => OpKind::Lives,
            Op::Documents(DocumentOp::Watch(_)) => OpKind::Pull,
            Op::Documents(_) => OpKind::Documents,
        }
    }

    /// What it is about.
    pub fn place(&self) -> Place<'_> {
        match self {
            Op::Open(open) => Place::Session(&open.key),
            Op::Close(close) => Place::Session(&close.key),
            Op::Get(get) => Place::Session(&get.key),
            Op::KeepAlive(keep) => Place::Session(&keep.key),
            Op::Report(report) => Place::Session(&report.key),
            Op::Mend(mend) => Place::Session(&mend.key),
            Op::Numbers(op) => Place::Node(&op.pool, &op.node),
            Op::List(list) => Place::Slot(list.from.slot),
            Op::Pull(pull) => Place::Slot(pull.slot),
            Op::Tasks(op) => Place::Slot(op.from.slot),
            Op::Search(op) => Place::Slot(op.slot),
            Op::Lives(op) => Place::Session(op.key()),
            Op::Documents(op) => Place::Documents(op),
        }
    }

    /// The name by which a repetition is known.
    pub fn request_id(&self) -> Option<&RequestId> {
        match self {
            Op::Open(open) => Some(&open.request),
            Op::Close(close) => Some(&close.request),
            Op::Get(_)
            | Op::KeepAlive(_)
            | Op::List(_)
            | Op::Pull(_)
            | Op::Report(_)
            | Op::Mend(_)
            | Op::Numbers(_)
            | Op::Tasks(_)
            | Op::Search(_)
            | Op::Lives(_)
            | Op::Documents(_) => None,
        }
    }

    /// What its owner needs for it.
    pub fn needs(&self) -> Needs {
        let (writes, copies) = match self {
            Op::Open(_) | Op::Close(_) | Op::Report(_) => (true, true),
            Op::Mend(mend) => (!mend.dry_run, true),
            Op::Numbers(op) => (op.there.is_some(), op.there.is_some()),
            Op::Get(get) => (false, !get.stale_ok),
            Op::Tasks(_) | Op::Search(_) | Op::Lives(LivesOp::Show(_)) => (false, true),
            Op::Lives(LivesOp::Update(_) | LivesOp::Fire(_)) => (true, true),
            Op::KeepAlive(_) => (false, true),
            Op::List(list) => (false, !list.stale_ok),
            Op::Pull(_) => (false, false),
            Op::Documents(op) => match op {
                DocumentOp::Operate(_)
                | DocumentOp::Clear(_)
                | DocumentOp::Import(_)
                | DocumentOp::Copy(_) => (true, true),
                DocumentOp::Sync(sync) => (false, !sync.stale_ok),
                DocumentOp::Page(_) => (false, true),
                DocumentOp::Follow(_) | DocumentOp::Watch(_) => (false, false),
            },
        };
        Needs { writes, copies }
    }

    /// Whether a client asks for a change, and so must hear whether it may have happened. Reports
    /// are repeated by nodes until they are acknowledged, whatever they were told.
    pub fn changes(&self) -> bool {
        match self {
            Op::Open(_) | Op::Close(_) => true,
            Op::Get(_)
            | Op::KeepAlive(_)
            | Op::List(_)
            | Op::Pull(_)
            | Op::Report(_)
            | Op::Numbers(_)
            | Op::Tasks(_)
            | Op::Search(_)
            | Op::Lives(LivesOp::Show(_) | LivesOp::Fire(_)) => false,
            Op::Lives(LivesOp::Update(_)) => true,
            Op::Mend(mend) => !mend.dry_run,
            Op::Documents(op) => op.changes(),
        }
    }

    /// Whether it must not be carried out twice, and nothing in it makes a repetition known: an
    /// operation without a time of its caller's, or of a caller without a name.
    pub fn is_once(&self) -> bool {
        match self {
            Op::Documents(DocumentOp::Operate(operate)) => !operate.request.is_repeatable(),
            Op::Documents(_)
            | Op::Open(_)
            | Op::Close(_)
            | Op::Get(_)
            | Op::KeepAlive(_)
            | Op::List(_)
            | Op::Pull(_)
            | Op::Report(_)
            | Op::Mend(_)
            | Op::Numbers(_)
            | Op::Tasks(_)
            | Op::Search(_)
            | Op::Lives(_) => false,
        }
    }

    /// Names, deadlines and the tables in which a request stands, in bytes.
    const AROUND: usize = 512;

    /// Whether it holds more than every request does. Those that do not are bounded by their number.
    pub fn is_large(&self) -> bool {
        self.bytes() > Self::AROUND
    }

    /// About how many bytes it holds while it waits.
    pub fn bytes(&self) -> usize {
        /// A document that is named.
        const NAMED: usize = 256;
        Self::AROUND
            + match self {
                Op::Open(open) => {
                    let attributes = open.spec.attributes.iter();
                    let life = open.spec.life.as_ref().map_or(0, |it| it.bytes());
                    attributes.map(|(name, value)| name.len() + value.len()).sum::<usize>() + life
                }
                Op::Close(_)
                | Op::Get(_)
                | Op::KeepAlive(_)
                | Op::List(_)
                | Op::Pull(_)
                | Op::Report(_)
                | Op::Tasks(_)
                | Op::Mend(_) => 0,
                Op::Search(op) => op.query.filter.bytes(),
                Op::Lives(op) => op.bytes(),
                Op::Numbers(op) => {
                    let sessions = op.there.iter().flat_map(|it| &it.sessions);
                    sessions.map(|it| it.namespace.as_str().len() + it.id.as_str().len()).sum()
                }
                Op::Documents(op) => match op {
                    DocumentOp::Operate(operate) => {
                        let parameters = operate.request.parameters.as_ref();
                        parameters.map_or(0, |it| it.as_str().len())
                            + NAMED * operate.request.syncs.len()
                    }
                    DocumentOp::Sync(sync) => NAMED * sync.syncs.len(),
                    DocumentOp::Import(import) => {
                        usize::try_from(import.document.content_bytes()).unwrap_or(usize::MAX / 2)
                    }
                    DocumentOp::Copy(copy) => {
                        let contents = copy.items.iter().filter_map(|it| it.content());
                        let bytes: u64 = contents.map(|it| it.volume()).sum();
                        usize::try_from(bytes).unwrap_or(usize::MAX / 2)
                    }
                    DocumentOp::Watch(watch) => watch.of.bytes(),
                    DocumentOp::Page(_) | DocumentOp::Clear(_) | DocumentOp::Follow(_) => 0,
                },
            }
    }

    /// The namespace that it works in, if its callers must not when that is switched off. Nodes and
    /// operators go on.
    pub fn space(&self) -> Option<&Namespace> {
        match self {
            Op::Open(open) => Some(&open.key.namespace),
            Op::Close(close) => Some(&close.key.namespace).filter(|_| !close.by_operator),
            Op::Get(get) => Some(&get.key.namespace),
            Op::KeepAlive(keep) => Some(&keep.key.namespace),
            Op::List(list) => list.filter.namespace.as_ref(),
            Op::Pull(pull) => {
                let key = pull.filter.key.as_ref().map(|it| &it.namespace);
                key.or(pull.filter.namespace.as_ref())
            }
            Op::Report(_) | Op::Mend(_) | Op::Numbers(_) | Op::Tasks(_) => None,
            Op::Search(op) => op.clients_space(),
            Op::Lives(LivesOp::Fire(_)) => None,
            Op::Lives(op) => Some(&op.key().namespace),
            Op::Documents(op) => match op {
                DocumentOp::Operate(operate) => Some(&operate.request.space),
                DocumentOp::Sync(sync) => sync.reader.as_ref().map(|it| &it.space),
                DocumentOp::Page(page) => Some(&page.space).filter(|_| !page.by_operator),
                DocumentOp::Watch(watch) => Some(&watch.reader.space),
                DocumentOp::Clear(_)
                | DocumentOp::Import(_)
                | DocumentOp::Copy(_)
                | DocumentOp::Follow(_) => None,
            },
        }
    }
}

/// A document without its items.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct DocumentHead {
    /// Its name.
    pub name: DocName,
    /// When its life began.
    pub ctime: Stamp,
    /// Its version.
    pub version: Stamp,
    /// How much it fills.
    pub volumes: Volumes,
}

impl DocumentHead {
    /// Of a document.
    pub fn of(document: &Document) -> Self {
        Self {
            name: document.name().clone(),
            ctime: document.ctime(),
            version: document.version(),
            volumes: document.volumes(),
        }
    }
}

/// The answer to a [`PageOp`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct DocumentPage {
    /// Documents that exist, in order.
    pub documents: Vec<DocumentHead>,
    /// Where to go on; `None` when nothing is left up to slot m-1.
    pub next: Option<DocumentCursor>,
    /// What the whole partition holds of the namespace, sessions and pools aside.
    pub usage: Usage,
}

/// The answer to an [`Op`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Answer {
    /// To an open.
    Opened {
        /// CREATED or EXISTED.
        outcome: Outcome,
        /// The session.
        session: SessionView,
        /// The answer to a repetition: the life in it has ended since, or is being closed.
        ended_since: bool,
    },
    /// To a close. `finished` is false when the node has not said yet that it ended, since it is silent or the
    /// program uses its grace: the owner keeps driving.
    Closed {
        /// Whether the session is CLOSED now.
        finished: bool,
        /// The session.
        session: SessionView,
    },
    /// To a get.
    Got {
        /// The session.
        session: SessionView,
        /// True when the answer was not confirmed.
        stale: bool,
    },
    /// To a keep-alive.
    KeptAlive {
        /// The session, which lives.
        session: SessionView,
        /// For how long nobody had said so, in milliseconds; `None`: nobody has since this owner serves, or
        /// since that life began.
        idle_ms: Option<u64>,
    },
    /// To a list.
    Listed(Page),
    /// To a pull.
    Pulled(Pulled),
    /// To a report.
    Reported,
    /// To a look at what a node has.
    Mended(Mended),
    /// To a question for the numbers of a node's sessions, in their order.
    Numbers(Vec<SessionNumber>),
    /// To a question about tasks.
    Tasks(TasksPage),
    /// To a search.
    Found(Result<Found, Exception>),
    /// About the life of a session.
    Lives(LivesAnswer),
    /// About documents.
    Documents(DocumentAnswer),
}

/// The answer to a [`DocumentOp`]. An exception is as final as an answer.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum DocumentAnswer {
    /// To an operation.
    Operated(Result<rota_docstore::Answer, Exception>),
    /// To a sync: updates in the order of the request. When they are too many bytes for one
    /// message, the first ones, and at least one.
    Synced(Result<Vec<(DocName, Update)>, Exception>),
    /// To a page.
    Page(DocumentPage),
    /// To a clear.
    Cleared {
        /// So many documents ended.
        deleted: u64,
        /// Where to go on; `None` when nothing is left up to slot m-1.
        next: Option<DocumentCursor>,
    },
    /// To an import or a copy: whether it was taken over. It is not when something as new is here, or a document holds no
    /// such copy.
    Imported(Result<bool, Exception>),
    /// To a follow.
    Followed {
        /// Documents that describe namespaces, and ends of their lives, by version.
        documents: Vec<Arc<Document>>,
        /// What all owners said that they hold, the asker too, if it said anything.
        held: Option<CountedUsage>,
    },
    /// To a poll of a watch.
    Watched(Result<Pulled<DocumentEvent, DocumentCursor>, Exception>),
}

/// What a request comes to.
pub type OpResult = Result<Answer, Refusal>;
