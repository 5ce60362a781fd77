//! What lives in a partition: the one place that names all of it. A new resident is a field here, and a line in
//! each hook that it uses.

use crate::documents::state::Documents;
use crate::lives::state::Lives;
use crate::log::at::At;
use crate::log::env::Env;
use crate::log::lead::{Next, Phase};
use crate::log::origin::Origin;
use crate::log::resident::{Late, RequestHandler, Resident, RoundEnd, Turn};
use crate::log::state::Log;
use crate::node_lease::state::NodeLeases;
use crate::numbers::sessions::state::SessionNumbering;
use crate::numbers::state::StableNumbers;
use crate::partition::aging::Aging;
use crate::pools::state::Pools;
use crate::searches::state::Searches;
use crate::sessions::state::Sessions;
use crate::tasks::state::Tasks;
use rota_messages::documents::life_name;
use rota_messages::{DocKey, LivesOp, Op, OpResult, Write};
use std::collections::BTreeMap;

/// What lives in a partition beside its log.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Residents {
    pub sessions: Sessions,
    pub documents: Documents,
    pub tasks: Tasks,
    pub pools: Pools,
    pub numbers: StableNumbers,
    pub session_numbers: SessionNumbering,
    pub leases: NodeLeases,
    pub aging: Aging,
    pub searches: Searches,
    pub lives: Lives,
}

impl Resident for Residents {
    fn begin(env: &Env, phase: &Phase) -> Self {
        Self {
            sessions: Sessions::begin(env, phase),
            documents: Documents::begin(env, phase),
            tasks: Tasks::begin(env, phase),
            pools: Pools::begin(env, phase),
            numbers: StableNumbers::begin(env, phase),
            session_numbers: SessionNumbering::begin(env, phase),
            leases: NodeLeases::begin(env, phase),
            aging: Aging::begin(env, phase),
            searches: Searches::begin(env, phase),
            lives: Lives::begin(env, phase),
        }
    }

    fn find_out(&mut self, led: &mut At<'_>) -> Next {
        self.sessions.find_out(led)
    }

    fn nodes_changed(&mut self, led: &mut At<'_>) {
        self.sessions.nodes_changed(led);
    }

    fn first_writes(&self, env: &mut Env, log: &Log, found: &[Write]) -> Vec<Write> {
        self.sessions.first_writes(env, log, found)
    }

    fn serve(&mut self, led: &mut At<'_>) {
        self.documents.serve(led);
        self.leases.serve(led);
        self.sessions.serve(led);
        self.searches.serve(led);
        self.tasks.serve(led);
        self.lives.serve(led);
    }

    fn committed(&mut self, led: &mut At<'_>, key: &DocKey) {
        self.pools.committed(led, key);
        self.numbers.committed(led, key);
        self.session_numbers.committed(led, key);
        self.sessions.committed(led, key);
        self.tasks.committed(led, key);
        self.searches.committed(led, key);
        self.lives.committed(led, key);
    }

    fn advanced(&mut self, led: &mut At<'_>) {
        self.sessions.advanced(led);
        self.documents.advanced(led);
        self.searches.advanced(led);
    }

    fn unwedged(&mut self, led: &mut At<'_>) {
        self.sessions.unwedged(led);
    }

    fn wants_round(&self) -> bool {
        self.leases.wants_round()
    }

    fn round_begins(&mut self) {
        self.leases.round_begins();
    }

    fn round_ended(&mut self, led: &mut At<'_>, end: RoundEnd) {
        self.leases.round_ended(led, end);
    }

    fn tick(&mut self, led: &mut At<'_>, turn: Turn) {
        self.sessions.tick(led, turn);
        self.leases.tick(led, turn);
        self.documents.tick(led, turn);
        self.pools.tick(led, turn);
        self.numbers.tick(led, turn);
        self.session_numbers.tick(led, turn);
        self.tasks.tick(led, turn);
        self.aging.tick(led, turn);
        self.searches.tick(led, turn);
        self.lives.tick(led, turn);
    }

    fn is_busy(&self) -> bool {
        self.sessions.is_busy()
            || self.tasks.is_busy()
            || self.searches.is_busy()
            || self.lives.is_busy()
    }

    fn patient(&self) -> usize {
        self.documents.patient()
    }

    fn forget(&mut self, origin: &Origin) {
        self.documents.forget(origin);
        self.searches.forget(origin);
    }

    fn retain(&mut self, is_there: &dyn Fn(&Origin) -> bool) {
        self.sessions.retain(is_there);
        self.documents.retain(is_there);
        self.searches.retain(is_there);
        self.lives.retain(is_there);
    }

    fn hand_on(&mut self, next: &mut Self) {
        self.tasks.hand_on(&mut next.tasks);
        self.searches.hand_on(&mut next.searches);
    }

    fn step_down(&mut self, env: &mut Env) {
        self.leases.step_down(env);
        self.session_numbers.step_down(env);
        self.tasks.step_down(env);
    }
}

impl RequestHandler for Residents {
    fn carry_out(&mut self, led: &mut At<'_>, origin: Origin, op: Op) {
        if matches!(op, Op::Documents(_)) {
            self.documents.carry_out(led, origin, op);
        } else if matches!(op, Op::Numbers(_)) {
            self.session_numbers.carry_out(led, origin, op);
        } else if matches!(op, Op::Tasks(_)) {
            self.tasks.carry_out(led, origin, op);
        } else if matches!(op, Op::Lives(LivesOp::Fire(_))) {
            self.lives.carry_out(led, origin, op);
        } else if matches!(op, Op::Search(_)) {
            self.searches.carry_out(led, origin, op);
        } else {
            self.sessions.carry_out(led, origin, op);
        }
    }

    fn confirmed(&mut self, led: &mut At<'_>, origin: Origin, op: Op) {
        if matches!(op, Op::Documents(_)) {
            self.documents.confirmed(led, origin, op);
        } else if matches!(op, Op::Numbers(_)) {
            self.session_numbers.confirmed(led, origin, op);
        } else if matches!(op, Op::Tasks(_)) {
            self.tasks.confirmed(led, origin, op);
        } else if let Op::Lives(LivesOp::Show(key)) = &op {
            let slot = rota_ring::slot_of_session(key, led.env.view().m);
            let running = self.lives.running(&DocKey::new(slot, life_name(key)));
            self.sessions.show_life(led, origin, key, running);
        } else if matches!(op, Op::Search(_)) {
            self.searches.confirmed(led, origin, op);
        } else {
            self.sessions.confirmed(led, origin, op);
        }
    }

    fn unfinished(&self, led: &At<'_>, late: &Late) -> BTreeMap<Origin, OpResult> {
        let mut told = self.sessions.unfinished(led, late);
        told.extend(self.documents.unfinished(led, late));
        told.extend(self.session_numbers.unfinished(led, late));
        told.extend(self.tasks.unfinished(led, late));
        told.extend(self.searches.unfinished(led, late));
        told.extend(self.lives.unfinished(led, late));
        told
    }

    fn reply(&mut self, led: &mut At<'_>, origin: Origin, result: OpResult) {
        match led.inbox.live.get(&origin).map(|asked| &asked.op) {
            Some(Op::Documents(_)) => self.documents.reply(led, origin, result),
            Some(Op::Numbers(_)) => self.session_numbers.reply(led, origin, result),
            Some(Op::Tasks(_)) => self.tasks.reply(led, origin, result),
            Some(Op::Search(_)) => self.searches.reply(led, origin, result),
            Some(Op::Lives(LivesOp::Fire(_))) => self.lives.reply(led, origin, result),
            Some(_) => self.sessions.reply(led, origin, result),
            None => {}
        }
    }
}
