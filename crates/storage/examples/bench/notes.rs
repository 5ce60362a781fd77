//! Documents of one record: a note of about 600 bytes, and the operation that writes it.

use crate::label;
use rota_docstore::{
    DocName, Exception, Namespace, Operation, Operations, Request, Rules, Run, Schema, Singleton,
    SlotId, Stamp, Store, Territory, Transaction,
};
use rota_storage::documents::{DocumentStore, Pending, Setup, document_key};
use rota_storage::{Engine, KvWrite};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};
use xxhash_rust::xxh3::xxh3_64;

/// As many as a cluster has by default.
pub const SLOTS: u32 = 4096;
/// Text of a note, so that its document is a record of 600 bytes, key included.
const TEXT_BYTES: usize = 500;

#[derive(Serialize, Deserialize, Clone)]
struct Note {
    number: u64,
    text: String,
}

impl Singleton for Note {
    const CLASS: &'static str = "Nt";
}

/// Writes a note into its document.
#[derive(Serialize, Deserialize, Clone)]
struct WriteNote {
    id: u64,
    note: Note,
}

impl Operation for WriteNote {
    const NAME: &'static str = "write";
    type Parameters = Self;

    fn new(parameters: Self) -> Result<Self, Exception> {
        Ok(parameters)
    }

    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
        let name = name(transaction.space(), self.id);
        let edited = transaction.current(&name)?;
        edited.ensure();
        edited.put_one(&self.note)
    }
}

/// Slots of hashed names.
struct Slots;

impl Territory for Slots {
    fn slot_of(&self, name: &DocName) -> SlotId {
        let hash = xxh3_64(name.as_text().as_bytes());
        SlotId(u32::try_from(hash % u64::from(SLOTS)).expect("fewer than 2^32"))
    }
    fn holds(&self, _: SlotId) -> bool {
        true
    }
}

pub fn space() -> Namespace {
    Namespace::default_space()
}

pub fn name(space: &Namespace, id: u64) -> DocName {
    DocName::new(space, "Note", &format!("n{id:011}")).expect("a good name")
}

/// Numbers in no order.
pub fn mixed(number: u64) -> u64 {
    number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16
}

fn note(id: u64, number: u64) -> WriteNote {
    WriteNote { id, note: Note { number, text: TEXT.clone() } }
}

fn rules() -> Rules {
    let schema = Schema::new().class("Note", |it| it.singleton::<Note>());
    Rules { territory: Arc::new(Slots), ..Rules::new(schema) }
}

/// What every note says after its number.
static TEXT: LazyLock<String> =
    LazyLock::new(|| "Some words. ".chars().cycle().take(TEXT_BYTES).collect());

/// The bytes of one document, made by the store itself.
static TEMPLATE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let (mut store, mut made) = (Store::default(), note(0, 0));
    let work = |transaction: &mut Transaction<'_>| made.work(transaction);
    let now = Stamp::from_epoch_ms(1_800_000_000_000);
    let commit = store.change(&rules(), &space(), now, work).expect("it is valid");
    commit.writes[0].after.as_ref().expect("it was made").to_bytes()
});

/// A record of the same key and length that the document store would write, without it.
pub fn record(id: u64, number: u64) -> KvWrite {
    let name = name(&space(), id);
    let mut value = TEMPLATE.clone();
    let end = value.len();
    value[end - 8..].copy_from_slice(&number.to_le_bytes());
    KvWrite::put(document_key(Slots.slot_of(&name), &name), value)
}

/// The document itself, as a record.
fn document(id: u64) -> KvWrite {
    let (mut store, mut made) = (Store::default(), note(id, 0));
    let work = |transaction: &mut Transaction<'_>| made.work(transaction);
    let now = Stamp::from_epoch_ms(1_700_000_000_000 + id);
    let commit = store.change(&rules(), &space(), now, work).expect("it is valid");
    let document = commit.writes[0].after.as_ref().expect("it was made");
    let key = document_key(Slots.slot_of(document.name()), document.name());
    KvWrite::put(key, document.to_bytes())
}

/// Writes so many documents into an engine.
pub fn fill(engine: &mut dyn Engine, documents: u64) {
    for number in (0..documents).step_by(1000) {
        let batch: Vec<_> = (number..documents.min(number + 1000)).map(document).collect();
        engine.commit(&batch).expect("commits");
    }
}

/// A store of notes.
pub struct Bank {
    pub store: DocumentStore,
    documents: u64,
}

impl Bank {
    pub fn open(folder: &Path, documents: u64) -> Self {
        let setup = Setup::new(rules(), Operations::new());
        let store = DocumentStore::open(folder, &label(), setup).expect("opens");
        Self { store, documents }
    }

    /// A new one with so many documents.
    pub fn filled(folder: &Path, documents: u64) -> Self {
        let records = folder.join("records");
        let settings = rota_storage::Settings::default();
        let mut engine = rota_storage::open(&records, &label(), &settings).expect("opens");
        fill(&mut *engine, documents);
        drop(engine);
        Self::open(folder, documents)
    }

    fn operation(&self, number: u64) -> WriteNote {
        note(mixed(number) % self.documents.max(1), number)
    }

    /// Writes a note into one of the documents, and waits for the answer.
    pub fn wait(&self, number: u64) {
        let request = Request::new(space(), WriteNote::NAME);
        self.store.run_this(request, self.operation(number)).expect("the operation is valid");
    }

    /// Begins as many operations as there are callers with an answer.
    pub fn begin_all(&self, numbers: Range<u64>) -> Vec<Pending<'_>> {
        let deadline = Instant::now() + Duration::from_secs(60);
        let run = |it| Run::of(Request::new(space(), WriteNote::NAME), self.operation(it));
        self.store.begin_all(numbers.map(run), deadline)
    }

    /// Ends its threads before its folder goes.
    pub fn close(self) {
        self.store.close(Duration::from_secs(60)).expect("the disk works");
    }
}
