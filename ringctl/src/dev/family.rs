//! Every process below this one: started here, or orphaned below us and adopted.
//!
//! This process is made the reaper of its orphans (child subreaper): a node-agent that a killed
//! manager had started, or the keeper of a killed node-agent, becomes our child. So one place
//! waits for all children, by whatever pid ends, and nothing else here may wait for any.

use super::descendants;
use anyhow::Context;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{ChildStderr, ChildStdout};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, oneshot};

/// Most bytes of what a short program says that are kept.
const SAID_MAX: u64 = 64 * 1024;

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// With this exit code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Code(code) => write!(f, "with exit code {code}"),
            Ending::Signal(signal) => write!(f, "by signal {signal}"),
        }
    }
}

#[derive(Debug)]
struct Member {
    name: String,
    /// What starts it again.
    line: String,
    ending: Option<Ending>,
}

#[derive(Debug, Default)]
struct Members {
    by_pid: BTreeMap<u32, Member>,
    announce: bool,
}

#[derive(Debug, Default)]
struct Shared {
    /// A lock because the reaping task and everyone who waits share it. It is held while a process
    /// is started, so that none is reaped before it is known.
    members: Mutex<Members>,
    /// Some process ended.
    ended: Notify,
}

/// The processes below this one.
#[derive(Clone, Debug)]
pub struct Family {
    shared: Arc<Shared>,
}

/// A process that was started.
#[derive(Debug)]
pub struct Process {
    /// Its name, as in its log's file name.
    pub name: String,
    /// Its pid.
    pub pid: u32,
    /// Resolves to the first line of its standard output that is a JSON document.
    pub first_line: oneshot::Receiver<serde_json::Value>,
}

impl Family {
    /// Becomes the reaper of all that is started below this process. Once per process.
    pub fn found() -> anyhow::Result<Self> {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let mut child_ended = signal(SignalKind::child())?;
        let shared = Arc::new(Shared::default());
        let reaping = Family { shared: shared.clone() };
        tokio::spawn(async move {
            loop {
                reaping.reap();
                if child_ended.recv().await.is_none() {
                    return;
                }
            }
        });
        Ok(Self { shared })
    }

    fn members(&self) -> MutexGuard<'_, Members> {
        self.shared.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the exit status of everything that ended.
    pub fn reap(&self) {
        let mut members = self.members();
        let mut any = false;
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            any = true;
            let announce = members.announce;
            let Some(member) = members.by_pid.get_mut(&number(pid)) else { continue };
            let ending = ending(status);
            member.ending = Some(ending);
            if announce {
                let Member { name, line, .. } = member;
                let left =
                    if ending == Ending::Code(0) { "unless it has left the ring, " } else { "" };
                eprintln!(
                    "{name} (pid {}) ended {ending}; {left}this starts it again:\n  {line}",
                    number(pid)
                );
            }
        }
        drop(members);
        if any {
            self.shared.ended.notify_waiters();
        }
    }

    /// Whether nothing was started here.
    pub fn is_unused(&self) -> bool {
        self.members().by_pid.is_empty()
    }

    /// From now on the end of a process that was started here is told on stderr.
    pub fn announce_endings(&self) {
        self.members().announce = true;
    }

    /// Ends are expected from now on.
    pub fn expect_endings(&self) {
        self.members().announce = false;
    }

    /// Starts a process in a group of its own (a terminal's Ctrl-C is for us alone), its stderr
    /// and the rest of its stdout in `log`.
    pub fn start(&self, name: &str, mut command: Command, log: &Path) -> anyhow::Result<Process> {
        command.stdout(Stdio::piped()).stderr(append(log)?);
        let mut child = self.spawn(name, command)?;
        let stdout = child.stdout.take().context("its stdout was piped")?;
        let (send, first_line) = oneshot::channel();
        tokio::spawn(follow(ChildStdout::from_std(stdout)?, append(log)?, send));
        Ok(Process { name: name.to_owned(), pid: child.id(), first_line })
    }

    /// Runs a short program to its end: gives how it ended, and what it said on stderr.
    pub async fn run(&self, name: &str, mut command: Command) -> anyhow::Result<(Ending, String)> {
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = self.spawn(name, command)?;
        let stderr = ChildStderr::from_std(child.stderr.take().context("its stderr was piped")?)?;
        let mut said = Vec::new();
        stderr.take(SAID_MAX).read_to_end(&mut said).await.with_context(|| name.to_owned())?;
        let ending = self.wait_for_end(child.id()).await;
        // It was to end, and so is none of those whose end must be told.
        self.members().by_pid.remove(&child.id());
        Ok((ending, String::from_utf8_lossy(&said).into_owned()))
    }

    fn spawn(&self, name: &str, mut command: Command) -> anyhow::Result<Child> {
        use std::os::unix::process::CommandExt;
        let program = command.get_program().to_string_lossy().into_owned();
        let line = shell_line(&command);
        command.stdin(Stdio::null()).process_group(0);
        let mut members = self.members();
        let child = command.spawn();
        let child = child.with_context(|| format!("cannot start {name} ({program})"))?;
        let member = Member { name: name.to_owned(), line, ending: None };
        members.by_pid.insert(child.id(), member);
        Ok(child)
    }

    /// How it ended; `None` while it runs. Only for processes that were started here.
    pub fn ending(&self, pid: u32) -> Option<Ending> {
        self.members().by_pid.get(&pid).and_then(|it| it.ending)
    }

    /// Resolves when that process ended. Only for processes that were started here.
    pub async fn wait_for_end(&self, pid: u32) -> Ending {
        loop {
            let ended = self.shared.ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            if let Some(ending) = self.ending(pid) {
                return ending;
            }
            ended.await;
        }
    }

    /// A process started here that ended in another way than the one that was expected, and how.
    pub fn first_ended(&self, expected: Ending) -> Option<(String, Ending)> {
        let members = self.members();
        let ended = members.by_pid.values().filter_map(|it| Some((it.name.clone(), it.ending?)));
        ended.into_iter().find(|(_, ending)| *ending != expected)
    }

    /// Kills a process that was started here and waits for its end, which was wished: it is none of
    /// those whose end must be told.
    pub async fn kill(&self, pid: u32) {
        self.end(pid, Signal::KILL).await;
    }

    /// Sends that signal to a process that was started here, and waits for its end, which was wished.
    pub async fn end(&self, pid: u32, how: Signal) {
        self.signal(pid, how);
        self.wait_for_end(pid).await;
        self.members().by_pid.remove(&pid);
    }

    /// Forgets everything that has ended.
    pub fn forget_ended(&self) {
        self.members().by_pid.retain(|_, it| it.ending.is_none());
    }

    /// Resolves after the next end of any process.
    pub async fn next_end(&self) {
        self.shared.ended.notified().await;
    }

    /// Sends a signal to one process below us; one that is gone is none of our concern.
    pub fn signal(&self, pid: u32, signal: Signal) {
        let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return };
        if let Err(error) = rustix::process::kill_process(pid, signal) {
            tracing::debug!("signal to {pid:?}: {error}");
        }
    }

    /// True when no process is left below us.
    pub fn is_gone(&self) -> bool {
        self.reap();
        descendants::all().is_empty()
    }
}

/// A command as it is typed.
fn shell_line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|it| shell_word(&it.to_string_lossy())).collect::<Vec<_>>().join(" ")
}

fn shell_word(word: &str) -> String {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || "_-+./:=,@%".contains(it);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

fn number(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get().unsigned_abs()
}

fn ending(status: WaitStatus) -> Ending {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Ending::Code(code),
        (None, Some(signal)) => Ending::Signal(signal),
        (None, None) => Ending::Code(-1),
    }
}

fn append(log: &Path) -> anyhow::Result<File> {
    let file = OpenOptions::new().create(true).append(true).open(log);
    file.with_context(|| format!("cannot write {}", log.display()))
}

/// Hands on the first JSON line and writes everything else to the log, until the process closes
/// its end. A pipe that nobody empties would block the process.
async fn follow(stdout: ChildStdout, mut log: File, first: oneshot::Sender<serde_json::Value>) {
    let mut first = Some(first);
    let mut lines = BufReader::new(stdout).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if let (Ok(document), Some(_)) = (serde_json::from_str(&line), &first) {
            let receiver = first.take();
            // Whoever waited has given up; the line is in the log all the same.
            receiver.map(|it| it.send(document).ok());
        }
        if writeln!(log, "{line}").is_err() {
            tracing::debug!("a log cannot be written any more");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_told_so_that_a_shell_reads_it_again() {
        let mut command = Command::new("/opt/x y/rota");
        command.args(["--data=/tmp/a", "", "it's", "a;b"]);
        assert_eq!(shell_line(&command), r"'/opt/x y/rota' --data=/tmp/a '' 'it'\''s' 'a;b'");
    }
}
