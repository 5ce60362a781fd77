//! Running a request to its end, without waiting: the driver does the waiting.
//!
//! ```text
//!            ┌──────────── Fetch (bring documents into the cache) ◀─┐
//!            ▼                                                      │
//!   Run::new ─▶ work ──────────────────────────────────▶ Ready ─────┼─▶ validate ─▶ Commit ─▶ finish
//!            ▲   │                                                  │      │          │         │
//!            └───┴── Pause (growing; at most 3 attempts) ◀──────────┴──────┘       durable    Answer
//!                    Failed: the caller is told
//! ```
//!
//! An answer must wait until its commit, and all before it, are durable.

use crate::attempt::{Attempt, Body, DOCUMENTS_MAX, Need, Transaction};
use crate::cache::Cache;
use crate::commit::Commit;
use crate::documents::Documents;
use crate::exception::{Exception, Phase, codes};
use crate::name::DocName;
use crate::operation::{Done, Operation, Operations, Running};
use crate::request::Request;
use crate::rules::Rules;
use crate::store::Store;
use crate::sync::{Update, update_for};
use rota_model::{FieldError, Stamp};
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Most attempts at one request.
pub const ATTEMPTS_MAX: u8 = 3;
/// Pauses before the second and the third attempt, in milliseconds: the operations that were in the
/// way take a few milliseconds each, and a crowd of them some hundred.
pub const PAUSES_MS: [u64; 2] = [20, 200];
/// Most times that one request may send its driver for documents. Each time it can ask for all
/// that it knows, so a second time is rare; more mean that others crowd the cache, or that copies are
/// stale before they arrive. (One that needs more than the cache holds is refused at once.)
pub const FETCHES_MAX: u8 = 8;
/// Most times that one request may be begun again with more documents of the store itself in its snapshot:
/// each time for another one, in each attempt.
const LOOKS_MAX: u8 = 96;
const _: () = assert!(LOOKS_MAX as usize == ATTEMPTS_MAX as usize * DOCUMENTS_MAX);

/// What to do next with a [`Run`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Next {
    /// Call [`Run::validate`].
    Validate,
    /// Bring these documents into the cache, or into the snapshot if the store itself has them
    /// ([`Documents::is_at_hand`]), then call [`Run::work`] again; or, when they cannot be brought,
    /// [`Run::fetch_failed`].
    Fetch(Vec<Need>),
    /// Wait that long, then call [`Run::work`] again.
    Pause {
        /// Milliseconds.
        ms: u64,
    },
    /// It is over: tell the caller.
    Failed(Exception),
}

/// What [`Run::validate`] found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Validated {
    /// Make the commit durable, and call [`Run::finish`].
    Valid(Commit),
    /// Wait that long, then call [`Run::work`] again.
    Pause {
        /// Milliseconds.
        ms: u64,
    },
    /// It is over: tell the caller.
    Failed(Exception),
}

/// What the caller of an operation gets.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Answer {
    /// The operation's version; for a repetition, that of the first time.
    pub version: Stamp,
    /// The result.
    pub body: Body,
    /// Updates of the documents that the caller named, in its order. Empty when the result is
    /// binary.
    pub updates: Vec<(DocName, Update)>,
}

/// A request on its way.
pub struct Run {
    request: Arc<Request>,
    progress: Progress,
    /// An operation that has worked; its attempt, until that is validated.
    ready: Option<(Box<dyn Running>, Option<Attempt>)>,
    /// Makes the operation of each attempt; `None`: it is looked up by its name.
    make: Option<Make>,
}

type Make = Box<dyn Fn() -> Box<dyn Running> + Send>;

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("request", &self.request)
            .field("attempts", &self.progress.attempts)
            .finish_non_exhaustive()
    }
}

/// How far a run is that waits: for a pause to end, or for documents. With its request it is all
/// that a driver must keep meanwhile.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Progress {
    attempts: u8,
    fetches: u8,
    /// How often it was begun again for documents of the store itself.
    looks: u8,
    /// What was fetched for it, and the bytes that each takes in the cache.
    fetched: BTreeMap<DocName, u64>,
    /// While documents are fetched: when the attempt asked for them. The one that goes on with them
    /// is not a new one.
    fetching: Option<Phase>,
}

impl Progress {
    /// A document came for this request: it takes so many bytes of the cache, which may have up to
    /// `limit`. A-LIMIT when all that came take more: some of it would be missing again each time.
    pub fn fetched(&mut self, name: &DocName, bytes: u64, limit: u64) -> Result<(), Exception> {
        self.fetched.insert(name.clone(), bytes);
        let (count, all) = (self.fetched.len(), self.fetched.values().sum::<u64>());
        if all <= limit {
            return Ok(());
        }
        let what = if bytes > limit {
            format!("{name} takes {bytes}")
        } else {
            format!("{count} documents, {name} with {bytes} among them, take {all}")
        };
        let problem = format!(
            "of elsewhere do not fit: {what} bytes of memory; the limit is {limit}, what the cache \
             for them may take"
        );
        Err(Exception::of_field(codes::LIMIT, FieldError::new("documents", problem)))
    }
}

impl Run {
    /// A request that has not begun.
    pub fn new(request: Request) -> Self {
        Self::resume(Arc::new(request), Progress::default())
    }

    /// A request for this very operation, which no registry needs to know: a program's own. Each
    /// attempt begins with a clone of it. The request gets the operation's name, and its parameters
    /// are not looked at.
    pub fn of<T: Operation + Clone>(request: Request, operation: T) -> Self {
        let mut request = request;
        if request.operation != T::NAME {
            request.operation = T::NAME.to_owned();
        }
        let make = move || -> Box<dyn Running> { Box::new(operation.clone()) };
        Self { make: Some(Box::new(make)), ..Self::new(request) }
    }

    /// The same request from its beginning: what was done so far counts as never begun. For a driver
    /// that could not take a valid commit over, and waits until it can.
    #[must_use]
    pub fn afresh(self) -> Self {
        let Self { request, make, .. } = self;
        Self { request, progress: Progress::default(), ready: None, make }
    }

    /// A request that goes on where it waited. [`Progress::default`]: it has not begun.
    pub fn resume(request: Arc<Request>, progress: Progress) -> Self {
        Self { request, progress, ready: None, make: None }
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        self.progress.clone()
    }

    /// See [`Progress::fetched`].
    pub fn fetched(&mut self, name: &DocName, bytes: u64, limit: u64) -> Result<(), Exception> {
        self.progress.fetched(name, bytes, limit)
    }

    /// The request.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// Attempts begun so far.
    pub fn attempts(&self) -> u8 {
        self.progress.attempts
    }

    /// Checks the request (the first time), makes a new operation and lets it work.
    pub fn work(
        &mut self,
        operations: &Operations,
        rules: &Rules,
        documents: &dyn Documents,
        cache: Option<&mut Cache>,
        now: Stamp,
    ) -> Next {
        let checked = match self.progress.attempts {
            0 => guard(Phase::Before, || self.request.check(rules, documents, now)),
            // It may have been switched off during a pause.
            _ => documents.spaces().check_open(&self.request.space).map_err(before),
        };
        if let Err(exception) = checked {
            return Next::Failed(self.named(exception));
        }
        if self.progress.fetching.take().is_none() {
            self.progress.attempts += 1;
            self.progress.fetched.clear();
        }
        let request = &self.request;
        let made = match &self.make {
            Some(make) => Ok(make()),
            None => guard(Phase::Before, || {
                operations.make(&request.operation, request.parameters.as_ref())
            }),
        };
        let mut operation = match made {
            Ok(operation) => operation,
            Err(exception) => return Next::Failed(self.named(before(exception))),
        };
        let mut attempt = Attempt::at(Arc::clone(request), now);
        let mut transaction = Transaction::new(rules, documents, cache, &mut attempt);
        let worked = transaction
            .begin_task()
            .and_then(|()| open(&*operation, &mut transaction).map_err(before))
            .and_then(|()| guard(Phase::Work, || operation.work(&mut transaction)))
            .and_then(|()| guard(Phase::Work, || transaction.leave_copying()))
            .and_then(|()| guard(Phase::Work, || transaction.end_task()));
        let needs = attempt.take_needs();
        match worked {
            // Also when the operation swallowed the exception: it worked without a document.
            _ if !needs.is_empty() => {
                let phase = worked.err().map_or(Phase::Work, |it| it.phase());
                self.fetch(needs, phase, rules)
            }
            Ok(()) => {
                self.ready = Some((operation, Some(attempt)));
                Next::Validate
            }
            Err(exception) => match self.pause(&exception) {
                Some(ms) => Next::Pause { ms },
                None => Next::Failed(self.named(exception)),
            },
        }
    }

    fn fetch(&mut self, needs: Vec<Need>, phase: Phase, rules: &Rules) -> Next {
        let territory = &rules.territory;
        let is_here = |it: &Need| territory.holds(territory.slot_of(&it.name));
        let (made, most) = if needs.iter().all(is_here) {
            (&mut self.progress.looks, LOOKS_MAX)
        } else {
            (&mut self.progress.fetches, FETCHES_MAX)
        };
        *made += 1;
        if *made <= most {
            self.progress.fetching = Some(phase);
            return Next::Fetch(needs);
        }
        let names: Vec<_> = needs.iter().map(|it| it.name.to_string()).collect();
        let message = format!("not at hand in a copy that is fresh enough: {}", names.join(", "));
        let exception = Exception::new(codes::NOT_AT_HAND, message).at(phase);
        Next::Failed(self.named(exception))
    }

    /// The documents of [`Next::Fetch`] cannot be brought: that ends the attempt as if the operation
    /// had raised this where it asked for them. Gives the milliseconds to wait for the next attempt,
    /// or what to tell the caller.
    pub fn fetch_failed(&mut self, exception: Exception) -> Result<u64, Exception> {
        let phase = self.progress.fetching.take().unwrap_or(Phase::Work);
        let exception = exception.at(phase);
        self.pause(&exception).ok_or_else(|| self.named(exception))
    }

    /// Validates what [`Run::work`] made ready, and takes it over into the store.
    pub fn validate(&mut self, rules: &Rules, store: &mut Store, now: Stamp) -> Validated {
        self.validate_with(|attempt| store.commit(rules, attempt, now))
    }

    /// Like [`Run::validate`], for documents that are kept in another way: `commit` calls
    /// [`crate::validate`] and takes over the writes.
    pub fn validate_with(
        &mut self,
        commit: impl FnOnce(Attempt) -> Result<Commit, Exception>,
    ) -> Validated {
        let Some((operation, Some(attempt))) = self.ready.take() else {
            let exception = Exception::new(codes::MISUSE, "validated before it has worked");
            return Validated::Failed(self.named(exception.at(Phase::Validation)));
        };
        match commit(attempt) {
            Ok(commit) => {
                self.ready = Some((operation, None));
                Validated::Valid(commit)
            }
            Err(exception) => match self.pause(&exception) {
                Some(ms) => Validated::Pause { ms },
                None => Validated::Failed(self.named(exception)),
            },
        }
    }

    /// Calls `after_work()` and brings the caller's documents up to date. Call it right after the
    /// commit was taken over; keep the answer, or the exception of phase 3 or 4, until the commit is
    /// durable.
    pub fn finish(self, documents: &dyn Documents, commit: &Commit) -> Result<Answer, Exception> {
        let version = commit.done_at.unwrap_or(commit.version);
        let mut body = commit.body.clone();
        let request = Arc::clone(&self.request);
        let named = |it: Exception| it.in_operation(&request.operation, self.progress.attempts);
        // A task has no result, so there is nothing for it to change.
        if let Some((mut operation, _)) = self.ready.filter(|_| request.task.is_none()) {
            let mut done = Done { version, body: &mut body };
            guard(Phase::AfterWork, || operation.after_work(&mut done)).map_err(named)?;
        }
        let updates = match &body {
            Body::Binary { .. } => Vec::new(),
            Body::Nothing | Body::Json(_) => {
                let synchronised = || Ok(synchronise(&request, documents));
                guard(Phase::Synchronisation, synchronised).map_err(named)?
            }
        };
        Ok(Answer { version, body, updates })
    }

    /// What to tell the caller when the driver gives up: this, and how far the operation was.
    pub fn given_up(&self, exception: Exception) -> Exception {
        self.named(exception)
    }

    /// How long to wait for the next attempt, if there is one.
    fn pause(&self, exception: &Exception) -> Option<u64> {
        let made = usize::from(self.progress.attempts).checked_sub(1)?;
        PAUSES_MS.get(made).copied().filter(|_| exception.is_retried())
    }

    fn named(&self, exception: Exception) -> Exception {
        exception.in_operation(&self.request.operation, self.progress.attempts)
    }
}

fn before(exception: Exception) -> Exception {
    exception.at(Phase::Before)
}

fn open(operation: &dyn Running, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
    let space = transaction.space().clone();
    let wanted = guard(Phase::Before, || operation.documents(&space))?;
    transaction.open(&wanted)
}

fn synchronise(request: &Request, documents: &dyn Documents) -> Vec<(DocName, Update)> {
    if request.syncs.is_empty() {
        return Vec::new();
    }
    let as_of = documents.known_through();
    let update = |sync: &crate::SyncRequest| {
        let document = documents.get(&sync.name);
        let update = update_for(document.as_ref(), sync.held.as_ref(), as_of);
        (sync.name.clone(), update.without_memories())
    };
    request.syncs.iter().map(update).collect()
}

/// Runs code of the application, or of its container of documents: a panic becomes an X exception.
/// Nothing that the code touched is looked at after it panicked.
pub fn guarded<T>(code: impl FnOnce() -> Result<T, Exception>) -> Result<T, Exception> {
    let panicked = |cause: Box<dyn Any + Send>| {
        let text = cause.downcast_ref::<&str>().map(|it| (*it).to_owned());
        let text = text.or_else(|| cause.downcast_ref::<String>().cloned());
        let message = text.unwrap_or_else(|| "for an unknown reason".to_owned());
        Err(Exception::new(codes::PANIC, format!("code of the application panicked: {message}")))
    };
    catch_unwind(AssertUnwindSafe(code)).unwrap_or_else(panicked)
}

fn guard<T>(phase: Phase, code: impl FnOnce() -> Result<T, Exception>) -> Result<T, Exception> {
    guarded(code).map_err(|it| it.at(phase))
}

impl Store {
    /// Runs a request to its end at once, for stores without a driver: nothing else can happen
    /// meanwhile, so there is nothing to wait for. Documents of elsewhere are not at hand.
    pub fn perform(
        &mut self,
        operations: &Operations,
        rules: &Rules,
        request: Request,
        now: Stamp,
    ) -> Result<Answer, Exception> {
        let mut run = Run::new(request);
        loop {
            match run.work(operations, rules, self, None, now) {
                Next::Validate => {}
                // The count of fetches ends this.
                Next::Fetch(_) | Next::Pause { .. } => continue,
                Next::Failed(exception) => return Err(exception),
            }
            match run.validate(rules, self, now) {
                Validated::Valid(commit) => return run.finish(self, &commit),
                Validated::Pause { .. } => {}
                Validated::Failed(exception) => return Err(exception),
            }
        }
    }
}
