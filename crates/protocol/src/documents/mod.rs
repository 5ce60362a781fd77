//! Documents as managers keep them: the document itself, and what decisions need to know of it.
//!
//! ```text
//!  decision ── record ──▶ Doc::session_after ──▶ Document ──▶ log, copies, disks, caches
//!                                                    │
//!  decision ◀─ record ─── Doc::session ◀─────────────┘   decoded once, when somebody asks
//! ```
//! Documents of other classes than sessions and pools are kept as they are.

mod pool;
mod session;

use rota_docstore::{Attachment, Digest, DocName, Document, Schema};
use rota_model::items::{Orders, POOL_CLASS, SESSION_CLASS};
use rota_model::{BootId, FieldError, NodeId, PoolName, SessionKey, SessionRecord, SessionState};
use rota_model::{SlotId, Stamp};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock, OnceLock};

pub use pool::pool_name;
pub use session::session_name;

/// The classes that managers themselves write.
static SCHEMA: LazyLock<Arc<Schema>> = LazyLock::new(|| Arc::new(Schema::new().with_sessions()));

/// Name of a document: its slot, then which.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DocKey {
    /// The slot; every key on disk and in memory starts with it.
    pub slot: SlotId,
    /// Which document of the slot.
    pub name: DocName,
}

impl DocKey {
    /// About how many bytes it takes in a message.
    pub fn bytes(&self) -> usize {
        16 + self.name.as_text().len()
    }

    /// Not above any key of a slot.
    pub(crate) fn first_of(slot: SlotId) -> Self {
        // Nothing orders below a space: no name is empty or has control characters.
        static FIRST: LazyLock<DocName> = LazyLock::new(|| {
            let space = rota_model::Namespace::parse(" ").expect("one space is a name");
            DocName::new(&space, " ", " ").expect("one space is a name")
        });
        Self { slot, name: FIRST.clone() }
    }
}

/// A document, and what decisions need to know of it. Two are equal when their documents are.
#[derive(Clone)]
pub struct Doc {
    document: Arc<Document>,
    kind: Kind,
}

#[derive(Clone)]
enum Kind {
    Session {
        brief: Brief,
        /// Decoded when somebody asks for it: copies hardly ever do, and it takes as much memory as
        /// the document.
        record: OnceLock<Arc<SessionRecord>>,
    },
    Pool(Box<Orders>),
    Plain,
}

/// What is looked at in every session when nodes come and go.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Brief {
    /// State.
    pub state: SessionState,
    /// The node and the boot where it runs or ran.
    pub at: Option<(NodeId, BootId)>,
}

impl Doc {
    /// A document of a disk or of another manager. One of a session or pool must read as such; an
    /// error names the document, in the field `document`.
    pub fn new(document: Arc<Document>) -> Result<Self, FieldError> {
        let name = document.name();
        let named = |it: FieldError| FieldError::new("document", format!("{name}: {it}"));
        let kind = match name.class() {
            SESSION_CLASS => {
                let brief = Brief::of(&session::decode(&document).map_err(named)?);
                Kind::Session { brief, record: OnceLock::new() }
            }
            POOL_CLASS if pool::is_pool(name) => {
                Kind::Pool(Box::new(pool::decode(&document).map_err(named)?))
            }
            _ => Kind::Plain,
        };
        Ok(Self { document, kind })
    }

    /// The document of a session after `before`, with what its record says now, at the record's
    /// version. What stays the same keeps its version.
    pub fn session_after(before: Option<&Doc>, record: impl Into<Arc<SessionRecord>>) -> Self {
        let record = record.into();
        let document = Arc::new(session::next(before, &record));
        let brief = Brief::of(&record);
        Self { document, kind: Kind::Session { brief, record: OnceLock::from(record) } }
    }

    /// The document of a pool after `before`, with its orders.
    pub fn pool_after(before: Option<&Doc>, pool: &PoolName, orders: Orders, now: Stamp) -> Self {
        let before = before.map(|it| &it.document);
        let document = Arc::new(pool::next(before, pool, &orders, now));
        Self { document, kind: Kind::Pool(Box::new(orders)) }
    }

    /// From [`Doc::to_bytes`], checked as by [`Doc::new`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, FieldError> {
        Self::new(Arc::new(Document::from_bytes(bytes)?))
    }

    /// Its bytes, on the wire and on disk.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.document.to_bytes()
    }

    /// The document.
    pub fn document(&self) -> &Arc<Document> {
        &self.document
    }

    /// Its name.
    pub fn name(&self) -> &DocName {
        self.document.name()
    }

    /// The record of a session.
    pub fn session(&self) -> Option<&Arc<SessionRecord>> {
        match &self.kind {
            Kind::Session { record, .. } => Some(record.get_or_init(|| {
                let record = session::decode(&self.document);
                Arc::new(record.expect("it was decoded when it came"))
            })),
            Kind::Pool(_) | Kind::Plain => None,
        }
    }

    /// The same in brief.
    pub fn brief(&self) -> Option<&Brief> {
        match &self.kind {
            Kind::Session { brief, .. } => Some(brief),
            Kind::Pool(_) | Kind::Plain => None,
        }
    }

    /// The orders of a pool.
    pub fn orders(&self) -> Option<&Orders> {
        match &self.kind {
            Kind::Pool(orders) => Some(orders),
            Kind::Session { .. } | Kind::Plain => None,
        }
    }

    /// Its attachments. Sessions and pools have none.
    pub fn attachments(&self) -> impl Iterator<Item = &Attachment> {
        let document = match &self.kind {
            Kind::Session { .. } | Kind::Pool(_) => None,
            Kind::Plain => Some(&*self.document),
        };
        document.into_iter().flat_map(|it| it.attachments().map(|(_, it)| it))
    }

    /// Digests of their bodies.
    pub fn bodies(&self) -> impl Iterator<Item = Digest> {
        self.attachments().map(Attachment::sha256)
    }

    /// About how many bytes it takes in a message.
    pub fn bytes(&self) -> usize {
        let contents = usize::try_from(self.document.volumes().v1).unwrap_or(usize::MAX);
        let names = self.name().as_text().len();
        contents.saturating_add(64 + names + 32 * self.document.items().len())
    }

    /// A number that differs, nearly always, between documents that differ.
    pub(crate) fn digest(&self) -> u64 {
        let name = fnv(self.name().as_text().as_bytes());
        let stamps = [self.document.version(), self.document.ctime(), self.document.dtime()];
        let mix = |hash: u64, it: &Stamp| hash.wrapping_mul(31) ^ it.as_u64();
        let stamps = stamps.iter().fold(0, mix).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let state = self.brief().map_or(0, |it| 1 + it.state as u64);
        name ^ stamps ^ (state << 56)
    }
}

fn fnv(bytes: &[u8]) -> u64 {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

impl Brief {
    fn of(record: &SessionRecord) -> Self {
        let at = record.placement.as_ref().map(|it| (it.node.clone(), it.boot));
        Self { state: record.state, at }
    }
}

impl PartialEq for Doc {
    fn eq(&self, other: &Self) -> bool {
        // Of `Arc`s that are the same, contents are not looked at.
        self.document == other.document
    }
}

impl Eq for Doc {}

impl Hash for Doc {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.document.hash(state);
    }
}

impl fmt::Debug for Doc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let it = &*self.document;
        write!(f, "{} at {} of life {}", it.name(), it.version(), it.ctime())?;
        let items = it.items().iter().map(|it| (it.name(), (it.version(), it.content())));
        f.debug_map().entries(items).finish()
    }
}

/// The key of a session's document.
pub fn session_of(name: &DocName) -> Result<SessionKey, FieldError> {
    session::key(name)
}
