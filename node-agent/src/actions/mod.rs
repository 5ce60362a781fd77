//! What runs beside the programs of sessions: actions of their life cycles, and programs that look whether a session is
//! well.
//!
//! ```text
//!  agent ── Act ──▶ Actions ── permit ──▶ run: a minder process ──▶ the program (see `keeper::once`)
//!  a session's end ── Gate::end ──▶ everything of it is killed, and waited for
//! ```
//!
//! Nothing of this outlives its agent: a minder kills its program when the agent is gone, and managers ask again.

mod act;
mod run;

pub use act::{Ask, beside};
pub use run::run;

use rota_model::{SessionKey, Token};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Most looks at sessions at a time, whatever they look at. With less, one slow class delays the others; with more, a
/// node with many sessions is busy looking.
const LOOKS_MAX: usize = 32;

/// What may run, and how much at a time.
#[derive(Clone, Debug)]
pub struct ActionSettings {
    /// The folder of classes, with the folders of their actions.
    pub classes: Option<PathBuf>,
    /// Whether actions run at all.
    pub allowed: bool,
    /// Most actions at a time.
    pub max: usize,
}

/// What runs beside programs, shared by all of a node.
#[derive(Clone, Debug)]
pub struct Actions {
    settings: ActionSettings,
    actions: Arc<Semaphore>,
    looks: Arc<Semaphore>,
    /// A lock because sessions have a task each; it is held for one change only.
    gates: Arc<Mutex<BTreeMap<(SessionKey, Token), Gate>>>,
}

/// Through here goes what runs beside the program of one session.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    ending: CancellationToken,
    tasks: TaskTracker,
}

impl Gate {
    /// Nothing begins any more, and what runs is killed.
    pub fn shut(&self) {
        self.ending.cancel();
    }

    /// The same, until nothing of it is left.
    pub async fn end(&self) {
        self.shut();
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Once nothing is to begin any more.
    pub async fn ending(&self) {
        self.ending.cancelled().await;
    }

    /// Whether nothing is to begin any more.
    pub fn is_shut(&self) -> bool {
        self.ending.is_cancelled()
    }

    /// A task that the session's end waits for. It is to end once the gate is shut.
    pub fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        self.tasks.spawn(task)
    }
}

impl Actions {
    /// Nothing runs yet.
    pub fn new(settings: ActionSettings) -> Self {
        let actions = Arc::new(Semaphore::new(settings.max));
        Self {
            settings,
            actions,
            looks: Arc::new(Semaphore::new(LOOKS_MAX)),
            gates: Arc::default(),
        }
    }

    /// A session's program runs, or will.
    pub fn open(&self, key: &SessionKey, token: Token) -> Gate {
        let gate = Gate::default();
        self.locked().insert((key.clone(), token), gate.clone());
        gate
    }

    /// Its program has ended: everything beside it is killed and waited for.
    pub async fn close(&self, key: &SessionKey, token: Token) {
        let gate = self.locked().remove(&(key.clone(), token));
        if let Some(gate) = gate {
            gate.end().await;
        }
    }

    /// How many looks at sessions may begin.
    pub fn looks(&self) -> &Semaphore {
        &self.looks
    }

    fn gate(&self, key: &SessionKey, token: Token) -> Option<Gate> {
        self.locked().get(&(key.clone(), token)).cloned()
    }

    fn locked(&self) -> MutexGuard<'_, BTreeMap<(SessionKey, Token), Gate>> {
        self.gates.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
