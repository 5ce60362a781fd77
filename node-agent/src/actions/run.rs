//! The agent's end of a minder process.

use super::Gate;
use crate::keeper::once::{OnceEnd, OnceOrder};
use crate::leftovers::DATA_VARIABLE;
use crate::runtime::{Left, ProgramSettings, end_left};
use rota_daemon::processes::{Process, descendants};
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin};
use tokio::time::timeout;

/// How long a minder may take beside the time of its program: to start it, and until everything that was killed is
/// gone. After that it is killed itself.
const MINDER_LATE: Duration = Duration::from_secs(20);

/// Longest end that a minder tells: an output and a report, each byte written as six.
const END_BYTES_MAX: u64 = 2 * 1024 * 1024;

/// Runs a program to its end. Everything of it is gone when this returns. `None`: its minder was killed.
pub async fn run(order: &OnceOrder, settings: &ProgramSettings, gate: &Gate) -> Option<OnceEnd> {
    if gate.is_shut() {
        return Some(OnceEnd::Cancelled);
    }
    let (mut child, pid) = match start(settings) {
        Ok(started) => started,
        Err(error) => return Some(OnceEnd::NotStarted(format!("cannot start a minder: {error}"))),
    };
    let limit = Duration::from_millis(order.timeout_ms) + MINDER_LATE;
    let told = timeout(limit, told(&mut child, order, gate)).await;
    let end = told.ok().flatten();
    let mut seen = Vec::new();
    if end.is_none() {
        seen = tokio::task::spawn_blocking(move || below(pid)).await.unwrap_or_default();
        drop(child.start_kill());
    }
    drop(child.wait().await);
    settings.keepers.remove(pid);
    if end.is_none() {
        tracing::warn!(pid, "a minder told no end: what is left of its program is killed");
        let nowhere = Path::new("");
        let left = Left { group: None, user: None, folder: nowhere, groups: &[], seen: &seen };
        drop(end_left(left, &settings.keepers).await);
    }
    end
}

fn below(pid: i32) -> Vec<Process> {
    descendants(pid).into_iter().filter(|it| *it != pid).filter_map(Process::of).collect()
}

fn start(settings: &ProgramSettings) -> io::Result<(Child, i32)> {
    let mut command = tokio::process::Command::new("/proc/self/exe");
    command
        .arg0("rota-node-agent")
        .arg("once")
        .args(settings.log.options())
        .env_clear()
        .env(DATA_VARIABLE, &settings.data)
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let child = command.spawn()?;
    // Ahead of all waiting: whoever looks for strays must not take it for one.
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
    let pid = pid.ok_or_else(|| io::Error::other("pid out of range"))?;
    settings.keepers.add(pid);
    Ok((child, pid))
}

/// Gives the order and hears the end. `None`: there is none.
async fn told(child: &mut Child, order: &OnceOrder, gate: &Gate) -> Option<OnceEnd> {
    let mut input = child.stdin.take()?;
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take()?.take(END_BYTES_MAX));
    // One that takes no order ends, and that is seen by its silence.
    if give(&mut input, order).await.is_err() {
        tracing::warn!("a minder took no order");
    }
    let mut input = Some(input);
    let heard = output.read_line(&mut line);
    tokio::pin!(heard);
    loop {
        tokio::select! {
            read = &mut heard => {
                read.ok()?;
                break;
            }
            // Closed: the minder kills its program, and tells when that is done.
            () = gate.ending(), if input.is_some() => drop(input.take()),
        }
    }
    serde_json::from_str(&line).ok()
}

async fn give(input: &mut ChildStdin, order: &OnceOrder) -> io::Result<()> {
    let mut line = serde_json::to_vec(order)?;
    line.push(b'\n');
    input.write_all(&line).await?;
    input.flush().await
}
