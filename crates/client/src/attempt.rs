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

    /// Whether it changes anything when it succeeds.
    fn may_change(&self) -> bool {
        true
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

fn operator(channel: Channel) -> OperatorClient<Channel> {
    OperatorClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX)
}

fn node_operator(channel: Channel) -> NodeOperatorClient<Channel> {
    NodeOperatorClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX)
}

/// Calls about one session, each with what is its own.
macro_rules! calls_of_a_session {
    ($($request:ident, $answer:ident, $name:literal, $method:ident, { $($own:tt)* };)*) => {
        $(impl Call for v1::$request {
            type Answer = v1::$answer;
            const NAME: &'static str = $name;

            $($own)*

            async fn send(
                request: Request<Self>,
                channel: Channel,
            ) -> Result<Response<Self::Answer>, Status> {
                sessions(channel).$method(request).await
            }

            fn slot(&self, m: u32) -> Option<SlotId> {
                slot_of(&self.namespace, &self.id, m)
            }
        })*
    };
}

calls_of_a_session! {
    OpenRequest, OpenResponse, "open", open, { fn request_id(&self) -> &str { &self.request_id } };
    CloseRequest, CloseResponse, "close", close, { fn request_id(&self) -> &str { &self.request_id } };
    GetRequest, GetResponse, "get", get, { fn may_change(&self) -> bool { false } };
    KeepAliveRequest, KeepAliveResponse, "keep-alive", keep_alive, { fn may_change(&self) -> bool { false } };
    UpdateRequest, UpdateResponse, "update", update, {};
    GetLifeRequest, GetLifeResponse, "life", get_life, { fn may_change(&self) -> bool { false } };
}

/// Calls that concern no single slot and may be repeated: each only reads, or its service says so.
macro_rules! calls_of_no_slot {
    (may_change: $may_change:literal; $($request:ident, $answer:ident, $name:literal, $client:ident.$method:ident;)*) => {
        $(impl Call for v1::$request {
            type Answer = v1::$answer;
            const NAME: &'static str = $name;

            fn may_change(&self) -> bool {
                $may_change
            }

            async fn send(
                request: Request<Self>,
                channel: Channel,
            ) -> Result<Response<Self::Answer>, Status> {
                $client(channel).$method(request).await
            }
        })*
    };
}
pub(crate) use calls_of_no_slot;

calls_of_no_slot! {
    may_change: false;
    ListRequest, ListResponse, "list", sessions.list;
    InspectRequest, InspectResponse, "inspect", operator.inspect;
    PlacementsRequest, PlacementsResponse, "placements", operator.placements;
    LiveRequest, LiveResponse, "live", node_operator.live;
}

calls_of_no_slot! {
    may_change: true;
    SignalRequest, SignalResponse, "signal", operator.signal;
    JoinRequest, JoinResponse, "join", operator.join;
    LeaveRequest, LeaveResponse, "leave", operator.leave;
    OrderNodeRequest, OrderNodeResponse, "order_node", operator.order_node;
}

impl Call for v1::MendRequest {
    type Answer = v1::MendResponse;
    const NAME: &'static str = "mend";

    fn may_change(&self) -> bool {
        !self.dry_run
    }

    async fn send(
        request: Request<Self>,
        channel: Channel,
    ) -> Result<Response<Self::Answer>, Status> {
        operator(channel).mend(request).await
    }

    fn slot(&self, m: u32) -> Option<SlotId> {
        slot_of(&self.namespace, &self.id, m)
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
        operator(channel).cancel(request).await
    }
}
