//! Bytes that nobody sent, and messages with a damaged byte, never panic; what still converts is
//! a proper value.

use crate::strategies as some;
use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message as _;
use rota_docstore::{DocName, Document, Update};
use rota_messages::Envelope;
use rota_model::ClusterName;
use rota_model::node_msg::{FromNode, Registered, Renewed, ToNode};
use rota_proto::documents::{self, NamespaceState};
use rota_proto::keep_alive::keep_alive;
use rota_proto::{Inspected, Position, Session, node, request, v1};

fn try_everything(bytes: &[u8]) {
    fn convert<W: prost::Message + Default, T: TryFrom<W>>(bytes: &[u8]) {
        if let Ok(wire) = W::decode(bytes) {
            drop(T::try_from(wire));
        }
    }
    convert::<v1::Envelope, Envelope>(bytes);
    convert::<v1::NodeCall, ToNode>(bytes);
    convert::<v1::NodeAnswer, FromNode>(bytes);
    convert::<v1::RegisterResponse, Registered>(bytes);
    convert::<v1::RenewResponse, Renewed>(bytes);
    convert::<v1::InspectResponse, Inspected>(bytes);
    convert::<v1::Session, Session>(bytes);
    // Whatever cluster the bytes name: what comes after it is to be reached.
    let cluster = |name: &str| ClusterName::parse(name).unwrap_or_else(|_| some::cluster());
    drop(v1::RegisterRequest::decode(bytes).map(|it| node::register(&cluster(&it.cluster), it)));
    drop(v1::RenewRequest::decode(bytes).map(|it| node::renew(&cluster(&it.cluster), it)));
    drop(v1::ReportRequest::decode(bytes).map(|it| node::report_items(&cluster(&it.cluster), it)));
    drop(v1::NodeCallBatch::decode(bytes).map(|batch| {
        let calls = node::calls(&cluster(&batch.cluster), batch);
        calls.map(Iterator::count)
    }));
    let fresh = || rota_model::RequestId::parse("fresh").expect("a valid name");
    drop(v1::OpenRequest::decode(bytes).map(|it| request::open(it, rota_model::Stamp::MIN, fresh)));
    drop(v1::CloseRequest::decode(bytes).map(|it| request::close(it, fresh)));
    drop(v1::KeepAliveRequest::decode(bytes).map(|it| keep_alive(&it)));
    drop(v1::MendRequest::decode(bytes).map(|it| rota_proto::mend::mend(&it)));
    drop(v1::GetRequest::decode(bytes).map(request::get));
    drop(v1::ListRequest::decode(bytes).map(request::list));
    drop(v1::WatchRequest::decode(bytes).map(|it| request::watch(&it)));
    drop(v1::SendRequest::decode(bytes).map(request::send));
    drop(v1::SignalRequest::decode(bytes).map(rota_proto::operator::signal));
    drop(v1::JoinRequest::decode(bytes).map(rota_proto::operator::join));
    drop(Position::from_bytes(bytes));
    convert::<v1::Document, Document>(bytes);
    convert::<v1::DocumentUpdate, (DocName, Update)>(bytes);
    convert::<v1::NamespaceInfo, NamespaceState>(bytes);
    drop(v1::OperateRequest::decode(bytes).map(documents::request::operate));
    drop(v1::OperateResponse::decode(bytes).map(documents::answer::operated));
    drop(v1::SyncRequest::decode(bytes).map(documents::request::sync));
    drop(v1::ListDocumentsRequest::decode(bytes).map(documents::request::list));
    drop(v1::PutBodyRequest::decode(bytes).map(|it| documents::request::put_body(Some(it))));
    drop(v1::GetBodyRequest::decode(bytes).map(|it| documents::request::get_body(&it)));
    drop(v1::ExportDocumentRequest::decode(bytes).map(documents::request::export_document));
    let order = documents::document_export::Order::default;
    drop(v1::DocumentRecord::decode(bytes).map(|it| order().take(it)));
    drop(v1::CreateNamespaceRequest::decode(bytes).map(documents::request::create));
    drop(v1::SetNamespaceRequest::decode(bytes).map(documents::request::set));
    drop(v1::SwitchNamespaceRequest::decode(bytes).map(documents::request::switch));
    drop(v1::NamespaceRecord::decode(bytes).map(|it| documents::export::Order::new().take(it)));
}

fn damaged(mut bytes: Vec<u8>, damage: &[(prop::sample::Index, u8)]) -> Vec<u8> {
    for (index, byte) in damage {
        if !bytes.is_empty() {
            let at = index.index(bytes.len());
            bytes[at] ^= byte;
        }
    }
    bytes
}

fn damage() -> some::Any<Vec<(prop::sample::Index, u8)>> {
    vec((any::<prop::sample::Index>(), any::<u8>()), 0..4).boxed()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn random_bytes_never_panic_a_decoder(bytes in vec(any::<u8>(), 0..120)) {
        try_everything(&bytes);
    }

    #[test]
    fn damaged_documents_never_panic_a_decoder(
        (name, update, operate) in (some::doc_name(), some::update(), some::operate()),
        damage in damage(),
    ) {
        let update = v1::DocumentUpdate::from((&name, &update)).encode_to_vec();
        try_everything(&damaged(update, &damage));
        try_everything(&damaged(v1::OperateRequest::from(&operate).encode_to_vec(), &damage));
    }

    #[test]
    fn damaged_messages_never_panic_a_decoder(
        envelope in some::envelope(),
        (call, answer) in (some::to_node(), some::from_node()),
        damage in damage(),
    ) {
        try_everything(&damaged(v1::Envelope::from(envelope).encode_to_vec(), &damage));
        try_everything(&damaged(v1::NodeCall::from(call).encode_to_vec(), &damage));
        try_everything(&damaged(v1::NodeAnswer::from(answer).encode_to_vec(), &damage));
    }

    #[test]
    fn damaged_requests_never_panic_a_decoder(
        (open, list, watch) in (some::open_op(), some::client_list(), some::watch()),
        (session, damage) in (some::session(), damage()),
    ) {
        try_everything(&damaged(v1::OpenRequest::from(open).encode_to_vec(), &damage));
        try_everything(&damaged(v1::ListRequest::from(&list).encode_to_vec(), &damage));
        try_everything(&damaged(v1::WatchRequest::from(&watch).encode_to_vec(), &damage));
        try_everything(&damaged(session.encode_to_vec(), &damage));
    }

    #[test]
    fn what_converts_from_a_damaged_envelope_is_a_proper_value(
        envelope in some::envelope(),
        damage in damage(),
    ) {
        let bytes = damaged(v1::Envelope::from(envelope).encode_to_vec(), &damage);
        let converted = v1::Envelope::decode(&*bytes).ok().and_then(|it| Envelope::try_from(it).ok());
        if let Some(envelope) = converted {
            let again = Envelope::try_from(v1::Envelope::from(envelope.clone()));
            prop_assert_eq!(again, Ok(envelope));
        }
    }
}
