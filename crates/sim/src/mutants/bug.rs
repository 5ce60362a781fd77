//! The planted bugs, by name.

macro_rules! bugs {
    ($($(#[doc = $doc:literal])* $variant:ident = $text:literal,)*) => {
        /// A planted bug.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Bug { $($(#[doc = $doc])* $variant,)* }
        impl Bug {
            /// Every bug.
            pub const ALL: &'static [Bug] = &[$(Bug::$variant),*];
            /// Name on the command line and in reports.
            pub fn as_str(self) -> &'static str { match self { $(Self::$variant => $text,)* } }
            /// What it does, in words.
            pub fn words(self) -> &'static str {
                match self { $(Self::$variant => concat!($($doc),*).trim(),)* }
            }
            /// From its name.
            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|it| it.as_str() == text)
            }
        }
    };
}

bugs!(
    /// A node that answered Full forgets the dead token.
    FullForgotten = "full_forgotten",
    /// Copies take a life whose close was under way when its node was lost for one that is opened again.
    ClosingReopened = "closing_reopened",
    /// A node obeys whatever epoch comes.
    NoFence = "no_fence",
    /// A node obeys calls that were meant for an earlier boot.
    BootIgnored = "boot_ignored",
    /// An owner counts confirmations that were given before it asked.
    StaleConfirm = "stale_confirm",
    /// An owner that may have added a copy, and does not know, reads without its word.
    AddedUnasked = "added_unasked",
    /// A lone copy answers reads by what it knew of the config store.
    LoneUnread = "lone_unread",
    /// An owner takes a node that has not answered yet for full.
    FullAssumed = "full_assumed",
    /// A copy keeps its uncommitted entries instead of what the new owner sends.
    SuffixKept = "suffix_kept",
    /// A lone copy takes over from a disk that is older than its membership. Disks lose what they
    /// held of such partitions since the crash before, and nobody compares epochs.
    WrongR2 = "wrong_r2",
    /// A lone copy that takes over from its disk finds it too old, whatever it holds.
    GivenUpEarly = "given_up_early",
    /// A lone copy that takes over from its disk asks no node what it runs.
    ScanSkipped = "scan_skipped",
    /// A partition of which no copy is complete is served before it is found again.
    RecoverySkipped = "recovery_skipped",
    /// A node that is scanned still obeys earlier epochs.
    ScanUnfenced = "scan_unfenced",
    /// A new owner does not drive what its predecessor began.
    NoRedrive = "no_redrive",
    /// An owner counts a copy that is silent as having acknowledged.
    TimeoutThenProceed = "timeout_then_proceed",
    /// Copies do not keep the request ids.
    RequestForgotten = "request_forgotten",
    /// Copies do not keep what operations remember beside documents.
    MemoryForgotten = "memory_forgotten",
    /// Copies do not keep what operations write.
    WriteForgotten = "write_forgotten",
    /// A manager says that it holds bodies of attachments which it does not.
    BodyBoasted = "body_boasted",
    /// An owner takes what ran on a boot for over as soon as that is shut out.
    GrantUnwaited = "grant_unwaited",
    /// A new owner does, and waits only for what it granted itself.
    NewOwnerUnwaited = "new_owner_unwaited",
    /// A node takes what one owner grants for a lease of all its slots.
    GrantForAll = "grant_for_all",
    /// An agent writes down what it decided after it has done it.
    JournalLate = "journal_late",
    /// The next agent of a machine's run begins a new boot, and goes on with what runs.
    AdoptedAnew = "adopted_anew",
    /// The next agent does not know which tokens are dead.
    DeadForgotten = "dead_forgotten",
    /// The next agent obeys whatever epoch comes first.
    FencesForgotten = "fences_forgotten",
    /// The next agent takes its start for a grant.
    LeaseByItself = "lease_by_itself",
    /// The next agent does not know what nobody has acknowledged.
    NewsForgotten = "news_forgotten",
    /// A copy acknowledges before its disk has it.
    AckBeforeDisk = "ack_before_disk",
    /// An owner takes a destroy for done that never reached the node.
    DestroyAssumed = "destroy_assumed",
    /// The config store writes without comparing.
    CarelessStore = "careless_store",
    /// The config store drops what is left of a node, and does not say that its boots are over.
    DropsUnsaid = "drops_unsaid",
    /// A copy does not tell the new owner of its uncommitted entries.
    HiddenTail = "hidden_tail",
    /// A learner acknowledges a snapshot of which it kept nothing.
    EmptySnapshot = "empty_snapshot",
    /// An owner adds a learner that has not acknowledged everything.
    EarlyMember = "early_member",
    /// A node runs on when its lease has passed.
    LeaseIgnored = "lease_ignored",
    /// A learner takes a late chunk of an earlier copying for one of this.
    LateChunk = "late_chunk",
    /// The owner of a node does not count anew from a later registration of the same boot.
    LeaseNotAnew = "lease_not_anew",
    /// A manager lets every boot in, whatever its data folder proves.
    BootUnproven = "boot_unproven",
    /// A data folder proves boots of other machines to be over.
    FolderBelieved = "folder_believed",
    /// Every refusal says that nothing changed.
    ChangeDenied = "change_denied",
    /// News of a machine is acknowledged and forgotten.
    NewsDropped = "news_dropped",
    /// A list leaves out a session now and then.
    ListMisses = "list_misses",
    /// A watch leaves out a change now and then.
    WatchMisses = "watch_misses",
    /// Both halves of a split go on under the epoch before.
    SplitUnfenced = "split_unfenced",
    /// A newcomer owns its arc before it has learned anything.
    EarlyHandOver = "early_hand_over",
    /// A newcomer is not told that another one joins.
    JoinHidden = "join_hidden",
    /// A newcomer has learned everything but the arc that it gets from its successor.
    EmptyArc = "empty_arc",
    /// What a manager should let go of stays on its disk.
    ReplicaKept = "replica_kept",
    /// Who leaves goes before enough others have copies.
    LeftEarly = "left_early",
    /// Who leaves hands its partitions to a manager that is no copy.
    HandedToStranger = "handed_to_stranger",
    /// Who leaves hands on what is not at rest.
    ReleasedUnwedged = "released_unwedged",
    /// A node's next boot is not cordoned any more.
    CordonForgotten = "cordon_forgotten",
    /// Managers see of a drain only that nothing more is to be placed there.
    DrainHidden = "drain_hidden",
    /// A drain closes what is only to be waited for, too.
    AllDisturbed = "all_disturbed",
    /// Who takes its number again finds everybody running.
    LeftToTheGone = "left_to_the_gone",
    /// Of copies that are all gone only one may take over.
    OneMayReturn = "one_may_return",
    /// A manager that takes its number again stays a copy of what it was a copy of.
    ClaimStays = "claim_stays",
    /// Managers do not see that nothing more is to be placed on a node.
    CordonUnseen = "cordon_unseen",
    /// A manager takes a View of another ring for one of its own.
    OtherRingFollowed = "other_ring_followed",
    /// A manager takes a View that went back for the next one.
    OldStoreFollowed = "old_store_followed",
    /// An owner counts acknowledgements of earlier epochs for its own.
    LateAckCounted = "late_ack_counted",
    /// A copy acknowledges under an epoch that it knows to be over.
    OldEpochAcked = "old_epoch_acked",
    /// An owner begins anything new with the copies that it has.
    CopiesUnawaited = "copies_unawaited",
    /// Who adds a copy lets go of those that are not wanted, however few there are.
    ShedEarly = "shed_early",
    /// A learner from before a loss gets what changed since: the rest stays as it was there.
    DeltaAfterLoss = "delta_after_loss",
    /// A node boots without fences.
    BootUnfenced = "boot_unfenced",
    /// A manager takes a boot for registered before that is written.
    RegisteredEarly = "registered_early",
    /// Who finds a partition again waits for nobody who may hold more.
    BetterUnawaited = "better_unawaited",
    /// An owner that does not know whether a copy was added goes on as if it was not.
    AddingForgotten = "adding_forgotten",
    /// A new owner serves before its copies have answered its Sync.
    ServedUnsynced = "served_unsynced",
    /// A copy takes what a Sync brought for committed before its owner says so.
    SyncSettled = "sync_settled",
    /// A manager speaks as a new run before that is written.
    ClaimedEarly = "claimed_early",
    /// A node counts its lease from when the answer comes, not from when it asked.
    LeaseFromAnswer = "lease_from_answer",
    /// A node that says Destroyed of what it does not run forgets the dead token.
    DestroyedForgotten = "destroyed_forgotten",
    /// A node waits for what it starts as long as that takes.
    DeadlineIgnored = "deadline_ignored",
    /// Owners forget what has ended long before its time.
    EndedForgotten = "ended_forgotten",
    /// A link says of calls that it has sent that nothing of them was.
    UnsentAssumed = "unsent_assumed",
    /// A new owner takes back what its predecessor asked for, since nothing of its own calls was sent.
    WithdrawnLater = "withdrawn_later",
    /// A task's end is no part of the commit of its operation.
    TaskEndApart = "task_end_apart",
    /// Whoever runs the programs of tasks says that they ended, and runs none.
    TaskUnrun = "task_unrun",
    /// An owner gives a page of a search before it has looked at all its documents.
    SearchUnbuilt = "search_unbuilt",
    /// Whoever holds copies says that they were written, and lets them fall.
    CopyForgotten = "copy_forgotten",
    /// A node that is asked again for an action that runs runs it once more beside that.
    ActionTwice = "action_twice",
    /// A node runs an action without a look whether its session runs.
    ActionUnguarded = "action_unguarded",
    /// Copies are told that an event fired whose action has not ended.
    EventUnrun = "event_unrun",
    /// A life that a client closed is started again by the next owner, as if it had ended badly.
    ClosingRestarted = "closing_restarted",
    /// An owner asks for an action once more whose event has fired, or was removed, since.
    GoneActed = "gone_acted",
    /// An owner asks for an action of a life whose end it wrote already.
    EndedActed = "ended_acted",
    /// A new owner asks for no action of what its predecessor placed.
    TimerLost = "timer_lost",
    /// A node says of an action that it ended well, and runs nothing.
    ActionUnrun = "action_unrun",
);

impl Bug {
    /// Whether only a search plants it: seeds hardly ever come where it matters.
    pub fn is_for_searches(self) -> bool {
        matches!(
            self,
            Bug::AddedUnasked
                | Bug::LoneUnread
                | Bug::FullAssumed
                | Bug::LeaseByItself
                | Bug::FencesForgotten
                | Bug::NewsForgotten
        )
    }

    /// Whether a broken rule proves that this bug was noticed.
    pub fn is_proved_by(self, rule: &str) -> bool {
        // Its disks lose writes, so sound managers stop the partition (R2) and say nothing wrong.
        // Only a wrong answer shows that they do not.
        let stands_still = matches!(rule, "converged" | "progress" | "served" | "given up");
        if matches!(self, Bug::ClosingReopened | Bug::ClosingRestarted) {
            return rule == "closed for good";
        }
        self != Bug::WrongR2 || !stands_still
    }
}
