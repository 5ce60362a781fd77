//! Where a session belongs and why: `ringctl explain`.
//!
//! ```text
//!   id ── hash ──▶ slot ── View ──▶ partition, owner, copies ──┐
//!   any manager ── Get ──▶ the record: state, node ────────────┴──▶ Explained: facts and reasons
//! ```

mod reasons;

use crate::connect;
use crate::failure::UsageMistake;
use crate::inspect::{ask, join, newest_view, waiting_text};
use crate::length_of_time::length_of_time;
use crate::output::{Format, Out};
use crate::session::Shown;
use anyhow::Context;
use clap::Args;
use rota_client::v1;
use rota_model::{Namespace, SessionId, SessionKey};
use rota_ring::View;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// `explain`.
#[derive(Args, Debug)]
pub struct ExplainArguments {
    /// Id of the session; it need not exist.
    id: String,
    /// Namespace of the id.
    #[arg(long, default_value = "default")]
    namespace: String,
    /// How long each manager may take to answer.
    #[arg(long, default_value = "2s", value_parser = length_of_time)]
    timeout: Duration,
}

/// What it means to wait.
const WAITING_WHY: &str =
    "sessions of this partition that no node has taken yet; an open that waits has no record";

/// The JSON document. Every `why` is a sentence for people.
#[derive(Serialize, PartialEq, Debug)]
pub struct Explained {
    pub id: String,
    pub namespace: String,
    /// What is hashed, beside the namespace: the id, or its part in braces.
    pub placed_by: String,
    pub slot: u32,
    pub slots: u32,
    /// Of the View that everything here is from.
    pub view_epoch: u64,
    pub partition: Partition,
    pub owner: Owner,
    /// Who holds a copy, holds one still, or should hold one; in ring order from the home.
    pub copies: Vec<Copy>,
    /// Unset when there is none, or when nobody could say.
    pub session: Option<Shown>,
    /// Whether somebody could say.
    pub session_known: bool,
    /// Why the session is in that state, or why there is none to show.
    pub session_why: String,
    pub node: Option<Node>,
}

/// The partition of the slot.
#[derive(Serialize, PartialEq, Debug)]
pub struct Partition {
    /// Its home: the first number at or after the slot.
    pub home: u32,
    pub home_status: String,
    pub first_slot: u32,
    pub last_slot: u32,
    /// active or recovering.
    pub state: String,
    /// What was found when no copy was known to be complete, if that ever happened.
    pub recovered: Option<String>,
    /// Epoch of the change that last touched its owner, copies or range.
    pub epoch: u64,
    /// Sessions of this partition that wait for a node, by pool; empty when its owner did not answer.
    pub waiting: BTreeMap<String, u64>,
}

/// Who decides about the session.
#[derive(Serialize, PartialEq, Debug)]
pub struct Owner {
    pub number: u32,
    pub grpc: String,
    /// serving, syncing, ...; unset when it did not answer.
    pub role: Option<String>,
    pub why: String,
}

/// A copy, or one that is missing.
#[derive(Serialize, PartialEq, Debug)]
pub struct Copy {
    pub number: u32,
    /// Whether it certainly holds every committed write.
    pub in_sync: bool,
    pub role: Option<String>,
    /// Entries behind the owner.
    pub lag: Option<u64>,
    pub why: String,
}

/// Where the session runs or ran.
#[derive(Serialize, PartialEq, Debug)]
pub struct Node {
    pub id: String,
    pub address: String,
    /// READY, LOST, ...; unset when no manager knows it any more.
    pub state: Option<String>,
    pub why: String,
}

/// Asks the ring, and explains.
pub async fn run(it: &ExplainArguments, endpoint: &str, out: &mut Out) -> anyhow::Result<()> {
    let key = key_of(it)?;
    let client = connect::client(endpoint, out.format())?;
    let answers = connect::told(endpoint, ask(&client, it.timeout)).await?;
    let (Some(ring), Some(view)) = (join(&answers), newest_view(&answers)) else {
        anyhow::bail!("the manager has no View yet");
    };
    let view = View::try_from(view.clone()).context("a manager's View cannot be read")?;
    let request =
        v1::GetRequest { namespace: it.namespace.clone(), id: it.id.clone(), stale_ok: false };
    let session = match client.get(request, it.timeout).await {
        Ok(answer) => Ok(answer.session.as_ref().map(Shown::of)),
        Err(error) if error.reason() == "NOT_FOUND" => Ok(None),
        Err(error) => Err(error.to_string()),
    };
    let explained = reasons::explain(&key, &view, &ring, session);
    match out.format() {
        Format::Json => out.json(&explained)?,
        Format::Table => out.text(&explained.text())?,
    }
    Ok(())
}

fn key_of(it: &ExplainArguments) -> Result<SessionKey, UsageMistake> {
    let namespace = Namespace::parse(&it.namespace);
    let namespace = namespace.map_err(|error| UsageMistake(format!("--namespace: {error}")))?;
    let id = SessionId::parse(&it.id).map_err(|error| UsageMistake(format!("id: {error}")))?;
    Ok(SessionKey::new(namespace, id))
}

impl Explained {
    /// For people: a fact a line, its reason below.
    fn text(&self) -> String {
        let Partition {
            home,
            home_status,
            first_slot,
            last_slot,
            state,
            recovered,
            epoch,
            waiting,
        } = &self.partition;
        let mut lines = vec![format!("{}/{}", self.namespace, self.id)];
        let mut say = |what: &str, fact: String, why: &str| {
            lines.push(format!("  {what:<10}{fact}"));
            if !why.is_empty() {
                lines.push(format!("  {:<10}  {why}", ""));
            }
        };
        let by = if self.placed_by == self.id {
            "by the hash of namespace and id".to_owned()
        } else {
            format!("by the hash of namespace and {:?}, the part in braces", self.placed_by)
        };
        say("slot", format!("{} of {}, {by}", self.slot, self.slots), "");
        let slots = format!("slots {first_slot} to {last_slot}, {state}, epoch {epoch}");
        say(
            "partition",
            format!("{home} ({slots})"),
            "its number is the first at or after the slot",
        );
        if let Some(account) = recovered {
            say("", account.clone(), "");
        }
        if !waiting.is_empty() {
            say("waiting", format!("for a node: {}", waiting_text(waiting)), WAITING_WHY);
        }
        say("home", format!("manager {home}, {home_status}"), "");
        let Owner { number, grpc, role, why } = &self.owner;
        let role = role.as_deref().unwrap_or("silent");
        say("owner", format!("manager {number} at {grpc}, {role}"), why);
        for copy in &self.copies {
            let in_sync = if copy.in_sync { "in sync" } else { "not in sync" };
            let behind = copy.lag.filter(|it| *it > 0);
            let behind = behind.map(|it| format!(", {it} entries behind")).unwrap_or_default();
            say("copy", format!("manager {}, {in_sync}{behind}", copy.number), &copy.why);
        }
        let fact = match &self.session {
            Some(it) if it.reason.is_empty() => format!("{}, life {}", it.state, it.life),
            Some(it) => format!("{} ({}), life {}", it.state, it.reason, it.life),
            None if self.session_known => "none".to_owned(),
            None => "unknown".to_owned(),
        };
        say("session", fact, &self.session_why);
        if let Some(node) = &self.node {
            let state = node.state.as_deref().unwrap_or("not registered");
            say("node", format!("{} at {}, {state}", node.id, node.address), &node.why);
        }
        lines.push(String::new());
        lines.join("\n")
    }
}
