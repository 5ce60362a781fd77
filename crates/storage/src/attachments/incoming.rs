//! A body on its way in.

use super::body::BodyWriter;
use super::index::TooMany;
use super::{AttachmentError, Digest, NEW, Shared};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// What a put came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stored {
    /// The body is new here, and durable.
    New,
    /// It was here before.
    Known,
}

/// A put under way. Nobody sees the body before [`Incoming::finish`]; dropped without it, nothing
/// of it stays.
#[derive(Debug)]
pub struct Incoming {
    shared: Arc<Shared>,
    writer: Option<BodyWriter>,
    new: PathBuf,
    sha256: Digest,
    size: u64,
    /// How much of it is not written yet.
    unwritten: u64,
    /// It is counted among those on their way in.
    counted: bool,
    /// There is a file `new`.
    made: bool,
}

impl Incoming {
    pub(super) fn begin(
        shared: &Arc<Shared>,
        sha256: Digest,
        size: u64,
        free_bytes_max: u64,
    ) -> Result<Self, AttachmentError> {
        shared.usable()?;
        let limit = shared.settings.body_bytes_max;
        if size > limit {
            let what = "the size of an attachment in bytes";
            return Err(AttachmentError::TooLarge { what, found: size, limit });
        }
        let limit = shared.settings.puts_max;
        let puts = shared.puts.fetch_add(1, Relaxed) + 1;
        let new = shared.path.join(format!("{:016x}{NEW}", shared.next_new.fetch_add(1, Relaxed)));
        // Before anything can fail: its drop counts down.
        let shared = shared.clone();
        let (writer, counted, made) = (None, false, false);
        let mut incoming = Self { shared, writer, new, sha256, size, unwritten: 0, counted, made };
        if puts > limit {
            return Err(AttachmentError::Busy { limit });
        }
        incoming.take_room(free_bytes_max)?;
        let shared = &incoming.shared;
        let file = shared.disk.create(&incoming.new);
        let file = file.map_err(AttachmentError::io("make", &incoming.new))?;
        incoming.made = true;
        incoming.writer = Some(BodyWriter::new(file, incoming.new.clone(), sha256, size));
        Ok(incoming)
    }

    fn take_room(&mut self, free_bytes_max: u64) -> Result<(), AttachmentError> {
        let (shared, reserve) = (&self.shared, self.shared.settings.reserve_bytes);
        let free = shared.disk.free_bytes(&shared.path);
        let free = free.map_err(AttachmentError::io("look at the disk of", &shared.path))?;
        let mut index = shared.index();
        // What is only announced takes no room from what an item names.
        let is_wanted = free_bytes_max == u64::MAX;
        let announced = if is_wanted { 0 } else { index.unwritten_bytes() };
        let needed = announced.saturating_add(self.size).saturating_add(reserve);
        if reserve > 0 && needed > free {
            return Err(AttachmentError::NoRoom { size: self.size, free, reserve });
        }
        let counted = index.coming(&self.sha256, self.size, free_bytes_max);
        let limit = free_bytes_max;
        counted.map_err(|why| match why {
            TooMany::Free(found) => AttachmentError::Unnamed { found, limit },
            TooMany::Coming(found) => AttachmentError::Crowded { found, limit },
        })?;
        (self.counted, self.unwritten) = (true, self.size);
        Ok(())
    }

    /// Appends bytes of the body, in pieces of any size. After an error the put is over.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), AttachmentError> {
        let Some(mut writer) = self.writer.take() else { return Err(self.over()) };
        writer.write(bytes)?;
        let written = self.unwritten.min(bytes.len() as u64);
        self.unwritten -= written;
        self.shared.index().written(written);
        self.writer = Some(writer);
        Ok(())
    }

    /// Checks size and digest, and makes the body durable and visible. On `Ok` it survives a loss
    /// of power.
    pub fn finish(mut self, now_ms: u64) -> Result<Stored, AttachmentError> {
        let Some(writer) = self.writer.take() else { return Err(self.over()) };
        writer.finish()?;
        let shared = self.shared.clone();
        let _names = shared.names();
        shared.usable()?;
        if shared.index().size(&self.sha256).is_some() {
            // Its time of grace begins anew; the new file goes with `self`.
            shared.index().stored(self.sha256, self.size, now_ms);
            return Ok(Stored::Known);
        }
        let file = shared.file(&self.sha256);
        let renamed = shared.disk.rename(&self.new, &file);
        renamed.map_err(AttachmentError::io("rename", &self.new))?;
        self.made = false;
        let path = &shared.path;
        if let Err(error) = shared.disk.sync_folder(path) {
            // The kernel may show a name that is not on the disk, and not tell again.
            shared.given_up.store(true, Relaxed);
            return Err(AttachmentError::io("sync the folder", path)(error));
        }
        shared.index().stored(self.sha256, self.size, now_ms);
        Ok(Stored::New)
    }

    fn over(&self) -> AttachmentError {
        let source = std::io::Error::other("an earlier write of this put failed");
        AttachmentError::Io { doing: "write", file: self.new.clone(), source }
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        self.shared.puts.fetch_sub(1, Relaxed);
        if self.counted {
            self.shared.index().over(self.size, self.unwritten);
        }
        self.writer = None;
        if self.made
            && let Err(error) = self.shared.disk.remove(&self.new)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            // It is never read, and the next start removes it.
            tracing::warn!(file = %self.new.display(), %error, "cannot remove what was begun");
        }
    }
}
