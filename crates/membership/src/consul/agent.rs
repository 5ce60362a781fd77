//! Calls to the local Consul agent: the consulrs crate with what it lacks, deadlines on every call
//! and errors in our words.

use super::address::ConsulAddress;
use crate::port::StoreError;
use consulrs::api::ApiResponse;
use consulrs::api::features::{Blocking, ConsistencyMode, Features};
use consulrs::client::{ConsulClient, ConsulClientSettings};
use consulrs::error::ClientError;
use rota_daemon::private::read_secret;
use rota_model::FieldError;
use rustify::errors::ClientError as RestError;
use std::error::Error;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tracing::dispatcher::Dispatch;
use tracing::instrument::WithSubscriber;

/// The environment variable with a token for Consul's access control, if it uses that.
const TOKEN: &str = "CONSUL_HTTP_TOKEN";

/// The one with the path of a file that holds it, which goes before the other, as in Consul's own programs.
const TOKEN_FILE: &str = "CONSUL_HTTP_TOKEN_FILE";

/// Longest token, in bytes. Consul's are UUIDs, or what an operator made up.
const TOKEN_BYTES_MAX: usize = 1024;

/// How long an idle connection is kept: Consul keeps them for two minutes or more, so a request
/// seldom meets a connection that the other side is closing.
const IDLE: Duration = Duration::from_secs(60);

/// A client of one agent; clones share its connections.
#[derive(Clone)]
pub struct Agent {
    client: Arc<ConsulClient>,
    address: ConsulAddress,
    deadline: Duration,
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // No token in a log.
        f.debug_struct("Agent").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Why a call came to nothing.
#[derive(Debug)]
pub(super) enum Failure {
    /// 404: there is no such key or service.
    Missing,
    /// Anything else.
    Other(StoreError),
}

impl From<Failure> for StoreError {
    fn from(it: Failure) -> Self {
        match it {
            Failure::Missing => StoreError::Refused("404: there is no such thing".into()),
            Failure::Other(error) => error,
        }
    }
}

/// A blocking query: answers when the index is above this one, or after the wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Until {
    pub index: u64,
    pub wait: Duration,
}

impl Agent {
    /// A client of the agent at `address`. Every answer is awaited for `deadline`, a blocking
    /// query's for its wait (which Consul makes a little longer) and `deadline`. Nothing is sent
    /// yet. A token for Consul's access control is taken from the file that `CONSUL_HTTP_TOKEN_FILE`
    /// names, or from `CONSUL_HTTP_TOKEN`.
    ///
    /// # Errors
    /// When others can read the file with the token, the token cannot be sent, or the HTTP client cannot be
    /// made.
    pub fn new(address: &ConsulAddress, deadline: Duration) -> Result<Self, FieldError> {
        let token = match std::env::var_os(TOKEN_FILE).filter(|it| !it.is_empty()) {
            Some(file) => Some(read_secret(TOKEN_FILE, Path::new(&file), TOKEN_BYTES_MAX)?),
            None => std::env::var(TOKEN).ok().filter(|it| !it.is_empty()),
        };
        if token.as_ref().is_some_and(|it| !it.bytes().all(|byte| byte.is_ascii_graphic())) {
            return Err(FieldError::new(TOKEN, "has characters that no token has"));
        }
        let client = reqwest::Client::builder()
            .connect_timeout(deadline)
            .pool_idle_timeout(IDLE)
            .tcp_nodelay(true)
            // The agent is local: a proxy of the environment has no business with it.
            .no_proxy()
            .build()
            .map_err(|error| FieldError::new("HTTP client", error.to_string()))?;
        let base = format!("http://{}", address.authority());
        let settings = ConsulClientSettings {
            address: base.clone(),
            ca_certs: Vec::new(),
            client_cert: None,
            client_key: None,
            token,
            verify: true,
            version: 1,
        };
        let http = rustify::clients::reqwest::Client::new(&base, client);
        let client = Arc::new(ConsulClient { http, settings });
        Ok(Self { client, address: address.clone(), deadline })
    }

    /// Where it is.
    pub fn address(&self) -> &ConsulAddress {
        &self.address
    }

    /// What consulrs calls a client.
    pub(super) fn consul(&self) -> &ConsulClient {
        &self.client
    }

    /// Waits for a call, `wait` longer than the deadline.
    pub(super) async fn within<T>(
        &self,
        wait: Duration,
        call: impl Future<Output = Result<ApiResponse<T>, ClientError>>,
    ) -> Result<ApiResponse<T>, Failure> {
        let limit = self.deadline + wait + wait / 16;
        // consulrs logs each call, and each error at the level of errors; the callers here know
        // which of them are worth a line.
        let call = call.with_subscriber(Dispatch::none());
        match tokio::time::timeout(limit, call).await {
            Ok(answer) => answer.map_err(|error| failure(&error)),
            Err(_) => Err(Failure::Other(StoreError::Timeout(limit))),
        }
    }
}

/// Linearizable, and blocking when `until` is given. Never stale: a View that is only said to be
/// current is worth nothing here.
pub(super) fn consistent(until: Option<Until>) -> Features {
    let blocking = until.map(|until| Blocking {
        // Consul takes 0 for "do not block".
        index: until.index.max(1),
        wait: Some(format!("{}ms", until.wait.as_millis().max(1))),
    });
    Features { blocking, cached: None, filter: None, mode: Some(ConsistencyMode::CONSISTENT) }
}

/// The index to block on after this answer; 0 when it has none.
pub(super) fn index_of<T>(answer: &ApiResponse<T>) -> u64 {
    answer.index.as_ref().and_then(|it| it.parse().ok()).unwrap_or(0)
}

fn failure(error: &ClientError) -> Failure {
    if let ClientError::APIError { code, message } = error {
        return answered(*code, message.as_deref().unwrap_or_default());
    }
    if let ClientError::RestClientError { source: RestError::ResponseParseError { source, .. } } =
        error
    {
        return Failure::Other(StoreError::Broken(format!("its answer does not parse: {source}")));
    }
    Failure::Other(StoreError::Unreachable(with_causes(error)))
}

fn answered(code: u16, message: &str) -> Failure {
    let text = format!("{code}: {}", message.trim().chars().take(500).collect::<String>());
    match code {
        404 => Failure::Missing,
        // Without a leader, or with too many connections, the agent answers for others: as good as
        // away, and perhaps the request went on its way all the same.
        429 | 500.. => Failure::Other(StoreError::Unreachable(format!("Consul answers {text}"))),
        _ => Failure::Other(StoreError::Refused(format!("Consul answers {text}"))),
    }
}

fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let more = inner.to_string();
        // Some of these errors print their cause, too.
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = inner.source();
    }
    text
}
