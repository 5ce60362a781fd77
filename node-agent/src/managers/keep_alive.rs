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
        let mut last = None;
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
                let known = in_turn(&known, last.as_deref());
                let words = part.iter().map(|used| {
                    let (channels, known, used) = (channels.clone(), known.clone(), used.clone());
                    async move { say(&channels, &known, &used).await }
                });
                let taken = words.collect::<tokio::task::JoinSet<_>>().join_all().await;
                last = taken.into_iter().flatten().next();
            }
        }
    });
}

/// Managers in the order in which they are told: the one first that took the last word. Else one that does not answer
/// would be waited for with each word, and uses would come too late.
fn in_turn(known: &[String], last: Option<&str>) -> Vec<String> {
    let from = known.iter().position(|it| Some(it.as_str()) == last).unwrap_or_default();
    let (later, first) = known.split_at(from);
    first.iter().chain(later).cloned().collect()
}

/// Gives who took it.
async fn say(channels: &Channels, managers: &[String], used: &Used) -> Option<String> {
    for address in managers {
        let request = v1::KeepAliveRequest {
            namespace: used.key.namespace.to_string(),
            id: used.key.id.to_string(),
            life: used.life.into(),
        };
        let Ok(mut client) = channels.sessions_of(address) else { continue };
        match timeout(WAIT, client.keep_alive(request)).await {
            Ok(Ok(_)) => return Some(address.clone()),
            Ok(Err(error)) => {
                tracing::debug!(session = %used.key, address, %error, "its use was not taken");
            }
            Err(_) => {
                tracing::debug!(session = %used.key, address, "its use was not taken in time")
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manager_that_took_the_last_word_is_told_first_and_all_others_after_it() {
        let known = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(in_turn(&known, Some("b")), ["b", "c", "a"]);
        assert_eq!(in_turn(&known, Some("gone")), known);
        assert_eq!(in_turn(&known, None), known);
        assert_eq!(in_turn(&[], Some("a")), [] as [&str; 0]);
    }
}
