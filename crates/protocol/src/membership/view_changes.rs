//! Changes of the View. One compare-and-set of the View is under way at a time; what it should say is worked
//! out anew from each View.

use crate::log::desire::Desire;
use crate::log::env::{Env, NameOf};
use crate::manager::inputs::Manager;
use crate::membership::purpose::Purpose;
use crate::membership::standing::Standing;
use crate::membership::state::ViewChanges;
use crate::partition::led::Led;
use crate::ports::io::{CasOutcome, Effect};
use crate::ports::note::Transition;
use rota_model::{ManagerNumber, ManagerStatus, MemberId, Refusal, RefusalKind};
use rota_ring::{Change, ConfigState, RingTransition, View};

impl Manager {
    pub(crate) fn on_cas_done(&mut self, cas: u64, outcome: CasOutcome) {
        let Some(purpose) = self.changes.asked.remove(&cas) else {
            return;
        };
        match outcome {
            CasOutcome::Done(state) => self.on_cas_written(purpose, &state),
            CasOutcome::Conflict(state) => {
                self.env.note(Transition::CasConflict, None);
                self.on_cas_conflict(purpose, &state);
            }
            CasOutcome::Unknown => {
                self.env.store.is_away = true;
                self.env.note(Transition::CasUnknown, None);
                self.env.store.refresh = true;
                self.changes.next_ms = self.env.now.mono_ms + self.env.config.timing.retry_ms;
                match purpose {
                    Purpose::Claim => self.membership.standing = Standing::outside(),
                    Purpose::Register { call, .. } => {
                        let text = "nobody knows whether the boot was registered";
                        self.env.refuse_register(
                            call,
                            Refusal::new(RefusalKind::ConfigStoreAway, self.env.soon(), text),
                        );
                    }
                    Purpose::Order(waiting, _) => self.env.on_order_unknown(&waiting),
                    Purpose::NodeOrder(waiting, _) => self.env.on_node_order_unknown(&waiting),
                    Purpose::TakeOut(..)
                    | Purpose::Part(..)
                    | Purpose::Release(..)
                    | Purpose::Verdict
                    | Purpose::Forget
                    | Purpose::EndNode(..) => {}
                }
            }
        }
    }

    fn on_cas_written(&mut self, purpose: Purpose, state: &ConfigState) {
        match purpose {
            Purpose::Claim => {
                if let Some((incarnation, nonce)) = self.membership.claiming {
                    let detector = &mut self.detector;
                    self.membership.on_claimed(&mut self.env, detector, incarnation, nonce);
                }
                let joined =
                    state.view.as_ref().and_then(|view| Some((view.transition?, view.epoch)));
                if let Some((RingTransition::Join { number, since }, epoch)) = joined
                    && (number, since) == (self.env.me.number, epoch)
                {
                    let text = format!("number {number}");
                    self.env.note_text(Transition::JoinStarted, None, text);
                }
                self.adopt(state);
                // The watch may have shown that View already, before the number was this run's.
                return self.take_up_parts();
            }
            Purpose::TakeOut(members, step) => {
                if let Some((step, number)) = step {
                    self.env.note_text(step, None, format!("number {number}"));
                }
                for member in members {
                    self.env.note_text(Transition::TakenOut, None, format!("manager {member}"));
                    let now = self.env.now.mono_ms;
                    let accused = self.detector.accused.entry(member.number).or_insert((0, now));
                    *accused = (accused.0 + 1, now);
                }
            }
            Purpose::Part(number, step) => {
                let account = state.view.as_ref().filter(|_| step == Transition::Recovered);
                let account = account.and_then(|view| view.parts.get(&number)?.recovered);
                let text = account.map(|it| it.to_string()).unwrap_or_default();
                self.env.note_text(step, Some(number), text);
            }
            Purpose::Release(step, number) => {
                self.env.note_text(step, None, format!("number {number}"));
            }
            Purpose::Order(waiting, answer) => self.env.on_order_written(&waiting, answer),
            Purpose::NodeOrder(waiting, reg) => self.env.on_node_order_written(&waiting, *reg),
            Purpose::Register { call, register, .. } => {
                self.env.note_node(
                    Transition::NodeRegistered,
                    None,
                    &register.node,
                    format!("node {} boot {}", register.node, register.boot),
                );
                self.adopt(state);
                return self.env.reply_registered(call, state);
            }
            Purpose::EndNode(node, why) => {
                self.env.note_node(Transition::NodeEnds, None, &node, why);
            }
            Purpose::Verdict | Purpose::Forget => {}
        }
        self.adopt(state);
    }

    fn on_cas_conflict(&mut self, purpose: Purpose, state: &ConfigState) {
        self.adopt(state);
        if self.changes.refused.is_some() {
            // All that is asked for meets that state again.
            self.changes.next_ms = self.env.now.mono_ms + self.env.config.timing.retry_ms;
        }
        match purpose {
            Purpose::Claim => self.membership.standing = Standing::outside(),
            Purpose::Part(number, _) => {
                if let Some(mut led) = self.parts.led(&number, &mut self.env) {
                    led.on_desire_failed();
                }
            }
            Purpose::Register { call, register, tries } => {
                self.changes.register(&mut self.env, &self.membership, call, register, tries + 1);
            }
            Purpose::Order(waiting, _) => self.orders.on_order_conflict(*waiting),
            Purpose::NodeOrder(waiting, _) => {
                self.changes.order_node_again(&mut self.env, *waiting);
            }
            Purpose::TakeOut(..)
            | Purpose::Release(..)
            | Purpose::Verdict
            | Purpose::Forget
            | Purpose::EndNode(..) => {}
        }
    }

    /// Changes the View as suspicions and partitions want it, one change at a time.
    pub(crate) fn drive_view(&mut self) {
        let is_early = self.env.now.mono_ms < self.changes.next_ms;
        let is_asked = self.changes.asked.values().any(Purpose::is_view);
        if self.membership.standing != Standing::Inside || is_early || is_asked {
            return;
        }
        let Some(view) = self.env.view.clone() else {
            return;
        };
        let suspects: Vec<MemberId> = self.env.store.suspects.keys().copied().collect();
        if !suspects.is_empty() {
            self.env.store.suspects.clear();
            if let Some(next) = view.without(&suspects) {
                let purpose = Purpose::TakeOut(suspects, ended_by(&view, &next));
                return self.changes.ask(&mut self.env, purpose, Change::view(next));
            }
        }
        if self.drive_orders(&view) {
            return;
        }
        let me = self.env.me;
        let wish = self.parts.awake().find_map(|part| {
            let desire = part.leader()?.lead.desire(&part.log, me)?;
            Some((part.log.number, desire))
        });
        let Some((number, desire)) = wish else { return self.drive_release(&view) };
        let (next, step) = match desire {
            Desire::Add(members) => (view.with_members(number, &members), Transition::MemberAdded),
            Desire::Shrink(member) => (view.shrunk(number, member), Transition::MemberDropped),
            Desire::Release => (view.with_members(number, &[]), Transition::LeaverReleased),
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
            Some(next) => {
                if let Some(Led { at, .. }) = self.parts.led(&number, &mut self.env) {
                    at.lead.on_desire_asked(at.env, at.log);
                }
                let purpose = Purpose::Part(number, step);
                self.changes.ask(&mut self.env, purpose, Change::view(next));
            }
            None => self.changes.doubt(&mut self.env, &view),
        }
    }
}

/// What a View without suspects means for the transition, if it is given back by that.
fn ended_by(view: &View, next: &View) -> Option<(Transition, ManagerNumber)> {
    let under_way = view.transition.filter(|_| next.transition.is_none())?;
    let number = under_way.number();
    let status = next.managers.get(&number).map(|it| it.status);
    let step = match under_way {
        RingTransition::Join { .. } => Transition::JoinRolledBack,
        RingTransition::Leave { .. } if status == Some(ManagerStatus::Left) => {
            Transition::LeaveFinished
        }
        RingTransition::Leave { .. } => Transition::LeaveRolledBack,
    };
    Some((step, number))
}

impl ViewChanges {
    /// Asks for a compare-and-set.
    pub(crate) fn ask(&mut self, env: &mut Env, purpose: Purpose, change: Change) {
        let cas = env.next_id(NameOf::Change);
        self.asked.insert(cas, purpose);
        env.effects.push(Effect::Cas { cas, change: Box::new(change) });
    }

    /// A partition wants what this View does not allow: there may be a newer one. If there is none, the
    /// next tick looks at what is wanted; to read again and again would not change the answer.
    fn doubt(&mut self, env: &mut Env, view: &View) {
        env.store.refresh |= self.doubted != view.epoch;
        self.doubted = view.epoch;
    }
}
