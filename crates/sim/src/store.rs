//! The config store: linearizable, with compare-and-set.

use rota_model::Epoch;
use rota_ring::{Change, ConfigState};

/// The config store.
#[derive(Clone, Debug, Default)]
pub struct Store {
    state: ConfigState,
    /// Accepts any expectation: a planted bug.
    pub careless: bool,
    /// It says nothing of what is dropped from it: a planted bug.
    pub drops_unsaid: bool,
    /// What it once held.
    backup: Option<ConfigState>,
}

/// So many writes lie between two backups of it.
const BACKUP_EVERY: u64 = 16;

impl Store {
    /// A store that holds `state`.
    pub fn new(state: ConfigState) -> Self {
        Self { state, careless: false, drops_unsaid: false, backup: None }
    }

    /// What it holds.
    pub fn state(&self) -> &ConfigState {
        &self.state
    }

    /// What it held at its newest backup.
    pub fn backup(&self) -> Option<&ConfigState> {
        self.backup.as_ref()
    }

    /// Compares and sets. Gives whether it was written.
    pub fn cas(&mut self, change: &Change) -> bool {
        let next =
            if self.careless { force(&self.state, change) } else { change.apply(&self.state) };
        match next {
            Some(mut next) => {
                if self.drops_unsaid {
                    next.dropped = self.state.dropped;
                }
                if next.index.is_multiple_of(BACKUP_EVERY) {
                    self.backup = Some(self.state.clone());
                }
                self.state = next;
                true
            }
            None => false,
        }
    }
}

/// What a config store holds that does not compare.
pub(crate) fn force(state: &ConfigState, change: &Change) -> Option<ConfigState> {
    let mut forced = change.clone();
    if let Some(view) = &mut forced.view {
        forced.expect_epoch = Some(state.epoch());
        let before = view.epoch;
        view.epoch = Epoch(state.epoch().0 + 1);
        for part in view.parts.values_mut().filter(|it| it.pe == before) {
            part.pe = view.epoch;
        }
    }
    forced.apply(state)
}
