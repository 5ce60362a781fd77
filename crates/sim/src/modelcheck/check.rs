//! What must hold: in every state, at every write of the config store, and of everything that is sent.
//! The rules themselves stand in [`crate::invariant`], where one looks at a moment; rules about a whole
//! history (of clients, say) are in [`super::clients`], which keeps what of the history matters.

use super::flying::Flying;
use super::names::node_id;
use super::room::Room;
use super::state::State;
use crate::invariant::split_at_rest::Moment;
use crate::invariant::{
    Verdict, Violation, cordon_kept, given_up, leaver_released, lost_is_dead, member_added,
    one_owner, one_transition, split_at_rest, surplus_only, view_order,
};
use crate::ledger::Instance;
use rota_model::node_msg::ToNode;
use rota_model::{
    BootId, Epoch, LogPos, ManagerNumber, SessionKey, SessionRecord, SessionState, Stamp, Token,
};
use rota_protocol::{Answer, Chunk, DiskWrite, Manager, Message, OpResult};
use rota_ring::{ConfigState, PartitionState, View};
use std::collections::BTreeMap;

/// S1, S2, S3 in a state.
///
/// # Errors
/// The promise that is broken.
pub fn state(room: &Room, state: &State) -> Verdict {
    for id in 0..room.keys.len() {
        let mut running = Vec::new();
        for node in 0..state.nodes.len() {
            let host = room.parts.node(state, node);
            let of_id = host.programs.iter().filter(|((key, _), _)| *key == room.keys[id]);
            running.extend(of_id.map(|((_, token), life)| (node, *token, *life)));
        }
        if running.len() > 1 {
            return Err(Violation::new("S1", format!("two run at once: {running:?}")));
        }
        let facts = &room.parts.clients_of(state).facts[id];
        if let Some((node, token, life)) = running.iter().find(|it| facts.closed.contains(&it.2)) {
            let text = format!("life {life} was closed, and runs on node {node} as {token}");
            return Err(Violation::new("S3", text));
        }
        written_off(room, state, id, &running)?;
        copies(room, state, id)?;
        if facts.owed().is_some() && running.is_empty() {
            let text = "an acknowledged session runs nowhere";
            return Err(Violation::new("S2", text));
        }
    }
    Ok(())
}

/// What an owner wrote off runs nowhere.
fn written_off(
    room: &Room,
    state: &State,
    id: usize,
    running: &[(usize, Token, Stamp)],
) -> Verdict {
    if running.is_empty() {
        return Ok(());
    }
    let instances = instances(room, state);
    let numbers = room.numbers.iter();
    let records = numbers.filter_map(|it| record_on(room, state, *it, &room.keys[id]));
    records.into_iter().try_for_each(|it| lost_is_dead::check_record(&it, &instances))
}

/// I2 for what clients were told: whoever is a member of the ISR and speaks as the run that the View
/// names has on its disk that a life is there, or that it is over.
fn copies(room: &Room, state: &State, id: usize) -> Verdict {
    let facts = &room.parts.clients_of(state).facts[id];
    let (owed, closed) = (facts.owed(), facts.closed.last().copied());
    let Some(view) = room.view(state).filter(|_| owed.is_some() || closed.is_some()) else {
        return Ok(());
    };
    let slot = rota_ring::slot_of_session(&room.keys[id], view.m);
    let (number, part) = view.part_of(slot);
    if part.state == PartitionState::Recovering {
        return Ok(());
    }
    for member in part.isr.iter().map(|it| it.number).filter(|it| is_current(room, state, *it)) {
        let record = record_on(room, state, member, &room.keys[id]);
        let there = record.as_ref().is_some_and(|it| it.life >= owed.unwrap_or(it.life));
        if let Some(life) = owed.filter(|_| !there) {
            let text = format!("M{member} is a copy of partition {number}, and lacks life {life}");
            return Err(Violation::new("S2", text));
        }
        let open = |it: &SessionRecord| !it.state.is_ended() && it.state != SessionState::Closing;
        if let Some(record) = record.filter(|it| Some(it.life) == closed && open(it)) {
            let (life, is) = (record.life, record.state);
            let text =
                format!("M{member} is a copy of {number}, and holds closed life {life} as {is}");
            return Err(Violation::new("S3", text));
        }
    }
    Ok(())
}

/// Whether a manager's process runs as the run that the View names.
fn is_current(room: &Room, state: &State, number: ManagerNumber) -> bool {
    let at = room.place_of(number);
    let process = at.and_then(|it| room.parts.manager(state, it).process.as_ref());
    let named = room.view(state).and_then(|view| view.member(number));
    process.is_some_and(|it| it.is_claimed() && Some(it.member()) == named)
}

fn record_on(
    room: &Room,
    state: &State,
    number: ManagerNumber,
    key: &SessionKey,
) -> Option<SessionRecord> {
    let at = room.place_of(number)?;
    let docs = &room.parts.manager(state, at).disk.docs;
    let records = docs.values().filter_map(|doc| doc.session());
    records.filter(|it| it.key == *key).map(|it| (**it).clone()).next()
}

/// S4, I1, I2, I5, I9: who sends something as owner is it, a Create has been written down, and who speaks
/// has its number.
///
/// # Errors
/// The rule that is broken.
pub fn sent(room: &Room, state: &State, message: &Flying) -> Verdict {
    spoken(room, state, message)?;
    let views = &room.parts.store(state).views;
    let act = |who, part, pe, what| one_owner::check_act(views, who, part, pe, what);
    match message {
        Flying::Peer(envelope) => {
            let (who, name) = (envelope.from.number, envelope.message.name());
            match &envelope.message {
                Message::Prepare { part, pe, committed, .. } => {
                    announced(room, state, *part, *pe, *committed)?;
                    act(who, *part, *pe, name)
                }
                Message::SyncAsk { part, pe }
                | Message::SyncData { part, pe, .. }
                | Message::SnapshotChunk { part, chunk: Chunk { pe, .. } } => {
                    act(who, *part, *pe, name)
                }
                Message::ReadIndex { parts, .. } => {
                    parts.iter().try_for_each(|(part, pe)| act(who, *part, *pe, name))
                }
                Message::Request { .. }
                | Message::Answer { .. }
                | Message::Ack { .. }
                | Message::Nack { .. }
                | Message::SyncReport { .. }
                | Message::SyncApplied { .. }
                | Message::ReadIndexConfirmed { .. }
                | Message::SnapshotAck { .. }
                | Message::Heartbeat { .. }
                | Message::Probe { .. }
                | Message::Probed { .. }
                | Message::NodeWanted { .. }
                | Message::NodesFailed { .. } => Ok(()),
            }
        }
        Flying::ToNode { from, node, message } => {
            let head = message.head();
            let part = ManagerNumber(head.range.last.0);
            act(from.0, part, head.pe, "a node call")?;
            if let ToNode::Create { key, token, .. } = message {
                registered(room, state, *node, head.boot)?;
                intent(room, state, part, head.pe, key, *token)?;
            }
            Ok(())
        }
        Flying::FromNode { .. }
        | Flying::Cas { .. }
        | Flying::Orphan { .. }
        | Flying::Outcome { .. }
        | Flying::Register { .. }
        | Flying::Registered { .. }
        | Flying::Renew { .. }
        | Flying::Renewed { .. }
        | Flying::Report { .. }
        | Flying::ReportAcked { .. } => Ok(()),
    }
}

/// I9: the config store has the run as which a manager speaks, or a later one.
fn spoken(room: &Room, state: &State, message: &Flying) -> Verdict {
    let member = match message {
        Flying::Peer(envelope) => Some(envelope.from),
        Flying::ToNode { from, .. } => {
            let at = room.place_of(from.0);
            at.and_then(|it| room.parts.manager(state, it).process.as_ref()).map(Manager::member)
        }
        Flying::FromNode { .. }
        | Flying::Cas { .. }
        | Flying::Orphan { .. }
        | Flying::Outcome { .. }
        | Flying::Register { .. }
        | Flying::Registered { .. }
        | Flying::Renew { .. }
        | Flying::Renewed { .. }
        | Flying::Report { .. }
        | Flying::ReportAcked { .. } => None,
    };
    let Some(member) = member else { return Ok(()) };
    let known = room.view(state).and_then(|view| view.member(member.number));
    if known.map_or(0, |it| it.incarnation.0) >= member.incarnation.0 {
        return Ok(());
    }
    let text = format!("{member} speaks, and the config store has {known:?}");
    Err(Violation::new("I9", text))
}

/// I11: the registry has that boot, or a later one.
fn registered(room: &Room, state: &State, node: usize, boot: BootId) -> Verdict {
    let reg = room.parts.store(state).state.nodes.get(&node_id(node));
    if reg.is_some_and(|it| it.boot >= boot) {
        return Ok(());
    }
    let text = format!("a Create at node {node} {boot:?}, and the registry has {reg:?}");
    Err(Violation::new("I11", text))
}

/// The members of a partition under exactly that epoch that are there to be looked at.
fn members(room: &Room, state: &State, part: ManagerNumber, pe: Epoch) -> Vec<ManagerNumber> {
    let entry = room.view(state).and_then(|view| view.parts.get(&part));
    let isr = entry.filter(|it| it.pe == pe).map(|it| it.isr.clone()).unwrap_or_default();
    isr.iter().map(|it| it.number).filter(|it| is_current(room, state, *it)).collect()
}

/// I2: what is announced as committed is on every member's disk.
fn announced(
    room: &Room,
    state: &State,
    part: ManagerNumber,
    pe: Epoch,
    committed: LogPos,
) -> Verdict {
    for member in members(room, state, part, pe) {
        let at = room.place_of(member);
        let meta = at.and_then(|it| room.parts.manager(state, it).disk.parts.get(&part).copied());
        let last = meta.unwrap_or_default().last;
        if last < committed {
            let text =
                format!("{committed} of {part} is announced, the disk of M{member} ends at {last}");
            return Err(Violation::new("I2", text));
        }
    }
    Ok(())
}

/// I5: every member's disk knows of the attempt, or of a later one.
fn intent(
    room: &Room,
    state: &State,
    part: ManagerNumber,
    pe: Epoch,
    key: &SessionKey,
    token: Token,
) -> Verdict {
    for member in members(room, state, part, pe) {
        let known = record_on(room, state, member, key).and_then(|it| it.token());
        if known.is_none_or(|it| it < token) {
            let text =
                format!("a Create of {key} token {token} under pe {pe}; M{member} has {known:?}");
            return Err(Violation::new("I5", text));
        }
    }
    Ok(())
}

/// S4: who answers about a session is the owner in the View under which it answers.
///
/// # Errors
/// It is not.
pub fn answered(room: &Room, state: &State, result: &OpResult) -> Verdict {
    let (Ok(Answer::Opened { session, .. })
    | Ok(Answer::Closed { session, .. })
    | Ok(Answer::Got { session, .. })) = result
    else {
        return Ok(());
    };
    let slot = rota_ring::slot_of_session(&session.record.key, room.bounds.slots());
    one_owner::check_answer(&room.parts.store(state).views, session.owner, slot, session.epoch)
}

/// I1, I3 and what the steps of joins and leaves need, at a write of the config store.
///
/// # Errors
/// It must not be written.
pub fn written(room: &Room, state: &State, author: ManagerNumber, after: &ConfigState) -> Verdict {
    let before = &room.parts.store(state).state;
    lost_is_dead::check(before, after, &instances(room, state))?;
    cordon_kept::check_written(before, after)?;
    let (Some(was), Some(view)) = (&before.view, &after.view) else { return Ok(()) };
    if was.epoch == view.epoch {
        return Ok(());
    }
    view_order::check(was, view)?;
    let is_cancelled = state.left.operators.cancels < room.bounds.left.operators.cancels;
    one_transition::check(was, view, false, is_cancelled)?;
    for number in given_up::newly(was, view) {
        rightly_given_up(room, state, was, view, number)?;
    }
    let hosts = (0..state.managers.len()).map(|it| room.parts.manager(state, it));
    let disks: BTreeMap<_, _> = hosts.map(|it| (it.number, &it.disk)).collect();
    let owner_last = lasts_of(room, state, author);
    let moment = Moment { author, owner_last: &owner_last, disks: &disks };
    split_at_rest::check(was, view, &moment)?;
    leaver_released::check(was, view, &moment)?;
    surplus_only::check(was, view, &disks)?;
    // What a disk acknowledged that is lost since was acknowledged.
    let is_gone = |manager: &ManagerNumber| {
        let at = room.place_of(*manager);
        at.is_some_and(|at| {
            let host = room.parts.manager(state, at);
            host.process.is_none() && host.disk.parts.is_empty()
        })
    };
    let newcomers = member_added::newcomers(was, view).into_iter();
    for (part, newcomer) in newcomers.filter(|it| !is_gone(&it.1)) {
        let addition = member_added::Addition {
            author,
            part,
            newcomer,
            owner_last: owner_last.get(&(author, part)).copied().unwrap_or_default(),
            newcomer_meta: disks.get(&newcomer).and_then(|it| it.parts.get(&part)).copied(),
        };
        member_added::check(was, &addition)?;
    }
    Ok(())
}

/// A partition is given up only by its last copy, if that one's disk is not what it was.
fn rightly_given_up(
    room: &Room,
    state: &State,
    was: &View,
    view: &View,
    number: ManagerNumber,
) -> Verdict {
    let (Some(before), Some(after)) = (was.parts.get(&number), view.parts.get(&number)) else {
        return Ok(());
    };
    let since = before.isr.iter().find(|it| it.number == after.owner).map(|it| it.since);
    let at = room.place_of(after.owner);
    let meta = at.and_then(|it| room.parts.manager(state, it).disk.parts.get(&number).copied());
    let is_exact = since.zip(meta).is_some_and(|(since, meta)| meta.whole && meta.pe >= since);
    if is_exact || since.is_none() {
        let text = format!("partition {number} is given up, and {before:?} is on a disk: {meta:?}");
        return Err(Violation::new("given up", text));
    }
    Ok(())
}

/// The last entries that a manager gave to its disk, written or not.
fn lasts_of(
    room: &Room,
    state: &State,
    author: ManagerNumber,
) -> BTreeMap<(ManagerNumber, ManagerNumber), LogPos> {
    let Some(at) = room.place_of(author) else { return BTreeMap::new() };
    let host = room.parts.manager(state, at);
    let mut lasts: BTreeMap<_, _> =
        host.disk.parts.iter().map(|(part, meta)| ((author, *part), meta.last)).collect();
    for write in host.unsynced.iter().flat_map(|it| &it.1) {
        if let DiskWrite::Part { part, meta } = write {
            lasts.insert((author, *part), meta.last);
        }
    }
    lasts
}

/// What runs, as the simulator's book has it.
pub fn instances(room: &Room, state: &State) -> Vec<Instance> {
    let mut list = Vec::new();
    for node in 0..state.nodes.len() {
        let host = room.parts.node(state, node);
        list.extend(host.programs.keys().map(|(key, token)| Instance {
            key: key.clone(),
            node: node_id(node),
            boot: host.boot,
            token: *token,
            address: format!("node-{node}/{token}"),
            from_us: 0,
            change: 0,
            to: None,
        }));
    }
    list
}
