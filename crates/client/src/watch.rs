//! A stream of changes that survives breaks.

use crate::attempt::sessions;
use crate::call;
use crate::error::CallError;
use crate::retry::{self, Failure, Step};
use crate::session::Client;
use rota_proto::v1;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};
use tonic::{Code, Streaming};

/// Longest wait for the beginning of a stream at one endpoint.
const BEGIN_WAIT: Duration = Duration::from_secs(3);

/// How a watch behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WatchOptions {
    /// How long no endpoint may serve the stream before the watch ends with the last error.
    /// Default 30 s: longer than any take-over.
    pub patience: Duration,
}

impl Default for WatchOptions {
    fn default() -> Self {
        Self { patience: Duration::from_secs(30) }
    }
}

/// Changes, at least once and without gaps: after a break it goes on at the next endpoint from the
/// position of the last answer that [`Watch::next`] gave out.
#[derive(Debug)]
pub struct Watch {
    client: Client,
    request: v1::WatchRequest,
    options: WatchOptions,
    stream: Option<Streaming<v1::WatchResponse>>,
    entry: usize,
    failures: u32,
    broken_since: Option<Instant>,
}

impl Watch {
    pub(crate) fn new(client: Client, request: v1::WatchRequest, options: WatchOptions) -> Self {
        let entry = client.next_entry();
        let (stream, broken_since) = (None, None);
        Self { client, request, options, stream, entry, failures: 0, broken_since }
    }

    /// The position of the last answer; a later watch can go on from here.
    pub fn position(&self) -> &[u8] {
        &self.request.position
    }

    /// The next answer. Waits as long as nothing changes; fails when the watch is refused for
    /// good or no endpoint serves it for [`WatchOptions::patience`]. Safe to drop and call again.
    pub async fn next(&mut self) -> Result<v1::WatchResponse, CallError> {
        loop {
            let got = match &mut self.stream {
                Some(stream) => stream.message().await,
                None => match self.begin().await {
                    Ok(stream) => {
                        self.stream = Some(stream);
                        continue;
                    }
                    Err(status) => Err(status),
                },
            };
            let failure = match got {
                Ok(Some(answer)) => {
                    (self.failures, self.broken_since) = (0, None);
                    if !answer.position.is_empty() {
                        self.request.position.clone_from(&answer.position);
                    }
                    return Ok(answer);
                }
                Ok(None) => Failure::Broken {
                    code: Code::Unavailable,
                    message: "the stream ended".to_owned(),
                },
                Err(status) => call::failure(&status),
            };
            self.stream = None;
            self.recover(failure).await?;
        }
    }

    async fn begin(&self) -> Result<Streaming<v1::WatchResponse>, tonic::Status> {
        let endpoint = self.client.endpoint(self.entry);
        let borrowed = self.client.connect_to(&endpoint);
        let borrowed = borrowed.map_err(|it| tonic::Status::invalid_argument(it.to_string()))?;
        let mut client = sessions(borrowed.channel.clone());
        match timeout(BEGIN_WAIT, client.watch(self.request.clone())).await {
            Ok(begun) => Ok(begun?.into_inner()),
            Err(_elapsed) => Err(tonic::Status::unavailable("no stream began in time")),
        }
    }

    /// Waits as the failure advises, and moves to the next endpoint; gives up when it is final.
    async fn recover(&mut self, failure: Failure) -> Result<(), CallError> {
        self.failures += 1;
        let since = *self.broken_since.get_or_insert_with(Instant::now);
        let endpoint = self.client.endpoint(self.entry);
        let step = retry::after(&failure, self.failures, self.client.endpoints().len());
        let failed = call::error(failure, &endpoint, self.failures);
        let Step::Again { pause, elsewhere, refresh: _ } = step else {
            return Err(failed);
        };
        if since.elapsed() + pause > self.options.patience {
            return Err(failed);
        }
        tracing::debug!(%endpoint, ?pause, "watch goes on after: {failed}");
        if elsewhere {
            self.client.leave_entry(self.entry);
            self.entry = self.entry.wrapping_add(1);
        }
        sleep(pause).await;
        Ok(())
    }
}
