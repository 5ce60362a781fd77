//! How a failure is told on stderr: what is wrong, whether something changed, what to do.

use crate::output::Format;
use rota_client::CallError;
use rota_model::{Changed, Retry};
use serde_json::{Value, json};
use std::io::Write;

/// Writes the failure to stderr.
pub fn report(error: &anyhow::Error, format: Format) {
    let text = match format {
        Format::Table => as_text(error),
        Format::Json => format!("{}\n", as_json(error)),
    };
    // Nobody is left to tell when stderr itself is gone.
    let _told = std::io::stderr().write_all(text.as_bytes());
}

fn advice(retry: Retry) -> String {
    match retry {
        Retry::Never => "the same request will be refused again".to_owned(),
        Retry::Now => "repeat it".to_owned(),
        Retry::AfterMs(ms) => format!("repeat it after {ms} ms"),
        Retry::AtOwner(epoch) => format!("repeat it at the owner (View of epoch {epoch} or later)"),
    }
}

fn as_text(error: &anyhow::Error) -> String {
    let mut text = format!("error: {error:#}\n");
    let Some(call) = error.downcast_ref::<CallError>() else { return text };
    text.push_str(&format!("  reason: {}\n  advice: {}\n", call.reason(), advice(call.retry())));
    if call.changed() == Changed::Unknown {
        text.push_str("  outcome: unknown; repeat an open or a close with the same --request-id to find out\n");
    }
    for field in call.fields() {
        text.push_str(&format!("  field {}: {}\n", field.field, field.problem));
    }
    text
}

fn as_json(error: &anyhow::Error) -> Value {
    let message = format!("{error:#}");
    let Some(call) = error.downcast_ref::<CallError>() else {
        return json!({"error": {"message": message}});
    };
    let (retry, after_ms) = match call.retry() {
        Retry::Never => ("never", None),
        Retry::Now => ("now", None),
        Retry::AfterMs(ms) => ("after", Some(ms)),
        Retry::AtOwner(_) => ("at_owner", None),
    };
    let changed = match call.changed() {
        Changed::No => "no",
        Changed::Unknown => "unknown",
    };
    let fields: Vec<Value> = (call.fields().iter())
        .map(|it| json!({"field": it.field, "problem": it.problem}))
        .collect();
    json!({"error": {
        "reason": call.reason(), "message": message, "retry": retry,
        "retry_after_ms": after_ms, "changed": changed, "fields": fields,
    }})
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_model::{FieldError, Refusal, RefusalKind};

    fn refused(refusal: Refusal) -> anyhow::Error {
        let refusal = Box::new(refusal);
        CallError::Refused { refusal, endpoint: "a:1".to_owned(), attempts: 1 }.into()
    }

    #[test]
    fn a_refusal_is_told_with_reason_advice_and_fields() {
        let error = refused(Refusal::invalid(vec![FieldError::new("id", "must not be empty")]));
        assert_eq!(
            as_text(&error),
            "error: id must not be empty\n  reason: INVALID_ARGUMENT\n  \
             advice: the same request will be refused again\n  field id: must not be empty\n"
        );
    }

    #[test]
    fn a_refusal_as_json_keeps_the_wait_that_was_advised() {
        let refusal = Refusal::new(RefusalKind::Provisioning, Retry::AfterMs(300), "no room yet");
        let told = as_json(&refused(refusal));
        assert_eq!(told["error"]["reason"], "PROVISIONING");
        assert_eq!(told["error"]["retry"], "after");
        assert_eq!(told["error"]["retry_after_ms"], 300);
    }

    #[test]
    fn an_unknown_outcome_says_how_to_find_out() {
        let kind = RefusalKind::DeadlineExceeded;
        let text = as_text(&refused(Refusal::unknown_outcome(kind, Retry::Now, "too late")));
        assert!(text.contains("--request-id"), "{text}");
    }
}
