//! Documents as managers keep them: the document itself, and what decisions need to know of it.
//!
//! ```text
//!  decision ── record ──▶ Doc::session_after ──▶ Document ──▶ log, copies, disks, caches
//!                                                    │
//!  decision ◀─ record ─── Doc::session ◀─────────────┘   decoded once, when somebody asks
//! ```
//! Documents of other classes than sessions and orders of pools are kept as they are. A session that another
//! manager owns is kept in the bytes that came: copies are written to disk, sent on and counted, and
//! hardly ever read.

mod life;
mod number;
mod orders;
mod output;
mod pool;
mod session;
mod session_fields;

use rota_docstore::{Attachment, Digest, DocName, Document, Glance, Schema};
use rota_lifecycle::Managed;
use rota_model::items::{
    ORDERS_CLASS, Orders, REQUEST_CLASS, SESSION_CLASS, SessionNumbers, StableNumber, Standing,
};
use rota_model::{
    BootId, ClassName, FieldError, Lifetime, Namespace, NodeId, Placement, PoolName, Reason,
    RequestEntry, SessionKey, SessionRecord, SessionState, SlotId, Stamp,
};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock, OnceLock};
use xxhash_rust::xxh3::xxh3_64;

pub use life::{ManagedItem, life_name, life_session, read_life, with_lives};
pub use number::{number_name, read_number, read_session_numbers, session_numbers_name};
pub use orders::orders_name;
pub use output::{
    KeptOutput, OUTPUT_BYTES_MAX, OUTPUT_CLASS, OUTPUT_KEPT_MS_MAX, OUTPUT_LIVES_MAX,
    OUTPUT_TEXT_BYTES_MAX, OutputEnd, is_output_over, kept_outputs, output_name, with_outputs,
};
pub use pool::{Texts, pool_name, read_pool};
pub use session::{request_name, session_name};
pub use session_fields::{
    ATTRIBUTE, SESSION_FIELDS, SessionValues, session_fields, with_session_fields,
};

/// The classes that managers themselves write.
static SCHEMA: LazyLock<Arc<Schema>> =
    LazyLock::new(|| Arc::new(with_lives(Schema::new().with_sessions())));

/// The space for configuration.
static CONFIGURATION: LazyLock<Namespace> =
    LazyLock::new(|| rota_docstore::Spaces::default().configuration().clone());

/// Name of a document: its slot, then which. Made by [`DocKey::new`]. Orders by slot; inside a slot
/// the order means nothing, but it is the same at every manager.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DocKey {
    /// The slot; every key on disk and in memory starts with it.
    pub slot: SlotId,
    /// A hash of the name, before the name: names lie elsewhere in memory, and a map of many
    /// documents finds one without a look at those of others.
    hash: u64,
    /// Which document of the slot.
    pub name: DocName,
}

impl DocKey {
    /// The key of a document.
    pub fn new(slot: SlotId, name: DocName) -> Self {
        Self { slot, hash: xxh3_64(name.as_text().as_bytes()), name }
    }

    /// About how many bytes it takes in a message.
    pub fn bytes(&self) -> usize {
        16 + self.name.as_text().len()
    }

    /// Not above any key of a slot.
    pub fn first_of(slot: SlotId) -> Self {
        // Nothing orders below a space: no name is empty or has control characters.
        static FIRST: LazyLock<DocName> = LazyLock::new(|| {
            let space = rota_model::Namespace::parse(" ").expect("one space is a name");
            DocName::new(&space, " ", " ").expect("one space is a name")
        });
        Self { slot, hash: 0, name: FIRST.clone() }
    }
}

impl fmt::Debug for DocKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in slot {}", self.name, self.slot)
    }
}

/// A document, and what decisions need to know of it. Two are equal when their documents are.
#[derive(Clone)]
pub struct Doc {
    name: DocName,
    /// ctime, version and dtime.
    stamps: [Stamp; 3],
    content: Content,
    kind: Kind,
}

#[derive(Clone)]
enum Content {
    Whole(Arc<Document>),
    Bytes {
        bytes: Arc<[u8]>,
        /// Made when somebody asks for it.
        document: OnceLock<Arc<Document>>,
    },
}

impl Content {
    fn document(&self) -> &Arc<Document> {
        match self {
            Self::Whole(document) => document,
            Self::Bytes { bytes, document } => document.get_or_init(|| {
                let document = Document::from_bytes(bytes);
                Arc::new(document.expect("another manager made these bytes of a document"))
            }),
        }
    }
}

#[derive(Clone)]
enum Kind {
    Session {
        brief: Brief,
        /// Decoded when somebody asks for it: copies hardly ever do, and it takes as much memory as
        /// the document.
        record: OnceLock<Arc<SessionRecord>>,
    },
    Orders(Box<Orders>),
    /// Beside a session.
    Request(Box<RequestEntry>),
    Plain,
}

/// What is looked at in every session when nodes come and go.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Brief {
    /// State.
    pub state: SessionState,
    /// The node and the boot where it runs or ran.
    pub at: Option<(NodeId, BootId)>,
    /// Why it ended, or is being closed.
    pub reason: Option<Reason>,
    /// It ends when nobody uses it, or after a time; or its open gave it life cycles.
    pub is_timed: bool,
}

impl Doc {
    /// A document of a disk or of another manager. One of a session or of orders must read as such; an
    /// error names the document, in the field `document`.
    pub fn new(document: Arc<Document>) -> Result<Self, FieldError> {
        let name = document.name();
        let named = |it: FieldError| FieldError::new("document", format!("{name}: {it}"));
        let kind = match name.class() {
            SESSION_CLASS => {
                let record = session::decode(&document).map_err(named)?;
                let brief = Brief::of_record(&record);
                Kind::Session { brief, record: OnceLock::new() }
            }
            ORDERS_CLASS if orders::is_orders(name) => {
                Kind::Orders(Box::new(orders::decode(&document).map_err(named)?))
            }
            REQUEST_CLASS => {
                Kind::Request(Box::new(session::decode_request(&document).map_err(named)?))
            }
            _ => Kind::Plain,
        };
        Ok(Self::whole(document, kind))
    }

    fn whole(document: Arc<Document>, kind: Kind) -> Self {
        let stamps = [document.ctime(), document.version(), document.dtime()];
        Self { name: document.name().clone(), stamps, content: Content::Whole(document), kind }
    }

    /// The document of a session after `before`, with what its record says now, at the record's
    /// version. What stays the same keeps its version.
    pub fn session_after(before: Option<&Doc>, record: impl Into<Arc<SessionRecord>>) -> Self {
        let record = record.into();
        let document = Arc::new(session::next(before, &record));
        let brief = Brief::of_record(&record);
        Self::whole(document, Kind::Session { brief, record: OnceLock::from(record) })
    }

    /// The document beside a session that remembers a request, after `before`.
    pub fn request_after(
        before: Option<&Doc>,
        session: &SessionKey,
        entry: &RequestEntry,
        version: Stamp,
    ) -> Self {
        let before = before.map(|it| it.document());
        let document = Arc::new(session::next_request(before, session, entry, version));
        Self::whole(document, Kind::Request(Box::new(entry.clone())))
    }

    /// The document of a pool's orders after `before`.
    pub fn orders_after(before: Option<&Doc>, pool: &PoolName, orders: Orders, now: Stamp) -> Self {
        let before = before.map(|it| it.document());
        let document = Arc::new(orders::next(before, pool, &orders, now));
        Self::whole(document, Kind::Orders(Box::new(orders)))
    }

    /// The document of a pool after `before`, at that version or a later one, with new texts of classes, and
    /// without others.
    pub fn texts_after(
        before: Option<&Doc>,
        pool: &PoolName,
        (new, gone): (&Texts, &[ClassName]),
        version: Stamp,
    ) -> Self {
        let before = before.map(|it| it.document());
        Self::whole(Arc::new(pool::with_texts(before, pool, (new, gone), version)), Kind::Plain)
    }

    /// The document of a stable number after `before`, at that version or a later one. `None`: its life ends,
    /// which must have begun.
    pub fn number_after(
        before: Option<&Doc>,
        name: DocName,
        entry: Option<&StableNumber>,
        version: Stamp,
    ) -> Self {
        let before = before.map(|it| it.document());
        Self::whole(Arc::new(number::next(before, name, entry, version)), Kind::Plain)
    }

    /// The document of the numbers of a node's sessions after `before`, as [`Doc::number_after`] makes one.
    pub fn session_numbers_after(
        before: Option<&Doc>,
        name: DocName,
        numbers: Option<&SessionNumbers>,
        version: Stamp,
    ) -> Self {
        let before = before.map(|it| it.document());
        Self::whole(Arc::new(number::next(before, name, numbers, version)), Kind::Plain)
    }

    /// The document of a session's life cycles after `before`, at that version or a later one.
    pub fn life_after(
        before: Option<&Doc>,
        name: DocName,
        managed: &Managed,
        version: Stamp,
    ) -> Self {
        let before = before.map(|it| it.document());
        Self::whole(Arc::new(life::next(before, name, managed, version)), Kind::Plain)
    }

    /// From [`Doc::to_bytes`], checked as by [`Doc::new`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, FieldError> {
        Self::new(Arc::new(Document::from_bytes(bytes)?))
    }

    /// From [`Doc::to_bytes`] of another manager: the caller knows that they came as they were sent.
    /// Of a session only name, stamps and standing are read now. What does not read as they must is
    /// refused as by [`Doc::new`].
    pub fn from_manager(bytes: &[u8]) -> Result<Self, FieldError> {
        let glance = Glance::at(bytes)?;
        let name = glance.name();
        if name.class() != SESSION_CLASS {
            return Self::new(Arc::new(glance.into_document()?));
        }
        let named = |it: FieldError| FieldError::new("document", format!("{name}: {it}"));
        let standing: Option<Standing> = glance.one().map_err(named)?;
        let standing = standing.ok_or_else(|| named(FieldError::new("state", "is missing")))?;
        let lifetime: Option<Lifetime> = glance.one().map_err(named)?;
        let Standing { state, reason, placement, .. } = &standing;
        let brief = Brief::of((*state, *reason), placement.as_ref(), lifetime.as_ref());
        Ok(Self {
            name: name.clone(),
            stamps: glance.stamps(),
            content: Content::Bytes { bytes: bytes.into(), document: OnceLock::new() },
            kind: Kind::Session { brief, record: OnceLock::new() },
        })
    }

    /// Its bytes, on the wire and on disk.
    pub fn to_bytes(&self) -> Vec<u8> {
        match &self.content {
            Content::Whole(document) => document.to_bytes(),
            Content::Bytes { bytes, .. } => bytes.to_vec(),
        }
    }

    /// The document.
    pub fn document(&self) -> &Arc<Document> {
        self.content.document()
    }

    /// The document, for a look. What was not made from its bytes is not kept.
    pub fn glimpse(&self) -> Arc<Document> {
        match &self.content {
            Content::Whole(document) => document.clone(),
            Content::Bytes { bytes, document } => document.get().cloned().unwrap_or_else(|| {
                let document = Document::from_bytes(bytes);
                Arc::new(document.expect("another manager made these bytes of a document"))
            }),
        }
    }

    /// Its name.
    pub fn name(&self) -> &DocName {
        &self.name
    }

    /// When its life began.
    pub fn ctime(&self) -> Stamp {
        self.stamps[0]
    }

    /// Its version.
    pub fn version(&self) -> Stamp {
        self.stamps[1]
    }

    /// The record of a session.
    pub fn session(&self) -> Option<&Arc<SessionRecord>> {
        match &self.kind {
            Kind::Session { record, .. } => Some(record.get_or_init(|| {
                let record = session::decode(self.document());
                Arc::new(record.expect("it was checked when it came, or its owner made it"))
            })),
            Kind::Orders(_) | Kind::Request(_) | Kind::Plain => None,
        }
    }

    /// The request that it remembers beside a session.
    pub fn request(&self) -> Option<&RequestEntry> {
        match &self.kind {
            Kind::Request(entry) => Some(entry),
            Kind::Session { .. } | Kind::Orders(_) | Kind::Plain => None,
        }
    }

    /// The document, if it is none of those that managers themselves write.
    pub fn of_application(&self) -> Option<&Arc<Document>> {
        match &self.kind {
            Kind::Plain => Some(self.document()),
            Kind::Session { .. } | Kind::Orders(_) | Kind::Request(_) => None,
        }
    }

    /// The same in brief.
    pub fn brief(&self) -> Option<&Brief> {
        match &self.kind {
            Kind::Session { brief, .. } => Some(brief),
            Kind::Orders(_) | Kind::Request(_) | Kind::Plain => None,
        }
    }

    /// Where a session that has not ended runs, or is to run.
    pub fn runs_on(&self) -> Option<&NodeId> {
        self.brief()?.runs_at().map(|(node, _)| node)
    }

    /// The orders of a pool.
    pub fn orders(&self) -> Option<&Orders> {
        match &self.kind {
            Kind::Orders(orders) => Some(orders),
            Kind::Session { .. } | Kind::Request(_) | Kind::Plain => None,
        }
    }

    /// Its attachments. Sessions and pools have none.
    pub fn attachments(&self) -> impl Iterator<Item = &Attachment> {
        let document = self.of_application();
        document.into_iter().flat_map(|it| it.attachments().map(|(_, it)| it))
    }

    /// Digests of their bodies.
    pub fn bodies(&self) -> impl Iterator<Item = Digest> {
        self.attachments().map(Attachment::sha256)
    }

    /// About how many bytes it takes in a message.
    pub fn bytes(&self) -> usize {
        let document = match &self.content {
            Content::Bytes { bytes, .. } => return bytes.len(),
            Content::Whole(document) => document,
        };
        let contents = usize::try_from(document.content_bytes()).unwrap_or(usize::MAX);
        let names = self.name().as_text().len();
        contents.saturating_add(64 + names + 32 * document.items().len())
    }

    /// A number that differs, nearly always, between documents that differ. `key`: its own.
    pub fn digest(&self, key: &DocKey) -> u64 {
        let mix = |hash: u64, it: &Stamp| hash.wrapping_mul(31) ^ it.as_u64();
        let stamps = self.stamps.iter().fold(0, mix).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let state = self.brief().map_or(0, |it| 1 + it.state as u64);
        key.hash ^ stamps ^ (state << 56)
    }
}

impl Brief {
    fn of(
        (state, reason): (SessionState, Option<Reason>),
        placement: Option<&Placement>,
        lifetime: Option<&Lifetime>,
    ) -> Self {
        let at = placement.map(|it| (it.node.clone(), it.boot));
        let is_timed =
            lifetime.is_some_and(|it| it.idle_ms.or(it.max_life_ms).is_some() || it.is_managed);
        Self { state, at, reason, is_timed }
    }

    fn of_record(record: &SessionRecord) -> Self {
        let standing = (record.state, record.reason);
        Self::of(standing, record.placement.as_ref(), record.lifetime.as_deref())
    }

    /// Where a session that has not ended runs, or is to run.
    pub fn runs_at(&self) -> Option<&(NodeId, BootId)> {
        self.at.as_ref().filter(|_| !self.state.is_ended())
    }
}

impl PartialEq for Doc {
    fn eq(&self, other: &Self) -> bool {
        if (&self.name, self.stamps) != (&other.name, other.stamps) {
            return false;
        }
        match (&self.content, &other.content) {
            // The same document always has the same bytes.
            (Content::Bytes { bytes: one, .. }, Content::Bytes { bytes: two, .. }) => one == two,
            // Of `Arc`s that are the same, contents are not looked at.
            (one, two) => one.document() == two.document(),
        }
    }
}

impl Eq for Doc {}

impl Hash for Doc {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.document().hash(state);
    }
}

impl fmt::Debug for Doc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let it = &**self.document();
        write!(f, "{} at {} of life {}", it.name(), it.version(), it.ctime())?;
        let items = it.items().iter().map(|it| (it.name(), (it.version(), it.content())));
        f.debug_map().entries(items).finish()
    }
}

/// The session that a document of class `session` or `request` is about.
pub fn session_of(name: &DocName) -> Result<SessionKey, FieldError> {
    session::key(name)
}
