//! Bodies of attachments: streamed both ways in pieces, with little memory.

use super::call::{documents, slot};
use super::upload::{Source, Stopped, silent, upload};
use crate::call;
use crate::error::CallError;
use crate::resume::{BEGIN_WAIT, Resume};
use crate::session::Client;
use bytes::{Bytes, BytesMut};
use rota_docstore::Digest;
use rota_proto::documents::request::{GetBody, PutBody};
use rota_proto::v1;
use sha2::{Digest as _, Sha256};
use std::io::SeekFrom;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncSeek, AsyncSeekExt};
use tokio::time::{Instant, timeout};
use tonic::{Status, Streaming};

/// Bytes of a piece that is sent.
const PIECE_BYTES: usize = 64 * 1024;

struct Pieces<'a, R> {
    begin: Option<v1::PutBodyRequest>,
    source: &'a mut R,
}

impl<R: AsyncRead + Unpin + Send> Source for Pieces<'_, R> {
    type Piece = v1::PutBodyRequest;

    async fn next(&mut self) -> Result<Option<Self::Piece>, CallError> {
        if let Some(begin) = self.begin.take() {
            return Ok(Some(begin));
        }
        let mut piece = BytesMut::with_capacity(PIECE_BYTES);
        let read = self.source.read_buf(&mut piece).await;
        read.map_err(|it| CallError::Source(it.to_string()))?;
        let part = v1::put_body_request::Part::Bytes(piece.freeze());
        let is_end = matches!(&part, v1::put_body_request::Part::Bytes(it) if it.is_empty());
        Ok((!is_end).then_some(v1::PutBodyRequest { part: Some(part) }))
    }
}

pub(super) async fn put<R>(
    client: &Client,
    put: &PutBody,
    source: &mut R,
    patience: Duration,
) -> Result<bool, CallError>
where
    R: AsyncRead + AsyncSeek + Unpin + Send,
{
    let mut resume = Resume::changing(client, patience);
    loop {
        let (space, docid) = (put.space.as_str(), &put.docid);
        let endpoint = owner(client, &mut resume, space, docid).await;
        let borrowed = client.endpoints.connect_to(&endpoint)?;
        let rewound = source.seek(SeekFrom::Start(0)).await;
        rewound.map_err(|it| CallError::Source(it.to_string()))?;
        let mut pieces = Pieces { begin: Some(put.into()), source };
        let mut service = documents(borrowed.channel.clone());
        let sent = upload(&mut pieces, patience, |it| service.put_body(it)).await;
        let failure = match sent {
            Ok(v1::PutBodyResponse { known }) => return Ok(known),
            Err(Stopped::Local(error)) => return Err(error),
            Err(Stopped::Failed(failure)) => failure,
        };
        resume.recover(client, failure, &endpoint).await?;
    }
}

pub(super) async fn owner(
    client: &Client,
    resume: &mut Resume,
    space: &str,
    docid: &str,
) -> Arc<str> {
    resume.awake(client).await;
    let deadline = Instant::now() + BEGIN_WAIT;
    client.target(&|m| slot(space, docid, m), resume.route(), deadline).await
}

/// A body that is being read. After a break it goes on at the next endpoint where it was. A body
/// that is read from its beginning is checked at its end: one of another digest is an error.
#[derive(Debug)]
pub struct BodyReader {
    client: Client,
    /// What is missing from here on.
    get: GetBody,
    stream: Option<(Streaming<v1::GetBodyResponse>, Arc<str>)>,
    resume: Resume,
    digesting: Option<Sha256>,
    is_over: bool,
}

impl BodyReader {
    pub(super) fn new(client: Client, get: GetBody, patience: Duration) -> Self {
        let resume = Resume::reading(&client, patience);
        let digesting = (get.offset == 0 && get.length == 0).then(Sha256::new);
        Self { client, get, stream: None, resume, digesting, is_over: false }
    }

    /// Where the next piece begins.
    pub fn offset(&self) -> u64 {
        self.get.offset
    }

    /// The next piece, never an empty one; `None` at the end. Waits for it as long as the patience
    /// lasts. Safe to drop and call again.
    pub async fn next(&mut self) -> Result<Option<Bytes>, CallError> {
        while !self.is_over {
            let (failure, endpoint) = match &mut self.stream {
                None => {
                    let space = self.get.space.as_str();
                    let endpoint =
                        owner(&self.client, &mut self.resume, space, &self.get.docid).await;
                    match self.begin(&endpoint).await {
                        Ok(stream) => {
                            self.stream = Some((stream, endpoint));
                            continue;
                        }
                        Err(status) => (call::failure(&status), endpoint),
                    }
                }
                Some((stream, endpoint)) => {
                    match timeout(self.resume.patience(), stream.message()).await {
                        Ok(Ok(Some(piece))) if piece.bytes.is_empty() => continue,
                        Ok(Ok(Some(piece))) => return Ok(Some(self.take(piece.bytes))),
                        Ok(Ok(None)) => {
                            let endpoint = Arc::clone(endpoint);
                            return self.end(&endpoint).map(|()| None);
                        }
                        Ok(Err(status)) => (call::failure(&status), Arc::clone(endpoint)),
                        Err(_elapsed) => (silent(), Arc::clone(endpoint)),
                    }
                }
            };
            self.stream = None;
            self.resume.recover(&self.client, failure, &endpoint).await?;
        }
        Ok(None)
    }

    async fn begin(&self, endpoint: &str) -> Result<Streaming<v1::GetBodyResponse>, Status> {
        let borrowed = self.client.endpoints.connect_to(endpoint);
        let borrowed = borrowed.map_err(|it| Status::invalid_argument(it.to_string()))?;
        let mut service = documents(borrowed.channel.clone());
        match timeout(BEGIN_WAIT, service.get_body(v1::GetBodyRequest::from(&self.get))).await {
            Ok(begun) => Ok(begun?.into_inner()),
            Err(_elapsed) => Err(Status::unavailable("no stream began in time")),
        }
    }

    fn take(&mut self, bytes: Bytes) -> Bytes {
        self.resume.went_on();
        self.get.offset += bytes.len() as u64;
        if self.get.length > 0 {
            self.get.length = self.get.length.saturating_sub(bytes.len() as u64);
            // A length of 0 would ask for the rest.
            self.is_over = self.get.length == 0;
        }
        if let Some(digesting) = &mut self.digesting {
            digesting.update(&bytes);
        }
        bytes
    }

    fn end(&mut self, endpoint: &str) -> Result<(), CallError> {
        self.is_over = true;
        self.stream = None;
        let Some(digesting) = self.digesting.take() else {
            return Ok(());
        };
        let came = Digest(digesting.finalize().into());
        if came == self.get.sha256 {
            return Ok(());
        }
        let problem = format!("the body has digest {came}, not {}", self.get.sha256);
        Err(CallError::Unreadable { problem, endpoint: endpoint.to_owned() })
    }
}
