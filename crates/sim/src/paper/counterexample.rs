//! The shortest ways in which the first text breaks what is promised, found by search.

use super::ring::{Left, State, Text, Who};
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
    /// Who is refused a close has it sooner or later, if it asks again.
    Closable,
    /// Who is wrongly taken for gone is known to be there again, sooner or later.
    Healing,
    /// Copies are with the owner and its successors only, sooner or later.
    NoSurplus,
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
            Property::Closable => "every session can be closed",
            Property::Healing => "a false suspicion heals",
            Property::NoSurplus => "no surplus copies",
        }
    }

    fn is_broken(self, state: &State, text: Text) -> bool {
        match self {
            Property::OneInstance => state.runs_twice(),
            Property::OpenKept => state.is_lost(),
            Property::CloseKept => state.is_back(),
            Property::OneOwner => state.has_two_owners(),
            Property::AllKnown => state.is_split(),
            Property::Closable => {
                state.is_refused() && never(&state.asked_again(), text, State::is_closed)
            }
            Property::Healing => {
                state.is_suspicious() && never(state, text, |it| !it.is_suspicious())
            }
            Property::NoSurplus => {
                state.has_surplus(text.r) && never(state, text, |it| !it.has_surplus(text.r))
            }
        }
    }
}

/// Whatever may still happen, no way leads to a state like that.
fn never(from: &State, text: Text, wanted: impl Fn(&State) -> bool) -> bool {
    let searched = search(from, STATES_MAX, |state| state.steps(text), wanted);
    assert!(searched.exhausted || searched.trace.is_some(), "more states than a search looks at");
    searched.trace.is_none()
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
        let broken = |state: &State| self.property.is_broken(state, self.text);
        search(&start, STATES_MAX, |state| state.steps(self.text), broken)
    }
}

const NOTHING: Left =
    Left { opens: 0, closes: 0, crashes: 0, timeouts: 0, losses: 0, false_signals: 0, joins: 0 };
const LITERAL: Text = Text {
    r: 1,
    looks_first: false,
    tells_closes: false,
    in_order: false,
    disks: false,
    joins_at_rest: false,
    drops_all: false,
};
/// So that the first scenario does not hide all others.
const MEANT: Text = Text { looks_first: true, ..LITERAL };
/// So that the close that no successor hears of does not hide other ways to lose one.
const CLOSES_TOLD: Text = Text { tells_closes: true, in_order: true, ..MEANT };
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

/// Successors are told of a close, and not waited for without end. What tells one of them is lost.
pub const CLOSE_LOST: Scenario = Scenario {
    name: "close of which the notice is lost",
    text: CLOSES_TOLD,
    left: Left { losses: 1, timeouts: 1, ..CLOSE_FORGOTTEN.left },
    ..CLOSE_FORGOTTEN
};

/// Successors are told of a close and confirm it. That the session was created comes later.
pub const CLOSE_OVERTAKES: Scenario = Scenario {
    name: "close that overtakes the news of the creation",
    text: Text { in_order: false, ..CLOSES_TOLD },
    ..CLOSE_FORGOTTEN
};

/// The successors that are there are told of a close and confirm it. One comes back with its disk.
pub const CLOSE_OLD_DISK: Scenario = Scenario {
    name: "close while a successor is down, which returns with its disk",
    text: Text { disks: true, joins_at_rest: true, ..CLOSES_TOLD },
    left: Left { crashes: 2, joins: 1, ..CLOSE_FORGOTTEN.left },
    ..CLOSE_FORGOTTEN
};

/// Only who created a session can have it closed.
pub const CLOSE_REFUSED: Scenario = Scenario {
    name: "close that needs a creator which is gone",
    property: Property::Closable,
    left: Left { opens: 1, closes: 1, crashes: 1, ..NOTHING },
    ..TIMEOUT_THEN_CRASH
};

/// A manager is called gone that is only slow. It has no reason to tell that it is there.
pub const NEVER_HEALED: Scenario = Scenario {
    name: "false signal: nobody takes it back",
    property: Property::Healing,
    left: Left { opens: 2, closes: 1, false_signals: 1, ..NOTHING },
    ..TIMEOUT_THEN_CRASH
};

/// A newcomer takes a copy of what its predecessor owns, and who had that copy keeps it.
pub const JOIN_SURPLUS: Scenario = Scenario {
    name: "join that drops no copy of what a predecessor owns",
    property: Property::NoSurplus,
    members: &[A, C, D],
    text: Text { joins_at_rest: true, ..MEANT },
    left: Left { opens: 1, closes: 1, joins: 1, ..NOTHING },
};

/// Such a copy is told nothing any more, and serves what was closed.
pub const JOIN_SURPLUS_SERVED: Scenario = Scenario {
    name: "join that drops no copy of what a predecessor owns, which serves it after a close",
    property: Property::CloseKept,
    text: Text { joins_at_rest: true, ..CLOSES_TOLD },
    left: Left { opens: 2, crashes: 2, ..JOIN_SURPLUS.left },
    ..JOIN_SURPLUS
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
    CLOSE_LOST,
    CLOSE_OVERTAKES,
    CLOSE_OLD_DISK,
    JOIN,
    JOIN_TWICE,
    RESTORE,
    JOIN_SURPLUS,
    JOIN_SURPLUS_SERVED,
    CLOSE_REFUSED,
    NEVER_HEALED,
];
