//! The calls about documents and namespaces that are one message each way.

use crate::attempt::Call;
use rota_model::{Namespace, SlotId};
use rota_proto::documents::MESSAGE_BYTES_MAX;
use rota_proto::v1;
use rota_proto::v1::documents_client::DocumentsClient;
use rota_proto::v1::namespaces_client::NamespacesClient;
use rota_ring::slot_of_document;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

/// The slot of a document's name; `None` when it has none.
pub(super) fn slot(namespace: &str, docid: &str, m: u32) -> Option<SlotId> {
    let namespace = match namespace {
        "" => Namespace::default_space(),
        given => Namespace::parse(given).ok()?,
    };
    Some(slot_of_document(&namespace, docid, m))
}

pub(super) fn documents(channel: Channel) -> DocumentsClient<Channel> {
    DocumentsClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX)
}

pub(super) fn namespaces(channel: Channel) -> NamespacesClient<Channel> {
    NamespacesClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX)
}

impl Call for v1::OperateRequest {
    type Answer = v1::OperateResponse;
    const NAME: &'static str = "operate";

    /// Without a dhop a repetition is a new operation.
    fn may_repeat(&self) -> bool {
        self.dhop != 0
    }

    async fn send(
        request: Request<Self>,
        channel: Channel,
    ) -> Result<Response<Self::Answer>, Status> {
        documents(channel).operate(request).await
    }

    fn slot(&self, m: u32) -> Option<SlotId> {
        slot(&self.namespace, &self.docid, m)
    }
}

impl Call for v1::SyncRequest {
    type Answer = v1::SyncResponse;
    const NAME: &'static str = "sync";

    async fn send(
        request: Request<Self>,
        channel: Channel,
    ) -> Result<Response<Self::Answer>, Status> {
        documents(channel).sync(request).await
    }

    /// That of all its documents, if they share one.
    fn slot(&self, m: u32) -> Option<SlotId> {
        let of = |it: &v1::DocumentSync| {
            it.name.as_ref().and_then(|name| slot(&name.namespace, &name.docid, m))
        };
        let first = of(self.documents.first()?)?;
        self.documents.iter().all(|it| of(it) == Some(first)).then_some(first)
    }
}

macro_rules! calls_of_no_slot {
    ($($request:ident, $answer:ident, $name:literal, $client:ident.$method:ident;)*) => {
        $(impl Call for v1::$request {
            type Answer = v1::$answer;
            const NAME: &'static str = $name;

            async fn send(
                request: Request<Self>,
                channel: Channel,
            ) -> Result<Response<Self::Answer>, Status> {
                $client(channel).$method(request).await
            }

            fn slot(&self, _m: u32) -> Option<SlotId> {
                None
            }
        })*
    };
}

// Each of these may be repeated: it only reads, or the service says so.
calls_of_no_slot! {
    ListDocumentsRequest, ListDocumentsResponse, "list documents", documents.list_documents;
    CreateNamespaceRequest, NamespaceInfo, "create namespace", namespaces.create_namespace;
    ListNamespacesRequest, ListNamespacesResponse, "list namespaces", namespaces.list_namespaces;
    GetNamespaceRequest, NamespaceInfo, "get namespace", namespaces.get_namespace;
    SwitchNamespaceRequest, NamespaceInfo, "switch namespace", namespaces.switch_namespace;
}
