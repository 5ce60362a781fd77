//! A step in words.

use super::flying::Flying;
use super::room::Room;
use super::state::{Action, State};
use rota_model::node_msg::{NodeAnswer, ToNode};
use rota_protocol::Message;
use rota_ring::Change;

/// What happens.
pub fn of(room: &Room, state: &State, action: Action) -> String {
    let manager = |at: usize| format!("M{}", room.parts.manager(state, at).number);
    let message = |number: u32| message(room.parts.flying.get(number));
    match action {
        Action::Arrive(number) => message(number),
        Action::ArriveTwice(number) => format!("{}; it may arrive again", message(number)),
        Action::Lose(number) => format!("lost: {}", message(number)),
        Action::Refuse(number) => format!("refused, and told so: {}", message(number)),
        Action::Crash(at, false) => format!("{} crashes", manager(at)),
        Action::Crash(at, true) => format!("{} crashes and loses its disk", manager(at)),
        Action::Start(at) => format!("{} starts again", manager(at)),
        Action::Notice(at, other) => format!("{} finds {} gone", manager(at), manager(other)),
        Action::Suspect(at, other) => {
            format!("{} takes {} for gone, which runs", manager(at), manager(other))
        }
        Action::Watch(at) => {
            let index = room.parts.store(state).state.index;
            format!("{} hears from the config store (index {index})", manager(at))
        }
        Action::Unknown(number) => {
            format!("the outcome of this stays unknown: {}", message(number))
        }
        Action::Land(number) => format!("{}; it hears of that later", message(number)),
        Action::Synced(at) => format!("the disk of {} has everything", manager(at)),
        Action::Tick => "all clocks go on".into(),
        Action::TickManager(at) => format!("the clock of {} goes on", manager(at)),
        Action::TickNode(at) => format!("the clock of node {at} goes on"),
        Action::Ask(wish, id, door) => {
            format!("a client asks M{door}: {wish:?} {}", room.keys[id])
        }
        Action::AskAgain(call, door) => {
            let asked = &room.parts.clients_of(state).asked[call];
            format!("the client asks M{door} again: {:?} {}", asked.wish, room.keys[asked.id])
        }
        Action::Join(at) => format!("{} starts, to join the ring", manager(at)),
        Action::Leave(at) => {
            format!("an operator tells {}: M{} leaves", manager(at), room.bounds.leaver)
        }
        Action::Cancel(at) => {
            format!("an operator tells {}: what is under way is taken back", manager(at))
        }
        Action::Drain(at, node) => {
            format!("an operator tells {}: node {node} is drained", manager(at))
        }
        Action::Resume(at) => format!("the agent of node {at} dies, and the next one goes on"),
        Action::ArriveTorn(number) => {
            format!("{}; its agent dies when that is written down", message(number))
        }
        Action::Boot(at) => format!("node {at} dies with what it runs, and boots anew"),
        Action::End(at, _) => format!("a program on node {at} ends by itself"),
        Action::Silence(at) => format!("node {at} is cut off"),
        Action::Heard(at) => format!("node {at} is reached again"),
        Action::Outage(true) => "the config store is away from now on".into(),
        Action::Outage(false) => "the config store is back".into(),
    }
}

/// A message, in words.
pub fn message(flying: &Flying) -> String {
    match flying {
        Flying::Peer(envelope) => {
            let (from, to) = (envelope.from, envelope.to);
            format!(
                "M{to} hears from M{from} (epoch {}): {}",
                envelope.epoch,
                said(&envelope.message)
            )
        }
        Flying::ToNode { from, node, message } => {
            let head = message.head();
            let what = match message {
                ToNode::Create { token, .. } => format!("create {token}"),
                ToNode::Destroy { token, .. } => format!("destroy {token}"),
                ToNode::Act { action, .. } => format!("act {}", action.word),
                ToNode::Scan { .. } => "scan".into(),
                ToNode::Meet { epoch, .. } => format!("who runs the ring of epoch {epoch}"),
            };
            format!("node {node} hears from M{} under pe {}: {what}", from.0, head.pe)
        }
        Flying::FromNode { to, node, answer } => {
            format!("M{} hears from node {node}: {}", to.0, answered(&answer.answer))
        }
        Flying::Cas { from, change, .. } => {
            format!("the config store compares and sets for M{}: {}", from.0, changed(change))
        }
        Flying::Orphan { from, change } => {
            format!("late, the config store compares and sets for M{from}: {}", changed(change))
        }
        Flying::Outcome { to, done, .. } => {
            let fate = if *done { "was written" } else { "came too late" };
            format!("M{} hears that its compare-and-set {fate}", to.0)
        }
        Flying::Register { to, node, .. } => format!("M{} hears that node {node} boots", to.0),
        Flying::Registered { to, result, .. } => {
            let fate = if result.is_ok() { "is registered" } else { "is refused" };
            format!("node {} hears that it {fate}", to.0)
        }
        Flying::Renew { to, node, .. } => format!("M{} hears a sign of life of node {node}", to.0),
        Flying::Renewed { to, renewed, .. } => format!("node {} is told {renewed:?}", to.0),
        Flying::Report { to, node, item, .. } => {
            format!("M{} hears news of node {node}: {:?}", to.0, item.event)
        }
        Flying::ReportAcked { to, .. } => format!("node {} hears that its news arrived", to.0),
    }
}

fn said(message: &Message) -> String {
    let name = message.name();
    match message {
        Message::Prepare { part, pe, committed, after, entries } => {
            let last = entries.last().map(|it| it.at.to_string()).unwrap_or_default();
            format!("{name} of {part}, pe {pe}, after {after} to {last}, committed {committed}")
        }
        Message::Ack { part, pe, seq } | Message::Nack { part, pe, seq } => {
            format!("{name} of {part}, pe {pe}, {seq}")
        }
        Message::SyncAsk { part, pe } => format!("{name} of {part}, pe {pe}"),
        Message::SyncReport { part, pe, last, committed, touched } => {
            let count = touched.len();
            format!(
                "{name} of {part}, pe {pe}: last {last}, committed {committed}, {count} touched"
            )
        }
        Message::SyncData { part, pe, at, writes, .. } => {
            format!("{name} of {part}, pe {pe}, at {at}: {} documents", writes.len())
        }
        Message::SyncApplied { part, pe, .. } | Message::SnapshotAck { part, pe, .. } => {
            format!("{name} of {part}, pe {pe}")
        }
        Message::SnapshotChunk { part, chunk } => {
            let count = chunk.docs.len();
            format!("{name} of {part}, pe {}, copying {}: {count} documents", chunk.pe, chunk.learn)
        }
        Message::Request { op, .. } => {
            let text = format!("{op:?}");
            format!("{name}: {}", text.split('(').next().unwrap_or_default())
        }
        Message::Answer { result, .. } => match &**result {
            Ok(_) => "the answer".into(),
            Err(refusal) => format!("the answer: {refusal}"),
        },
        Message::ReadIndex { round, .. } | Message::ReadIndexConfirmed { round, .. } => {
            format!("{name} of round {}", round % (1 << 20))
        }
        Message::Heartbeat { .. }
        | Message::Probe { .. }
        | Message::Probed { .. }
        | Message::NodeWanted { .. }
        | Message::NodesFailed { .. } => name.into(),
    }
}

fn answered(answer: &NodeAnswer) -> String {
    let text = format!("{answer:?}");
    text.split(['{', '(']).next().unwrap_or_default().trim().to_lowercase()
}

fn changed(change: &Change) -> String {
    crate::packet::brief_change(change)
}
