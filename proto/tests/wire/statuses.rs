//! Refusals as gRPC statuses.

use crate::strategies as some;
use proptest::prelude::*;
use rota_model::{Changed, ClusterName, Epoch, FieldError, Refusal, RefusalKind, Retry};
use rota_proto::refusal::{code, refusal, status};
use rota_proto::{WireError, v1};
use tonic::{Code, Status};
use tonic_types::StatusExt;

proptest! {
    #[test]
    fn every_refusal_comes_back_from_its_status(given in some::refusal()) {
        let status = status(&given);
        prop_assert_eq!(status.code(), code(given.kind));
        prop_assert_eq!(refusal(&status), given);
    }

    #[test]
    fn any_details_can_be_read(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        let status = Status::with_details(Code::Unavailable, "gone", bytes.into());
        prop_assert_eq!(refusal(&status).changed, Changed::Unknown);
    }
}

#[test]
fn details_say_reason_retry_and_what_may_have_changed() {
    let given = Refusal::unknown_outcome(RefusalKind::Provisioning, Retry::AfterMs(1500), "soon");
    let status = status(&given);
    let details = status.get_error_details();
    let info = details.error_info().unwrap();
    assert_eq!((info.domain.as_str(), info.reason.as_str()), ("rota", "PROVISIONING"));
    assert_eq!(info.metadata["retry"], "after");
    assert_eq!(info.metadata["changed"], "unknown");
    let delay = details.retry_info().unwrap().retry_delay;
    assert_eq!(delay, Some(std::time::Duration::from_millis(1500)));
    assert_eq!(status.code(), Code::Unavailable);
}

#[test]
fn details_name_the_owner_epoch_and_every_wrong_field() {
    let moved = Refusal::new(RefusalKind::NotOwner, Retry::AtOwner(Epoch(12)), "moved");
    let details = status(&moved).get_error_details();
    assert_eq!(details.error_info().unwrap().metadata["epoch"], "12");
    let wrong = vec![FieldError::new("id", "must not be empty"), FieldError::new("class", "is x")];
    let details = status(&Refusal::invalid(wrong)).get_error_details();
    let fields = &details.bad_request().unwrap().field_violations;
    assert_eq!(fields[1].field, "class");
    assert_eq!(fields[0].description, "must not be empty");
}

#[test]
fn a_broken_connection_leaves_the_outcome_unknown() {
    for code in [Code::Unavailable, Code::Unknown, Code::Cancelled, Code::DeadlineExceeded] {
        let refusal = refusal(&Status::new(code, "connection reset"));
        assert_eq!((refusal.changed, refusal.retry), (Changed::Unknown, Retry::Now), "{code:?}");
    }
}

#[test]
fn statuses_fit_into_headers_whatever_the_refusal_holds() {
    let field = FieldError::new("f".repeat(5000), "é".repeat(5000));
    let given = Refusal { message: "é".repeat(50_000), ..Refusal::invalid(vec![field; 100]) };
    let status = status(&given);
    let escaped = status.message().len() * 3;
    let details = status.details().len().div_ceil(3) * 4;
    assert!(escaped + details < 16 * 1024, "{escaped} + {details}");
    assert!(!refusal(&status).fields.is_empty());
}

#[test]
fn a_reason_of_a_newer_version_keeps_its_advice() {
    let mut details = tonic_types::ErrorDetails::new();
    let metadata = [("retry", "never"), ("changed", "no")].map(|(k, v)| (k.into(), v.into()));
    details.set_error_info("BRAND_NEW", "rota", std::collections::HashMap::from(metadata));
    let status = Status::with_error_details(Code::ResourceExhausted, "new", details);
    let refusal = refusal(&status);
    let expected = (RefusalKind::Overloaded, Retry::Never, Changed::No);
    assert_eq!((refusal.kind, refusal.retry, refusal.changed), expected);
}

#[test]
fn a_message_that_does_not_parse_is_an_invalid_argument() {
    let (state, cluster) = ("READY".into(), ClusterName::parse("c").unwrap());
    let wire = v1::RegisterRequest { state, cluster: "c".into(), ..Default::default() };
    let error: WireError = rota_proto::node::register(&cluster, wire).unwrap_err();
    let status = Status::from(error);
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().starts_with("RegisterRequest.address must be host:port"));
}
