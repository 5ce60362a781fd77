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

/// Somebody asked for the end.
const STOPPED: &str = "STOPPED";

/// A boot begins: nothing of an earlier one in the same folder runs any more.
pub fn boots(boot: BootId) {
    tracing::debug!(target: "sessions", at_us = boottime_us(), boot = boot.0, "boots");
}

/// An execution begins, after that time.
pub fn begins(boot: BootId, at_us: u64, key: &SessionKey, token: Token, life: Stamp) {
    let life = u64::from(life);
    tracing::debug!(target: "sessions", at_us, boot = boot.0, session = %key, %token, life, "begins");
}

/// The end of an execution, if that comes to be decided about: which one, and why; nothing of it runs.
pub fn ended(input: &NodeInput) -> Option<(&SessionKey, Token, &'static str)> {
    match input {
        NodeInput::Stopped { key, token, .. } => Some((key, *token, STOPPED)),
        NodeInput::StartFailed { key, token, .. } => Some((key, *token, "NOT_STARTED")),
        NodeInput::Ended { key, token, reason, .. } => Some((key, *token, reason.as_str())),
        NodeInput::Registered { .. }
        | NodeInput::Call { .. }
        | NodeInput::StreamClosed { .. }
        | NodeInput::Started { .. }
        | NodeInput::Ready { .. }
        | NodeInput::MachineState { .. }
        | NodeInput::Acted { .. }
        | NodeInput::Renewed { .. }
        | NodeInput::ReportsAcked { .. }
        | NodeInput::Reached
        | NodeInput::Leave
        | NodeInput::Tick => None,
    }
}

/// Such an end, of a session whose lease stands so.
pub fn over(boot: BootId, lease: LeaseState, (key, token, why): (&SessionKey, Token, &str)) {
    let why = if why == STOPPED && lease != LeaseState::Valid { "LEASE" } else { why };
    let at_us = boottime_us();
    tracing::debug!(target: "sessions", at_us, boot = boot.0, session = %key, %token, why, "over");
}
