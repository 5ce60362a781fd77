//! Versions of records. They are stamps of the owners' wall clocks, which step, and clients see them
//! grow all the same:
//!
//! * Every write of a record has a version above the one before.
//! * The highest version of a record that was removed is on the disk of every manager (written with
//!   the same batch, sent with snapshots), so a life is above every forgotten one of its id.
//! * READY may be told before it is committed, over a committed PENDING or STARTING. Then its version
//!   is at most [`EARLY_MS`] above the committed one, and a later owner, which may never hear of it,
//!   goes on from above that bound.

use crate::env::Env;
use crate::partition::Partition;
use rota_model::{Epoch, SessionRecord, SessionState, Stamp};

/// How far above the committed version an early READY may be. Opens that take longer are answered
/// one commit later; versions of what a new owner drives on may be this far ahead of its clock.
const EARLY_MS: u64 = 5_000;

/// The version of the next write of a record, by the owner under `pe`.
pub(crate) fn version_after(env: &Env, record: &SessionRecord, pe: Epoch) -> Stamp {
    let begun = matches!(record.state, SessionState::Pending | SessionState::Starting);
    let by_other = record.token().is_some_and(|token| token.0.pe < pe);
    let told = if begun && by_other { early_limit(record) } else { record.version };
    Stamp::from_epoch_ms(env.now.wall_ms).max(told.next())
}

/// The highest version that may be told over a committed one.
fn early_limit(committed: &SessionRecord) -> Stamp {
    Stamp::from_epoch_ms(committed.version.to_epoch_ms() + EARLY_MS)
}

/// Whether clients may hear of `record` while only `committed` is certain.
pub(crate) fn may_tell_early(committed: &SessionRecord, record: &SessionRecord) -> bool {
    let begun = matches!(committed.state, SessionState::Pending | SessionState::Starting);
    begun
        && record.is_live()
        && record.token() == committed.token()
        && record.version <= early_limit(committed)
}

impl Partition {
    /// The version of the next write of a record here.
    pub fn version_after(&self, env: &Env, record: &SessionRecord) -> Stamp {
        version_after(env, record, self.replica.pe)
    }
}
