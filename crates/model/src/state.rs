//! States and reasons of sessions, nodes and managers.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Defines an enum whose variants have one printed form, used in JSON, tables and filters.
macro_rules! printed {
    ($(#[$doc:meta])* $type:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
        pub enum $type { $($(#[$vdoc])* #[serde(rename = $text)] $variant,)* }

        impl $type {
            /// Every variant, in order.
            pub const ALL: &'static [$type] = &[$($type::$variant),*];
            /// The printed form.
            pub fn as_str(self) -> &'static str {
                match self { $($type::$variant => $text,)* }
            }
            /// From the printed form, upper or lower case.
            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|it| it.as_str().eq_ignore_ascii_case(text))
            }
        }
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.pad(self.as_str()) }
        }
    };
}

printed!(
    /// State of one life of a session. It moves only forward: see [`SessionState::may_become`].
    SessionState {
        /// Written by the owner before the node is asked.
        Pending = "PENDING",
        /// The node accepted it; it does not answer yet.
        Starting = "STARTING",
        /// It runs and answers at its address.
        Ready = "READY",
        /// A close was accepted; never undone.
        Closing = "CLOSING",
        /// It ended in good order: by a close or a drain, with its node's lease, or on its own with exit code 0
        /// or in a final state.
        Closed = "CLOSED",
        /// It never became READY, or ended on its own with another exit code or by a signal.
        Failed = "FAILED",
        /// Its node (or that node's boot) is gone.
        Lost = "LOST",
    }
);

impl SessionState {
    /// True for CLOSED, FAILED and LOST: an open starts a new life.
    pub fn is_ended(self) -> bool {
        matches!(self, Self::Closed | Self::Failed | Self::Lost)
    }

    /// Whether one life may move from this state to `next`. PENDING may be written again (with
    /// another node and token after a definite refusal).
    pub fn may_become(self, next: Self) -> bool {
        use SessionState::{Closed, Closing, Failed, Lost, Pending, Ready, Starting};
        match self {
            Pending => true,
            Starting => matches!(next, Starting | Ready | Closing | Closed | Failed | Lost),
            Ready => matches!(next, Ready | Closing | Closed | Failed | Lost),
            Closing => matches!(next, Closing | Closed),
            Closed | Failed | Lost => false,
        }
    }

    /// Whether a session in this state for that reason is opened again when a node has room.
    pub fn is_reopened(self, reason: Option<Reason>) -> bool {
        reason.and_then(Reason::waits_as) == Some(self)
    }

    /// What a life of this state becomes when its node says that it ended, though no manager closed it.
    pub fn ended_unasked(self, reason: Reason, exit: Option<&Exit>) -> Self {
        let well = match exit {
            Some(Exit::FinalState(_)) => true,
            Some(Exit::Code(0)) => self == Self::Ready,
            None => self == Self::Ready && reason != Reason::Internal,
            Some(Exit::Code(_) | Exit::Signal(_)) => false,
        };
        match reason {
            Reason::Exited | Reason::Internal if well => Self::Closed,
            Reason::Exited
            | Reason::Internal
            | Reason::StartTimeout
            | Reason::NoCapacity
            | Reason::Unhealthy
            | Reason::Restarting => Self::Failed,
            Reason::ClosedByClient
            | Reason::ClosedByOperator
            | Reason::IdleTimeout
            | Reason::MaxLifetime
            | Reason::NodeLost
            | Reason::Reopening
            | Reason::LeaseNotRenewed
            | Reason::Drained => Self::Closed,
        }
    }
}

printed!(
    /// Why a session is in the state that it is in.
    Reason {
        /// A client closed it.
        ClosedByClient = "CLOSED_BY_CLIENT",
        /// An operator closed it.
        ClosedByOperator = "CLOSED_BY_OPERATOR",
        /// Nobody used it for its idle time.
        IdleTimeout = "IDLE_TIMEOUT",
        /// It reached its longest life.
        MaxLifetime = "MAX_LIFETIME",
        /// Its program or machine ended on its own.
        Exited = "EXITED",
        /// It did not answer within its class's start time.
        StartTimeout = "START_TIMEOUT",
        /// Its node was declared lost, or booted anew.
        NodeLost = "NODE_LOST",
        /// The same, and its class has it opened again: a new life begins when a node has room.
        Reopening = "REOPENING",
        /// It ended badly, and its class has it started again: a new life begins after a pause.
        Restarting = "RESTARTING",
        /// It failed the health check of its class too often, and its node ended it.
        Unhealthy = "UNHEALTHY",
        /// No manager renewed its node's lease in time, so the node ended it. The node itself may be well.
        LeaseNotRenewed = "LEASE_NOT_RENEWED",
        /// Its node was drained.
        Drained = "DRAINED",
        /// Something in Rota or in its class went wrong; the detail says what.
        Internal = "INTERNAL",
        /// No node took it: each was full, or took nothing just then. Nothing of it ever ran.
        NoCapacity = "NO_CAPACITY",
    }
);

impl Reason {
    /// In which state a session waits for its next life for that reason, if one follows.
    pub fn waits_as(self) -> Option<SessionState> {
        match self {
            Self::Reopening => Some(SessionState::Lost),
            Self::Restarting => Some(SessionState::Failed),
            Self::ClosedByClient
            | Self::ClosedByOperator
            | Self::IdleTimeout
            | Self::MaxLifetime
            | Self::Exited
            | Self::StartTimeout
            | Self::NodeLost
            | Self::Unhealthy
            | Self::LeaseNotRenewed
            | Self::Drained
            | Self::Internal
            | Self::NoCapacity => None,
        }
    }
}

printed!(
    /// State of a node in the registry.
    NodeState {
        /// Registered, not yet asked for anything.
        Joining = "JOINING",
        /// Takes sessions.
        Ready = "READY",
        /// Runs what it has, takes no more.
        Cordoned = "CORDONED",
        /// Being emptied.
        Draining = "DRAINING",
        /// Silent, not yet judged.
        Unreachable = "UNREACHABLE",
        /// Judged gone: its sessions are lost.
        Lost = "LOST",
        /// Left in good order, with nothing running.
        Removed = "REMOVED",
    }
);

impl NodeState {
    /// True for LOST and REMOVED: nothing runs there any more.
    pub fn is_gone(self) -> bool {
        matches!(self, Self::Lost | Self::Removed)
    }
}

printed!(
    /// State of a manager's number in the View.
    ManagerStatus {
        /// Reserved, never started.
        Joining = "JOINING",
        /// Takes copies, counts not yet as Up.
        Syncing = "SYNCING",
        /// Up.
        Active = "ACTIVE",
        /// Hands its partitions on.
        Leaving = "LEAVING",
        /// Taken out by a suspicion, or stopped.
        Down = "DOWN",
        /// Left for good; the number stays reserved.
        Left = "LEFT",
    }
);

/// How a session's program or machine ended.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// Exit code of a program.
    Code(i32),
    /// Signal that ended a program.
    Signal(i32),
    /// Final state that a machine reached.
    FinalState(String),
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exit::Code(code) => write!(f, "exit code {code}"),
            Exit::Signal(signal) => write!(f, "signal {signal}"),
            Exit::FinalState(state) => write!(f, "final state {state}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ended_states_never_change() {
        for from in SessionState::ALL.iter().filter(|state| state.is_ended()) {
            assert!(SessionState::ALL.iter().all(|to| !from.may_become(*to)));
        }
    }

    #[test]
    fn closing_is_never_undone() {
        for to in SessionState::ALL {
            let forward = matches!(to, SessionState::Closing | SessionState::Closed);
            assert_eq!(SessionState::Closing.may_become(*to), forward);
        }
    }

    #[test]
    fn what_nobody_ended_has_failed_unless_it_was_ready_and_ended_well() {
        use SessionState::{Closed, Failed, Pending, Ready, Starting};
        let (well, ill) = (Some(Exit::Code(0)), Some(Exit::Code(3)));
        let (killed, last) = (Some(Exit::Signal(11)), Some(Exit::FinalState("gone".to_owned())));
        let cases = [
            (Ready, Reason::Exited, &well, Closed),
            (Ready, Reason::Exited, &last, Closed),
            (Ready, Reason::Exited, &ill, Failed),
            (Ready, Reason::Exited, &killed, Failed),
            (Ready, Reason::Internal, &killed, Failed),
            (Ready, Reason::Internal, &None, Failed),
            (Starting, Reason::Exited, &well, Failed),
            (Pending, Reason::Exited, &ill, Failed),
            (Starting, Reason::StartTimeout, &killed, Failed),
            (Ready, Reason::Drained, &ill, Closed),
            (Ready, Reason::LeaseNotRenewed, &killed, Closed),
        ];
        for (from, reason, exit, ended) in cases {
            let told = from.ended_unasked(reason, exit.as_ref());
            assert_eq!(told, ended, "{from} {reason} {exit:?}");
            assert!(from.may_become(told));
        }
    }

    #[test]
    fn printed_forms_parse_back() {
        for state in SessionState::ALL {
            assert_eq!(SessionState::parse(&state.as_str().to_lowercase()), Some(*state));
        }
    }
}
