//! An action of a session: which program, what it is given, and how its end is told.

use super::{Actions, Gate, run};
use crate::class_folder;
use crate::keeper::once::{OnceEnd, OnceOrder};
use crate::limits::Bounds;
use crate::mailbox::Mailbox;
use crate::runtime::{ProgramSettings, Terms};
use rota_model::address::join;
use rota_model::node_msg::{ACTION_OUTPUT_BYTES_MAX, Action, ActionEnd};
use rota_model::{Exit, SessionKey, SessionSpec, Token};
use rota_node::NodeInput;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Longest variable with the attributes: the kernel takes 128 KiB for one.
const ATTRIBUTES_BYTES_MAX: usize = 100_000;

/// How long an action waits for others of the node to end. Its owner asks again after that, and asks for those of other
/// nodes meanwhile. With less, a node whose actions are short idles between questions.
const PERMIT_WAIT: Duration = Duration::from_secs(5);

const MIB: u64 = 1024 * 1024;

/// The code of an action for which the node has no room now.
const BUSY: &str = "BUSY";

/// What a node was asked to run.
pub struct Ask {
    /// Which session.
    pub key: SessionKey,
    /// Which attempt.
    pub token: Token,
    /// What the session runs.
    pub spec: SessionSpec,
    /// Which action.
    pub action: Action,
}

impl Ask {
    fn ended(&self, end: ActionEnd) -> NodeInput {
        let Action { life_cycle, word, .. } = self.action.clone();
        NodeInput::Acted { key: self.key.clone(), token: self.token, life_cycle, word, end }
    }
}

impl Actions {
    /// Runs an action; its end comes by mailbox. `Some` where it is known at once.
    pub fn act(
        &self,
        ask: Ask,
        settings: &Arc<ProgramSettings>,
        mailbox: &Mailbox,
    ) -> Option<NodeInput> {
        if !self.settings.allowed {
            return Some(
                ask.ended(failed("NOT-STARTED", "this node runs no actions (--no-actions)")),
            );
        }
        let Some(gate) = self.gate(&ask.key, ask.token) else {
            return Some(ask.ended(failed("NOT-RUNNING", "no program of it runs on this node")));
        };
        let (all, settings, mailbox) = (self.clone(), settings.clone(), mailbox.clone());
        let through = gate.clone();
        gate.spawn(async move {
            let end = all.to_its_end(&ask, &settings, &through).await;
            if let ActionEnd::Failed { code, report } = &end
                && code != BUSY
            {
                let Action { life_cycle, word, .. } = &ask.action;
                tracing::warn!(session = %ask.key, life_cycle, word, code, report, "an action failed");
            }
            mailbox.node(ask.ended(end)).await;
        });
        None
    }

    async fn to_its_end(&self, ask: &Ask, settings: &ProgramSettings, gate: &Gate) -> ActionEnd {
        let permit = tokio::select! {
            permit = timeout(PERMIT_WAIT, self.actions.acquire()) => permit,
            () = gate.ending() => return failed("NOT-RUNNING", "the session ended"),
        };
        let Ok(permit) = permit else {
            let most = self.settings.max;
            return failed(
                BUSY,
                &format!("{most} actions run on this node already (--actions-max)"),
            );
        };
        let found = self.find(ask, settings).await;
        let limit = |it: &Option<Found>| it.as_ref()?.memory_mib(&ask.action);
        let memory_mib = found.as_ref().ok().and_then(limit);
        let ordered = found.and_then(|it| it.map(|it| order(ask, settings, &it)).transpose());
        let end = match ordered {
            Ok(None) => return ActionEnd::Done { output: String::new() },
            Ok(Some(order)) => run(&order, settings, gate).await,
            Err(why) => Some(OnceEnd::NotStarted(why)),
        };
        drop(permit);
        told(end, memory_mib)
    }

    /// Its program, or nothing where the session's own version of the class only marks it. Looks at files, so nothing
    /// else of the node waits for it.
    async fn find(&self, ask: &Ask, settings: &ProgramSettings) -> Result<Option<Found>, String> {
        let local = self.settings.classes.clone();
        let (sessions, key, token) = (settings.sessions.clone(), ask.key.clone(), ask.token);
        let (class, action) = (ask.spec.class.clone(), ask.action.clone());
        let look = move || {
            let (folder, terms) = Terms::find(&sessions, &key, token)
                .ok_or("the terms of the session's program cannot be read")?;
            // As it was when the session began, whatever was published since.
            let classes = terms.root.clone().or(local);
            let classes = classes.ok_or("this node has no classes (--classes)")?;
            let (cycle, event) = (&action.life_cycle, action.event());
            if terms.marks.contains(cycle) {
                return Ok(None);
            }
            let program = class_folder::action(&classes, class.as_str(), cycle, event)?;
            Ok(Some(Found { folder, terms, program }))
        };
        let looked = tokio::task::spawn_blocking(look).await;
        looked.map_err(|error| format!("its program cannot be looked for: {error}"))?
    }
}

/// What an action is run by.
struct Found {
    folder: PathBuf,
    terms: Terms,
    program: PathBuf,
}

impl Found {
    /// What the class says of the memory of that action, in MiB.
    fn memory_mib(&self, action: &Action) -> Option<u32> {
        self.terms.action_memory_mib.get(&action.life_cycle).copied()
    }

    /// What each process of that action is bound by: never more than the session's program.
    fn bounds(&self, action: &Action, of_session: Bounds) -> Bounds {
        let own = self.memory_mib(action).map(|mib| u64::from(mib) * MIB);
        let memory_bytes = own.into_iter().chain(of_session.memory_bytes).min();
        Bounds { memory_bytes, ..of_session }
    }
}

fn order(ask: &Ask, settings: &ProgramSettings, found: &Found) -> Result<OnceOrder, String> {
    let Found { folder, terms, program } = found;
    let beside = beside(settings, folder, terms, "action")?;
    let bounds = found.bounds(&ask.action, beside.bounds.clone());
    let program = program.to_str().ok_or("the path of the action is not UTF-8")?;
    Ok(OnceOrder {
        argv: vec![program.to_owned()],
        env: variables(ask, &settings.host, terms)?,
        input: Some(ask.action.document.clone()),
        timeout_ms: ask.action.timeout_ms,
        output_bytes_max: Some(ACTION_OUTPUT_BYTES_MAX),
        bounds,
        ..beside
    })
}

/// What all programs have in common that run beside the one of a session.
///
/// # Errors
/// Why nothing can be run there.
pub fn beside(
    settings: &ProgramSettings,
    folder: &Path,
    terms: &Terms,
    name: &str,
) -> Result<OnceOrder, String> {
    if terms.env.is_empty() {
        return Err("its program was started by an agent that wrote no variables down".to_owned());
    }
    Ok(OnceOrder {
        folder: folder.to_owned(),
        name: name.to_owned(),
        argv: Vec::new(),
        env: terms.env.clone(),
        cwd: folder.join("work"),
        input: None,
        timeout_ms: 0,
        output_bytes_max: None,
        own: terms.own,
        bounds: Bounds { open_files: settings.open_files, ..terms.held.bounds().clone() },
        agent: i32::try_from(std::process::id()).map_err(|_| "pid out of range")?,
        slot: terms.slot,
        lease: settings.lease.clone(),
        lease_ms_max: settings.lease_ms_max,
    })
}

/// Those of the session's program, and what the action is about.
fn variables(ask: &Ask, host: &str, terms: &Terms) -> Result<BTreeMap<String, String>, String> {
    let action = &ask.action;
    let mut all = terms.env.clone();
    let told = [
        ("ROTA_LIFE", u64::from(action.life).to_string()),
        ("ROTA_LIFE_CYCLE", action.life_cycle.clone()),
        ("ROTA_EVENT", action.event().to_owned()),
        ("ROTA_EVENT_WORD", action.word.clone()),
        ("ROTA_ATTEMPT", u64::from(action.failures).saturating_add(1).to_string()),
    ];
    all.extend(told.map(|(name, value)| (name.to_owned(), value)));
    let address = terms.port.map(|port| ("ROTA_ADDRESS".to_owned(), join(host, port)));
    all.extend(address);
    let attributes = attributes_in(&action.document).filter(|it| it.len() <= ATTRIBUTES_BYTES_MAX);
    all.extend(attributes.map(|it| ("ROTA_ATTRIBUTES".to_owned(), it)));
    match all.iter().find(|(_, value)| value.contains('\0')) {
        Some((name, _)) => Err(format!("{name} would hold a NUL byte")),
        None => Ok(all),
    }
}

/// What a document of an action says of its session, as far as variables are concerned.
#[derive(Deserialize)]
struct Session<'a> {
    #[serde(borrow, default)]
    attributes: Option<&'a RawValue>,
}

/// The attributes of a session as they are now: those of its open may have changed. `None`: it is no session.
fn attributes_in(document: &str) -> Option<String> {
    let session: Session<'_> = serde_json::from_str(document).ok()?;
    Some(session.attributes.map_or("{}", RawValue::get).to_owned())
}

/// `memory_mib`: what its class says of its memory. A program that finds none ends in a way of its own.
fn told(end: Option<OnceEnd>, memory_mib: Option<u32>) -> ActionEnd {
    let bound = |report: &str| match memory_mib {
        Some(mib) => {
            format!("{}\na process of it may have {mib} MiB (memory_mib)", report.trim_end())
        }
        None => report.to_owned(),
    };
    match end {
        None => failed("SIGNAL-9", "its minder was killed, and it was killed too"),
        Some(OnceEnd::NotStarted(why)) => failed("NOT-STARTED", &why),
        Some(OnceEnd::TimedOut(report)) => failed("TIMEOUT", &report),
        Some(OnceEnd::TooMuch(report)) => {
            let most = format!("it printed more than {ACTION_OUTPUT_BYTES_MAX} bytes");
            failed("OUTPUT", format!("{}\n{most}", report.trim_end()).trim_start())
        }
        Some(OnceEnd::Cancelled) => failed("NOT-RUNNING", "the session ended"),
        Some(OnceEnd::Ended { exit, output, report }) => match (exit, output) {
            (Exit::Code(0), Some(output)) => ActionEnd::Done { output },
            (Exit::Code(0), None) => failed("OUTPUT", "what it printed is not UTF-8"),
            (Exit::Code(code), _) => failed(&format!("EXIT-{code}"), bound(&report).trim()),
            (Exit::Signal(signal), _) => failed(&format!("SIGNAL-{signal}"), bound(&report).trim()),
            (Exit::FinalState(state), _) => failed("NOT-STARTED", &format!("no program: {state}")),
        },
    }
}

pub(crate) fn failed(code: &str, report: &str) -> ActionEnd {
    ActionEnd::Failed { code: code.to_owned(), report: report.to_owned() }
}
