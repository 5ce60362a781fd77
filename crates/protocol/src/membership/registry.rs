//! Boots of nodes come into the registry, and verdicts over nodes, one at a time.

use crate::log::env::Env;
use crate::manager::inputs::Manager;
use crate::membership::purpose::Purpose;
use crate::membership::standing::Standing;
use crate::membership::state::{Membership, ViewChanges};
use crate::node_lease::renewals::long_gone;
use crate::ports::io::{Effect, Reply};
use crate::ports::note::Transition;
use rota_model::node_msg::{Register, Registered};
use rota_model::{Refusal, RefusalKind, Retry, TimeOrder, times_out_of_order};
use rota_ring::{Change, ConfigState, NodeChange, NodeReg};

/// Most attempts to write a node's entry against others who write it at the same time.
const REGISTER_TRIES: u32 = 5;

impl ViewChanges {
    /// Writes a node's new boot.
    pub(crate) fn register(
        &mut self,
        env: &mut Env,
        membership: &Membership,
        call: u64,
        register: Register,
        tries: u32,
    ) {
        // A program that outlives what its owner granted would run beside its successor, and a Create
        // that outlives what the node remembers of its end would start it again.
        let timing = &env.config.timing;
        let lost = ("the managers' node_lost_ms", timing.node_lost_ms);
        let mut order = register.lease.order(Some(lost));
        let remembered = ("the node's tombstone_ms", register.tombstone_ms);
        let create = ("the managers' create_deadline_ms", timing.create_deadline_ms);
        order.push(TimeOrder::below(create, remembered));
        let mistakes = times_out_of_order(&order, &str::to_owned);
        if !mistakes.is_empty() {
            return env.refuse_register(call, Refusal::invalid(mistakes));
        }
        let before = env.nodes.reg.get(&register.node);
        // A registration may arrive late: boot ids grow, and an earlier boot never comes back.
        if env.nodes.is_over(&register.node, register.boot) {
            let why = match before {
                Some(_) => "a later boot is registered, or it was declared lost",
                None => "it is not later than those of nodes that were forgotten",
            };
            let text = format!("boot {} of node {} is over: {why}", register.boot, register.node);
            return env
                .refuse_register(call, Refusal::new(RefusalKind::UnknownNode, Retry::Never, text));
        }
        if let Some(other) = before.filter(|it| !proves_over(&register, it)) {
            let (refusal, other) = (env.unproven(other), other.node.clone());
            // The verdict may stand already.
            env.store.refresh = true;
            let text = format!("node {other} is refused: {refusal}");
            env.note_node(Transition::NodeUnproven, None, &other, text);
            return env.refuse_register(call, refusal);
        }
        // A node must learn of at least one manager to renew with: this one.
        if membership.standing != Standing::Inside || env.view.is_none() {
            let text = "this manager has not taken its number yet";
            return env
                .refuse_register(call, Refusal::new(RefusalKind::NotServing, Retry::Now, text));
        }
        if tries > REGISTER_TRIES {
            let text = "the config store could not be written; try again";
            return env.refuse_register(
                call,
                Refusal::new(RefusalKind::ConfigStoreAway, env.soon(), text),
            );
        }
        let expect_revision = before.map_or(0, |it| it.revision);
        // What operators want of the node is not about its boot.
        let wish = before.map(NodeReg::wish_of_next_boot).unwrap_or_default();
        let to = NodeReg {
            node: register.node.clone(),
            boot: register.boot,
            unproven: before.and_then(|it| it.unproven_after(register.boot, &register.ended_boots)),
            address: register.address.clone(),
            pool: register.pool.clone(),
            offers: register.offers,
            labels: register.labels.clone(),
            classes: register.classes.clone(),
            digests: register.digests.clone(),
            facts: register.facts.clone(),
            sandbox: register.sandbox,
            renew_ms: register.lease.renew_ms,
            state: wish.shown(register.state),
            wish,
            revision: expect_revision + 1,
        };
        let node = Some(NodeChange::to(to));
        let change = Change { expect_epoch: None, view: None, node };
        self.ask(env, Purpose::Register { call, register, tries }, change);
    }
}

/// Whether nothing of the registered boot can run beside the one that registers: it is the same one,
/// it is gone, or the newcomer's agent ended what it left.
fn proves_over(register: &Register, registered: &NodeReg) -> bool {
    let is_same = register.boot == registered.boot && register.address == registered.address;
    is_same || registered.state.is_gone() || register.ended_boots.contains(&registered.boot)
}

impl Env {
    /// Another boot is registered, and may run.
    pub(crate) fn unproven(&self, other: &NodeReg) -> Refusal {
        let NodeReg { node, boot, address, .. } = other;
        let text = format!("node {node} runs as boot {boot} at {address}, or did so until lately");
        if self.store.is_away {
            // No verdict comes now, so nobody is to lose patience.
            let text = format!("{text}; the config store is away, so it cannot be declared lost");
            return Refusal::new(RefusalKind::ConfigStoreAway, self.soon(), text);
        }
        let text = format!("{text}; the boot that asks does not prove that this one is over");
        // If it does not live any more, it was declared lost by then.
        let retry = Retry::AfterMs(self.config.timing.node_lost_ms);
        Refusal::new(RefusalKind::BootUnproven, retry, text)
    }

    pub(crate) fn refuse_register(&mut self, call: u64, refusal: Refusal) {
        self.effects.push(Effect::Reply { call, reply: Reply::Registered(Err(refusal)) });
    }

    pub(crate) fn reply_registered(&mut self, call: u64, state: &ConfigState) {
        let Some(view) = &state.view else { return };
        let fences = view.parts.iter().map(|(n, part)| (view.range(*n), part.pe)).collect();
        let managers = crate::node_lease::reply::addresses(self);
        let registered = Registered { epoch: view.epoch, m: view.m, fences, managers };
        self.effects.push(Effect::Reply { call, reply: Reply::Registered(Ok(registered)) });
    }
}

impl Manager {
    /// Declares the next silent node lost.
    pub(crate) fn drive_verdicts(&mut self) {
        let under_way = self.changes.asked.values().any(|it| matches!(it, Purpose::Verdict));
        if self.membership.standing != Standing::Inside || under_way {
            return;
        }
        let env = &mut self.env;
        let verdict = self.parts.awake_mut().find_map(|part| {
            let mut led = part.led(env)?;
            led.residents.leases.verdict(&mut led.at)
        });
        if let Some(change) = verdict {
            self.changes.ask(&mut self.env, Purpose::Verdict, change);
        }
        self.forget_nodes();
        self.end_nodes();
    }

    /// Drains the next node that its pool needs no more.
    fn end_nodes(&mut self) {
        if self.changes.asked.values().any(|it| matches!(it, Purpose::EndNode(..))) {
            return;
        }
        let env = &mut self.env;
        let next = self.parts.awake_mut().find_map(|part| {
            let led = part.led(env)?;
            led.residents.pools.next_end(&led.at)
        });
        if let Some((change, node, why)) = next {
            self.changes.ask(&mut self.env, Purpose::EndNode(node, why), change);
        }
    }

    /// Forgets the next node that has been gone for so long that [`crate::node_lease::renewals`] gives it up.
    fn forget_nodes(&mut self) {
        let under_way = self.changes.asked.values().any(|it| matches!(it, Purpose::Forget));
        if under_way || self.env.now.mono_ms < self.changes.next_ms {
            return;
        }
        let env = &self.env;
        let open =
            self.parts.awake().filter(|part| part.leader().is_some_and(|it| it.lead.is_open()));
        let gone = open.map(|part| &part.log).find_map(|log| long_gone(env, log));
        if let Some(node) = gone {
            let change = Change { expect_epoch: None, view: None, node: Some(node) };
            self.changes.ask(&mut self.env, Purpose::Forget, change);
        }
    }
}
