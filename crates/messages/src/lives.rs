//! What is asked about the lives of sessions: changes of attributes and life cycles, and how these stand.

use rota_lifecycle::{Edit, Managed};
use rota_model::{SessionKey, SessionView, Stamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// An event of a session: a life cycle, and the last word of its item.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Event {
    /// The life cycle.
    pub life_cycle: String,
    /// The word.
    pub word: String,
}

/// Change a session: all in one commit.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct UpdateOp {
    /// Which.
    pub key: SessionKey,
    /// Only this life, if given; another life is refused with LIFE_MISMATCH.
    pub life: Option<Stamp>,
    /// Only this version, if given; another one is refused with VERSION_MISMATCH.
    pub if_version: Option<Stamp>,
    /// Attributes: a new value, or none to remove one.
    pub attributes: BTreeMap<String, Option<String>>,
    /// Changes of life-cycle items, with absolute times.
    pub edit: Arc<Edit>,
    /// Events that count as fired though their action failed.
    pub skip: Vec<Event>,
    /// Events whose failure is forgotten: they are tried at once.
    pub retry: Vec<Event>,
    /// The event whose action asks for all this, and has succeeded. Managers only.
    pub ran: Option<Event>,
}

/// Run the action of an event that failed, again. Managers only.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FireOp {
    /// The session.
    pub key: SessionKey,
    /// Its chain of lives.
    pub origin: Stamp,
    /// What fires.
    pub event: Event,
}

/// What is asked about the life of a session.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum LivesOp {
    /// A change.
    Update(Box<UpdateOp>),
    /// How its life cycles stand.
    Show(SessionKey),
    /// An action to be run again.
    Fire(Box<FireOp>),
}

impl LivesOp {
    /// Which session it is about.
    pub fn key(&self) -> &SessionKey {
        match self {
            Self::Update(op) => &op.key,
            Self::Show(key) => key,
            Self::Fire(op) => &op.key,
        }
    }

    /// About how many bytes it takes in a message.
    pub fn bytes(&self) -> usize {
        let Self::Update(op) = self else { return 256 };
        let attributes = op.attributes.iter();
        let attributes =
            attributes.map(|(name, it)| name.len() + it.as_ref().map_or(0, String::len));
        let items =
            op.edit.add.iter().chain(&op.edit.remove).chain(op.edit.replace.iter().flatten());
        256 + attributes.sum::<usize>() + items.map(|it| it.to_string().len()).sum::<usize>()
    }
}

/// An action that failed, and what the task queue does about it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Retrying {
    /// The event.
    pub event: Event,
    /// The id of the task.
    pub task: String,
    /// Its state: WAITING, RUNNING, PARKED, ...
    pub state: String,
    /// When it is tried next; `None`: it was given up, or runs.
    pub at: Option<Stamp>,
}

/// How the life cycles of a session stand.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Life {
    /// The session; `None`: it is forgotten, and its history is not.
    pub session: Option<SessionView>,
    /// Its life cycles.
    pub managed: Arc<Managed>,
    /// What failed.
    pub retrying: Vec<Retrying>,
    /// The event whose action is under way, as its owner says; a change says none.
    pub running: Option<Event>,
}

/// The answer to a [`LivesOp`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum LivesAnswer {
    /// To a change, and to a question.
    Life(Box<Life>),
    /// To an action that was run again: how it failed, if so.
    Fired(Result<(), (String, String)>),
}
