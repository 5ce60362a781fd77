//! A manager's copy of one partition's log.

use crate::log::copies::{CopyState, Report, Syncing};
use crate::log::env::Env;
use crate::log::replica::Replica;
use rota_messages::{DocKey, Entry, PartitionMeta};
use rota_model::node_msg::SlotRange;
use rota_model::{Epoch, LogPos, ManagerNumber, Stamp};
use rota_ring::PartitionEntry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A manager's copy of one partition's log.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Log {
    pub number: ManagerNumber,
    pub range: SlotRange,
    pub replica: Replica,
    /// At a copy: pieces of a Sync.
    pub syncing: Option<Syncing>,
    /// Positions that are durable once a batch is: (batch, position).
    pub durable_due: VecDeque<(u64, LogPos)>,
    /// Snapshot acknowledgements owed once a batch is durable.
    pub chunk_acks: VecDeque<(u64, Epoch, u64, u64)>,
}

/// How much a manager holds of a partition: a whole copy through there (zero when it is none), and its
/// last entry. Of what is no whole copy, as when one was being made, some documents are as old as what
/// was here before.
pub(crate) type Holding = (LogPos, LogPos);

impl Log {
    pub fn new(number: ManagerNumber, range: SlotRange) -> Self {
        Self {
            number,
            range,
            replica: Replica::default(),
            syncing: None,
            durable_due: VecDeque::new(),
            chunk_acks: VecDeque::new(),
        }
    }

    /// This partition's entry in the View.
    pub fn entry<'a>(&self, env: &'a Env) -> Option<&'a PartitionEntry> {
        env.view().parts.get(&self.number)
    }

    /// Below this lie stamps that may have been given out before a loss ([`rota_ring::PartitionEntry`]).
    pub fn stamps_above(&self, env: &Env) -> Stamp {
        self.entry(env).and_then(|it| it.stamps_above).unwrap_or_default()
    }

    pub fn meta(&self, env: &Env) -> PartitionMeta {
        let (pe, last, whole) = (self.replica.pe, self.replica.last, self.replica.whole);
        let found_from = self.replica.found_from;
        PartitionMeta { pe, last, whole, forgotten: env.stamps.forgotten, found_from }
    }

    /// Persists the meta data with this batch; the batch makes everything through `last` durable.
    pub fn persist_meta(&mut self, env: &mut Env) {
        let lsn = env.persist_part(self.number, self.meta(env));
        // Batches are numbered upwards: only the last can be this one.
        self.durable_due.pop_back_if(|(due, _)| *due == lsn);
        self.durable_due.push_back((lsn, self.replica.last));
    }

    /// Appends an entry here, and persists it.
    pub fn append(&mut self, env: &mut Env, entry: Entry) {
        if cfg!(debug_assertions) {
            let keys: BTreeSet<&DocKey> = entry.writes.iter().map(|it| &it.key).collect();
            assert_eq!(keys.len(), entry.writes.len(), "one entry writes a document twice");
        }
        for write in entry.writes.iter() {
            if write.doc.is_none()
                && let Some(doc) = self.replica.get(&write.key)
            {
                env.stamps.forgotten = env.stamps.forgotten.max(doc.version());
            }
            env.persist_doc(write.key.clone(), write.doc.clone());
        }
        self.replica.append(entry);
        self.persist_meta(env);
    }

    pub fn is_member(&self, env: &Env) -> bool {
        self.entry(env).is_some_and(|part| part.has(env.me.number))
    }

    /// Commits what the owner announced, as far as it is here.
    pub fn commit_here(&mut self, env: &Env, committed: LogPos) {
        if committed.pe == self.replica.pe && self.replica.last.pe == committed.pe {
            self.replica.commit_to(committed, &env.config.sizes);
        }
    }

    /// What an interrupted recovery wrote here says nothing of what was acknowledged.
    pub(crate) fn holding(&self) -> Holding {
        let last = self.replica.last;
        let whole = if self.replica.whole { last } else { LogPos::ZERO };
        self.replica.found_from.map_or((whole, last), |from| (from, from))
    }

    /// The View says that the partition is served, and that this copy is one: it counts as it stands.
    pub fn forget_base(&mut self, env: &mut Env) {
        if self.replica.found_from.take().is_some() {
            self.persist_meta(env);
        }
    }

    /// What a manager that looks for more is told, if there is anything.
    pub fn offer(&self) -> Option<Report> {
        let (committed, last) = self.holding();
        let is_empty = self.replica.docs.is_empty() && self.replica.latest.is_empty();
        (!is_empty).then_some(Report { last, committed, touched: Vec::new() })
    }

    /// The other members of the ISR, of which nothing is known yet.
    pub fn other_copies(&self, env: &Env) -> BTreeMap<ManagerNumber, CopyState> {
        let isr = self.entry(env).map(|part| part.isr.clone()).unwrap_or_default();
        let others = isr.iter().map(|it| it.number).filter(|it| *it != env.me.number);
        let member = |it| Some((it, CopyState::new(env.view().member(it)?, env.now.mono_ms)));
        others.filter_map(member).collect()
    }

    /// Whether nothing is held here, and nothing is owed.
    pub(crate) fn is_idle(&self) -> bool {
        let Self { number: _, range: _, replica, syncing, durable_due, chunk_acks } = self;
        let holds_nothing = replica.docs.is_empty() && replica.latest.is_empty();
        holds_nothing
            && replica.filled() == 0
            && syncing.is_none()
            && durable_due.is_empty()
            && chunk_acks.is_empty()
    }
}
