//! What the config store shows: checked, and taken up by each partition. What it shows and this manager
//! may not follow counts as no answer of it.

use crate::log::env::Env;
use crate::manager::inputs::Manager;
use crate::membership::claim::is_inside;
use crate::membership::standing::Standing;
use crate::membership::state::ViewChanges;
use crate::partition::state::Partition;
use crate::ports::note::Transition;
use rota_ring::{ConfigState, PartitionState, View, ViewError};

impl Manager {
    /// What the config store holds. Only a newer state changes anything.
    pub(crate) fn adopt(&mut self, state: &ConfigState) {
        let refused = self.changes.check_state(&self.env, state).err();
        self.changes.refused =
            refused.map(|it| format!("its View of epoch {}: {it}", state.epoch()));
        self.env.store.is_away = self.changes.refused.is_some();
        if let Some(why) = &self.changes.refused {
            let text = format!("the config store: {why}");
            return self.env.note_text(Transition::ViewRefused, None, text);
        }
        if state.index > self.changes.index {
            self.changes.index = state.index;
            self.adopt_nodes(state);
            self.env.nodes.index = state.index;
        }
        let Some(view) = state.view.as_ref().filter(|view| view.epoch > self.env.epoch()) else {
            return;
        };
        self.env.view = Some(view.clone());
        self.detector.share_with(view.neighbours(self.env.config.number));
        self.progress.under_way.on_view(view, self.env.now.mono_ms);
        if view.transition.is_some() && view.has_arrived(self.env.config.number) {
            self.progress.arrived = view.epoch;
        }
        let text = format!("epoch {}", view.epoch);
        self.env.note_text(Transition::ViewAdopted, None, text);
        self.env.store.suspects.retain(|member, _| view.may_run(*member));
        self.parts.cut_arcs(&mut self.env, view);
        for number in view.parts.keys() {
            let range = view.range(*number);
            let part = self.parts.get_or_insert_with(*number, || Partition::new(*number, range));
            part.log.range = range;
        }
        if self.membership.standing == Standing::Inside {
            if is_inside(&self.env, view) {
                self.adopt_parts(view);
            } else {
                self.go_out(view);
            }
        }
        for here in self.router.on_view(&mut self.env) {
            self.carry_out(here);
        }
    }

    fn adopt_nodes(&mut self, state: &ConfigState) {
        if self.env.nodes.reg == state.nodes && self.env.nodes.dropped == state.dropped {
            return;
        }
        if self.env.nodes.dropped != state.dropped {
            self.env.nodes.dropped = state.dropped;
            self.env.nodes.known.retain(|node, _| state.nodes.contains_key(node));
        }
        let before = std::mem::replace(&mut self.env.nodes.reg, state.nodes.clone());
        self.env.nodes.news += 1;
        self.env.nodes.find_pools_of_classes();
        for (node, reg) in &state.nodes {
            let old = before.get(node);
            if reg.state == rota_model::NodeState::Lost
                && old.is_none_or(|it| it.state != reg.state)
            {
                let text = format!("node {node} boot {}", reg.boot);
                self.env.note_node(Transition::NodeLost, None, node, text);
            }
            if old.is_none_or(|it| it.boot != reg.boot) {
                self.env.nodes.on_boot(node, self.env.now.mono_ms);
                self.env.nodes.seen.insert(node.clone(), state.index);
            }
        }
        self.env.nodes.seen.retain(|node, _| state.nodes.contains_key(node));
        if state.epoch() <= self.env.epoch() {
            for part in self.parts.awake_mut() {
                part.nodes_changed(&mut self.env);
                part.find_out(&mut self.env);
            }
        }
    }

    /// The number was just taken: takes up what the View says of it.
    pub(crate) fn take_up_parts(&mut self) {
        let Some(view) = self.env.view.clone() else { return };
        if self.membership.standing != Standing::Inside {
            return;
        }
        if is_inside(&self.env, &view) {
            self.adopt_parts(&view);
        } else {
            // It was taken out again before it heard that it was in.
            self.go_out(&view);
        }
    }

    /// Takes each partition's new epoch: leads, follows, or steps down.
    fn adopt_parts(&mut self, view: &View) {
        let me = self.env.me.number;
        self.parts.hand_requests_over(me, view);
        for (number, entry) in &view.parts {
            let Some(part) = self.parts.get_mut(number) else {
                continue;
            };
            let led = part.leader().map(|it| it.lead.pe);
            let known = part.log.replica.pe;
            part.learn_epoch(&mut self.env, entry.pe);
            if entry.state == PartitionState::Active && entry.has(me) {
                part.log.forget_base(&mut self.env);
            }
            if entry.owner == me {
                if led == Some(entry.pe) {
                    part.leader_mut().into_iter().for_each(|it| it.lead.on_first_starts(view));
                } else if entry.state == PartitionState::Recovering {
                    part.recover(&mut self.env, entry.pe);
                } else if part.halted.is_some() {
                    part.stay_halted(&mut self.env, entry.pe);
                } else {
                    part.log.replica.whole = true;
                    part.lead(&mut self.env, entry.pe);
                }
                continue;
            }
            // Whatever this copy lacks, its owner gives it.
            part.halted = None;
            if led.is_some() {
                part.step_down(&mut self.env);
            }
            if entry.has(me) && (entry.pe > known || part.log.replica.last.pe < entry.pe) {
                part.log.replica.whole = true;
                part.log.send_sync_report(&mut self.env);
            }
        }
        for part in self.parts.awake_mut() {
            part.nodes_changed(&mut self.env);
        }
    }
}

/// Whether this manager may follow a View: it keeps the rules, and the shape of the one before.
fn check_view(env: &Env, view: &View) -> Result<(), ViewError> {
    view.check_shape(&env.config.ring)?;
    // Only a newer one is taken up; of a known one nothing but its shape counts.
    if view.epoch > env.epoch() { view.check() } else { Ok(()) }
}

impl ViewChanges {
    /// Checks what the config store holds. Epochs only grow with the index: what is newer and has an
    /// earlier one is of a store that went back, and was written since. A state whose View is refused tells
    /// nothing of nodes either, and nothing is confirmed beside it.
    pub(crate) fn check_state(&self, env: &Env, state: &ConfigState) -> Result<(), ViewError> {
        match &state.view {
            Some(view) => {
                check_view(env, view)?;
                let known = env.epoch();
                if state.index <= self.index || view.epoch >= known {
                    return Ok(());
                }
                Err(ViewError::Broken(format!("it went back: epoch {known} was there before")))
            }
            None if env.view.is_none() => Ok(()),
            None => Err(ViewError::Broken("the config store holds no View any more".into())),
        }
    }
}
