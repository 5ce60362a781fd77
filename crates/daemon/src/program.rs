//! Runs a program to its end, with a deadline, and leaves nothing of it when nobody waits for it any more.

use crate::processes::{Process, descendants, signal_group};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use std::io;
use std::os::fd::OwnedFd;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, Command};

/// How long outputs may stay open when the program has ended. Longer, and whoever waits waits for what the program
/// left running. Shorter, and what was just printed is missed on a busy machine.
const OPEN_AFTER_END: Duration = Duration::from_secs(1);

/// How much of each output is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kept {
    /// The first so many bytes; a program that prints more has failed.
    First(usize),
    /// The last so many bytes.
    Last(usize),
}

/// What becomes of processes that the program started and that outlive it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rest {
    /// They go on when the program ended by itself.
    GoesOn,
    /// They are killed with its process group.
    Ends,
}

/// How a program is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Manner {
    /// It is killed after so long, with its process group and its descendants.
    pub deadline: Duration,
    /// How much of its outputs is kept.
    pub kept: Kept,
    /// What becomes of what it started.
    pub rest: Rest,
}

/// What came of one run.
#[derive(Debug)]
pub struct Ran {
    /// How it ended.
    pub status: ExitStatus,
    /// What is kept of its standard output.
    pub stdout: Vec<u8>,
    /// What is kept of its standard error.
    pub stderr: Vec<u8>,
}

/// Why a program came to no end of its own.
#[derive(Debug)]
pub enum RunFailure {
    /// It could not be started.
    NotStarted(io::Error),
    /// It was killed at its deadline; the last of its standard error.
    Late(Vec<u8>),
    /// It cannot be waited for, or its outputs cannot be read, or are too long.
    Broken(String),
}

/// Kills a program's process group and its descendants, unless it was let go.
struct Group(Option<i32>);

impl Group {
    /// While the program is not reaped, its number is nobody else's.
    fn kill(&mut self) {
        let Some(pid) = self.0.take() else { return };
        // Some may have made groups of their own. They are looked for first: a parent that is gone leads to nobody.
        let below: Vec<_> = descendants(pid).into_iter().filter_map(Process::of).collect();
        signal_group(pid, Signal::KILL);
        below.into_iter().for_each(|it| it.signal(Signal::KILL));
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs a program in a process group of its own, and gives it this input. When the future is dropped, all of it is
/// killed.
///
/// # Errors
/// It came to no end of its own.
pub async fn run_program(
    command: &mut Command,
    input: &[u8],
    manner: Manner,
) -> Result<Ran, RunFailure> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child =
        command.process_group(0).kill_on_drop(true).spawn().map_err(RunFailure::NotStarted)?;
    let mut group = Group(child.id().and_then(|it| i32::try_from(it).ok()));
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let talk = talk(&mut child, &mut group, input, manner, (&mut stdout, &mut stderr));
    let status = match tokio::time::timeout(manner.deadline, talk).await {
        Ok(Ok(status)) => status,
        Ok(Err(why)) => {
            group.kill();
            let _ = child.wait().await;
            return Err(RunFailure::Broken(why));
        }
        Err(_) => {
            group.kill();
            let _ = child.wait().await;
            return Err(RunFailure::Late(cut(stderr, manner.kept)));
        }
    };
    if let Kept::First(most) = manner.kept {
        for (what, bytes) in [("standard output", &stdout), ("standard error", &stderr)] {
            if bytes.len() > most {
                return Err(RunFailure::Broken(format!("its {what} is longer than {most} bytes")));
            }
        }
    }
    Ok(Ran { status, stdout: cut(stdout, manner.kept), stderr: cut(stderr, manner.kept) })
}

/// Gives the program its input, and reads what it prints until it has ended and closed its outputs. What it left
/// running may keep them open: nobody reads them for longer than [`OPEN_AFTER_END`].
async fn talk(
    child: &mut Child,
    group: &mut Group,
    input: &[u8],
    manner: Manner,
    (stdout, stderr): (&mut Vec<u8>, &mut Vec<u8>),
) -> Result<ExitStatus, String> {
    let unread = |what: &str, error: io::Error| format!("its {what} cannot be read: {error}");
    let unwaited = |error: io::Error| format!("it cannot be waited for: {error}");
    let pid = group.0.and_then(Pid::from_raw).ok_or("it has no pid")?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|it| unwaited(it.into()))?;
    let ended = watched(pidfd).map_err(unwaited)?;
    let give = give(child.stdin.take(), input);
    let (from_stdout, from_stderr) = (child.stdout.take(), child.stderr.take());
    let talk = async {
        let kept = manner.kept;
        tokio::join!(give, read(from_stdout, stdout, kept), read(from_stderr, stderr, kept))
    };
    tokio::pin!(talk);
    let said = tokio::select! {
        said = &mut talk => {
            ended.readable().await.map_err(unwaited)?.retain_ready();
            Some(said)
        }
        ready = ended.readable() => {
            ready.map_err(unwaited)?.retain_ready();
            None
        }
    };
    // It is not reaped yet, so the group is still its own.
    match manner.rest {
        Rest::Ends => group.kill(),
        Rest::GoesOn => group.0 = None,
    }
    let said = match said {
        Some(said) => Some(said),
        None => tokio::time::timeout(OPEN_AFTER_END, &mut talk).await.ok(),
    };
    if let Some(((), stdout, stderr)) = said {
        stdout.map_err(|error| unread("standard output", error))?;
        stderr.map_err(|error| unread("standard error", error))?;
    }
    child.wait().await.map_err(unwaited)
}

/// Tells when the process of a pidfd has ended.
///
/// What tokio warns of are values whose descriptor changes or closes while it is watched. This one's does not, and the
/// replacement is not safe code.
///
/// # Errors
/// There is no room for it.
#[expect(deprecated, reason = "see above")]
pub fn watched(pidfd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::new(pidfd)
}

async fn give(stdin: Option<ChildStdin>, input: &[u8]) {
    if let Some(mut stdin) = stdin {
        // Who reads nothing is judged by how it ends.
        let _ = stdin.write_all(input).await;
    }
}

/// Reads to the end; what was read so far counts when nobody waits for that any more.
async fn read(
    from: Option<impl AsyncRead + Unpin>,
    into: &mut Vec<u8>,
    kept: Kept,
) -> io::Result<()> {
    let Some(mut from) = from else { return Ok(()) };
    match kept {
        Kept::First(most) => {
            let mut from = from.take(most as u64 + 1);
            while from.read_buf(into).await? > 0 {}
        }
        Kept::Last(most) => {
            while from.read_buf(into).await? > 0 {
                if into.len() > 2 * most {
                    into.drain(..into.len() - most);
                }
            }
        }
    }
    Ok(())
}

fn cut(mut bytes: Vec<u8>, kept: Kept) -> Vec<u8> {
    match kept {
        Kept::First(most) => bytes.truncate(most),
        Kept::Last(most) => drop(bytes.drain(..bytes.len().saturating_sub(most))),
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    const TASK: Manner =
        Manner { deadline: Duration::from_secs(20), kept: Kept::Last(8), rest: Rest::Ends };

    async fn sh(script: &str, input: &[u8], manner: Manner) -> Result<Ran, RunFailure> {
        run_program(Command::new("/bin/sh").args(["-c", script]), input, manner).await
    }

    async fn ends(pid: &[u8]) {
        let pid: i32 = String::from_utf8_lossy(pid).trim().parse().unwrap();
        let until = std::time::Instant::now() + Duration::from_secs(10);
        while Process::of(pid).is_some_and(Process::runs) {
            assert!(std::time::Instant::now() < until, "{pid} runs");
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn the_last_of_what_it_prints_is_kept_and_its_input_is_what_it_was_given() {
        let script = "cat >&2; head -c 300000 /dev/zero; printf 0123456789; exit 3";
        let ran = sh(script, b"said on stdin", TASK).await.unwrap();
        assert_eq!((ran.status.code(), &ran.stdout[..]), (Some(3), &b"23456789"[..]));
        assert_eq!(ran.stderr, b"on stdin");
        let killed = sh("kill -9 $$", b"", TASK).await.unwrap();
        assert_eq!(killed.status.signal(), Some(9));
        let first = Manner { kept: Kept::First(8), ..TASK };
        let broken = sh("head -c 9 /dev/zero", b"", first).await.unwrap_err();
        assert!(matches!(&broken, RunFailure::Broken(why) if why.contains("longer than 8")));
    }

    #[tokio::test]
    async fn what_a_program_leaves_running_ends_with_it_or_goes_on() {
        let left = "sleep 600 >/dev/null 2>&1 & printf $!";
        let ran = sh(left, b"", TASK).await.unwrap();
        assert!(ran.status.success());
        ends(&ran.stdout).await;
        let goes_on = Manner { rest: Rest::GoesOn, ..TASK };
        let ran = sh(left, b"", goes_on).await.unwrap();
        let pid: i32 = String::from_utf8(ran.stdout).unwrap().parse().unwrap();
        let left = Process::of(pid).expect("it goes on");
        assert!(left.runs());
        left.signal(Signal::KILL);
    }

    #[tokio::test]
    async fn nothing_is_left_at_the_deadline_also_in_groups_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let script =
            format!("setsid sleep 600 & echo $! > '{}'; echo so far >&2; wait", file.display());
        let late = Manner { deadline: Duration::from_millis(500), ..TASK };
        let failure = sh(&script, b"", late).await.unwrap_err();
        assert!(matches!(failure, RunFailure::Late(said) if said == b"so far\n"));
        ends(&std::fs::read(file).unwrap()).await;
    }

    #[tokio::test]
    async fn nothing_is_left_when_nobody_waits_any_more() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let script =
            format!("sleep 600 & echo $! > '{0}.new'; mv '{0}.new' '{0}'; wait", file.display());
        let run = tokio::spawn(async move { sh(&script, b"", TASK).await.map(drop) });
        let until = std::time::Instant::now() + Duration::from_secs(10);
        while !file.exists() {
            assert!(std::time::Instant::now() < until, "it does not start");
            tokio::task::yield_now().await;
        }
        run.abort();
        assert!(run.await.unwrap_err().is_cancelled());
        ends(&std::fs::read(file).unwrap()).await;
    }

    #[tokio::test]
    async fn what_is_no_program_is_told() {
        let failure = run_program(&mut Command::new("/no/such"), b"", TASK).await.unwrap_err();
        assert!(
            matches!(failure, RunFailure::NotStarted(it) if it.kind() == io::ErrorKind::NotFound)
        );
    }
}
