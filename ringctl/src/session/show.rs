//! Sessions as they are shown.

use super::times::{length, life_text, number, time};
use crate::output::{pairs, plain_table};
use comfy_table::Table;
use rota_client::v1;
use rota_model::SessionState;
use rustix::process::Signal;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// A node as a session names it.
#[derive(Serialize, Clone, PartialEq, Eq, Debug)]
pub struct ShownNode {
    /// Its id; empty for a life that found no node.
    pub id: String,
    /// Where managers reach it; empty when it is not registered any more.
    pub address: String,
    /// READY, UNREACHABLE, ... as the session's owner sees it; only in answers to gets and opens, of what has not
    /// ended.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub state: String,
    /// Beside `state`: how long ago the owner heard the node. Left out: not since it owns the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unheard_ms: Option<u64>,
}

/// The answer to an open.
#[derive(Serialize, PartialEq, Eq, Debug)]
pub struct Opened {
    pub id: String,
    pub outcome: String,
    pub state: String,
    pub address: String,
    pub node: ShownNode,
    pub owner: u32,
    pub epoch: u64,
    pub version: u64,
    pub namespace: String,
    pub life: u64,
    /// What runs: of a session that was found, not always what was asked for.
    pub class: String,
    /// What its node had to say of it: an attribute that the class does not use.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// True: a repeated request id, and the life in its old answer has ended since, or is being closed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ended_since: bool,
    /// Life cycles of a new session that wait for each other, and none of which can fire by itself: each as "a, b".
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cycles: Vec<String>,
    /// Options that the session did not take, since it lived already.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_taken: Vec<&'static str>,
}

/// How a program or machine ended: one of the three.
#[derive(Serialize, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
pub enum ShownExit {
    Code(i32),
    Signal(i32),
    FinalState(String),
}

/// A session.
#[derive(Serialize, PartialEq, Eq, Debug)]
pub struct Shown {
    pub id: String,
    pub namespace: String,
    pub class: String,
    pub attributes: BTreeMap<String, String>,
    /// Once it has ended: what is kept of its attributes.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub attributes_digest: String,
    pub pool: String,
    pub state: String,
    /// Empty while it lives.
    pub reason: String,
    pub detail: String,
    pub exit: Option<ShownExit>,
    pub address: String,
    pub node: ShownNode,
    pub owner: u32,
    pub epoch: u64,
    pub life: u64,
    pub version: u64,
    /// Empty for programs.
    pub machine_state: String,
    /// Closed when nobody used it for so long, in milliseconds; left out: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_ms: Option<u64>,
    /// Closed so long after its life began, in milliseconds; left out: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_life_ms: Option<u64>,
    /// How many restarts in a row led to this life; left out: none.
    #[serde(skip_serializing_if = "is_zero")]
    pub restarts: u64,
    /// When another life begins, as a stamp; left out: none does.
    #[serde(skip_serializing_if = "is_zero")]
    pub restart_at: u64,
    /// How many of its actions have failed and not succeeded since; `session life` shows them.
    #[serde(skip_serializing_if = "is_zero")]
    pub failed_actions: u64,
    /// Only in the answer to a get: whether the owner confirmed it with its copies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stale: Option<bool>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The answer to a close.
#[derive(Serialize, PartialEq, Eq, Debug)]
pub struct Closed {
    pub finished: bool,
    #[serde(flatten)]
    pub session: Shown,
}

/// The answer to a list.
#[derive(Serialize, PartialEq, Eq, Debug)]
pub struct Listed {
    pub sessions: Vec<Shown>,
    /// Whether an owner did not confirm its part with its copies.
    pub stale: bool,
}

/// The answer to an event.
#[derive(Serialize, PartialEq, Eq, Debug)]
pub struct Moved {
    pub id: String,
    pub from: String,
    pub to: String,
    pub changes: u64,
    #[serde(rename = "final")]
    pub is_final: bool,
}

/// Printed form of a session state.
pub fn state_name(state: i32) -> String {
    let named = v1::SessionState::try_from(state).map(|it| it.as_str_name());
    without_prefix(named.ok(), "SESSION_STATE_")
}

fn without_prefix(name: Option<&str>, prefix: &str) -> String {
    let name = name.unwrap_or_default();
    match name.strip_prefix(prefix).unwrap_or(name) {
        "UNSPECIFIED" => String::new(),
        rest => rest.to_owned(),
    }
}

/// Wire form of a session state.
pub fn state_to_wire(state: SessionState) -> i32 {
    let name = format!("SESSION_STATE_{}", state.as_str());
    v1::SessionState::from_str_name(&name).unwrap_or_default().into()
}

fn node(session: &v1::Session) -> ShownNode {
    ShownNode {
        id: session.node_id.clone(),
        address: session.node_address.clone(),
        state: session.node_state.clone(),
        unheard_ms: session.node_unheard_ms,
    }
}

impl ShownNode {
    /// Why what is told of a session there may be old, for people; empty while there is no doubt.
    pub fn doubt(&self) -> String {
        let heard = match self.unheard_ms {
            Some(ms) => {
                let seconds = Duration::from_millis(ms).as_secs_f64();
                format!("its owner heard it {seconds:.1} s ago")
            }
            None => "its owner has not heard it since it owns the session".to_owned(),
        };
        match (self.state.as_str(), self.unheard_ms) {
            (UNREACHABLE, _) => format!("{UNREACHABLE}, {heard}"),
            ("", _) | (_, Some(_)) => String::new(),
            (_, None) => heard,
        }
    }
}

const UNREACHABLE: &str = "UNREACHABLE";

fn exit(exit: &v1::Exit) -> Option<ShownExit> {
    match exit.how.as_ref()? {
        v1::exit::How::Code(code) => Some(ShownExit::Code(*code)),
        v1::exit::How::Signal(signal) => Some(ShownExit::Signal(*signal)),
        v1::exit::How::FinalState(state) => Some(ShownExit::FinalState(state.clone())),
    }
}

/// The name of a signal, of those that programs end by.
fn signal_name(number: i32) -> Option<&'static str> {
    let names = [
        (Signal::HUP, "HUP"),
        (Signal::INT, "INT"),
        (Signal::QUIT, "QUIT"),
        (Signal::ILL, "ILL"),
        (Signal::TRAP, "TRAP"),
        (Signal::ABORT, "ABRT"),
        (Signal::BUS, "BUS"),
        (Signal::FPE, "FPE"),
        (Signal::KILL, "KILL"),
        (Signal::USR1, "USR1"),
        (Signal::SEGV, "SEGV"),
        (Signal::USR2, "USR2"),
        (Signal::PIPE, "PIPE"),
        (Signal::ALARM, "ALRM"),
        (Signal::TERM, "TERM"),
        (Signal::XCPU, "XCPU"),
        (Signal::XFSZ, "XFSZ"),
        (Signal::SYS, "SYS"),
    ];
    names.into_iter().find(|it| it.0.as_raw() == number).map(|it| it.1)
}

impl Opened {
    /// `None` when the answer has no session.
    pub fn of(answer: &v1::OpenResponse) -> Option<Self> {
        let session = answer.session.as_ref()?;
        let outcome = v1::Outcome::try_from(answer.outcome).map(|it| it.as_str_name());
        Some(Self {
            id: session.id.clone(),
            outcome: without_prefix(outcome.ok(), "OUTCOME_"),
            state: state_name(session.state),
            address: session.address.clone(),
            node: node(session),
            owner: session.owner,
            epoch: session.epoch,
            version: session.version,
            namespace: session.namespace.clone(),
            life: session.life,
            class: session.class.clone(),
            detail: session.detail.clone(),
            ended_since: answer.ended_since,
            cycles: Vec::new(),
            not_taken: Vec::new(),
        })
    }
}

/// What a person is told who repeats a request whose session is gone.
pub fn ended_since(answer: &v1::OpenResponse) -> Option<String> {
    let session = answer.session.as_ref().filter(|_| answer.ended_since)?;
    Some(format!(
        "warning: this is what the request id was answered before: that life of session {:?} has ended since, \
         or is being closed. Open it with another request id, or without one",
        session.id
    ))
}

/// What a person is told who found a session on a node that is out of reach.
pub fn found_in_doubt(answer: &v1::OpenResponse) -> Option<String> {
    let session = answer.session.as_ref()?;
    let node = Some(node(session)).filter(|it| it.state == UNREACHABLE)?;
    let (id, doubt) = (&session.id, node.doubt());
    Some(format!("warning: node {} is {doubt}: session {id:?} may have ended", node.id))
}

/// What a person is told of a new session, if its node had a remark on it.
pub fn created_with_remark(answer: &v1::OpenResponse) -> Option<String> {
    let session = answer.session.as_ref()?;
    let is_new = answer.outcome() == v1::Outcome::Created && !session.detail.is_empty();
    is_new.then(|| format!("warning: {}", session.detail))
}

/// What is known of a close that has not finished. `grace_ms` is what it gave, if anything.
pub fn why_unfinished(session: &v1::Session, grace_ms: Option<u64>) -> String {
    let node = node(session);
    let heard = match node.unheard_ms {
        Some(ms) => format!("was heard {:.1} s ago", Duration::from_millis(ms).as_secs_f64()),
        None => "has not been heard since its owner owns the session".to_owned(),
    };
    let id = &node.id;
    let silent = node.state == UNREACHABLE || node.unheard_ms.is_none();
    let why = if silent {
        format!("node {id} was asked to end it, {heard} and does not answer")
    } else {
        let grace = match grace_ms {
            Some(ms) => format!("at most {:.1} s", Duration::from_millis(ms).as_secs_f64()),
            None => "that of its class, or of an earlier close".to_owned(),
        };
        format!(
            "node {id} was asked to end it and {heard}; its program uses its grace ({grace}), \
             `--grace` or `--force` may shorten that"
        )
    };
    format!("{why}; its owner keeps at it")
}

/// In what the live session that was found is another than was asked for: the option, and what a person is told.
fn differences(asked: &v1::OpenRequest, answer: &v1::OpenResponse) -> Vec<(&'static str, String)> {
    let found = answer.session.as_ref().filter(|_| answer.outcome() == v1::Outcome::Existed);
    let Some(session) = found else { return Vec::new() };
    let mut differs = Vec::new();
    if asked.class != session.class {
        differs.push(("--class", format!("its class is {}, not {}", session.class, asked.class)));
    }
    if !asked.pool.is_empty() && asked.pool != session.pool {
        differs.push(("--pool", format!("its pool is {}, not {}", session.pool, asked.pool)));
    }
    let others = |(name, value): &(&String, &String)| session.attributes.get(*name) != Some(*value);
    let names = asked.attributes.iter().filter(others).map(|it| it.0.as_str());
    let names: Vec<&str> = names.collect();
    if !names.is_empty() {
        differs.push(("--attr", format!("it was not opened with the given {}", names.join(", "))));
    }
    differs
}

/// Options, those on its life aside, that the live session that was found did not take.
pub fn options_otherwise(asked: &v1::OpenRequest, answer: &v1::OpenResponse) -> Vec<&'static str> {
    differences(asked, answer).into_iter().map(|it| it.0).collect()
}

/// What a person is told who asked for something else than the live session that was found. `not_taken`: options on
/// its life.
pub fn found_otherwise(
    asked: &v1::OpenRequest,
    answer: &v1::OpenResponse,
    not_taken: &[&str],
) -> Option<String> {
    let mut differs: Vec<String> = differences(asked, answer).into_iter().map(|it| it.1).collect();
    if !not_taken.is_empty() {
        differs.push(format!("it does not take {}", not_taken.join(", ")));
    }
    let (id, differs_in) = (&asked.id, differs.join("; "));
    let text = format!("warning: session {id:?} lived already and stays as it is: {differs_in}");
    (!differs.is_empty()).then_some(text)
}

impl Shown {
    /// All that the wire says.
    pub fn of(session: &v1::Session) -> Self {
        let reason = v1::Reason::try_from(session.reason).map(|it| it.as_str_name());
        let attributes = session.attributes.iter();
        Self {
            id: session.id.clone(),
            namespace: session.namespace.clone(),
            class: session.class.clone(),
            attributes: attributes.map(|(name, value)| (name.clone(), value.clone())).collect(),
            attributes_digest: session.attributes_digest.clone(),
            pool: session.pool.clone(),
            state: state_name(session.state),
            reason: without_prefix(reason.ok(), "REASON_"),
            detail: session.detail.clone(),
            exit: session.exit.as_ref().and_then(exit),
            address: session.address.clone(),
            node: node(session),
            owner: session.owner,
            epoch: session.epoch,
            life: session.life,
            version: session.version,
            machine_state: session.machine_state.clone(),
            idle_ms: session.idle_ms,
            max_life_ms: session.max_life_ms,
            restarts: session.restarts.into(),
            restart_at: session.restart_at,
            failed_actions: session.failed_actions.into(),
            stale: None,
        }
    }

    /// How it ended, for people; empty while it lives.
    pub fn exit_text(&self) -> String {
        match &self.exit {
            None => String::new(),
            Some(ShownExit::Code(code)) => {
                // What a shell makes of a signal that ended what it ran.
                let signal = signal_name(code - 128).map(|it| format!(" (128 and {it})"));
                format!("exit code {code}{}", signal.unwrap_or_default())
            }
            Some(ShownExit::Signal(signal)) => {
                let name = signal_name(*signal).map(|it| format!(" ({it})")).unwrap_or_default();
                format!("signal {signal}{name}")
            }
            Some(ShownExit::FinalState(state)) => format!("final state {state}"),
        }
    }
}

/// A table of one session: a line per field.
pub fn one(shown: &Shown) -> Table {
    let mut table = plain_table(["FIELD", "VALUE"]);
    let mut attributes = pairs(&shown.attributes);
    if !shown.attributes_digest.is_empty() {
        attributes.push(format!("not kept; digest {}", shown.attributes_digest));
    }
    let failed = match shown.failed_actions {
        0 => String::new(),
        failed => format!("{failed} (see session life)"),
    };
    let rows = [
        ("id", shown.id.clone()),
        ("namespace", shown.namespace.clone()),
        ("class", shown.class.clone()),
        ("pool", shown.pool.clone()),
        ("attributes", attributes.join(" ")),
        ("state", shown.state.clone()),
        ("reason", shown.reason.clone()),
        ("detail", shown.detail.clone()),
        ("exit", shown.exit_text()),
        ("address", shown.address.clone()),
        ("machine state", shown.machine_state.clone()),
        ("node", format!("{} {}", shown.node.id, shown.node.address)),
        ("node state", shown.node.doubt()),
        ("owner", format!("{} (epoch {})", shown.owner, shown.epoch)),
        ("life", shown.life.to_string()),
        ("version", shown.version.to_string()),
        ("idle", shown.idle_ms.map_or_else(String::new, length)),
        ("max life", shown.max_life_ms.map_or_else(String::new, length)),
        ("restarts", number(shown.restarts)),
        ("restart at", time(shown.restart_at)),
        ("failed actions", failed),
    ];
    for (field, value) in rows {
        if !value.trim().is_empty() {
            table.add_row([field.to_owned(), value]);
        }
    }
    if shown.stale == Some(true) {
        table.add_row(["stale", "yes: not confirmed with the copies"]);
    }
    table
}

/// A table of sessions: a line each. What holds for their lives stands last, where it holds for one of them.
pub fn many(shown: &[Shown]) -> Table {
    let has_lives = shown.iter().any(|it| !life_text(it).is_empty());
    let mut header =
        vec!["NAMESPACE", "ID", "CLASS", "STATE", "REASON", "ADDRESS", "NODE", "OWNER"];
    header.extend(has_lives.then_some("LIFE"));
    let mut table = plain_table(header);
    for it in shown {
        let (owner, life) = (it.owner.to_string(), life_text(it));
        let (namespace, id, class) = (&it.namespace, &it.id, &it.class);
        let state = match it.machine_state.as_str() {
            "" => it.state.clone(),
            machine => format!("{} ({machine})", it.state),
        };
        let mut row =
            vec![namespace, id, class, &state, &it.reason, &it.address, &it.node.id, &owner];
        row.extend(has_lives.then_some(&life));
        table.add_row(row);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> v1::Session {
        v1::Session {
            namespace: "default".to_owned(),
            id: "a".to_owned(),
            class: "counter".to_owned(),
            state: v1::SessionState::Ready.into(),
            address: "127.0.0.1:9".to_owned(),
            node_id: "n1".to_owned(),
            node_address: "127.0.0.1:8".to_owned(),
            owner: 341,
            epoch: 4,
            life: 260_101_000_000_001,
            version: 260_101_000_000_002,
            ..Default::default()
        }
    }

    #[test]
    fn an_opened_session_is_printed_with_exactly_these_fields_in_this_order() {
        let outcome = v1::Outcome::Created.into();
        let (session, ended_since) = (Some(session()), false);
        let answer = v1::OpenResponse { outcome, session, ended_since };
        let text = serde_json::to_string(&Opened::of(&answer).unwrap()).unwrap();
        assert_eq!(
            text,
            "{\"id\":\"a\",\"outcome\":\"CREATED\",\"state\":\"READY\",\
             \"address\":\"127.0.0.1:9\",\"node\":{\"id\":\"n1\",\"address\":\"127.0.0.1:8\"},\
             \"owner\":341,\"epoch\":4,\"version\":260101000000002,\"namespace\":\"default\",\
             \"life\":260101000000001,\"class\":\"counter\"}"
        );
    }

    #[test]
    fn a_node_that_is_out_of_reach_is_told_with_how_long_ago_it_was_heard() {
        let of = |state: &str, node_unheard_ms| {
            let session = v1::Session { node_state: state.into(), node_unheard_ms, ..session() };
            let outcome = v1::Outcome::Existed.into();
            let answer =
                v1::OpenResponse { outcome, session: Some(session.clone()), ended_since: false };
            (Shown::of(&session).node.doubt(), found_in_doubt(&answer))
        };
        assert_eq!(of("READY", Some(12)), (String::new(), None));
        assert_eq!(of("", None), (String::new(), None));
        let (doubt, warning) = of("UNREACHABLE", Some(4_200));
        assert_eq!(doubt, "UNREACHABLE, its owner heard it 4.2 s ago");
        assert!(warning.unwrap().ends_with("session \"a\" may have ended"));
        let (doubt, warning) = of("READY", None);
        assert!(doubt.contains("not heard it since") && warning.is_none(), "{doubt}");
        let node =
            v1::Session { node_state: "READY".into(), node_unheard_ms: Some(0), ..session() };
        let json = serde_json::to_value(Shown::of(&node)).unwrap();
        assert_eq!(
            (&json["node"]["state"], &json["node"]["unheard_ms"]),
            (&"READY".into(), &0.into())
        );
    }

    #[test]
    fn whoever_finds_another_class_pool_or_attribute_than_was_asked_for_is_told() {
        let asked = v1::OpenRequest {
            id: "a".to_owned(),
            class: "http".to_owned(),
            attributes: [("k".to_owned(), "v".to_owned())].into(),
            ..Default::default()
        };
        let answer = |outcome: v1::Outcome, session| {
            let (outcome, ended_since) = (outcome.into(), false);
            v1::OpenResponse { outcome, session, ended_since }
        };
        let existed = answer(v1::Outcome::Existed, Some(session()));
        let text = found_otherwise(&asked, &existed, &["--idle"]).unwrap();
        assert!(text.contains("its class is counter, not http"), "{text}");
        assert!(text.ends_with("with the given k; it does not take --idle"), "{text}");
        assert!(!text.contains("pool"), "{text}");
        let same = v1::OpenRequest { class: "counter".to_owned(), ..Default::default() };
        assert_eq!(found_otherwise(&same, &existed, &[]), None);
        let created = answer(v1::Outcome::Created, Some(session()));
        assert_eq!(found_otherwise(&asked, &created, &[]), None);
    }

    #[test]
    fn an_ended_session_tells_its_reason_and_exit() {
        let ended = v1::Session {
            state: v1::SessionState::Closed.into(),
            reason: v1::Reason::Exited.into(),
            exit: Some(v1::Exit { how: Some(v1::exit::How::Signal(9)) }),
            ..session()
        };
        let shown = serde_json::to_value(Shown::of(&ended)).unwrap();
        assert_eq!(shown["state"], "CLOSED");
        assert!(shown.get("attributes_digest").is_none(), "it had no attributes");
        assert_eq!(shown["reason"], "EXITED");
        assert_eq!(shown["exit"]["signal"], 9);
    }

    #[test]
    fn a_person_reads_the_name_of_the_signal_that_ended_a_program() {
        let text = |how| {
            let exit = Some(v1::Exit { how: Some(how) });
            Shown::of(&v1::Session { exit, ..session() }).exit_text()
        };
        assert_eq!(text(v1::exit::How::Signal(9)), "signal 9 (KILL)");
        assert_eq!(text(v1::exit::How::Signal(64)), "signal 64");
        assert_eq!(text(v1::exit::How::Code(143)), "exit code 143 (128 and TERM)");
        assert_eq!(text(v1::exit::How::Code(7)), "exit code 7");
        assert_eq!(text(v1::exit::How::FinalState("off".into())), "final state off");
    }

    #[test]
    fn every_state_has_a_wire_form_and_comes_back() {
        for state in SessionState::ALL {
            assert_eq!(state_name(state_to_wire(*state)), state.as_str());
        }
        assert_eq!(state_name(0), "");
        assert_eq!(state_name(99), "");
    }

    #[test]
    fn what_holds_for_a_life_is_shown_where_it_is_set_and_nowhere_else() {
        let plain = session();
        let text = many(&[Shown::of(&plain)]).to_string();
        assert!(!text.contains("LIFE"), "{text}");
        let json = serde_json::to_string(&Shown::of(&plain)).unwrap();
        assert!(!json.contains("idle_ms") && !json.contains("restart"), "{json}");
        assert!(!json.contains("failed"), "{json}");
        let lively = v1::Session {
            idle_ms: Some(90_000),
            max_life_ms: Some(28_800_000),
            restarts: 2,
            restart_at: 260_101_000_001_000,
            failed_actions: 1,
            ..session()
        };
        let shown = Shown::of(&lively);
        let text = many(&[Shown::of(&plain), Shown::of(&lively)]).to_string();
        let said =
            "idle 1m 30s, max 8h, 2 restarts, again at 2026-01-01T00:00:01.000Z, 1 failed action";
        assert!(text.contains("LIFE") && text.contains(said), "{text}");
        let text = one(&shown).to_string();
        for said in ["1m 30s", "8h", "restarts", "2026-01-01T00:00:01.000Z", "1 (see session life)"]
        {
            assert!(text.contains(said), "{said}: {text}");
        }
        let json = serde_json::to_value(&shown).unwrap();
        let told = ["idle_ms", "max_life_ms", "restarts", "restart_at", "failed_actions"];
        let told = told.map(|it| json[it].as_u64());
        assert_eq!(told, [90_000, 28_800_000, 2, 260_101_000_001_000, 1].map(Some));
    }
}
