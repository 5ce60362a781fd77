//! Validation: what makes an attempt's changes valid, all at once and with one version, or refuses
//! them all.

use crate::attempt::{Attempt, Body};
use crate::cache::CLOCKS_APART_MS_MAX;
use crate::content::{Digest, beyond};
use crate::document::{Document, STORED_BYTES_MAX, alive};
use crate::document_edit::DocumentEdit;
use crate::documents::Documents;
use crate::exception::{Exception, Phase, codes};
use crate::name::DocName;
use crate::rules::Rules;
use crate::space::{Limits, Usage};
use rota_model::{FieldError, Stamp};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Most bytes that one operation may write, all its documents together: they travel, and reach the
/// disk, as one. More than any document has.
pub const WRITTEN_BYTES_MAX: u64 = 32 * 1024 * 1024;
const _: () = assert!(WRITTEN_BYTES_MAX > STORED_BYTES_MAX);

/// How far a change may take versions ahead of the clock, in milliseconds: half of what caches bear
/// ([`CLOCKS_APART_MS_MAX`]), so that the other half is left for clocks that differ.
pub const AHEAD_MS_MAX: u64 = CLOCKS_APART_MS_MAX / 2;

/// One document of a write set.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Write {
    /// Which.
    pub name: DocName,
    /// What was stored.
    pub before: Option<Arc<Document>>,
    /// What is stored from now on; `None`: no trace is left.
    pub after: Option<Arc<Document>>,
}

/// A valid operation. The driver makes the writes and the high-water mark durable together, and
/// lets the answer go only then.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Commit {
    /// The operation's version: that of every document and item it changed.
    pub version: Stamp,
    /// No later operation gets a version before this.
    pub high_water: Stamp,
    /// What changed; empty for an operation that only read.
    pub writes: Vec<Write>,
    /// The result.
    pub body: Body,
    /// The version at which the same request was done before, if it was.
    pub done_at: Option<Stamp>,
}

impl Write {
    /// Attachments that the document names now and did not name before.
    pub fn bodies_gained(&self) -> BTreeSet<Digest> {
        beyond(named(self.after.as_deref()), named(self.before.as_deref())).into_iter().collect()
    }

    /// Attachments that the document named before and does not name now. Other documents may
    /// still name them.
    pub fn bodies_lost(&self) -> BTreeSet<Digest> {
        beyond(named(self.before.as_deref()), named(self.after.as_deref())).into_iter().collect()
    }
}

/// Each body once.
fn named(document: Option<&Document>) -> BTreeSet<Digest> {
    document.into_iter().flat_map(Document::bodies).collect()
}

impl Commit {
    /// Attachments whose bodies must be durable before this commit is: those that the writes name
    /// and that the same documents did not name before. In order, each once.
    pub fn bodies(&self) -> BTreeSet<Digest> {
        self.writes.iter().flat_map(Write::bodies_gained).collect()
    }
}

/// Validates an attempt against the documents of this moment; changes nothing.
///
/// * Every tolerance-0 document, also one that was only read, must have the version that was
///   found; otherwise C-CONTENTION names the document.
/// * The version is now, but not before the high-water mark, and after every one of these documents:
///   a clock that steps back changes nothing. Operations without a document in common may share one.
/// * A document that changes more than a thousand times a second, for long, takes versions ahead of the
///   clock ([`Documents::clock`]): at most [`AHEAD_MS_MAX`], then its changes wait (C-AHEAD, with how long).
/// * What changed is not of a class that is read only (S-CLASS).
/// * The namespace's limits hold, if the operation makes it grow; documents keep to their own.
pub fn validate(
    rules: &Rules,
    documents: &dyn Documents,
    attempt: Attempt,
    now: Stamp,
) -> Result<Commit, Exception> {
    check_and_settle(rules, documents, attempt, now).map_err(|it| it.at(Phase::Validation))
}

fn check_and_settle(
    rules: &Rules,
    documents: &dyn Documents,
    attempt: Attempt,
    now: Stamp,
) -> Result<Commit, Exception> {
    // Operations without a document in common may share a version, so many of them in one
    // millisecond do not drive the versions ahead of the clock.
    let high_water = documents.high_water();
    let mut latest = None;
    let mut stored = Vec::with_capacity(attempt.current.len());
    for edited in &attempt.current {
        let current = documents.get(edited.name());
        check_unchanged(edited.name(), edited.found(), current.as_ref())?;
        latest =
            latest.max(current.as_ref().map(|it| it.version())).max(edited.latest_item_version());
        stored.push(current);
    }
    if latest == Some(Stamp::MAX) {
        return Err(Exception::new(codes::STAMPS, "there is no stamp after the last one"));
    }
    let after_latest = latest.map_or(Stamp::MIN, Stamp::next);
    let version = now.max(high_water).max(after_latest);
    let changes = attempt.current.iter().any(DocumentEdit::is_changed);
    if changes && after_latest >= high_water {
        check_ahead(after_latest, now.max(documents.clock()))?;
    }
    let forget_before = now.minus_ms(rules.destroyed_ms);
    let mut writes = Vec::new();
    let space = attempt.space().clone();
    let keeps_task = attempt.only_keeps_task();
    for (edited, before) in attempt.current.into_iter().zip(stored) {
        if edited.is_changed() {
            let name = edited.name().clone();
            check_writable(rules, &name)?;
            edited.check_new_name()?;
            let document = edited.settle(before.as_ref(), version, forget_before);
            let too_large = |it: FieldError| Exception::of_field(codes::LIMIT, it);
            document.check_size().map_err(too_large)?;
            documents.spaces().check_description(&document)?;
            let is_gone = document.is_deleted() && rules.schema.is_traceless(name.class());
            let after = (!is_gone).then(|| Arc::new(document));
            if before.is_some() || after.is_some() {
                writes.push(Write { name, before, after });
            }
        }
    }
    check_bytes(&writes)?;
    // A namespace that is full must not keep a task from being started, or from telling that it failed.
    if !keeps_task {
        check_limits(documents, space.as_str(), &writes)?;
    }
    let high_water = if writes.is_empty() { high_water } else { version };
    let (body, done_at) = (attempt.body, attempt.done_at);
    Ok(Commit { version, high_water, writes, body, done_at })
}

/// Refuses to go on ahead of the clock: copies elsewhere would refuse what comes from the future.
fn check_ahead(version: Stamp, now: Stamp) -> Result<(), Exception> {
    let Some(wait_ms) = version.ms_since(now.plus_ms(AHEAD_MS_MAX)).filter(|it| *it > 0) else {
        return Ok(());
    };
    let message = format!(
        "the document changes faster than once a millisecond: its version would be {version}, more than \
         {} min ahead of the clock ({now})",
        AHEAD_MS_MAX / 60_000
    );
    Err(Exception::new(codes::AHEAD, message).after(wait_ms))
}

fn check_writable(rules: &Rules, name: &DocName) -> Result<(), Exception> {
    if !rules.schema.is_read_only(name.class()) {
        return Ok(());
    }
    let problem = format!("{name} must not be changed: its class {:?} is read only", name.class());
    Err(Exception::of_field(codes::CLASS, FieldError::new("document", problem)))
}

fn check_unchanged(
    name: &DocName,
    found: Option<&Arc<Document>>,
    current: Option<&Arc<Document>>,
) -> Result<(), Exception> {
    let version = |it: Option<&Arc<Document>>| it.map(|it| it.version());
    let (found_at, is_at) = (version(found), version(current));
    // The trace of an ended life may be forgotten meanwhile: it still does not exist.
    let is_forgotten = current.is_none() && alive(found).is_none();
    if found_at == is_at || is_forgotten {
        return Ok(());
    }
    let text = |it: Option<Stamp>| it.map_or("nothing".to_owned(), |it| it.to_string());
    let problem =
        format!("{name} changed during the operation: from {} to {}", text(found_at), text(is_at));
    Err(Exception::of_field(codes::CONTENTION, FieldError::new("document", problem)))
}

fn check_bytes(writes: &[Write]) -> Result<(), Exception> {
    let after = writes.iter().filter_map(|it| it.after.as_ref());
    let bytes: u64 = after.map(|it| it.stored_bytes_at_most()).sum();
    if bytes > WRITTEN_BYTES_MAX {
        let problem = format!("would write {bytes} bytes; the limit is {WRITTEN_BYTES_MAX}");
        return Err(Exception::of_field(codes::LIMIT, FieldError::new("operation", problem)));
    }
    Ok(())
}

fn check_limits(documents: &dyn Documents, space: &str, writes: &[Write]) -> Result<(), Exception> {
    let limits = documents.spaces().limits(space);
    if writes.is_empty() || limits == Limits::default() {
        return Ok(());
    }
    let before = documents.usage(space);
    let after = writes.iter().fold(before, |usage, write| {
        let (old, new) = (write.before.as_deref(), write.after.as_deref());
        usage.plus(Usage::of(new)).minus(Usage::of(old))
    });
    limits.check(before, after).map_err(|it| Exception::of_field(codes::LIMIT, it))
}
