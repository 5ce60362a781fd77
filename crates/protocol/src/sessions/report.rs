//! Nodes' reports about one session.

use crate::log::env::Env;
use crate::log::origin::Origin;
use crate::partition::state::Partition;
use crate::sessions::reconcile::Running;
use crate::sessions::request_ids::hear_of_machine;
use rota_messages::{Answer, DocKey};
use rota_model::SessionRecord;
use rota_model::node_msg::{ReportEvent, ReportItem};

impl Partition {
    pub(crate) fn on_report(&mut self, env: &mut Env, origin: Origin, item: &ReportItem) {
        let key = Self::key_of(env, &item.key);
        let record = self.replica.session(&key).filter(|record| {
            let at = record.placement.as_ref();
            at.is_some_and(|at| at.token == item.token && at.boot == item.boot)
        });
        env.nodes.on_heard(&item.node, item.boot, env.now.mono_ms);
        let Some(record) = record.cloned() else {
            if !matches!(item.event, ReportEvent::Ended { .. }) {
                let at = (&item.node, item.boot);
                self.end_earlier(env, (&item.key, item.token), at);
            }
            return self.reported(origin, &key);
        };
        match &item.event {
            ReportEvent::Ready { address, remark } => {
                self.on_running(env, &key, record, &Running { address, ready: true, remark });
            }
            ReportEvent::Ended { reason, exit, detail } => {
                self.on_ended(env, &key, record, *reason, exit.clone(), detail);
            }
            ReportEvent::MachineState { state, change } => {
                self.on_machine_state(env, &key, record, state, *change);
            }
        }
        self.reported(origin, &key);
    }

    /// The node forgets its news with the answer. What makes them old must be committed before, as
    /// much as what they change: a CLOSING that is lost with this owner would leave a READY behind
    /// of which nothing runs, and nobody would tell.
    fn reported(&mut self, origin: Origin, key: &DocKey) {
        if self.replica.latest.contains_key(key) {
            self.promise(self.replica.last, origin, Ok(Answer::Reported));
        } else {
            self.confirm_then(origin);
        }
    }

    fn on_machine_state(
        &mut self,
        env: &mut Env,
        key: &DocKey,
        mut record: SessionRecord,
        state: &str,
        change: u64,
    ) {
        if !hear_of_machine(&mut record, state, change) {
            return;
        }
        record.version = self.version_after(env, &record);
        self.write_session(env, key, record, None);
    }
}
