//! A document that keeps itself in step, of any class; a session is one.
//!
//! ```text
//!   managers ── WatchDocuments (this one) ──▶ something changed ─┐
//!   refresh() ───────────────────────────────────────────────────┼─▶ Sync(held) ─▶ apply ─▶ file ─▶ copy()
//!   a failure, after a pause ────────────────────────────────────┘
//! ```
//!
//! The watch only wakes: what has changed, the synchronisation finds by comparing versions. So an
//! update of the watch that is lost, late or doubled does no harm, and an owner that has changed is
//! one more answer. Nothing is asked for while nothing happens.
//!
//! The copy never goes back: not to an older version, not to an earlier life, and not to a life that
//! was known to be gone. With a file that holds over a restart, too, since a state is durable before
//! it is shown, unless the disk fails, which is told.

mod copy;
mod file;
mod follow;
mod session;

pub use copy::DocumentCopy;
pub use file::CopyFileError;
pub use session::{CachedSession, SessionCopy};

use crate::error::CallError;
use crate::session::Client;
use follow::{Follower, Published};
use rota_docstore::{Caller, DocName};
use rota_model::Namespace;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, oneshot, watch};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, timeout_at};

/// How a [`CachedDocument`] works.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CachedDocumentOptions {
    /// The file that keeps the copy over restarts; one for each document, and for one process at a
    /// time. Its folder must exist; `FILE.new` is used beside it. Default: none, the copy lives as
    /// long as the [`CachedDocument`].
    pub file: Option<PathBuf>,
    /// How long one synchronisation is tried before it counts as failed. Default 10 s. After a
    /// failure there is a pause of at most [`PAUSE_MAX`], and another one.
    pub call_wait: Duration,
    /// How long no endpoint may serve the watch before it is begun anew. Default 30 s.
    pub patience: Duration,
    /// Who asks for the document, and with which build. Default: nobody in particular.
    pub caller: Caller,
    /// The namespace that reads, where it is another than that of the document and that one allows it.
    /// Default: that of the document.
    pub reader: Option<Namespace>,
}

/// How a [`CachedSession`] works.
pub type CachedSessionOptions = CachedDocumentOptions;

/// Longest pause between two synchronisations that fail.
pub const PAUSE_MAX: Duration = Duration::from_secs(30);

impl Default for CachedDocumentOptions {
    fn default() -> Self {
        let call_wait = Duration::from_secs(10);
        let patience = Duration::from_secs(30);
        let caller = Caller::default();
        Self { file: None, call_wait, patience, caller, reader: None }
    }
}

/// Why a wait for a copy was in vain.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CacheError {
    /// It did not happen in time. The copy is kept in step further.
    #[error("nothing new within {waited:?}{}", .trouble.as_ref().map(|it| format!("; {it}")).unwrap_or_default())]
    TimedOut {
        /// The wait.
        waited: Duration,
        /// What keeps the copy from being in step, if anything does.
        trouble: Option<String>,
    },
    /// The managers refuse for good; the copy stays as it is.
    #[error("the copy is not kept in step any more: {0}")]
    Ended(CallError),
    /// It was closed, or its runtime has ended.
    #[error("the copy is not kept in step any more")]
    Stopped,
}

/// A copy of a document that is kept in step in the background, until this is dropped or closed. Dropping
/// does not wait: the file may still be written once.
#[derive(Debug)]
pub struct CachedDocument {
    published: watch::Receiver<Published>,
    /// Counts what [`CachedDocument::refresh`] asks for.
    wanted: watch::Sender<u64>,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
    saving: Arc<Mutex<()>>,
}

impl CachedDocument {
    /// Begins to keep a document in step, whether or not it exists: it may come into being later. Loads the file if there is one; then [`CachedDocument::copy`] has what was
    /// known, and [`CachedDocument::refresh`] waits for what is. Needs a tokio runtime.
    pub async fn open(
        client: &Client,
        name: &DocName,
        options: CachedDocumentOptions,
    ) -> Result<Self, CopyFileError> {
        let copy = match options.file.clone() {
            None => DocumentCopy::new(name.clone()),
            Some(path) => {
                let name = name.clone();
                let loaded = spawn_blocking(move || file::load(&path, &name)).await;
                loaded.expect("loading does not panic, and nobody cancels it")?
            }
        };
        let (publish, published) = watch::channel(Published::new(copy));
        let (wanted, asked) = watch::channel(0);
        let (stop, stopped) = oneshot::channel();
        let follower = Follower::new(client.clone(), name.clone(), options, publish, asked);
        let saving = follower.saving();
        let task = tokio::spawn(async move {
            tokio::select! {
                // Either way: nobody needs it any more.
                _stopped = stopped => {}
                () = follower.follow() => {}
            }
        });
        Ok(Self { published, wanted, stop: Some(stop), task, saving })
    }

    /// What is known now.
    pub fn copy(&self) -> DocumentCopy {
        self.published.borrow().copy.clone()
    }

    /// What keeps the copy from being in step, for people; `None` when the last synchronisation
    /// succeeded.
    pub fn trouble(&self) -> Option<String> {
        self.published.borrow().trouble.clone()
    }

    /// The copy after a synchronisation that began after this call.
    pub async fn refresh(&mut self, wait: Duration) -> Result<DocumentCopy, CacheError> {
        let mut mine = 0;
        self.wanted.send_modify(|wanted| {
            *wanted += 1;
            mine = *wanted;
        });
        self.until(wait, |it| it.synced >= mine).await
    }

    /// The copy as soon as it fulfils a condition: at once if it does.
    pub async fn wait_until(
        &mut self,
        wait: Duration,
        mut holds: impl FnMut(&DocumentCopy) -> bool + Send,
    ) -> Result<DocumentCopy, CacheError> {
        self.until(wait, |it| holds(&it.copy)).await
    }

    /// The copy as soon as it differs from `seen`: at once if it does.
    pub async fn changed_from(
        &mut self,
        seen: &DocumentCopy,
        wait: Duration,
    ) -> Result<DocumentCopy, CacheError> {
        self.until(wait, |it| it.copy != *seen).await
    }

    async fn until(
        &mut self,
        wait: Duration,
        mut holds: impl FnMut(&Published) -> bool + Send,
    ) -> Result<DocumentCopy, CacheError> {
        let deadline = Instant::now() + wait;
        let over = self.published.wait_for(|it| it.ended.is_some() || holds(it));
        let found = match timeout_at(deadline, over).await {
            Ok(Ok(found)) => match &found.ended {
                None => Ok(found.copy.clone()),
                Some(error) => Err(CacheError::Ended(error.clone())),
            },
            Ok(Err(_task_is_gone)) => Err(CacheError::Stopped),
            Err(_elapsed) => Err(CacheError::TimedOut { waited: wait, trouble: None }),
        };
        found.map_err(|error| match error {
            CacheError::TimedOut { waited, trouble: _ } => {
                CacheError::TimedOut { waited, trouble: self.trouble() }
            }
            other @ (CacheError::Ended(_) | CacheError::Stopped) => other,
        })
    }

    /// Ends it, and gives the last copy: after this nothing is asked for, and nothing written.
    pub async fn close(mut self) -> DocumentCopy {
        drop(self.stop.take());
        // A task that panicked has ended as well.
        let _ended = (&mut self.task).await;
        drop(self.saving.lock().await);
        self.copy()
    }
}

impl Drop for CachedDocument {
    fn drop(&mut self) {
        self.task.abort();
    }
}
