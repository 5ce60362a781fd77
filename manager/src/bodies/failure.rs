//! What callers are told when a body cannot be taken or given.

use super::{RETRY_MS, refused};
use rota_docstore::{Exception, FieldError, codes};
use rota_model::{Refusal, RefusalKind, Retry};
use rota_proto::{documents, refusal};
use rota_storage::attachments::AttachmentError;
use std::io::ErrorKind;
use tonic::Status;

/// Whether a status says that a body's file is damaged.
pub(super) fn is_damage(status: &Status) -> bool {
    documents::exception(status).is_some_and(|it| *it.code() == codes::DAMAGED)
}

/// The status of a failure.
pub fn status_of(error: &AttachmentError) -> Status {
    let text = error.to_string();
    let in_field = |field: &str, code| {
        documents::status(&Exception::of_field(code, FieldError::new(field, text.clone())))
    };
    match error {
        AttachmentError::WrongSize { .. } => in_field("size", codes::INVALID),
        AttachmentError::WrongDigest { .. } => in_field("sha256", codes::INVALID),
        AttachmentError::OutOfRange { .. } => in_field("offset", codes::INVALID),
        // By itself; those below together with others.
        AttachmentError::TooLarge { .. } => in_field("size", codes::INVALID),
        AttachmentError::Unnamed { .. } | AttachmentError::NoRoom { .. } => {
            in_field("size", codes::LIMIT)
        }
        AttachmentError::Missing { .. } => in_field("sha256", codes::BODY),
        AttachmentError::Busy { .. } | AttachmentError::Crowded { .. } => {
            refused(RefusalKind::Overloaded, text)
        }
        // Another copy has it, or this one soon again.
        AttachmentError::Damaged { .. } => documents::status(&Exception::new(codes::DAMAGED, text)),
        AttachmentError::Io { source, .. } if source.kind() == ErrorKind::StorageFull => {
            let text = format!("the disk of this manager is full: {text}");
            refusal::status(&Refusal::new(RefusalKind::Internal, Retry::Never, text))
        }
        AttachmentError::Io { source, .. } => broken(format!("{text}: {source}")),
        AttachmentError::Folder(_)
        | AttachmentError::Stream { .. }
        | AttachmentError::GivenUp { .. }
        | AttachmentError::NotReferenced { .. }
        | AttachmentError::ReferencesUnknown
        | AttachmentError::OtherExportFormat { .. }
        | AttachmentError::BadExport { .. } => broken(text),
    }
}

/// This manager cannot; another may.
fn broken(text: String) -> Status {
    tracing::error!("a body of an attachment: {text}");
    let retry = Retry::AfterMs(RETRY_MS);
    refusal::status(&Refusal::new(RefusalKind::Internal, retry, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bodies::in_time;
    use std::future::pending;
    use std::time::Duration;

    fn raised(error: &AttachmentError) -> (String, String) {
        let exception = documents::exception(&status_of(error)).expect("it carries one");
        (exception.code().to_string(), exception.details().fields[0].to_string())
    }

    #[test]
    fn a_body_too_large_by_itself_is_invalid_and_one_without_room_beside_others_over_a_limit() {
        let what = "the size of an attachment in bytes";
        let large = raised(&AttachmentError::TooLarge { what, found: 4, limit: 3 });
        let text = format!("size {what} is 4; the limit is 3");
        assert_eq!(large, ("A-INVALID".to_owned(), text));
        let no_room = AttachmentError::NoRoom { size: 4, free: 9, reserve: 8 };
        for together in [no_room, AttachmentError::Unnamed { found: 9, limit: 8 }] {
            let (code, field) = raised(&together);
            assert_eq!(code, "A-LIMIT");
            assert!(field.starts_with("size "), "{field}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_sends_nothing_is_told_what_did_not_come_within_which_time() {
        let silence = in_time("the next piece", Duration::from_secs(30), pending::<()>()).await;
        let refusal = silence.expect_err("nothing comes");
        assert_eq!(refusal.kind, RefusalKind::DeadlineExceeded);
        assert_eq!(refusal.message, "the next piece did not come within 30 s");
    }
}
