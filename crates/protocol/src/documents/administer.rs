//! Operations of administrators, in the namespace for configuration: `namespace.put`,
//! `namespace.set`, `namespace.switch`, `namespace.remove`, `web.put`, `web.remove`.

use crate::documents::about;
use crate::documents::form::bytes_of;
use crate::documents::write::answer_once;
use crate::ports::slots::{CONFIGURATION, SPACES_DOCID};
use rota_docstore::space::{SPACE_CLASS, WEB_BODY_CLASS, WEB_CLASS, WebHead};
use rota_docstore::{
    About, Content, Description, DocName, Exception, FieldError, ItemName, Limits, Namespace,
    Operation, Place, Transaction, Wanted, codes,
};
use serde::{Deserialize, Deserializer, Serialize};

/// Most namespaces that may read one's documents: every operation that reads looks through them.
const READERS_MAX: usize = 64;

/// The document of the namespace for configuration, if that is where the operation works. `field`: the
/// parameter that says which.
pub(crate) fn configured(
    space: &Namespace,
    class: &str,
    (field, docid): (&str, &str),
) -> Result<Vec<Wanted>, Exception> {
    if space.as_str() != CONFIGURATION {
        let problem = format!("is {space}; this operation works in {CONFIGURATION:?} only");
        return Err(Exception::of_field(codes::SPACE, FieldError::new("namespace", problem)));
    }
    let document = DocName::new(space, class, docid);
    let document = document.map_err(|it| FieldError::new(field, it.problem))?;
    Ok(vec![Wanted::current(document)])
}

fn check_name(name: &Namespace) -> Result<(), Exception> {
    if name.as_str() == CONFIGURATION {
        let problem = format!("is {CONFIGURATION:?}, the namespace for configuration");
        return Err(FieldError::new("name", problem).into());
    }
    Ok(())
}

fn check_readers(readers: &[Namespace]) -> Result<(), Exception> {
    let count = readers.len();
    if count > READERS_MAX {
        let problem = format!("are {count}; the limit is {READERS_MAX}");
        return Err(Exception::of_field(codes::LIMIT, FieldError::new("readers", problem)));
    }
    Ok(())
}

fn missing(name: &Namespace) -> Exception {
    let field = FieldError::new("name", format!("{name} does not exist"));
    Exception::of_field(codes::NAMESPACE, field)
}

fn exists(name: &Namespace) -> Exception {
    let problem = format!("{name} exists, described in another way; namespace.set changes that");
    Exception::of_field(codes::EXISTS, FieldError::new("name", problem))
}

/// What is remembered of descriptions lies in the slot of all of them, beside this.
pub(crate) fn beside_spaces(transaction: &Transaction<'_>) -> Result<DocName, FieldError> {
    transaction.name(SPACE_CLASS, SPACES_DOCID)
}

/// Ends the document's life, answers whether it existed, and remembers that.
pub(crate) fn remove(
    transaction: &mut Transaction<'_>,
    document: &DocName,
    beside: &DocName,
) -> Result<(), Exception> {
    let existed = transaction.current(document)?.destroy();
    answer_once(transaction, beside, &Removed { existed })
}

/// A namespace's description, with whether it must be new.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Describing {
    name: Namespace,
    /// It must not exist, unless it is described just so. Otherwise it must.
    #[serde(default)]
    create: bool,
    #[serde(default)]
    description: String,
    #[serde(default)]
    limits: Limits,
    #[serde(default)]
    readers: Vec<Namespace>,
}

/// Describes a namespace. One that exists stays switched on or off as it is.
pub(crate) struct NamespacePut(Describing);

impl Operation for NamespacePut {
    const NAME: &'static str = "namespace.put";
    const PLACE: Place = Place::Inline;
    type Parameters = Describing;

    fn about() -> About {
        about::NAMESPACE_PUT
    }

    fn new(describing: Describing) -> Result<Self, Exception> {
        check_name(&describing.name)?;
        check_readers(&describing.readers)?;
        Ok(Self(describing))
    }

    fn documents(&self, space: &Namespace) -> Result<Vec<Wanted>, Exception> {
        configured(space, SPACE_CLASS, ("name", self.0.name.as_str()))
    }

    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
        let Describing { name, create, description, limits, readers } = self.0.clone();
        let document = transaction.name(SPACE_CLASS, name.as_str())?;
        let beside = beside_spaces(transaction)?;
        if transaction.repeated::<()>(&beside)?.is_some() {
            return Ok(());
        }
        let edited = transaction.current(&document)?;
        let found = edited.one::<Description>()?;
        let off = found.as_ref().and_then(|it| it.off.clone());
        let suspended = found.as_ref().map(|it| it.suspended.clone()).unwrap_or_default();
        let described = Description { description, off, limits, readers, suspended };
        described.check()?;
        if create && found.as_ref() == Some(&described) {
            // Somebody asks again.
            return transaction.remember(&beside, &());
        }
        match (create, edited.exists()) {
            (true, true) => return Err(exists(&name)),
            (true, false) => edited.create()?,
            (false, true) => {}
            (false, false) => return Err(missing(&name)),
        }
        edited.put_one(&described)?;
        transaction.remember(&beside, &())
    }
}

/// What is there, `null` included, is set; what is left out stays.
fn given<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Option<u64>>, D::Error> {
    Option::deserialize(value).map(Some)
}

/// What changes of a namespace's limits.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct NewLimits {
    #[serde(default, deserialize_with = "given")]
    documents: Option<Option<u64>>,
    #[serde(default, deserialize_with = "given")]
    item_bytes: Option<Option<u64>>,
    #[serde(default, deserialize_with = "given")]
    attachment_bytes: Option<Option<u64>>,
}

/// What changes of a namespace's description.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Setting {
    name: Namespace,
    description: Option<String>,
    #[serde(default)]
    limits: NewLimits,
    #[serde(default)]
    add_readers: Vec<Namespace>,
    #[serde(default)]
    remove_readers: Vec<Namespace>,
}

impl Setting {
    pub(crate) fn apply(&self, to: Description) -> Result<Description, Exception> {
        let mut readers = to.readers;
        readers.retain(|it| !self.remove_readers.contains(it));
        for reader in &self.add_readers {
            if !readers.contains(reader) {
                readers.push(reader.clone());
            }
        }
        check_readers(&readers)?;
        let NewLimits { documents, item_bytes, attachment_bytes } = self.limits;
        let limits = Limits {
            documents: documents.unwrap_or(to.limits.documents),
            item_bytes: item_bytes.unwrap_or(to.limits.item_bytes),
            attachment_bytes: attachment_bytes.unwrap_or(to.limits.attachment_bytes),
        };
        let description = self.description.clone().unwrap_or(to.description);
        let (off, suspended) = (to.off, to.suspended);
        let described = Description { description, off, limits, readers, suspended };
        described.check()?;
        Ok(described)
    }
}

/// Changes what is given of a namespace's description.
pub(crate) struct NamespaceSet(Setting);

impl Operation for NamespaceSet {
    const NAME: &'static str = "namespace.set";
    const PLACE: Place = Place::Inline;
    type Parameters = Setting;

    fn about() -> About {
        about::NAMESPACE_SET
    }

    fn new(setting: Setting) -> Result<Self, Exception> {
        check_name(&setting.name)?;
        Ok(Self(setting))
    }

    fn documents(&self, space: &Namespace) -> Result<Vec<Wanted>, Exception> {
        configured(space, SPACE_CLASS, ("name", self.0.name.as_str()))
    }

    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
        change(transaction, &self.0.name, |found| self.0.apply(found))
    }
}

/// Changes the description of a namespace that exists, once for each request.
fn change(
    transaction: &mut Transaction<'_>,
    name: &Namespace,
    to: impl FnOnce(Description) -> Result<Description, Exception>,
) -> Result<(), Exception> {
    let document = transaction.name(SPACE_CLASS, name.as_str())?;
    let beside = beside_spaces(transaction)?;
    if transaction.repeated::<()>(&beside)?.is_some() {
        return Ok(());
    }
    let edited = transaction.current(&document)?;
    let found = edited.one::<Description>()?.ok_or_else(|| missing(name))?;
    edited.put_one(&to(found)?)?;
    transaction.remember(&beside, &())
}

/// Switches a namespace off with a message, or on without one.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Switching {
    name: Namespace,
    off: Option<String>,
}

/// Switches a namespace off or on.
pub(crate) struct NamespaceSwitch(Switching);

impl Operation for NamespaceSwitch {
    const NAME: &'static str = "namespace.switch";
    const PLACE: Place = Place::Inline;
    type Parameters = Switching;

    fn about() -> About {
        about::NAMESPACE_SWITCH
    }

    fn new(switching: Switching) -> Result<Self, Exception> {
        check_name(&switching.name)?;
        Ok(Self(switching))
    }

    fn documents(&self, space: &Namespace) -> Result<Vec<Wanted>, Exception> {
        configured(space, SPACE_CLASS, ("name", self.0.name.as_str()))
    }

    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
        let Switching { name, off } = &self.0;
        change(transaction, name, |found| {
            let described = Description { off: off.clone(), ..found };
            described.check()?;
            Ok(described)
        })
    }
}

/// `{"name": ...}`.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Removing {
    name: Namespace,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Removed {
    existed: bool,
}

/// Removes the description of a namespace that is switched off.
pub(crate) struct NamespaceRemove(Removing);

impl Operation for NamespaceRemove {
    const NAME: &'static str = "namespace.remove";
    const PLACE: Place = Place::Inline;
    type Parameters = Removing;

    fn about() -> About {
        about::NAMESPACE_REMOVE
    }

    fn new(removing: Removing) -> Result<Self, Exception> {
        check_name(&removing.name)?;
        Ok(Self(removing))
    }

    fn documents(&self, space: &Namespace) -> Result<Vec<Wanted>, Exception> {
        configured(space, SPACE_CLASS, ("name", self.0.name.as_str()))
    }

    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
        let name = &self.0.name;
        let document = transaction.name(SPACE_CLASS, name.as_str())?;
        let beside = beside_spaces(transaction)?;
        if let Some(removed) = transaction.repeated::<Removed>(&beside)? {
            return transaction.answer_json(&removed);
        }
        let edited = transaction.current(&document)?;
        if edited.one::<Description>()?.is_some_and(|it| it.off.is_none()) {
            let message = format!("namespace {name} is on; switch it off first");
            return Err(Exception::business("ON", message));
        }
        remove(transaction, &document, &beside)
    }
}

/// A web resource; its body in base64.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Publishing {
    path: String,
    mime: String,
    body: String,
}

/// Puts a small web resource, which every manager serves under `/web/PATH`.
pub(crate) struct WebPut {
    path: String,
    head: WebHead,
    body: Content,
}

impl Operation for WebPut {
    const NAME: &'static str = "web.put";
    const PLACE: Place = Place::Inline;
    type Parameters = Publishing;

    fn about() -> About {
        about::WEB_PUT
    }

    fn new(Publishing { path, mime, body }: Publishing) -> Result<Self, Exception> {
        if mime.is_empty()
            || mime.len() > 255
            || mime.contains(|it: char| !(' '..='~').contains(&it))
        {
            let problem = "must be 1 to 255 printable characters of ASCII";
            return Err(FieldError::new("mime", problem).into());
        }
        let body = Content::raw(bytes_of("body", &body)?)?;
        Ok(Self { path, head: WebHead { mime }, body })
    }

    fn documents(&self, space: &Namespace) -> Result<Vec<Wanted>, Exception> {
        configured(space, WEB_CLASS, ("path", &self.path))
    }

    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
        let document = transaction.name(WEB_CLASS, &self.path)?;
        if transaction.repeated::<()>(&document)?.is_some() {
            return Ok(());
        }
        let edited = transaction.current(&document)?;
        edited.ensure();
        edited.put_one(&self.head)?;
        edited.put_content(&ItemName::singleton(WEB_BODY_CLASS)?, self.body.clone())?;
        transaction.remember(&document, &())
    }
}

/// `{"path": ...}`.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Withdrawing {
    path: String,
}

/// Removes a web resource.
pub(crate) struct WebRemove(Withdrawing);

impl Operation for WebRemove {
    const NAME: &'static str = "web.remove";
    const PLACE: Place = Place::Inline;
    type Parameters = Withdrawing;

    fn about() -> About {
        about::WEB_REMOVE
    }

    fn new(withdrawing: Withdrawing) -> Result<Self, Exception> {
        Ok(Self(withdrawing))
    }

    fn documents(&self, space: &Namespace) -> Result<Vec<Wanted>, Exception> {
        configured(space, WEB_CLASS, ("path", &self.0.path))
    }

    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
        let path = &self.0.path;
        let document = transaction.name(WEB_CLASS, path)?;
        if let Some(removed) = transaction.repeated::<Removed>(&document)? {
            return transaction.answer_json(&removed);
        }
        remove(transaction, &document, &document)
    }
}
