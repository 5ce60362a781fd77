//! `document.read` and `document.touch`.

use crate::documents::about;
use crate::documents::form::{ItemForm, name_at};
use crate::documents::schema::{check_free, schema};
use rota_docstore::attempt::BODY_BYTES_MAX;
use rota_docstore::{
    About, DocName, DocumentEdit, Done, Exception, FieldError, ItemName, Namespace, Operation,
    Place, Stamp, Tolerance, Transaction, Wanted, codes,
};
use serde::{Deserialize, Serialize};

/// A document to read.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Which {
    /// The caller's own when it is not given.
    namespace: Option<Namespace>,
    class: String,
    docid: String,
    /// How stale it may be, in seconds; 0: the newest state, of the caller's own namespace only.
    #[serde(default)]
    tolerance_s: u32,
    /// Items of these classes; all when it is not given. What operations remember is never shown.
    items: Option<Vec<String>>,
}

impl Which {
    pub(crate) fn name(&self, number: usize, space: &Namespace) -> Result<DocName, Exception> {
        let space = self.namespace.as_ref().unwrap_or(space);
        name_at(&format!("documents[{number}]"), space, &self.class, &self.docid)
    }

    fn shows(&self, item: &ItemName) -> bool {
        let is_wanted = |it: &Vec<String>| it.iter().any(|class| class == item.class());
        !item.is_memory() && self.items.as_ref().is_none_or(is_wanted)
    }
}

/// `{"documents": [...]}`.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reading {
    documents: Vec<Which>,
}

#[derive(Debug, Serialize)]
struct Shown {
    class: String,
    docid: String,
    exists: bool,
    ctime: Option<Stamp>,
    version: Option<Stamp>,
    items: Vec<ItemForm>,
}

#[derive(Debug, Serialize)]
struct AllShown {
    documents: Vec<Shown>,
}

/// Shows documents as of one moment, as far as they are read with tolerance 0.
pub(crate) struct DocumentRead {
    documents: Vec<Which>,
}

impl Operation for DocumentRead {
    const NAME: &'static str = "document.read";
    const PLACE: Place = Place::Inline;
    type Parameters = Reading;

    fn about() -> About {
        about::DOCUMENT_READ
    }

    fn new(Reading { documents }: Reading) -> Result<Self, Exception> {
        Ok(Self { documents })
    }

    fn documents(&self, space: &Namespace) -> Result<Vec<Wanted>, Exception> {
        let wanted = |(number, which): (usize, &Which)| {
            let tolerance = Tolerance::seconds(which.tolerance_s);
            Ok(Wanted { name: which.name(number, space)?, tolerance })
        };
        self.documents.iter().enumerate().map(wanted).collect()
    }

    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
        let space = transaction.space().clone();
        let mut documents = Vec::with_capacity(self.documents.len());
        let mut bytes = 0;
        for (number, which) in self.documents.iter().enumerate() {
            let name = which.name(number, &space)?;
            let edited = match Tolerance::seconds(which.tolerance_s) {
                Tolerance::NONE => &*transaction.current(&name)?,
                tolerance @ Tolerance(_) => transaction.recent(&name, tolerance)?,
            };
            let shown = edited.existing().filter(|(item, _)| which.shows(item));
            bytes += shown.map(|(_, content)| content.volume()).sum::<u64>();
            // Before it is made: what was read may be many times as much.
            if bytes > BODY_BYTES_MAX as u64 {
                let problem =
                    format!("would be {bytes} bytes and more; the limit is {BODY_BYTES_MAX}");
                return Err(Exception::of_field(codes::LIMIT, FieldError::new("result", problem)));
            }
            documents.push(show(which, edited)?);
        }
        transaction.answer_json(&AllShown { documents })
    }
}

fn show(which: &Which, edited: &DocumentEdit) -> Result<Shown, Exception> {
    let shown = edited.existing().filter(|(item, _)| which.shows(item));
    let items = shown.map(|(item, content)| ItemForm::of(item, content));
    Ok(Shown {
        class: which.class.clone(),
        docid: which.docid.clone(),
        exists: edited.exists(),
        ctime: edited.ctime(),
        version: edited.version(),
        items: items.collect::<Result<_, _>>()?,
    })
}

/// `{"class": ..., "docid": ...}`.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Touching {
    class: String,
    docid: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Touched {
    version: Option<Stamp>,
}

/// Gives a document a new version, and creates it when there is none: for lock documents.
pub(crate) struct DocumentTouch(Touching);

impl Operation for DocumentTouch {
    const NAME: &'static str = "document.touch";
    const PLACE: Place = Place::Inline;
    type Parameters = Touching;

    fn about() -> About {
        about::DOCUMENT_TOUCH
    }

    fn new(touching: Touching) -> Result<Self, Exception> {
        check_free(&schema(), &touching.class)?;
        Ok(Self(touching))
    }

    fn documents(&self, space: &Namespace) -> Result<Vec<Wanted>, Exception> {
        let Touching { class, docid } = &self.0;
        Ok(vec![Wanted::current(DocName::new(space, class, docid)?)])
    }

    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
        let name = transaction.name(&self.0.class, &self.0.docid)?;
        if transaction.repeated::<()>(&name)?.is_none() {
            let edited = transaction.current(&name)?;
            edited.ensure();
            edited.touch();
            transaction.remember(&name, &())?;
        }
        Ok(())
    }

    fn after_work(&mut self, done: &mut Done<'_>) -> Result<(), Exception> {
        let version = Some(done.version());
        done.answer_json(&Touched { version })
    }
}
