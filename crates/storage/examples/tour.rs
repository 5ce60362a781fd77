//! A walk through the document store: `cargo run --release -p rota-storage --example tour`.
//!
//! It opens a store in a temporary folder, runs an operation, keeps a cache in step, attaches a
//! file, closes, opens again, and prints each step.

use rota_docstore::{
    Attachment, Body, Cache, DocName, Exception, Namespace, Operation, Operations, Request,
    RequestId, Rules, Schema, Singleton, Stamp, Transaction, Update, Wanted,
};
use rota_storage::attachments::digest_of;
use rota_storage::documents::{DocumentStore, Setup};
use rota_storage::{ClusterName, Label, ManagerId, ManagerNumber};
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::io::{Read as _, Write};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// An item: a document of class `Page` has at most one.
#[derive(Serialize, Deserialize)]
struct Text {
    title: String,
    edits: u32,
    author: Option<String>,
}

impl Singleton for Text {
    const CLASS: &'static str = "Tx";
}

/// An operation: creates a page, or gives it another title.
#[derive(Serialize, Deserialize)]
struct WritePage {
    page: String,
    title: String,
}

impl Operation for WritePage {
    const NAME: &'static str = "write";
    type Parameters = Self;

    fn new(parameters: Self) -> Result<Self, Exception> {
        Ok(parameters)
    }

    fn documents(&self, space: &Namespace) -> Result<Vec<Wanted>, Exception> {
        Ok(vec![Wanted::current(DocName::new(space, "Page", &self.page)?)])
    }

    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
        let name = transaction.name("Page", &self.page)?;
        if let Some(edits) = transaction.repeated::<u32>(&name)? {
            return transaction.answer_json(&edits);
        }
        let edited = transaction.current(&name)?;
        edited.ensure();
        let edits = edited.one::<Text>()?.map_or(0, |it| it.edits) + 1;
        edited.put_one(&Text { title: self.title.clone(), edits, author: None })?;
        transaction.remember(&name, &edits)?;
        transaction.answer_json(&edits)
    }
}

fn setup() -> Setup {
    let schema = Schema::new().class("Page", |it| it.singleton::<Text>());
    Setup::new(Rules::new(schema), Operations::new().with::<WritePage>())
}

fn open(folder: &Path) -> Outcome<DocumentStore> {
    let (cluster, manager) = (ClusterName::parse("tour")?, ManagerId::parse("m1")?);
    let label = Label { cluster, manager, number: ManagerNumber(0) };
    Ok(DocumentStore::open(folder, &label, setup())?)
}

fn now() -> Outcome<Stamp> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH)?;
    Ok(Stamp::from_epoch_ms(u64::try_from(since.as_millis())?))
}

fn text(body: &Body) -> &str {
    match body {
        Body::Json(json) => json.as_str(),
        Body::Nothing => "nothing",
        Body::Binary { mime, .. } => mime,
    }
}

/// Asks the store what changed since the cache last asked, and says what came.
fn follow(store: &DocumentStore, cache: &mut Cache, name: &DocName) -> Outcome<String> {
    let update = store.update_for(name, cache.held(name).as_ref())?;
    let items = match &update {
        Update::Full(document) => document.items().len(),
        Update::Changes(changes) => changes.items().len(),
        Update::Unchanged { .. }
        | Update::Deleted { .. }
        | Update::Absent { .. }
        | Update::SourceBehind { .. } => 0,
    };
    cache.apply(name, &update, now()?)?;
    let title = cache.peek(name).map(|it| it.one::<Text>()).transpose()?.flatten();
    let title = title.map_or("nothing".to_owned(), |it| format!("{:?}", it.title));
    Ok(format!("{}, {items} items; the cache has {title}", update.name()))
}

/// The walk, in a folder that is empty.
pub fn walk(folder: &Path, out: &mut impl Write) -> Outcome<()> {
    let store = open(folder)?;
    writeln!(out, "1 open       {} documents", store.len())?;

    let space = Namespace::default_space();
    let name = DocName::new(&space, "Page", "home")?;
    let write = |title: &str| {
        let parameters = WritePage { page: "home".to_owned(), title: title.to_owned() };
        Request::new(space.clone(), "write").with(&parameters)
    };
    let mut request = write("Welcome")?;
    // A name for this request, and its time: by both a repetition is known.
    request.operation_time = Some(now()?);
    request.request_id = Some(RequestId::parse("welcome-1")?);
    let answer = store.run(request.clone())?;
    writeln!(out, "2 run        {} at version {}: durable", text(&answer.body), answer.version)?;
    let again = store.run(request)?;
    writeln!(
        out,
        "3 repeat     {} at version {}: not done twice",
        text(&again.body),
        again.version
    )?;

    let mut cache = Cache::new(setup().rules.schema, 64 * 1024);
    writeln!(out, "4 sync       {}", follow(&store, &mut cache, &name)?)?;
    writeln!(out, "5 sync       {}", follow(&store, &mut cache, &name)?)?;
    store.run(write("Hello")?)?;
    writeln!(out, "6 sync       {}", follow(&store, &mut cache, &name)?)?;

    let bytes = b"A picture, say.";
    let body = Attachment::new("image/png", bytes.len() as u64, digest_of(bytes))?;
    let stored = store.put_body(&body, &bytes[..])?;
    writeln!(out, "7 put        {} bytes, {stored:?}: {}", body.size(), body.sha256())?;
    let page = name.clone();
    let attach = move |transaction: &mut Transaction<'_>| {
        transaction.current(&page)?.attach("picture", body.clone())
    };
    let answer = store.change(&space, attach)?;
    writeln!(out, "8 attach     named by P[picture] at version {}", answer.version)?;

    let refused = store.run(write(&"x".repeat(2_000_000))?);
    let why = refused.map(drop).err().map_or("nothing".to_owned(), |it| it.to_string());
    writeln!(out, "9 refuse     {why}")?;

    store.close(Duration::from_secs(10))?;
    let store = open(folder)?;
    let mut read = String::new();
    store.read_body(&name, "picture")?.read_to_string(&mut read)?;
    // The second one remembers the request that has a name.
    writeln!(out, "10 reopen    {} documents, and the picture: {read:?}", store.len())?;
    writeln!(out, "11 sync      {}", follow(&store, &mut cache, &name)?)?;
    store.close(Duration::from_secs(10))?;
    Ok(())
}

#[allow(dead_code, reason = "the test of this walk has no use for it")]
fn main() -> Outcome<()> {
    let folder = tempfile::tempdir()?;
    walk(folder.path(), &mut std::io::stdout().lock())?;
    Ok(folder.close()?)
}
