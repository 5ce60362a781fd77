//! Signs of life.

use super::Channels;
use crate::mailbox::Mailbox;
use rota_model::node_msg::{Renew, Renewed};
use rota_model::{BootId, ManagerNumber};
use rota_node::NodeInput;
use rota_proto::node::renew_request;
use std::time::Duration;
use tokio::time::timeout;

/// Sends a sign of life to every manager at once; each answer goes into the mailbox. A manager that
/// does not answer within `wait` is left alone: the next sign of life is due by then.
pub fn renew(
    channels: &Channels,
    mailbox: &Mailbox,
    sent_mono_ms: u64,
    renew: &Renew,
    managers: Vec<(ManagerNumber, String)>,
    wait: Duration,
) {
    let boot = renew.boot;
    for (number, address) in managers {
        let (channels, mailbox, request) = (channels.clone(), mailbox.clone(), renew.clone());
        tokio::spawn(async move {
            match timeout(wait, ask(&channels, &address, request)).await {
                Ok(Ok(renewed)) => {
                    let input = NodeInput::Renewed { boot, sent_mono_ms, renewed };
                    mailbox.node(input).await;
                }
                Ok(Err(error)) => tell(boot, number, &address, &error.to_string()),
                Err(_) => tell(boot, number, &address, "no answer"),
            }
        });
    }
}

fn tell(boot: BootId, manager: ManagerNumber, address: &str, why: &str) {
    tracing::debug!(%boot, %manager, address, why, "not renewed");
}

async fn ask(channels: &Channels, address: &str, renew: Renew) -> anyhow::Result<Renewed> {
    let request = renew_request(channels.cluster(), renew);
    let response = channels.to(address)?.renew(request).await?;
    Ok(Renewed::try_from(response.into_inner())?)
}
