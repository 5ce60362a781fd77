//! What nodes are asked, do and answer.

use super::{Checker, Run};
use crate::invariant::Violation;
use crate::invariant::node_obeys::{Boot, NodeObeys};
use crate::invariant::placement_settled::Page;
use rota_model::node_msg::{FromNode, NodeAnswer, ReportEvent, SlotRange, ToNode};
use rota_model::{Epoch, SlotId};
use rota_node::NodeEffect;

impl Checker {
    /// A node's boot was told its first fences.
    pub fn on_fences(&mut self, boot: &Boot, fences: &[(SlotRange, Epoch)]) {
        for (range, pe) in fences {
            self.obeys.raise(boot, *range, self.m, *pe);
        }
    }

    /// A call reaches a node's boot.
    pub fn on_node_call(&mut self, run: Run, boot: &Boot, message: &ToNode) {
        let (obeys, m) = (&self.obeys, self.m);
        let Some(asked) = self.calls.get_mut(&(run, message.head().call)) else { return };
        if asked.floor.is_none() {
            let slots = asked.slots.intervals(m).into_iter();
            let slots = slots.flat_map(|(first, last)| first.0..=last.0);
            asked.floor = slots.map(|slot| obeys.floor(boot, SlotId(slot))).max();
        }
    }

    /// A node's boot gives an effect. `call` is the call that it was just given, if it was one.
    pub fn on_node_effect(
        &mut self,
        now_us: u64,
        boot: &Boot,
        call: Option<(Run, u64)>,
        effect: &NodeEffect,
    ) {
        match effect {
            NodeEffect::Start { key, token, .. } => {
                let verdict = self.obeys.on_start(boot, key, *token);
                self.judge(now_us, verdict);
                if let Some(asked) = call.and_then(|it| self.calls.get(&it)) {
                    self.obeys.raise(boot, asked.slots, self.m, asked.head.pe);
                }
            }
            NodeEffect::Report { item, .. } => {
                if matches!(item.event, ReportEvent::Ended { .. }) {
                    self.settled.on_definite(&item.key, item.token);
                    self.obeys.on_dead(boot, &item.key, item.token);
                }
            }
            NodeEffect::Answer { .. }
            | NodeEffect::Journal { .. }
            | NodeEffect::Adopt { .. }
            | NodeEffect::Stop { .. }
            | NodeEffect::Act { .. }
            | NodeEffect::Renew { .. }
            | NodeEffect::Lease { .. }
            | NodeEffect::BootAnew
            | NodeEffect::Left
            | NodeEffect::Retire => {}
        }
    }

    /// A node's boot answers a call of a run.
    pub fn on_node_answer(&mut self, now_us: u64, run: Run, boot: &Boot, answer: &FromNode) {
        let Some(asked) = self.calls.get(&(run, answer.call)).cloned() else { return };
        let definite = match &answer.answer {
            NodeAnswer::Fenced { .. } | NodeAnswer::WrongBoot => return,
            NodeAnswer::Running { .. } | NodeAnswer::Acted { .. } => false,
            NodeAnswer::Scanned { items, more, .. } => {
                self.obeys.raise(boot, asked.slots, self.m, asked.head.pe);
                let page = Page { after: asked.after.as_ref(), items, more: *more };
                self.settled.on_scanned(boot, asked.slots, self.m, &page);
                if let Some(asked) = self.calls.get_mut(&(run, answer.call)) {
                    asked.scanned |= !more;
                }
                false
            }
            NodeAnswer::Dead(_)
            | NodeAnswer::Full
            | NodeAnswer::OtherLive { .. }
            | NodeAnswer::Destroyed { .. } => true,
        };
        if asked.head.boot != boot.1 {
            let text = format!("{boot:?} obeys a call meant for {:?}", asked.head.boot);
            self.judge(now_us, Err(Violation::new("I7", text)));
        }
        let floor = asked.floor.unwrap_or_default();
        let verdict = NodeObeys::check_obeyed(boot, asked.slots.first, asked.head.pe, floor);
        self.judge(now_us, verdict);
        if let (true, Some((key, token))) = (definite, &asked.session) {
            self.settled.on_definite(key, *token);
            self.obeys.on_dead(boot, key, *token);
        }
    }
}
