//! What happened lately at one manager.

use crate::call;
use crate::error::CallError;
use crate::resume::BEGIN_WAIT;
use crate::retry::Failure;
use crate::session::Client;
use rota_model::Changed;
use rota_proto::v1;
use rota_proto::v1::operator_client::OperatorClient;
use std::sync::Arc;
use tokio::time::timeout;
use tonic::{Code, Streaming};

/// Longest page: 500 events with long sentences.
const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Events of one manager, oldest first.
#[derive(Debug)]
pub struct Events {
    stream: Streaming<v1::EventsResponse>,
    endpoint: Arc<str>,
}

impl Client {
    /// Asks the manager at that address what happened there, once.
    ///
    /// # Errors
    /// It does not answer, or refuses.
    pub async fn events_at(
        &self,
        address: &str,
        request: v1::EventsRequest,
    ) -> Result<Events, CallError> {
        let borrowed = self.endpoints.connect_to(address)?;
        let service = OperatorClient::new(borrowed.channel.clone());
        let mut service = service.max_decoding_message_size(PAGE_BYTES_MAX);
        let failure = match timeout(BEGIN_WAIT, service.events(request)).await {
            Ok(Ok(answer)) => {
                return Ok(Events { stream: answer.into_inner(), endpoint: address.into() });
            }
            Ok(Err(status)) => call::failure(&status),
            Err(_elapsed) => {
                let message = format!("no answer within {BEGIN_WAIT:?}");
                Failure::Broken { code: Code::DeadlineExceeded, message, is_unsent: false }
            }
        };
        Err(call::error(failure, address, 1, Changed::No))
    }
}

impl Events {
    /// The next page; `None` at the end. Safe to drop and call again.
    ///
    /// # Errors
    /// The stream broke.
    pub async fn next(&mut self) -> Result<Option<v1::EventsResponse>, CallError> {
        let page = self.stream.message().await;
        page.map_err(|status| call::error(call::failure(&status), &self.endpoint, 1, Changed::No))
    }
}
