//! Agents that die alone: their programs run on under the keepers, and the next agent goes on with the boot.

use crate::counters::Fault;
use crate::event::Event;
use crate::mutants::Bug;
use crate::mutants::agents::{spoil_journal, spoil_leases};
use crate::node_host::{AgentWaits, Leaving, NodeHost};
use crate::site::AtNode;
use rota_model::{SessionKey, Token};
use rota_node::{Node, NodeConfig, NodeEffect, NodeInput, ReportId};

/// A journal with so many entries begins anew.
const ENTRIES_MAX: usize = 200;

/// Reports of one agent have names below this.
const REPORTS_MAX: u64 = 1 << 32;

impl NodeHost {
    /// A report's name on its way: an answer reaches only the agent that sent it.
    pub fn name_of_report(&self, id: ReportId) -> ReportId {
        ReportId(self.agents_before * REPORTS_MAX + id.0)
    }

    /// What this agent calls the report of that name, if it sent it.
    pub fn own_report(&self, name: ReportId) -> Option<ReportId> {
        let is_own = name.0 / REPORTS_MAX == self.agents_before;
        is_own.then_some(ReportId(name.0 % REPORTS_MAX))
    }
}

impl AtNode<'_> {
    /// Writes down what an agent decided. True when the agent dies with what is left of the effects done: nothing
    /// of what follows.
    pub fn write_journal(&mut self, effects: &mut Vec<NodeEffect>) -> bool {
        let late = self.bug() == Some(Bug::JournalLate);
        let Some(NodeEffect::Journal { entries }) = effects.first() else { return false };
        let entries = entries.clone();
        let host = &mut *self.host;
        let dies = std::mem::take(&mut host.dies_next);
        if dies && late {
            self.ground.counters.fault(Fault::AgentTorn);
            return true;
        }
        host.journal.extend(entries);
        if host.journal.len() > ENTRIES_MAX
            && let Some(agent) = &host.agent
        {
            host.journal = agent.remembered();
        }
        if dies {
            effects.clear();
            self.ground.counters.fault(Fault::AgentTorn);
        }
        dies
    }

    /// An agent dies alone. The next one comes, mostly while the lease lasts.
    pub fn kill_agent(&mut self) {
        let now_us = self.ground.now_us();
        let lost_us = self.ground.setup.timing.node_lost_ms * 1000;
        let away_us = match self.ground.rng.permille(800) {
            true => self.ground.rng.skewed(1_000, lost_us / 3),
            false => self.ground.rng.within(1_000, lost_us * 2),
        };
        let (index, me) = (self.index, self.place());
        if self.host.agent.take().is_none() {
            return;
        }
        self.ground.machines.on_end(me);
        self.host.waiting = AgentWaits::default();
        self.host.paused_until_us = 0;
        self.ground.checker.ledger.actions.end_on(now_us, index);
        self.ground.trace.mark((now_us, "agent dies", index));
        self.ground.trace.line(now_us, me, || "its agent dies alone".into());
        self.ground.queue.after(away_us, Event::ResumeAgent(index, self.host.run));
    }

    /// The next agent of a boot goes on from the journal; if it cannot, it ends everything and boots anew.
    pub fn resume_agent(&mut self) {
        let now_us = self.ground.now_us();
        let host = &mut *self.host;
        if host.agent.is_some() || host.journal.is_empty() {
            return;
        }
        let ended = host.journal[0].boot().map(|it| it.1.to_vec()).unwrap_or_default();
        let (id, boot) = (host.id.clone(), host.boot);
        let config = NodeConfig { ended_boots: ended, ..self.ground.setup.node_config(&id, boot) };
        if self.bug() == Some(Bug::AdoptedAnew) {
            let programs = std::mem::take(&mut self.host.programs);
            self.boot();
            self.host.programs = programs;
            return;
        }
        let (bug, timing) = (self.bug(), &self.ground.setup.timing);
        let times = (timing.lease_term_ms, timing.lease_kill_ms);
        let host = &mut *self.host;
        let journal = spoil_journal(bug, (&config, self.ground.setup.m), host.journal.clone());
        let lease = spoil_leases(bug, (host.mono_ms(now_us), times), host.lease.clone());
        let left = host.leaving != Leaving::No;
        match Node::resumed(config, journal, &lease) {
            Ok(agent) if !left => {
                host.agents_before += 1;
                host.agent = Some(agent);
                let (index, run, me) = (self.index, host.run, self.place());
                self.ground.machines.on_start(me, run);
                self.ground.trace.mark((now_us, "resume", index));
                self.ground.trace.line(now_us, me, || "its next agent goes on".into());
                self.ground.queue.after(1_000, Event::RegisterNode(index, run));
                self.ground.connect_node(index);
                self.flush(None);
            }
            // One that was leaving has lost what it was told of that.
            Ok(_) | Err(_) => {
                self.kill();
                self.boot();
            }
        }
    }

    /// A keeper tells the agent; without one it notes an end, for the next one.
    pub fn tell_agent(&mut self, input: NodeInput) {
        if self.host.agent.is_some() {
            return self.tell(input);
        }
        if let NodeInput::StartFailed { key, token, .. }
        | NodeInput::Ended { key, token, .. }
        | NodeInput::Stopped { key, token, .. } = &input
        {
            self.host.untold.insert((key.clone(), *token), input);
            self.ground.counters.fault(Fault::EndUntold);
        }
    }

    /// What became of a program while there was no agent, or what it is doing.
    pub fn adopt_program(&mut self, key: SessionKey, token: Token) {
        let name = (key.clone(), token);
        let host = &mut *self.host;
        let address = format!("{}/{token}", host.id);
        let known = host.programs.get(&name).map(|it| (it.instance.is_some(), it.ready));
        let input = match (host.untold.remove(&name), known) {
            (Some(end), _) => end,
            (None, Some((true, ready))) => {
                let address = address.clone();
                NodeInput::Started { key, token, address, ready, remark: String::new() }
            }
            // Its keeper begins it yet.
            (None, Some((false, _))) => return,
            (None, None) => {
                let detail = "its agent died before it began".into();
                NodeInput::StartFailed { key, token, detail }
            }
        };
        self.hears(1_000, input);
        if known == Some((true, true)) {
            let (key, token) = name;
            self.hears(1_500, NodeInput::Ready { key, token, address });
        }
    }
}
