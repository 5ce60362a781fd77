//! Runs an operator's command once for each manager that is lost: `ringctl signal --restore-command`.
//!
//! ```text
//!  looks gone ─▶ some View: that run is DOWN, for --restore-after ─▶ mark: mine ─▶ command ─▶ mark: done
//!                └─▶ another run of it, or it left: nothing           └─▶ another's: nothing
//! ```
//! What Consul shows is a suspicion. A loss is what a View says; its name is cluster, number and run.
//! The mark in Consul's key-value store has that name, so of all handlers that run beside or after each
//! other, on any machine, one runs the command. One that failed, or whose handler ended without a
//! word, is run again by the next handler that sees that loss.

use crate::failure::UsageMistake;
use crate::length_of_time::length_of_time;
use crate::signal::Manager;
use anyhow::Context;
use clap::Args;
use rota_client::{Client, v1};
use rota_daemon::Stop;
use rota_daemon::processes::signal_group;
use rota_membership::ConsulAddress;
use rota_membership::consul::Marks;
use rota_model::{Incarnation, ManagerNumber, ManagerStatus};
use rota_ring::{ClaimRefused, View};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant, SystemTime};
use tokio::process::Command;
use tokio::time::{sleep, timeout};

/// Between two looks at a View.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How long Consul may take to answer.
const CONSUL_WAIT: Duration = Duration::from_secs(5);

/// For how long Consul is asked again that does not answer: longer than it takes to elect a leader.
const CONSUL_PATIENCE: Duration = Duration::from_secs(10);

/// How long a command that was told to end may take for it.
const GRACE: Duration = Duration::from_secs(5);

/// A mark that says that a command runs counts for this long after its deadline.
const LAPSE: Duration = Duration::from_secs(60);

/// Options of `signal` about lost managers.
#[derive(Args, Debug)]
pub struct RestoreArguments {
    /// A program to run once for each manager that is lost. It finds ROTA_CLUSTER, ROTA_NUMBER, ROTA_ID,
    /// ROTA_INCARNATION and ROTA_GRPC of the lost one in its environment, ROTA_CONTACT (a manager that
    /// knows of the loss), ROTA_ENDPOINT (all that pass) and ROTA_ATTEMPT (1, unless it failed before).
    #[arg(long, value_name = "PROGRAM")]
    restore_command: Option<PathBuf>,
    /// For how long a manager must be DOWN: one that comes back by itself is not lost.
    #[arg(long, default_value = "10s", value_parser = length_of_time, value_name = "TIME")]
    restore_after: Duration,
    /// How long to wait until some manager says that it is DOWN. Who is lost is taken out within seconds.
    #[arg(long, default_value = "30s", value_parser = length_of_time, value_name = "TIME")]
    restore_wait: Duration,
    /// How long the program may take; then it is ended with its process group, and has failed.
    #[arg(long, default_value = "10m", value_parser = length_of_time, value_name = "TIME")]
    restore_timeout: Duration,
    /// The config store of the managers, in which is noted what was restored.
    #[arg(
        long,
        env = "ROTA_CONSUL",
        default_value = "consul://127.0.0.1:8500/rota",
        value_name = "ADDRESS"
    )]
    consul: String,
}

/// What became of a lost manager.
#[derive(Serialize, Debug)]
pub struct Restored {
    #[serde(flatten)]
    manager: Manager,
    #[serde(flatten)]
    outcome: Outcome,
}

/// Whether the command was run, and how it ended.
#[derive(Serialize, PartialEq, Eq, Debug)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// It was run and succeeded.
    Restored { attempt: u32 },
    /// It was run and failed.
    Failed { attempt: u32, exit_code: Option<i32>, why: String },
    /// It succeeded earlier.
    RestoredBefore,
    /// Another handler runs it.
    UnderWay,
    /// The manager is not lost.
    NotLost { why: String },
    /// It was not run, since something did not answer, or an operator must say first that a last copy
    /// is gone for good.
    NotRun { why: String },
}

impl Restored {
    /// A sentence for people.
    pub fn text(&self) -> String {
        let Manager { id, number, incarnation, .. } = &self.manager;
        let what = match &self.outcome {
            Outcome::Restored { attempt: 1 } => "the restore command has succeeded".to_owned(),
            Outcome::Restored { attempt } => {
                format!("the restore command has succeeded (attempt {attempt})")
            }
            Outcome::Failed { why, attempt, .. } => format!(
                "the restore command has failed (attempt {attempt}): {why}; the next run of this \
                 handler runs it again"
            ),
            Outcome::RestoredBefore => "the restore command has succeeded before".to_owned(),
            Outcome::UnderWay => "another handler runs the restore command".to_owned(),
            Outcome::NotLost { why } => format!("nothing to restore: {why}"),
            Outcome::NotRun { why } => format!(
                "the restore command was not run: {why}; the next run of this handler tries again"
            ),
        };
        format!("manager {id} (number {number}, run {incarnation}): {what}")
    }

    /// Whether the operator should hear of it by the exit code.
    pub fn has_failed(&self) -> bool {
        match self.outcome {
            Outcome::Failed { .. } | Outcome::NotRun { .. } => true,
            Outcome::Restored { .. }
            | Outcome::RestoredBefore
            | Outcome::UnderWay
            | Outcome::NotLost { .. } => false,
        }
    }
}

/// What the mark of a loss says.
#[derive(Serialize, Deserialize, PartialEq, Eq, Clone, Debug)]
struct Note {
    state: State,
    attempt: u32,
    /// Names the run of the handler.
    by: String,
    /// When a handler that has said nothing more is taken for ended, in milliseconds of the wall clock.
    lapses_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

#[derive(Serialize, Deserialize, PartialEq, Eq, Clone, Copy, Debug)]
#[serde(rename_all = "snake_case")]
enum State {
    Running,
    Done,
    Failed,
}

/// The attempt to make by what the mark says; or why none is made.
fn attempt(note: Option<&Note>, now_ms: u64) -> Result<u32, Outcome> {
    match note.map(|it| (it.state, it)) {
        None => Ok(1),
        Some((State::Done, _)) => Err(Outcome::RestoredBefore),
        Some((State::Running, it)) if now_ms < it.lapses_ms => Err(Outcome::UnderWay),
        Some((State::Running | State::Failed, it)) => Ok(it.attempt.saturating_add(1)),
    }
}

/// What a View says of a manager that looks gone.
#[derive(PartialEq, Eq, Debug)]
enum Verdict {
    /// It is DOWN. Why an empty folder may not take its place, if so.
    Down(Option<ClaimRefused>),
    /// It is not said yet.
    Open,
    NotLost(String),
}

fn verdict(view: &View, gone: &Manager) -> Verdict {
    let number = ManagerNumber(gone.number);
    let Some(entry) = view.managers.get(&number).filter(|it| it.id.as_str() == gone.id) else {
        return Verdict::NotLost(format!("no View has manager {} under that number", gone.id));
    };
    let (incarnation, status) = (Incarnation(gone.incarnation), entry.status);
    if entry.incarnation > incarnation {
        return Verdict::NotLost(format!("it runs again, as run {}", entry.incarnation));
    }
    if entry.incarnation < incarnation {
        return Verdict::Open;
    }
    match status {
        ManagerStatus::Down => {
            let parts = view.last_copies(number);
            let last = (!parts.is_empty()).then_some(ClaimRefused::LastCopy { number, parts });
            Verdict::Down(last)
        }
        ManagerStatus::Left => Verdict::NotLost("it has left the ring".to_owned()),
        ManagerStatus::Joining
        | ManagerStatus::Syncing
        | ManagerStatus::Active
        | ManagerStatus::Leaving => Verdict::Open,
    }
}

/// Runs the command for whoever is lost.
pub struct Restorer<'a> {
    options: &'a RestoreArguments,
    program: &'a PathBuf,
    marks: Marks,
    stop: Stop,
}

/// A loss, and who can tell of it.
struct Loss<'a> {
    cluster: &'a str,
    gone: &'a Manager,
    others: &'a [String],
}

impl Loss<'_> {
    /// The name of its mark.
    fn mark(&self) -> [String; 4] {
        let Manager { number, incarnation, .. } = self.gone;
        let (number, incarnation) = (number.to_string(), incarnation.to_string());
        ["restores".to_owned(), self.cluster.to_owned(), number, incarnation]
    }
}

impl<'a> Restorer<'a> {
    /// `None`: no command is configured.
    pub fn new(options: &'a RestoreArguments) -> anyhow::Result<Option<Self>> {
        let Some(program) = &options.restore_command else { return Ok(None) };
        // Reported when the handler runs, not only when somebody is lost.
        which::which(program).map_err(|_| {
            let program = program.display();
            UsageMistake(format!("--restore-command {program}: no program of that name may be run"))
        })?;
        let address = ConsulAddress::parse(&options.consul);
        let address = address.map_err(|it| UsageMistake(format!("--consul {}", it.problem)))?;
        let marks = Marks::new(&address, CONSUL_WAIT)?;
        let stop = Stop::listen().context("cannot listen for signals")?;
        Ok(Some(Self { options, program, marks, stop }))
    }

    /// Restores those of a cluster that look gone, one after the other: one joins at a time.
    pub async fn restore(
        &mut self,
        cluster: &str,
        gone: impl Iterator<Item = &Manager>,
        others: &[String],
    ) -> Vec<Restored> {
        let mut all = Vec::new();
        for gone in gone {
            let outcome = self.restore_one(&Loss { cluster, gone, others }).await;
            all.push(Restored { manager: gone.clone(), outcome });
        }
        all
    }

    async fn restore_one(&mut self, loss: &Loss<'_>) -> Outcome {
        let contact = match self.lost(loss).await {
            Ok(contact) => contact,
            Err(outcome) => return outcome,
        };
        let run = match self.begin(loss).await {
            Ok(Ok(run)) => run,
            Ok(Err(outcome)) => return outcome,
            Err(error) => return Outcome::NotRun { why: format!("{error:#}") },
        };
        let ended = self.run(loss, &contact, run.attempt).await;
        let (state, why) = match &ended {
            Ok(()) => (State::Done, None),
            Err((_, why)) => (State::Failed, Some(why.clone())),
        };
        let attempt = run.attempt;
        if let Err(error) = self.end(loss, Note { state, why, ..run }).await {
            // The mark says that it runs until it lapses; then the next handler runs it again.
            eprintln!("not noted in Consul: {error:#}");
        }
        match ended {
            Ok(()) => Outcome::Restored { attempt },
            Err((exit_code, why)) => Outcome::Failed { attempt, exit_code, why },
        }
    }

    /// Waits until some View has said for long enough that it is DOWN. Gives who says so.
    async fn lost(&self, loss: &Loss<'_>) -> Result<String, Outcome> {
        let wait = self.options.restore_wait;
        let until = Instant::now() + wait + self.options.restore_after;
        let mut since: Option<Instant> = None;
        while Instant::now() < until {
            for other in loss.others {
                let Some(view) = view_of(other).await else { continue };
                match verdict(&view, loss.gone) {
                    Verdict::Down(last) => {
                        let since = *since.get_or_insert_with(Instant::now);
                        if since.elapsed() >= self.options.restore_after {
                            return match last {
                                None => Ok(other.clone()),
                                Some(why) => Err(Outcome::NotRun { why: why.to_string() }),
                            };
                        }
                    }
                    Verdict::Open => {}
                    Verdict::NotLost(why) => return Err(Outcome::NotLost { why }),
                }
            }
            sleep(LOOK_EVERY).await;
        }
        let why = match loss.others {
            [] => {
                "no other manager passes its checks, so nobody can say that it is lost".to_owned()
            }
            [_, ..] => format!("no manager says within {wait:?} that it is DOWN"),
        };
        Err(unsaid(loss.gone, answers(loss.gone).await, why))
    }

    /// Takes the mark of a loss.
    async fn begin(&self, loss: &Loss<'_>) -> anyhow::Result<Result<Note, Outcome>> {
        let by = uuid::Uuid::new_v4().to_string();
        let until = Instant::now() + CONSUL_PATIENCE;
        loop {
            let now = now_ms();
            let there = match self.noted(loss).await {
                Ok(there) => there,
                Err(error) => {
                    again_before(until, error).await?;
                    continue;
                }
            };
            if let Some((note, _)) = there.as_ref().filter(|(note, _)| note.by == by) {
                // An attempt to write it of which nobody knew whether it was written.
                return Ok(Ok(note.clone()));
            }
            let attempt = match attempt(there.as_ref().map(|it| &it.0), now) {
                Ok(attempt) => attempt,
                Err(outcome) => return Ok(Err(outcome)),
            };
            let lapses_ms = now + millis(self.options.restore_timeout + GRACE + LAPSE);
            let (state, by, why) = (State::Running, by.clone(), None);
            let note = Note { state, attempt, by, lapses_ms, why };
            // Whether or not it is known to be written: what stands there then, decides.
            if let Err(error) = self.write(loss, &note, there.map_or(0, |it| it.1)).await {
                again_before(until, error).await?;
            }
        }
    }

    /// Says how it ended, unless another handler has taken this one for ended.
    async fn end(&self, loss: &Loss<'_>, note: Note) -> anyhow::Result<()> {
        let until = Instant::now() + CONSUL_PATIENCE;
        while let Err(error) = self.end_once(loss, &note).await {
            again_before(until, error).await?;
        }
        Ok(())
    }

    async fn end_once(&self, loss: &Loss<'_>, note: &Note) -> anyhow::Result<()> {
        let there = self.noted(loss).await?;
        let Some((_, index)) = there.filter(|(it, _)| it.by == note.by) else { return Ok(()) };
        self.write(loss, note, index).await?;
        Ok(())
    }

    async fn noted(&self, loss: &Loss<'_>) -> anyhow::Result<Option<(Note, u64)>> {
        let mark = self.marks.read(&loss.mark().each_ref().map(String::as_str)).await;
        let Some(mark) = mark.context("Consul")? else { return Ok(None) };
        let note = serde_json::from_slice(&mark.value);
        Ok(Some((note.context("what Consul holds of this loss")?, mark.index)))
    }

    async fn write(&self, loss: &Loss<'_>, note: &Note, index: u64) -> anyhow::Result<bool> {
        let value = serde_json::to_vec(note)?;
        let name = loss.mark();
        let name = name.each_ref().map(String::as_str);
        self.marks.write(&name, value, index).await.context("Consul")
    }

    /// Runs the command to its end, which it comes to in any case. An error has its exit code, if it
    /// has one.
    async fn run(
        &mut self,
        loss: &Loss<'_>,
        contact: &str,
        attempt: u32,
    ) -> Result<(), (Option<i32>, String)> {
        let mut command = Command::new(self.program);
        let Manager { id, number, incarnation, grpc } = loss.gone;
        command.env("ROTA_CLUSTER", loss.cluster).env("ROTA_NUMBER", number.to_string());
        command.env("ROTA_ID", id).env("ROTA_INCARNATION", incarnation.to_string());
        command.env("ROTA_GRPC", grpc).env("ROTA_CONTACT", contact);
        command.env("ROTA_ENDPOINT", loss.others.join(","));
        command.env("ROTA_ATTEMPT", attempt.to_string());
        // Data on stdout is ours alone.
        let stdout = std::io::stderr().as_fd().try_clone_to_owned();
        let stdout = stdout.map_err(|error| (None, format!("its output: {error}")))?;
        command.stdin(Stdio::null()).stdout(stdout).process_group(0).kill_on_drop(true);
        let program = self.program.display();
        let mut child = command
            .spawn()
            .map_err(|error| (None, format!("{program} does not start: {error}")))?;
        let group = child.id().and_then(|it| i32::try_from(it).ok());
        let why = tokio::select! {
            ended = child.wait() => return judged(ended),
            () = sleep(self.options.restore_timeout) => {
                format!("it did not end within {:?}, and was ended", self.options.restore_timeout)
            }
            signal = self.stop.wished() => format!("this handler got {signal}, and it was ended"),
        };
        // What of the group is left when its first process has ended goes, too.
        for signal in [Signal::TERM, Signal::KILL] {
            if let Some(group) = group {
                signal_group(group, signal);
            }
            let _ended_or_not = timeout(GRACE, child.wait()).await;
        }
        Err((None, why))
    }
}

/// Consul did not answer: time for another try, or the error when it was asked for long enough. A mark of
/// which nobody knows then whether it was written holds others off until it lapses.
async fn again_before(until: Instant, error: anyhow::Error) -> anyhow::Result<()> {
    if Instant::now() >= until {
        return Err(error);
    }
    sleep(LOOK_EVERY).await;
    Ok(())
}

/// What becomes of who looks gone when nobody says in time that it is: Consul calls its handlers when
/// something changes, so a loss that is said later would be nobody's business.
fn unsaid(gone: &Manager, answers: bool, why: String) -> Outcome {
    match answers {
        true => Outcome::NotLost { why: format!("{why}, and it answers at {}", gone.grpc) },
        false => Outcome::NotRun { why: format!("{why}, and it does not answer either") },
    }
}

/// Whether that manager is heard at its address.
async fn answers(gone: &Manager) -> bool {
    let Ok(client) = Client::connect(&gone.grpc) else { return false };
    let answer = client.inspect_at(&gone.grpc, CONSUL_WAIT).await;
    answer.is_ok_and(|it: v1::InspectResponse| it.number == gone.number)
}

fn judged(ended: std::io::Result<ExitStatus>) -> Result<(), (Option<i32>, String)> {
    match ended {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err((status.code(), format!("it ended with {status}"))),
        Err(error) => Err((None, format!("nobody knows how it ended: {error}"))),
    }
}

async fn view_of(manager: &str) -> Option<View> {
    let client = Client::connect(manager).ok()?;
    let answer: v1::InspectResponse = client.inspect_at(manager, CONSUL_WAIT).await.ok()?;
    View::try_from(answer.view?).ok()
}

fn now_ms() -> u64 {
    millis(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring_example::ring;

    fn note(state: State, lapses_ms: u64) -> Note {
        Note { state, attempt: 3, by: "x".to_owned(), lapses_ms, why: None }
    }

    #[test]
    fn a_command_is_run_once_and_again_only_when_it_failed_or_nobody_heard_of_its_end() {
        for (there, wanted) in [
            (None, Ok(1)),
            (Some(note(State::Done, 0)), Err(Outcome::RestoredBefore)),
            (Some(note(State::Running, 1_001)), Err(Outcome::UnderWay)),
            (Some(note(State::Running, 1_000)), Ok(4)),
            (Some(note(State::Failed, 9_000)), Ok(4)),
        ] {
            assert_eq!(attempt(there.as_ref(), 1_000), wanted, "{there:?}");
        }
    }

    #[test]
    fn a_loss_that_nobody_says_in_time_is_not_dropped_unless_the_manager_itself_answers() {
        let grpc = "127.0.0.1:1".to_owned();
        let gone = Manager { id: "a".to_owned(), number: 100, incarnation: 1, grpc };
        let said = |answers| unsaid(&gone, answers, "no manager says it".to_owned());
        assert!(matches!(said(true), Outcome::NotLost { .. }));
        let restored = Restored { manager: gone.clone(), outcome: said(false) };
        assert!(restored.has_failed(), "{restored:?}");
        assert!(restored.text().contains("tries again"), "{}", restored.text());
    }

    #[tokio::test]
    async fn consul_is_asked_again_until_the_time_is_over() {
        let begun = Instant::now();
        let (until, mut asked) = (begun + 2 * LOOK_EVERY, 0);
        while again_before(until, anyhow::anyhow!("it is away")).await.is_ok() {
            asked += 1;
        }
        assert!(asked >= 1 && begun.elapsed() >= 2 * LOOK_EVERY, "{asked}");
    }

    #[test]
    fn lost_is_only_whose_very_run_a_view_has_as_down() {
        let mut view = ring(1, &[(100, "a"), (400, "b")]);
        let gone = |id: &str, incarnation| Manager {
            id: id.to_owned(),
            number: 100,
            incarnation,
            grpc: String::new(),
        };
        let entry = view.managers.get_mut(&ManagerNumber(100)).unwrap();
        (entry.incarnation, entry.status) = (Incarnation(3), ManagerStatus::Down);
        assert_eq!(verdict(&view, &gone("a", 3)), Verdict::Down(None));
        assert_eq!(verdict(&view, &gone("a", 4)), Verdict::Open, "that View is older");
        assert!(matches!(verdict(&view, &gone("a", 2)), Verdict::NotLost(_)));
        assert!(matches!(verdict(&view, &gone("b", 3)), Verdict::NotLost(_)));
        // The other one has left every group since: what only the lost one has, no empty folder may replace.
        view.parts.values_mut().for_each(|it| it.isr.retain(|it| it.number == ManagerNumber(100)));
        let Verdict::Down(Some(why)) = verdict(&view, &gone("a", 3)) else { panic!("{view:?}") };
        assert!(why.to_string().contains("partitions 100, 400: start it again"), "{why}");
        view.managers.get_mut(&ManagerNumber(100)).unwrap().status = ManagerStatus::Active;
        assert_eq!(verdict(&view, &gone("a", 3)), Verdict::Open);
        view.managers.get_mut(&ManagerNumber(100)).unwrap().status = ManagerStatus::Left;
        assert!(matches!(verdict(&view, &gone("a", 3)), Verdict::NotLost(_)));
    }
}
