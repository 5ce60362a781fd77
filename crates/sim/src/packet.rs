//! What travels over the simulated network.

use rota_model::node_msg::{FromNode, Register, Registered, Renew, Renewed, ReportItem, ToNode};
use rota_model::{BootId, ManagerNumber, Refusal};
use rota_node::ReportId;
use rota_protocol::{CasOutcome, DiskWrite, Envelope, Input, Op, OpResult};
use rota_ring::{Change, ConfigState};

/// One message between two places.
#[derive(Clone, Debug)]
pub enum Packet {
    /// Manager to manager.
    Peer(Envelope),
    /// Manager to node.
    ToNode {
        /// Who asks.
        manager: ManagerNumber,
        /// Its run.
        generation: u64,
        /// What.
        message: ToNode,
    },
    /// Node to manager.
    FromNode(FromNode),
    /// Client to manager.
    Call {
        /// The client's name for it.
        call: u64,
        /// How long the client waits.
        deadline_ms: u64,
        /// What.
        op: Op,
    },
    /// Manager to client.
    Reply {
        /// The call.
        call: u64,
        /// The answer.
        result: OpResult,
    },
    /// Node to manager: a boot.
    Register {
        /// The node's run.
        run: u64,
        /// On the node's clock.
        sent_mono_ms: u64,
        /// The boot.
        register: Register,
    },
    /// Manager to node.
    Registered {
        /// As in the request.
        sent_mono_ms: u64,
        /// The answer.
        result: Result<Registered, Refusal>,
    },
    /// Node to manager: a sign of life.
    Renew {
        /// On the node's clock.
        sent_mono_ms: u64,
        /// The sign.
        renew: Renew,
    },
    /// Manager to node.
    Renewed {
        /// The boot that asked.
        boot: BootId,
        /// As in the request.
        sent_mono_ms: u64,
        /// The answer.
        renewed: Renewed,
    },
    /// Node to manager: news of a session.
    Report {
        /// The node's name for it.
        id: ReportId,
        /// The news.
        item: ReportItem,
    },
    /// Manager to node.
    ReportAcked(ReportId),
    /// Manager to store.
    Read {
        /// The manager's name for it.
        read: u64,
    },
    /// Store to manager.
    ReadDone {
        /// The read.
        read: u64,
        /// The state.
        state: ConfigState,
    },
    /// Manager to store.
    Cas {
        /// The manager's name for it.
        cas: u64,
        /// Its run.
        generation: u64,
        /// The change.
        change: Box<Change>,
    },
    /// Store to manager.
    CasDone {
        /// The compare-and-set.
        cas: u64,
        /// What became of it.
        outcome: CasOutcome,
    },
    /// Store to manager: a watch notification.
    Watch(ConfigState),
}

impl Packet {
    /// Name, for traces.
    pub fn name(&self) -> &'static str {
        match self {
            Packet::Peer(envelope) => envelope.message.name(),
            Packet::ToNode { message: ToNode::Create { .. }, .. } => "create",
            Packet::ToNode { message: ToNode::Destroy { .. }, .. } => "destroy",
            Packet::ToNode { message: ToNode::Act { .. }, .. } => "act",
            Packet::ToNode { message: ToNode::Scan { .. }, .. } => "scan",
            Packet::ToNode { message: ToNode::Meet { .. }, .. } => "meet",
            Packet::FromNode(_) => "from_node",
            Packet::Call { .. } => "call",
            Packet::Reply { .. } => "reply",
            Packet::Register { .. } => "register",
            Packet::Registered { .. } => "registered",
            Packet::Renew { .. } => "renew",
            Packet::Renewed { .. } => "renewed",
            Packet::Report { .. } => "report",
            Packet::ReportAcked(_) => "report_acked",
            Packet::Read { .. } => "read",
            Packet::ReadDone { .. } => "read_done",
            Packet::Cas { .. } => "cas",
            Packet::CasDone { .. } => "cas_done",
            Packet::Watch(_) => "watch",
        }
    }

    /// Whether the transport may deliver it twice: streams between managers, and between managers
    /// and nodes, are reopened and resent; unary calls are not.
    pub fn may_repeat(&self) -> bool {
        matches!(self, Packet::Peer(_) | Packet::ToNode { .. } | Packet::FromNode(_))
    }

    /// Its content on one line, for traces.
    pub fn line(&self) -> String {
        match self {
            Packet::Peer(it) => {
                format!("{} -> {} {} {:?}", it.from, it.to, it.epoch, it.message)
            }
            Packet::ToNode { message, .. } => format!("{message:?}"),
            Packet::FromNode(answer) => format!("{answer:?}"),
            Packet::Call { call, op, .. } => format!("call {call}: {op:?}"),
            Packet::Reply { call, result } => format!("call {call}: {result:?}"),
            Packet::Register { register, .. } => format!("{register:?}"),
            Packet::Registered { result, .. } => format!("{result:?}"),
            Packet::Renew { renew, .. } => format!("{renew:?}"),
            Packet::Renewed { renewed, .. } => format!("{renewed:?}"),
            Packet::Report { id, item } => format!("{id:?} {item:?}"),
            Packet::ReportAcked(id) => format!("{id:?}"),
            Packet::Read { read } => format!("read {read}"),
            Packet::ReadDone { read, state } => format!("read {read}: {}", brief(state)),
            Packet::Cas { cas, change, .. } => format!("cas {cas}: {}", brief_change(change)),
            Packet::CasDone { cas, outcome } => format!("cas {cas}: {}", brief_outcome(outcome)),
            Packet::Watch(state) => brief(state),
        }
    }
}

/// A config state on one line: epochs, owners and copies.
pub fn brief(state: &ConfigState) -> String {
    let mut text = format!("index {}", state.index);
    if let Some(view) = &state.view {
        text.push_str(&brief_view(view));
    }
    for reg in state.nodes.values() {
        text.push_str(&format!(" [{} {:?} {}]", reg.node, reg.boot, reg.state));
    }
    text
}

fn brief_view(view: &rota_ring::View) -> String {
    let mut text = format!(" e{}", view.epoch);
    for (number, entry) in &view.managers {
        text.push_str(&format!(" M{number}.{}={}", entry.incarnation, entry.status));
    }
    for (number, part) in &view.parts {
        let isr: Vec<String> =
            part.isr.iter().map(|it| format!("{}@{}", it.number, it.since)).collect();
        let (pe, owner, base) = (part.pe, part.owner, part.base_pe);
        text.push_str(&format!(
            " P{number}(pe {pe} owner {owner} isr {} base {base} {:?})",
            isr.join(","),
            part.state
        ));
    }
    text
}

/// A change on one line.
pub fn brief_change(change: &Change) -> String {
    let view = change.view.as_ref().map(brief_view).unwrap_or_default();
    let node = change.node.as_ref().map(|node| {
        format!(
            " node {} {:?} {} revision {}",
            node.to.node, node.to.boot, node.to.state, node.to.revision
        )
    });
    format!("expect {:?}{view}{}", change.expect_epoch, node.unwrap_or_default())
}

fn brief_outcome(outcome: &CasOutcome) -> String {
    match outcome {
        CasOutcome::Done(state) => format!("done, {}", brief(state)),
        CasOutcome::Conflict(state) => format!("conflict, {}", brief(state)),
        CasOutcome::Unknown => "unknown".into(),
    }
}

/// Disk writes on one line.
pub fn brief_writes(writes: &[DiskWrite]) -> String {
    let brief = |write: &DiskWrite| match (crate::ledger::session_of(write), write) {
        (Some(it), _) => {
            let at = it.placement.as_ref().map(|at| format!("{} token {}", at.node, at.token));
            format!("{}={} life {} {}", it.key, it.state, it.life, at.unwrap_or_default())
        }
        (None, DiskWrite::Part { part, meta }) => {
            format!("P{part} pe {} last {} whole {}", meta.pe, meta.last, meta.whole)
        }
        (None, DiskWrite::Doc { key, doc }) => {
            format!("{:?} {}", key.name, if doc.is_some() { "written" } else { "removed" })
        }
        (None, DiskWrite::Identity(identity)) => format!("{identity:?}"),
    };
    writes.iter().map(brief).collect::<Vec<_>>().join("; ")
}

/// What a manager is told from outside the network, for traces; `None` for what its trace shows anyway.
pub fn told(input: &Input) -> Option<String> {
    match input {
        Input::PeerRefused { .. }
        | Input::Signal { .. }
        | Input::Order { .. }
        | Input::NodeOrder { .. }
        | Input::NodeConnected { .. }
        | Input::NodeUnreached { .. }
        | Input::Provisioned { .. }
        | Input::NodeCleared { .. }
        | Input::Tick => Some(format!("is told {input:?}")),
        Input::Persisted { lsn } => Some(format!("has on disk: lsn {lsn}")),
        Input::ConfigRead { state: None, read } => Some(format!("gives up read {read}")),
        Input::CasDone { cas, outcome: CasOutcome::Unknown } => Some(format!("gives up cas {cas}")),
        Input::Client { .. }
        | Input::Peer(_)
        | Input::Node(_)
        | Input::NodeRegister { .. }
        | Input::NodeRenew { .. }
        | Input::Config(_)
        | Input::ConfigRead { .. }
        | Input::BodiesFetched { .. }
        | Input::Worked { .. }
        | Input::TaskRan { .. }
        | Input::CasDone { .. } => None,
    }
}
