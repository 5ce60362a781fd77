//! What an application and its administrator decide once: classes, builds, times, who may do what.

use crate::cache::CLOCKS_APART_MS_MAX;
use crate::checker::{Anyone, Checker};
use crate::document::Document;
use crate::memory::{Kind, MEMORIES_MAX, kind_of};
use crate::name::DocName;
use crate::schema::Schema;
use crate::task::TaskKeeper;
use rota_model::{SlotId, Stamp};
use std::fmt;
use std::sync::Arc;

/// Where documents live. All tolerance-0 documents of one operation share one slot.
pub trait Territory: Send + Sync {
    /// The slot of a document; the same for ever.
    fn slot_of(&self, name: &DocName) -> SlotId;

    /// Whether this store has the documents of that slot. Documents of other slots can only be
    /// read from a cache.
    fn holds(&self, slot: SlotId) -> bool;

    /// Whether the operations that run by these rules may ask for documents of that slot with
    /// tolerance 0, and have them brought up to date afterwards; else A-SLOT. Default: all that are
    /// here. Slots of which [`Territory::holds`] says no are never served.
    fn serves(&self, slot: SlotId) -> bool {
        self.holds(slot)
    }
}

/// A store that stands alone: one slot, and all of it is here.
#[derive(Clone, Copy, Debug, Default)]
pub struct OneSlot;

impl Territory for OneSlot {
    fn slot_of(&self, _: &DocName) -> SlotId {
        SlotId(0)
    }

    fn holds(&self, _: SlotId) -> bool {
        true
    }
}

/// What is wrong with a document of a slot that is not served.
pub(crate) fn unserved(name: &DocName, slot: SlotId) -> String {
    format!("{name} lies in slot {slot}, out of reach of this operation")
}

/// The rules that a store and its operations follow.
#[derive(Clone)]
pub struct Rules {
    /// Which classes there are.
    pub schema: Arc<Schema>,
    /// Where documents live. Default: [`OneSlot`].
    pub territory: Arc<dyn Territory>,
    /// Who may do what. Default: [`Anyone`].
    pub checker: Arc<dyn Checker>,
    /// The server's build. A caller that says an older one gets D. Default 0: every build will do.
    pub build: u64,
    /// How old a caller's operation time may be, in milliseconds; operations are remembered as
    /// long. Default 10 minutes. Too low: callers with a slow clock or network are refused. Too
    /// high: more is remembered.
    pub operation_time_age_ms_max: u64,
    /// Most operations that are remembered at a time. Default [`MEMORIES_MAX`]. Too low: callers are told
    /// to wait (X-BUSY). Too high: they fill the memory.
    pub memories_max: usize,
    /// Who keeps tasks. Default: nobody, and operations cannot register any.
    pub tasks: Option<Arc<dyn TaskKeeper>>,
    /// What [`crate::Transaction::draw`] begins with; the driver draws it anew for each operation. Default 0.
    pub salt: u64,
    /// How long destroyed items stay known, in milliseconds. Default 7 days. Too low: caches that
    /// come back after a longer absence get the list of all keys. Too high: documents grow.
    pub destroyed_ms: u64,
    /// How long the end of a document's life stays known, in milliseconds. Default 7 days.
    pub deleted_ms: u64,
}

/// How much longer than their age allows requests are remembered, in milliseconds: one may pass its
/// check in time and then wait for its next attempt.
const MEMORY_MARGIN_MS: u64 = 60_000;

/// How long after its time a memory may still be there: whoever forgets looks now and then.
const FORGETTING_MS: u64 = 10_000;

/// 7 days, in milliseconds: for how long ends of lives are remembered, unless rules say otherwise.
pub const WEEK_MS: u64 = 7 * 24 * 3_600 * 1_000;

impl Rules {
    /// The defaults, with these classes.
    pub fn new(schema: Schema) -> Self {
        Self {
            schema: Arc::new(schema),
            territory: Arc::new(OneSlot),
            checker: Arc::new(Anyone),
            build: 0,
            operation_time_age_ms_max: 600_000,
            memories_max: MEMORIES_MAX,
            tasks: None,
            salt: 0,
            destroyed_ms: WEEK_MS,
            deleted_ms: WEEK_MS,
        }
    }
}

/// What time makes of a document.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Aged {
    /// Nothing.
    Same,
    /// The same document at the same version, without items that were destroyed long ago: its dtime has
    /// moved on.
    Shortened(Document),
    /// Its life ended long ago, or nobody may repeat any more what it remembers: nothing is left of it.
    /// For a memory, see [`crate::memory::floors`].
    Gone,
}

impl Rules {
    /// What is left of a document now: items that were destroyed, and lives that ended, longer ago
    /// than these rules keep them are forgotten, and memories of operations that nobody may repeat any
    /// more. Nobody's work, so the version stays: it is the moment of the last operation that changed the
    /// document.
    pub fn aged(&self, document: &Document, now: Stamp) -> Aged {
        if document.is_deleted() {
            let is_old = document.version() < now.minus_ms(self.deleted_ms);
            return if is_old { Aged::Gone } else { Aged::Same };
        }
        match kind_of(document) {
            Some(Kind::Memory(operation_time)) if operation_time < self.oldest_memory(now) => {
                return Aged::Gone;
            }
            Some(Kind::Floor(upto)) if self.is_past_any_clock(upto, now) => return Aged::Gone,
            Some(Kind::Memory(_) | Kind::Floor(_)) => return Aged::Same,
            None => {}
        }
        let shortened = document.forget_before(now.minus_ms(self.destroyed_ms));
        shortened.map_or(Aged::Same, Aged::Shortened)
    }

    fn memory_ms(&self) -> u64 {
        self.operation_time_age_ms_max.saturating_add(MEMORY_MARGIN_MS)
    }

    /// Requests from before this would by now be refused for their age: what remembers them goes.
    pub fn oldest_memory(&self, now: Stamp) -> Stamp {
        now.minus_ms(self.memory_ms())
    }

    /// In how many milliseconds what remembers a request of that time goes, and a little more.
    pub fn ms_to_forget(&self, operation_time: Stamp, now: Stamp) -> u64 {
        let goes = operation_time.plus_ms(self.memory_ms());
        goes.ms_since(now).unwrap_or(0).saturating_add(FORGETTING_MS)
    }

    /// Whether a request of that time would be refused for its age also if this clock were put back, as
    /// far as clocks may be apart.
    pub(crate) fn is_past_any_clock(&self, operation_time: Stamp, now: Stamp) -> bool {
        operation_time < now.minus_ms(CLOCKS_APART_MS_MAX).minus_ms(self.operation_time_age_ms_max)
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules").field("schema", &self.schema).field("build", &self.build).finish()
    }
}
