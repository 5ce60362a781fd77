//! What writers do with documents: they add their name to one or two of a few documents. Whoever
//! reads a document sees in which order that happened, and whether anything happened twice.

use crate::blob_store::attachment_of;
use rota_docstore::{
    Content, DocName, Document, Exception, ItemName, Namespace, Operation, Operations, Place,
    Stamp, Tolerance, Transaction, Wanted,
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
    operate::operations().with::<Add<true>>().with::<Add<false>>()
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
        let recent =
            self.0.looks.iter().map(|it| {
                Ok(Wanted::recent(DocName::new(space, CLASS, it)?, Tolerance::seconds(1)))
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
            let name = transaction.name(CLASS, docid)?;
            let edited = transaction.current(&name)?;
            edited.ensure();
            let who = ItemName::keyed(ADDED, &self.0.who)?;
            let is_twice = edited.content(ADDED, Some(&self.0.who)).is_some();
            let count = match edited.content(COUNT, None) {
                Some(Content::Json(text)) => text.read::<u64>()? + 1,
                Some(Content::Raw(_) | Content::Attachment(_)) | None => 1,
            };
            edited.put_content(&ItemName::singleton(COUNT)?, Content::json_of(&count)?)?;
            edited.put_content(&who, Content::json_of(&count)?)?;
            let before: Vec<String> = edited.keys(LAST).map(str::to_owned).collect();
            for who in before.iter().filter(|it| **it != self.0.who) {
                edited.remove(LAST, Some(who))?;
            }
            edited.put_content(&ItemName::keyed(LAST, &self.0.who)?, Content::json_of(&count)?)?;
            if self.0.attaches {
                let attached = ItemName::keyed(ATTACHED, &self.0.who)?;
                let attachment = attachment_of(&self.0.who);
                edited.put_content(&attached, Content::Attachment(attachment.into()))?;
            }
            if is_twice {
                edited.put_content(&ItemName::singleton(TWICE)?, Content::json_of(&self.0.who)?)?;
            }
            at.push(count);
        }
        let added = Added { at };
        transaction.remember(&first, &added)?;
        transaction.answer_json(&added)
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
