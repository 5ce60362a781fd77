//! Writing a boot into the registry, and signing off.

use super::Channels;
use crate::lease::boottime_ms;
use rota_model::node_msg::{Register, Registered};
use rota_model::{Refusal, Retry};
use rota_proto::v1;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// A registration is a compare-and-set in the config store and a consistent read.
const TRY_TIMEOUT: Duration = Duration::from_secs(3);

/// Shortest and longest pause after all managers were tried. The first is short because a cluster
/// that starts as a whole is ready within a fraction of a second.
const PAUSE_MS: (u64, u64) = (20, 1_000);

/// How long signing off may take: nothing depends on it but how soon the registry shows it.
const SIGN_OFF_TIMEOUT: Duration = Duration::from_secs(2);

/// Registers, going from manager to manager until one answers. Gives the answer and when the
/// answered request was sent, on [`boottime_ms`].
pub async fn register(
    channels: &Channels,
    managers: &[String],
    register: &Register,
) -> (u64, Registered) {
    let mut pause_ms = PAUSE_MS.0;
    loop {
        let mut advised_ms = 0;
        for address in managers {
            let sent_ms = boottime_ms();
            match try_once(channels, address, register).await {
                Ok(registered) => return (sent_ms, registered),
                Err(refusal) => {
                    tracing::debug!(manager = address, %refusal, "not registered");
                    if let Retry::AfterMs(ms) = refusal.retry {
                        advised_ms = advised_ms.max(ms.min(PAUSE_MS.1));
                    }
                    if refusal.retry.is_final() {
                        tracing::error!(manager = address, %refusal, "registration is refused");
                        advised_ms = PAUSE_MS.1;
                    }
                }
            }
        }
        // Some jitter, so that nodes that lost one manager together do not come back together.
        let jitter_ms = uuid::Uuid::new_v4().as_u64_pair().0 % (pause_ms / 2 + 1);
        sleep(Duration::from_millis(pause_ms.max(advised_ms) + jitter_ms)).await;
        pause_ms = (pause_ms * 3 / 2).min(PAUSE_MS.1);
    }
}

async fn try_once(
    channels: &Channels,
    address: &str,
    register: &Register,
) -> Result<Registered, Refusal> {
    let silent = |message: String| {
        Refusal::unknown_outcome(rota_model::RefusalKind::NotServing, Retry::Now, message)
    };
    let mut client = channels.to(address).map_err(|error| silent(error.to_string()))?;
    let request = v1::RegisterRequest::from(register.clone());
    match timeout(TRY_TIMEOUT, client.register(request)).await {
        Err(_) => Err(silent(format!("no answer within {} ms", TRY_TIMEOUT.as_millis()))),
        Ok(Err(status)) => Err(rota_proto::refusal::refusal(&status)),
        Ok(Ok(response)) => Ok(Registered::try_from(response.into_inner())?),
    }
}

/// Tells that the node left in good order, if any manager takes it in time.
pub async fn sign_off(channels: &Channels, managers: &[String], removed: &Register) -> bool {
    timeout(SIGN_OFF_TIMEOUT, register(channels, managers, removed)).await.is_ok()
}
