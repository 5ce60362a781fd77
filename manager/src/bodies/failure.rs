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
        AttachmentError::TooLarge { .. } | AttachmentError::NoRoom { .. } => {
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
