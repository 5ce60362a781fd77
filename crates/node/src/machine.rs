//! A running state machine: the session of a class of kind `machine`.

use crate::class::MachineClass;
use std::sync::Arc;

/// A state machine in one of its states.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Machine {
    class: Arc<MachineClass>,
    /// Index into the class's states.
    state: usize,
    changes: u64,
}

/// One step that a machine made.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Transition {
    /// State before.
    pub from: String,
    /// State since.
    pub to: String,
    /// How many transitions the machine made so far, this one included.
    pub changes: u64,
    /// Whether the new state is final: the session ends.
    pub is_final: bool,
}

/// Why an event changed nothing.
#[derive(Clone, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum SendError {
    /// The class has no such event.
    #[error("the class has no event {event:?}; its events are {}", known.join(", "))]
    UnknownEvent {
        /// What was sent.
        event: String,
        /// What could be sent to a machine of this class.
        known: Vec<String>,
    },
    /// The event means nothing in this state.
    #[error("event {event:?} has no transition from state {state:?}; events that have: {}", possible.join(", "))]
    NoTransition {
        /// The machine's state.
        state: String,
        /// What was sent.
        event: String,
        /// Events that lead on from this state.
        possible: Vec<String>,
    },
    /// The machine reached a final state.
    #[error("the machine ended in state {state:?}")]
    Ended {
        /// The final state.
        state: String,
    },
}

impl Machine {
    /// A machine in its class's initial state.
    pub fn new(class: &Arc<MachineClass>) -> Self {
        Self { class: class.clone(), state: class.initial, changes: 0 }
    }

    /// A machine that goes on in a state of its class, after so many transitions; `None` when the class has no such
    /// state.
    pub fn resumed(class: &Arc<MachineClass>, state: &str, changes: u64) -> Option<Self> {
        let state = class.states().iter().position(|it| it == state)?;
        Some(Self { class: class.clone(), state, changes })
    }

    /// Its class.
    pub fn class(&self) -> &MachineClass {
        &self.class
    }

    /// The state that it is in.
    pub fn state(&self) -> &str {
        self.class.state_name(self.state)
    }

    /// How many transitions it made.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Whether its state is final.
    pub fn has_ended(&self) -> bool {
        self.class.is_final(self.state)
    }

    /// Takes an event. On an error nothing has changed.
    pub fn send(&mut self, event: &str) -> Result<Transition, SendError> {
        let state = || self.state().to_owned();
        if self.has_ended() {
            return Err(SendError::Ended { state: state() });
        }
        let Some(number) = self.class.event_index(event) else {
            let known = self.class.events.clone();
            return Err(SendError::UnknownEvent { event: event.to_owned(), known });
        };
        let Some(to) = self.class.next(self.state, number) else {
            let possible = self.class.events_from(self.state);
            let event = event.to_owned();
            return Err(SendError::NoTransition { state: state(), event, possible });
        };
        let from = state();
        self.state = to;
        self.changes += 1;
        let to = self.state().to_owned();
        Ok(Transition { from, to, changes: self.changes, is_final: self.has_ended() })
    }
}
