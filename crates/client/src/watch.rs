//! A stream of changes that survives breaks.

use crate::attempt::sessions;
use crate::call;
use crate::error::CallError;
use crate::resume::{BEGIN_WAIT, Resume, ended};
use crate::session::Client;
use rota_proto::v1;
use std::time::Duration;
use tokio::time::timeout;
use tonic::Streaming;

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
    stream: Option<Streaming<v1::WatchResponse>>,
    resume: Resume,
}

impl Watch {
    pub(crate) fn new(client: Client, request: v1::WatchRequest, options: WatchOptions) -> Self {
        let resume = Resume::reading(&client, options.patience);
        Self { client, request, stream: None, resume }
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
                    self.resume.went_on();
                    if !answer.position.is_empty() {
                        self.request.position.clone_from(&answer.position);
                    }
                    return Ok(answer);
                }
                Ok(None) => ended(),
                Err(status) => call::failure(&status),
            };
            self.stream = None;
            let endpoint = self.resume.entry(&self.client);
            self.resume.recover(&self.client, failure, &endpoint).await?;
        }
    }

    async fn begin(&mut self) -> Result<Streaming<v1::WatchResponse>, tonic::Status> {
        self.resume.awake(&self.client).await;
        let endpoint = self.resume.entry(&self.client);
        let borrowed = self.client.connect_to(&endpoint);
        let borrowed = borrowed.map_err(|it| tonic::Status::invalid_argument(it.to_string()))?;
        let mut client = sessions(borrowed.channel.clone());
        match timeout(BEGIN_WAIT, client.watch(self.request.clone())).await {
            Ok(begun) => Ok(begun?.into_inner()),
            Err(_elapsed) => Err(tonic::Status::unavailable("no stream began in time")),
        }
    }
}
