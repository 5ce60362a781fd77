//! Nodes' reports about one session.

use crate::log::at::At;
use crate::log::origin::Origin;
use crate::sessions::read::key_of;
use crate::sessions::reconcile::Running;
use crate::sessions::reconcile::write_end;
use crate::sessions::remembered::write_session;
use crate::sessions::request_ids::hear_of_machine;
use crate::sessions::state::Sessions;
use crate::sessions::version::next_version;
use crate::sessions::withdraw::end_earlier;
use rota_messages::{Answer, DocKey};
use rota_model::SessionRecord;
use rota_model::node_msg::{ReportEvent, ReportItem};

impl Sessions {
    pub(crate) fn on_report(&mut self, led: &mut At<'_>, origin: Origin, item: &ReportItem) {
        let key = key_of(led.env, &item.key);
        let record = led.log.replica.session(&key).filter(|record| {
            let at = record.placement.as_ref();
            at.is_some_and(|at| at.token == item.token && at.boot == item.boot)
        });
        led.env.nodes.on_heard(&item.node, item.boot, led.env.now.mono_ms);
        let Some(record) = record.cloned() else {
            if !matches!(item.event, ReportEvent::Ended { .. }) {
                let at = (&item.node, item.boot);
                end_earlier(led, (&item.key, item.token), at);
            }
            return answer_reported(led, origin, &key);
        };
        match &item.event {
            ReportEvent::Ready { address, remark } => {
                self.on_running(led, &key, record, &Running { address, ready: true, remark });
            }
            ReportEvent::Ended { reason, exit, detail } => {
                write_end(led, &key, record, *reason, exit.clone(), detail);
            }
            ReportEvent::MachineState { state, change } => {
                write_machine_state(led, &key, record, state, *change);
            }
        }
        answer_reported(led, origin, &key);
    }
}

/// The node forgets its news with the answer. What makes them old must be committed before, as
/// much as what they change: a CLOSING that is lost with this owner would leave a READY behind
/// of which nothing runs, and nobody would tell.
fn answer_reported(led: &mut At<'_>, origin: Origin, key: &DocKey) {
    if led.log.replica.latest.contains_key(key) {
        led.promise(led.log.replica.last, origin, Ok(Answer::Reported));
    } else {
        led.confirm_then(origin);
    }
}

fn write_machine_state(
    led: &mut At<'_>,
    key: &DocKey,
    mut record: SessionRecord,
    state: &str,
    change: u64,
) {
    if !hear_of_machine(&mut record, state, change) {
        return;
    }
    record.version = next_version(led.env, led.log, &record);
    write_session(led, key, record, None);
}
