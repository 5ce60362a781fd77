//! Everything that an all-seeing observer writes down during a run: what really ran on the nodes,
//! what stood on which disk, what the config store held, what clients asked and were told.

use crate::copying::{Copied, Held};
use crate::disk_book::DiskBook;
use crate::life::LifeFacts;
use crate::writing::{Deferred, SPACE, SeenDocument, Written};
use rota_model::{
    BootId, Disturb, Epoch, ManagerNumber, Namespace, NodeId, RequestId, SessionKey, SessionRecord,
    SessionView, SlotId, Stamp, Token,
};
use rota_protocol::{DiskWrite, OpResult};
use rota_ring::{ConfigState, NodeReg, View, slot_of_document, slot_of_session};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How long the news of a drain's end may take to whoever owns sessions there.
const DRAIN_NEWS_US: u64 = 5_000_000;

/// Why an instance stopped running.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum EndCause {
    /// On its own.
    Own,
    /// It did not get ready in time.
    StartTimeout,
    /// A manager asked for it.
    Destroyed,
    /// The lease ran out, or the boot was declared lost.
    Lease,
    /// The node's boot died.
    BootDied,
    /// The node left.
    Drained,
}

/// One execution on a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Instance {
    /// Which session.
    pub key: SessionKey,
    /// Where.
    pub node: NodeId,
    /// Under which boot.
    pub boot: BootId,
    /// Which attempt.
    pub token: Token,
    /// Where it answers.
    pub address: String,
    /// When it began to run.
    pub from_us: u64,
    /// How often its machine changed.
    pub change: u64,
    /// When nothing of it ran any more, and why.
    pub to: Option<(u64, EndCause)>,
}

/// One run of an action on a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ran {
    /// The session.
    pub key: SessionKey,
    /// Its attempt.
    pub token: Token,
    /// The machine.
    pub index: usize,
    /// Where.
    pub node: NodeId,
    /// Under which boot.
    pub boot: BootId,
    /// The last word of its item.
    pub word: String,
    /// When it began.
    pub from_us: u64,
    /// When nothing of it ran any more.
    pub to_us: Option<u64>,
    /// It ended with exit code 0.
    pub is_done: bool,
}

/// A life cycle as it stands at the end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fired {
    /// The session.
    pub key: SessionKey,
    /// The last word of the item.
    pub word: String,
}

/// What a client wants of one session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wish {
    /// Open it.
    Open,
    /// Close it, perhaps only that life.
    Close(Option<Stamp>),
    /// Read it; true accepts a stale answer.
    Get(bool),
}

/// One try of a request at one manager.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// Where.
    pub manager: ManagerNumber,
    /// When it was sent.
    pub sent_us: u64,
    /// When and how it was answered.
    pub answer: Option<(u64, OpResult)>,
}

/// One request of a client, with all its tries.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Which client.
    pub client: usize,
    /// Which session.
    pub key: SessionKey,
    /// What it wants.
    pub wish: Wish,
    /// Its name.
    pub request: RequestId,
    /// The tries, oldest first. Tries after the first answer are deliberate repetitions.
    pub attempts: Vec<Attempt>,
    /// True when it was asked after the last fault was healed.
    pub healed: bool,
    /// True when it is tried once only and its name is nobody's to repeat: an open without an id.
    pub once: bool,
}

impl Asked {
    /// Its answers in the order in which they came: the try, when, what.
    pub fn answers(&self) -> Vec<(&Attempt, u64, &OpResult)> {
        let answered = self.attempts.iter().filter_map(|attempt| {
            let (came_us, result) = attempt.answer.as_ref()?;
            Some((attempt, *came_us, result))
        });
        let mut list: Vec<_> = answered.collect();
        list.sort_by_key(|it| it.1);
        list
    }
}

/// A session that a list or a watch showed.
#[derive(Clone, Debug)]
pub struct Shown {
    /// When the page was asked for.
    pub sent_us: u64,
    /// When it came.
    pub came_us: u64,
    /// The record.
    pub record: Arc<SessionRecord>,
    /// Who answered.
    pub owner: ManagerNumber,
}

/// What is known of a boot of a node in the registry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BootFacts {
    /// Under which View it was registered.
    pub registered: Option<Epoch>,
    /// When the registry first shut it out: LOST, REMOVED, or another boot.
    pub gone_us: Option<u64>,
    /// When the registry first said that nothing of it runs any more.
    pub proved_us: Option<u64>,
}

/// What was asked to be done later, and what came of it.
#[derive(Clone, Debug, Default)]
pub struct TaskBook {
    /// Tasks, in order of first try.
    pub deferred: Vec<Deferred>,
    /// Those that were given up, by who is added, or by the name that their program is given.
    pub given_up: BTreeSet<String>,
    /// Those whose program did its work.
    pub ran: BTreeSet<String>,
    /// Since when no task waits: whoever reads later must see what all came to.
    pub done_us: u64,
}

/// Actions of life cycles.
#[derive(Clone, Debug, Default)]
pub struct ActionBook {
    /// Those that nodes ran, in order of start.
    pub ran: Vec<Ran>,
    /// Events with actions that life cycles call fired, at the end.
    pub fired: Vec<Fired>,
}

impl ActionBook {
    /// The agent of a machine is gone, and what it ran of actions.
    pub fn end_on(&mut self, now_us: u64, index: usize) {
        self.end(now_us, |it| it.index == index);
    }

    /// An attempt of a session has ended, and its action with it. Two machines may have one id.
    pub fn end_of(&mut self, now_us: u64, boot: BootId, token: Token) {
        self.end(now_us, |it| (it.boot, it.token) == (boot, token));
    }

    fn end(&mut self, now_us: u64, is_meant: impl Fn(&Ran) -> bool) {
        let of = |it: &&mut Ran| it.to_us.is_none() && is_meant(it);
        for ran in self.ran.iter_mut().filter(of) {
            (ran.to_us, ran.is_done) = (Some(now_us), false);
        }
    }
}

/// Deferred copies.
#[derive(Clone, Debug, Default)]
pub struct CopyBook {
    /// What was done with what is copied.
    pub copied: Vec<Copied>,
    /// What documents with copies, and their sources, held at the end.
    pub held: Vec<Held>,
}

/// The observer's book.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// Executions, in order of start.
    pub instances: Vec<Instance>,
    /// Requests, in order of first try.
    pub asked: Vec<Asked>,
    /// What was asked about documents, in order of first try.
    pub written: Vec<Written>,
    /// Tasks.
    pub tasks: TaskBook,
    /// Actions of life cycles.
    pub actions: ActionBook,
    /// Deferred copies.
    pub copies: CopyBook,
    /// What clients were shown of documents.
    pub seen: Vec<SeenDocument>,
    /// What lists showed.
    pub listed: Vec<Shown>,
    /// From when until when sessions of each node were to be closed, as the registry says.
    pub drains: BTreeMap<NodeId, Vec<(u64, Option<u64>)>>,
    /// Which orders may end a session.
    pub disturb: Disturb,
    /// Lives, as they were first written anywhere.
    pub lives: BTreeMap<SessionKey, BTreeMap<Stamp, LifeFacts>>,
    /// What stood on managers' disks.
    pub disks: DiskBook,
    /// Every View that the config store ever held.
    pub views: BTreeMap<Epoch, Arc<View>>,
    /// Slots of partitions that were given up: what had ended there, requests and documents may be gone.
    pub lost: BTreeSet<SlotId>,
    /// Boots, by the registry.
    pub boots: BTreeMap<(NodeId, BootId), BootFacts>,
}

impl Ledger {
    /// The config store changed.
    pub fn on_config(&mut self, now_us: u64, state: &ConfigState) {
        if let Some(view) = &state.view {
            self.views.entry(view.epoch).or_insert_with(|| view.clone());
        }
        for reg in state.nodes.values() {
            self.note_drain(now_us, reg);
            for ((node, boot), facts) in &mut self.boots {
                if *node == reg.node && *boot != reg.boot && facts.gone_us.is_none() {
                    facts.gone_us = Some(now_us);
                }
                if *node == reg.node {
                    // An entry names one boot of which nobody knows, and counts those below it among them.
                    let proved = reg.is_proved_over(*boot);
                    facts.proved_us = proved.then(|| facts.proved_us.unwrap_or(now_us));
                }
            }
            let facts = self.boots.entry((reg.node.clone(), reg.boot)).or_default();
            facts.registered.get_or_insert(state.epoch());
            if reg.state.is_gone() {
                facts.gone_us.get_or_insert(now_us);
            }
        }
    }

    fn note_drain(&mut self, now_us: u64, reg: &NodeReg) {
        let times = self.drains.entry(reg.node.clone()).or_default();
        let drains = reg.closes(u64::MAX).is_some_and(|it| !it.spares(self.disturb));
        match times.last_mut().filter(|it| it.1.is_none()) {
            Some(last) if !drains => last.1 = Some(now_us),
            None if drains => times.push((now_us, None)),
            Some(_) | None => {}
        }
    }

    /// When an execution may have been ended because its node was drained, if at all.
    pub fn drained_us(&self, instance: &Instance) -> Option<u64> {
        let times = self.drains.get(&instance.node)?;
        // Whoever owned its session may have heard of the end of the drain somewhat later.
        let counts = |to: Option<u64>| to.is_none_or(|to| to + DRAIN_NEWS_US > instance.from_us);
        let first = times.iter().find(|(_, to)| counts(*to))?;
        Some(first.0.max(instance.from_us))
    }

    /// Whether a document may have been forgotten.
    pub fn is_lost(&self, docid: &str, m: u32) -> bool {
        let space = Namespace::parse(SPACE).expect("a short name");
        self.lost.contains(&slot_of_document(&space, docid, m))
    }

    /// The same book without the histories of what may have been forgotten.
    pub fn kept(&self, m: u32) -> Ledger {
        let session = |key: &SessionKey| !self.lost.contains(&slot_of_session(key, m));
        let document = |id: &str| !self.is_lost(id, m);
        let asked = self.asked.iter().filter(|it| session(&it.key));
        let listed = self.listed.iter().filter(|it| session(&it.record.key));
        let written = self.written.iter().filter(|it| it.docids.iter().all(|it| document(it)));
        let seen = self.seen.iter().filter(|it| document(it.name.docid()));
        let deferred =
            self.tasks.deferred.iter().filter(|it| it.docids.iter().all(|it| document(it)));
        Ledger {
            asked: asked.cloned().collect(),
            listed: listed.cloned().collect(),
            written: written.cloned().collect(),
            seen: seen.cloned().collect(),
            tasks: TaskBook { deferred: deferred.cloned().collect(), ..self.tasks.clone() },
            ..self.clone()
        }
    }

    /// A manager gave writes to its disk.
    pub fn on_written(&mut self, now_us: u64, writes: &[DiskWrite]) {
        for record in writes.iter().filter_map(session_of) {
            let lives = self.lives.entry(record.key.clone()).or_default();
            let facts = lives.entry(record.life).or_insert_with(|| LifeFacts::new(now_us));
            facts.learn(now_us, record);
        }
    }

    /// The machine of an execution changed.
    pub fn on_change(&mut self, instance: Option<usize>, change: u64) {
        if let Some(instance) = instance.and_then(|it| self.instances.get_mut(it)) {
            instance.change = change;
        }
    }

    /// Whether a View is one of this ring.
    pub fn is_ours(&self, view: &View) -> bool {
        self.views.values().next().is_none_or(|it| it.shape() == view.shape())
    }

    /// The View of an epoch.
    pub fn view(&self, epoch: Epoch) -> Option<&Arc<View>> {
        self.views.get(&epoch)
    }

    /// Whether an answer that a life is READY reached the disk of every copy that the answering
    /// owner had. Until then a new owner may not know of the answer.
    pub fn ready_everywhere(&self, session: &SessionView) -> bool {
        let Some(view) = self.view(session.epoch) else { return false };
        let record = &session.record;
        let (_, part) = view.part_of(rota_ring::slot_of_session(&record.key, view.m));
        let key = |member| (member, record.key.clone(), record.life);
        part.isr.iter().all(|it| self.disks.ready.contains(&key(it.number)))
    }

    /// Whether a program of that life ran and ended.
    pub fn ran_and_ended(&self, key: &SessionKey, life: Stamp) -> bool {
        let facts = self.lives.get(key).and_then(|it| it.get(&life));
        let of_life = |instance: &&Instance| {
            instance.key == *key
                && facts.is_some_and(|facts| facts.tokens.contains(&instance.token))
        };
        self.instances.iter().filter(of_life).any(|it| it.to.is_some())
    }

    /// The first life of the chain that a life goes on with, by any record ever written.
    pub fn origin_of(&self, key: &SessionKey, life: Stamp) -> Option<Stamp> {
        self.lives.get(key)?.get(&life)?.origin
    }

    /// The life that an attempt belongs to, by any record ever written.
    pub fn life_of(&self, key: &SessionKey, token: Token) -> Option<Stamp> {
        let lives = self.lives.get(key)?;
        lives.iter().find(|(_, facts)| facts.tokens.contains(&token)).map(|(life, _)| *life)
    }
}

/// The session record in a disk write, if it is one.
pub fn session_of(write: &DiskWrite) -> Option<&SessionRecord> {
    match write {
        DiskWrite::Doc { doc: Some(doc), .. } => doc.session().map(|record| &**record),
        DiskWrite::Doc { doc: None, .. } | DiskWrite::Part { .. } | DiskWrite::Identity(_) => None,
    }
}
