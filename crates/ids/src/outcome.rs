//! What is kept, what changed, and what was refused.

use crate::name::{Group, Key, Name};
use uuid::Uuid;

/// A number and its state. Of a last: the highest number that its group gave, which only grows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Entry {
    /// From 1 on.
    pub number: u64,
    /// The resource is reported. An entry that is not valid goes when it is outdated.
    pub valid: bool,
    /// When the number or the validity last changed: milliseconds since 1970 by the wall clock.
    pub changed_ms: u64,
}

/// What a rim persists. Changes of one call hold each name once at most.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// It is this from now on, whatever it was.
    Put(Name, Entry),
    /// It is gone.
    Remove(Name),
}

impl Change {
    /// What changed.
    pub fn name(&self) -> &Name {
        match self {
            Change::Put(name, _) | Change::Remove(name) => name,
        }
    }
}

/// A resource has its number.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use = "the changes must be persisted"]
pub struct Assigned {
    /// Its number.
    pub number: u64,
    /// It had none before.
    pub is_new: bool,
    /// None when the resource was reported already.
    pub changes: Vec<Change>,
}

/// A number of another assigner was taken over.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use = "the changes must be persisted"]
pub struct Adopted {
    /// The number that the resource had here, when it was another one.
    pub was: Option<u64>,
    /// Who had the number here, and has none any more. It gets one when it is reported again.
    pub displaced: Option<Key>,
    /// None when all of it was known already.
    pub changes: Vec<Change>,
}

/// What a purge, a start, a stop or a sweep did. Lasts count as entries do.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[must_use = "the changes must be persisted"]
pub struct Swept {
    /// How many are gone.
    pub removed: usize,
    /// How many were valid, are not any more, and stay for a time.
    pub invalidated: usize,
    /// All of these.
    pub changes: Vec<Change>,
}

/// What is refused. Nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NumberError {
    /// A resource is to be removed that has no entry.
    #[error("{key} has no number; only a resource that was reported can be removed")]
    NotAllocated {
        /// Which.
        key: Key,
    },
    /// A resource is to be removed that was removed, or not reported since the start.
    #[error(
        "{key} with number {number} is removed already, or was not reported since the start; its number is \
         kept until it is outdated"
    )]
    NotValid {
        /// Which.
        key: Key,
        /// What it had.
        number: u64,
    },
    /// The number 0 was given.
    #[error("{name} is to have number 0; numbers count from 1")]
    Zero {
        /// Of what.
        name: Name,
    },
    /// There is no number above the last one.
    #[error(
        "{} has no number left above {last}; its numbers begin anew when its parent was removed for the \
         outdate interval", Name::Last(.group.clone())
    )]
    Full {
        /// Which group.
        group: Group,
        /// Its last number.
        last: u64,
    },
    /// An entry is to be put back whose number another one of the group has.
    #[error("{key} has number {number}, which {by} has, too")]
    Taken {
        /// Which.
        key: Key,
        /// Its number.
        number: u64,
        /// Who has it.
        by: Uuid,
    },
}
