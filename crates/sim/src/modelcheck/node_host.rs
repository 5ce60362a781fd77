//! A node of a model: its agent, what it runs, and how its agents follow each other.

use super::bounds::Bounds;
use super::flying::{Flying, Out, Run, ToAny};
use super::mutant;
use super::names::{CLASS, START_MS, node_id};
use super::seen::wide;
use crate::mutants::Bug;
use crate::setup::node_address;
use rota_model::node_msg::{Action, ActionEnd, NodeAnswer, ToNode};
use rota_model::{
    BootId, ClassDigest, ClassName, Epoch, LoadLimit, ManagerNumber, NodeState, PoolName,
    SessionKey, SlotId, Stamp, Token,
};
use rota_node::{
    Entry, Node, NodeBounds, NodeConfig, NodeEffect, NodeInput, NodeTiming, ReportId, SlotLease,
    StopHow,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::Hash;

/// A node's machine.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct NodeHost {
    /// Which.
    pub index: usize,
    /// Its agent.
    pub agent: Node,
    /// Its boot.
    pub boot: BootId,
    /// Its clock.
    pub clock_ms: u64,
    /// What runs, and the life that it belongs to.
    pub programs: BTreeMap<(SessionKey, Token), Stamp>,
    /// Lives of attempts that were asked for.
    pub lives: BTreeMap<Token, Stamp>,
    /// Attempts that ran here under this boot.
    pub ran: BTreeSet<(SessionKey, Token)>,
    /// Nothing reaches it, and nothing that it says is heard.
    pub silent: bool,
    /// How many agents of this boot there were before this one.
    pub agents_before: u64,
    /// Fences that earlier agents of this boot raised and this one does not know.
    pub forgotten: BTreeMap<SlotId, Epoch>,
}

/// Reports of one agent have names below this.
const REPORTS_MAX: u64 = 1_000;

impl NodeHost {
    /// A machine whose agent is to be registered.
    pub fn new(bounds: &Bounds, index: usize) -> Self {
        let boot = BootId(1);
        Self {
            index,
            agent: Node::new(node_config(bounds, index, boot)),
            boot,
            clock_ms: START_MS,
            programs: BTreeMap::new(),
            lives: BTreeMap::new(),
            ran: BTreeSet::new(),
            silent: false,
            agents_before: 0,
            forgotten: BTreeMap::new(),
        }
    }

    /// Its hash.
    pub fn hash(&self) -> u128 {
        wide(self)
    }

    /// Asks to be registered.
    pub fn register(&self, out: &mut Vec<Out>) {
        let address = node_address(&node_id(self.index));
        let pool = PoolName::default_pool();
        let register = self.agent.registration(address, pool, NodeState::Ready);
        out.push(Out::ToAny(ToAny::Register(self.clock_ms, Box::new(register))));
    }

    /// Dies with all that it runs, and boots anew from the same folder.
    pub fn boot_anew(&mut self, bounds: &Bounds, out: &mut Vec<Out>) {
        let ended = self.boot;
        self.boot = BootId(self.boot.0 + 1);
        let config =
            NodeConfig { ended_boots: vec![ended], ..node_config(bounds, self.index, self.boot) };
        self.agent = Node::new(config);
        self.agents_before = 0;
        self.forgotten.clear();
        self.programs.clear();
        self.ran.clear();
        self.register(out);
    }

    /// Its agent dies alone, and the next one goes on from the journal.
    pub fn resume(&mut self, bounds: &Bounds, out: &mut Vec<Out>, bug: Option<Bug>) {
        let (journal, leases) = mutant::left_behind(bug, self.clock_ms, &self.agent, bounds);
        self.resume_from(bounds, (journal, leases), out, bug);
    }

    fn resume_from(
        &mut self,
        bounds: &Bounds,
        (journal, leases): (Vec<Entry>, Vec<SlotLease>),
        out: &mut Vec<Out>,
        bug: Option<Bug>,
    ) {
        if bug == Some(Bug::AdoptedAnew) {
            let programs = std::mem::take(&mut self.programs);
            self.boot_anew(bounds, out);
            self.programs = programs;
            return;
        }
        let config = node_config(bounds, self.index, self.boot);
        match Node::resumed(config, journal, &leases) {
            Ok(agent) => {
                let raised =
                    (0..bounds.slots()).map(|it| (SlotId(it), self.agent.fence(SlotId(it))));
                self.forgotten = raised.filter(|(slot, pe)| agent.fence(*slot) < *pe).collect();
                self.agent = agent;
                self.agents_before += 1;
                self.register(out);
                self.give(bounds, NodeInput::Tick, out, bug);
            }
            Err(_) => self.boot_anew(bounds, out),
        }
    }

    /// Its agent takes a call, writes down what follows from it, and dies before it does any of that.
    pub fn call_and_die(
        &mut self,
        bounds: &Bounds,
        stream: u64,
        message: &ToNode,
        out: &mut Vec<Out>,
        bug: Option<Bug>,
    ) {
        if bug == Some(Bug::JournalLate) {
            let before = mutant::left_behind(bug, self.clock_ms, &self.agent, bounds);
            self.call(bounds, stream, message, out, bug);
            return self.resume_from(bounds, before, out, bug);
        }
        if let ToNode::Create { token, life, .. } = message {
            self.lives.insert(*token, *life);
        }
        let message = message.clone();
        self.agent.handle(self.clock_ms, NodeInput::Call { stream, message });
        drop(self.agent.flush());
        self.resume(bounds, out, bug);
    }

    /// What this agent calls a report, if it sent it.
    pub fn own_report(&self, name: ReportId) -> Option<ReportId> {
        let is_own = name.0 / REPORTS_MAX == self.agents_before;
        is_own.then_some(ReportId(name.0 % REPORTS_MAX))
    }

    /// Gives its agent a call as it was sent, and as a planted bug makes it: I7 asks whether the one
    /// that was sent may be obeyed.
    pub fn call(
        &mut self,
        bounds: &Bounds,
        stream: u64,
        sent: &ToNode,
        out: &mut Vec<Out>,
        bug: Option<Bug>,
    ) {
        let (head, first) = (sent.head(), out.len());
        let slot = match sent {
            ToNode::Create { slot, .. }
            | ToNode::Destroy { slot, .. }
            | ToNode::Act { slot, .. } => *slot,
            ToNode::Scan { head, .. } | ToNode::Meet { head, .. } => head.range.last,
        };
        let forgotten = self.forgotten.get(&slot).copied().unwrap_or_default();
        let late = head.pe < self.agent.fence(slot).max(forgotten);
        let message = mutant::call(bug, bounds, self, sent.clone());
        let other = head.boot != self.boot;
        self.give(bounds, NodeInput::Call { stream, message }, out, bug);
        let obeys = |output: &Out| {
            matches!(output, Out::Fly(Flying::FromNode { answer, .. })
                if !matches!(answer.answer, NodeAnswer::Fenced { .. } | NodeAnswer::WrongBoot))
        };
        if (late || other) && out[first..].iter().any(obeys) {
            let text = format!("node {} obeys pe {} for boot {}", self.index, head.pe, head.boot);
            out.push(Out::Broken("I7", text));
        }
    }

    /// Gives its agent an input, and carries out what it decides.
    pub fn give(
        &mut self,
        bounds: &Bounds,
        input: NodeInput,
        out: &mut Vec<Out>,
        bug: Option<Bug>,
    ) {
        if let NodeInput::Call { message: ToNode::Create { token, life, .. }, .. } = &input {
            self.lives.insert(*token, *life);
        }
        let before = mutant::kept_agent(bug, &self.agent);
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            self.agent.handle(self.clock_ms, input);
            for effect in self.agent.flush() {
                self.carry_out(bounds, effect, &mut inputs, out, bug);
            }
        }
        if let Some(before) = before
            && mutant::said_full(out)
        {
            self.agent = before;
        }
    }

    /// Time passed.
    pub fn tick(&mut self, bounds: &Bounds, out: &mut Vec<Out>, bug: Option<Bug>) {
        self.give(bounds, NodeInput::Tick, out, bug);
        if !self.agent.is_registered() {
            self.register(out);
        }
    }

    fn carry_out(
        &mut self,
        bounds: &Bounds,
        effect: NodeEffect,
        inputs: &mut VecDeque<NodeInput>,
        out: &mut Vec<Out>,
        bug: Option<Bug>,
    ) {
        match effect {
            NodeEffect::Answer { stream, answer } => {
                let to = run_of(stream);
                out.push(Out::Fly(Flying::FromNode { to, node: self.index, answer }));
            }
            NodeEffect::Start { key, token, .. } => {
                let life = self.lives.get(&token).copied().unwrap_or(Stamp::MIN);
                if !self.ran.insert((key.clone(), token)) {
                    let text = format!("node {} starts token {token} a second time", self.index);
                    out.push(Out::Broken("I7", text));
                }
                self.programs.insert((key.clone(), token), life);
                let address = format!("node-{}/{token}", self.index);
                inputs.push_back(NodeInput::Started {
                    key,
                    token,
                    address,
                    ready: true,
                    remark: String::new(),
                });
            }
            NodeEffect::Stop { key, token, how } => {
                let of_lease = matches!(how, StopHow::Term | StopHow::Kill);
                if of_lease && bug == Some(Bug::LeaseIgnored) {
                    return;
                }
                if of_lease {
                    out.push(Out::LeaseOver);
                }
                let ran = self.programs.remove(&(key.clone(), token)).is_some();
                if ran {
                    inputs.push_back(NodeInput::Stopped {
                        key,
                        token,
                        exit: None,
                        detail: String::new(),
                    });
                }
            }
            NodeEffect::Act { key, token, action, .. } => {
                let Action { life_cycle, word, .. } = *action;
                let end = ActionEnd::Done { output: String::new() };
                inputs.push_back(NodeInput::Acted { key, token, life_cycle, word, end });
            }
            NodeEffect::Adopt { key, token, .. } => {
                let runs = self.programs.contains_key(&(key.clone(), token));
                let address = format!("node-{}/{token}", self.index);
                let detail = String::new();
                inputs.push_back(match runs {
                    true => NodeInput::Started { key, token, address, ready: true, remark: detail },
                    false => NodeInput::StartFailed { key, token, detail },
                });
            }
            NodeEffect::Report { id, item, .. } => {
                let id = ReportId(self.agents_before * REPORTS_MAX + id.0);
                out.push(Out::ToAny(ToAny::Report(id, Box::new(item))));
            }
            NodeEffect::Renew { sent_mono_ms, renew, managers } => {
                for (number, _) in managers {
                    out.push(Out::ToAny(ToAny::Renew(number, sent_mono_ms, renew.clone())));
                }
            }
            NodeEffect::Journal { .. }
            | NodeEffect::Lease { .. }
            | NodeEffect::Left
            | NodeEffect::Retire => {}
            NodeEffect::BootAnew => self.boot_anew(bounds, out),
        }
    }
}

/// A stream's name: the run of a manager that it comes from.
pub fn stream_of((number, run): Run) -> u64 {
    (u64::from(number.0) << 16) | run
}

fn run_of(stream: u64) -> Run {
    (ManagerNumber(u32::try_from(stream >> 16).unwrap_or_default()), stream & 0xFFFF)
}

fn node_config(bounds: &Bounds, index: usize, boot: BootId) -> NodeConfig {
    let timing = bounds.timing();
    NodeConfig {
        ended_boots: Vec::new(),
        node: node_id(index),
        boot,
        offers: rota_model::Resources::of_places(bounds.places),
        labels: rota_model::Labels::new(),
        load_limit: LoadLimit::FULL,
        classes: BTreeMap::from([(
            ClassName::parse(CLASS).expect("a short name"),
            ClassDigest(1).into(),
        )]),
        timing: NodeTiming {
            renew_ms: timing.renew_ms,
            lease_term_ms: timing.lease_term_ms,
            lease_kill_ms: timing.lease_kill_ms,
            tombstone_ms: timing.tombstone_ms,
            renew_retry_ms: 1,
            report_resend_ms: 1,
            report_resend_ms_max: 1,
        },
        bounds: NodeBounds::default(),
    }
}
