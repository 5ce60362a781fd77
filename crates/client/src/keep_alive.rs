//! A session that is kept alive in the background, as long as somebody holds this.

use crate::error::CallError;
use crate::session::Client;
use rota_model::{RefusalKind, Retry};
use rota_proto::v1;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// Shortest time that one call may take. A shorter one ends while managers still find the owner.
const WAIT_MIN: Duration = Duration::from_secs(1);

/// Says again and again that a session is used, until it is dropped.
///
/// What passes with time is tried again: managers that are away, a take-over, a session whose next life has not
/// begun. What does not pass ends it: a session that has ended, another life than the one that was named.
#[derive(Debug)]
pub struct KeepAlive {
    task: JoinHandle<()>,
    end: oneshot::Receiver<CallError>,
}

impl KeepAlive {
    /// Begins at once, inside a tokio runtime. `every` is the time between two calls: at most a third of the
    /// session's idle time, so that a lost call ends nothing. One below a millisecond counts as that.
    pub fn start(client: &Client, request: v1::KeepAliveRequest, every: Duration) -> Self {
        let (client, (told, end)) = (client.clone(), oneshot::channel());
        let task = tokio::spawn(async move {
            let error = keep_alive(&client, request, every.max(Duration::from_millis(1))).await;
            tracing::debug!(%error, "a session is not kept alive any more");
            // Nobody need wait for the end.
            let _heard = told.send(error);
        });
        Self { task, end }
    }

    /// Whether it still goes on. If not, [`KeepAlive::ended`] says why at once.
    pub fn goes_on(&self) -> bool {
        !self.task.is_finished()
    }

    /// Waits until it does not go on, and tells why.
    pub async fn ended(mut self) -> CallError {
        let end = (&mut self.end).await;
        // The task ends by telling why, or with its runtime.
        end.unwrap_or_else(|_| CallError::Source("the runtime of the calls has ended".to_owned()))
    }
}

impl Drop for KeepAlive {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Calls until a failure that does not pass.
async fn keep_alive(client: &Client, request: v1::KeepAliveRequest, every: Duration) -> CallError {
    let mut turns = interval(every);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        turns.tick().await;
        let began = Instant::now();
        if let Err(error) = client.keep_alive(request.clone(), every.max(WAIT_MIN)).await {
            if !may_live_on(client, &request, &error).await {
                return error;
            }
            tracing::debug!(%error, took = ?began.elapsed(), "a session was not kept alive");
        }
    }
}

/// Whether a session may be kept alive later, although it was not now: managers are away or ask for patience, or its
/// next life has not begun. A life that was named has no next one.
pub async fn may_live_on(
    client: &Client,
    request: &v1::KeepAliveRequest,
    error: &CallError,
) -> bool {
    match error.retry() {
        Retry::Now | Retry::AfterMs(_) | Retry::AtOwner(_) => return true,
        Retry::Never | Retry::WhenChanged => {}
    }
    if request.life > 0 || error.reason() != RefusalKind::NotFound.as_str() {
        return false;
    }
    let (namespace, id) = (request.namespace.clone(), request.id.clone());
    let read = client.get(v1::GetRequest { namespace, id, stale_ok: false }, WAIT_MIN).await;
    let session = read.ok().and_then(|it| it.session);
    session.is_some_and(|session| match session.reason() {
        // No life lives between the end of one and the next.
        v1::Reason::Restarting | v1::Reason::Reopening => true,
        v1::Reason::Unspecified
        | v1::Reason::ClosedByClient
        | v1::Reason::ClosedByOperator
        | v1::Reason::IdleTimeout
        | v1::Reason::MaxLifetime
        | v1::Reason::Exited
        | v1::Reason::StartTimeout
        | v1::Reason::NodeLost
        | v1::Reason::Drained
        | v1::Reason::Internal
        | v1::Reason::LeaseNotRenewed
        | v1::Reason::NoCapacity
        | v1::Reason::Unhealthy => false,
    })
}
