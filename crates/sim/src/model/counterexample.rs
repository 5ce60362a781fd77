//! The shortest ways in which the first text breaks what is promised, found by search.

use super::literal::{Left, State, Text, Who};
use super::search::{Searched, search};
use Who::{A, B, C, D};

/// Far more than any of these searches reaches.
const STATES_MAX: usize = 1_000_000;

/// A promise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Property {
    /// S1: at most one session of an id runs.
    OneInstance,
    /// S2: an acknowledged open is not lost.
    OpenKept,
    /// S3: an acknowledged close stays closed.
    CloseKept,
    /// S4: no two managers act as owner of one id.
    OneOwner,
    /// "No stabilisation is needed": everybody hears of everybody.
    AllKnown,
}

impl Property {
    /// Name in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Property::OneInstance => "S1",
            Property::OpenKept => "S2",
            Property::CloseKept => "S3",
            Property::OneOwner => "S4",
            Property::AllKnown => "no stabilisation needed",
        }
    }

    fn is_broken(self, state: &State) -> bool {
        match self {
            Property::OneInstance => state.runs_twice(),
            Property::OpenKept => state.is_lost(),
            Property::CloseKept => state.is_back(),
            Property::OneOwner => state.has_two_owners(),
            Property::AllKnown => state.is_split(),
        }
    }
}

/// What may happen, and the promise that it breaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scenario {
    /// Its name in reports.
    pub name: &'static str,
    /// The promise.
    pub property: Property,
    /// Members at the start.
    pub members: &'static [Who],
    /// How the text is read.
    pub text: Text,
    /// What may happen, and how often.
    pub left: Left,
}

impl Scenario {
    /// Searches for a shortest way to break the promise.
    pub fn search(&self) -> Searched {
        let start = State::ring(self.members, self.left);
        let broken = |state: &State| self.property.is_broken(state);
        search(&start, STATES_MAX, |state| state.steps(self.text), broken)
    }
}

const NOTHING: Left =
    Left { opens: 0, closes: 0, crashes: 0, timeouts: 0, losses: 0, false_signals: 0, joins: 0 };
const LITERAL: Text = Text { r: 1, looks_first: false };
/// So that the first scenario does not hide all others.
const MEANT: Text = Text { r: 1, looks_first: true };
const THREE: &[Who] = &[A, B, C];

/// Nobody asks first whether the session exists.
pub const TWO_OPENS: Scenario = Scenario {
    name: "two opens, no fault",
    property: Property::OneInstance,
    members: THREE,
    text: LITERAL,
    left: Left { opens: 2, ..NOTHING },
};

/// The intents are lost, the owner goes on after a while, and crashes.
pub const TIMEOUT_THEN_CRASH: Scenario = Scenario {
    name: "time-out, then crash",
    property: Property::OpenKept,
    left: Left { opens: 1, timeouts: 1, losses: 2, crashes: 1, ..NOTHING },
    text: MEANT,
    ..TWO_OPENS
};

/// The same with one more copy.
pub const TIMEOUT_THEN_CRASH_R2: Scenario = Scenario {
    name: "time-out, then crash, with r = 2",
    left: Left { losses: 4, ..TIMEOUT_THEN_CRASH.left },
    text: Text { r: 2, ..MEANT },
    ..TIMEOUT_THEN_CRASH
};

/// The owner that went on crashes, and its successor never heard of the session.
pub const TIMEOUT_THEN_RETRY: Scenario = Scenario {
    name: "time-out, then crash, then a retry",
    property: Property::OneInstance,
    left: Left { opens: 2, timeouts: 1, losses: 1, crashes: 1, ..NOTHING },
    ..TIMEOUT_THEN_CRASH
};

/// A manager is called gone that is only slow: two owners.
pub const FALSE_SIGNAL: Scenario = Scenario {
    name: "false signal: two owners",
    property: Property::OneOwner,
    left: Left { opens: 2, false_signals: 1, ..NOTHING },
    ..TIMEOUT_THEN_CRASH
};

/// The same, until both have created.
pub const FALSE_SIGNAL_TWICE: Scenario = Scenario {
    name: "false signal: two sessions",
    property: Property::OneInstance,
    ..FALSE_SIGNAL
};

/// The owner crashes between the intent and the create.
pub const CRASH_BEFORE_CREATE: Scenario = Scenario {
    name: "crash before the create, answered by a successor",
    property: Property::OpenKept,
    left: Left { opens: 2, crashes: 1, ..NOTHING },
    ..TIMEOUT_THEN_CRASH
};

/// Successors are not told of a close.
pub const CLOSE_FORGOTTEN: Scenario = Scenario {
    name: "close that no successor hears of",
    property: Property::CloseKept,
    left: Left { opens: 2, closes: 1, crashes: 1, ..NOTHING },
    ..TIMEOUT_THEN_CRASH
};

/// A manager joins and not everybody has heard of it: two owners.
pub const JOIN: Scenario = Scenario {
    name: "join that not everybody has heard of: two owners",
    property: Property::OneOwner,
    members: &[B, C],
    left: Left { opens: 2, joins: 1, ..NOTHING },
    ..TIMEOUT_THEN_CRASH
};

/// The same, until both have created.
pub const JOIN_TWICE: Scenario = Scenario {
    name: "join that not everybody has heard of: two sessions",
    property: Property::OneInstance,
    ..JOIN
};

/// A restored manager never hears of one that joined just before.
pub const RESTORE: Scenario = Scenario {
    name: "restore by somebody who has not heard of a join",
    property: Property::AllKnown,
    members: &[B, C, D],
    left: Left { joins: 2, crashes: 1, ..NOTHING },
    ..TIMEOUT_THEN_CRASH
};

/// All of them.
pub const ALL: &[Scenario] = &[
    TWO_OPENS,
    TIMEOUT_THEN_CRASH,
    TIMEOUT_THEN_CRASH_R2,
    TIMEOUT_THEN_RETRY,
    FALSE_SIGNAL,
    FALSE_SIGNAL_TWICE,
    CRASH_BEFORE_CREATE,
    CLOSE_FORGOTTEN,
    JOIN,
    JOIN_TWICE,
    RESTORE,
];
