//! The ring as it stands: `ringctl inspect`.
//!
//! ```text
//!   any manager ── View ──▶ every manager of that View ── answers ──▶ join ──▶ Ring
//!                                                                      tables ◀┤▶ drawing, JSON
//! ```

mod drawing;
mod join;
mod tables;

pub use join::{
    Answers, Manager, Node, Partition, Ring, join, newest_view, serves, stats_of, waiting_text,
    without_config_store,
};

pub use tables::{class_texts, node_table, short_digest, stable_number};

use crate::connect;
use crate::length_of_time::length_of_time;
use crate::node;
use crate::output::{Format, Out};
use clap::Args;
use rota_client::{CallError, Client, v1};
use std::time::Duration;

/// `inspect`.
#[derive(Args, Debug)]
pub struct InspectArguments {
    /// How long a manager may take to answer before it is shown as silent.
    #[arg(long, default_value = "2s", value_parser = length_of_time)]
    timeout: Duration,
    /// Leave the drawing out.
    #[arg(long)]
    no_drawing: bool,
}

/// Asks any manager for its View, and then every manager in it.
pub async fn ask(client: &Client, wait: Duration) -> Result<Answers, CallError> {
    let first = client.inspect(wait).await?;
    let managers = first.view.clone().unwrap_or_default().managers;
    let mut asked = tokio::task::JoinSet::new();
    for manager in managers {
        let client = client.clone();
        asked.spawn(async move {
            let answer = if manager.grpc.is_empty() {
                Err("it never started".to_owned())
            } else {
                client.inspect_at(&manager.grpc, wait).await.map_err(|error| error.to_string())
            };
            (manager.number, answer)
        });
    }
    let mut answers = Answers::new();
    answers.insert(first.number, Ok(first));
    while let Some(answer) = asked.join_next().await {
        let Ok((number, answer)) = answer else { continue };
        // The first answer stays when its manager fell silent since.
        if answer.is_ok() || !answers.contains_key(&number) {
            answers.insert(number, checked(number, answer));
        }
    }
    Ok(answers)
}

fn checked(
    number: u32,
    answer: Result<v1::InspectResponse, String>,
) -> Result<v1::InspectResponse, String> {
    match answer {
        Ok(it) if it.number != number => {
            Err(format!("manager {} answers at its address", it.number))
        }
        Ok(it) if it.view.is_none() => Err("it has no View yet".to_owned()),
        Ok(it) => Ok(it),
        Err(error) => Err(error),
    }
}

/// Shows the ring.
pub async fn run(it: &InspectArguments, endpoint: &str, out: &mut Out) -> anyhow::Result<()> {
    let client = connect::client(endpoint, out.format())?;
    let answers = connect::told(endpoint, ask(&client, it.timeout)).await?;
    let Some(ring) = join(&answers) else { anyhow::bail!("the manager has no View yet") };
    match out.format() {
        Format::Json => out.json(&ring)?,
        Format::Table => {
            if !it.no_drawing {
                out.drawn(&drawing::draw(&ring, out.style()))?;
            }
            out.text(&tables::headline(&ring))?;
            for table in [tables::managers(&ring), tables::partitions(&ring)] {
                out.text("\n")?;
                out.table(&table)?;
            }
            out.text("\n")?;
            out.table(&node_table(&ring, out.style()))?;
            node::differing(&ring).iter().for_each(|it| eprintln!("{}", node::warning(it)));
        }
    }
    Ok(())
}
