//! Versions of records. They are stamps of the owners' wall clocks, which step, and clients see them
//! grow all the same:
//!
//! * Every write of a record has a version above the one before.
//! * The highest version of a record that was removed is on the disk of every manager (written with
//!   the same batch, sent with snapshots), so a life is above every forgotten one of its id.
//! * READY may be told before it is committed, over a committed PENDING or STARTING. Then its version
//!   is at most [`EARLY_MS`] above the committed one, and a later owner, which may never hear of it,
//!   goes on from above that bound. Its machine is told as the committed record has it.
//!
//! Why that is enough. Let an owner tell READY with version v over a committed record c, so that v is
//! at most c + [`EARLY_MS`]. Every later owner holds c, because it is committed, and may hold records
//! that were written above it. Take the newest one that it holds when it begins:
//!
//! * It says PENDING or STARTING: it is c or above c. The later owner's first write is above the
//!   newest one + [`EARLY_MS`], so above v, whatever the write is: READY, CLOSING or an end.
//! * It says anything else and the owner that told v wrote it: READY itself or what came after it in
//!   the same log (an owner writes READY only over PENDING or STARTING), so it is v or above v.
//! * It says anything else and an owner between the two wrote it: the first write of those between
//!   that it goes back to was over one of the records above, so above v, and versions grow from there.
//!
//! All of this is about the record that is overwritten, as it was: a caller that has begun to change
//! its own copy of it must not hide that it said PENDING. So the owner looks it up itself.

use crate::log::env::Env;
use crate::log::state::Log;
use crate::sessions::read::key_of;
use rota_model::{Epoch, SessionRecord, SessionState, Stamp};
use std::sync::Arc;

/// How far above the committed version an early READY may be. Opens that take longer are answered
/// one commit later; versions of what a new owner drives on may be this far ahead of its clock.
const EARLY_MS: u64 = 5_000;

/// The version of the write over `before`, by the owner under `pe`.
pub(crate) fn version_after(env: &Env, before: &SessionRecord, pe: Epoch) -> Stamp {
    let begun = matches!(before.state, SessionState::Pending | SessionState::Starting);
    let by_other = before.token().is_some_and(|token| token.0.pe < pe);
    let told = if begun && by_other { early_limit(before) } else { before.version };
    Stamp::from_epoch_ms(env.now.wall_ms).max(told.next())
}

/// The highest version that may be told over a committed one.
fn early_limit(committed: &SessionRecord) -> Stamp {
    Stamp::from_epoch_ms(committed.version.to_epoch_ms() + EARLY_MS)
}

/// What clients may hear of `record` while only `committed` is certain, if anything. Its machine is told as the
/// committed record has it: a later change may be lost with this owner and the node, and the record of the end
/// would show the machine as it was before.
pub(crate) fn told_early(
    committed: &SessionRecord,
    record: &Arc<SessionRecord>,
) -> Option<Arc<SessionRecord>> {
    let begun = matches!(committed.state, SessionState::Pending | SessionState::Starting);
    let may_be_told = begun
        && record.is_live()
        && record.token() == committed.token()
        && record.version <= early_limit(committed);
    if !may_be_told {
        return None;
    }
    let (state, change) = (&committed.machine_state, committed.machine_change);
    if (&record.machine_state, record.machine_change) == (state, change) {
        return Some(record.clone());
    }
    let machine_state = state.clone();
    Some(Arc::new(SessionRecord { machine_state, machine_change: change, ..(**record).clone() }))
}

/// The version of the next write of a session here. `record` is what is to be written, changed
/// already or not; for the first write of a life, with the life's stamp as its version.
pub(crate) fn next_version(env: &Env, log: &Log, record: &SessionRecord) -> Stamp {
    let before = log.replica.session(&key_of(env, &record.key)).unwrap_or(record);
    version_after(env, before, log.replica.pe).max(record.version.next())
}
