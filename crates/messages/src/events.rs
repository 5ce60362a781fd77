//! What happened to sessions and content, as commits tell it, and to the ring. Managers keep the latest of it for
//! operators.

use rota_model::{ClassName, NodeId, Reason, SessionKey, Stamp};

/// What happened in one commit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// To a session.
    Session(SessionEvent),
    /// To content.
    Content(ContentEvent),
}

/// What happened to content that nodes run, in one commit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContentEvent {
    /// When it was written, by its owner's clock.
    pub at: Stamp,
    /// The version that it led to. An event that is told again has the same.
    pub version: Stamp,
    /// What happened.
    pub kind: ContentEventKind,
    /// A sentence for people.
    pub text: String,
}

/// What happened to a session in one commit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionEvent {
    /// When it was written, by its owner's clock: the version, unless that runs ahead of the clock.
    pub at: Stamp,
    /// The version that it led to. An event that is told again has the same.
    pub version: Stamp,
    /// What happened.
    pub kind: SessionEventKind,
    /// The session.
    pub session: SessionKey,
    /// Its life. `None` for what life cycles tell: they may go on over several lives.
    pub life: Option<Stamp>,
    /// What it runs. `None` for what life cycles tell.
    pub class: Option<ClassName>,
    /// Where it runs, ran or is to run.
    pub node: Option<NodeId>,
    /// Why, once it is closing or has ended.
    pub reason: Option<Reason>,
    /// A sentence for people; may be empty.
    pub text: String,
}

macro_rules! kinds {
    ($(#[$type_doc:meta])* $type:ident { $($(#[$doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$type_doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum $type { $($(#[$doc])* $variant,)* }
        impl $type {
            /// Every kind.
            pub const ALL: &'static [$type] = &[$($type::$variant),*];
            /// The printed form.
            pub const fn as_str(self) -> &'static str { match self { $(Self::$variant => $text,)* } }
            /// From the printed form.
            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|it| it.as_str() == text)
            }
        }
    };
}

kinds!(
    /// What happens to sessions.
    SessionEventKind {
        /// A life began, or a node refused it: this node is asked.
        Placed = "session_placed",
        /// It is READY, and answers at its address.
        Opened = "session_opened",
        /// Its attributes were changed.
        Changed = "session_changed",
        /// It is being closed.
        Closing = "session_closing",
        /// It is CLOSED.
        Closed = "session_closed",
        /// It is FAILED.
        Failed = "session_failed",
        /// It is LOST.
        Lost = "session_lost",
        /// An event of a life cycle fired: it was marked, its action succeeded, or an operator skipped it.
        EventFired = "event_fired",
        /// The action of an event failed.
        ActionFailed = "action_failed",
    }
);

kinds!(
    /// What happens to content.
    ContentEventKind {
        /// A repository has a new commit.
        Published = "content_published",
        /// It has a new commit with the files of an earlier one.
        RolledBack = "content_rolled_back",
        /// It was removed with all its commits.
        Removed = "content_removed",
        /// The nodes of a pool follow it, or another commit of it.
        Followed = "content_followed",
        /// The nodes of a pool follow nothing any more.
        Unfollowed = "content_unfollowed",
    }
);

kinds!(
    /// What happens to the ring and its nodes. The names are those of the steps that managers count.
    RingEventKind {
        /// A manager took its number.
        Claimed = "claimed",
        /// It wrote down who did not answer it.
        OthersGone = "others_gone",
        /// A partition serves: its owner took over, or started.
        Serving = "serving",
        /// A manager gave a partition up.
        SteppedDown = "stepped_down",
        /// A lone copy took over from its own disk.
        LoneTakeOver = "lone_take_over",
        /// Acknowledged writes of a partition are lost.
        LastCopyLost = "last_copy_lost",
        /// A partition is to be found again from its nodes.
        GivenUp = "given_up",
        /// A manager that holds more of it is to find it again.
        RecoveryHandedOn = "recovery_handed_on",
        /// A partition was found again.
        Recovered = "recovered",
        /// A copy of a partition was added.
        MemberAdded = "member_added",
        /// A copy of a partition was taken out, to learn.
        MemberDropped = "member_dropped",
        /// A newcomer came into the ring.
        JoinStarted = "join_started",
        /// It holds all that it should.
        JoinFinished = "join_finished",
        /// It was taken out before that.
        JoinRolledBack = "join_rolled_back",
        /// It came no further.
        JoinGivenUp = "join_given_up",
        /// An operator took a join back.
        JoinCancelled = "join_cancelled",
        /// A number began to leave.
        LeaveStarted = "leave_started",
        /// It has left.
        LeaveFinished = "leave_finished",
        /// It is down with a last copy, so it stays.
        LeaveRolledBack = "leave_rolled_back",
        /// It came no further, so it stays.
        LeaveGivenUp = "leave_given_up",
        /// An operator took a leave back.
        LeaveCancelled = "leave_cancelled",
        /// A manager that did not answer was taken out.
        TakenOut = "taken_out",
        /// A node registered a boot.
        NodeRegistered = "node_registered",
        /// An operator cordoned or drained a node, or let it serve again.
        NodeOrdered = "node_ordered",
        /// A node was declared LOST.
        NodeLost = "node_lost",
        /// New nodes of a pool were ordered.
        NodesOrdered = "nodes_ordered",
        /// They do not come.
        OrderFailed = "order_failed",
        /// A node that its pool needs no more is drained, and ends.
        NodeEnds = "node_ends",
        /// What is left of a node could not be cleared away.
        NodeNotCleared = "node_not_cleared",
        /// A task failed too often, and is PARKED.
        TaskGivenUp = "task_given_up",
    }
);

kinds!(
    /// What is said of events by who gathers them from several managers.
    RemarkKind {
        /// A manager does not answer.
        Silent = "manager_silent",
        /// A manager does not keep what came before.
        Missed = "events_missed",
        /// A manager was started anew, and remembers nothing from before that.
        Forgotten = "events_forgotten",
    }
);

/// The printed forms of all kinds that managers tell.
pub fn all_kinds() -> impl Iterator<Item = &'static str> {
    let ring = RingEventKind::ALL.iter().map(|it| it.as_str());
    let content = ContentEventKind::ALL.iter().map(|it| it.as_str());
    SessionEventKind::ALL.iter().map(|it| it.as_str()).chain(content).chain(ring)
}
