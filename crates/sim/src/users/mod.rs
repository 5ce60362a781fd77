//! Whoever uses a cluster: clients, watchers, and who describes the pool.
//!
//! They stand on the [`Ground`](crate::ground::Ground) alone: they draw from its random numbers, write to its queue,
//! and reach managers and nodes by what they send. Nothing here sees a manager or a node.

mod admin_host;
mod document_watcher;
mod last_lists;
pub mod last_readings;
mod watcher;
mod writer_host;

pub use self::admin_host::AdminHost;
pub use self::document_watcher::DocumentWatcher;
pub use self::last_lists::LastLists;
pub use self::watcher::{Watcher, filter_of};
use self::writer_host::WRITERS;
pub use self::writer_host::WriterHost;
use crate::event::Event;
use crate::ground::Ground;

/// The users of a cluster.
pub struct Users {
    /// Clients that work with documents.
    pub writers: Vec<WriterHost>,
    /// Whoever describes the pool.
    pub admin: AdminHost,
    /// The watcher of sessions.
    pub watcher: Watcher,
    /// The watcher of documents.
    pub document_watcher: DocumentWatcher,
    /// What the observer lists at the end.
    pub last_lists: LastLists,
}

impl Users {
    /// Those of a seed's cluster, before they do anything.
    pub fn new(seed: u64) -> Self {
        Self {
            writers: Vec::new(),
            admin: AdminHost::new(seed),
            watcher: Watcher::default(),
            document_watcher: DocumentWatcher::default(),
            last_lists: LastLists::default(),
        }
    }

    /// They come, and are about to begin.
    pub fn begin(&mut self, ground: &mut Ground) {
        for index in 0..WRITERS {
            self.writers.push(WriterHost::new(index, ground.rng.fork()));
            let delay_us = ground.rng.within(300_000, 600_000);
            ground.queue.after(delay_us, Event::WriterNext(index));
        }
    }

    /// A writer does its next thing.
    pub fn on_writer_next(&mut self, ground: &mut Ground, index: usize) {
        if let Some(writer) = self.writers.get_mut(index) {
            writer.on_next(ground);
        }
    }

    /// How many long polls wait at managers on purpose.
    pub fn polls(&self) -> usize {
        self.watcher.parts.len() + self.document_watcher.parts.len()
    }
}
