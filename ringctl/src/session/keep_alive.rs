//! `ringctl session keepalive`.

use super::own::life_meant;
use super::times::length;
use super::{CallArguments, Shown};
use crate::failure::Reported;
use crate::length_of_time::length_of_time;
use crate::output::{Format, Out, for_terminals, plain_table};
use anyhow::Context;
use clap::Args;
use rota_client::{CallError, Client, may_live_on, v1};
use rota_daemon::Stop;
use serde::Serialize;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};

/// What scripts are told of a session that has ended.
const ENDED: &str = "the session is not kept alive any more";

/// `session keepalive`.
#[derive(Args, Debug)]
pub struct KeepAliveArguments {
    /// Id of the session.
    id: String,
    /// Only this life (see `session get`); without it, whichever lives. In a program or an action of the session itself,
    /// that of ROTA_LIFE.
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    life: u64,
    /// Say it again and again, with so long in between: at most a third of the session's idle time.
    #[arg(long, value_name = "DURATION", value_parser = length_of_time)]
    every: Option<Duration>,
    #[command(flatten)]
    call: CallArguments,
}

/// A session that is used.
#[derive(Serialize, Debug)]
struct KeptAlive {
    /// For how long nobody had said so, in milliseconds; not there: nobody has, as far as its owner knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    unused_ms: Option<u64>,
    #[serde(flatten)]
    session: Shown,
}

/// What a person reads of the time since the last use.
fn unused(unused_ms: Option<u64>) -> String {
    unused_ms.map_or_else(|| "-".to_owned(), length)
}

impl KeepAliveArguments {
    /// Whether it says so again and again.
    pub fn goes_on(&self) -> bool {
        self.every.is_some()
    }

    fn request(&self) -> anyhow::Result<v1::KeepAliveRequest> {
        let (namespace, id) = (self.call.namespace.clone(), self.id.clone());
        let life = life_meant(self.life, &namespace, &id)?;
        Ok(v1::KeepAliveRequest { namespace, id, life })
    }
}

/// Says once that a session is used, or until it has ended.
pub async fn run(client: &Client, it: &KeepAliveArguments, out: &mut Out) -> anyhow::Result<()> {
    let request = it.request()?;
    let Some(every) = it.every else {
        let answer = client.keep_alive(request, it.call.timeout).await?;
        return told(&answer, true, out);
    };
    let mut stop = Stop::listen()?;
    let mut turns = interval(every);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_first = true;
    loop {
        let turn = async {
            turns.tick().await;
            client.keep_alive(request.clone(), it.call.timeout).await
        };
        let answer = tokio::select! {
            answer = turn => answer,
            _ = stop.wished() => return Ok(()),
        };
        match answer {
            Ok(answer) => {
                told(&answer, is_first, out)?;
                is_first = false;
            }
            Err(error) if may_live_on(client, &request, &error).await => {
                eprintln!("{}", for_terminals(&format!("not kept alive just now: {error}")));
            }
            // One that never was there is an ordinary failure.
            Err(error) if is_first => return Err(error.into()),
            Err(error) => return ended(client, it, error, out).await,
        }
    }
}

/// Tells how the session ended. Its end may be forgotten by then, or another life may live.
async fn ended(
    client: &Client,
    it: &KeepAliveArguments,
    error: CallError,
    out: &mut Out,
) -> anyhow::Result<()> {
    let (namespace, id) = (it.call.namespace.clone(), it.id.clone());
    let read = client.get(v1::GetRequest { namespace, id, stale_ok: false }, it.call.timeout).await;
    let session = read.ok().and_then(|it| it.session).context(ENDED);
    let (Ok(session), true) = (session, error.reason() == "NOT_FOUND") else {
        return Err(error.into());
    };
    let shown = Shown::of(&session);
    match out.format() {
        Format::Json => out.json(&KeptAlive { unused_ms: None, session: shown })?,
        Format::Table => eprintln!("{}", for_terminals(&why(&shown))),
    }
    Err(Reported(ENDED).into())
}

/// A sentence on how a session ended.
fn why(shown: &Shown) -> String {
    let said = [shown.reason.clone(), shown.exit_text(), shown.detail.clone()];
    let said: Vec<String> = said.into_iter().filter(|it| !it.is_empty()).collect();
    format!("session {:?} is {}: {}", shown.id, shown.state, said.join(", "))
}

fn told(answer: &v1::KeepAliveResponse, is_first: bool, out: &mut Out) -> anyhow::Result<()> {
    let session = answer.session.as_ref().context("the answer has no session")?;
    let kept = KeptAlive { unused_ms: answer.idle_ms, session: Shown::of(session) };
    match out.format() {
        Format::Json => out.json(&kept)?,
        Format::Table if is_first => {
            let KeptAlive { unused_ms, session } = kept;
            let mut table = plain_table(["ID", "STATE", "LIFE", "UNUSED"]);
            table.add_row([session.id, session.state, session.life.to_string(), unused(unused_ms)]);
            out.table(&table)?;
        }
        Format::Table => {
            let KeptAlive { unused_ms, session } = kept;
            let (id, state, life) = (session.id, session.state, session.life);
            out.text(&format!("{id}  {state}  {life}  {}\n", unused(unused_ms)))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_nobody_knows_is_a_dash() {
        assert_eq!(unused(None), "-");
        assert_eq!(unused(Some(0)), "0s");
        assert_eq!(unused(Some(61_500)), "1m 1s 500ms");
    }

    #[test]
    fn the_end_of_a_session_is_told_with_its_reason_and_how_its_program_ended() {
        let code = v1::exit::How::Code(3);
        let session = v1::Session {
            id: "a".to_owned(),
            state: v1::SessionState::Failed.into(),
            reason: v1::Reason::Exited.into(),
            exit: Some(v1::Exit { how: Some(code) }),
            ..Default::default()
        };
        assert_eq!(why(&Shown::of(&session)), "session \"a\" is FAILED: EXITED, exit code 3");
    }
}
