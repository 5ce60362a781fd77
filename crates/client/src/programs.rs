//! What programs of sessions print and use.

use crate::attempt::{Call, calls_of_no_slot};
use crate::call;
use crate::error::CallError;
use crate::resume::{BEGIN_WAIT, Resume, ended};
use crate::session::Client;
use rota_proto::v1;
use rota_proto::v1::logs_response::{Begin, Part, Piece};
use rota_proto::v1::programs_client::ProgramsClient;
use std::time::Duration;
use tokio::time::timeout;
use tonic::transport::Channel;
use tonic::{Request, Response, Status, Streaming};

/// Most bytes of an answer: a page of a thousand sessions with long names.
const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A manager may ask every node before it begins to answer.
const LOGS_BEGIN_WAIT: Duration = BEGIN_WAIT.saturating_mul(3);

fn programs(channel: Channel) -> ProgramsClient<Channel> {
    ProgramsClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX)
}

calls_of_no_slot! {
    may_change: false;
    UsageRequest, UsageResponse, "usage", programs.usage;
    ContentStatusRequest, ContentStatusResponse, "content_status", programs.content_status;
}

/// What comes of a program's output.
#[derive(Clone, PartialEq, Debug)]
pub enum Printed {
    /// Where it comes from; said once.
    Begins(Begin),
    /// The next bytes of one output.
    Piece(Piece),
    /// So many bytes of an output are not kept any more.
    Missing {
        /// Which output.
        output: v1::Output,
        /// How many.
        bytes: u64,
    },
}

/// A program's output, every byte once and in order, over breaks: it goes on at the next endpoint where it was.
#[derive(Debug)]
pub struct Logs {
    client: Client,
    /// What is missing from here on.
    request: v1::LogsRequest,
    stream: Option<Streaming<v1::LogsResponse>>,
    resume: Resume,
    begun: bool,
    /// A piece behind a gap that was told.
    held: Option<Piece>,
    running: Option<bool>,
}

impl Logs {
    pub(crate) fn new(client: Client, request: v1::LogsRequest, patience: Duration) -> Self {
        let resume = Resume::reading(&client, patience);
        Self { client, request, stream: None, resume, begun: false, held: None, running: None }
    }

    /// After the end: whether the program runs on.
    pub fn running(&self) -> Option<bool> {
        self.running
    }

    /// What comes next; `None` at the end. Fails when it is refused for good, or nobody serves it for as long as the
    /// patience lasts. Safe to drop and call again.
    ///
    /// # Errors
    /// The refusal, or what broke last.
    pub async fn next(&mut self) -> Result<Option<Printed>, CallError> {
        while self.running.is_none() {
            if let Some(piece) = self.held.take() {
                return Ok(Some(self.take(piece)));
            }
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
            let failure = match got.map(|it| it.and_then(|it| it.part)) {
                Ok(Some(part)) => {
                    self.resume.went_on();
                    match self.on(part) {
                        Some(printed) => return Ok(Some(printed)),
                        None => continue,
                    }
                }
                Ok(None) => ended(),
                Err(status) => call::failure(&status),
            };
            self.stream = None;
            let endpoint = self.resume.entry(&self.client);
            self.resume.recover(&self.client, failure, &endpoint).await?;
        }
        Ok(None)
    }

    fn on(&mut self, part: Part) -> Option<Printed> {
        match part {
            // What was begun goes on with the same life at the same node.
            Part::Begin(begin) => {
                (self.request.life, self.request.node) = (begin.life, begin.node.clone());
                let (out, err) = (&mut self.request.stdout_from, &mut self.request.stderr_from);
                out.get_or_insert(begin.stdout_from);
                err.get_or_insert(begin.stderr_from);
                let is_first = !std::mem::replace(&mut self.begun, true);
                is_first.then_some(Printed::Begins(begin))
            }
            Part::Piece(piece) => {
                let output = piece.output();
                let bytes = piece.offset.saturating_sub(self.position(output));
                if bytes == 0 {
                    return Some(self.take(piece));
                }
                self.held = Some(piece);
                Some(Printed::Missing { output, bytes })
            }
            Part::End(end) => {
                self.running = Some(end.running);
                None
            }
        }
    }

    fn position(&self, output: v1::Output) -> u64 {
        let from = match output {
            v1::Output::Stdout | v1::Output::Unspecified => self.request.stdout_from,
            v1::Output::Stderr => self.request.stderr_from,
        };
        from.unwrap_or(0)
    }

    fn take(&mut self, piece: Piece) -> Printed {
        let next = Some(piece.offset + piece.bytes.len() as u64);
        match piece.output() {
            v1::Output::Stdout | v1::Output::Unspecified => self.request.stdout_from = next,
            v1::Output::Stderr => self.request.stderr_from = next,
        }
        Printed::Piece(piece)
    }

    async fn begin(&mut self) -> Result<Streaming<v1::LogsResponse>, Status> {
        self.resume.awake(&self.client).await;
        let endpoint = self.resume.entry(&self.client);
        let borrowed = self.client.endpoints.connect_to(&endpoint);
        let borrowed = borrowed.map_err(|it| Status::invalid_argument(it.to_string()))?;
        let mut client = programs(borrowed.channel.clone());
        match timeout(LOGS_BEGIN_WAIT, client.logs(self.request.clone())).await {
            Ok(begun) => Ok(begun?.into_inner()),
            Err(_elapsed) => Err(Status::unavailable("no stream began in time")),
        }
    }
}

impl Client {
    /// What the program of a session prints. Nothing is sent before the first [`Logs::next`]. `patience`: how long no
    /// endpoint may serve it.
    pub fn logs(&self, request: v1::LogsRequest, patience: Duration) -> Logs {
        Logs::new(self.clone(), request, patience)
    }

    /// Which commit of content a node has; with `sessions` also which of them began with another one.
    ///
    /// # Errors
    /// The refusal, or that nobody answered within `wait`.
    pub async fn content_status(
        &self,
        node: &str,
        sessions: bool,
        wait: Duration,
    ) -> Result<v1::ContentStatusResponse, CallError> {
        let node = node.to_owned();
        let request = v1::ContentStatusRequest { node, sessions, ..Default::default() };
        Ok(self.call(request, wait).await?.answer)
    }

    /// What sessions of one node use: every page as one. Of each page counts when it was measured, so the pages of
    /// two such answers are compared session by session.
    ///
    /// # Errors
    /// The refusal, or that nobody answered each page within `wait`.
    pub async fn usage(
        &self,
        node: &str,
        wait: Duration,
    ) -> Result<Vec<v1::UsageResponse>, CallError> {
        let mut request = v1::UsageRequest { node: node.to_owned(), ..Default::default() };
        let mut pages = Vec::new();
        loop {
            let page = self.call(request.clone(), wait).await?.answer;
            let last = page.sessions.last().and_then(|it| it.key.clone());
            let is_last = !page.more || last.is_none();
            pages.push(page);
            if is_last {
                return Ok(pages);
            }
            request.after = last;
        }
    }
}
