//! `ringctl session open`.

use super::items::{absolute, cycle_warning, cycles};
use super::show::{self, Opened};
use super::{CallArguments, attribute, attributes_once, grace, request_id};
use crate::failure::OutcomeUnknown;
use crate::length_of_time::length_of_time;
use crate::output::{Format, Out, for_terminals, plain_table};
use crate::task::at::now;
use anyhow::Context;
use clap::Args;
use rota_client::{Client, v1};
use std::time::Duration;

/// `session open`.
#[derive(Args, Debug)]
pub struct OpenArguments {
    /// Id of the session: 1 to 255 bytes, no control characters.
    id: String,
    /// What to run.
    #[arg(long)]
    class: String,
    /// An attribute of a new session; may be given several times.
    #[arg(long = "attr", value_name = "NAME=VALUE", value_parser = attribute)]
    attributes: Vec<(String, String)>,
    /// Pool whose nodes may run it [default: as its class says, or default].
    #[arg(long, default_value = "", hide_default_value = true)]
    pool: String,
    /// Name of this request: repeating it repeats the answer (for 10 minutes).
    #[arg(long, default_value = "", hide_default_value = true)]
    request_id: String,
    #[command(flatten)]
    life: LifeArguments,
    #[command(flatten)]
    call: CallArguments,
}

/// How long a new session lives, and what comes after, where it is not to be as its class says.
#[derive(Args, Debug)]
struct LifeArguments {
    /// Close it when nobody used it for so long, as in 30m [default: as its class says].
    #[arg(long, value_name = "DURATION", value_parser = length_of_time)]
    idle: Option<Duration>,
    /// Close it so long after its life began, as in 8h [default: as its class says].
    #[arg(long, value_name = "DURATION", value_parser = length_of_time)]
    max_life: Option<Duration>,
    /// So long it may take to become READY [default: as its class says].
    #[arg(long, value_name = "DURATION", value_parser = length_of_time)]
    start_timeout: Option<Duration>,
    /// So long its program may take to end where a close says nothing, up to 5m [default: as its class says].
    #[arg(long, value_name = "DURATION", value_parser = grace)]
    close_grace: Option<Duration>,
    /// Start it again so often in a row after a bad end [default: as its class says].
    #[arg(long, value_name = "N")]
    restarts: Option<u32>,
    /// A life-cycle item of a new session, as in 'reminder note@+2s'; may be given several times.
    #[arg(long = "life", value_name = "ITEM")]
    items: Vec<String>,
}

/// Milliseconds of a length of time; a part of one counts as a whole, so that nothing becomes 0.
fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

impl LifeArguments {
    /// What is asked for; `None`: all is as the class says.
    fn to_wire(&self) -> Option<v1::LifeOptions> {
        let asked = v1::LifeOptions {
            idle_ms: self.idle.map(millis),
            max_life_ms: self.max_life.map(millis),
            start_timeout_ms: self.start_timeout.map(millis),
            close_grace_ms: self.close_grace.map(millis),
            restarts: self.restarts,
            managed_state: self.items.clone(),
        };
        (asked != v1::LifeOptions::default()).then_some(asked)
    }
}

fn opened(answer: &v1::OpenResponse) -> anyhow::Result<Opened> {
    Opened::of(answer).context("the answer has no session")
}

/// Life cycles of a new session that wait for each other. One that lived already has others.
fn new_cycles(asked: &v1::OpenRequest, answer: &v1::OpenResponse) -> Vec<String> {
    let items = asked.life.as_ref().filter(|_| answer.outcome() == v1::Outcome::Created);
    items.map_or_else(Vec::new, |it| cycles(&it.managed_state, now()))
}

/// Options on the life of a session that lived already and has another, or of which its answer does not tell.
fn not_taken(asked: &v1::OpenRequest, answer: &v1::OpenResponse) -> Vec<&'static str> {
    let found = answer.session.as_ref().filter(|_| answer.outcome() == v1::Outcome::Existed);
    let (Some(session), Some(life)) = (found, &asked.life) else { return Vec::new() };
    let v1::LifeOptions {
        idle_ms, max_life_ms, start_timeout_ms, close_grace_ms, restarts, ..
    } = life;
    let options = [
        ("--idle", idle_ms.is_some() && *idle_ms != session.idle_ms),
        ("--max-life", max_life_ms.is_some() && *max_life_ms != session.max_life_ms),
        ("--start-timeout", start_timeout_ms.is_some()),
        ("--close-grace", close_grace_ms.is_some()),
        ("--restarts", restarts.is_some()),
        ("--life", !life.managed_state.is_empty()),
    ];
    options.into_iter().filter(|it| it.1).map(|it| it.0).collect()
}

/// Finds the live session of an id, or starts one.
pub async fn run(client: &Client, it: &OpenArguments, out: &mut Out) -> anyhow::Result<()> {
    let mut life = it.life.to_wire();
    if let Some(asked) = &mut life {
        asked.managed_state = absolute(&asked.managed_state)?;
    }
    let request = v1::OpenRequest {
        namespace: it.call.namespace.clone(),
        id: it.id.clone(),
        class: it.class.clone(),
        attributes: attributes_once(&it.attributes)?,
        pool: it.pool.clone(),
        request_id: request_id(client, &it.request_id),
        life,
    };
    let unknown = OutcomeUnknown::Request(request.request_id.clone());
    let answer = client.open(request.clone(), it.call.timeout).await;
    let answer = answer.map_err(|error| unknown.unless_refused(error))?;
    let of_life = not_taken(&request, &answer);
    let warnings = [
        show::ended_since(&answer),
        show::found_otherwise(&request, &answer, &of_life),
        show::found_in_doubt(&answer),
        show::created_with_remark(&answer),
    ];
    let not_taken = [show::options_otherwise(&request, &answer), of_life].concat();
    let opened = Opened { cycles: new_cycles(&request, &answer), not_taken, ..opened(&answer)? };
    opened.cycles.iter().for_each(|it| eprintln!("{}", for_terminals(&cycle_warning(it))));
    match out.format() {
        Format::Json => out.json(&opened)?,
        Format::Table => {
            let mut table =
                plain_table(["ID", "OUTCOME", "STATE", "ADDRESS", "NODE", "OWNER", "EPOCH"]);
            table.add_row([
                opened.id,
                opened.outcome,
                opened.state,
                opened.address,
                opened.node.id,
                opened.owner.to_string(),
                opened.epoch.to_string(),
            ]);
            out.table(&table)?;
            // A program goes by the document.
            warnings.iter().flatten().for_each(|it| eprintln!("{}", for_terminals(it)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use crate::session::SessionCommand;
    use clap::Parser;

    fn asked(options: &[&str]) -> Option<v1::LifeOptions> {
        let line = ["ringctl", "session", "open", "a", "--class", "c"].iter().chain(options);
        let cli = Cli::try_parse_from(line).unwrap();
        let Command::Session(SessionCommand::Open(open)) = cli.command else {
            panic!("another command")
        };
        open.life.to_wire()
    }

    #[test]
    fn an_open_asks_for_nothing_of_a_life_unless_an_option_says_so() {
        assert_eq!(asked(&[]), None);
        let options = "--idle 30m --max-life 8h --start-timeout 20s --close-grace 0s --restarts 0";
        let options: Vec<&str> =
            options.split(' ').chain(["--life", "a b@+2s", "--life", "c d"]).collect();
        let expected = v1::LifeOptions {
            idle_ms: Some(1_800_000),
            max_life_ms: Some(28_800_000),
            start_timeout_ms: Some(20_000),
            close_grace_ms: Some(0),
            restarts: Some(0),
            managed_state: vec!["a b@+2s".to_owned(), "c d".to_owned()],
        };
        assert_eq!(asked(&options), Some(expected));
        assert_eq!(asked(&["--idle", "1us"]).unwrap().idle_ms, Some(1));
    }

    #[test]
    fn options_on_its_life_that_a_session_did_not_take_are_named() {
        let life =
            asked(&["--idle", "30m", "--max-life", "8h", "--restarts", "0", "--life", "c d"]);
        let request = v1::OpenRequest { life, ..Default::default() };
        let answer = |outcome: v1::Outcome| v1::OpenResponse {
            outcome: outcome.into(),
            session: Some(v1::Session { idle_ms: Some(1_800_000), ..Default::default() }),
            ..Default::default()
        };
        let existed = answer(v1::Outcome::Existed);
        assert_eq!(not_taken(&request, &existed), ["--max-life", "--restarts", "--life"]);
        assert_eq!(not_taken(&request, &answer(v1::Outcome::Created)), [""; 0]);
        assert_eq!(not_taken(&v1::OpenRequest::default(), &existed), [""; 0]);
    }
}
