//! A versioned document store, as values: no clock, no file, no thread.
//!
//! ```text
//!   Request ─▶ Run ──work()──▶ Transaction ──▶ DocumentEdit, DocumentEdit, …        tolerance 0: newest, may be changed
//!               │                └────▶ Cache                  tolerance > 0: read only, maybe stale
//!               │ validate: did anything that was read change meanwhile?
//!               ▼
//!            Commit { version, writes } ──▶ driver: make durable ──▶ Answer { body, updates }
//!               │
//!               ▼
//!   Store: Document { ctime, version, dtime, items } ──update_for──▶ Update ──apply──▶ other copies
//! ```
//!
//! A *document* is a set of *items* under one name (namespace, class, docid) and one *version*, the
//! [`Stamp`](rota_model::Stamp) of the last operation that changed it. An *operation* reads and
//! changes some documents, all or nothing, as if it were alone; everything that it changes gets its
//! version. A *cache* holds older copies and asks for what changed since.
//!
//! Everything here is a decision about values. A driver has the clock, persists the
//! [`Commit`]s in order, waits where it is told to, and moves the updates.
//!
//! * [`name`], [`content`], [`document`], [`schema`], [`field`], [`json`]: what is stored; [`encoding`]: as
//!   bytes.
//! * [`request`], [`operation`], [`attempt`], [`document_edit`], [`commit`], [`run`]: how it changes.
//! * [`sync`], [`cache`]: how copies follow.
//! * [`documents`], [`store`], [`space`], [`rules`]: what an operation finds, and what it must respect.
//! * [`memory`]: what is remembered of operations. [`copy_rule`], [`copying`]: items that are copied elsewhere.
//! * `session`: the classes of documents that managers keep of sessions and pools.
//! * [`exception`]: how anything of this fails, in one table.
//!
//! # Lock documents
//! Validation looks at the documents that an operation asked for with tolerance 0, at most 32. To
//! read a larger group as of one moment, choose one document that stands for the group: every
//! operation that writes into the group also [touches](DocumentEdit::touch) it, and the reader asks for it
//! with tolerance 0 and for the members with any tolerance that the store itself serves. A member
//! that changed meanwhile has moved the lock document, and the reader starts again. See
//! `examples/lock_document.rs`.
//!
//! # Choices where the source text is silent
//! * A put that writes what is already there changes nothing: no version moves.
//! * Items destroyed at dtime or later are kept, earlier ones forgotten, so a cache at exactly dtime
//!   needs no list of names.
//! * dtime moves on early where destroyed items are in the way: over the oldest of a document that
//!   would have too many items.
//! * What operations remember is a document of its own for each, beside the one that it is about: a
//!   document costs the same however many operations it has seen, and an answer outlives it.
//! * A life that ended leaves its name, ctime and version for a while, so that a new life and a
//!   stale copy can be told apart.
//! * The content `null` is refused: it stands for a destroyed item.
//! * Attempts are counted with the first one: at most 3 in all, and only for C and X.
//! * Operations without a document in common may get the same version, as the source allows: if each
//!   had its own millisecond, more than a thousand in a second would drive versions ahead of clocks. Those of
//!   one document do: by [`AHEAD_MS_MAX`] at most, then C-AHEAD.
//! * A version is also later than the `item_version` of every content that the operation copies.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod attempt;
pub mod by_age;
pub mod cache;
pub mod checker;
pub mod commit;
pub mod content;
pub mod copy_rule;
pub mod copying;
pub mod document;
pub mod document_edit;
pub mod documents;
pub mod encoding;
pub mod exception;
pub mod field;
pub mod json;
pub mod memory;
pub mod name;
pub mod operation;
pub mod request;
pub mod rules;
pub mod run;
pub mod schema;
mod session;
pub mod space;
pub mod store;
pub mod sync;
pub mod task;
pub mod tolerance;

pub use attempt::{Attempt, Body, DOCUMENTS_MAX, Need, Transaction, Wanted};
pub use by_age::ByAge;
pub use cache::{Cache, Lookup};
pub use checker::{Anyone, Checker, Credentials};
pub use commit::{AHEAD_MS_MAX, Commit, WRITTEN_BYTES_MAX, Write, validate};
pub use content::{Attachment, Content, Digest, JsonText, beyond};
pub use copy_rule::CopyRule;
pub use document::{Document, DocumentParts, Item, Volumes};
pub use document_edit::DocumentEdit;
pub use documents::{Documents, Remembered};
pub use encoding::Glance;
pub use exception::{Code, Details, Effect, Exception, Letter, Phase, Row, Status, TABLE, codes};
pub use field::{FieldType, FieldValue};
pub use json::to_json;
pub use name::{DocName, ItemName};
pub use operation::{About, Done, Operation, Operations, Place};
pub use request::{Caller, Request, SyncRequest};
pub use rota_model::{FieldError, Namespace, RequestId, Retry, SlotId, Stamp};
pub use rules::{Aged, OneSlot, Rules, Territory};
pub use run::{Answer, Next, Progress, Run, Validated, guarded};
pub use schema::{Keyed, Schema, Singleton};
pub use space::{Description, Limits, Spaces, Suspended, Undescribed, Usage};
pub use store::{Purged, Store};
pub use sync::{ApplyError, Changes, ChangesParts, Held, Update, apply, update_for};
pub use task::{NewTask, TaskKeeper, TaskRun};
pub use tolerance::Tolerance;
