//! Tasks that run a program.

use super::{NOT_STARTED, SAID_BYTES, TIMEOUT, text_of};
use rota_daemon::program::{Kept, Manner, Rest, RunFailure, run_program};
use rota_protocol::outside::ProgramRun;
use rota_protocol::{TaskJob, TaskOutcome};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::Duration;
use tokio::process::Command;

/// Variables that programs see as this manager does. The others may hold secrets.
const KEPT_VARIABLES: [&str; 8] =
    ["HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "TMPDIR", "TZ", "USER"];
/// Where programs are found if this manager does not know.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A command that sees nothing secret of this manager.
pub fn command(path: &Path) -> Command {
    let mut command = Command::new(path);
    command.env_clear().env("PATH", PATH).current_dir("/");
    for name in KEPT_VARIABLES {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command
}

/// Runs the program of a task.
pub async fn run(path: &Path, run: &ProgramRun, job: &TaskJob, quota: Duration) -> TaskOutcome {
    let mut command = command(path);
    command
        .args(&run.args)
        .env("ROTA_TASK", &job.docid)
        .env("ROTA_TASK_NAMESPACE", job.ns.as_str())
        .env("ROTA_TASK_RETRY", job.run.retry.to_string())
        .env("ROTA_TASK_START_TIME", job.run.start_time.to_string());
    let input = if run.stdin.is_null() { String::new() } else { format!("{}\n", run.stdin) };
    let manner = Manner { deadline: quota, kept: Kept::Last(SAID_BYTES), rest: Rest::Ends };
    let failed = |code: String, why: String| Err((code, why));
    match run_program(&mut command, input.as_bytes(), manner).await {
        Ok(ran) => match (ran.status.code(), ran.status.signal()) {
            (Some(0), _) => Ok(()),
            (Some(code), _) => failed(format!("EXIT-{code}"), text_of(&ran.stderr)),
            (None, Some(signal)) => failed(format!("SIGNAL-{signal}"), text_of(&ran.stderr)),
            (None, None) => failed(NOT_STARTED.to_owned(), ran.status.to_string()),
        },
        Err(RunFailure::NotStarted(error)) => {
            let why = format!("{} does not start: {error}", path.display());
            failed(NOT_STARTED.to_owned(), why)
        }
        Err(RunFailure::Late(said)) => {
            let why = format!("it did not end within {quota:?}, and was killed");
            let said = text_of(&said);
            let said = if said.is_empty() { said } else { format!("; it said: {said}") };
            failed(TIMEOUT.to_owned(), why + &said)
        }
        Err(RunFailure::Broken(why)) => failed(NOT_STARTED.to_owned(), why),
    }
}
