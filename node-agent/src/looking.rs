//! What operators see of what lives on this node.

use rota_node::{LiveSession, Node, Phase};
use rota_proto::running::{LiveAsk, live_response};
use rota_proto::v1;

fn phase_text(phase: Phase) -> &'static str {
    match phase {
        Phase::Starting => "starting",
        Phase::Running => "running",
        Phase::Stopping => "stopping",
    }
}

fn shown(live: &LiveSession<'_>) -> v1::LiveSession {
    v1::LiveSession {
        key: Some(live.key.into()),
        token: Some(live.token.into()),
        phase: phase_text(live.phase).into(),
    }
}

/// A page of what lives here, as it is now.
pub fn page(node: &Node, ask: &LiveAsk) -> v1::LiveResponse {
    let (sessions, more) = match ask {
        LiveAsk::After { range, after, limit } => node.live_page(*range, after.as_ref(), *limit),
        LiveAsk::Named(keys) => (node.live_of(keys), false),
    };
    let sessions = sessions.iter().map(shown).collect();
    live_response(&node.config().node, node.config().boot, sessions, more)
}
