//! What an operation needs to know of the documents that it works on.

use crate::document::Document;
use crate::name::DocName;
use crate::space::{Spaces, Usage};
use rota_model::Stamp;
use std::sync::Arc;

/// What the holder of documents says of the operations that it remembers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Remembered {
    /// How many.
    pub count: usize,
    /// The caller's time of the oldest.
    pub oldest: Option<Stamp>,
}

/// Documents as an operation sees them. [`crate::Store`] is one; whoever keeps documents in another way
/// can be one, too.
pub trait Documents {
    /// A document, or the trace of its ended life.
    fn get(&self, name: &DocName) -> Option<Arc<Document>>;

    /// Whether it is known here what there is of a document of this store. Default: always. An operation
    /// that asks for another one is begun again with it ([`crate::Next::Fetch`]).
    fn is_at_hand(&self, name: &DocName) -> bool {
        let _ = name;
        true
    }

    /// The latest version that was given out. Another operation may yet get the same.
    fn high_water(&self) -> Stamp;

    /// Every change up to this is known here: later operations get later versions.
    fn known_through(&self) -> Stamp {
        self.high_water().minus_ms(1)
    }

    /// A time that has come, whatever the clock says since: it was set back, or what is here is of a clock that
    /// was ahead. Changes are held back by the later one of this and the clock
    /// ([`crate::AHEAD_MS_MAX`]). Default: none.
    fn clock(&self) -> Stamp {
        Stamp::MIN
    }

    /// What is known of namespaces.
    fn spaces(&self) -> &Spaces;

    /// How much a namespace holds, wherever its documents are.
    fn usage(&self, space: &str) -> Usage;

    /// Which operations are remembered: beyond [`crate::Rules::memories_max`] no more are. Default: none,
    /// for documents of which somebody else keeps count.
    fn remembered(&self) -> Remembered {
        Remembered::default()
    }
}
