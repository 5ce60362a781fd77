//! What an open is told whose life did not start.

use rota_model::{Refusal, RefusalKind, Retry, SessionRecord, Stamp};

/// What an open is told that a close overtook, once nothing of its life is left.
pub(crate) fn overtaken(record: &SessionRecord) -> Refusal {
    let text = format!(
        "session {} was closed before it was READY; nothing of that life is left, and a repetition begins \
         a new one",
        record.key
    );
    Refusal::new(RefusalKind::Closed, Retry::Now, text)
}

/// What an open is told whose life did not start. The record may hold a later life by now.
pub(crate) fn start_failed(record: &SessionRecord, life: Stamp) -> Refusal {
    if record.life != life {
        let text = format!("session {} did not start in its life {life}", record.key);
        return Refusal::unknown_outcome(RefusalKind::StartFailed, Retry::Never, text);
    }
    let exit = record.exit.as_ref().map(|exit| format!(" ({exit})")).unwrap_or_default();
    let reason = record.reason.map(|it| it.as_str()).unwrap_or_default();
    let text = format!("session {} did not start: {reason}{exit} {}", record.key, record.detail);
    // A life began for it, and ended.
    Refusal::unknown_outcome(RefusalKind::StartFailed, Retry::Never, text.trim_end())
}
