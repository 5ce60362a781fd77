//! A stream of changes that survives breaks: of sessions, or of documents.

use crate::attempt::sessions;
use crate::call;
use crate::documents::call::documents;
use crate::error::CallError;
use crate::resume::{BEGIN_WAIT, Resume, ended};
use crate::session::Client;
use bytes::Bytes;
use rota_proto::v1;
use std::future::Future;
use std::time::Duration;
use tokio::time::timeout;
use tonic::transport::Channel;
use tonic::{Response, Status, Streaming};

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

/// What can be asked of a watch: sessions, or documents.
pub trait Watchable: private::Begin {}

impl Watchable for v1::WatchRequest {}
impl Watchable for v1::WatchDocumentsRequest {}

mod private {
    use super::{Bytes, Channel, Future, Response, Status, Streaming};

    /// How a watch is begun, and where it stands.
    pub trait Begin: Clone + Send + 'static {
        /// What it gives.
        type Answer: Send + 'static;

        /// Where it goes on.
        fn position(&self) -> &Bytes;

        /// It goes on there from now on.
        fn go_on_from(&mut self, position: Bytes);

        /// The position that came with an answer.
        fn told(answer: &Self::Answer) -> &Bytes;

        /// Begins a stream.
        fn begin(
            self,
            channel: Channel,
        ) -> impl Future<Output = Result<Response<Streaming<Self::Answer>>, Status>> + Send;
    }
}

impl private::Begin for v1::WatchRequest {
    type Answer = v1::WatchResponse;

    fn position(&self) -> &Bytes {
        &self.position
    }

    fn go_on_from(&mut self, position: Bytes) {
        self.position = position;
    }

    fn told(answer: &v1::WatchResponse) -> &Bytes {
        &answer.position
    }

    async fn begin(
        self,
        channel: Channel,
    ) -> Result<Response<Streaming<v1::WatchResponse>>, Status> {
        sessions(channel).watch(self).await
    }
}

impl private::Begin for v1::WatchDocumentsRequest {
    type Answer = v1::WatchDocumentsResponse;

    fn position(&self) -> &Bytes {
        &self.position
    }

    fn go_on_from(&mut self, position: Bytes) {
        self.position = position;
    }

    fn told(answer: &v1::WatchDocumentsResponse) -> &Bytes {
        &answer.position
    }

    async fn begin(
        self,
        channel: Channel,
    ) -> Result<Response<Streaming<v1::WatchDocumentsResponse>>, Status> {
        documents(channel).watch_documents(self).await
    }
}

/// Changes, at least once and without gaps: after a break it goes on at the next endpoint from the
/// position of the last answer that [`Watch::next`] gave out.
#[derive(Debug)]
pub struct Watch<Request: Watchable = v1::WatchRequest> {
    client: Client,
    request: Request,
    stream: Option<Streaming<Request::Answer>>,
    resume: Resume,
}

/// Changes of documents, as [`Watch`] has them.
pub type DocumentWatch = Watch<v1::WatchDocumentsRequest>;

impl<Request: Watchable> Watch<Request> {
    pub(crate) fn new(client: Client, request: Request, options: WatchOptions) -> Self {
        let resume = Resume::reading(&client, options.patience);
        Self { client, request, stream: None, resume }
    }

    /// The position of the last answer; a later watch can go on from here.
    pub fn position(&self) -> &[u8] {
        self.request.position()
    }

    /// The next answer. Waits as long as nothing changes; fails when the watch is refused for
    /// good or no endpoint serves it for [`WatchOptions::patience`]. Safe to drop and call again.
    pub async fn next(&mut self) -> Result<Request::Answer, CallError> {
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
                    let position = Request::told(&answer);
                    if !position.is_empty() {
                        self.request.go_on_from(position.clone());
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

    async fn begin(&mut self) -> Result<Streaming<Request::Answer>, Status> {
        self.resume.awake(&self.client).await;
        let endpoint = self.resume.entry(&self.client);
        let borrowed = self.client.endpoints.connect_to(&endpoint);
        let borrowed = borrowed.map_err(|it| Status::invalid_argument(it.to_string()))?;
        match timeout(BEGIN_WAIT, self.request.clone().begin(borrowed.channel.clone())).await {
            Ok(begun) => Ok(begun?.into_inner()),
            Err(_elapsed) => Err(Status::unavailable("no stream began in time")),
        }
    }
}
