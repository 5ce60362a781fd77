//! What stands in a data folder: its format, and the names of the files of engines.

/// Version of everything in a data folder. In format 1, managers kept sessions as records of their
/// own; since 2 everything is a document; since 3 what is remembered of requests lies beside them; since 4
/// a session that has ended keeps a digest of its attributes, and may tell how long it is given to end.
pub const FORMAT: u32 = 6;

/// The one file of the engine over redb.
pub(crate) const REDB: &str = "records.redb";
/// The checkpoint of the log.
pub(crate) const CHECKPOINT: &str = "records.checkpoint";
/// Says that the log was closed in good order.
pub(crate) const CLOSED: &str = "CLOSED";

/// A segment that is no longer needed waits under this name: to write blocks that a file already
/// has is a third faster to sync than to append new ones, which changes the file's metadata too.
pub(crate) const SPARE: &str = "spare.segment";
const SUFFIX: &str = ".segment";

/// A segment's name.
pub(crate) fn segment_name(number: u64) -> String {
    format!("{number:016x}{SUFFIX}")
}

/// The number in a segment's name.
pub(crate) fn number_in(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(SUFFIX).filter(|digits| digits.len() == 16)?;
    u64::from_str_radix(digits, 16).ok()
}

/// True for names that engines give to their files.
pub(crate) fn is_engine_file(name: &str) -> bool {
    [REDB, CHECKPOINT, CLOSED, SPARE].contains(&name) || number_in(name).is_some()
}
