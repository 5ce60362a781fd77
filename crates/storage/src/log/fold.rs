//! Folding segments into a new checkpoint, on a thread of its own.

use super::checkpoint::{Checkpoint, CheckpointWriter};
use super::segment::{End, Place, Segment};
use crate::engine::TryVisit;
use crate::error::EngineError;
use crate::folder::Folder;
use crate::layout::SPARE;
use std::collections::BTreeMap;
use std::io;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread::{self, JoinHandle};

/// The newest state of each key that segments name: its place, or `None` where it is deleted.
pub(super) type Changes = BTreeMap<Vec<u8>, Option<Place>>;

/// A fold under way.
#[derive(Debug)]
pub(super) struct Fold {
    thread: Option<JoinHandle<()>>,
    result: Receiver<Result<Checkpoint, EngineError>>,
    give_up: Arc<AtomicBool>,
}

impl Fold {
    /// Begins to fold all of `segments`, which are sealed, into the successor of `checkpoint`.
    pub fn begin(
        folder: Arc<Folder>,
        checkpoint: Arc<Checkpoint>,
        segments: Vec<Arc<Segment>>,
    ) -> Result<Self, EngineError> {
        // One result, and the thread ends: the channel is never full.
        let (sender, result) = sync_channel(1);
        let give_up = Arc::new(AtomicBool::new(false));
        let (path, flag) = (folder.path.clone(), give_up.clone());
        let thread = thread::Builder::new().name("rota-checkpoint".into()).spawn(move || {
            if let Some(result) = fold(&folder, &checkpoint, &segments, &flag).transpose() {
                // Nobody listens once the engine is closed.
                let _ = sender.send(result);
            }
        });
        let thread = thread.map_err(EngineError::io("start a thread for", &path))?;
        Ok(Self { thread: Some(thread), result, give_up })
    }

    /// What became of it; `None` while it works.
    pub fn poll(&mut self, folder: &Folder) -> Option<Result<Checkpoint, EngineError>> {
        match self.result.try_recv() {
            Ok(result) => Some(result),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(EngineError::Io {
                doing: "write a checkpoint in",
                file: folder.path.clone(),
                source: io::Error::other("its thread panicked"),
            })),
        }
    }
}

impl Drop for Fold {
    fn drop(&mut self) {
        self.give_up.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            // It looks at the flag between records; a panic was or will be seen in `poll`.
            let _ = thread.join();
        }
    }
}

/// `None` when it was told to give up: the next start folds again.
fn fold(
    folder: &Folder,
    checkpoint: &Checkpoint,
    segments: &[Arc<Segment>],
    give_up: &AtomicBool,
) -> Result<Option<Checkpoint>, EngineError> {
    let mut changes = Changes::new();
    let mut through = checkpoint.head.seq;
    let mut next_segment = checkpoint.head.number;
    for segment in segments {
        let mut cursor = segment.start();
        let end =
            segment.replay(&mut cursor, None, &mut |key, place| note(&mut changes, key, place))?;
        if end != End::Sealed {
            return Err(EngineError::damaged(&segment.path, cursor.offset, "the log ends early"));
        }
        through = cursor.seq - 1;
        next_segment = segment.head.number + 1;
    }
    let mut writer = CheckpointWriter::begin(folder, through, next_segment)?;
    let mut gave_up = false;
    merge(checkpoint, &changes, &[], None, &mut |key, value| {
        gave_up = give_up.load(Relaxed);
        if gave_up {
            return Ok(ControlFlow::Break(()));
        }
        writer.push(key, value)?;
        Ok(ControlFlow::Continue(()))
    })?;
    if gave_up {
        return Ok(None);
    }
    writer.finish(folder)?;
    let checkpoint = Checkpoint::open(folder)?;
    remove_folded(folder, segments)?;
    Ok(Some(checkpoint))
}

/// Keeps the last segment's blocks for the next one, and removes the others.
fn remove_folded(folder: &Folder, segments: &[Arc<Segment>]) -> Result<(), EngineError> {
    let disk = &folder.disk;
    let Some((last, others)) = segments.split_last() else { return Ok(()) };
    for segment in others {
        disk.remove(&segment.path).map_err(EngineError::io("remove", &segment.path))?;
    }
    disk.rename(&last.path, &folder.file(SPARE)).map_err(EngineError::io("rename", &last.path))
}

/// Notes what a segment says of a key.
pub(super) fn note(changes: &mut Changes, key: &[u8], place: Option<Place>) {
    match changes.get_mut(key) {
        Some(known) => *known = place,
        None => {
            changes.insert(key.to_vec(), place);
        }
    }
}

/// Visits the records of a checkpoint as changed by `changes`, from `from`, before `to` where it
/// is given, in order.
pub(super) fn merge(
    checkpoint: &Checkpoint,
    changes: &Changes,
    from: &[u8],
    to: Option<&[u8]>,
    visit: &mut TryVisit<'_>,
) -> Result<(), EngineError> {
    if to.is_some_and(|to| to <= from) {
        return Ok(());
    }
    let until = to.map_or(Bound::Unbounded, Bound::Excluded);
    let mut changes = changes.range::<[u8], _>((Bound::Included(from), until)).peekable();
    let mut buffer = Vec::new();
    let mut stopped = false;
    checkpoint.scan(from, to, &mut |key, value| {
        while let Some((changed, place)) = changes.next_if(|(changed, _)| changed.as_slice() < key)
        {
            if let Some(place) = place
                && visit(changed, place.read(changed, &mut buffer)?)?.is_break()
            {
                stopped = true;
                return Ok(ControlFlow::Break(()));
            }
        }
        let flow = match changes.next_if(|(changed, _)| changed.as_slice() == key) {
            Some((_, Some(place))) => visit(key, place.read(key, &mut buffer)?)?,
            Some((_, None)) => ControlFlow::Continue(()),
            None => visit(key, value)?,
        };
        stopped = flow.is_break();
        Ok(flow)
    })?;
    if stopped {
        return Ok(());
    }
    for (key, place) in changes {
        if let Some(place) = place
            && visit(key, place.read(key, &mut buffer)?)?.is_break()
        {
            break;
        }
    }
    Ok(())
}
