//! Deferred copies under chaos: sources that count up, and documents that hold copies of their counts.

use crate::rng::SeededRng;
use crate::writing::SPACE;
use rota_docstore::{
    Content, DocName, Document, Exception, ItemName, Namespace, Operation, Place, Request, Schema,
    Stamp, Transaction,
};
use rota_protocol::api::OperateOp;
use rota_protocol::operate;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The class of the documents that count.
const SOURCE: &str = "Src";
/// The class of the documents that hold copies.
const HOLDER: &str = "Dst";
/// The items: a singleton of a source; of a holder the key is the id of the source.
const ITEM: &str = "S";

/// Ids of the sources.
pub const SOURCES: [&str; 2] = ["s1", "s2"];
/// Ids of the holders.
pub const HOLDERS: [&str; 3] = ["h1", "h2", "h3"];

/// The classes of the simulated managers.
pub fn schema() -> Schema {
    let schema = operate::schema().class(HOLDER, |it| it.any());
    schema.class(SOURCE, |it| it.any().copied(ITEM, &[HOLDER], '.'))
}

/// What is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Act {
    /// A source counts up.
    Count,
    /// A holder holds a source from now on.
    Join,
    /// It holds it no longer.
    Part,
}

/// Something that was asked for once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Copied {
    /// What.
    pub act: Act,
    /// The source.
    pub source: String,
    /// The holder; of a count none.
    pub holder: String,
    /// When it was asked for.
    pub sent_us: u64,
    /// When it was answered.
    pub came_us: Option<u64>,
}

/// What a document held at the end: by source. A source has itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Held {
    /// Its id.
    pub docid: String,
    /// The counts.
    pub counts: BTreeMap<String, u64>,
}

/// What [`Step`] is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Doing {
    act: Act,
    source: String,
    holder: String,
}

/// One of the acts.
pub struct Step(Doing);

impl Operation for Step {
    const NAME: &'static str = "sim.copied";
    const PLACE: Place = Place::Inline;
    type Parameters = Doing;

    fn new(doing: Doing) -> Result<Self, Exception> {
        Ok(Self(doing))
    }

    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
        let Doing { act, source, holder } = &self.0;
        if *act == Act::Count {
            let name = transaction.name(SOURCE, source)?;
            let edited = transaction.current(&name)?;
            edited.ensure();
            let count = count_of(edited.content(ITEM, None)) + 1;
            return edited.put_content(&ItemName::singleton(ITEM)?, Content::json_of(&count)?);
        }
        let name = transaction.name(HOLDER, holder)?;
        let edited = transaction.current(&name)?;
        edited.ensure();
        let is_there = edited.content(ITEM, Some(source)).is_some();
        match act {
            Act::Part => drop(edited.remove(ITEM, Some(source))?),
            // Whatever is copied is newer.
            Act::Join if !is_there => {
                let item = ItemName::keyed(ITEM, source)?;
                edited.put_copy(&item, Content::json_of(&0)?, Stamp::MIN)?;
            }
            Act::Join | Act::Count => {}
        }
        Ok(())
    }
}

fn count_of(content: Option<&Content>) -> u64 {
    match content {
        Some(Content::Json(text)) => text.read::<u64>().unwrap_or(0),
        Some(Content::Raw(_) | Content::Attachment(_)) | None => 0,
    }
}

/// Something to do, and what the book says of it.
pub fn choose(rng: &mut SeededRng, now_us: u64) -> (OperateOp, Copied) {
    let act = match rng.within(0, 9) {
        0..=4 => Act::Count,
        5..=7 => Act::Join,
        _ => Act::Part,
    };
    let (source, holder) = (*rng.pick(&SOURCES), *rng.pick(&HOLDERS));
    let holder = if act == Act::Count { "" } else { holder };
    let doing = Doing { act, source: source.to_owned(), holder: holder.to_owned() };
    let space = Namespace::parse(SPACE).expect("a short name");
    let request = Request::new(space, Step::NAME).with(&doing).expect("parameters are short");
    let docid = if act == Act::Count { source } else { holder };
    let op = OperateOp { request: Arc::new(request), docid: docid.to_owned() };
    let Doing { act, source, holder } = doing;
    (op, Copied { act, source, holder, sent_us: now_us, came_us: None })
}

/// Every document of theirs.
pub fn names() -> Vec<DocName> {
    let space = Namespace::parse(SPACE).expect("a short name");
    let name = |class: &str, docid: &str| DocName::new(&space, class, docid).expect("a short name");
    let sources = SOURCES.iter().map(|it| name(SOURCE, it));
    sources.chain(HOLDERS.iter().map(|it| name(HOLDER, it))).collect()
}

/// What a document holds.
pub fn held(name: &DocName, document: Option<&Document>) -> Held {
    let existing = document.into_iter().flat_map(Document::existing);
    let items = existing.filter(|(item, _)| item.class() == ITEM);
    let counts = items.map(|(item, content)| {
        let source = item.key().unwrap_or_else(|| name.docid());
        (source.to_owned(), count_of(Some(content)))
    });
    Held { docid: name.docid().to_owned(), counts: counts.collect() }
}
