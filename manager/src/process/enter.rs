//! From outside of the ring into it: a number that was told is tried, and whoever told it hears what
//! became of it. A refused one leaves everything as it was before.

use super::{JoinOrder, Listeners, Waiting, Working, begin, open, stop};
use crate::application::Application;
use crate::driver_state::DriverState;
use crate::options::Options;
use anyhow::Result;
use rota_daemon::Stop;
use rota_model::{ManagerNumber, MemberId, Refusal, RefusalKind, Retry};
use rota_ring::ClaimRefused;
use std::time::Duration;

/// How long whoever told a number waits until the View has it: some writes to disk and to the config
/// store.
const PATIENCE: Duration = Duration::from_secs(20);

/// What became of a number.
enum Tried {
    /// The View has it.
    Joined(Box<Working>, MemberId, u64),
    /// The View has something against it. Nothing is left of the attempt.
    Refused(ClaimRefused),
    /// Nobody knows yet; the attempt goes on.
    Unknown(Box<Working>),
}

impl Waiting {
    /// Waits until the ring takes a number that is told. `None`: the process is to end.
    pub(super) async fn enter(mut self, asked: &mut Stop) -> Result<Option<Working>> {
        loop {
            let Listeners { store, addresses, .. } = &self.listeners;
            let told = tokio::select! {
                told = self.outside.told(&self.options, &**store, addresses, self.begun) => told?,
                _ = asked.wished() => {
                    self.outside.end().await;
                    return Ok(None);
                }
            };
            let wanted = (self.options.clone(), self.application.clone());
            let said = JoinOrder { force_lost: told.force_lost() };
            let working = match tried(wanted, self.listeners.again()?, told.number, said).await {
                Ok(Tried::Joined(working, member, epoch)) => {
                    told.joined(member, epoch);
                    working
                }
                Ok(Tried::Refused(why)) => {
                    self.outside.refused(told, &why);
                    continue;
                }
                Ok(Tried::Unknown(working)) => {
                    told.refused(not_known());
                    working
                }
                Err(error) => {
                    let text = format!("this manager cannot begin: {error:#}");
                    told.refused(Refusal::new(RefusalKind::Internal, Retry::Never, text));
                    self.outside.end().await;
                    return Err(error);
                }
            };
            self.outside.end().await;
            return Ok(Some(*working));
        }
    }
}

/// Begins to work under a number, until the View has it or refuses it.
async fn tried(
    (options, application): (Options, Application),
    listeners: Listeners,
    number: ManagerNumber,
    said: JoinOrder,
) -> Result<Tried> {
    let opened = match open(options, number, listeners, Some(said)).await {
        Ok(opened) => opened,
        Err(error) => return Ok(Tried::Refused(error.downcast::<ClaimRefused>()?)),
    };
    let working = Box::new(begin(opened, application)?);
    let mut seen = working.server_parts.seen.clone();
    let claimed = seen.wait_for(|it| it.member.is_some());
    let claimed = tokio::time::timeout(PATIENCE, claimed).await;
    match claimed.map(|it| it.map(|seen| seen.clone())) {
        Ok(Ok(DriverState { view, member: Some(member), .. })) => {
            Ok(Tried::Joined(working, member, view.map_or(0, |it| it.epoch.0)))
        }
        // The driver has ended.
        Ok(_) => match stop(working.running).await? {
            Some(refused) => Ok(Tried::Refused(refused)),
            None => anyhow::bail!("the driver ended, and its log says why"),
        },
        Err(_) => Ok(Tried::Unknown(working)),
    }
}

fn not_known() -> Refusal {
    let waited = PATIENCE.as_secs();
    let text = format!(
        "the View does not have this manager after {waited} s; it goes on trying, and \
         `ringctl inspect` shows when it has"
    );
    let (kind, retry) = (RefusalKind::ConfigStoreAway, Retry::WhenChanged);
    Refusal::unknown_outcome(kind, retry, text)
}
