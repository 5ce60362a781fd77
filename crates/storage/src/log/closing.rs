//! `CLOSED`: where the log ended when it was closed in good order.
//!
//! Nothing in a log says how long it should be, so that one cut off between two batches looks
//! whole. This file says it, from the end of one run to the start of the next. After a kill it is
//! not there, and the end of the log is taken as it is found.

use super::segment::{Cursor, Segment};
use crate::error::EngineError;
use crate::folder::Folder;
use crate::layout::{CLOSED, FORMAT};
use crate::marker::Marker;

/// The file's name.
const MARKER: Marker = Marker { title: "rota log closed", format: FORMAT };

/// Says that the log ends here.
pub(super) fn write(folder: &Folder, segment: &Segment, end: Cursor) -> Result<(), EngineError> {
    let label = format!("{:016x}", folder.label.sum());
    let (number, next) = (segment.head.number.to_string(), end.seq.to_string());
    let fields = [("label", label.as_str()), ("segment", &number), ("next", &next)];
    MARKER.write(&*folder.disk, &folder.file(CLOSED), &fields)
}

/// Refuses a log that ends elsewhere than where it was closed.
pub(super) fn check(folder: &Folder, segment: &Segment, end: Cursor) -> Result<(), EngineError> {
    let mut fields = MARKER.read(&*folder.disk, &folder.file(CLOSED))?;
    if fields.next("label")? != format!("{:016x}", folder.label.sum()) {
        return Err(fields.damaged("it was made for another folder"));
    }
    let (number, next) = (fields.next("segment")?, fields.next("next")?);
    if (number.as_str(), next.as_str())
        != (segment.head.number.to_string().as_str(), end.seq.to_string().as_str())
    {
        let what = format!(
            "the log ends here, before batch {}, but it was closed in segment {number} before \
             batch {next}",
            end.seq
        );
        return Err(EngineError::damaged(&segment.path, end.offset, what));
    }
    Ok(())
}

/// The log goes on: what `CLOSED` says is about to be no longer true. The caller syncs the folder.
pub(super) fn remove(folder: &Folder) -> Result<(), EngineError> {
    let file = folder.file(CLOSED);
    folder.disk.remove(&file).map_err(EngineError::io("remove", &file))
}
