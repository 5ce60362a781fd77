//! What streams do after a break: wait as advised, go on at the next endpoint, give up when it
//! lasts too long.

use crate::call::{self, Route};
use crate::error::CallError;
use crate::retry::{self, Attempts, Failure, Step};
use crate::session::Client;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tonic::Code;

/// Longest wait for the beginning of a stream at one endpoint.
pub(crate) const BEGIN_WAIT: Duration = Duration::from_secs(3);

/// Where a stream stands over its breaks.
#[derive(Debug)]
pub(crate) struct Resume {
    patience: Duration,
    entry: usize,
    failures: u32,
    failed: Attempts,
    broken_since: Option<Instant>,
    /// The reason that the caller was told last during this break.
    told: String,
}

/// A stream that ended when it should not have.
pub(crate) fn ended() -> Failure {
    let message = "the stream ended".to_owned();
    Failure::Broken { code: Code::Unavailable, message, is_unsent: false }
}

impl Resume {
    /// A stream that only reads. `patience`: how long no endpoint may serve it.
    pub(crate) fn reading(client: &Client, patience: Duration) -> Self {
        Self::new(client, patience, false)
    }

    /// The same for one that changes something.
    pub(crate) fn changing(client: &Client, patience: Duration) -> Self {
        Self::new(client, patience, true)
    }

    fn new(client: &Client, patience: Duration, may_change: bool) -> Self {
        Self {
            patience,
            entry: client.endpoints.next_entry(),
            failures: 0,
            failed: Attempts::new(may_change),
            broken_since: None,
            told: String::new(),
        }
    }

    /// Passes over endpoints that hang, before an attempt.
    pub(crate) async fn awake(&mut self, client: &Client) {
        self.entry = client.endpoints.awake(self.entry, Instant::now() + BEGIN_WAIT).await;
    }

    /// The endpoint whose turn it is.
    pub(crate) fn entry(&self, client: &Client) -> Arc<str> {
        client.endpoints.at(self.entry)
    }

    /// How the next attempt is routed: every other one after a failure asks the entry, which may
    /// know a newer View.
    pub(crate) fn route(&self) -> Route {
        Route { entry: self.entry, may_route: self.failures.is_multiple_of(2) }
    }

    /// How long one more silence may last.
    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    /// Something came: a later break begins anew.
    pub(crate) fn went_on(&mut self) {
        (self.failures, self.broken_since) = (0, None);
        self.told.clear();
    }

    /// Waits as the failure advises, and moves to the next endpoint; gives up when it is final.
    pub(crate) async fn recover(
        &mut self,
        client: &Client,
        failure: Failure,
        endpoint: &str,
    ) -> Result<(), CallError> {
        self.failures += 1;
        let since = *self.broken_since.get_or_insert_with(Instant::now);
        let step = retry::after(&failure, self.failures, client.endpoints().len());
        self.failed.add(failure.changed());
        let failed = call::error(failure, endpoint, self.failures, self.failed.changed());
        let Step::Again { pause, elsewhere, refresh } = step else {
            return Err(failed);
        };
        if since.elapsed() + pause > self.patience {
            return Err(failed);
        }
        tracing::debug!(%endpoint, ?pause, "stream goes on after: {failed}");
        if let Some(on_wait) = client.on_wait().filter(|_| !pause.is_zero())
            && self.told != failed.reason()
        {
            failed.reason().clone_into(&mut self.told);
            on_wait(&failed);
        }
        if refresh {
            client.routes.mark_stale();
        }
        if elsewhere {
            client.endpoints.leave(self.entry);
            self.entry = self.entry.wrapping_add(1);
        }
        sleep(pause).await;
        Ok(())
    }
}
