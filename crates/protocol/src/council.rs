//! The View: watching over peers, and changing it. One compare-and-set of the View is
//! under way at a time; what it should say is worked out anew from each View.

use crate::claim::Standing;
use crate::cordon::WaitingNode;
use crate::env::NameOf;
use crate::io::{CasOutcome, Effect, Transition};
use crate::learn::Desire;
use crate::leave::Waiting;
use crate::manager::Manager;
use rota_messages::{Message, Ordered};
use rota_model::node_msg::{Register, Registered};
use rota_model::{
    LogPos, ManagerNumber, ManagerStatus, MemberId, NodeId, Refusal, RefusalKind, Retry, TimeOrder,
    times_out_of_order,
};
use rota_ring::{Change, ConfigState, NodeChange, NodeReg, RingTransition, View};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a compare-and-set is for.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Purpose {
    Claim,
    /// These; and what that means for the transition, if one of them joins or leaves.
    TakeOut(Vec<MemberId>, Option<Transition>),
    /// A partition's own change, and the step that it is.
    Part(ManagerNumber, Transition),
    /// The end of a transition, and the step that it is.
    Release(Transition),
    /// An operator's order, and what is answered.
    Order(Box<Waiting>, Ordered),
    /// One about a node, and the entry that it asks for.
    NodeOrder(Box<WaitingNode>, Box<NodeReg>),
    Register {
        call: u64,
        register: Register,
        tries: u32,
    },
    Verdict(NodeId),
    /// A node that has been gone for long is forgotten.
    Forget,
}

impl Purpose {
    fn is_view(&self) -> bool {
        match self {
            Purpose::Claim
            | Purpose::TakeOut(..)
            | Purpose::Part(..)
            | Purpose::Release(_)
            | Purpose::Order(..) => true,
            Purpose::NodeOrder(..)
            | Purpose::Register { .. }
            | Purpose::Verdict(_)
            | Purpose::Forget => false,
        }
    }
}

/// Most attempts to write a node's entry against others who write it at the same time.
const REGISTER_TRIES: u32 = 5;

/// A number that was reserved and never started gets this many times the usual patience.
const FIRST_START_PATIENCE: u64 = 10;

/// How long a signal from outside counts. Who still sees the peer gone says so again.
const SIGNAL_MS: u64 = 5_000;

/// Of a peer that looks gone to somebody outside, as many heartbeats may be missing: enough that
/// the news of its end does not overtake its last words.
const SIGNAL_HEARTBEATS: u64 = 2;

/// How long an accusation is remembered; each one doubles the accuser's patience.
const ACCUSED_MS: u64 = 60_000;

impl Manager {
    /// Asks for a compare-and-set.
    pub(crate) fn ask_view(&mut self, purpose: Purpose, change: Change) {
        let cas = self.env.next_id(NameOf::Change);
        if let Purpose::Part(number, _) = &purpose
            && let Some(part) = self.parts.get_mut(number)
        {
            part.on_desire_asked(&mut self.env);
        }
        self.asked.insert(cas, purpose);
        self.env.effects.push(Effect::Cas { cas, change: Box::new(change) });
    }

    pub(crate) fn on_cas_done(&mut self, cas: u64, outcome: CasOutcome) {
        let Some(purpose) = self.asked.remove(&cas) else {
            return;
        };
        match outcome {
            CasOutcome::Done(state) => self.on_cas_written(purpose, &state),
            CasOutcome::Conflict(state) => {
                self.env.note(Transition::CasConflict, None);
                self.on_cas_conflict(purpose, &state);
            }
            CasOutcome::Unknown => {
                self.env.store_away = true;
                self.env.note(Transition::CasUnknown, None);
                self.env.refresh = true;
                self.next_change_ms = self.env.now.mono_ms + self.env.config.timing.retry_ms;
                match purpose {
                    Purpose::Claim => self.standing = Standing::outside(),
                    Purpose::Register { call, .. } => {
                        let text = "nobody knows whether the boot was registered";
                        self.refuse_register(
                            call,
                            Refusal::new(RefusalKind::ConfigStoreAway, self.soon(), text),
                        );
                    }
                    Purpose::Order(waiting, _) => self.on_order_unknown(&waiting),
                    Purpose::NodeOrder(waiting, _) => self.on_node_order_unknown(&waiting),
                    Purpose::TakeOut(..)
                    | Purpose::Part(..)
                    | Purpose::Release(_)
                    | Purpose::Verdict(_)
                    | Purpose::Forget => {}
                }
            }
        }
    }

    fn on_cas_written(&mut self, purpose: Purpose, state: &ConfigState) {
        match purpose {
            Purpose::Claim => {
                if let Some((incarnation, nonce)) = self.claiming {
                    self.on_claimed(incarnation, nonce);
                }
                let joined =
                    state.view.as_ref().and_then(|view| Some((view.transition?, view.epoch)));
                if let Some((RingTransition::Join { number, since }, epoch)) = joined
                    && (number, since) == (self.env.me.number, epoch)
                {
                    self.env.note(Transition::JoinStarted, None);
                }
                self.adopt(state);
                // The watch may have shown that View already, before the number was this run's.
                return self.take_up_parts();
            }
            Purpose::TakeOut(members, step) => {
                if let Some(step) = step {
                    self.env.note(step, None);
                }
                for member in members {
                    self.env.note_text(Transition::TakenOut, None, format!("manager {member}"));
                    let now = self.env.now.mono_ms;
                    let accused = self.accused.entry(member.number).or_insert((0, now));
                    *accused = (accused.0 + 1, now);
                }
            }
            Purpose::Part(number, step) => {
                let account = state.view.as_ref().filter(|_| step == Transition::Recovered);
                let account = account.and_then(|view| view.parts.get(&number)?.recovered);
                let text = account.map(|it| it.to_string()).unwrap_or_default();
                self.env.note_text(step, Some(number), text);
            }
            Purpose::Release(step) => self.env.note(step, None),
            Purpose::Order(waiting, answer) => self.on_order_written(&waiting, answer),
            Purpose::NodeOrder(waiting, reg) => self.on_node_order_written(&waiting, *reg),
            Purpose::Register { call, register, .. } => {
                self.env.note_text(
                    Transition::NodeRegistered,
                    None,
                    format!("node {} boot {}", register.node, register.boot),
                );
                self.adopt(state);
                return self.reply_registered(call, state);
            }
            Purpose::Verdict(_) | Purpose::Forget => {}
        }
        self.adopt(state);
    }

    fn on_cas_conflict(&mut self, purpose: Purpose, state: &ConfigState) {
        self.adopt(state);
        if self.refused.is_some() {
            // All that is asked for meets that state again.
            self.next_change_ms = self.env.now.mono_ms + self.env.config.timing.retry_ms;
        }
        match purpose {
            Purpose::Claim => self.standing = Standing::outside(),
            Purpose::Part(number, _) => {
                if let Some(part) = self.parts.get_mut(&number) {
                    part.on_desire_failed(&mut self.env);
                }
            }
            Purpose::Register { call, register, tries } => {
                self.register(call, register, tries + 1);
            }
            // Neither this one nor an earlier one about the same entry can be written any more; but of what
            // is not followed nobody knows what it says.
            Purpose::Verdict(node) => {
                if self.refused.is_none() {
                    self.env.condemned.remove(&node);
                }
            }
            Purpose::Order(waiting, _) => self.on_order_conflict(*waiting),
            Purpose::NodeOrder(waiting, _) => self.on_node_order_conflict(*waiting),
            Purpose::TakeOut(..) | Purpose::Release(_) | Purpose::Forget => {}
        }
    }

    /// Changes the View as suspicions and partitions want it, one change at a time.
    pub(crate) fn drive_view(&mut self) {
        let is_early = self.env.now.mono_ms < self.next_change_ms;
        let is_asked = self.asked.values().any(Purpose::is_view);
        if self.standing != Standing::Inside || is_early || is_asked {
            return;
        }
        let Some(view) = self.env.view.clone() else {
            return;
        };
        let suspects: Vec<MemberId> = self.env.suspects.keys().copied().collect();
        if !suspects.is_empty() {
            self.env.suspects.clear();
            if let Some(next) = view.without(&suspects) {
                let purpose = Purpose::TakeOut(suspects, ended_by(&view, &next));
                return self.ask_view(purpose, Change::view(next));
            }
        }
        if self.drive_orders(&view) {
            return;
        }
        let me = self.env.me;
        let wish = self.parts.awake().find_map(|part| Some((part.number, part.desire(me)?)));
        let Some((number, desire)) = wish else { return self.drive_release(&view) };
        let (next, step) = match desire {
            Desire::Add(members) => (view.with_members(number, &members), Transition::MemberAdded),
            Desire::Shrink(member) => (view.shrunk(number, member), Transition::MemberDropped),
            Desire::LetGo => (view.with_members(number, &[]), Transition::LeaverLetGo),
            Desire::Bump => (view.bumped(number), Transition::EpochRenewed),
            Desire::Split(newcomer) => (view.split(newcomer), Transition::ArcSplit),
            Desire::GiveUp(owner) => (view.given_up(number, owner), Transition::GivenUp),
            Desire::HandRecovery(owner) => {
                (view.given_up(number, owner), Transition::RecoveryHandedOn)
            }
            Desire::Recovered(owner, found) => {
                (view.recovered(number, owner, found), Transition::Recovered)
            }
        };
        match next {
            Some(next) => self.ask_view(Purpose::Part(number, step), Change::view(next)),
            None => self.doubt(&view),
        }
    }

    /// A partition wants what this View does not allow: there may be a newer one. If there is none, the
    /// next tick looks at what is wanted; to read again and again would not change the answer.
    fn doubt(&mut self, view: &View) {
        self.env.refresh |= self.doubted != view.epoch;
        self.doubted = view.epoch;
    }

    /// Declares the next silent node lost.
    pub(crate) fn drive_verdicts(&mut self) {
        let under_way = self.asked.values().any(|it| matches!(it, Purpose::Verdict(_)));
        if self.standing != Standing::Inside || under_way {
            return;
        }
        let env = &mut self.env;
        let verdict = self.parts.awake_mut().find_map(|part| part.verdict(env));
        let node = verdict.as_ref().and_then(|it| it.node.as_ref()).map(|it| it.to.node.clone());
        if let (Some(change), Some(node)) = (verdict, node) {
            self.ask_view(Purpose::Verdict(node), change);
        }
        self.forget_nodes();
    }

    /// Writes a node's new boot.
    pub(crate) fn register(&mut self, call: u64, register: Register, tries: u32) {
        // A program that outlives the verdict over its node would run beside its successor, and a Create
        // that outlives what the node remembers of its end would start it again.
        let timing = &self.env.config.timing;
        let lost = ("the managers' node_lost_ms", timing.node_lost_ms);
        let mut order = register.lease.order(Some(lost));
        let remembered = ("the node's tombstone_ms", register.tombstone_ms);
        let create = ("the managers' create_deadline_ms", timing.create_deadline_ms);
        order.push(TimeOrder::below(create, remembered));
        let mistakes = times_out_of_order(&order, &str::to_owned);
        if !mistakes.is_empty() {
            return self.refuse_register(call, Refusal::invalid(mistakes));
        }
        let before = self.env.nodes.reg.get(&register.node);
        // A registration may arrive late: boot ids grow, and an earlier boot never comes back.
        if self.env.nodes.is_over(&register.node, register.boot) {
            let text = format!(
                "boot {} of node {} is over: a later boot is registered, or it was declared lost",
                register.boot, register.node
            );
            return self
                .refuse_register(call, Refusal::new(RefusalKind::UnknownNode, Retry::Never, text));
        }
        if let Some(other) = before.filter(|it| !proves_over(&register, it)) {
            let (refusal, other) = (self.unproven(other), other.node.clone());
            // The verdict may stand already.
            self.env.refresh = true;
            let text = format!("node {other} is refused: {refusal}");
            self.env.note_text(Transition::NodeUnproven, None, text);
            return self.refuse_register(call, refusal);
        }
        // A node must learn of at least one manager to renew with: this one.
        if self.standing != Standing::Inside || self.env.view.is_none() {
            let text = "this manager has not taken its number yet";
            return self
                .refuse_register(call, Refusal::new(RefusalKind::NotServing, Retry::Now, text));
        }
        if tries > REGISTER_TRIES {
            let text = "the config store could not be written; try again";
            return self.refuse_register(
                call,
                Refusal::new(RefusalKind::ConfigStoreAway, self.soon(), text),
            );
        }
        let expect_revision = before.map_or(0, |it| it.revision);
        // What operators want of the node is not about its boot.
        let wish = before.filter(|it| !it.is_forgotten()).map(|it| it.wish).unwrap_or_default();
        let to = NodeReg {
            node: register.node.clone(),
            boot: register.boot,
            address: register.address.clone(),
            pool: register.pool.clone(),
            places: register.places,
            classes: register.classes.clone(),
            digests: register.digests.clone(),
            sandbox: register.sandbox,
            renew_ms: register.lease.renew_ms,
            state: wish.shown(register.state),
            wish,
            revision: expect_revision + 1,
        };
        let node = Some(NodeChange { expect_revision, to });
        let change = Change { expect_epoch: None, view: None, node };
        self.ask_view(Purpose::Register { call, register, tries }, change);
    }

    /// Another boot is registered, and may run.
    fn unproven(&self, other: &NodeReg) -> Refusal {
        let NodeReg { node, boot, address, .. } = other;
        let text = format!("node {node} runs as boot {boot} at {address}, or did so until lately");
        if self.env.store_away {
            // No verdict comes now, so nobody is to lose patience.
            let text = format!("{text}; the config store is away, so it cannot be declared lost");
            return Refusal::new(RefusalKind::ConfigStoreAway, self.soon(), text);
        }
        let text = format!("{text}; the boot that asks does not prove that this one is over");
        // If it does not live any more, it was declared lost by then.
        let retry = Retry::AfterMs(self.env.config.timing.node_lost_ms);
        Refusal::new(RefusalKind::BootUnproven, retry, text)
    }

    pub(crate) fn soon(&self) -> Retry {
        Retry::AfterMs(self.env.config.timing.retry_ms)
    }

    fn refuse_register(&mut self, call: u64, refusal: Refusal) {
        self.env.effects.push(Effect::ReplyRegister { call, result: Err(refusal) });
    }

    fn reply_registered(&mut self, call: u64, state: &ConfigState) {
        let Some(view) = &state.view else { return };
        let fences = view.parts.iter().map(|(n, part)| (view.range(*n), part.pe)).collect();
        let managers = crate::judge::addresses(&self.env);
        let registered = Registered { epoch: view.epoch, m: view.m, fences, managers };
        self.env.effects.push(Effect::ReplyRegister { call, result: Ok(registered) });
    }

    /// Heartbeats to everybody with whom a partition is shared; suspects who is silent.
    pub(crate) fn tick_peers(&mut self) {
        let Some(view) = self.env.view.clone() else {
            return;
        };
        if self.standing != Standing::Inside {
            return;
        }
        let now = self.env.now.mono_ms;
        let timing = self.env.config.timing.clone();
        self.accused.retain(|_, (_, at)| now < *at + ACCUSED_MS);
        self.signalled.retain(|_, at| now < *at + SIGNAL_MS);
        // A run that was stopped for a while has heard nobody: that is not their silence.
        let gap = now.saturating_sub(self.ticked_ms);
        if gap > timing.heartbeat_ms * 2 {
            // Who was heard since it goes on was heard now, and not later than that.
            self.heard.values_mut().for_each(|(_, at)| *at = now.min(*at + gap));
            let led = self.parts.awake_mut().filter_map(|part| part.leading.as_mut());
            led.for_each(|leading| leading.on_gap(gap, now));
        }
        self.ticked_ms = now;
        let peers = self.sharing.clone();
        for number in &*peers {
            let Some(member) = view.member(*number) else {
                continue;
            };
            let heard = self.heard.entry(*number).or_insert((member, now));
            if heard.0 != member {
                *heard = (member, now);
            }
            let times = self.accused.get(number).map_or(0, |(times, _)| (*times).min(4));
            let usual = match self.signalled.get(&member) {
                Some(_) => timing.suspect_ms.min(timing.heartbeat_ms * SIGNAL_HEARTBEATS),
                None => timing.suspect_ms,
            };
            let mut patience = usual << times;
            let status = view.managers.get(number).map(|it| it.status);
            if status == Some(ManagerStatus::Joining) {
                patience *= FIRST_START_PATIENCE;
            }
            if now >= heard.1 + patience && view.may_run(member) {
                self.env.suspect(member);
            }
        }
        if now >= self.beat_ms + timing.heartbeat_ms {
            self.beat_ms = now;
            self.beat(&view, &peers);
        }
    }

    fn beat(&mut self, view: &View, peers: &BTreeSet<ManagerNumber>) {
        let mut committed: BTreeMap<ManagerNumber, Vec<(ManagerNumber, LogPos)>> = BTreeMap::new();
        for part in self.parts.awake() {
            let Some(leading) = &part.leading else {
                continue;
            };
            for copy in leading.copies.keys().chain(leading.learners.keys()) {
                let at = (part.number, part.replica.committed);
                committed.entry(*copy).or_default().push(at);
            }
        }
        let learners = committed.keys().copied().collect::<BTreeSet<_>>();
        for peer in peers.union(&learners).filter(|it| view.managers.contains_key(it)) {
            let committed = committed.remove(peer).unwrap_or_default();
            self.env.send(*peer, Message::Heartbeat { committed });
        }
    }

    /// A peer's process is gone: its port refuses. That of an earlier run says nothing of this one.
    pub(crate) fn on_peer_refused(&mut self, number: ManagerNumber, address: &str) {
        self.on_probe_refused(number, address);
        let Some(view) = &self.env.view else { return };
        let (Some(member), Some(entry)) = (view.member(number), view.managers.get(&number)) else {
            return;
        };
        let shares = self.standing == Standing::Inside && self.sharing.contains(&number);
        if shares && entry.serves() && entry.grpc == address {
            self.env.suspect(member);
        }
    }

    /// A peer looks gone to somebody outside: less of its silence is enough from now on. The tick
    /// judges, because only it knows whether it was this run that slept.
    pub(crate) fn on_signal(&mut self, member: MemberId) {
        let Some(view) = &self.env.view else { return };
        if view.may_run(member) {
            self.signalled.insert(member, self.env.now.mono_ms);
            self.next_tick_ms = self.env.now.mono_ms;
        }
    }

    /// The View as this manager knows it.
    pub fn view(&self) -> Option<&Arc<View>> {
        self.env.view.as_ref()
    }
}

/// Whether nothing of the registered boot can run beside the one that registers: it is the same one,
/// it is gone, or the newcomer's agent ended what it left.
fn proves_over(register: &Register, registered: &NodeReg) -> bool {
    let is_same = register.boot == registered.boot && register.address == registered.address;
    is_same || registered.state.is_gone() || register.ended_boots.contains(&registered.boot)
}

/// What a View without suspects means for the transition, if it is given back by that.
fn ended_by(view: &View, next: &View) -> Option<Transition> {
    let under_way = view.transition.filter(|_| next.transition.is_none())?;
    let status = next.managers.get(&under_way.number()).map(|it| it.status);
    Some(match under_way {
        RingTransition::Join { .. } => Transition::JoinRolledBack,
        RingTransition::Leave { .. } if status == Some(ManagerStatus::Left) => {
            Transition::LeaveFinished
        }
        RingTransition::Leave { .. } => Transition::LeaveRolledBack,
    })
}
