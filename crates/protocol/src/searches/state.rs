//! Indexes of a partition's documents, and the searches that wait for them.

use crate::log::at::At;
use crate::log::env::Env;
use crate::log::lead::Phase;
use crate::log::origin::Origin;
use crate::log::resident::{Late, RequestHandler, Resident, Turn};
use crate::ports::note::Transition;
use crate::searches::built::Built;
use crate::searches::page::{check_reader, found};
use rota_docstore::Exception;
use rota_messages::{Answer, DocKey, Found, IndexStats, Op, OpResult, SearchOp};
use rota_model::{LogPos, Refusal, RefusalKind, Retry};
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

/// Most indexes of a partition, those of declared classes aside. Each walks through all documents once, and holds what it
/// found. Lower, and searches of many classes build them again and again. Higher, and they fill memory.
const INDEXES_MAX: usize = 32;

/// An index that nobody asked for so long goes, unless the fields of its class are declared.
const UNUSED_MS: u64 = 10 * 60 * 1_000;

/// A search that waits.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Waiting {
    /// What was there of its class when it came must be committed: somebody may have been told of it.
    upto: LogPos,
    /// Nobody else owned the partition when it came.
    is_confirmed: bool,
}

/// An index, and until when it stays.
#[derive(Clone, Debug)]
struct Kept {
    built: Built,
    until_ms: u64,
}

/// Indexes by class of documents. They follow from the documents, so any two are equal.
#[derive(Clone, Debug, Default)]
struct Indexes(BTreeMap<String, Kept>);

impl PartialEq for Indexes {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Indexes {}

impl Hash for Indexes {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// Searches of a partition.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Searches {
    waiting: BTreeMap<Origin, Waiting>,
    indexes: Indexes,
}

impl Searches {
    /// Those that wait, for whoever checks that they are there.
    pub fn origins(&self) -> impl Iterator<Item = &Origin> {
        self.waiting.keys()
    }

    /// How much the indexes hold.
    pub fn held(&self) -> IndexStats {
        let sizes = self.indexes.0.values().map(|it| it.built.index.size());
        let held = sizes.map(|size| IndexStats {
            documents: size.documents,
            values: size.entries,
            bytes: size.bytes(),
        });
        held.sum()
    }

    /// Answers what can be answered.
    fn serve_waiting(&mut self, led: &mut At<'_>) {
        let committed = led.log.replica.committed;
        let is_ready = |it: &Waiting| it.is_confirmed && it.upto <= committed;
        let ready: Vec<Origin> =
            self.waiting.iter().filter(|(_, it)| is_ready(it)).map(|it| *it.0).collect();
        for origin in ready {
            let Some(Op::Search(op)) = led.inbox.live.get(&origin).map(|it| it.op.clone()) else {
                self.waiting.remove(&origin);
                continue;
            };
            if let Some(result) = self.answer(led, &op) {
                self.reply(led, origin, Ok(Answer::Found(result)));
            }
        }
    }

    /// `None`: the index is not whole yet.
    fn answer(&mut self, led: &mut At<'_>, op: &SearchOp) -> Option<Result<Found, Exception>> {
        if let Err(exception) = check_reader(led, op) {
            return Some(Err(exception));
        }
        let class = op.query.class.as_str();
        let until_ms = led.env.now.mono_ms + UNUSED_MS;
        if !self.indexes.0.contains_key(class) {
            self.make_room();
            let shapes = led.env.documents_env.searchable.shapes(class);
            let mut built = Built::new(class, shapes);
            // The first step is made at once: what is small is searched without a wait.
            built.step(&led.log.replica.docs);
            self.indexes.0.insert(class.to_owned(), Kept { built, until_ms });
        }
        let kept = self.indexes.0.get_mut(class)?;
        kept.until_ms = kept.until_ms.max(until_ms);
        if !kept.built.is_whole() {
            return None;
        }
        led.env.note(Transition::Searched, Some(led.log.number));
        Some(found(led, op, &kept.built))
    }

    /// The index that was asked for least recently goes, where there are too many. Declared ones stay.
    fn make_room(&mut self) {
        let undeclared = self.indexes.0.iter().filter(|(_, it)| it.until_ms < u64::MAX);
        if undeclared.clone().count() < INDEXES_MAX {
            return;
        }
        let oldest = undeclared.min_by_key(|(_, it)| it.until_ms).map(|it| it.0.clone());
        oldest.and_then(|it| self.indexes.0.remove(&it));
    }

    /// Goes on with indexes that are not whole, and lets go of those that nobody uses.
    fn build(&mut self, led: &mut At<'_>) {
        let now = led.env.now.mono_ms;
        self.indexes.0.retain(|_, it| it.until_ms > now);
        let next = self.indexes.0.values_mut().find(|it| !it.built.is_whole());
        if let Some(Kept { built, .. }) = next {
            built.step(&led.log.replica.docs);
        }
    }
}

impl Resident for Searches {
    fn begin(_: &Env, _: &Phase) -> Self {
        Self::default()
    }

    /// What is declared is searched at any time.
    fn serve(&mut self, led: &mut At<'_>) {
        let searchable = &led.env.documents_env.searchable;
        for class in searchable.declared() {
            let kept = self.indexes.0.entry(class.to_owned()).or_insert_with(|| Kept {
                built: Built::new(class, searchable.shapes(class)),
                until_ms: u64::MAX,
            });
            kept.until_ms = u64::MAX;
        }
    }

    fn committed(&mut self, led: &mut At<'_>, key: &DocKey) {
        if let Some(kept) = self.indexes.0.get_mut(key.name.class()) {
            kept.built.committed(key, led.log.replica.docs.get(key));
        }
    }

    fn advanced(&mut self, led: &mut At<'_>) {
        if !self.waiting.is_empty() {
            self.serve_waiting(led);
        }
    }

    fn tick(&mut self, led: &mut At<'_>, turn: Turn) {
        if turn == Turn::Rest && led.lead.reads() {
            self.build(led);
            if !self.waiting.is_empty() {
                self.serve_waiting(led);
            }
        }
    }

    fn is_busy(&self) -> bool {
        self.indexes.0.values().any(|it| !it.built.is_whole())
    }

    fn forget(&mut self, origin: &Origin) {
        self.waiting.remove(origin);
    }

    fn retain(&mut self, is_there: &dyn Fn(&Origin) -> bool) {
        self.waiting.retain(|origin, _| is_there(origin));
    }

    /// Nobody told of what is committed in between.
    fn hand_on(&mut self, next: &mut Self) {
        next.indexes = std::mem::take(&mut self.indexes);
        next.indexes.0.values_mut().for_each(|it| it.built.look_again());
    }
}

impl RequestHandler for Searches {
    fn carry_out(&mut self, led: &mut At<'_>, origin: Origin, op: Op) {
        let Op::Search(op) = op else { return };
        if led.lead.reads() {
            let latest = led.log.replica.latest.iter();
            let of_class = latest.filter(|(key, _)| key.name.class() == op.query.class);
            let upto = of_class.map(|(_, (at, _))| *at).max().unwrap_or(LogPos::ZERO);
            self.waiting.insert(origin, Waiting { upto, is_confirmed: false });
            led.confirm_then(origin);
        } else {
            led.enqueue(origin);
        }
    }

    fn confirmed(&mut self, led: &mut At<'_>, origin: Origin, _: Op) {
        if let Some(waiting) = self.waiting.get_mut(&origin) {
            waiting.is_confirmed = true;
            self.serve_waiting(led);
        }
    }

    fn unfinished(&self, led: &At<'_>, late: &Late) -> BTreeMap<Origin, OpResult> {
        let is_mine = |origin: &&Origin| {
            let asked = led.inbox.live.get(origin);
            asked.is_some_and(|asked| matches!(asked.op, Op::Search(_)))
        };
        let told = || {
            let text = "the index of these documents could not be finished in time; it is built on";
            let retry = Retry::AfterMs(led.env.config.timing.retry_ms);
            Err(Refusal::new(RefusalKind::DeadlineExceeded, retry, text))
        };
        late.all.iter().filter(is_mine).map(|origin| (*origin, told())).collect()
    }

    fn reply(&mut self, led: &mut At<'_>, origin: Origin, result: OpResult) {
        self.waiting.remove(&origin);
        led.reply(origin, result);
    }
}
