//! Verdicts over nodes go into the registry, one at a time.

use crate::manager::inputs::Manager;
use crate::membership::purpose::Purpose;
use crate::membership::standing::Standing;
use rota_ring::Change;

impl Manager {
    /// Declares the next silent node lost.
    pub(crate) fn drive_verdicts(&mut self) {
        let under_way = self.changes.asked.values().any(|it| matches!(it, Purpose::Verdict(_)));
        if self.membership.standing != Standing::Inside || under_way {
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

    /// Forgets the next node that has been gone for so long that [`crate::node_lease::judge`] gives it up.
    pub(crate) fn forget_nodes(&mut self) {
        let under_way = self.changes.asked.values().any(|it| matches!(it, Purpose::Forget));
        if under_way || self.env.now.mono_ms < self.changes.next_ms {
            return;
        }
        let env = &self.env;
        let gone = self.parts.awake().find_map(|part| part.long_gone(env));
        if let Some(node) = gone {
            let change = Change { expect_epoch: None, view: None, node: Some(node) };
            self.ask_view(Purpose::Forget, change);
        }
    }
}
