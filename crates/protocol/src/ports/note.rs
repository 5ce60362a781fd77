//! Steps of the protocol that are worth counting or telling.

use rota_model::{ClassName, ManagerNumber, NodeId, Reason, SessionKey, SessionState};

/// Something worth counting or telling.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Note {
    /// What kind of step.
    pub transition: Transition,
    /// The partition, where there is one.
    pub part: Option<ManagerNumber>,
    /// The node, where it is about one.
    pub node: Option<NodeId>,
    /// The session, where it is about one that this step names.
    pub session: Option<Box<SessionKey>>,
    /// A sentence for people; may be empty.
    pub text: String,
    /// The end of a life that was written, where the step is one.
    pub end: Option<Box<SessionEnd>>,
}

/// The end of a life as its owner writes it. One that takes over before it is committed writes it again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionEnd {
    /// What it ran.
    pub class: ClassName,
    /// State before: READY, or how far its start or close had come.
    pub from: SessionState,
    /// State after: CLOSED, FAILED or LOST.
    pub state: SessionState,
    /// Why.
    pub reason: Option<Reason>,
}

macro_rules! transitions {
    ($($(#[$doc:meta])* $variant:ident = $text:literal,)*) => {
        /// A step of the protocol. The simulator fails when one never happened.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Transition { $($(#[$doc])* $variant,)* }
        impl Transition {
            /// Every step.
            pub const ALL: &'static [Transition] = &[$(Transition::$variant),*];
            /// Name in traces, counters and metrics.
            pub const fn as_str(self) -> &'static str { match self { $(Self::$variant => $text,)* } }
        }
    };
}

transitions!(
    /// A number was claimed.
    Claimed = "claimed",
    /// A manager that took its number wrote down who did not answer it, since its copies would have been
    /// left to them.
    OthersGone = "others_gone",
    /// A new View was adopted.
    ViewAdopted = "view_adopted",
    /// The config store's View breaks a rule, or is of another ring: the one before stays.
    ViewRefused = "view_refused",
    /// A partition began to synchronise under a new epoch.
    SyncStarted = "sync_started",
    /// A partition serves.
    Serving = "serving",
    /// A partition was handed to another owner.
    SteppedDown = "stepped_down",
    /// A copy's uncommitted entries were overwritten.
    SuffixReplaced = "suffix_replaced",
    /// A copy asked for entries that it missed.
    GapResent = "gap_resent",
    /// A lone copy took over from its own disk and began to scan the nodes.
    LoneTakeOver = "lone_take_over",
    /// That scan ended.
    ScanDone = "scan_done",
    /// Acknowledged writes of a partition are lost: its owner finds again what runs.
    LastCopyLost = "last_copy_lost",
    /// The View says that a partition is to be found again, since its owner saw that its disk is old.
    GivenUp = "given_up",
    /// A manager that holds more of a partition is to find it again.
    RecoveryHandedOn = "recovery_handed_on",
    /// A partition was found again from the nodes, and is about to serve.
    Recovered = "recovered",
    /// Copying to a learner began.
    LearnStarted = "learn_started",
    /// A learner fell behind what the owner keeps: copying to it began anew.
    LearnRestarted = "learn_restarted",
    /// The owner stopped new entries to add a member.
    Wedged = "wedged",
    /// A member was added.
    MemberAdded = "member_added",
    /// A copy that needs full content was taken out of the ISR, to learn.
    MemberDropped = "member_dropped",
    /// A former copy was dropped.
    CopyDropped = "copy_dropped",
    /// A newcomer came into the ring.
    JoinStarted = "join_started",
    /// Its arc was cut out of the partition that held it, by that one's owner.
    ArcSplit = "arc_split",
    /// A manager cut its copy in two.
    ArcCut = "arc_cut",
    /// A newcomer holds all that it should.
    JoinFinished = "join_finished",
    /// A newcomer was taken out before it held all that it should.
    JoinRolledBack = "join_rolled_back",
    /// A newcomer came no further for so long that the next may join.
    JoinGivenUp = "join_given_up",
    /// An operator took a join back: the newcomer leaves.
    JoinCancelled = "join_cancelled",
    /// A number began to leave the ring.
    LeaveStarted = "leave_started",
    /// An owner let who leaves go from a partition of which enough others have copies.
    LeaverReleased = "leaver_released",
    /// A number has left: it holds nothing that the ring needs.
    LeaveFinished = "leave_finished",
    /// A run ends, since its number has left.
    HasLeft = "has_left",
    /// Who was leaving is down with a last copy, so it stays.
    LeaveRolledBack = "leave_rolled_back",
    /// Who was leaving came no further for so long that it stays.
    LeaveGivenUp = "leave_given_up",
    /// An operator took a leave back.
    LeaveCancelled = "leave_cancelled",
    /// Copying began to a manager that stands in for one that cannot be copied to.
    StandInStarted = "stand_in_started",
    /// An owner gave its own partition a new epoch, since a change of unknown outcome might land.
    EpochRenewed = "epoch_renewed",
    /// A manager was suspected.
    Suspected = "suspected",
    /// A manager was taken out.
    TakenOut = "taken_out",
    /// A compare-and-set lost the race.
    CasConflict = "cas_conflict",
    /// A compare-and-set has an unknown outcome.
    CasUnknown = "cas_unknown",
    /// An id was driven again by a new owner.
    Redriven = "redriven",
    /// A new life began: PENDING was written.
    OpenPending = "open_pending",
    /// An open was answered CREATED.
    OpenCreated = "open_created",
    /// An open was answered EXISTED.
    OpenExisted = "open_existed",
    /// A repeated request id was answered from the record.
    RequestRepeated = "request_repeated",
    /// Another node was chosen after a definite refusal.
    NodeRefused = "node_refused",
    /// A node took nothing at that time, its lease over or leaving: it is not chosen for a while.
    NodeUnable = "node_unable",
    /// An attempt of which nothing was ever sent was taken back, and another node chosen.
    Withdrawn = "withdrawn",
    /// A life found no node.
    OpenFailed = "open_failed",
    /// CLOSING was written.
    CloseStarted = "close_started",
    /// CLOSED was written.
    CloseFinished = "close_finished",
    /// A node reported an end.
    Ended = "ended",
    /// A session was lost with its node.
    SessionLost = "session_lost",
    /// A lost session is opened again.
    SessionReopened = "session_reopened",
    /// A new life of a session that ended badly.
    SessionRestarted = "session_restarted",
    /// A session that nobody used, or that lived long enough, is being closed.
    SessionExpired = "session_expired",
    /// Attributes or life cycles of a session were changed.
    SessionUpdated = "session_updated",
    /// An event of a life cycle fired: it was marked, or its action succeeded.
    EventFired = "event_fired",
    /// A node is asked for an action.
    ActionBegan = "action_began",
    /// An action failed.
    ActionFailed = "action_failed",
    /// The life cycles of a session ended with it.
    LifeCyclesEnded = "life_cycles_ended",
    /// A node was declared lost.
    NodeLost = "node_lost",
    /// A node registered a boot.
    NodeRegistered = "node_registered",
    /// A node was refused, since it does not prove that its registered boot is over.
    NodeUnproven = "node_unproven",
    /// An operator cordoned or drained a node, or let it serve again.
    NodeOrdered = "node_ordered",
    /// A session is closed, since its node is drained.
    SessionDrained = "session_drained",
    /// A node was fenced off an older owner, or the owner off it.
    Fenced = "fenced",
    /// A request was forwarded to an owner.
    Forwarded = "forwarded",
    /// A forwarded request was sent again.
    ForwardRetried = "forward_retried",
    /// A read was confirmed with the copies.
    ReadConfirmed = "read_confirmed",
    /// A tombstone was removed.
    TombstonePurged = "tombstone_purged",
    /// Destroyed items of a document were forgotten.
    ItemsForgotten = "items_forgotten",
    /// An operation changed documents.
    Operated = "operated",
    /// An operation only read.
    OperationRead = "operation_read",
    /// An operation failed unexpectedly, and waits for its next attempt.
    OperationPaused = "operation_paused",
    /// An operation of an application began to work beside the decisions.
    WorkBegun = "work_begun",
    /// One works for longer than it may: its caller was told so.
    WorkOverdue = "work_overdue",
    /// One was refused, since as many work as may.
    WorkRefused = "work_refused",
    /// One has worked for nobody: its caller was told something else meanwhile, or another owner works.
    WorkDropped = "work_dropped",
    /// An operation waits for documents of other owners.
    DocumentsFetched = "documents_fetched",
    /// Copies of documents were brought up to date.
    CopiesSynced = "copies_synced",
    /// The description of a namespace was learned.
    NamespaceLearned = "namespace_learned",
    /// A request was refused, since its namespace is switched off.
    NamespaceRefused = "namespace_refused",
    /// New nodes were ordered.
    NodesOrdered = "nodes_ordered",
    /// What is left of a node that is gone could not be cleared away.
    NodeNotCleared = "node_not_cleared",
    /// A node that its pool needs no more is drained, and ends.
    NodeEnds = "node_ends",
    /// Nodes that were to be ordered do not come.
    OrderFailed = "order_failed",
    /// A task was started.
    TaskStarted = "task_started",
    /// A start was refused: nothing is started for a while.
    TaskNotStarted = "task_not_started",
    /// A run committed a cycle and goes on with a checkpoint.
    TaskWentOn = "task_went_on",
    /// Items of another document were written where copies are held.
    Copied = "copied",
    /// A task whose work goes around the ring began.
    RingTaskBegan = "ring_task_began",
    /// An owner gave a page of a search.
    Searched = "searched",
    /// A run ended well.
    TaskEnded = "task_ended",
    /// A run ended badly.
    TaskFailed = "task_failed",
    /// A run was found of which no worker tells the end.
    TaskLost = "task_lost",
    /// A task failed too often, and waits for an administrator.
    TaskGivenUp = "task_given_up",
);
