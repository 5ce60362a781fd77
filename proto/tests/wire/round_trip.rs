//! Model to wire to bytes and back.

use crate::strategies as some;
use proptest::prelude::*;
use rota_messages::{Answer, Envelope};
use rota_model::node_msg::{FromNode, Registered, Renewed, ToNode};
use rota_model::{ClusterName, NodeId, Outcome, Page, SessionState};
use rota_proto::encoded::DocBytes;
use rota_proto::{Inspected, Session, WireError, node, operator, peer, session, v1};
use rota_ring::View;

/// Sends a message through its bytes.
fn sent<M: prost::Message + Default>(message: &M) -> M {
    M::decode(&*message.encode_to_vec()).expect("what was encoded decodes")
}

/// Through wire and bytes and back.
fn there_and_back<T, W>(value: T) -> Result<T, T::Error>
where
    W: From<T> + prost::Message + Default,
    T: TryFrom<W>,
{
    T::try_from(sent(&W::from(value)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn every_envelope_comes_back(envelope in some::envelope()) {
        let back = there_and_back::<Envelope, v1::Envelope>(envelope.clone());
        prop_assert_eq!(back, Ok(envelope));
    }
}

proptest! {
    #[test]
    fn calls_and_answers_of_nodes_come_back(call in some::to_node(), answer in some::from_node()) {
        prop_assert_eq!(there_and_back::<ToNode, v1::NodeCall>(call.clone()), Ok(call));
        prop_assert_eq!(there_and_back::<FromNode, v1::NodeAnswer>(answer.clone()), Ok(answer));
    }

    #[test]
    fn registrations_and_renewals_come_back(
        (register, registered) in (some::register(), some::registered()),
        (renew, renewed) in (some::renew(), some::renewed()),
    ) {
        let cluster = some::cluster();
        let request = sent(&node::register_request(&cluster, register.clone()));
        prop_assert_eq!(node::register(&cluster, request), Ok(register));
        let back = there_and_back::<Registered, v1::RegisterResponse>(registered.clone());
        prop_assert_eq!(back, Ok(registered));
        let request = sent(&node::renew_request(&cluster, renew.clone()));
        prop_assert_eq!(node::renew(&cluster, request), Ok(renew));
        let back = there_and_back::<Renewed, v1::RenewResponse>(renewed.clone());
        prop_assert_eq!(back, Ok(renewed));
    }

    #[test]
    fn reports_come_back_in_order(items in proptest::collection::vec(some::report(), 0..5)) {
        let cluster = some::cluster();
        let request = sent(&node::report_request(&cluster, items.clone()));
        prop_assert_eq!(node::report_items(&cluster, request), Ok(items));
    }

    #[test]
    fn what_operators_see_comes_back(
        view in some::ring_view(),
        stats in some::stats(),
        away in "[a-z ]{0,20}",
    ) {
        let number = *view.managers.keys().next().expect("a View has a manager");
        let response = sent(&operator::inspect_response(number, &view, &stats, away.clone()));
        let inspected = Inspected { number, view, stats, config_store_error: away };
        prop_assert_eq!(Inspected::try_from(response), Ok(inspected));
    }

    #[test]
    fn what_managers_show_of_a_session_is_what_they_know(view in some::view_of_session()) {
        let record = view.record.clone();
        let seen = Session::try_from(sent(&session::session(view, "n:1".to_owned()))).unwrap();
        prop_assert_eq!((&seen.key, &seen.class), (&record.key, &record.spec.class));
        prop_assert_eq!((&seen.pool, &seen.attributes), (&record.spec.pool, &*record.spec.attributes));
        prop_assert_eq!((seen.state, seen.reason), (record.state, record.reason));
        prop_assert_eq!((&seen.detail, &seen.exit), (&record.detail, &record.exit));
        prop_assert_eq!((seen.life, seen.version), (record.life, record.version));
        prop_assert_eq!((&*seen.machine_state, &*seen.node_address), (&*record.machine_state, "n:1"));
    }

    #[test]
    fn a_client_sees_an_address_only_while_the_session_is_ready(view in some::view_of_session()) {
        let record = view.record.clone();
        let (outcome, session) = (Outcome::Existed, view.clone());
        let answer = Answer::Opened { outcome, session, ended_since: true };
        let response = session::open_response(answer, |node| format!("at {node}")).unwrap();
        let response: v1::OpenResponse = sent(&response);
        prop_assert_eq!(response.outcome(), v1::Outcome::Existed);
        let seen = Session::try_from(response.session.unwrap()).unwrap();
        prop_assert_eq!((seen.owner, seen.epoch), (view.owner, view.epoch));
        prop_assert_eq!(&seen.key, &record.key);
        prop_assert_eq!(&seen.node, &record.placement.as_ref().map(|it| it.node.clone()));
        match &record.placement {
            Some(placement) => {
                let ready = record.state == SessionState::Ready;
                let shown = if ready { placement.address.as_str() } else { "" };
                prop_assert_eq!(&seen.address, shown);
                prop_assert_eq!(seen.node_address, format!("at {}", placement.node));
            }
            None => prop_assert_eq!((&*seen.address, &*seen.node_address), ("", "")),
        }
    }

    #[test]
    fn a_page_carries_the_token_that_continues_it(
        views in proptest::collection::vec(some::view_of_session(), 0..3),
        next in proptest::option::of(some::cursor()),
        filter in some::client_filter(),
        stale in any::<bool>(),
    ) {
        let page = Page { sessions: views.clone(), next: next.clone(), stale };
        let response = session::list_response(page, &filter, |_: &NodeId| String::new());
        prop_assert_eq!(sent(&response).stale, stale);
        let v1::ListResponse { sessions, next_page_token: token, .. } = sent(&response);
        prop_assert_eq!(sessions.len(), views.len());
        let continued = rota_proto::request::list(v1::ListRequest {
            filter: Some((&filter).into()),
            page_token: token.clone(),
            ..Default::default()
        });
        match next {
            Some(cursor) => prop_assert_eq!(continued.unwrap().from, cursor),
            None => prop_assert_eq!(token, ""),
        }
    }

    #[test]
    fn a_batch_keeps_order_and_is_refused_in_another_cluster(
        envelopes in proptest::collection::vec(some::envelope(), 0..4),
    ) {
        let (here, elsewhere) = (ClusterName::parse("a").unwrap(), ClusterName::parse("b").unwrap());
        let batch = sent(&peer::batch(&here, envelopes.clone()));
        let mut docs = DocBytes::default();
        prop_assert!(peer::envelopes(&elsewhere, batch.clone(), &mut docs).is_err());
        let back: Result<Vec<Envelope>, WireError> =
            peer::envelopes(&here, batch, &mut docs).unwrap().collect();
        prop_assert_eq!(back, Ok(envelopes));
    }
}

#[test]
fn a_view_that_breaks_the_rules_of_views_is_refused() {
    let part = v1::Part { number: 7, owner: 9, isr: vec![9], ..Default::default() };
    let part = v1::Part { state: "active".into(), ..part };
    let wire = v1::View { cluster: "c".into(), m: 8, parts: vec![part], ..Default::default() };
    let error = View::try_from(wire).unwrap_err();
    assert_eq!(error.field, "View");
}

#[test]
fn a_report_of_too_many_items_is_refused() {
    let items = vec![v1::ReportItem::default(); 257];
    let request = v1::ReportRequest { items, cluster: "c".into() };
    let error = node::report_items(&some::cluster(), request).unwrap_err();
    assert_eq!(error.to_string(), "ReportRequest.items are 257; the limit is 256");
}

#[test]
fn an_answer_of_another_kind_is_a_defect_not_a_panic() {
    let refusal = session::get_response(Answer::Reported, |_| String::new()).unwrap_err();
    assert_eq!(refusal.kind, rota_model::RefusalKind::Internal);
}

#[test]
fn the_descriptors_for_reflection_hold_every_service() {
    let bytes = rota_proto::FILE_DESCRIPTOR_SET;
    for service in ["Sessions", "Machines", "NodeAgent", "Nodes", "Peers", "Operator", "Documents"]
    {
        assert!(bytes.windows(service.len()).any(|it| it == service.as_bytes()), "{service}");
    }
}

#[test]
fn the_strategies_reach_every_message_request_and_answer() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut names = std::collections::BTreeSet::new();
    for _ in 0..6000 {
        let tree = some::envelope().new_tree(&mut runner).expect("nothing is filtered");
        let message = v1::Envelope::from(tree.current()).message.expect("it has one");
        // The beginning of the debug form names the kind: `Request(PeerRequest { .. op: Some(Open(`.
        let text = format!("{message:?}");
        let kind = |text: &str| text.split('(').next().unwrap_or_default().to_owned();
        let inner = text.split_once("op: Some(").or_else(|| text.split_once("result: Some("));
        let inner = inner.filter(|_| text.starts_with("Request") || text.starts_with("Answer"));
        names.insert((kind(&text), inner.map(|(_, it)| kind(it))));
    }
    let of = |outer: &str| names.iter().filter(|(it, _)| it == outer).count();
    assert_eq!(of("Request"), 16, "{names:?}");
    assert_eq!(of("Answer"), 18, "{names:?}");
    assert_eq!(names.len(), 16 + 16 + 18, "{names:?}");
}

#[test]
fn messages_between_managers_and_nodes_of_another_cluster_are_refused_by_the_fields_name() {
    let ours = some::cluster();
    let other = || "other".to_owned();
    let register = v1::RegisterRequest { cluster: other(), ..Default::default() };
    let renew = v1::RenewRequest { cluster: other(), ..Default::default() };
    let report = v1::ReportRequest { cluster: other(), ..Default::default() };
    let calls = v1::NodeCallBatch { cluster: other(), ..Default::default() };
    let errors = [
        ("RegisterRequest", node::register(&ours, register).unwrap_err()),
        ("RenewRequest", node::renew(&ours, renew).unwrap_err()),
        ("ReportRequest", node::report_items(&ours, report).unwrap_err()),
        ("NodeCallBatch", node::calls(&ours, calls).map(drop).unwrap_err()),
    ];
    for (message, error) in errors {
        assert_eq!(error.field, format!("{message}.cluster"));
        assert_eq!(error.problem, "is \"other\"; this process belongs to \"c\"");
    }
    // A build that does not name its cluster belongs to none.
    let nameless = v1::RenewRequest::default();
    assert_eq!(node::renew(&ours, nameless).unwrap_err().field, "RenewRequest.cluster");
}
