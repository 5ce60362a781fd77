//! What befell a node's agent, and what that excuses: that what ran there ended although nobody closed it.

use super::executions::Execution;
use rota_sim::ledger::EndCause;
use serde::Serialize;

/// A node's agent was killed, or stood still until its node was LOST.
#[derive(Clone, PartialEq, Eq, Serialize, Debug)]
pub struct Outage {
    /// Which node.
    pub node: String,
    /// It worked until then.
    pub from_us: u64,
    /// By then it was gone, or stood still.
    pub still_us: u64,
    /// Whether no program of it ran by then either.
    pub is_empty: bool,
    /// By then the node served again.
    pub until_us: u64,
    /// The next agent went on with what ran: nothing is lost, and what had not begun may come to nothing.
    pub is_adopted: bool,
}

impl Outage {
    /// Whether it befell the node of this execution after that had begun.
    pub fn followed(&self, it: &Execution) -> bool {
        it.instance.node.as_str() == self.node && it.instance.from_us <= self.still_us
    }

    /// Whether it befell this execution.
    pub fn befell(&self, it: &Execution) -> bool {
        self.followed(it) && it.instance.to.is_none_or(|(to_us, _)| to_us >= self.from_us)
    }

    /// Whether it explains how this execution ended. Of a node on which nothing runs, a start that was not
    /// ordered when the agent stood still never was, and that is said when the agent goes on.
    pub fn explains(&self, it: &Execution) -> bool {
        self.befell(it)
            && it.instance.to.is_some_and(|(to_us, why)| match why {
                EndCause::Lease | EndCause::BootDied => !self.is_adopted && to_us <= self.until_us,
                EndCause::StartTimeout => {
                    (self.is_empty || self.is_adopted) && to_us <= self.until_us
                }
                EndCause::Own | EndCause::Destroyed | EndCause::Drained => false,
            })
    }

    /// What the log of an agent that could not write says too late: when its executions were over. That holds
    /// also for an execution that was asked to end when the agent was killed: the next agent says so.
    pub fn correct(&self, it: &mut Execution) {
        let is_late = self.explains(it) || self.tells_of_a_close(it);
        if self.is_empty
            && is_late
            && let Some((to_us, _)) = &mut it.instance.to
        {
            *to_us = self.still_us.min(*to_us);
        }
    }

    /// Whether somebody asked for the end of this execution, and the agent said that it was over in the outage.
    fn tells_of_a_close(&self, it: &Execution) -> bool {
        let ended = it.instance.to.filter(|(to_us, _)| *to_us <= self.until_us);
        self.befell(it) && ended.is_some_and(|(_, why)| why == EndCause::Destroyed)
    }
}
