//! Operations: what an application can do with documents, each under a name.

use crate::attempt::{Body, Transaction, Wanted};
use crate::content::JsonText;
use crate::exception::{Exception, codes};
use crate::name::check_word;
use crate::request::OPERATION_BYTES_MAX;
use rota_model::{FieldError, Namespace, Stamp};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Where an operation works, at a driver that does other things, too.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Place {
    /// In the one stream of the driver's decisions, on the documents themselves. No other operation comes
    /// between its work and its validation. Everything else waits meanwhile: for work of microseconds.
    Inline,
    /// Beside the decisions, on a snapshot of the documents. What changes them meanwhile is found by the
    /// validation (C-CONTENTION), and the operation works again, on a new snapshot.
    Worker,
}

/// What callers are told of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct About {
    /// What it does, in a sentence or two, and where it runs. May be empty.
    pub summary: &'static str,
    /// Its parameters: a JSON Schema. Empty: they are not told.
    pub parameters: &'static str,
    /// Parameters that it takes, as JSON. Empty: there is no example.
    pub example: &'static str,
}

/// An operation of an application. Each attempt makes a new value of the type, calls
/// [`Operation::work`], validates, and calls [`Operation::after_work`].
///
/// It reads and changes documents through the [`Transaction`] only. It must be safe to repeat: what it is
/// asked for a second time, it finds done ([`Transaction::repeated`]) or may do again without harm.
pub trait Operation: Send + Sized + 'static {
    /// The name by which callers ask for it.
    const NAME: &'static str;
    /// Where a manager lets it work. Default: [`Place::Worker`], which is right for whatever computes,
    /// waits, or takes more than some ten microseconds. [`Place::Inline`] is faster for short work, above
    /// all where many change one document. A store that stands alone works in its caller's thread.
    const PLACE: Place = Place::Worker;
    /// What it is told. Without parameters in the request, it is read from an empty JSON object.
    type Parameters: DeserializeOwned;

    /// What callers are told of it. Default: its name alone.
    fn about() -> About {
        About::default()
    }

    /// From its parameters; refuses those that can never work. It is made anew for each attempt, and
    /// where it works.
    fn new(parameters: Self::Parameters) -> Result<Self, Exception>;

    /// Documents that it knows it will need: they are checked and opened before any work, so what
    /// is wrong with them (another slot, one too many) is told in phase 0. What `work()` asks for
    /// beyond them is checked there, and then nothing is committed either.
    fn documents(&self, space: &Namespace) -> Result<Vec<Wanted>, Exception> {
        let _ = space;
        Ok(Vec::new())
    }

    /// Reads, decides, changes, answers.
    ///
    /// At [`Place::Worker`] of a manager it may take as long as the manager's quota allows (10 s by
    /// default). Then its caller is told X-QUOTA, and what it comes to later changes nothing. Nothing can
    /// stop it, so it holds its worker until it returns: of these a manager has few (8 by default), and
    /// more operations are told X-BUSY. So it must end by itself, and give whatever it waits for a
    /// deadline. Several attempts may work at once, and one whose result could not be kept just then (a copy
    /// was away, or the log was full) works again: what it does outside of its documents must bear that.
    ///
    /// A worker sees the documents of the operation's slot, up to a number. It is begun again when it asks
    /// for others, also with [`Operation::documents`]: name or read what it needs before it computes.
    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception>;

    /// After the validation: the version is known and may go into the result. The changes are
    /// valid, whatever happens here. It always stands in the stream of a manager's decisions, so it must
    /// take microseconds: what computes belongs into [`Operation::work`].
    fn after_work(&mut self, done: &mut Done<'_>) -> Result<(), Exception> {
        let _ = done;
        Ok(())
    }
}

/// An operation that is valid, for [`Operation::after_work`].
#[derive(Debug)]
pub struct Done<'a> {
    pub(crate) version: Stamp,
    pub(crate) body: &'a mut Body,
}

impl Done<'_> {
    /// The version of what the operation changed: for a repetition, that of the first time.
    pub fn version(&self) -> Stamp {
        self.version
    }

    /// The result so far.
    pub fn body(&self) -> &Body {
        self.body
    }

    /// Sets the result to a JSON value without null fields.
    pub fn answer_json<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Exception> {
        *self.body = Body::json(value)?;
        Ok(())
    }
}

/// An operation of any type.
pub(crate) trait Running: Send {
    fn documents(&self, space: &Namespace) -> Result<Vec<Wanted>, Exception>;
    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception>;
    fn after_work(&mut self, done: &mut Done<'_>) -> Result<(), Exception>;
}

impl<T: Operation> Running for T {
    fn documents(&self, space: &Namespace) -> Result<Vec<Wanted>, Exception> {
        Operation::documents(self, space)
    }
    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
        Operation::work(self, transaction)
    }
    fn after_work(&mut self, done: &mut Done<'_>) -> Result<(), Exception> {
        Operation::after_work(self, done)
    }
}

type Make = fn(Option<&JsonText>) -> Result<Box<dyn Running>, Exception>;

/// What is known of a registered operation.
#[derive(Clone, Copy)]
struct Registered {
    make: Make,
    place: Place,
    about: About,
    /// Callers are not told of it.
    is_hidden: bool,
}

/// So many are named to whoever asks for one that does not exist.
const NAMED_MAX: usize = 10;

/// Most characters of what is wrong with parameters: it may repeat them.
const PROBLEM_MAX: usize = 400;

/// The operations that callers may ask for, by name. Made once at start; clones share them.
#[derive(Clone, Default)]
pub struct Operations(Arc<BTreeMap<&'static str, Registered>>);

impl Operations {
    /// No operation yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an operation. Panics, as all this stands in the code, when a name is used twice or is not
    /// valid, and when its schema or example is no JSON.
    #[must_use]
    pub fn with<T: Operation>(self) -> Self {
        self.and::<T>(false)
    }

    /// Adds an operation of which callers are not told: one that refuses them.
    #[must_use]
    pub fn with_hidden<T: Operation>(self) -> Self {
        self.and::<T>(true)
    }

    fn and<T: Operation>(mut self, is_hidden: bool) -> Self {
        let name = T::NAME;
        check_word("operation", name, OPERATION_BYTES_MAX).expect("names in the code are valid");
        let about = T::about();
        for text in [about.parameters, about.example].into_iter().filter(|it| !it.is_empty()) {
            JsonText::parse(text).expect("what is told of an operation is JSON");
        }
        let registered = Registered { make: make::<T>, place: T::PLACE, about, is_hidden };
        let known = Arc::make_mut(&mut self.0).insert(name, registered);
        assert!(known.is_none(), "operation {name} is registered twice");
        self
    }

    /// All names that callers are told, in order.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.abouts().map(|(name, _)| name)
    }

    /// What callers are told of each, in order of name.
    pub fn abouts(&self) -> impl Iterator<Item = (&'static str, About)> {
        self.0.iter().filter(|(_, it)| !it.is_hidden).map(|(name, it)| (*name, it.about))
    }

    /// Refuses what the operation of that name can never work with, as [`Operation::new`] does.
    pub fn check(&self, name: &str, parameters: Option<&JsonText>) -> Result<(), Exception> {
        self.make(name, parameters).map(|_| ())
    }

    /// Where the operation of that name works. One that does not exist is refused anywhere.
    pub fn place_of(&self, name: &str) -> Place {
        self.0.get(name).map_or(Place::Inline, |it| it.place)
    }

    /// A new operation of that name: N-OPERATION, or A-INVALID for its parameters.
    pub(crate) fn make(
        &self,
        name: &str,
        parameters: Option<&JsonText>,
    ) -> Result<Box<dyn Running>, Exception> {
        let unknown = || {
            let names: Vec<&str> = self.names().take(NAMED_MAX).collect();
            let problem = format!("{name:?} does not exist; there are {}", names.join(", "));
            Exception::of_field(codes::OPERATION, FieldError::new("operation", problem))
        };
        (self.0.get(name).ok_or_else(unknown)?.make)(parameters)
    }
}

impl fmt::Debug for Operations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

fn make<T: Operation>(parameters: Option<&JsonText>) -> Result<Box<dyn Running>, Exception> {
    let text = parameters.map_or("{}", JsonText::as_str);
    let parameters = serde_json::from_str(text).map_err(|error| {
        let error: String = error.to_string().chars().take(PROBLEM_MAX).collect();
        FieldError::new("parameters", format!("do not fit operation {}: {error}", T::NAME))
    })?;
    Ok(Box::new(T::new(parameters)?))
}
