//! The calls about documents and namespaces that are one message each way.

use crate::attempt::{Call, calls_of_no_slot};
use rota_model::{FieldError, Namespace, SlotId};
use rota_proto::documents::{ADMIN_KEY_METADATA, ANSWER_BYTES_MAX};
use rota_proto::v1;
use rota_proto::v1::documents_client::DocumentsClient;
use rota_proto::v1::namespaces_client::NamespacesClient;
use rota_ring::slot_of_document;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

/// A message with the administrator's key, if there is one.
pub(super) fn with_key<T>(message: T, key: Option<&AsciiMetadataValue>) -> Request<T> {
    keyed(Request::new(message), key)
}

fn keyed<T>(mut request: Request<T>, key: Option<&AsciiMetadataValue>) -> Request<T> {
    if let Some(key) = key {
        request.metadata_mut().insert(ADMIN_KEY_METADATA, key.clone());
    }
    request
}

/// The administrator's key, marked as sensitive: it is not printed. An empty one is none. Field `admin_key`.
pub(crate) fn admin_key(key: &str) -> Result<Option<AsciiMetadataValue>, FieldError> {
    let wrong = |_| FieldError::new("admin_key", "has other than visible ASCII characters");
    let mut value = AsciiMetadataValue::try_from(key).map_err(wrong)?;
    value.set_sensitive(true);
    Ok(Some(value).filter(|_| !key.is_empty()))
}

/// A call with the administrator's key, if there is one.
#[derive(Clone)]
pub(crate) struct Keyed<C> {
    pub(crate) call: C,
    pub(crate) key: Option<AsciiMetadataValue>,
}

impl<C: Call> Call for Keyed<C> {
    type Answer = C::Answer;
    const NAME: &'static str = C::NAME;

    fn request_id(&self) -> &str {
        self.call.request_id()
    }

    fn may_change(&self) -> bool {
        self.call.may_change()
    }

    fn may_repeat(&self) -> bool {
        self.call.may_repeat()
    }

    async fn send(
        request: Request<Self>,
        channel: Channel,
    ) -> Result<Response<Self::Answer>, Status> {
        let (metadata, extensions, Keyed { call, key }) = request.into_parts();
        let request = Request::from_parts(metadata, extensions, call);
        C::send(keyed(request, key.as_ref()), channel).await
    }

    fn slot(&self, m: u32) -> Option<SlotId> {
        self.call.slot(m)
    }
}

/// The slot of a document's name; `None` when it has none.
pub(super) fn slot(namespace: &str, docid: &str, m: u32) -> Option<SlotId> {
    let namespace = match namespace {
        "" => Namespace::default_space(),
        given => Namespace::parse(given).ok()?,
    };
    Some(slot_of_document(&namespace, docid, m))
}

pub(crate) fn documents(channel: Channel) -> DocumentsClient<Channel> {
    DocumentsClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX)
}

pub(super) fn namespaces(channel: Channel) -> NamespacesClient<Channel> {
    NamespacesClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX)
}

impl Call for v1::OperateRequest {
    type Answer = v1::OperateResponse;
    const NAME: &'static str = "operate";

    fn request_id(&self) -> &str {
        &self.request_id
    }

    /// Without an operation time, or a name that tells it from others, a repetition is a new operation.
    fn may_repeat(&self) -> bool {
        self.operation_time != 0 && !(self.request_id.is_empty() && self.account.is_empty())
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

    fn may_change(&self) -> bool {
        false
    }

    async fn send(
        request: Request<Self>,
        channel: Channel,
    ) -> Result<Response<Self::Answer>, Status> {
        documents(channel).sync(request).await
    }

    /// That of all its documents, if they share one.
    fn slot(&self, m: u32) -> Option<SlotId> {
        let of = |sync: &v1::DocumentSync| {
            sync.name.as_ref().and_then(|name| slot(&name.namespace, &name.docid, m))
        };
        let first = of(self.documents.first()?)?;
        self.documents.iter().all(|it| of(it) == Some(first)).then_some(first)
    }
}

calls_of_no_slot! {
    may_change: false;
    ListOperationsRequest, ListOperationsResponse, "list operations", documents.list_operations;
    ListDocumentsRequest, ListDocumentsResponse, "list documents", documents.list_documents;
    SearchRequest, SearchResponse, "search documents", documents.search;
    ListNamespacesRequest, ListNamespacesResponse, "list namespaces", namespaces.list_namespaces;
    GetNamespaceRequest, NamespaceInfo, "get namespace", namespaces.get_namespace;
}

calls_of_no_slot! {
    may_change: true;
    CreateNamespaceRequest, NamespaceInfo, "create namespace", namespaces.create_namespace;
    SetNamespaceRequest, NamespaceInfo, "set namespace", namespaces.set_namespace;
    SwitchNamespaceRequest, NamespaceInfo, "switch namespace", namespaces.switch_namespace;
}
