//! Planted bugs of agents that die alone: what the next one is left.

use crate::mutants::Bug;
use rota_model::Epoch;
use rota_model::node_msg::Registered;
use rota_node::{Entry, EntryKind, Node, NodeConfig, NodeInput, SlotLease};

/// What the next agent reads of a journal.
pub(crate) fn spoil_journal(
    bug: Option<Bug>,
    (config, m): (&NodeConfig, u32),
    mut journal: Vec<Entry>,
) -> Vec<Entry> {
    match bug {
        Some(Bug::DeadForgotten) => journal.retain(|it| it.kind() != EntryKind::Dead),
        Some(Bug::NewsForgotten) => journal.retain(|it| it.kind() != EntryKind::News),
        Some(Bug::FencesForgotten) => {
            journal.retain(|it| it.kind() != EntryKind::Fences);
            journal.extend(no_fences(config.clone(), m));
        }
        _ => {}
    }
    journal
}

/// The fences of a node that was registered, and obeys everybody.
fn no_fences(config: NodeConfig, m: u32) -> Option<Entry> {
    let registered = Registered { epoch: Epoch(0), m, fences: Vec::new(), managers: Vec::new() };
    let mut node = Node::new(config);
    node.handle(0, NodeInput::Registered { sent_mono_ms: 0, registered });
    node.remembered().into_iter().find(|it| it.kind() == EntryKind::Fences)
}

/// What it reads of the lease file.
pub(crate) fn spoil_leases(
    bug: Option<Bug>,
    (now_ms, (term_ms, kill_ms)): (u64, (u64, u64)),
    mut leases: Vec<SlotLease>,
) -> Vec<SlotLease> {
    if bug == Some(Bug::LeaseByItself) {
        for lease in &mut leases {
            (lease.term_at_mono_ms, lease.kill_at_mono_ms) = (now_ms + term_ms, now_ms + kill_ms);
        }
    }
    leases
}
