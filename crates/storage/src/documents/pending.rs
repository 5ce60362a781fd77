//! A request on its way: attempts with pauses between them, then the wait for the disk.

use super::books::{Books, Hold, Untaken, closed};
use super::{Shared, Unanswered};
use rota_docstore::{Answer, Exception, Need, Next, Phase, Run, Stamp, Validated, codes};
use std::ops::ControlFlow;
use std::thread;
use std::time::{Duration, Instant};

/// A request that was begun. Its answer may wait for the next attempt, and waits for the disk;
/// dropped, it is not awaited, and what it changed stays.
#[derive(Debug)]
pub struct Pending<'a> {
    shared: &'a Shared,
    stage: Stage,
    deadline: Instant,
}

#[derive(Debug)]
pub(super) enum Stage {
    /// The next attempt begins then.
    Pausing(Run, Instant),
    /// It goes on once these are in the cache. The caller's own thread fetches them: nobody else
    /// waits for that.
    Fetching(Run, Vec<Need>),
    /// Told when everything up to that position is on the disk: an operation may have seen, or been
    /// refused because of, whatever came before it.
    Settled(u64, Result<Answer, Exception>),
}

impl Stage {
    /// What must be on the disk before the caller is told; `None`: he goes on with it himself.
    pub fn position(&self) -> Option<u64> {
        match self {
            Self::Pausing(..) | Self::Fetching(..) => None,
            Self::Settled(position, _) => Some(*position),
        }
    }
}

impl<'a> Pending<'a> {
    pub(super) fn begin(shared: &'a Shared, run: Run, deadline: Instant) -> Self {
        let stage = shared.attempt(run, deadline, &mut None);
        Self { shared, stage, deadline }
    }

    pub(super) fn begin_all(
        shared: &'a Shared,
        runs: impl IntoIterator<Item = Run>,
        deadline: Instant,
    ) -> Vec<Self> {
        let mut held = None;
        let mut begin = |run| {
            let stage = shared.attempt(run, deadline, &mut held);
            Self { shared, stage, deadline }
        };
        runs.into_iter().map(&mut begin).collect()
    }

    /// Whether [`Pending::wait`] would answer at once.
    pub fn is_ready(&self) -> bool {
        self.stage.position().is_some_and(|it| self.shared.durable.position() >= it)
    }

    /// Makes the remaining attempts, waits for the disk and gives the answer.
    pub fn wait(mut self) -> Result<Answer, Unanswered> {
        loop {
            let run = match self.shared.go_on(self.stage, self.deadline)? {
                ControlFlow::Continue(run) => run,
                ControlFlow::Break(answer) => return Ok(answer),
            };
            self.stage = self.shared.attempt(run, self.deadline, &mut None);
        }
    }
}

fn late(run: &Run) -> Exception {
    let message = format!("attempt {} did not end in time", run.attempts());
    Exception::new(codes::BUSY, message).at(Phase::Before)
}

impl Shared {
    /// Waits for what a stage waits for, on the caller's own thread: gives the run for the next
    /// attempt, or the answer.
    pub(super) fn go_on(
        &self,
        stage: Stage,
        deadline: Instant,
    ) -> Result<ControlFlow<Answer, Run>, Unanswered> {
        match stage {
            Stage::Settled(position, outcome) => {
                self.await_disk(position, deadline)?;
                Ok(ControlFlow::Break(outcome?))
            }
            Stage::Pausing(run, begin) if begin > deadline => Err(late(&run).into()),
            Stage::Pausing(run, begin) => {
                thread::sleep(begin.saturating_duration_since(Instant::now()));
                Ok(ControlFlow::Continue(run))
            }
            Stage::Fetching(run, _) if Instant::now() > deadline => Err(late(&run).into()),
            Stage::Fetching(mut run, needs) => {
                let Err(exception) = self.fetch(&mut run, &needs) else {
                    return Ok(ControlFlow::Continue(run));
                };
                let next = match run.fetch_failed(exception) {
                    Ok(ms) => pausing(run, ms),
                    // What was asked for may stand in documents that are not on the disk yet.
                    Err(exception) => Stage::Settled(self.books().position, Err(exception)),
                };
                self.go_on(next, deadline)
            }
        }
    }

    /// Makes one attempt. The books may be held already, and are
    /// held afterwards, unless there was something to wait for.
    pub(super) fn attempt<'a>(
        &'a self,
        mut run: Run,
        deadline: Instant,
        held: &mut Option<Hold<'a>>,
    ) -> Stage {
        let mut bytes = 0;
        loop {
            let all = match self.hold(bytes, deadline, held) {
                Ok(all) => all,
                Err(exception) => return Stage::Settled(0, Err(exception)),
            };
            // Work and validation are under one lock: an operation never meets another's half-done
            // work, and many callers that want one document take turns instead of failing.
            let now = self.now();
            let worked =
                run.work(&self.operations, &self.rules, &all.store, Some(&mut all.cache), now);
            match worked {
                Next::Validate => {}
                Next::Pause { ms } => return pausing(run, ms),
                Next::Failed(exception) => return Stage::Settled(all.position, Err(exception)),
                Next::Fetch(needs) => return Stage::Fetching(run, needs),
            }
            let mut no_room = None;
            let validated = run.validate_with(|attempt| {
                let taken = all.take_over(&self.rules, &self.attachments, attempt, now);
                taken.map_err(|untaken| match untaken {
                    Untaken::Refused(exception) => exception,
                    Untaken::NoRoom(bytes) => {
                        no_room = Some(bytes);
                        closed()
                    }
                })
            });
            if let Some(more) = no_room {
                (run, bytes) = (run.afresh(), more);
                continue;
            }
            return match validated {
                Validated::Valid(commit) => {
                    let outcome = run.finish(&all.store, &commit);
                    Stage::Settled(all.position, outcome)
                }
                Validated::Pause { ms } => pausing(run, ms),
                Validated::Failed(exception) => Stage::Settled(all.position, Err(exception)),
            };
        }
    }

    /// The books, held, with room for so many bytes. What was taken over under an earlier hold goes
    /// to the disk before anything is waited for.
    fn hold<'a, 'h>(
        &'a self,
        bytes: usize,
        deadline: Instant,
        held: &'h mut Option<Hold<'a>>,
    ) -> Result<&'h mut Books, Exception> {
        let is_full = |it: &Hold<'_>| it.must_wait_for(bytes, self.queue_max).is_some();
        if held.as_ref().is_some_and(is_full) {
            *held = None;
        }
        if let Some(hold) = held.as_mut() {
            hold.send_if_due();
        }
        let books = match held.take() {
            Some(books) => books,
            None => self.books_with_room(bytes, deadline)?,
        };
        Ok(&mut **held.insert(books))
    }

    /// Brings documents of elsewhere into the cache, for a run.
    fn fetch(&self, run: &mut Run, needs: &[Need]) -> Result<(), Exception> {
        let Some(source) = &self.source else {
            let names: Vec<_> = needs.iter().map(|it| it.name.to_string()).collect();
            let message = format!("not here, and there is no source: {}", names.join(", "));
            return Err(Exception::new(codes::NOT_AT_HAND, message));
        };
        for need in needs {
            let as_of: Stamp = self.now();
            let update = source.update(&need.name, need.held.as_ref())?;
            let mut books = self.books();
            let applied = books.cache.apply(&need.name, &update, as_of);
            let bytes = applied.map_err(|error| {
                let message =
                    format!("the copy of {} cannot be brought up to date: {error}", need.name);
                Exception::new(codes::NOT_AT_HAND, message)
            })?;
            run.fetched(&need.name, bytes, books.cache.bytes_max())?;
        }
        Ok(())
    }
}

fn pausing(run: Run, ms: u64) -> Stage {
    Stage::Pausing(run, Instant::now() + Duration::from_millis(ms))
}
