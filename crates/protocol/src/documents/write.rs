//! `document.write`: changes documents without code of an application's own.

use crate::documents::about;
use crate::documents::form::{ItemAt, ItemForm, at, name_at};
use crate::documents::schema::{check_free, schema};
use crate::documents::tasks::form::TaskForm;
use crate::documents::tasks::keeper::check_no_task;
use rota_docstore::name::MEMORY_CLASS;
use rota_docstore::{
    About, Content, DOCUMENTS_MAX, DocName, Exception, FieldError, ItemName, Namespace, NewTask,
    Operation, Place, Schema, Stamp, Transaction, Wanted, codes,
};
use serde::{Deserialize, Serialize};

/// Most tasks that one operation leaves.
const TASKS_MAX: usize = 4;

/// What becomes of the document's life.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Life {
    /// It must exist.
    #[default]
    Keep,
    /// It must not exist.
    Create,
    /// It is created unless it exists.
    Ensure,
    /// It ends, with all items.
    Destroy,
}

/// What the caller expects to find. What is not given is not looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    ctime: Option<Stamp>,
    version: Option<Stamp>,
}

/// Changes of one document.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    class: String,
    docid: String,
    #[serde(default)]
    life: Life,
    expect: Option<Expected>,
    #[serde(default)]
    put: Vec<ItemForm>,
    #[serde(default)]
    remove: Vec<ItemAt>,
    /// A new version even if nothing changes.
    #[serde(default)]
    touch: bool,
}

/// `{"changes": [...]}`, at least one.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Parameters {
    changes: Vec<Change>,
    /// Work that is left for later, registered in the same commit.
    #[serde(default)]
    tasks: Vec<TaskForm>,
}

/// What became of one document.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Changed {
    class: String,
    docid: String,
    /// Before.
    existed: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Answered {
    documents: Vec<Changed>,
    /// Ids of the documents of tasks that were registered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tasks: Vec<String>,
}

/// Changes documents of one slot, all or none.
///
/// It is remembered beside the first document, which may end.
pub(crate) struct DocumentWrite {
    changes: Vec<Change>,
    contents: Vec<Vec<(ItemName, Content)>>,
    tasks: Vec<NewTask>,
    schema: Schema,
}

impl Operation for DocumentWrite {
    const NAME: &'static str = "document.write";
    const PLACE: Place = Place::Inline;
    type Parameters = Parameters;

    fn about() -> About {
        about::DOCUMENT_WRITE
    }

    fn new(Parameters { changes, tasks }: Parameters) -> Result<Self, Exception> {
        // Half of what an operation may ask for: it also asks for what it remembers.
        let limit = DOCUMENTS_MAX / 2;
        if changes.is_empty() || changes.len() > limit {
            let problem = format!("are {}; there must be 1 to {limit}", changes.len());
            let code = if changes.is_empty() { codes::INVALID } else { codes::LIMIT };
            return Err(Exception::of_field(code, FieldError::new("changes", problem)));
        }
        let count = tasks.len();
        if count > TASKS_MAX {
            let problem = format!("are {count}; the limit is {TASKS_MAX}");
            return Err(Exception::of_field(codes::LIMIT, FieldError::new("tasks", problem)));
        }
        let tasks = tasks.iter().map(TaskForm::new_task).collect::<Result<_, _>>()?;
        let schema = schema();
        let mut contents = Vec::with_capacity(changes.len());
        for (number, change) in changes.iter().enumerate() {
            let place = format!("changes[{number}]");
            check_free(&schema, &change.class)?;
            check_whole(change).map_err(|it| at(&place, it))?;
            contents.push(contents_of(&place, change)?);
        }
        Ok(Self { changes, contents, tasks, schema })
    }

    fn documents(&self, space: &Namespace) -> Result<Vec<Wanted>, Exception> {
        let wanted = |(at, change): (usize, &Change)| {
            name_at(&format!("changes[{at}]"), space, &change.class, &change.docid)
                .map(Wanted::current)
        };
        self.changes.iter().enumerate().map(wanted).collect()
    }

    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
        let beside = transaction.name(&self.changes[0].class, &self.changes[0].docid)?;
        if let Some(answered) = transaction.repeated::<Answered>(&beside)? {
            return transaction.answer_json(&answered);
        }
        let mut documents = Vec::with_capacity(self.changes.len());
        for (change, contents) in self.changes.iter().zip(&self.contents) {
            let name = transaction.name(&change.class, &change.docid)?;
            let existed = transaction.current(&name)?.exists();
            make(transaction, &self.schema, &name, change, contents)?;
            let (class, docid) = (change.class.clone(), change.docid.clone());
            documents.push(Changed { class, docid, existed });
        }
        if !self.tasks.is_empty() {
            check_no_task(transaction, "tasks")?;
        }
        let mut tasks = Vec::with_capacity(self.tasks.len());
        for task in &self.tasks {
            tasks.push(transaction.register_task(task)?);
        }
        answer_once(transaction, &beside, &Answered { documents, tasks })
    }
}

/// Refuses changes of which some would be lost.
fn check_whole(change: &Change) -> Result<(), FieldError> {
    let has_items = !change.put.is_empty() || !change.remove.is_empty() || change.touch;
    if change.life == Life::Destroy && has_items {
        return Err(FieldError::new("life", "is destroy, which goes with no other change"));
    }
    Ok(())
}

fn contents_of(place: &str, change: &Change) -> Result<Vec<(ItemName, Content)>, Exception> {
    let mut contents = Vec::with_capacity(change.put.len());
    for (number, item) in change.put.iter().enumerate() {
        let place = format!("{place}.put[{number}]");
        check_item_class(&item.class).map_err(|it| at(&place, it))?;
        let content = item.content().map_err(|it| at(&place, it))?;
        contents.push((item.name().map_err(|it| at(&place, it))?, content));
    }
    for (number, item) in change.remove.iter().enumerate() {
        let place = format!("{place}.remove[{number}]");
        let named = check_item_class(&item.class).and_then(|()| item.name());
        named.map_err(|it| at(&place, it))?;
    }
    Ok(contents)
}

fn check_item_class(class: &str) -> Result<(), FieldError> {
    if class == MEMORY_CLASS {
        let problem = format!("{class:?} holds remembered operations, and is not written so");
        return Err(FieldError::new("class", problem));
    }
    Ok(())
}

fn make(
    transaction: &mut Transaction<'_>,
    schema: &Schema,
    name: &DocName,
    change: &Change,
    contents: &[(ItemName, Content)],
) -> Result<(), Exception> {
    let edited = transaction.current(name)?;
    if let Some(expected) = &change.expect {
        check_expected(name, expected, edited.ctime(), edited.version())?;
    }
    match change.life {
        Life::Keep => edited.must_exist()?,
        Life::Create => edited.create()?,
        Life::Ensure => {
            edited.ensure();
        }
        Life::Destroy => {
            edited.destroy();
            return Ok(());
        }
    }
    for (item, content) in contents {
        schema.check_foreign(name.class(), item, content)?;
        edited.put_content(item, content.clone())?;
    }
    for item in &change.remove {
        edited.remove(&item.class, item.key.as_deref())?;
    }
    if change.touch {
        edited.touch();
    }
    Ok(())
}

/// A-EXPECTED, when the document has changed since the caller looked at it.
fn check_expected(
    name: &DocName,
    expected: &Expected,
    ctime: Option<Stamp>,
    version: Option<Stamp>,
) -> Result<(), Exception> {
    let parts = [("ctime", expected.ctime, ctime), ("version", expected.version, version)];
    for (what, wanted, found) in parts {
        if wanted.is_some() && wanted != found {
            let text = |it: Option<Stamp>| it.map_or("none".to_owned(), |it| it.to_string());
            let message = format!("{what} of {name} is {}, not {}", text(found), text(wanted));
            return Err(Exception::business("EXPECTED", message));
        }
    }
    Ok(())
}

/// Answers, and remembers that beside the document.
pub(crate) fn answer_once<T: Serialize>(
    transaction: &mut Transaction<'_>,
    beside: &DocName,
    answer: &T,
) -> Result<(), Exception> {
    transaction.remember(beside, answer)?;
    transaction.answer_json(answer)
}
