//! The durable store of documents: operations over a disk.

mod ahead;
pub mod bodies;
mod contention;
mod damage;
mod elsewhere;
pub mod kills;
mod own;
mod power_cut;
mod restarts;
mod waiting;

use crate::label;
use rota_docstore::{
    Answer, Body, DocName, Document, Exception, Namespace, Operation, Operations, Request,
    RequestId, Rules, Schema, Singleton, SlotId, Stamp, Territory, Transaction, Wanted,
};
use rota_storage::attachments::AttachmentSettings;
use rota_storage::documents::{DocumentStore, OpenError, Setup};
use rota_storage::{Disk, LogSettings, RealDisk, Settings};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub const PATIENCE: Duration = Duration::from_secs(30);
pub const SLOTS: u32 = 16;

#[derive(Serialize, Deserialize, PartialEq, Debug, Clone, Default)]
pub struct Count {
    pub count: u64,
    pub note: Option<String>,
}

impl Singleton for Count {
    const CLASS: &'static str = "Ct";
}

/// Adds to several counters at once and answers the first one's new value.
#[derive(Serialize, Deserialize, Clone)]
pub struct Add {
    pub ids: Vec<String>,
    pub by: u64,
}

impl Operation for Add {
    const NAME: &'static str = "add";
    type Parameters = Self;

    fn new(parameters: Self) -> Result<Self, Exception> {
        Ok(parameters)
    }

    fn documents(&self, space: &Namespace) -> Result<Vec<Wanted>, Exception> {
        let name = |id: &String| DocName::new(space, "Acc", id).map(Wanted::current);
        Ok(self.ids.iter().map(name).collect::<Result<_, _>>()?)
    }

    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
        let first = transaction.name("Acc", &self.ids[0])?;
        if let Some(count) = transaction.repeated::<u64>(&first)? {
            return transaction.answer_json(&count);
        }
        let mut counts = Vec::new();
        for id in &self.ids {
            let name = transaction.name("Acc", id)?;
            let edited = transaction.current(&name)?;
            edited.ensure();
            let mut count = edited.one::<Count>()?.unwrap_or_default();
            count.count += self.by;
            edited.put_one(&count)?;
            counts.push(count.count);
        }
        transaction.remember(&first, &counts[0])?;
        transaction.answer_json(&counts[0])
    }
}

/// Creates a counter; refuses one that exists.
#[derive(Serialize, Deserialize, Clone)]
pub struct Create {
    pub id: String,
}

impl Operation for Create {
    const NAME: &'static str = "create";
    type Parameters = Self;

    fn new(parameters: Self) -> Result<Self, Exception> {
        Ok(parameters)
    }

    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
        let name = transaction.name("Acc", &self.id)?;
        transaction.current(&name)?.create()
    }
}

/// A closure as an operation.
#[derive(Clone)]
pub struct Do<F>(pub F);

impl<F> Operation for Do<F>
where
    F: FnMut(&mut Transaction<'_>) -> Result<(), Exception> + Clone + Send + 'static,
{
    const NAME: &'static str = "do";
    type Parameters = ();

    fn new(_: ()) -> Result<Self, Exception> {
        Err(Exception::bug("NAME", "it is run by value only"))
    }

    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
        (self.0)(transaction)
    }
}

/// All accounts lie in slot 0; every raw document in the slot that its id begins with.
pub struct Slots;

impl Territory for Slots {
    fn slot_of(&self, name: &DocName) -> SlotId {
        let number = name.docid().split('-').next().and_then(|it| it.parse().ok());
        SlotId(number.filter(|_| name.class() == "Raw").unwrap_or(0) % SLOTS)
    }
    fn holds(&self, _: SlotId) -> bool {
        true
    }
}

pub fn rules() -> Rules {
    let schema = Schema::new()
        .class("Acc", |it| it.singleton::<Count>().raw_keyed("Big"))
        .class("Raw", |it| it.raw_singleton("Raw"))
        .with_configuration();
    Rules { territory: Arc::new(Slots), ..Rules::new(schema) }
}

/// Folds its log often; purges only when it is told to.
pub fn setup() -> Setup {
    Setup {
        engine: Settings {
            log: LogSettings { checkpoint_bytes: 48 * 1024, grow_bytes: 8 * 1024 },
            ..Settings::default()
        },
        attachments: AttachmentSettings { grace_ms: 0, ..AttachmentSettings::default() },
        patience: PATIENCE,
        purge_every: None,
        ..Setup::new(rules(), Operations::new().with::<Add>().with::<Create>())
    }
}

pub fn open_with(
    disk: Arc<dyn Disk>,
    folder: &Path,
    setup: Setup,
) -> Result<DocumentStore, OpenError> {
    DocumentStore::open_on(disk, folder, &label(), setup)
}

pub fn open(folder: &Path) -> DocumentStore {
    open_with(Arc::new(RealDisk), folder, setup()).expect("opens")
}

pub fn space() -> Namespace {
    Namespace::parse("bank").expect("a good name")
}

pub fn account(id: &str) -> DocName {
    DocName::new(&space(), "Acc", id).expect("a good name")
}

pub fn add(ids: &[&str], by: u64) -> Request {
    let ids = ids.iter().map(|&it| it.to_owned()).collect();
    Request::new(space(), "add").with(&Add { ids, by }).expect("JSON")
}

pub fn create(id: &str) -> Request {
    Request::new(space(), "create").with(&Create { id: id.to_owned() }).expect("JSON")
}

/// Runs a closure as an operation.
pub fn change<F>(store: &DocumentStore, work: F) -> Answer
where
    F: FnMut(&mut Transaction<'_>) -> Result<(), Exception> + Clone + Send + 'static,
{
    store.change(&space(), work).expect("it is valid")
}

pub fn number(answer: &Answer) -> u64 {
    match &answer.body {
        Body::Json(text) => text.read().expect("a number"),
        other @ (Body::Nothing | Body::Binary { .. }) => panic!("no number: {other:?}"),
    }
}

pub fn count_in(document: &Document) -> u64 {
    document.one::<Count>().expect("reads").map_or(0, |it| it.count)
}

pub fn count(store: &DocumentStore, id: &str) -> u64 {
    store.get(&account(id)).expect("reads").map_or(0, |it| count_in(&it))
}

/// The same, of which a repetition is known as one.
pub fn once(request: Request) -> Request {
    let request_id = RequestId::parse("once").ok();
    Request { operation_time: Some(now()), request_id, ..request }
}

pub fn now() -> Stamp {
    Stamp::from_epoch_ms((setup().clock)())
}
