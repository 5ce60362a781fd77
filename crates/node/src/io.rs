//! Inputs and effects: everything that passes between a node's decisions and the world.

use crate::journal::Entry;
use crate::lease::SlotLease;
use rota_model::node_msg::{
    Action, ActionEnd, FromNode, Registered, Renew, Renewed, ReportItem, ToNode,
};
use rota_model::{
    BootId, Exit, ManagerNumber, Reason, SessionKey, SessionSpec, SlotId, Stamp, Token,
};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Names one report of the outbox; comes back in [`NodeInput::ReportsAcked`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ReportId(pub u64);

impl fmt::Debug for ReportId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "report{}", self.0)
    }
}

/// Something that happened.
///
/// What the runtime says of a token that does not live here is ignored, so late news is harmless.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum NodeInput {
    /// A manager answered the registration of this boot. The first one gives the first fences;
    /// every call before it is ignored. It counts as a renewal of the lease.
    Registered {
        /// When the registration was sent, on the monotonic clock.
        sent_mono_ms: u64,
        /// The answer.
        registered: Registered,
    },
    /// A manager's call.
    Call {
        /// The driver's name for the stream that it came by; comes back in
        /// [`NodeEffect::Answer`].
        stream: u64,
        /// The call.
        message: ToNode,
    },
    /// A stream is gone: answers that wait for it are dropped (its manager asks again by another).
    StreamClosed {
        /// The stream.
        stream: u64,
    },
    /// Runtime: the session of a [`NodeEffect::Start`] runs.
    Started {
        /// Which session.
        key: SessionKey,
        /// Which attempt.
        token: Token,
        /// Where it answers or will answer, `host:port`.
        address: String,
        /// Whether it answers already. If not, [`NodeInput::Ready`] follows (or an end).
        ready: bool,
        /// What its opener should know of it, for people; empty when there is nothing.
        remark: String,
    },
    /// Runtime: it answers now.
    Ready {
        /// Which session.
        key: SessionKey,
        /// Which attempt.
        token: Token,
        /// Where.
        address: String,
    },
    /// Runtime: nothing of a [`NodeEffect::Start`] ever ran, and nothing will: the program was not
    /// found, an attribute is missing, the time to start it had passed, or a stop came first.
    StartFailed {
        /// Which session.
        key: SessionKey,
        /// Which attempt.
        token: Token,
        /// Why, for people.
        detail: String,
    },
    /// Runtime: it ended on its own (or was ended by the runtime for not getting ready in time),
    /// and the whole process group is gone.
    Ended {
        /// Which session.
        key: SessionKey,
        /// Which attempt.
        token: Token,
        /// Why.
        reason: Reason,
        /// How, if known.
        exit: Option<Exit>,
        /// For people.
        detail: String,
    },
    /// Runtime: it ended after a [`NodeEffect::Stop`], and the whole process group is gone.
    Stopped {
        /// Which session.
        key: SessionKey,
        /// Which attempt.
        token: Token,
        /// How, if known.
        exit: Option<Exit>,
        /// What there is to say of that, for people; empty when it ended in good order.
        detail: String,
    },
    /// Runtime: a machine is in this state now.
    MachineState {
        /// Which session.
        key: SessionKey,
        /// Which attempt.
        token: Token,
        /// The state's name.
        state: String,
        /// How many transitions it made so far ([`crate::machine::Machine::changes`]).
        change: u64,
        /// Whether managers are told. What no manager is told is kept for the next agent alone.
        told: bool,
    },
    /// Runtime: the action of a [`NodeEffect::Act`] came to its end, and nothing of it runs any more.
    Acted {
        /// Which session.
        key: SessionKey,
        /// Which attempt.
        token: Token,
        /// The life cycle.
        life_cycle: String,
        /// The last word of the item.
        word: String,
        /// How it ended.
        end: ActionEnd,
    },
    /// A manager answered a [`NodeEffect::Renew`].
    Renewed {
        /// The boot in the renewal; an answer to an earlier boot is ignored.
        boot: BootId,
        /// The effect's `sent_mono_ms`.
        sent_mono_ms: u64,
        /// The answer.
        renewed: Renewed,
    },
    /// A manager opened a stream to this node: there is one. A renewal that waits for its grant is repeated at
    /// once, since little of the lease may be left.
    Reached,
    /// Managers have committed these reports.
    ReportsAcked {
        /// Which; unknown ones are ignored.
        ids: Vec<ReportId>,
    },
    /// The node is to leave in good order: take nothing new, end everything politely (reason
    /// DRAINED), report it. [`NodeEffect::Left`] follows when that is done.
    Leave,
    /// Time passed.
    Tick,
}

/// How urgently a session is to be stopped. A later [`NodeEffect::Stop`] of the same token only
/// gets more urgent (`Class` < `Within` < `Term` < `Kill`, and `Within` may be repeated).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum StopHow {
    /// Politely; kill when the class's own grace has passed.
    Class,
    /// Politely; kill when so many milliseconds have passed, but never later than was said before.
    Within(u64),
    /// Politely, because the lease ran out. The class's grace does not apply: a `Kill` follows at
    /// the lease's own time.
    Term,
    /// At once.
    Kill,
}

impl StopHow {
    /// Whether this is news to a session that is being stopped as `before` says. Of two `Within` the earlier
    /// end counts, wherever times are known.
    pub fn may_hasten(self, before: Self) -> bool {
        let both_within = matches!((self, before), (Self::Within(_), Self::Within(_)));
        both_within || self.rank() > before.rank()
    }

    fn rank(self) -> u8 {
        match self {
            Self::Class => 0,
            Self::Within(_) => 1,
            Self::Term => 2,
            Self::Kill => 3,
        }
    }
}

/// A session as the journal of an earlier agent has it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Adopted {
    /// Which life.
    pub life: Stamp,
    /// Its slot.
    pub slot: SlotId,
    /// What it runs.
    pub spec: SessionSpec,
    /// Whether it answers already.
    pub ready: bool,
    /// The machine's state and how many transitions led there, if it is one.
    pub machine: Option<(String, u64)>,
}

/// Something to do, in the order given.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum NodeEffect {
    /// Write these down before anything else of this list is done: an agent that comes after this one, on the same
    /// machine and while it runs, goes on from there ([`crate::Node::resumed`]). The first effect, if it is there.
    Journal {
        /// What changed.
        entries: Vec<Entry>,
    },
    /// Answer a call. Loss is allowed: managers ask again.
    Answer {
        /// The stream that the call came by.
        stream: u64,
        /// The answer.
        answer: FromNode,
    },
    /// Runtime: start a session; then give [`NodeInput::Started`], [`NodeInput::StartFailed`] or
    /// [`NodeInput::Ended`].
    Start {
        /// Which session.
        key: SessionKey,
        /// Which attempt.
        token: Token,
        /// What to run; the class is one that the node knows.
        spec: SessionSpec,
        /// Do not begin later than this, on the monotonic clock: give [`NodeInput::StartFailed`].
        not_after_mono_ms: u64,
    },
    /// Runtime: an earlier agent of this boot began this session. Go on with what runs of it, and tell of it as of a
    /// start: what is told again is no news. If it has ended, tell its end; if nothing of it ever ran, give
    /// [`NodeInput::StartFailed`].
    Adopt {
        /// Which session.
        key: SessionKey,
        /// Which attempt.
        token: Token,
        /// How it stood.
        adopted: Box<Adopted>,
    },
    /// Runtime: stop a session, wherever its start stands; when nothing of it runs any more, give
    /// [`NodeInput::Stopped`] (or [`NodeInput::StartFailed`] if it never ran). May be repeated
    /// with more urgency.
    Stop {
        /// Which session.
        key: SessionKey,
        /// Which attempt.
        token: Token,
        /// How urgently.
        how: StopHow,
    },
    /// Runtime: run an action of a session that runs; when nothing of it runs any more, give [`NodeInput::Acted`]. The
    /// session's end ends its action. No second one of a session is asked for until then.
    Act {
        /// Which session.
        key: SessionKey,
        /// Which attempt.
        token: Token,
        /// What the session runs.
        spec: SessionSpec,
        /// What to run.
        action: Box<Action>,
    },
    /// Send a report to any manager (another one at each attempt is wise); when it is acknowledged
    /// give [`NodeInput::ReportsAcked`]. It is repeated with the same id until then. One session
    /// has at most one report under way, so order is kept by itself.
    Report {
        /// Names it.
        id: ReportId,
        /// The report.
        item: ReportItem,
        /// 0 for the first time, then counts up.
        attempt: u32,
    },
    /// Send a sign of life to each of these managers; give every answer as
    /// [`NodeInput::Renewed`].
    Renew {
        /// When this was decided: the lease counts from here.
        sent_mono_ms: u64,
        /// The sign of life.
        renew: Renew,
        /// To whom: number, address.
        managers: Vec<(ManagerNumber, String)>,
    },
    /// The lease moved: every keeper, present and future, is to end its program by itself at the times of its
    /// session's slot, should nothing newer come.
    Lease {
        /// All slots in which anything may run.
        slots: Vec<SlotLease>,
    },
    /// This boot was declared lost, and nothing of it runs any more: make a new [`crate::Node`]
    /// with a new boot id and register it. Nothing else comes from this one.
    BootAnew,
    /// After [`NodeInput::Leave`]: nothing runs, and every report is acknowledged. Register the
    /// boot as REMOVED and exit. (The driver bounds how long it waits for this.)
    Left,
    /// Its pool needs this node no more, and nothing runs here: it leaves as after [`NodeInput::Leave`].
    Retire,
}

impl NodeEffect {
    /// All slots in which anything may run, if the lease moved.
    pub fn lease(&self) -> Option<&[SlotLease]> {
        match self {
            Self::Lease { slots } => Some(slots),
            Self::Answer { .. }
            | Self::Journal { .. }
            | Self::Start { .. }
            | Self::Adopt { .. }
            | Self::Stop { .. }
            | Self::Act { .. }
            | Self::Report { .. }
            | Self::Renew { .. }
            | Self::BootAnew
            | Self::Left
            | Self::Retire => None,
        }
    }
}
