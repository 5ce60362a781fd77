//! Starts nodes by a program, which is run once for each: a script around `kubectl`, `nomad`, or a cloud's tool.
//!
//! It gets a [`Request`] as JSON on its standard input, and prints an [`Answer`] as JSON on its standard output. What it
//! prints on its standard error goes into the manager's log, and its last lines into what operators are told. It
//! may be asked the same twice (`request_id`), and does it once.

use crate::{ClusterOptions, NewNode, OldNode, Provision, Work, last_words as said};
use rota_daemon::program::{Kept, Manner, Ran, Rest, RunFailure, run_program};
use rota_model::{Labels, NodeId, PoolName};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use tokio::process::Command;

/// How many programs run at a time.
const AT_ONCE: usize = 16;

/// Most bytes of each output that are read; more is an error.
const OUTPUT_BYTES_MAX: usize = 64 << 10;

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Start a node.
    Start,
    /// End what is left of one. What never was, or is gone, is no failure.
    End,
}

/// What the program is asked, as JSON on its standard input.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Request {
    /// What to do.
    pub action: Action,
    /// The same for each repetition, also by another manager.
    pub request_id: String,
    /// The cluster.
    pub cluster: String,
    /// The node's pool.
    pub pool: PoolName,
    /// The node's name. The agent must have it as `--id`.
    pub node: NodeId,
    /// How the node is started; only with `start`.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub how: Option<How>,
}

/// What the node's agent must be told, by the flag of that name.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct How {
    /// Addresses of managers, for `--managers`.
    pub managers: Vec<String>,
    /// For `--consul`, if the managers have it.
    pub consul: Option<String>,
    /// For `--places`.
    pub places: u32,
    /// For `--load-limit`.
    pub load_limit: f64,
    /// For `--label`, each.
    pub labels: BTreeMap<String, String>,
    /// For `--cpu-millis`; 0: leave it out.
    pub cpu_millis: u32,
    /// For `--memory-mib`; 0: leave it out.
    pub memory_mib: u32,
    /// For `--renew`.
    pub renew_ms: u64,
    /// For `--lease-term`.
    pub lease_term_ms: u64,
    /// For `--lease-kill`.
    pub lease_kill_ms: u64,
}

/// What the program answers, as JSON on its standard output.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// Whether it is done, or on its way.
    pub ok: bool,
    /// Why not, for people.
    #[serde(default)]
    pub message: String,
}

/// A provisioner that is a program.
pub struct Program {
    /// The program.
    pub program: PathBuf,
    /// How long it may run; then it is killed, with its process group.
    pub timeout: Duration,
    /// What every node is told.
    pub cluster: ClusterOptions,
}

impl Provision for Program {
    fn start(&self, it: NewNode) -> Work<'_> {
        let times = self.cluster.times;
        let how = How {
            managers: it.managers,
            consul: self.cluster.consul.clone(),
            places: it.new.places,
            load_limit: it.new.load_limit.share(),
            labels: texts(&it.new.labels),
            cpu_millis: it.new.cpu_millis,
            memory_mib: it.new.memory_mib,
            renew_ms: times.renew_ms,
            lease_term_ms: times.lease_term_ms,
            lease_kill_ms: times.lease_kill_ms,
        };
        let request = self.request(Action::Start, it.node, it.new.pool, Some(how));
        Box::pin(async move { self.ask(&request).await })
    }

    fn end(&self, it: OldNode) -> Work<'_> {
        let request = self.request(Action::End, it.node, it.pool, None);
        Box::pin(async move { self.ask(&request).await })
    }

    fn at_once(&self) -> usize {
        AT_ONCE
    }
}

fn texts(labels: &Labels) -> BTreeMap<String, String> {
    labels.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

impl Program {
    fn request(&self, action: Action, node: NodeId, pool: PoolName, how: Option<How>) -> Request {
        let cluster = self.cluster.cluster.as_str().to_owned();
        let what = match action {
            Action::Start => "start",
            Action::End => "end",
        };
        let request_id = format!("{cluster}/{node}/{what}");
        Request { action, request_id, cluster, pool, node, how }
    }

    async fn ask(&self, request: &Request) -> Result<(), String> {
        let node = &request.node;
        let told = |why: String| format!("{} for node {node}: {why}", self.program.display());
        let mut input = serde_json::to_vec(request).map_err(|error| told(error.to_string()))?;
        input.push(b'\n');
        let ran = self.run(&input).await.map_err(told)?;
        let stderr = String::from_utf8_lossy(&ran.stderr);
        if !stderr.trim().is_empty() {
            tracing::info!(%node, program = %self.program.display(), "{}", stderr.trim_end());
        }
        judge(&ran).map_err(told)
    }

    /// Runs the program to its end, or kills its process group when its time is over. Nodes that it started go on.
    async fn run(&self, input: &[u8]) -> Result<Ran, String> {
        let manner = Manner {
            deadline: self.timeout,
            kept: Kept::First(OUTPUT_BYTES_MAX),
            rest: Rest::GoesOn,
        };
        let ran = run_program(&mut Command::new(&self.program), input, manner).await;
        ran.map_err(|failure| match failure {
            RunFailure::NotStarted(error) => format!("it does not start: {error}"),
            RunFailure::Late(_) => {
                format!("it did not end within {:?}, and was killed", self.timeout)
            }
            RunFailure::Broken(why) => why,
        })
    }
}

fn judge(ran: &Ran) -> Result<(), String> {
    let last_words = match said(&ran.stderr) {
        text if text.is_empty() => String::new(),
        text => format!("; it said: {text}"),
    };
    if !ran.status.success() {
        return Err(format!("it ended with {}{last_words}", ran.status));
    }
    let mut answers = serde_json::Deserializer::from_slice(&ran.stdout).into_iter::<Answer>();
    let answer = match answers.next() {
        None => return Err(format!("it answered nothing; {FORM}{last_words}")),
        Some(Err(error)) => {
            let what = said(&ran.stdout);
            return Err(format!(
                "its answer does not read ({error}): {what:?}; {FORM}{last_words}"
            ));
        }
        Some(Ok(answer)) => answer,
    };
    if answers.next().is_some() {
        return Err(format!("it answered more than once: {:?}; {FORM}", said(&ran.stdout)));
    }
    if answer.ok {
        return Ok(());
    }
    let why = if answer.message.is_empty() { "no reason given" } else { &answer.message };
    Err(format!("it answered that it could not: {why}{last_words}"))
}

/// How an answer looks, for people.
const FORM: &str = "an answer is {\"ok\": true}, or {\"ok\": false, \"message\": \"why\"}";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeTimes;
    use rota_daemon::Log;
    use rota_daemon::processes;
    use rota_model::{ClusterName, LoadLimit, NewNodes, ProvisionerName, parse_label};
    use rustix::process::Signal;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    fn program(folder: &Path, script: &str) -> Program {
        let program = folder.join("provision");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        Program {
            program,
            timeout: Duration::from_secs(20),
            cluster: ClusterOptions {
                cluster: ClusterName::parse("c").unwrap(),
                consul: None,
                times: NodeTimes { renew_ms: 1, lease_term_ms: 2, lease_kill_ms: 3 },
                log: Log::text("info").unwrap(),
            },
        }
    }

    fn node() -> NewNode {
        NewNode {
            node: NodeId::parse("small-1-0").unwrap(),
            new: NewNodes {
                pool: PoolName::parse("small").unwrap(),
                provisioner: ProvisionerName::parse("kube").unwrap(),
                places: 5,
                labels: [parse_label("zone=a").unwrap()].into(),
                cpu_millis: 0,
                memory_mib: 64,
                load_limit: LoadLimit::parse(0.8).unwrap(),
            },
            managers: vec!["m:1".to_owned()],
        }
    }

    async fn says(script: &str) -> Result<(), String> {
        let folder = tempfile::tempdir().unwrap();
        program(folder.path(), script).start(node()).await
    }

    #[tokio::test]
    async fn a_program_is_told_all_that_a_node_needs_and_the_same_id_for_a_repetition() {
        let folder = tempfile::tempdir().unwrap();
        let it =
            program(folder.path(), "cat >> \"$(dirname \"$0\")/asked\"; echo '{\"ok\": true}'");
        it.start(node()).await.unwrap();
        let old = OldNode { node: node().node, pool: node().new.pool };
        it.end(old).await.unwrap();
        let asked = std::fs::read_to_string(folder.path().join("asked")).unwrap();
        let lines: Vec<&str> = asked.lines().collect();
        assert_eq!(
            lines,
            [
                "{\"action\":\"start\",\"request_id\":\"c/small-1-0/start\",\"cluster\":\"c\",\"pool\":\"small\",\
                 \"node\":\"small-1-0\",\"managers\":[\"m:1\"],\"consul\":null,\"places\":5,\"load_limit\":0.8,\
                 \"labels\":{\"zone\":\"a\"},\"cpu_millis\":0,\"memory_mib\":64,\"renew_ms\":1,\
                 \"lease_term_ms\":2,\"lease_kill_ms\":3}",
                "{\"action\":\"end\",\"request_id\":\"c/small-1-0/end\",\"cluster\":\"c\",\"pool\":\"small\",\
                 \"node\":\"small-1-0\"}",
            ]
        );
    }

    #[tokio::test]
    async fn rubbish_silence_two_answers_and_a_failing_end_are_told_with_what_was_said() {
        for (script, told) in [
            ("echo fine", "does not read"),
            ("echo '{\"ok\": true, \"odd\": 1}'", "unknown field `odd`"),
            ("true", "it answered nothing; an answer is {\"ok\": true}"),
            ("echo '{\"ok\":true}'; echo '{\"ok\":true}'", "more than once"),
            ("echo no quota >&2; exit 3", "exit status: 3; it said: no quota"),
            ("echo '{\"ok\": false, \"message\": \"no quota\"}'", "could not: no quota"),
            ("echo '{\"ok\": false}'", "no reason given"),
            ("head -c 70000 /dev/zero", "longer than 65536 bytes"),
        ] {
            let why = says(script).await.unwrap_err();
            assert!(why.contains(told) && why.contains("for node small-1-0"), "{script}: {why}");
        }
        let folder = tempfile::tempdir().unwrap();
        let mut gone = program(folder.path(), "");
        gone.program = folder.path().join("no such program");
        assert!(gone.start(node()).await.unwrap_err().contains("does not start"));
    }

    #[tokio::test]
    async fn what_a_program_leaves_running_may_keep_its_outputs_open() {
        let folder = tempfile::tempdir().unwrap();
        let left = folder.path().join("left");
        let script = format!("sleep 600 & echo $! > '{}'; echo '{{\"ok\": true}}'", left.display());
        assert_eq!(program(folder.path(), &script).start(node()).await, Ok(()));
        let pid: u32 = std::fs::read_to_string(&left).unwrap().trim().parse().unwrap();
        assert!(std::path::Path::new(&format!("/proc/{pid}")).exists(), "it may go on");
        let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        rustix::process::kill_process(pid, Signal::KILL).unwrap();
    }

    #[tokio::test]
    async fn a_program_that_hangs_is_killed_with_all_that_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let script = "sleep 1000 & echo $! > \"$(dirname \"$0\")/pid\"; wait";
        let it = Program { timeout: Duration::from_millis(500), ..program(folder.path(), script) };
        let why = it.start(node()).await.unwrap_err();
        assert!(why.contains("did not end within 500ms, and was killed"), "{why}");
        let pid = std::fs::read_to_string(folder.path().join("pid")).unwrap();
        let pid: i32 = pid.trim().parse().unwrap();
        let until = std::time::Instant::now() + Duration::from_secs(10);
        while processes::stat(pid).is_some_and(|it| it.runs) {
            assert!(std::time::Instant::now() < until, "{pid} runs");
            tokio::task::yield_now().await;
        }
    }
}
