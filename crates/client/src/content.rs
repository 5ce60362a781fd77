//! The updates feed of content.

use crate::call;
use crate::documents::{silent, unreadable};
use crate::error::CallError;
use crate::resume::{Resume, ended};
use crate::session::Client;
use rota_content::{Category, Record};
use rota_model::Changed;
use rota_proto::content::Updates;
use rota_proto::v1;
use rota_proto::v1::content_client::ContentClient;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use tonic::{Status, Streaming};

/// How long a manager may take to begin: it may read the lists of two commits from other managers first.
const FEED_BEGIN_WAIT: Duration = Duration::from_secs(30);
/// Longest message of a feed.
const MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A feed that is being read.
#[derive(Debug)]
pub struct ContentFeed {
    begin: v1::content_updates_response::Begin,
    stream: Streaming<v1::ContentUpdatesResponse>,
    endpoint: Arc<str>,
    patience: Duration,
    /// Records of the first message.
    first: Vec<v1::ContentRecord>,
    is_whole: bool,
}

impl Client {
    /// Asks for the records of a repository of content: everything, or what changed since a commit. Managers are
    /// asked one after the other until one answers; nothing may come for `patience`.
    ///
    /// # Errors
    /// There is no such repository, or no manager answers.
    pub async fn content_updates(
        &self,
        asked: &Updates,
        patience: Duration,
    ) -> Result<ContentFeed, CallError> {
        let mut resume = Resume::reading(self, patience);
        loop {
            resume.awake(self).await;
            let endpoint = resume.entry(self);
            let failure = match begin(self, asked, &endpoint).await {
                Ok((first, stream)) => {
                    let v1::ContentUpdatesResponse { begin: Some(begin), records } = first else {
                        let endpoint = endpoint.to_string();
                        return Err(CallError::Incomplete { missing: "begin", endpoint });
                    };
                    let is_whole = false;
                    let first = records;
                    return Ok(ContentFeed { begin, stream, endpoint, patience, first, is_whole });
                }
                Err(status) => call::failure(&status),
            };
            resume.recover(self, failure, &endpoint).await?;
        }
    }
}

async fn begin(
    client: &Client,
    asked: &Updates,
    endpoint: &str,
) -> Result<(v1::ContentUpdatesResponse, Streaming<v1::ContentUpdatesResponse>), Status> {
    let borrowed = client.endpoints.connect_to(endpoint);
    let borrowed = borrowed.map_err(|it| Status::invalid_argument(it.to_string()))?;
    let service = ContentClient::new(borrowed.channel.clone());
    let mut service = service.max_decoding_message_size(MESSAGE_BYTES_MAX);
    let first = async {
        let request = v1::ContentUpdatesRequest::from(asked);
        let mut stream = service.updates(request).await?.into_inner();
        let first = stream.message().await?;
        first.map(|it| (it, stream)).ok_or_else(|| Status::unavailable("the feed is empty"))
    };
    match timeout(FEED_BEGIN_WAIT, first).await {
        Ok(begun) => begun,
        Err(_elapsed) => Err(Status::unavailable("no feed began in time")),
    }
}

impl ContentFeed {
    /// What it tells.
    pub fn begin(&self) -> &v1::content_updates_response::Begin {
        &self.begin
    }

    /// The next records, never none of them; `None` after the one of the latest commit, and never before it.
    ///
    /// # Errors
    /// The feed was cut, or cannot be read.
    pub async fn next(&mut self) -> Result<Option<Vec<Record>>, CallError> {
        loop {
            let records = std::mem::take(&mut self.first);
            if !records.is_empty() {
                let records =
                    records.into_iter().map(Record::try_from).collect::<Result<Vec<_>, _>>();
                let records = records.map_err(|it| unreadable(&it, &self.endpoint))?;
                self.is_whole |= records.iter().any(|it| it.category == Category::Latest);
                return Ok(Some(records));
            }
            let failure = match timeout(self.patience, self.stream.message()).await {
                Ok(Ok(Some(message))) => {
                    self.first = message.records;
                    continue;
                }
                Ok(Ok(None)) if self.is_whole => return Ok(None),
                Ok(Ok(None)) => ended(),
                Ok(Err(status)) => call::failure(&status),
                Err(_elapsed) => silent(),
            };
            return Err(call::error(failure, &self.endpoint, 1, Changed::No));
        }
    }
}
