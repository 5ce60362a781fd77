//! Requests of operators about namespaces, checked.

use crate::mistakes::Mistakes;
use crate::v1;
use rota_docstore::{Description, Exception, Limits, Suspended};
use rota_model::{FieldError, Namespace};

/// A namespace to create.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Create {
    /// Its name.
    pub name: Namespace,
    /// Its description; it is switched on.
    pub description: Description,
}

/// A namespace to switch off or on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Switch {
    /// Its name.
    pub name: Namespace,
    /// What its clients are told while it is off; `None`: switch it on.
    pub off: Option<String>,
}

/// What to change of a namespace's description; what is `None` stays.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Set {
    /// Its name.
    pub name: Namespace,
    /// A sentence for people.
    pub description: Option<String>,
    /// Most documents; `Some(None)`: no limit any more.
    pub documents: Option<Option<u64>>,
    /// Most bytes of documents.
    pub item_bytes: Option<Option<u64>>,
    /// Most bytes of attachments.
    pub attachment_bytes: Option<Option<u64>>,
    /// Namespaces that may read its documents from now on.
    pub add_readers: Vec<Namespace>,
    /// Namespaces that may read them no longer.
    pub remove_readers: Vec<Namespace>,
}

/// Checks the name of a namespace that must be given: field `name`.
pub fn name(name: &str) -> Result<Namespace, Exception> {
    let mut mistakes = Mistakes::default();
    let found = mistakes.note_in("name", Namespace::parse(name));
    mistakes.all(found)
}

/// Checks a namespace's description to be created.
pub fn create(request: v1::CreateNamespaceRequest) -> Result<Create, Exception> {
    let mut mistakes = Mistakes::default();
    let name = mistakes.note_in("name", Namespace::parse_new(&request.name));
    let readers = mistakes.namespaces("readers", &request.readers);
    let limits = request.limits.unwrap_or_default();
    let limits = Limits {
        documents: limits.documents,
        item_bytes: limits.item_bytes,
        attachment_bytes: limits.attachment_bytes,
    };
    let suspended = Suspended::default();
    let description = request.description;
    let description = Description { description, off: None, limits, readers, suspended };
    mistakes.note(description.check());
    mistakes.all(name.map(|name| Create { name, description }))
}

/// Checks a change of a namespace's description.
pub fn set(request: v1::SetNamespaceRequest) -> Result<Set, Exception> {
    let mut mistakes = Mistakes::default();
    let name = mistakes.note_in("name", Namespace::parse(&request.name));
    let add_readers = mistakes.namespaces("add_readers", &request.add_readers);
    let remove_readers = mistakes.namespaces("remove_readers", &request.remove_readers);
    for (at, reader) in add_readers.iter().enumerate() {
        if remove_readers.contains(reader) {
            let field = format!("add_readers[{at}]");
            mistakes.note::<()>(Err(FieldError::new(field, "stands in remove_readers, too")));
        }
    }
    let said = Description {
        description: request.description.clone().unwrap_or_default(),
        ..Description::default()
    };
    mistakes.note(said.check());
    let most = |it: Option<v1::NewLimit>| it.map(|it| it.most);
    let (documents, item_bytes, attachment_bytes) =
        (most(request.documents), most(request.item_bytes), most(request.attachment_bytes));
    let is_change = request.description.is_some()
        || [documents, item_bytes, attachment_bytes].iter().any(Option::is_some)
        || !request.add_readers.is_empty()
        || !request.remove_readers.is_empty();
    if !is_change {
        let problem = "nothing is to be changed of it; set at least one other field";
        mistakes.note::<()>(Err(FieldError::new("name", problem)));
    }
    let description = request.description;
    let set = |name| Set {
        name,
        description,
        documents,
        item_bytes,
        attachment_bytes,
        add_readers,
        remove_readers,
    };
    mistakes.all(name.map(set))
}

/// Checks a switch.
pub fn switch(request: v1::SwitchNamespaceRequest) -> Result<Switch, Exception> {
    let mut mistakes = Mistakes::default();
    let name = mistakes.note_in("name", Namespace::parse(&request.name));
    let off = request.off.then_some(request.message.clone());
    let description = Description { off: off.clone(), ..Description::default() };
    let checked = description.check();
    mistakes.note_in("message", checked);
    if !request.off && !request.message.is_empty() {
        let problem = "is told while it is off; leave it out to switch it on";
        mistakes.note::<()>(Err(FieldError::new("message", problem)));
    }
    mistakes.all(name.map(|name| Switch { name, off }))
}

// The way back.

impl From<&Create> for v1::CreateNamespaceRequest {
    fn from(it: &Create) -> Self {
        let Description { description, off: _, limits, readers, suspended: _ } = &it.description;
        Self {
            name: it.name.as_str().into(),
            description: description.clone(),
            limits: Some((*limits).into()),
            readers: readers.iter().map(|it| it.as_str().into()).collect(),
        }
    }
}

impl From<&Switch> for v1::SwitchNamespaceRequest {
    fn from(it: &Switch) -> Self {
        Self {
            name: it.name.as_str().into(),
            off: it.off.is_some(),
            message: it.off.clone().unwrap_or_default(),
        }
    }
}

impl From<&Set> for v1::SetNamespaceRequest {
    fn from(it: &Set) -> Self {
        let most = |it: Option<Option<u64>>| it.map(|most| v1::NewLimit { most });
        let names = |them: &[Namespace]| them.iter().map(|it| it.as_str().into()).collect();
        Self {
            name: it.name.as_str().into(),
            description: it.description.clone(),
            documents: most(it.documents),
            item_bytes: most(it.item_bytes),
            attachment_bytes: most(it.attachment_bytes),
            add_readers: names(&it.add_readers),
            remove_readers: names(&it.remove_readers),
        }
    }
}
