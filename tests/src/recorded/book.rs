//! What clients asked and were told, as it happened: in memory, and a line of JSON for each moment.

use super::outage::Outage;
use rota_model::SessionState;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The file of a test's folder.
const FILE: &str = "history.jsonl";

/// The moment on the clock that nodes' logs have, too.
pub fn now_us() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let part = |it: i64| u64::try_from(it).expect("the clock began at 0");
    part(now.tv_sec) * 1_000_000 + part(now.tv_nsec) / 1_000
}

/// What is wanted of a session.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
#[serde(rename_all = "UPPERCASE")]
pub enum Wish {
    /// Open it.
    Open,
    /// Close it; perhaps only this life.
    Close(Option<u64>),
    /// Read it.
    Get,
}

/// A record that was shown.
#[derive(Clone, PartialEq, Eq, Serialize, Debug)]
pub struct Shown {
    /// Which life.
    pub life: u64,
    /// Its state.
    pub state: SessionState,
    /// Why it is in it.
    pub reason: String,
    /// Where it answers.
    pub address: String,
    /// Whether this call created that life.
    pub created: bool,
}

/// How a call ended.
#[derive(Clone, PartialEq, Eq, Serialize, Debug)]
#[serde(rename_all = "UPPERCASE")]
pub enum Told {
    /// A record was shown.
    Shown(Shown),
    /// There is none.
    Absent,
    /// The life that this open began was closed before it ran.
    Overtaken,
    /// It failed for this reason, and has changed nothing.
    Unchanged(String),
    /// It failed for this reason, and whether it changed something is not known, now or ever.
    Unknown(String),
}

/// One call of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recorded {
    /// Which client.
    pub client: usize,
    /// Which session, of the default namespace.
    pub id: String,
    /// What it wants.
    pub wish: Wish,
    /// When it was begun.
    pub sent_us: u64,
    /// When and how it ended; `None` while it is under way.
    pub end: Option<(u64, Told)>,
}

/// Where every call is written down. Clones share it.
#[derive(Clone, Debug)]
pub struct Book(Arc<Mutex<Pages>>);

#[derive(Debug)]
struct Pages {
    calls: Vec<Recorded>,
    ended: usize,
    lines: BufWriter<File>,
    outages: Vec<Outage>,
    /// Calls that failed although their client followed every advice, or was given none to follow.
    failures: Vec<String>,
}

impl Pages {
    fn write(&mut self, line: &serde_json::Value) {
        writeln!(self.lines, "{line}").expect("the history can be written");
    }
}

impl Book {
    /// An empty one, with its file in the folder.
    pub fn new(folder: &Path) -> Self {
        let file = File::create(folder.join(FILE)).expect("the history's file can be made");
        let (calls, lines) = (Vec::new(), BufWriter::new(file));
        let (outages, failures) = (Vec::new(), Vec::new());
        let pages = Pages { calls, ended: 0, lines, outages, failures };
        Self(Arc::new(Mutex::new(pages)))
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call begins; gives its number.
    pub fn invoke(&self, client: usize, id: &str, wish: Wish) -> usize {
        let mut pages = self.pages();
        let (sent_us, call, id) = (now_us(), pages.calls.len(), id.to_owned());
        pages.write(
            &json!({"call": call, "at_us": sent_us, "client": client, "id": id, "invoke": wish}),
        );
        pages.calls.push(Recorded { client, id, wish, sent_us, end: None });
        call
    }

    /// It has ended so.
    pub fn end(&self, call: usize, told: Told) {
        let came_us = now_us();
        let mut pages = self.pages();
        pages.write(&json!({"call": call, "at_us": came_us, "end": told}));
        pages.calls[call].end = Some((came_us, told));
        pages.ended += 1;
    }

    /// A client that did what it was advised to was told an error all the same.
    pub fn fail(&self, failure: String) {
        let mut pages = self.pages();
        pages.write(&json!({"at_us": now_us(), "failure": failure}));
        pages.failures.push(failure);
    }

    /// A node's agent was killed, or stood still, and serves again.
    pub fn outage(&self, outage: Outage) {
        let mut pages = self.pages();
        pages.write(&json!({"outage": outage}));
        pages.outages.push(outage);
    }

    /// All of them.
    pub fn outages(&self) -> Vec<Outage> {
        self.pages().outages.clone()
    }

    /// A word about the test itself, for who reads the file.
    pub fn note(&self, note: &str) {
        self.pages().write(&json!({"at_us": now_us(), "note": note}));
    }

    /// How many calls have ended.
    pub fn ended(&self) -> usize {
        self.pages().ended
    }

    /// Every call so far.
    pub fn calls(&self) -> Vec<Recorded> {
        self.pages().calls.clone()
    }

    /// What must not have happened.
    pub fn failures(&self) -> Vec<String> {
        self.pages().failures.clone()
    }

    /// How many calls were answered between the first and the last, and in how many ms.
    pub fn answered(&self) -> (usize, u64) {
        let pages = self.pages();
        let answers = pages.calls.iter().filter_map(|it| it.end.as_ref());
        let is_answer =
            |told: &Told| matches!(told, Told::Shown(_) | Told::Absent | Told::Overtaken);
        let answered = answers.clone().filter(|(_, told)| is_answer(told)).count();
        let first_us = pages.calls.first().map_or(0, |it| it.sent_us);
        let last_us = answers.map(|(came_us, _)| *came_us).max().unwrap_or(first_us);
        (answered, (last_us - first_us) / 1000)
    }

    /// How many calls ended in which way, for people.
    pub fn tally(&self) -> BTreeMap<String, usize> {
        let mut tally = BTreeMap::new();
        for call in &self.pages().calls {
            let how = match &call.end {
                None => "under way".to_owned(),
                Some((_, Told::Shown(_) | Told::Absent | Told::Overtaken)) => "answered".to_owned(),
                Some((_, Told::Unchanged(why))) => format!("unchanged {why}"),
                Some((_, Told::Unknown(why))) => format!("unknown {why}"),
            };
            *tally.entry(how).or_default() += 1;
        }
        tally
    }
}
