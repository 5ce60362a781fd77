//! A durable store of documents: the pure [`Store`](rota_docstore::Store), an engine, and the bodies
//! of attachments, behind one lock, one thread that works for many callers and one that commits.
//!
//! ```text
//!  caller ── run(Request) ──▶ lock: work, validate, take over ──▶ writer's queue   position n
//!    ▲                        (the next operation sees it at once)       │ group commit
//!    └──── Answer ◀── everything up to position n is on the disk ◀───────┘ one fdatasync for many
//!
//!  open ──▶ scan of the engine: documents, namespaces, high-water mark, lists by slot, bodies named
//! ```
//!
//! * **Nothing is told before it is durable**: no answer, no refusal, no update and no document that
//!   depends on a commit which is still on its way. All callers that waited for one commit go on
//!   together.
//! * Operations work one after the other, for a few microseconds each; the disk is never waited for
//!   under the lock. So they do not contend with each other, and validation only guards it.
//! * At most [`Setup::queue_max`] commits and 32 MiB are on their way; who comes then waits for his
//!   turn until his deadline.
//! * A body is put before the operation that names it: [`DocumentStore::put_body`], then
//!   [`DocumentEdit::attach`](rota_docstore::DocumentEdit::attach). The operation is refused when a body is not
//!   here, and bodies that are named no more go after a time of grace.
//! * A commit that fails ends the process: see [`Writer`].
//!
//! The folder holds `records/` (see `layout.rs`) and `attachments/`.

mod bodies;
mod books;
mod durable;
mod error;
mod keeper;
mod layout;
mod pending;
mod stream;
mod turns;

pub use books::PurgeStep;
pub use error::{NotClosed, OpenError, Unanswered};
pub use layout::{document_key, read_document_key};
pub use pending::Pending;
pub use stream::Stream;

use self::books::{Books, Hold, Loaded};
use self::durable::Durable;
use self::keeper::Keeper;
use self::turns::{Server, Turns};
use crate::attachments::{AttachmentSettings, Attachments, Digest};
use crate::counters::Counters;
use crate::disk::{Disk, RealDisk};
use crate::engine::{Engine, VALUE_BYTES_MAX};
use crate::folder::Label;
use crate::writer::Writer;
use crate::{Settings, open_on};
use rota_docstore::{
    Answer, Cache, Credentials, DocName, Document, Exception, Held, Namespace, Operation,
    Operations, Phase, Request, Rules, Run, SlotId, Spaces, Stamp, Store, Transaction, Update,
    codes,
};
use std::fmt;
use std::num::NonZeroUsize;
use std::ops::{ControlFlow, RangeInclusive};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Where documents of elsewhere come from, for operations that read them with a tolerance.
pub trait Source: Send + Sync {
    /// What changed since what is held. Called by the caller of an operation, outside of any lock;
    /// it must keep to a deadline of its own. An exception ends the operation's attempt, in the phase
    /// that this had reached: after X and C there is another one.
    fn update(&self, name: &DocName, held: Option<&Held>) -> Result<Update, Exception>;
}

/// How a store is set up.
#[derive(Clone)]
pub struct Setup {
    /// Classes, slots, checks, times.
    pub rules: Rules,
    /// Who the program itself is, for [`DocumentStore::change`] and [`DocumentStore::import`]: where the rules
    /// have a checker, it is asked about this account. Default: nobody.
    pub own: Credentials,
    /// Operations that callers may name.
    pub operations: Operations,
    /// Which namespace describes the others. Default: `z`; what is not described is open.
    pub spaces: Spaces,
    /// The engine.
    pub engine: Settings,
    /// The bodies of attachments.
    pub attachments: AttachmentSettings,
    /// Memory for copies of documents of elsewhere, in bytes. Default 64 MiB. Too low: they are
    /// fetched again and again; operations that read more of them than it holds are refused (A-LIMIT).
    pub cache_bytes: u64,
    /// Where documents of elsewhere come from. Default: there are none.
    pub source: Option<Arc<dyn Source>>,
    /// Commits that may be on their way to the disk. Default 1,024, four times the callers that one
    /// commit is measured with. Too low: callers wait for a place; too high: they wait in the queue
    /// instead, and longer than they are ready to.
    pub queue_max: NonZeroUsize,
    /// How long a call waits for its place, its attempts and the disk. Default 10 s.
    pub patience: Duration,
    /// Pause between two steps of the purge, which each take about a millisecond. `None`: purge by
    /// [`DocumentStore::purge`] only. Default 1 s.
    pub purge_every: Option<Duration>,
    /// Default: the system's clock.
    pub clock: Clock,
}

impl Setup {
    /// The defaults, with these rules and operations.
    pub fn new(rules: Rules, operations: Operations) -> Self {
        let system = || {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
        };
        Self {
            rules,
            own: Credentials::default(),
            operations,
            spaces: Spaces::default(),
            engine: Settings::default(),
            attachments: AttachmentSettings::default(),
            cache_bytes: 64 * 1024 * 1024,
            source: None,
            queue_max: NonZeroUsize::new(1_024).expect("1,024 is not 0"),
            patience: Duration::from_secs(10),
            purge_every: Some(Duration::from_secs(1)),
            clock: Arc::new(system),
        }
    }
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup")
            .field("rules", &self.rules)
            .field("operations", &self.operations)
            .finish_non_exhaustive()
    }
}

struct Shared {
    rules: Rules,
    own: Credentials,
    operations: Operations,
    attachments: Attachments,
    source: Option<Arc<dyn Source>>,
    queue_max: usize,
    patience: Duration,
    clock: Clock,
    durable: Arc<Durable>,
    turns: Arc<Turns>,
    // A lock, because operations come from many threads and work one after the other. It is never
    // held over the disk.
    books: Mutex<Books>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("durable", &self.durable.position()).finish_non_exhaustive()
    }
}

impl Shared {
    fn books(&self) -> Hold<'_> {
        // Code of operations runs guarded; no other code under the lock can leave it half changed.
        Hold::new(self.books.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn now_ms(&self) -> u64 {
        (self.clock)()
    }

    fn now(&self) -> Stamp {
        Stamp::from_epoch_ms(self.now_ms())
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.patience
    }

    /// The books, once another commit of so many bytes may be on its way.
    fn books_with_room(&self, bytes: usize, deadline: Instant) -> Result<Hold<'_>, Exception> {
        loop {
            let mut books = self.books();
            books.settle(self.durable.position(), &self.attachments, self.now_ms());
            let Some(position) = books.must_wait_for(bytes, self.queue_max) else {
                return Ok(books);
            };
            drop(books);
            if !self.durable.wait(position, deadline) {
                let message = "too much waits for the disk";
                return Err(Exception::new(codes::BUSY, message).at(Phase::Before));
            }
        }
    }

    fn await_disk(&self, position: u64, deadline: Instant) -> Result<(), Unanswered> {
        if self.durable.wait(position, deadline) {
            return Ok(());
        }
        Err(Unanswered::Undecided { waited: self.patience })
    }

    fn purge_step(&self) -> Result<PurgeStep, Unanswered> {
        let deadline = self.deadline();
        let mut books = self.books_with_room(VALUE_BYTES_MAX, deadline)?;
        let step = books.purge(&self.rules, self.now())?;
        drop(books);
        let collected = self.attachments.collect(self.now_ms(), BODIES_PER_STEP)?;
        Ok(PurgeStep { bodies: collected.len() as u64, ..step })
    }
}

/// Bodies that one step of a purge removes: each is one call to the file system.
const BODIES_PER_STEP: usize = 64;

/// A folder of documents, open. Any number of threads may call it.
#[derive(Debug)]
pub struct DocumentStore {
    shared: Arc<Shared>,
    keeper: Option<Keeper>,
    server: Option<Server>,
    counters: Arc<Counters>,
    missing: Vec<Digest>,
}

impl DocumentStore {
    /// Opens a folder on the real disk; makes it when it is not there. Refuses a folder of another
    /// label or format, one that is in use, and one with a record that is damaged or does not fit
    /// the classes; then nothing in it is changed.
    pub fn open(folder: &Path, label: &Label, setup: Setup) -> Result<Self, OpenError> {
        Self::open_on(Arc::new(RealDisk), folder, label, setup)
    }

    /// Like [`DocumentStore::open`], on any disk.
    pub fn open_on(
        disk: Arc<dyn Disk>,
        folder: &Path,
        label: &Label,
        setup: Setup,
    ) -> Result<Self, OpenError> {
        let records = folder.join("records");
        let mut engine = open_on(disk.clone(), &records, label, &setup.engine)?;
        let mut loaded = load(&mut *engine, &records, &setup)?;
        let (bodies, now_ms) = (folder.join("attachments"), (setup.clock)());
        loaded.store.loaded(Stamp::from_epoch_ms(now_ms));
        let attachments = Attachments::open(disk, &bodies, label, setup.attachments, now_ms)?;
        let missing = attachments.set_references(&loaded.bodies, now_ms);
        for sha256 in &missing {
            tracing::error!(%sha256, "an item names this body, which is not here or is damaged");
        }
        let cache = Cache::new(Arc::clone(&setup.rules.schema), setup.cache_bytes);
        let mut books = Books::new(loaded.store, cache, loaded.by_slot);
        let durable = Arc::new(Durable::new());
        let turns = Arc::new(Turns::new(Arc::clone(&durable)));
        let told = Arc::clone(&turns);
        let writer = Writer::spawn(engine, setup.queue_max, move |position| told.advance(position));
        let writer = writer.map_err(OpenError::Thread)?;
        let counters = writer.counters();
        books.writer = Some(writer);
        let shared = Arc::new(Shared {
            rules: setup.rules,
            own: setup.own,
            operations: setup.operations,
            attachments,
            source: setup.source,
            queue_max: setup.queue_max.get(),
            patience: setup.patience,
            clock: setup.clock,
            durable,
            turns,
            books: Mutex::new(books),
        });
        let keeper = setup.purge_every.map(|every| Keeper::start(Arc::clone(&shared), every));
        let keeper = keeper.transpose().map_err(OpenError::Thread)?;
        let server = Server::start(Arc::clone(&shared)).map_err(OpenError::Thread)?;
        Ok(Self { shared, keeper, server: Some(server), counters, missing })
    }

    /// Runs a request for an operation by its name, and answers when all that it changed, and all
    /// that it saw, is on the disk. Blocks for at most [`Setup::patience`].
    pub fn run(&self, request: Request) -> Result<Answer, Unanswered> {
        self.shared.run_in_turn(Run::new(request), self.shared.deadline())
    }

    /// Runs this very operation for a request; it need not be registered. See
    /// [`DocumentStore::run`].
    pub fn run_this<T: Operation + Clone>(
        &self,
        request: Request,
        operation: T,
    ) -> Result<Answer, Unanswered> {
        self.shared.run_in_turn(Run::of(request, operation), self.shared.deadline())
    }

    /// Lets `work` change documents of a namespace: the short way for a program's own changes, which
    /// need no name and no operation time; the caller is [`Setup::own`]. Each attempt begins with a clone of it. See
    /// [`DocumentStore::run`].
    pub fn change<F>(&self, space: &Namespace, work: F) -> Result<Answer, Unanswered>
    where
        F: FnMut(&mut Transaction<'_>) -> Result<(), Exception> + Clone + Send + 'static,
    {
        let mut request = Request::new(space.clone(), Change::<F>::NAME);
        request.who = self.shared.own.clone();
        self.run_this(request, Change(work))
    }

    /// Begins a request and does not wait for the disk: the way for one thread to serve many
    /// callers. Blocks, until the deadline, only while too much is on its way already.
    pub fn begin(&self, run: Run, deadline: Instant) -> Pending<'_> {
        Pending::begin(&self.shared, run, deadline)
    }

    /// Begins several requests, in this order, and hands what they write to the disk at once: for a
    /// loop that finds several callers at each turn. See [`DocumentStore::begin`].
    pub fn begin_all(
        &self,
        runs: impl IntoIterator<Item = Run>,
        deadline: Instant,
    ) -> Vec<Pending<'_>> {
        Pending::begin_all(&self.shared, runs, deadline)
    }

    /// A document, or the trace of its ended life: what is on the disk of it.
    pub fn get(&self, name: &DocName) -> Result<Option<Arc<Document>>, Unanswered> {
        let books = self.shared.books();
        let document = books.store.peek(name).cloned();
        let position = books.position_of(document.as_ref());
        drop(books);
        self.shared.await_disk(position, self.shared.deadline())?;
        Ok(document)
    }

    /// What to tell a cache that holds `held` of a document. Refuses unknown classes, versions from
    /// the future, and namespaces that are switched off: phase 0, since nothing was done.
    pub fn update_for(&self, name: &DocName, held: Option<&Held>) -> Result<Update, Unanswered> {
        use rota_docstore::Documents as _;
        let at = |it: Exception| it.at(Phase::Before);
        let check = self.shared.rules.schema.check_class(name.class());
        check.map_err(|it| at(it.into()))?;
        let now = self.shared.now();
        let books = self.shared.books();
        books.store.spaces().check_open_named(name.space()).map_err(at)?;
        let update = books.store.sync(name, held, now).map_err(|it| at(it.into()))?;
        let position = match &update {
            // It speaks of every version that was given out, also of those that are on their way.
            Update::Absent { .. } => books.position,
            Update::Unchanged { .. }
            | Update::Full(_)
            | Update::Changes(_)
            | Update::Deleted { .. }
            | Update::SourceBehind { .. } => books.position_of(books.store.peek(name)),
        };
        drop(books);
        if self.shared.durable.position() < position {
            self.shared.await_disk(position, self.shared.deadline())?;
        }
        Ok(update)
    }

    /// All documents whose slots lie in a range, in order of slots and names, traces of ended lives
    /// included. Each is as it is at the moment when its page is read.
    pub fn stream(&self, slots: RangeInclusive<SlotId>) -> Stream<'_> {
        Stream::new(&self.shared, slots)
    }

    /// One step of the purge: see [`PurgeStep`]. It goes on where the last one ended.
    pub fn purge(&self) -> Result<PurgeStep, Unanswered> {
        self.shared.purge_step()
    }

    /// Number of documents, traces of ended lives included.
    pub fn len(&self) -> usize {
        self.shared.books().store.len()
    }

    /// Whether there is no document.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The latest version that was given out.
    pub fn high_water(&self) -> Stamp {
        use rota_docstore::Documents as _;
        self.shared.books().store.high_water()
    }

    /// What the writer counts.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Bodies that items named when the folder was opened, and that were missing or damaged. To put
    /// one again mends it.
    pub fn missing_bodies(&self) -> &[Digest] {
        &self.missing
    }

    /// Writes what is on its way, closes the folder and ends the threads. Gives up waiting for the
    /// disk after `patience`.
    pub fn close(mut self, patience: Duration) -> Result<(), NotClosed> {
        drop((self.keeper.take(), self.server.take()));
        let writer = self.shared.books().writer.take();
        writer.map_or(Ok(()), |it| it.shutdown(patience)).map_err(|_| NotClosed)
    }
}

/// A closure as an operation.
#[derive(Clone)]
struct Change<F>(F);

impl<F> Operation for Change<F>
where
    F: FnMut(&mut Transaction<'_>) -> Result<(), Exception> + Clone + Send + 'static,
{
    const NAME: &'static str = "change";
    type Parameters = ();

    fn new((): ()) -> Result<Self, Exception> {
        Err(Exception::new(codes::MISUSE, "a change has no name that callers may use"))
    }

    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
        (self.0)(transaction)
    }
}

/// One store may read documents of another one.
impl Source for DocumentStore {
    fn update(&self, name: &DocName, held: Option<&Held>) -> Result<Update, Exception> {
        self.update_for(name, held).map_err(|error| match error {
            Unanswered::Exception(exception) => exception,
            Unanswered::Undecided { .. } | Unanswered::Body(_) => {
                Exception::new(codes::NOT_AT_HAND, error.to_string())
            }
        })
    }
}

fn load(engine: &mut dyn Engine, folder: &Path, setup: &Setup) -> Result<Loaded, OpenError> {
    let mut loaded = Loaded { store: Store::new(setup.spaces.clone()), ..Loaded::default() };
    let mut failed = None;
    engine.scan_all(&mut |key, value| match loaded.take(&setup.rules, key, value) {
        Ok(()) => ControlFlow::Continue(()),
        Err(problem) => {
            let (folder, key) = (folder.to_owned(), key.to_owned());
            failed = Some(OpenError::Record { folder, key, problem });
            ControlFlow::Break(())
        }
    })?;
    failed.map_or(Ok(loaded), Err)
}
