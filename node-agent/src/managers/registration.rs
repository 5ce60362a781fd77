//! Writing a boot into the registry, and signing off.

use super::Channels;
use crate::lease::boottime_ms;
use rota_model::node_msg::{Register, Registered};
use rota_model::{Refusal, RefusalKind, Retry};
use rota_node::{AfterRefusal, after_refusal};
use rota_proto::node::register_request;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// A registration is a compare-and-set in the config store and a consistent read.
const TRY_TIMEOUT: Duration = Duration::from_secs(3);

/// Shortest and longest pause after all managers were tried. The first is short because a cluster
/// that starts as a whole is ready within a fraction of a second.
const PAUSE_MS: (u64, u64) = (20, 1_000);

/// How long nobody may take the node in before its log says so, and how often it does then.
const SILENCE: Duration = Duration::from_secs(5);
const SAID_EVERY: Duration = Duration::from_secs(60);

/// How long signing off may take: nothing depends on it but how soon the registry shows it.
const SIGN_OFF_TIMEOUT: Duration = Duration::from_secs(2);

/// What became of a registration.
#[derive(Debug)]
pub enum Outcome {
    /// A manager wrote it.
    Registered {
        /// When the answered request was sent, on [`boottime_ms`].
        sent_mono_ms: u64,
        /// The answer.
        registered: Registered,
    },
    /// The node cannot come in as it was started. Why, for people.
    Refused(String),
    /// This boot is over before it began. Why, for people.
    Over(String),
}

/// What the managers said, each asked once.
#[derive(Default)]
struct Round {
    /// How long they advise to wait.
    advised_ms: u64,
    /// Why the node does not come in.
    refused: Option<String>,
    /// Why this boot does not come in.
    over: Option<String>,
    /// What another boot is in the way, and how long it may be.
    unproven: Option<(String, Duration)>,
    /// No verdict over another boot comes at the moment.
    no_verdict: bool,
    /// What the last manager said, or why it said nothing.
    said: Option<String>,
}

impl Round {
    fn take(&mut self, manager: &str, refusal: &Refusal) {
        tracing::debug!(manager, %refusal, "not registered");
        self.said = Some(format!("{manager}: {refusal}"));
        if let Retry::AfterMs(ms) = refusal.retry {
            self.advised_ms = self.advised_ms.max(ms.min(PAUSE_MS.1));
        }
        let why = || format!("manager {manager} refuses this node: {refusal}");
        match after_refusal(refusal) {
            AfterRefusal::End => {
                self.refused.get_or_insert_with(why);
            }
            AfterRefusal::BootAnew => {
                self.over.get_or_insert_with(why);
            }
            AfterRefusal::Wait { patience_ms } => {
                self.unproven = Some((refusal.to_string(), Duration::from_millis(patience_ms)));
            }
            AfterRefusal::Again => {
                self.no_verdict |= refusal.kind == RefusalKind::ConfigStoreAway;
                if refusal.retry.is_final() {
                    tracing::error!(manager, %refusal, "registration is refused");
                    self.advised_ms = PAUSE_MS.1;
                }
            }
        }
    }
}

/// Since when another boot of this node is in the way.
#[derive(Default)]
struct Waiting(Option<Instant>);

impl Waiting {
    /// Says so at first. Gives why to give up, when that boot lives on.
    fn on_round(&mut self, round: &Round) -> Option<String> {
        let Some((why, patience)) = round.unproven.as_ref().filter(|_| !round.no_verdict) else {
            self.0 = None;
            return None;
        };
        let Some(since) = self.0 else {
            tracing::warn!(
                why,
                "waiting until that boot is declared lost: the data folder of this one does not \
                 prove that it is over"
            );
            self.0 = Some(Instant::now());
            return None;
        };
        (since.elapsed() > *patience).then(|| {
            let waited = patience.as_secs();
            format!("{why}; it was not declared lost in {waited} s, so another agent has this --id")
        })
    }
}

/// Since when nobody takes the node in.
struct Unheard {
    since: Instant,
    said: Option<Instant>,
}

impl Unheard {
    fn new(since: Instant) -> Self {
        Self { since, said: None }
    }

    /// For how long, when the log is to say so now.
    fn is_due(&mut self, now: Instant) -> Option<Duration> {
        let for_long = now - self.since;
        let is_new = self.said.is_none_or(|it| now - it >= SAID_EVERY);
        (for_long >= SILENCE && is_new).then(|| {
            self.said = Some(now);
            for_long
        })
    }

    fn on_round(&mut self, cluster: &str, managers: &[String], round: &Round) {
        // That wait has a word of its own.
        if round.unproven.is_some() {
            return;
        }
        if let Some(for_long) = self.is_due(Instant::now()) {
            tracing::warn!(
                asked = managers.join(", "),
                said_last = round.said.as_deref().unwrap_or("nobody was asked"),
                for_s = for_long.as_secs(),
                "no manager takes this node in: check that managers of cluster {cluster} run at these \
                 addresses (those of --managers, and those that managers told), and that they reach their \
                 config store"
            );
        }
    }
}

/// Registers, going from manager to manager until one answers, or until it is certain that none
/// will.
pub async fn register(channels: &Channels, managers: &[String], register: &Register) -> Outcome {
    let mut pause_ms = PAUSE_MS.0;
    let mut waiting = Waiting::default();
    let mut unheard = Unheard::new(Instant::now());
    loop {
        let mut round = Round::default();
        for address in managers {
            let sent_mono_ms = boottime_ms();
            match try_once(channels, address, register).await {
                Ok(registered) => return Outcome::Registered { sent_mono_ms, registered },
                Err(refusal) => round.take(address, &refusal),
            }
        }
        if let Some(why) = waiting.on_round(&round) {
            return Outcome::Refused(why);
        }
        if let Some(why) = round.refused {
            return Outcome::Refused(why);
        }
        if let Some(why) = round.over {
            return Outcome::Over(why);
        }
        unheard.on_round(channels.cluster().as_str(), managers, &round);
        // Some jitter, so that nodes that lost one manager together do not come back together.
        let jitter_ms = uuid::Uuid::new_v4().as_u64_pair().0 % (pause_ms / 2 + 1);
        sleep(Duration::from_millis(pause_ms.max(round.advised_ms) + jitter_ms)).await;
        pause_ms = (pause_ms * 3 / 2).min(PAUSE_MS.1);
    }
}

async fn try_once(
    channels: &Channels,
    address: &str,
    register: &Register,
) -> Result<Registered, Refusal> {
    let silent =
        |message: String| Refusal::unknown_outcome(RefusalKind::NotServing, Retry::Now, message);
    let mut client = channels.to(address).map_err(|error| silent(error.to_string()))?;
    let request = register_request(channels.cluster(), register.clone());
    match timeout(TRY_TIMEOUT, client.register(request)).await {
        Err(_) => Err(silent(format!("no answer within {} ms", TRY_TIMEOUT.as_millis()))),
        Ok(Err(status)) => Err(rota_proto::refusal::refusal(&status)),
        // An answer that makes no sense is the manager's mistake, not this node's.
        Ok(Ok(response)) => Registered::try_from(response.into_inner())
            .map_err(|error| silent(format!("the answer is malformed: {error}"))),
    }
}

/// Tells that the node left in good order, if any manager takes it in time.
pub async fn sign_off(channels: &Channels, managers: &[String], removed: &Register) -> bool {
    let outcome = timeout(SIGN_OFF_TIMEOUT, register(channels, managers, removed)).await;
    matches!(outcome, Ok(Outcome::Registered { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn that_nobody_takes_the_node_in_is_said_after_a_while_and_then_once_a_minute() {
        let began = Instant::now();
        let mut unheard = Unheard::new(began);
        let at = |second: &u64| began + Duration::from_secs(*second);
        let said = (0..130).filter(|it| unheard.is_due(at(it)).is_some());
        assert_eq!(said.collect::<Vec<u64>>(), [5, 65, 125]);
    }
}
