//! What stands in the details of a status, for those who tell it in another form than gRPC.

use crate::refusal::wrong_fields;
use rota_model::FieldError;
use std::collections::BTreeMap;
use std::time::Duration;
use tonic::Status;
use tonic_types::StatusExt;

/// The details of a status. What it does not have is empty.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StatusDetails {
    /// Its typed reason.
    pub info: Option<ReasonInfo>,
    /// How long to wait before a repetition, where that is advised.
    pub retry_delay: Option<Duration>,
    /// Which fields are wrong.
    pub fields: Vec<FieldError>,
}

/// A `google.rpc.ErrorInfo`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReasonInfo {
    /// `rota`, or `rota.documents`.
    pub domain: String,
    /// As `NO_CAPACITY`.
    pub reason: String,
    /// As `retry` and `changed`.
    pub metadata: BTreeMap<String, String>,
}

/// Reads the details of a status.
pub fn details(status: &Status) -> StatusDetails {
    let details = status.get_error_details();
    let info = details.error_info().map(|info| ReasonInfo {
        domain: info.domain.clone(),
        reason: info.reason.clone(),
        metadata: info.metadata.iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
    });
    let retry_delay = details.retry_info().and_then(|it| it.retry_delay);
    StatusDetails { info, retry_delay, fields: wrong_fields(&details) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::status;
    use rota_model::{Refusal, RefusalKind, Retry};

    #[test]
    fn the_details_of_a_refusal_are_read_and_of_a_plain_status_there_are_none() {
        let refused = Refusal::new(RefusalKind::Overloaded, Retry::AfterMs(150), "full");
        let told = details(&status(&refused));
        let info = told.info.unwrap();
        assert_eq!((&*info.domain, &*info.reason), ("rota", "OVERLOADED"));
        assert_eq!(info.metadata["retry"], "after");
        assert_eq!(told.retry_delay, Some(Duration::from_millis(150)));
        let wrong = Refusal::from(FieldError::new("class", "must not be empty"));
        assert_eq!(details(&status(&wrong)).fields, wrong.fields);
        assert_eq!(details(&Status::internal("x")), StatusDetails::default());
    }
}
