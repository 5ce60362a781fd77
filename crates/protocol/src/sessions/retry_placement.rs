//! Where a session goes that a node did not take.

use crate::log::at::At;
use crate::log::origin::{Ending, Origin};
use crate::nodes::choice::NoNode;
use crate::ports::note::Transition;
use crate::sessions::in_progress::InProgress;
use crate::sessions::remembered::write_session;
use crate::sessions::request_ids::fail_opens;
use crate::sessions::version::next_version;
use rota_messages::DocKey;
use rota_model::node_msg::Blame;
use rota_model::{Reason, RequestFate, SessionRecord, SessionState};

/// Nodes at which one life may fail to start before it is given up.
const FAILURES_MAX: u32 = 3;

impl InProgress {
    /// The node refused for good: its token is dead and never ran, so another node may be tried.
    ///
    /// What a node is to blame for never fails an open: when no other node is left, the life ends,
    /// and whoever waits for it begins anew, until the own deadline. The node is not chosen for a
    /// while, so that it is asked once in that time and not again and again. The life that ended
    /// stays FAILED for some seconds: others may have seen it begin, and watches tell of no record that is
    /// gone. An open that is refused once that is committed has changed nothing: no owner can place that
    /// life any more.
    pub fn on_refused(
        &mut self,
        led: &mut At<'_>,
        key: &DocKey,
        record: SessionRecord,
        detail: &str,
        blame: Blame,
    ) {
        if !matches!(record.state, SessionState::Pending | SessionState::Starting) {
            return;
        }
        let Some(placement) = record.placement.clone() else {
            return;
        };
        led.env.nodes.asked_done(&placement.node, placement.token);
        led.env.note(Transition::NodeRefused, Some(led.log.number));
        let work = self.ids.entry(record.key.clone()).or_default();
        work.refused.push(placement.node.clone());
        work.failures += u32::from(blame == Blame::Session);
        work.asked = 0;
        let tired = blame == Blame::Session && work.failures >= FAILURES_MAX;
        let refused = work.refused.clone();
        let choice = led.env.nodes.choose(&record.spec, &refused, led.env.now.mono_ms);
        match choice {
            Ok(chosen) if !tired && record.state == SessionState::Pending => {
                self.write_pending(led, key, record, chosen, None);
            }
            Ok(_)
            | Err(NoNode::UnknownClass | NoNode::NoRoom(_) | NoNode::Unable | NoNode::Unfit(_)) => {
                let from = record.state;
                let mut failed = record;
                failed.version = next_version(led.env, led.log, &failed);
                // A session that is opened again waits for room, as long as that takes.
                let waits =
                    failed.reason.and_then(Reason::waits_as).filter(|_| blame == Blame::Node);
                (failed.state, failed.reason) = match (waits, blame) {
                    (Some(state), _) => (state, failed.reason),
                    (None, Blame::Node) => (SessionState::Failed, Some(Reason::NoCapacity)),
                    (None, Blame::Session) => (SessionState::Failed, Some(Reason::Internal)),
                };
                let node = &placement.node;
                let waits = if waits.is_some() { "its next life waits for room: " } else { "" };
                failed.detail = format!("{waits}node {node} refused: {detail}");
                led.env.note_end(Transition::OpenFailed, led.log.number, from, &failed);
                if blame == Blame::Node {
                    // The opens that wait begin anew when this is committed.
                    self.note_ending(led, &failed, Ending::Unplaced);
                    failed.requests.retain(|it| it.fate != RequestFate::Opening);
                }
                fail_opens(&mut failed);
                write_session(led, key, failed, None);
            }
        }
    }
}

/// The life that was begun for an open is being closed.
pub(crate) fn note_overtaken(led: &mut At<'_>, origin: Origin) {
    if let Some(asked) = led.inbox.live.get_mut(&origin) {
        asked.ending = Some(Ending::Overtaken);
    }
}

/// Whatever life was begun for an open before, it has ended, and that is committed.
pub(crate) fn note_begins_anew(led: &mut At<'_>, origin: Origin) {
    if let Some(asked) = led.inbox.live.get_mut(&origin) {
        asked.ending = None;
    }
}
