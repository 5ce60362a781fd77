//! What lives in a partition beside its log. The log knows nothing of what it says: a new kind of thing is a room
//! of its own, with its own state, and reaches the log through [`At`] alone.

use crate::log::at::At;
use crate::log::env::Env;
use crate::log::lead::{Next, Phase};
use crate::log::origin::Origin;
use crate::log::state::Log;
use rota_messages::{DocKey, Op, OpResult, Write};
use std::collections::{BTreeMap, BTreeSet};

/// Something that lives in a partition at its owner. It says what it does when the log moves; by default nothing.
pub(crate) trait Resident {
    /// Ownership begins, in that phase.
    fn begin(env: &Env, phase: &Phase) -> Self
    where
        Self: Sized;

    /// Goes on with finding out what must be known before the log may begin.
    fn find_out(&mut self, _: &mut At<'_>) -> Next {
        Next::Nothing
    }

    /// The registry of nodes changed.
    fn nodes_changed(&mut self, _: &mut At<'_>) {}

    /// Writes that the first entry of a new epoch carries, beside `found`: one entry writes a document once.
    fn first_writes(&self, _: &mut Env, _: &Log, _found: &[Write]) -> Vec<Write> {
        Vec::new()
    }

    /// The partition serves from now on.
    fn serve(&mut self, _: &mut At<'_>) {}

    /// A write of this document is committed.
    fn committed(&mut self, _: &mut At<'_>, _: &DocKey) {}

    /// All of a commit was told.
    fn advanced(&mut self, _: &mut At<'_>) {}

    /// The log was at rest for a while, and goes on.
    fn unwedged(&mut self, _: &mut At<'_>) {}

    /// Whether something that is no request waits for a confirm round.
    fn wants_round(&self) -> bool {
        false
    }

    /// A round begins: what waits for one waits for this one.
    fn round_begins(&mut self) {}

    /// The round is over.
    fn round_ended(&mut self, _: &mut At<'_>, _: RoundEnd) {}

    /// Time passed.
    fn tick(&mut self, _: &mut At<'_>, _: Turn) {}

    /// Whether time brings it something to do.
    fn is_busy(&self) -> bool {
        false
    }

    /// How many requests wait here for nothing that time brings.
    fn patient(&self) -> usize {
        0
    }

    /// A request was answered: what waits here because of it waits no more.
    fn forget(&mut self, _: &Origin) {}

    /// Requests were given up: what waits because of one that is not there any more goes.
    fn retain(&mut self, _: &dyn Fn(&Origin) -> bool) {}

    /// This manager goes on as the owner under another epoch: gives what stays to who comes next. Requests stay by
    /// themselves.
    fn hand_on(&mut self, _next: &mut Self)
    where
        Self: Sized,
    {
    }

    /// Ownership under this epoch ends; this manager may go on under the next one.
    fn step_down(&mut self, _: &mut Env) {}
}

/// A resident that carries requests out.
pub(crate) trait RequestHandler: Resident {
    /// Carries a request out, from its beginning. It may append, read, or let it wait.
    fn carry_out(&mut self, led: &mut At<'_>, origin: Origin, op: Op);

    /// Nobody else owned the partition when this request came.
    fn confirmed(&mut self, led: &mut At<'_>, origin: Origin, op: Op);

    /// What requests are told whose deadline passed, while the partition serves.
    fn unfinished(&self, led: &At<'_>, late: &Late) -> BTreeMap<Origin, OpResult>;

    /// Answers a request that waits here, and lets go of what waits because of it.
    fn reply(&mut self, led: &mut At<'_>, origin: Origin, result: OpResult);

    /// Carries a waiting request on, from its beginning.
    fn run(&mut self, led: &mut At<'_>, origin: Origin) {
        match led.taken(&origin) {
            Some(Ok(op)) => self.carry_out(led, origin, op),
            Some(Err(refusal)) => self.reply(led, origin, Err(refusal)),
            None => {}
        }
    }
}

/// How a confirm round ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RoundEnd {
    /// Nobody else owned the partition when it began.
    Confirmed,
    /// The config store could not be read.
    Unread,
}

/// Turns of a tick, in their order. What residents do in one turn keeps its place in the batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// Requests whose deadline passed are gone.
    Expired,
    /// What nodes left unanswered is asked again.
    Ask,
    /// Everything else.
    Rest,
    /// After requests that waited for the partition.
    Last,
}

/// Requests whose deadline passed.
pub(crate) struct Late {
    pub all: BTreeSet<Origin>,
    /// Those that wait for the partition, or for enough copies.
    pub queued: BTreeSet<Origin>,
}
