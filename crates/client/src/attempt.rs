//! The calls that can be sent again: what each sends, and the slot that it is about.

use rota_model::{Namespace, SessionId, SessionKey, SlotId};
use rota_proto::v1;
use rota_proto::v1::node_operator_client::NodeOperatorClient;
use rota_proto::v1::operator_client::OperatorClient;
use rota_proto::v1::sessions_client::SessionsClient;
use rota_ring::slot_of_session;
use std::future::Future;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

/// Largest answer that is read: a page of 1,000 sessions with 64 KiB of attributes each.
const ANSWER_BYTES_MAX: usize = 80 * 1024 * 1024;

/// A call that may be sent more than once.
pub(crate) trait Call: Clone + Send + Sync + 'static {
    type Answer: Send;

    /// What it is called in the log.
    const NAME: &'static str;

    /// Names the request from here to the node; empty for a call that changes nothing.
    fn request_id(&self) -> &str {
        ""
    }

    /// Whether it does no harm to send it again when it may have happened already.
    fn may_repeat(&self) -> bool {
        true
    }

    /// Sends it once.
    fn send(
        request: Request<Self>,
        channel: Channel,
    ) -> impl Future<Output = Result<Response<Self::Answer>, Status>> + Send;

    /// The slot whose owner decides it; `None` when it concerns no single slot.
    fn slot(&self, _m: u32) -> Option<SlotId> {
        None
    }
}

fn slot_of(namespace: &str, id: &str, m: u32) -> Option<SlotId> {
    let namespace = match namespace {
        "" => Namespace::default_space(),
        given => Namespace::parse(given).ok()?,
    };
    Some(slot_of_session(&SessionKey::new(namespace, SessionId::parse(id).ok()?), m))
}

pub(crate) fn sessions(channel: Channel) -> SessionsClient<Channel> {
    SessionsClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX)
}

impl Call for v1::OpenRequest {
    type Answer = v1::OpenResponse;
    const NAME: &'static str = "open";

    fn request_id(&self) -> &str {
        &self.request_id
    }

    async fn send(
        request: Request<Self>,
        channel: Channel,
    ) -> Result<Response<Self::Answer>, Status> {
        sessions(channel).open(request).await
    }

    fn slot(&self, m: u32) -> Option<SlotId> {
        slot_of(&self.namespace, &self.id, m)
    }
}

impl Call for v1::CloseRequest {
    type Answer = v1::CloseResponse;
    const NAME: &'static str = "close";

    fn request_id(&self) -> &str {
        &self.request_id
    }

    async fn send(
        request: Request<Self>,
        channel: Channel,
    ) -> Result<Response<Self::Answer>, Status> {
        sessions(channel).close(request).await
    }

    fn slot(&self, m: u32) -> Option<SlotId> {
        slot_of(&self.namespace, &self.id, m)
    }
}

impl Call for v1::GetRequest {
    type Answer = v1::GetResponse;
    const NAME: &'static str = "get";

    async fn send(
        request: Request<Self>,
        channel: Channel,
    ) -> Result<Response<Self::Answer>, Status> {
        sessions(channel).get(request).await
    }

    fn slot(&self, m: u32) -> Option<SlotId> {
        slot_of(&self.namespace, &self.id, m)
    }
}

impl Call for v1::ListRequest {
    type Answer = v1::ListResponse;
    const NAME: &'static str = "list";

    async fn send(
        request: Request<Self>,
        channel: Channel,
    ) -> Result<Response<Self::Answer>, Status> {
        sessions(channel).list(request).await
    }
}

impl Call for v1::InspectRequest {
    type Answer = v1::InspectResponse;
    const NAME: &'static str = "inspect";

    async fn send(
        request: Request<Self>,
        channel: Channel,
    ) -> Result<Response<Self::Answer>, Status> {
        OperatorClient::new(channel)
            .max_decoding_message_size(ANSWER_BYTES_MAX)
            .inspect(request)
            .await
    }
}

impl Call for v1::SignalRequest {
    type Answer = v1::SignalResponse;
    const NAME: &'static str = "signal";

    async fn send(
        request: Request<Self>,
        channel: Channel,
    ) -> Result<Response<Self::Answer>, Status> {
        OperatorClient::new(channel).signal(request).await
    }
}

impl Call for v1::JoinRequest {
    type Answer = v1::JoinResponse;
    const NAME: &'static str = "join";

    async fn send(
        request: Request<Self>,
        channel: Channel,
    ) -> Result<Response<Self::Answer>, Status> {
        OperatorClient::new(channel).join(request).await
    }
}

impl Call for v1::LeaveRequest {
    type Answer = v1::LeaveResponse;
    const NAME: &'static str = "leave";

    async fn send(
        request: Request<Self>,
        channel: Channel,
    ) -> Result<Response<Self::Answer>, Status> {
        OperatorClient::new(channel).leave(request).await
    }
}

impl Call for v1::OrderNodeRequest {
    type Answer = v1::OrderNodeResponse;
    const NAME: &'static str = "order_node";

    async fn send(
        request: Request<Self>,
        channel: Channel,
    ) -> Result<Response<Self::Answer>, Status> {
        OperatorClient::new(channel).order_node(request).await
    }
}

impl Call for v1::PlacementsRequest {
    type Answer = v1::PlacementsResponse;
    const NAME: &'static str = "placements";

    async fn send(
        request: Request<Self>,
        channel: Channel,
    ) -> Result<Response<Self::Answer>, Status> {
        OperatorClient::new(channel)
            .max_decoding_message_size(ANSWER_BYTES_MAX)
            .placements(request)
            .await
    }
}

impl Call for v1::LiveRequest {
    type Answer = v1::LiveResponse;
    const NAME: &'static str = "live";

    async fn send(
        request: Request<Self>,
        channel: Channel,
    ) -> Result<Response<Self::Answer>, Status> {
        NodeOperatorClient::new(channel)
            .max_decoding_message_size(ANSWER_BYTES_MAX)
            .live(request)
            .await
    }
}

impl Call for v1::CancelRequest {
    type Answer = v1::CancelResponse;
    const NAME: &'static str = "cancel";

    /// The second would take back what the first began.
    fn may_repeat(&self) -> bool {
        false
    }

    async fn send(
        request: Request<Self>,
        channel: Channel,
    ) -> Result<Response<Self::Answer>, Status> {
        OperatorClient::new(channel).cancel(request).await
    }
}
