//! Connections of sessions as use: managers are told of it.

use super::Channels;
use crate::runtime::{InUse, Used};
use rota_proto::v1;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// Between two looks whether it is time for a session; none is looked at more often.
const LOOK: Duration = Duration::from_secs(1);

/// How long a manager may take to take a word. Failures are of no matter: the next look tells it again.
const WAIT: Duration = Duration::from_secs(2);

/// Most words at a time. They are told before the next look begins.
const WORDS_MAX: usize = 16;

/// Looks for connections until the process ends, and says to the first manager that takes it who is in use.
pub fn keep_alive(channels: Channels, managers: watch::Receiver<Vec<String>>, in_use: InUse) {
    tokio::spawn(async move {
        let mut times = interval(LOOK);
        times.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            times.tick().await;
            let looked = in_use.clone();
            let looked = tokio::task::spawn_blocking(move || looked.now()).await;
            let used = match looked {
                Ok(Ok(used)) => used,
                Ok(Err(error)) => {
                    tracing::warn!(%error, "connections of sessions cannot be seen, and count for nothing");
                    continue;
                }
                Err(_) => continue,
            };
            let known = managers.borrow().clone();
            for part in used.chunks(WORDS_MAX) {
                let words = part.iter().map(|it| {
                    let (channels, known, used) = (channels.clone(), known.clone(), it.clone());
                    async move { say(&channels, &known, &used).await }
                });
                words.collect::<tokio::task::JoinSet<()>>().join_all().await;
            }
        }
    });
}

async fn say(channels: &Channels, managers: &[String], used: &Used) {
    for address in managers {
        let request = v1::KeepAliveRequest {
            namespace: used.key.namespace.to_string(),
            id: used.key.id.to_string(),
            life: used.life.into(),
        };
        let Ok(mut client) = channels.sessions_of(address) else { continue };
        match timeout(WAIT, client.keep_alive(request)).await {
            Ok(Ok(_)) => return,
            Ok(Err(error)) => {
                tracing::debug!(session = %used.key, address, %error, "its use was not taken");
            }
            Err(_) => {
                tracing::debug!(session = %used.key, address, "its use was not taken in time")
            }
        }
    }
}
