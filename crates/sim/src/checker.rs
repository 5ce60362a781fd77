//! The observer: sees every input and effect, writes the book, and checks the rules that can be
//! checked while a cluster runs.

mod nodes;

use crate::invariant::ack_floor::AckFloor;
use crate::invariant::actions_alone;
use crate::invariant::cordon_kept::CordonKept;
use crate::invariant::deadlines::Deadlines;
use crate::invariant::fresh_run::FreshRun;
use crate::invariant::node_obeys::{Boot, NodeObeys};
use crate::invariant::one_transition::Progress;
use crate::invariant::over_stays::OverStays;
use crate::invariant::placement_settled::PlacementSettled;
use crate::invariant::split_at_rest::Moment;
use crate::invariant::synced_first::SyncedFirst;
use crate::invariant::{
    Verdict, Violation, better_awaited, closed_for_good, committed_everywhere, cordon_kept,
    enough_copies, given_up, intent_first, leaver_released, lost_is_dead, member_added, one_owner,
    registered_first, shown_running, split_at_rest, surplus_only, view_order,
};
use crate::ledger::{Ledger, session_of};
use crate::network::STRAGGLER_US_MAX;
use rota_model::node_msg::{FromNode, NodeAnswer, NodeCall, SlotRange, ToNode};
use rota_model::{
    Epoch, LogPos, ManagerNumber, NodeId, SessionKey, SessionRecord, SessionView, SlotId, Token,
};
use rota_protocol::{
    Answer, CasOutcome, Chunk, Disk, DiskWrite, Effect, Envelope, Input, Message, OpResult, Reply,
    Timing,
};
use rota_ring::ConfigState;
use std::collections::BTreeMap;

/// One run of a manager's process.
pub type Run = (ManagerNumber, u64);

/// How an owner tells of a session.
#[derive(Clone, Copy)]
struct Told {
    /// False when the answer may be old.
    sure: bool,
    /// True when it is the answer to an earlier request, of a session that has ended since.
    repeated: bool,
}

impl Told {
    const NOW: Self = Self { sure: true, repeated: false };
}

/// What a call to a node was about.
#[derive(Clone, Debug)]
struct Asked {
    head: NodeCall,
    slots: SlotRange,
    session: Option<(SessionKey, Token)>,
    /// A scan's page begins after this.
    after: Option<SessionKey>,
    /// Highest epoch that the node had obeyed for these slots when the call arrived.
    floor: Option<Epoch>,
    /// The boot that was asked gave the last page of a scan.
    scanned: bool,
}

/// The observer.
#[derive(Clone, Debug)]
pub struct Checker {
    /// The book.
    pub ledger: Ledger,
    /// Requests that managers owe an answer.
    pub deadlines: Deadlines,
    /// What was found wrong, and when.
    pub violations: Vec<(u64, Violation)>,
    m: u32,
    ack_floor: AckFloor,
    settled: PlacementSettled,
    cordons: CordonKept,
    over_stays: OverStays,
    obeys: NodeObeys,
    synced: SyncedFirst,
    runs: FreshRun,
    calls: BTreeMap<(Run, u64), Asked>,
    owner_last: BTreeMap<(ManagerNumber, ManagerNumber), LogPos>,
    landed_us: BTreeMap<Epoch, u64>,
    transition: Progress,
    timing: Timing,
}

impl Checker {
    /// An observer of a ring of `m` slots, in which managers keep to these times.
    pub fn new(m: u32, timing: &Timing) -> Self {
        Self {
            ledger: Ledger::default(),
            deadlines: Deadlines::default(),
            violations: Vec::new(),
            m,
            ack_floor: AckFloor::default(),
            settled: PlacementSettled::default(),
            cordons: CordonKept::default(),
            over_stays: OverStays::default(),
            obeys: NodeObeys::default(),
            synced: SyncedFirst::default(),
            runs: FreshRun::default(),
            calls: BTreeMap::new(),
            owner_last: BTreeMap::new(),
            landed_us: BTreeMap::new(),
            transition: Progress::new(timing.join_ms),
            timing: timing.clone(),
        }
    }

    /// An operator takes back what is under way: that may happen until then.
    pub fn on_cancel_ordered(&mut self, until_us: u64) {
        self.transition.on_cancel_ordered(until_us);
    }

    /// Notes a verdict.
    pub fn judge(&mut self, now_us: u64, verdict: Verdict) {
        if let Err(violation) = verdict {
            self.violations.push((now_us, violation));
        }
    }

    /// A manager was given an input.
    pub fn on_input(&mut self, run: Run, input: &Input) {
        match input {
            Input::Config(state)
            | Input::ConfigRead { state: Some(state), .. }
            | Input::CasDone {
                outcome: CasOutcome::Done(state) | CasOutcome::Conflict(state),
                ..
            } => {
                // Of a compare-and-set that nobody asks about any more, nothing is adopted.
                self.on_config_told(run, state, !matches!(input, Input::CasDone { .. }));
            }
            Input::Peer(Envelope { from, message, .. }) => match message {
                Message::Ack { part, pe, .. } | Message::SyncReport { part, pe, .. } => {
                    self.synced.on_member((run.0, run.1, *part, *pe), from.number);
                }
                Message::ReadIndexConfirmed { parts, .. } => {
                    for (part, pe) in parts {
                        self.synced.on_member((run.0, run.1, *part, *pe), from.number);
                    }
                }
                Message::Request { .. }
                | Message::Answer { .. }
                | Message::Prepare { .. }
                | Message::Nack { .. }
                | Message::SyncAsk { .. }
                | Message::SyncData { .. }
                | Message::SyncApplied { .. }
                | Message::ReadIndex { .. }
                | Message::SnapshotChunk { .. }
                | Message::SnapshotAck { .. }
                | Message::Heartbeat { .. }
                | Message::Probe { .. }
                | Message::Probed { .. }
                | Message::NodeWanted { .. }
                | Message::NodesFailed { .. } => {}
            },
            Input::Node(FromNode { call, node, boot, answer, .. }) => {
                if let NodeAnswer::Scanned { more: false, .. } = answer
                    && let Some(asked) = self.calls.get(&(run, *call)).filter(|it| it.scanned)
                {
                    let part = ManagerNumber(asked.head.range.last.0);
                    self.synced.on_scanned((run.0, run.1, part), node.clone(), *boot);
                }
            }
            Input::Client { .. }
            | Input::NodeRegister { .. }
            | Input::NodeRenew { .. }
            | Input::Persisted { .. }
            | Input::ConfigRead { state: None, .. }
            | Input::CasDone { outcome: CasOutcome::Unknown, .. }
            | Input::PeerRefused { .. }
            | Input::Signal { .. }
            | Input::Order { .. }
            | Input::NodeOrder { .. }
            | Input::NodeConnected { .. }
            | Input::NodeUnreached { .. }
            | Input::Provisioned { .. }
            | Input::NodeCleared { .. }
            | Input::BodiesFetched { .. }
            | Input::Worked { .. }
            | Input::TaskRan { .. }
            | Input::Tick => {}
        }
    }

    /// A manager hears what the config store has.
    fn on_config_told(&mut self, run: Run, state: &ConfigState, sure: bool) {
        // What another ring says is no news.
        let Some(view) = state.view.as_ref().filter(|it| self.ledger.is_ours(it)) else {
            return;
        };
        if self.ack_floor.on_shown(run, state.index, view) {
            self.cordons.on_told(run, state, sure);
        }
    }

    /// A manager gave all effects of what it was told so far.
    pub fn on_flushed(&mut self, run: Run) {
        self.cordons.on_flushed(run);
        self.ack_floor.on_flushed(run);
    }

    /// A manager gave an effect.
    pub fn on_effect(&mut self, now_us: u64, run: Run, effect: &Effect) {
        match effect {
            Effect::Persist { writes, .. } => {
                for record in writes.iter().filter_map(session_of) {
                    let begun = self.cordons.check(&self.ledger, run, record);
                    self.judge(now_us, begun);
                    self.on_record(now_us, record);
                }
                self.ledger.on_written(now_us, writes);
                for write in writes {
                    if let DiskWrite::Part { part, meta } = write {
                        self.owner_last.insert((run.0, *part), meta.last);
                    }
                }
            }
            Effect::Send { envelope, .. } => self.on_send(now_us, run, envelope),
            Effect::ToNode { node, message, .. } => self.on_to_node(now_us, run, node, message),
            Effect::Reply { call, reply } => self.on_reply(now_us, run, *call, reply),
            Effect::ReadConfig { .. }
            | Effect::Cas { .. }
            | Effect::Provision { .. }
            | Effect::ClearNode { .. }
            | Effect::FetchBodies { .. }
            | Effect::Work { .. }
            | Effect::RunTask { .. }
            | Effect::StopTask { .. }
            | Effect::TaskGivenUp { .. }
            | Effect::Events(_)
            | Effect::Note(_) => {}
        }
    }

    fn on_reply(&mut self, now_us: u64, run: Run, call: u64, reply: &Reply) {
        let result = match reply {
            Reply::Request(result) => Some(result),
            Reply::Ordered(_) | Reply::NodeOrdered(_) => None,
            Reply::Registered(_) | Reply::Renewed(_) => return,
        };
        let verdict = self.deadlines.on_answered(run.0, run.1, call);
        self.judge(now_us, verdict);
        if let Some(result) = result {
            self.on_result(now_us, run, result);
        }
    }

    /// A manager gives a record to its disk, and the book does not have it yet.
    fn on_record(&mut self, now_us: u64, record: &SessionRecord) {
        self.judge(now_us, lost_is_dead::check_record(record, &self.ledger.instances));
        let lives = self.ledger.lives.get(&record.key);
        let before = lives.and_then(|it| it.range(..record.life).next_back()).map(|it| *it.0);
        self.judge(now_us, closed_for_good::check(&self.ledger.asked, record, before));
        let known =
            self.ledger.lives.get(&record.key).is_some_and(|it| it.contains_key(&record.life));
        let Some(pe) = record.token().map(|it| it.0.pe).filter(|_| !known) else { return };
        let slot = rota_ring::slot_of_session(&record.key, self.m);
        let begun_us = self.landed_us.get(&pe).copied().unwrap_or_default();
        let times = (begun_us, now_us, self.timing.copy_deadline_ms * 1000);
        let enough = enough_copies::check(&self.ledger.views, slot, pe, times);
        self.judge(now_us, enough);
    }

    fn on_send(&mut self, now_us: u64, run: Run, envelope: &Envelope) {
        let name = envelope.message.name();
        let (mut acts, mut acks) = (Vec::new(), Vec::new());
        match &envelope.message {
            Message::Prepare { part, pe, committed, .. } => {
                acts.push((*part, *pe));
                let told =
                    committed_everywhere::check_announced(&self.ledger, *part, *pe, *committed);
                self.judge(now_us, told);
            }
            Message::SyncAsk { part, pe }
            | Message::SyncData { part, pe, .. }
            | Message::SnapshotChunk { part, chunk: Chunk { pe, .. } } => acts.push((*part, *pe)),
            Message::ReadIndex { parts, .. } => acts.extend(parts.iter().copied()),
            Message::Ack { part, pe, .. }
            | Message::Nack { part, pe, .. }
            | Message::SyncReport { part, pe, .. }
            | Message::SyncApplied { part, pe, .. }
            | Message::SnapshotAck { part, pe, .. } => acks.push((*part, *pe)),
            Message::ReadIndexConfirmed { parts, .. } => acks.extend(parts.iter().copied()),
            Message::Answer { result, .. } => self.on_result(now_us, run, result),
            Message::Request { .. }
            | Message::Heartbeat { .. }
            | Message::Probe { .. }
            | Message::Probed { .. }
            | Message::NodeWanted { .. }
            | Message::NodesFailed { .. } => {}
        }
        for (part, pe) in &acts {
            let verdict = one_owner::check_act(&self.ledger.views, run.0, *part, *pe, name);
            self.judge(now_us, verdict);
        }
        for (part, pe) in &acks {
            let verdict = self.ack_floor.check(run.0, run.1, *part, *pe, name);
            self.judge(now_us, verdict);
        }
        if !acts.is_empty() || !acks.is_empty() {
            let incarnation = envelope.from.incarnation;
            let verdict = self.runs.check(run.0, run.1, incarnation, envelope.epoch, name);
            self.judge(now_us, verdict);
        }
    }

    fn on_to_node(&mut self, now_us: u64, run: Run, node: &NodeId, message: &ToNode) {
        let head = message.head();
        let part = ManagerNumber(head.range.last.0);
        let act = one_owner::check_act(&self.ledger.views, run.0, part, head.pe, "a node call");
        self.judge(now_us, act);
        let one = |slot: &SlotId| SlotRange { first: *slot, last: *slot };
        let mut page_after = None;
        let (slots, session) = match message {
            ToNode::Create { key, slot, token, .. } => {
                let (key, token) = (key.clone(), *token);
                let intent = intent_first::check(&self.ledger, part, head.pe, &key, token);
                self.judge(now_us, intent);
                let known = registered_first::check(&self.ledger.boots, node, head.boot);
                self.judge(now_us, known);
                let boots = &self.ledger.boots;
                let settled = self.settled.on_create(boots, &key, token, node, head.boot);
                self.judge(now_us, settled);
                (one(slot), Some((key, token)))
            }
            ToNode::Destroy { key, slot, token, .. } => (one(slot), Some((key.clone(), *token))),
            ToNode::Act { slot, key, action, .. } => {
                let of = (part, head.pe);
                let event = (action.life, &*action.word);
                let lives = actions_alone::check_asked(&self.ledger, of, (key, *slot), event);
                self.judge(now_us, lives);
                (one(slot), None)
            }
            ToNode::Scan { after, .. } => {
                page_after.clone_from(after);
                (head.range, None)
            }
            // Nobody answers it.
            ToNode::Meet { .. } => return,
        };
        let asked = Asked {
            head: head.clone(),
            slots,
            session,
            after: page_after,
            floor: None,
            scanned: false,
        };
        self.calls.insert((run, head.call), asked);
    }

    /// A call of a manager is given to a connection: from now on its node may see it.
    ///
    /// # Errors
    /// It is a Create that was taken back.
    pub fn on_given_to_network(&mut self, message: &ToNode) -> Verdict {
        let ToNode::Create { key, token, .. } = message else { return Ok(()) };
        self.settled.on_sent(&self.ledger.boots, key, *token)
    }

    fn on_result(&mut self, now_us: u64, run: Run, result: &OpResult) {
        let Ok(answer) = result else { return };
        match answer {
            Answer::Opened { session, ended_since, .. } => {
                self.on_told(now_us, run, session, Told { sure: true, repeated: *ended_since });
            }
            Answer::Closed { session, .. } | Answer::KeptAlive { session, .. } => {
                self.on_told(now_us, run, session, Told::NOW);
            }
            Answer::Got { session, stale } => {
                self.on_told(now_us, run, session, Told { sure: !stale, ..Told::NOW });
                self.on_read(now_us, run, session, !stale);
            }
            Answer::Listed(page) => {
                for session in &page.sessions {
                    self.on_told(now_us, run, session, Told::NOW);
                    self.on_read(now_us, run, session, true);
                }
            }
            Answer::Pulled(pulled) => {
                for session in &pulled.events {
                    self.on_told(now_us, run, session, Told { sure: false, ..Told::NOW });
                }
            }
            Answer::Reported
            | Answer::Mended(_)
            | Answer::Numbers(_)
            | Answer::Tasks(_)
            | Answer::Lives(_)
            | Answer::Found(_)
            | Answer::Documents(_) => {}
        }
    }

    /// An owner tells of a session.
    fn on_told(&mut self, now_us: u64, run: Run, session: &SessionView, how: Told) {
        if session.owner != run.0 || !how.sure {
            return;
        }
        let slot = rota_ring::slot_of_session(&session.record.key, self.m);
        let views = &self.ledger.views;
        let owner = one_owner::check_answer(views, run.0, slot, session.epoch);
        self.judge(now_us, owner);
        let (epoch, record) = (session.epoch, &session.record);
        let what = (&**record, how.repeated);
        let told = committed_everywhere::check_told(&self.ledger, epoch, slot, what);
        self.judge(now_us, told);
        let Some(view) = self.ledger.view(session.epoch).cloned() else { return };
        let incarnation = view.member(run.0).map(|it| it.incarnation).unwrap_or_default();
        let fresh = self.runs.check(run.0, run.1, incarnation, session.epoch, "an answer");
        self.judge(now_us, fresh);
        let (number, part) = view.part_of(slot);
        let to_scan = self.lone_scan(part);
        let synced = self.synced.check((run.0, run.1, number, part.pe), part, &to_scan);
        self.judge(now_us, synced);
    }

    /// An owner that took over from its own disk shows a session as it is.
    fn on_read(&mut self, now_us: u64, run: Run, session: &SessionView, sure: bool) {
        if session.owner != run.0 || !sure {
            return;
        }
        let Some(view) = self.ledger.view(session.epoch) else { return };
        let slot = rota_ring::slot_of_session(&session.record.key, self.m);
        let (_, part) = view.part_of(slot);
        if Self::took_over_alone(part) {
            let since_us = self.landed_us.get(&part.pe).copied().unwrap_or_default();
            let record = &session.record;
            // What ran on a boot that is shut out, and of which nobody proved anything, may run still; and the proof
            // is under way for a while.
            let boots = &self.ledger.boots;
            let at = record.placement.as_ref().map(|it| (it.node.clone(), it.boot));
            let facts = at.and_then(|it| boots.get(&it)).copied().unwrap_or_default();
            let is_unheard = |proved_us: u64| now_us < proved_us + STRAGGLER_US_MAX;
            let waits = facts.gone_us.is_some() && facts.proved_us.is_none_or(is_unheard);
            let instances = if waits { &[][..] } else { &self.ledger.instances[..] };
            let shown = shown_running::check(instances, record, since_us);
            self.judge(now_us, shown);
        }
    }

    /// Whether this epoch began with a copy that was alone, and took over from its own disk.
    fn took_over_alone(part: &rota_ring::PartitionEntry) -> bool {
        let founded = part.pe <= Epoch(1);
        !founded && part.base_pe == part.pe && part.is_lone(part.owner)
    }

    /// The boots that a lone take-over had to ask.
    fn lone_scan(&self, part: &rota_ring::PartitionEntry) -> Vec<Boot> {
        if !Self::took_over_alone(part) {
            return Vec::new();
        }
        let boots = self.ledger.boots.iter().filter(|(_, facts)| {
            facts.gone_us.is_none() && facts.registered.is_some_and(|it| it < part.pe)
        });
        boots.map(|(boot, _)| boot.clone()).collect()
    }

    /// The config store changed. `author` is the run that wrote it.
    pub fn on_config(
        &mut self,
        now_us: u64,
        author: Run,
        (before, after): (&ConfigState, &ConfigState),
        disks: &BTreeMap<ManagerNumber, &Disk>,
    ) {
        self.ledger.on_config(now_us, after);
        self.judge(now_us, lost_is_dead::check(before, after, &self.ledger.instances));
        let stays = self.over_stays.check(before, after);
        self.judge(now_us, stays);
        self.judge(now_us, cordon_kept::check_written(before, after));
        let (Some(was), Some(view)) = (&before.view, &after.view) else { return };
        if was.epoch == view.epoch {
            return;
        }
        self.landed_us.insert(view.epoch, now_us);
        self.judge(now_us, view_order::check(was, view));
        let (lost, landed) = (&self.ledger.disks.lost_us, &self.landed_us);
        let given_up = given_up::check(was, view, lost, landed, STRAGGLER_US_MAX);
        self.judge(now_us, given_up);
        for part in given_up::newly(was, view) {
            let slots = view.range(part).intervals(self.m).into_iter();
            let slots = slots.flat_map(|(first, last)| first.0..=last.0);
            self.ledger.lost.extend(slots.map(SlotId));
        }
        let (author_number, owner_last) = (author.0, &self.owner_last);
        let moment = Moment { author: author_number, owner_last, disks };
        let recover_us = self.timing.recover_after_ms * 1000;
        let verdicts = [
            split_at_rest::check(was, view, &moment),
            leaver_released::check(was, view, &moment),
            self.transition.on_written(now_us, was, view),
            surplus_only::check(was, view, disks),
            better_awaited::check(was, view, &self.landed_us, (now_us, recover_us), disks),
        ];
        for verdict in verdicts {
            self.judge(now_us, verdict);
        }
        let incarnation =
            |it: &rota_ring::View| it.managers.get(&author.0).map(|it| it.incarnation);
        if let Some(taken) = incarnation(view)
            && incarnation(was) != Some(taken)
        {
            self.runs.on_claimed(author.0, taken, view.epoch);
        }
        for (part, newcomer) in member_added::newcomers(was, view) {
            let owner_last = self.owner_last.get(&(author.0, part)).copied().unwrap_or_default();
            let newcomer_meta = disks.get(&newcomer).and_then(|it| it.parts.get(&part)).copied();
            let author = author.0;
            let addition =
                member_added::Addition { author, part, newcomer, owner_last, newcomer_meta };
            self.judge(now_us, member_added::check(was, &addition));
        }
    }
}
