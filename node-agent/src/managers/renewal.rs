//! Signs of life.

use super::Channels;
use crate::mailbox::{Event, Mailbox};
use rota_model::ManagerNumber;
use rota_model::node_msg::{Renew, Renewed};
use rota_node::NodeInput;
use rota_proto::node::renew_request;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Sends a sign of life to every manager at once; each answer goes into the mailbox, and so does each
/// failure. A manager that does not answer within `wait` is left alone: the next sign of life is due by then.
/// When none of them can be reached it is as if none could judge: one that is back is to hear of the node at
/// once, and not by the interval of renewals, which may be most of what is left of the lease.
pub fn renew(
    channels: &Channels,
    mailbox: &Mailbox,
    sent_mono_ms: u64,
    renew: &Renew,
    managers: Vec<(ManagerNumber, String)>,
    wait: Duration,
) {
    let boot = renew.boot;
    let mut asked = JoinSet::new();
    for (number, address) in managers {
        let (channels, mailbox, request) = (channels.clone(), mailbox.clone(), renew.clone());
        asked.spawn(async move {
            let why = match timeout(wait, ask(&channels, &address, request)).await {
                Ok(Ok(renewed)) => {
                    let input = NodeInput::Renewed { boot, sent_mono_ms, renewed };
                    mailbox.node(input).await;
                    return true;
                }
                Ok(Err(error)) => error.to_string(),
                Err(_) => "no answer".to_owned(),
            };
            tracing::debug!(%boot, manager = %number, address, why, "not renewed");
            mailbox.give(Event::Unanswered { manager: address, why }).await;
            false
        });
    }
    let mailbox = mailbox.clone();
    tokio::spawn(async move {
        let answered = asked.join_all().await;
        if !answered.contains(&true) {
            mailbox.give(Event::NobodyAnswered { boot, sent_mono_ms }).await;
        }
    });
}

async fn ask(channels: &Channels, address: &str, renew: Renew) -> anyhow::Result<Renewed> {
    let request = renew_request(channels.cluster(), renew);
    let response = channels.to(address)?.renew(request).await?;
    Ok(Renewed::try_from(response.into_inner())?)
}
