//! A line of the log when a session begins to run here, and one when nothing of it runs any more:
//! what ran on a node, and when, for whoever asks for it (`--log info,sessions=debug`).
//!
//! Both times are those of `CLOCK_BOOTTIME`, which all nodes of one machine share. The first is taken
//! before anything runs, the second after the last of it is gone and before a manager hears of that;
//! so executions of one id that never overlap never seem to. A line of each boot, before it registers,
//! says that nothing of an earlier boot of the same folder runs: of an agent that was killed, nobody else
//! tells the end.

use crate::lease::boottime_us;
use rota_model::{BootId, SessionKey, Stamp, Token};
use rota_node::{LeaseState, NodeInput};

/// A boot begins: nothing of an earlier one in the same folder runs any more.
pub fn boots(boot: BootId) {
    tracing::debug!(target: "sessions", at_us = boottime_us(), boot = boot.0, "boots");
}

/// An execution begins, after that time.
pub fn begins(boot: BootId, at_us: u64, key: &SessionKey, token: Token, life: Stamp) {
    let life = u64::from(life);
    tracing::debug!(target: "sessions", at_us, boot = boot.0, session = %key, %token, life, "begins");
}

/// Something comes to be decided about: if it is the end of an execution, nothing of that runs.
pub fn over(boot: BootId, lease: LeaseState, input: &NodeInput) {
    let (key, token, why) = match input {
        NodeInput::Stopped { key, token, .. } if lease == LeaseState::Valid => {
            (key, token, "STOPPED")
        }
        NodeInput::Stopped { key, token, .. } => (key, token, "LEASE"),
        NodeInput::StartFailed { key, token, .. } => (key, token, "NOT_STARTED"),
        NodeInput::Ended { key, token, reason, .. } => (key, token, reason.as_str()),
        NodeInput::Registered { .. }
        | NodeInput::Call { .. }
        | NodeInput::StreamClosed { .. }
        | NodeInput::Started { .. }
        | NodeInput::Ready { .. }
        | NodeInput::MachineState { .. }
        | NodeInput::Renewed { .. }
        | NodeInput::ReportsAcked { .. }
        | NodeInput::Reached
        | NodeInput::Leave
        | NodeInput::Tick => return,
    };
    let at_us = boottime_us();
    tracing::debug!(target: "sessions", at_us, boot = boot.0, session = %key, %token, why, "over");
}
