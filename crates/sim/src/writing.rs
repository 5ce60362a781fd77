//! What writers do with documents: they add their name to one or two of a few documents. Whoever
//! reads a document sees in which order that happened, and whether anything happened twice.

use rota_docstore::{
    Attachment, Content, Digest, DocName, Document, Exception, ItemName, Namespace, NewTask,
    Operation, Operations, Place, Stamp, Tolerance, Transaction, Wanted,
};
use rota_protocol::operate;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The namespace of the documents.
pub const SPACE: &str = "docs";
/// A namespace that is switched off and on.
pub const SWITCHED: &str = "sometimes";
/// The class of the documents.
const CLASS: &str = "Log";
/// Items that say who was the how manieth; their key is the name.
const ADDED: &str = "A";
/// What they brought; the key is the name.
const ATTACHED: &str = "P";
/// Who was added last: the only one of the class, whose key is the name. The one before is destroyed.
const LAST: &str = "L";
/// How many were added.
const COUNT: &str = "N";
/// Somebody was added twice.
const TWICE: &str = "Twice";

/// The documents. Those of one group share a slot.
pub const GROUPS: [&[&str]; 3] = [&["{a}1", "{a}2"], &["b"], &["c", "{c}2"]];

/// Size of every body.
pub const BODY_BYTES: u64 = 1;

/// What somebody attaches.
pub fn attachment_of(who: &str) -> Attachment {
    let mut sha256 = [0; 32];
    for (at, byte) in who.bytes().enumerate() {
        sha256[at % 32] ^= byte.wrapping_add(u8::try_from(at % 256).unwrap_or(0));
    }
    Attachment::new("text/plain", BODY_BYTES, Digest(sha256)).expect("a usual attachment")
}

/// A document's name.
pub fn name(space: &str, docid: &str) -> DocName {
    let space = Namespace::parse(space).expect("a short name");
    DocName::new(&space, CLASS, docid).expect("a short name")
}

/// Every document that writers work with.
pub fn names() -> Vec<DocName> {
    GROUPS.iter().flat_map(|it| it.iter()).map(|docid| name(SPACE, docid)).collect()
}

/// The operations of the simulated managers.
pub fn operations() -> Operations {
    let tasks = operate::operations().with::<Defer>().with::<Late<true>>().with::<Late<false>>();
    let tasks = tasks.with::<crate::copying::Step>();
    tasks.with::<Add<true>>().with::<Add<false>>()
}

/// What [`Add`] is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Adding {
    /// Who.
    pub who: String,
    /// To which documents of one slot.
    pub docids: Vec<String>,
    /// Documents of anywhere to look at, which may be a second old.
    pub looks: Vec<String>,
    /// With an attachment, whose body comes before.
    pub attaches: bool,
    /// Fails unexpectedly in some attempts.
    pub fails: bool,
}

/// What it answers: the how manieth it is in each document.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Added {
    /// In order of the documents.
    pub at: Vec<u64>,
}

/// Adds a name: beside the decisions, or in their stream.
pub struct Add<const OUTSIDE: bool>(Adding);

impl<const OUTSIDE: bool> Operation for Add<OUTSIDE> {
    const NAME: &'static str = if OUTSIDE { "sim.work" } else { "sim.add" };
    const PLACE: Place = if OUTSIDE { Place::Worker } else { Place::Inline };
    type Parameters = Adding;

    fn new(adding: Adding) -> Result<Self, Exception> {
        Ok(Self(adding))
    }

    fn documents(&self, space: &Namespace) -> Result<Vec<Wanted>, Exception> {
        let current =
            self.0.docids.iter().map(|it| Ok(Wanted::current(DocName::new(space, CLASS, it)?)));
        let recent = self.0.looks.iter().map(|docid| {
            Ok(Wanted::recent(DocName::new(space, CLASS, docid)?, Tolerance::seconds(1)))
        });
        current.chain(recent).collect()
    }

    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
        // A new attempt begins at another moment.
        if self.0.fails && transaction.now().to_epoch_ms().is_multiple_of(2) {
            return Err(Exception::unexpected("SIM", "fails now and then"));
        }
        let first = transaction.name(CLASS, &self.0.docids[0])?;
        if let Some(added) = transaction.repeated::<Added>(&first)? {
            return transaction.answer_json(&added);
        }
        let mut at = Vec::new();
        for docid in &self.0.docids {
            at.push(add(transaction, docid, &self.0.who, self.0.attaches)?);
        }
        let added = Added { at };
        transaction.remember(&first, &added)?;
        transaction.answer_json(&added)
    }
}

/// Adds a name to a document: gives its place.
fn add(
    transaction: &mut Transaction<'_>,
    docid: &str,
    who: &str,
    attaches: bool,
) -> Result<u64, Exception> {
    let name = transaction.name(CLASS, docid)?;
    let edited = transaction.current(&name)?;
    edited.ensure();
    let is_twice = edited.content(ADDED, Some(who)).is_some();
    let count = match edited.content(COUNT, None) {
        Some(Content::Json(text)) => text.read::<u64>()? + 1,
        Some(Content::Raw(_) | Content::Attachment(_)) | None => 1,
    };
    edited.put_content(&ItemName::singleton(COUNT)?, Content::json_of(&count)?)?;
    edited.put_content(&ItemName::keyed(ADDED, who)?, Content::json_of(&count)?)?;
    let before: Vec<String> = edited.keys(LAST).map(str::to_owned).collect();
    for other in before.iter().filter(|it| *it != who) {
        edited.remove(LAST, Some(other))?;
    }
    edited.put_content(&ItemName::keyed(LAST, who)?, Content::json_of(&count)?)?;
    if attaches {
        let attached = ItemName::keyed(ATTACHED, who)?;
        edited.put_content(&attached, Content::Attachment(attachment_of(who).into()))?;
    }
    if is_twice {
        edited.put_content(&ItemName::singleton(TWICE)?, Content::json_of(&who)?)?;
    }
    Ok(count)
}

/// What a task does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Deferring {
    /// Who is added.
    pub who: String,
    /// To which documents of one slot: one in each cycle.
    pub docids: Vec<String>,
    /// The operation of the task.
    pub operation: String,
    /// It never succeeds.
    pub is_poison: bool,
    /// It fails in some attempts.
    pub fails: bool,
}

/// Leaves an addition for later.
pub struct Defer(Deferring);

impl Operation for Defer {
    const NAME: &'static str = "sim.defer";
    const PLACE: Place = Place::Inline;
    type Parameters = Deferring;

    fn new(deferring: Deferring) -> Result<Self, Exception> {
        Ok(Self(deferring))
    }

    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
        let docid = self.0.docids.first().map_or("", String::as_str);
        let place = docid.strip_prefix('{').and_then(|it| it.split('}').next()).unwrap_or(docid);
        let task = NewTask::new(&self.0.operation, place);
        let parameters = serde_json::json!({"program": PROGRAM, "args": [self.0.who]});
        let task =
            if self.0.operation == EXEC { task.with(&parameters)? } else { task.with(&self.0)? };
        transaction.register_task(&task)?;
        Ok(())
    }
}

/// Who is added by a task with these parameters, or the name that its program is given, or what it copies.
pub fn who_of(param: &serde_json::Value) -> String {
    if let (Some(_), Some(docid)) = (param.get("changes"), param["docid"].as_str()) {
        return format!("copy {docid}");
    }
    let named = param["who"].as_str().or_else(|| param["args"][0].as_str());
    named.unwrap_or_default().to_owned()
}

/// The only program that tasks may run.
pub const PROGRAM: &str = "sim";
/// The operation of tasks that run it.
pub const EXEC: &str = "exec";

/// The work of a task: beside the decisions, or in their stream.
pub struct Late<const OUTSIDE: bool>(Deferring);

impl<const OUTSIDE: bool> Operation for Late<OUTSIDE> {
    const NAME: &'static str = if OUTSIDE { "sim.late_work" } else { "sim.late" };
    const PLACE: Place = if OUTSIDE { Place::Worker } else { Place::Inline };
    type Parameters = Deferring;

    fn new(deferring: Deferring) -> Result<Self, Exception> {
        Ok(Self(deferring))
    }

    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
        // Only a planted bug runs it as no task.
        let checkpoint = transaction.task().and_then(|it| it.checkpoint.clone());
        if self.0.is_poison || (self.0.fails && transaction.now().to_epoch_ms().is_multiple_of(3)) {
            return Err(Exception::unexpected("SIM", "fails now and then"));
        }
        let cycle = checkpoint.map_or(Ok(0), |it| it.read::<usize>())?;
        let Some(docid) = self.0.docids.get(cycle) else { return Ok(()) };
        let is_last = cycle + 1 == self.0.docids.len();
        let name = transaction.name(CLASS, docid)?;
        // A run that is begun anew finds what cycles of the one before committed.
        let is_there = transaction.current(&name)?.content(ADDED, Some(&self.0.who)).is_some();
        if is_last || !is_there {
            add(transaction, docid, &self.0.who, false)?;
        }
        if is_last { Ok(()) } else { transaction.go_on_with(&(cycle + 1)) }
    }
}

/// What a document holds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Log {
    /// Who was the how manieth, and when.
    pub added: BTreeMap<String, (u64, Stamp)>,
    /// Who is there as the last one: nobody or one, unless a copy keeps what was destroyed.
    pub last: Vec<String>,
    /// Somebody was added twice.
    pub twice: Option<String>,
}

impl Log {
    /// Of a document; nothing when there is none.
    pub fn of(document: Option<&Document>) -> Self {
        let mut log = Self::default();
        for item in document.into_iter().flat_map(Document::items) {
            let Some(Content::Json(text)) = item.content() else { continue };
            match (item.name().class(), item.name().key()) {
                (ADDED, Some(who)) => {
                    let count = text.read::<u64>().unwrap_or(0);
                    log.added.insert(who.to_owned(), (count, item.version()));
                }
                (LAST, Some(who)) => log.last.push(who.to_owned()),
                (TWICE, None) => log.twice = text.read::<String>().ok(),
                (_, _) => {}
            }
        }
        log
    }
}

/// What became of one try of an addition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Told {
    /// When it was sent.
    pub sent_us: u64,
    /// When it was answered.
    pub came_us: u64,
    /// The version, and the places.
    pub answer: (Stamp, Added),
}

/// An addition, with all its tries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Written {
    /// Who was to be added.
    pub who: String,
    /// To which documents.
    pub docids: Vec<String>,
    /// Whether it has a time by which a repetition is known.
    pub has_operation_time: bool,
    /// Its answers.
    pub told: Vec<Told>,
}

/// A task that somebody registered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Deferred {
    /// Who is added, or the name that its program is given.
    pub who: String,
    /// To which documents.
    pub docids: Vec<String>,
    /// Its work is a program.
    pub is_outside: bool,
    /// The registration was answered.
    pub is_told: bool,
}

/// What somebody was shown of a document, as of a moment after it was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SeenDocument {
    /// Which.
    pub name: DocName,
    /// When it was asked for.
    pub sent_us: u64,
    /// When it came.
    pub came_us: u64,
    /// The version; `None`: there is none.
    pub version: Option<Stamp>,
    /// What it held.
    pub log: Log,
}

impl SeenDocument {
    /// What an answer showed that was asked for and came at these moments.
    pub fn new(name: &DocName, (sent_us, came_us): (u64, u64), shown: Option<&Document>) -> Self {
        let (name, version, log) = (name.clone(), shown.map(Document::version), Log::of(shown));
        Self { name, sent_us, came_us, version, log }
    }
}
