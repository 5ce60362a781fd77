//! `ringctl session keepalive`.

use super::{CallArguments, Shown};
use crate::output::{Format, Out, plain_table};
use anyhow::Context;
use clap::Args;
use rota_client::{Client, v1};
use serde::Serialize;
use std::time::Duration;

/// `session keepalive`.
#[derive(Args, Debug)]
pub struct KeepAliveArguments {
    /// Id of the session.
    id: String,
    /// Only this life (see `session get`); without it, whichever lives.
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    life: u64,
    #[command(flatten)]
    call: CallArguments,
}

/// A session that is used.
#[derive(Serialize, Debug)]
struct KeptAlive {
    /// For how long nobody had said so, in milliseconds; not there: nobody has, as far as its owner knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    idle_ms: Option<u64>,
    #[serde(flatten)]
    session: Shown,
}

/// What a person reads of the time since the last use.
fn idle(idle_ms: Option<u64>) -> String {
    idle_ms.map_or_else(
        || "-".to_owned(),
        |ms| humantime::format_duration(Duration::from_millis(ms)).to_string(),
    )
}

pub async fn run(client: &Client, it: &KeepAliveArguments, out: &mut Out) -> anyhow::Result<()> {
    let request = v1::KeepAliveRequest {
        namespace: it.call.namespace.clone(),
        id: it.id.clone(),
        life: it.life,
    };
    let answer = client.keep_alive(request, it.call.timeout).await?;
    let session = answer.session.as_ref().context("the answer has no session")?;
    let kept = KeptAlive { idle_ms: answer.idle_ms, session: Shown::of(session) };
    match out.format() {
        Format::Json => out.json(&kept)?,
        Format::Table => {
            let KeptAlive { idle_ms, session } = kept;
            let mut table = plain_table(["ID", "STATE", "LIFE", "IDLE"]);
            table.add_row([session.id, session.state, session.life.to_string(), idle(idle_ms)]);
            out.table(&table)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_nobody_knows_is_a_dash() {
        assert_eq!(idle(None), "-");
        assert_eq!(idle(Some(0)), "0s");
        assert_eq!(idle(Some(61_500)), "1m 1s 500ms");
    }
}
