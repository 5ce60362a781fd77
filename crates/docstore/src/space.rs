//! Namespaces: separate spaces of documents, described by documents of the space for
//! configuration.
//!
//! A description is a document of class `Space` in the space for configuration (`z` by default);
//! its id is the name of the space that it describes, and its singleton `Desc` is a
//! [`Description`]. A store that holds these documents learns from each change by itself; others
//! are told by [`Spaces::learn`].

use crate::document::Document;
use crate::exception::{Exception, codes};
use crate::name::{DocName, MEMORY_CLASS, check_word};
use crate::schema::{Schema, Singleton};
use rota_model::{FieldError, Namespace, Stamp};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The class of documents that describe namespaces.
pub const SPACE_CLASS: &str = "Space";
/// The class of documents that hold small web resources: a singleton `Head` ([`WebHead`]) and the
/// raw singleton `Body`. Their id is the path under which they are served.
pub const WEB_CLASS: &str = "Web";
/// The class of a web resource's body.
pub const WEB_BODY_CLASS: &str = "Body";
/// Longest description and longest message, in bytes.
pub const TEXT_BYTES_MAX: usize = 1_024;

/// How much a namespace may hold. `None`: as much as there is room for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Documents that exist.
    pub documents: Option<u64>,
    /// Bytes of names and contents of items.
    pub item_bytes: Option<u64>,
    /// Bytes of attachments.
    pub attachment_bytes: Option<u64>,
}

/// How much a namespace holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Usage {
    /// Documents that exist.
    pub documents: u64,
    /// Bytes of names and contents of items.
    pub item_bytes: u64,
    /// Bytes of attachments.
    pub attachment_bytes: u64,
}

impl Usage {
    /// What one document adds: nothing when its life has ended, or when it only remembers operations
    /// beyond the lives of others (class `H`).
    pub fn of(document: Option<&Document>) -> Self {
        let counts = |it: &&Document| !it.is_deleted() && it.name().class() != MEMORY_CLASS;
        match document.filter(counts) {
            Some(it) => Self {
                documents: 1,
                item_bytes: it.volumes().item_bytes,
                attachment_bytes: it.volumes().attachment_bytes,
            },
            None => Self::default(),
        }
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            documents: self.documents.saturating_add(other.documents),
            item_bytes: self.item_bytes.saturating_add(other.item_bytes),
            attachment_bytes: self.attachment_bytes.saturating_add(other.attachment_bytes),
        }
    }

    /// Without the other.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self {
            documents: self.documents.saturating_sub(other.documents),
            item_bytes: self.item_bytes.saturating_sub(other.item_bytes),
            attachment_bytes: self.attachment_bytes.saturating_sub(other.attachment_bytes),
        }
    }
}

impl Limits {
    /// Refuses to grow beyond a limit; what is above it already may stay and shrink. Field:
    /// `documents`, `item_bytes` or `attachment_bytes`.
    pub fn check(&self, before: Usage, after: Usage) -> Result<(), FieldError> {
        let parts = [
            ("documents", before.documents, after.documents, self.documents),
            ("item_bytes", before.item_bytes, after.item_bytes, self.item_bytes),
            (
                "attachment_bytes",
                before.attachment_bytes,
                after.attachment_bytes,
                self.attachment_bytes,
            ),
        ];
        for (field, before, after, limit) in parts {
            if let Some(limit) = limit.filter(|limit| after > before && after > *limit) {
                let problem = format!("of the namespace would be {after}; the limit is {limit}");
                return Err(FieldError::new(field, problem));
            }
        }
        Ok(())
    }
}

/// What the space for configuration says about a namespace.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// A sentence for people.
    #[serde(default)]
    pub description: String,
    /// When there, the namespace is switched off, and this is what its callers are told.
    pub off: Option<String>,
    /// How much it may hold.
    #[serde(default)]
    pub limits: Limits,
    /// Namespaces whose operations may read its documents.
    #[serde(default)]
    pub readers: Vec<Namespace>,
    /// Which of its tasks are not started.
    #[serde(default, skip_serializing_if = "Suspended::is_nothing")]
    pub suspended: Suspended,
}

/// Tasks that are not started.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Suspended {
    /// Those of every queue.
    pub all: bool,
    /// Those of these queues.
    pub queues: BTreeSet<u8>,
}

impl Suspended {
    /// Whether tasks of a queue are not started.
    pub fn stops(&self, queue: u8) -> bool {
        self.all || self.queues.contains(&queue)
    }

    /// Whether all tasks are started.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

impl Singleton for Description {
    const CLASS: &'static str = "Desc";
}

impl Description {
    /// Refuses texts that are too long: fields `description`, `off`.
    pub fn check(&self) -> Result<(), FieldError> {
        let texts = [("description", Some(&self.description)), ("off", self.off.as_ref())];
        for (field, text) in texts {
            if let Some(text) = text.filter(|it| !it.is_empty()) {
                check_word(field, text, TEXT_BYTES_MAX)?;
            }
        }
        Ok(())
    }
}

/// What a web resource is.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebHead {
    /// Its mime type.
    pub mime: String,
}

impl Singleton for WebHead {
    const CLASS: &'static str = "Head";
}

impl Schema {
    /// Adds the classes of the space for configuration.
    #[must_use]
    pub fn with_configuration(self) -> Self {
        self.class(SPACE_CLASS, |it| it.singleton::<Description>())
            .class(WEB_CLASS, |it| it.singleton::<WebHead>().raw_singleton(WEB_BODY_CLASS))
    }
}

/// What becomes of requests to a namespace that nobody has described.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Undescribed {
    /// It is open and has no limits.
    Open,
    /// There is no such namespace (N).
    Refused,
}

/// The namespaces, as far as they are described. The space for configuration is always open.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Spaces {
    configuration: Namespace,
    undescribed: Undescribed,
    known: BTreeMap<String, Description>,
    /// Names whose description was taken away, and is remembered: whoever was refused a moment ago must
    /// not fill again what was just emptied.
    deleted: BTreeMap<String, Stamp>,
}

impl Spaces {
    /// No namespace is described yet. The space for configuration is called `z` by default: see
    /// [`Spaces::default`].
    pub fn new(configuration: Namespace, undescribed: Undescribed) -> Self {
        Self { configuration, undescribed, known: BTreeMap::new(), deleted: BTreeMap::new() }
    }

    /// The space for configuration.
    pub fn configuration(&self) -> &Namespace {
        &self.configuration
    }

    /// A description.
    pub fn get(&self, space: &str) -> Option<&Description> {
        self.known.get(space)
    }

    /// All that are described, in order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Description)> {
        self.known.iter().map(|(name, it)| (name.as_str(), it))
    }

    /// Those with a limit.
    pub fn limited(&self) -> impl Iterator<Item = &str> {
        self.iter().filter(|(_, it)| it.limits != Limits::default()).map(|(name, _)| name)
    }

    /// Takes over what a document says, if it describes a namespace: `Ok(true)`. An ended life
    /// takes the description away, and closes the namespace until it is described again or that end is
    /// forgotten. A description that does not read as one changes nothing; it is
    /// reported with the name of its document, field `document`.
    pub fn learn(&mut self, document: &Document) -> Result<bool, FieldError> {
        let name = document.name();
        if !self.is_description(name) {
            return Ok(false);
        }
        match read_description(document)? {
            Some(description) => {
                self.deleted.remove(name.docid());
                self.known.insert(name.docid().to_owned(), description);
            }
            None => {
                self.known.remove(name.docid());
                self.deleted.insert(name.docid().to_owned(), document.version());
            }
        }
        Ok(true)
    }

    /// Refuses a document that describes a namespace and cannot be learned: field `document`. An
    /// operation that writes one is not valid.
    pub fn check_description(&self, document: &Document) -> Result<(), FieldError> {
        if self.is_description(document.name()) {
            read_description(document)?
        } else {
            None
        };
        Ok(())
    }

    fn is_description(&self, name: &DocName) -> bool {
        name.class() == SPACE_CLASS && name.space() == self.configuration.as_str()
    }

    /// Forgets what a document said that is gone without trace.
    pub fn forget(&mut self, name: &DocName) {
        if self.is_description(name) {
            self.known.remove(name.docid());
            self.deleted.remove(name.docid());
        }
    }

    /// Forgets which namespaces were deleted before that.
    pub fn forget_deleted(&mut self, before: Stamp) {
        self.deleted.retain(|_, at| *at >= before);
    }

    /// Refuses a namespace that is switched off (O, with the administrator's message), that was deleted,
    /// or that is, by choice, not described (N).
    pub fn check_open(&self, space: &Namespace) -> Result<(), Exception> {
        self.check_open_named(space.as_str())
    }

    /// Like [`Spaces::check_open`], for the namespace of a document's name.
    pub fn check_open_named(&self, space: &str) -> Result<(), Exception> {
        if space == self.configuration.as_str() {
            return Ok(());
        }
        match self.known.get(space) {
            Some(Description { off: Some(message), .. }) if message.is_empty() => {
                Err(Exception::new(codes::OFF, format!("namespace {space} is switched off")))
            }
            Some(Description { off: Some(message), .. }) => {
                Err(Exception::new(codes::OFF, format!("namespace {space} is off: {message}")))
            }
            Some(Description { off: None, .. }) => Ok(()),
            None if self.deleted.contains_key(space) => {
                let problem = format!("{space} was deleted; it can be created anew");
                let field = FieldError::new("namespace", problem);
                Err(Exception::of_field(codes::NAMESPACE, field))
            }
            None => match self.undescribed {
                Undescribed::Open => Ok(()),
                Undescribed::Refused => {
                    let problem = format!("{space} does not exist");
                    let field = FieldError::new("namespace", problem);
                    Err(Exception::of_field(codes::NAMESPACE, field))
                }
            },
        }
    }

    /// Refuses to read a document of another namespace, unless that one names `reader` among its
    /// readers (S), and is not switched off (O).
    pub fn check_reads(&self, reader: &str, name: &DocName) -> Result<(), Exception> {
        self.check_reads_of(reader, name.space(), || {
            FieldError::new("document", format!("{name} must not be read from namespace {reader}"))
        })
    }

    /// The same for all documents of a namespace: field `namespace`.
    pub fn check_reads_space(&self, reader: &str, space: &str) -> Result<(), Exception> {
        self.check_reads_of(reader, space, || {
            let problem = format!("{space} must not be read from namespace {reader}");
            FieldError::new("namespace", problem)
        })
    }

    fn check_reads_of(
        &self,
        reader: &str,
        space: &str,
        refused: impl FnOnce() -> FieldError,
    ) -> Result<(), Exception> {
        let is_reader = |it: &Description| it.readers.iter().any(|it| it.as_str() == reader);
        if space == reader {
            return Ok(());
        }
        if self.known.get(space).is_some_and(is_reader) {
            return self.check_open_named(space);
        }
        Err(Exception::of_field(codes::SPACE, refused()))
    }

    /// The limits of a namespace; none for one that is not described.
    pub fn limits(&self, space: &str) -> Limits {
        self.known.get(space).map(|it| it.limits).unwrap_or_default()
    }
}

fn read_description(document: &Document) -> Result<Option<Description>, FieldError> {
    let description = document.one::<Description>();
    let checked = description.and_then(|description| {
        description.as_ref().map_or(Ok(()), Description::check)?;
        Ok(description)
    });
    checked.map_err(|it| FieldError::new("document", format!("{}: {it}", document.name())))
}

/// The space for configuration is `z`; namespaces that are not described are open.
impl Default for Spaces {
    fn default() -> Self {
        let z = Namespace::parse("z").expect("z is a valid name");
        Self::new(z, Undescribed::Open)
    }
}

/// How much each namespace holds. Only sums: it does not know which documents.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Usages {
    spaces: BTreeMap<String, Usage>,
    all: Usage,
}

impl Usages {
    /// What a namespace holds.
    pub fn get(&self, space: &str) -> Usage {
        self.spaces.get(space).copied().unwrap_or_default()
    }

    /// What all of them hold together.
    pub fn all(&self) -> Usage {
        self.all
    }

    /// Counts a change of one document.
    pub fn count(&mut self, space: &str, before: Option<&Document>, after: Option<&Document>) {
        let (before, after) = (Usage::of(before), Usage::of(after));
        if before == after {
            return;
        }
        self.all = self.all.plus(after).minus(before);
        if let Some(usage) = self.spaces.get_mut(space) {
            *usage = usage.plus(after).minus(before);
            return;
        }
        self.spaces.insert(space.to_owned(), after);
    }
}
