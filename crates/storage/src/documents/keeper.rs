//! The thread that purges in the background.

use super::Shared;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Handle of the thread; dropping it ends the thread, after the step that it is in.
#[derive(Debug)]
pub(super) struct Keeper {
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    pub fn start(shared: Arc<Shared>, every: Duration) -> io::Result<Self> {
        // Nothing is ever sent: that the sender is gone says that it is over.
        let (stop, stopped) = sync_channel(0);
        let thread = thread::Builder::new().name("rota-keeper".into()).spawn(move || {
            while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                if let Err(error) = shared.purge_step() {
                    tracing::warn!(%error, "a step of the purge failed");
                }
            }
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // Its steps end at their deadlines; a panic was told by the panic itself.
            let _ = thread.join();
        }
    }
}
