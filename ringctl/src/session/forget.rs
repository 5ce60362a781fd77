//! `ringctl session logs --forget`: what the ring keeps of output is removed.

use crate::failure::UsageMistake;
use crate::output::{Format, Out};
use rota_client::Client;
use rota_client::docstore::{Body, Request};
use rota_client::documents::request::Operate;
use rota_model::{FieldError, Namespace};
use serde_json::{Value, json};
use std::time::Duration;

/// Of one life, or (0) of all.
pub async fn forget(
    client: &Client,
    (namespace, id, life): (&str, &str, u64),
    wait: Duration,
    out: &mut Out,
) -> anyhow::Result<()> {
    let wrong = |it: FieldError| UsageMistake(it.to_string());
    let space = Namespace::parse(namespace).map_err(wrong)?;
    let parameters = json!({"id": id, "life": Some(life).filter(|it| *it > 0)});
    let request = Request::new(space, "session.forget_output").with(&parameters)?;
    let operate = Operate { request, docid: id.to_owned() };
    let answer = client.documents().operate(&operate, wait).await?;
    let answer: Value = match &answer.body {
        Body::Json(text) => serde_json::from_str(text.as_str())?,
        Body::Nothing | Body::Binary { .. } => Value::Null,
    };
    let lives = answer["lives"].as_u64().unwrap_or(0);
    let noun = if lives == 1 { "life" } else { "lives" };
    match out.format() {
        Format::Json => out.json(&json!({"namespace": namespace, "id": id, "lives": lives}))?,
        Format::Table => out.text(&format!("removed what was kept of {lives} {noun}\n"))?,
    }
    Ok(())
}
