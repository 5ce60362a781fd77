//! One ring task: what it asked, and what it asks again.

use crate::log::at::At;
use crate::log::env::NameOf;
use crate::log::internal::{Internal, InternalRequest};
use crate::ports::task_work::{Started, TaskOutcome};
use crate::ring_tasks::acting::Acting;
use crate::ring_tasks::closing::Closing;
use crate::ring_tasks::copying::{Copying, unread};
use rota_docstore::Exception;
use rota_messages::{Answer, DocumentAnswer, LivesAnswer, Op, OpResult};
use rota_model::{FieldError, Refusal, RefusalKind, Retry};
use rota_tasks::{ACT, ActWork, COPY, CloseWork, CopyWork, Progress, Run, TaskKey};
use std::collections::BTreeMap;

/// Most that a ring task asks at a time, searches aside. Fewer, and programs that take their time to end hold it up.
/// More, and it is noticed by whoever else asks.
const ASKED_MAX: usize = 64;

/// How long an answer may take, in milliseconds.
const ANSWER_MS: u64 = 15_000;

/// After a refusal it is asked again, in milliseconds.
const AGAIN_MS: u64 = 500;

/// What an answer is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Of {
    /// A search, by its number.
    Look(usize),
    /// A copy to write, or a session to close.
    Act,
}

/// Something to ask.
pub(crate) type Order = (Of, Op);

/// What an answer leads to.
#[derive(Debug)]
pub(crate) enum Asking {
    /// Nothing further.
    Nothing,
    /// The next page, since this one brought something.
    Now(Vec<Order>),
    /// This page again, after a pause.
    Later(Vec<Order>),
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Asked {
    of: Of,
    op: Op,
    /// When it is asked again.
    again_ms: Option<u64>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Plan {
    Copy(Copying),
    Close(Box<Closing>),
    Act(Box<Acting>),
}

/// The work of a task that goes around the ring.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RingTask {
    pub key: TaskKey,
    pub run: Run,
    plan: Plan,
    asked: BTreeMap<u64, Asked>,
    progress: Progress,
    /// What was told of that.
    told: Progress,
    /// Why something failed, first of all.
    why: Option<(String, String)>,
    /// What was refused last, and asked again.
    refused: Option<(String, String)>,
    /// Nothing came so long, and it has failed.
    until_ms: u64,
    quota_ms: u64,
}

/// Ring tasks follow from records and answers: what a search over all states tells apart is which there are.
impl std::hash::Hash for RingTask {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (&self.key, self.run, self.asked.keys().collect::<Vec<_>>()).hash(state);
    }
}

impl RingTask {
    pub fn new(led: &At<'_>, key: TaskKey, started: &Started) -> Result<Self, Exception> {
        let run = started.run();
        let plan = if started.operation == COPY {
            let work: CopyWork =
                serde_json::from_value(started.param.clone()).map_err(|_| unread(COPY))?;
            Plan::Copy(Copying::new(led, &key.ns, &work)?)
        } else if started.operation == ACT {
            Plan::Act(Box::new(Acting::new(&key, ActWork::read(&started.param)?)?))
        } else {
            Plan::Close(Box::new(Closing::new(led, &key, run, &CloseWork::read(&started.param)?)?))
        };
        let quota_ms = led.env.config.tasks.quota_ms;
        let until_ms = led.env.now.mono_ms + quota_ms;
        // What an earlier run did is done; what failed there is tried again.
        let progress = Progress { failed: 0, ..started.progress };
        let (asked, told) = (BTreeMap::new(), started.progress);
        Ok(Self {
            key,
            run,
            plan,
            asked,
            progress,
            told,
            why: None,
            refused: None,
            until_ms,
            quota_ms,
        })
    }

    /// How far it has come, if nobody was told that.
    pub fn news(&mut self) -> Option<Progress> {
        let is_new = self.told != self.progress;
        self.told = self.progress;
        is_new.then_some(self.progress)
    }

    /// How many changes were copied, of a copying.
    pub fn changes(&self) -> Option<u64> {
        match &self.plan {
            Plan::Copy(copying) => Some(copying.changes),
            Plan::Close(_) | Plan::Act(_) => None,
        }
    }

    /// How often it is tried again after a failure, if that is not as for other tasks.
    pub fn retries(&self) -> Option<u32> {
        match &self.plan {
            Plan::Act(acting) => Some(acting.retries),
            Plan::Copy(_) | Plan::Close(_) => None,
        }
    }

    /// Asks what is next. Gives the end, when it has come.
    pub fn go_on(&mut self, led: &mut At<'_>, work: u64) -> Option<TaskOutcome> {
        let now = led.env.now.mono_ms;
        let due = self.asked.iter().filter(|(_, it)| it.again_ms.is_some_and(|at| at <= now));
        let due: Vec<u64> = due.map(|it| *it.0).collect();
        for rid in due {
            if let Some(Asked { of, op, .. }) = self.asked.remove(&rid) {
                self.ask(led, work, vec![(of, op)]);
            }
        }
        let room = ASKED_MAX.saturating_sub(self.asked.len());
        let orders = match &mut self.plan {
            Plan::Copy(copying) => copying.orders(led, room),
            Plan::Close(closing) => Ok(closing.orders(led, room)),
            Plan::Act(acting) => Ok(acting.orders()),
        };
        match orders {
            Ok(orders) => self.ask(led, work, orders),
            Err(mistake) => return Some(Err(told(&mistake))),
        }
        let is_over = match &self.plan {
            Plan::Copy(copying) => copying.is_over(),
            Plan::Close(closing) => closing.is_over(),
            Plan::Act(acting) => acting.is_asked(),
        };
        if is_over && self.asked.is_empty() {
            return Some(self.why.take().map_or(Ok(()), Err));
        }
        let is_late = now >= self.until_ms;
        is_late.then(|| {
            let text = format!("nothing was answered for {} ms", self.quota_ms);
            let refused = self.refused.take();
            Err(self.why.take().or(refused).unwrap_or_else(|| ("TIMEOUT".to_owned(), text)))
        })
    }

    fn ask(&mut self, led: &mut At<'_>, work: u64, orders: Vec<Order>) {
        let deadline_ms = led.env.now.mono_ms + ANSWER_MS;
        for (of, op) in orders {
            let rid = led.env.next_id(NameOf::Task);
            let inner = Internal::RingTask { part: led.log.number, work, rid };
            let asked = InternalRequest { inner, op: op.clone(), deadline_ms };
            led.env.router.asked.push(asked);
            self.asked.insert(rid, Asked { of, op, again_ms: None });
        }
    }

    /// Something was answered. Gives the end, when it has come.
    pub fn on_answer(
        &mut self,
        led: &mut At<'_>,
        (work, rid): (u64, u64),
        result: OpResult,
    ) -> Option<TaskOutcome> {
        let Asked { of, op, .. } = self.asked.remove(&rid)?;
        match result {
            Err(refusal) if is_to_come(&refusal) => {
                self.refused = Some((refusal.kind.to_string(), refusal.message));
                let again_ms = Some(led.env.now.mono_ms + AGAIN_MS);
                self.asked.insert(rid, Asked { of, op, again_ms });
                return None;
            }
            Err(refusal) if matches!(of, Of::Look(_)) => {
                return Some(Err((refusal.kind.to_string(), refusal.message)));
            }
            Err(refusal) => {
                self.until_ms = led.env.now.mono_ms + self.quota_ms;
                // It has ended, or another life began: nothing is left to close.
                if matches!(refusal.kind, RefusalKind::NotFound | RefusalKind::LifeMismatch) {
                    self.progress.done += 1;
                } else {
                    self.note_failure(refusal.kind.to_string(), refusal.message);
                }
            }
            Ok(answer) => {
                if let Err(end) = self.take(led, work, of, answer) {
                    return Some(Err(end));
                }
            }
        }
        self.go_on(led, work)
    }

    fn take(
        &mut self,
        led: &mut At<'_>,
        work: u64,
        of: Of,
        answer: Answer,
    ) -> Result<(), (String, String)> {
        match (of, answer) {
            (Of::Look(number), Answer::Found(Ok(found))) => {
                let orders = match &mut self.plan {
                    Plan::Copy(copying) => copying.on_found(led, number, found),
                    Plan::Close(closing) => closing.on_found(led, found),
                    Plan::Act(_) => return Ok(()),
                };
                match orders.map_err(|it| told(&it))? {
                    Asking::Nothing => {}
                    Asking::Now(orders) => {
                        self.until_ms = led.env.now.mono_ms + self.quota_ms;
                        self.ask(led, work, orders);
                    }
                    Asking::Later(orders) => self.ask_later(led, orders),
                }
            }
            (Of::Look(_), Answer::Found(Err(exception))) => {
                return Err((exception.code().to_string(), exception.to_string()));
            }
            (Of::Act, Answer::Lives(LivesAnswer::Fired(Err((code, report))))) => {
                self.note_failure(code, report);
            }
            (Of::Act, Answer::Documents(DocumentAnswer::Imported(Err(exception)))) => {
                self.note_failure(exception.code().to_string(), exception.to_string());
            }
            (Of::Act, _) => {
                self.until_ms = led.env.now.mono_ms + self.quota_ms;
                self.progress.done += 1;
            }
            (Of::Look(_), _) => {
                return Err(("B-MISUSE".to_owned(), "the answer is none of a search".to_owned()));
            }
        }
        Ok(())
    }

    /// Slots change owners: it is asked again after a pause.
    fn ask_later(&mut self, led: &mut At<'_>, orders: Vec<Order>) {
        let again_ms = Some(led.env.now.mono_ms + AGAIN_MS);
        for (of, op) in orders {
            let rid = led.env.next_id(NameOf::Task);
            self.asked.insert(rid, Asked { of, op, again_ms });
        }
    }

    fn note_failure(&mut self, code: String, text: String) {
        self.progress.failed += 1;
        self.why.get_or_insert((code, text));
    }
}

/// Whether it may work when it is asked again.
fn is_to_come(refusal: &Refusal) -> bool {
    match refusal.retry {
        Retry::Now | Retry::AfterMs(_) | Retry::AtOwner(_) => true,
        Retry::Never | Retry::WhenChanged => false,
    }
}

fn told(mistake: &FieldError) -> (String, String) {
    ("A-INVALID".to_owned(), mistake.to_string())
}
