//! Requests of clients: good ones come through, every mistake of a bad one is listed.

use crate::strategies as some;
use proptest::prelude::*;
use rota_model::{PAGE_SIZE_MAX, Refusal, RefusalKind, RequestId, Retry};
use rota_proto::keep_alive::keep_alive;
use rota_proto::mend::mend;
use rota_proto::{Position, position, request, v1};

fn fresh() -> RequestId {
    RequestId::parse("fresh").expect("a valid name")
}

fn unused() -> RequestId {
    unreachable!("the caller gave a request id")
}

fn fields(refusal: &Refusal) -> Vec<&str> {
    assert_eq!((refusal.kind, refusal.retry), (RefusalKind::InvalidArgument, Retry::Never));
    refusal.fields.iter().map(|it| it.field.as_str()).collect()
}

proptest! {
    #[test]
    fn good_requests_come_through(
        (open, close) in (some::open_op(), some::close_op()),
        (get, keep, look) in (some::get_op(), some::keep_alive_op(), some::mend_op()),
        (list, watch, send) in (some::client_list(), some::watch(), some::send()),
    ) {
        let back = request::open(open.clone().into(), rota_model::Stamp::MIN, fresh);
        let expected = if open.remember { open } else {
            rota_model::OpenOp { request: fresh(), ..open }
        };
        prop_assert_eq!(back, Ok(expected));
        prop_assert_eq!(request::close(close.clone().into(), unused), Ok(close));
        prop_assert_eq!(request::get(get.clone().into()), Ok(get));
        prop_assert_eq!(keep_alive(&keep.clone().into()), Ok(keep));
        prop_assert_eq!(mend(&look.clone().into()), Ok(look));
        prop_assert_eq!(request::list((&list).into()), Ok(list));
        prop_assert_eq!(request::watch(&(&watch).into()), Ok(watch));
        prop_assert_eq!(request::send(send.clone().into()), Ok(send));
    }

    #[test]
    fn positions_come_back_and_damaged_ones_are_refused(
        position in some::position(),
        (index, flip) in (any::<prop::sample::Index>(), 1..=255_u8),
    ) {
        let bytes = position.to_bytes();
        prop_assert_eq!(Position::from_bytes(&bytes), Ok(position));
        let mut damaged = bytes.to_vec();
        let at = index.index(damaged.len());
        damaged[at] ^= flip;
        prop_assert_eq!(Position::from_bytes(&damaged).unwrap_err().field, "position");
        prop_assert_eq!(Position::from_bytes(&bytes[..at]).unwrap_err().field, "position");
    }

    #[test]
    fn page_tokens_come_back_and_damaged_ones_are_refused(
        (cursor, filter) in (some::cursor(), some::client_filter()),
        (index, digit) in (any::<prop::sample::Index>(), "[0-9a-z]"),
    ) {
        let token = position::page_token(&cursor, &filter);
        prop_assert_eq!(position::parse_page_token(&token, &filter), Ok(cursor));
        let mut damaged = token.clone();
        let at = index.index(damaged.len());
        damaged.replace_range(at..=at, &digit);
        if damaged != token {
            let mistake = position::parse_page_token(&damaged, &filter).unwrap_err();
            prop_assert_eq!(mistake.field, "page_token");
        }
        prop_assert!(position::parse_page_token(&token[..at], &filter).is_err());
    }

    #[test]
    fn a_page_token_continues_only_its_own_list(
        cursor in some::cursor(),
        (filter, other) in (some::client_filter(), some::client_filter()),
    ) {
        let token = position::page_token(&cursor, &filter);
        let accepted = position::parse_page_token(&token, &other).is_ok();
        prop_assert_eq!(accepted, filter == other);
    }
}

#[test]
fn an_open_with_nothing_right_lists_every_mistake() {
    let refusal = request::open(
        v1::OpenRequest {
            namespace: "n\n".into(),
            id: String::new(),
            class: "c".repeat(256),
            attributes: [("big".into(), "x".repeat(64 * 1024)), ("a\0".into(), "".into())].into(),
            pool: "p\u{7}".into(),
            request_id: "r".repeat(300),
            life: None,
        },
        rota_model::Stamp::MIN,
        fresh,
    )
    .unwrap_err();
    let expected = ["namespace", "id", "class", "pool", "attributes", "attributes", "request_id"];
    assert_eq!(fields(&refusal), expected);
    for part in ["class is 256 bytes", "the limit is 65536", "request_id is 300", "limit is 255"] {
        assert!(refusal.message.contains(part), "{part:?} in {:?}", refusal.message);
    }
}

#[test]
fn an_open_without_a_request_id_gets_a_fresh_one_that_is_not_remembered() {
    let wire = v1::OpenRequest { id: "s".into(), class: "c".into(), ..Default::default() };
    let op = request::open(wire.clone(), rota_model::Stamp::MIN, fresh).unwrap();
    assert_eq!((op.request, op.remember), (fresh(), false));
    assert_eq!((op.key.namespace.as_str(), op.spec.pool.as_str()), ("default", "default"));
    let op = request::open(
        v1::OpenRequest { request_id: "r".into(), ..wire },
        rota_model::Stamp::MIN,
        unused,
    )
    .unwrap();
    assert_eq!((op.request.as_str(), op.remember), ("r", true));
}

#[test]
fn attributes_may_be_64_kib_long_and_no_byte_more() {
    let open = |bytes: usize| {
        let attributes = [("k".into(), "x".repeat(bytes - 1))].into();
        let (id, class) = ("s".into(), "c".into());
        request::open(
            v1::OpenRequest { id, class, attributes, ..Default::default() },
            rota_model::Stamp::MIN,
            fresh,
        )
    };
    assert!(open(65_536).is_ok());
    assert_eq!(fields(&open(65_537).unwrap_err()), ["attributes"]);
}

#[test]
fn a_close_of_a_life_that_is_no_moment_is_refused() {
    let wire = v1::CloseRequest { life: 7, request_id: "\u{1}".into(), ..Default::default() };
    assert_eq!(fields(&request::close(wire, fresh).unwrap_err()), ["id", "life", "request_id"]);
}

#[test]
fn a_close_that_gives_more_than_the_longest_grace_is_refused() {
    let wire = |grace_ms| v1::CloseRequest {
        id: "s".into(),
        grace_ms: Some(grace_ms),
        ..Default::default()
    };
    assert_eq!(request::close(wire(300_000), fresh).unwrap().grace_ms, Some(300_000));
    let refusal = request::close(wire(300_001), fresh).unwrap_err();
    assert_eq!(fields(&refusal), ["grace_ms"]);
    assert!(refusal.message.contains("is 300001 ms; the limit is 300000 ms"), "{refusal:?}");
}

#[test]
fn new_names_turn_no_writing_and_those_that_exist_are_found() {
    let turned = "adm\u{202e}in".to_owned();
    let wire = v1::OpenRequest {
        namespace: turned.clone(),
        id: turned.clone(),
        class: turned.clone(),
        pool: turned.clone(),
        attributes: [(turned.clone(), String::new())].into(),
        ..Default::default()
    };
    let refusal = request::open(wire, rota_model::Stamp::MIN, fresh).unwrap_err();
    assert_eq!(fields(&refusal), ["namespace", "id", "class", "pool", "attributes"]);
    assert!(refusal.message.contains("U+202E at byte 3"), "{refusal:?}");
    let wire = v1::CloseRequest { id: turned.clone(), ..Default::default() };
    assert!(request::close(wire, fresh).is_ok());
    let wire = v1::GetRequest { id: turned, ..Default::default() };
    assert!(request::get(wire).is_ok());
}

#[test]
fn a_list_with_nothing_right_lists_every_mistake() {
    let filter = v1::Filter {
        states: vec![0, 3, 99],
        node_id: "\n".into(),
        class: "\n".into(),
        namespace: "x".repeat(256),
    };
    let refusal = request::list(v1::ListRequest {
        filter: Some(filter),
        page_size: PAGE_SIZE_MAX + 1,
        ..Default::default()
    })
    .unwrap_err();
    let expected = [
        "page_size",
        "filter.states",
        "filter.states",
        "filter.node_id",
        "filter.class",
        "filter.namespace",
    ];
    assert_eq!(fields(&refusal), expected);
    assert!(refusal.message.contains("page_size is 1001; the limit is 1000"));
}

#[test]
fn a_garbled_page_token_is_refused_by_name() {
    for token in ["x", "0", "zz", "00", "ffffffffffffffffffff"] {
        let page_token = token.to_owned();
        let wire = v1::ListRequest { page_token, ..Default::default() };
        assert_eq!(fields(&request::list(wire).unwrap_err()), ["page_token"], "{token:?}");
    }
}

#[test]
fn a_list_that_says_nothing_begins_at_the_first_slot_with_a_hundred() {
    let op = request::list(v1::ListRequest::default()).unwrap();
    assert_eq!((op.limit, op.from.slot.0, op.from.after), (100, 0, None));
}

#[test]
fn a_watch_with_a_namespace_but_no_id_is_refused_and_told_why() {
    let wire = v1::WatchRequest {
        namespace: "n".into(),
        position: vec![1, 2, 3].into(),
        ..Default::default()
    };
    let refusal = request::watch(&wire).unwrap_err();
    assert_eq!(fields(&refusal), ["namespace", "position"]);
    assert!(refusal.message.contains("filter.namespace"));
}

#[test]
fn an_event_without_a_name_is_refused() {
    let wire = v1::SendRequest { id: "s".into(), ..Default::default() };
    assert_eq!(fields(&request::send(wire).unwrap_err()), ["event"]);
}
