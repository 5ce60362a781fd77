//! What a node does when managers refuse its registration.

use rota_model::{Refusal, RefusalKind};

/// What follows from a refusal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AfterRefusal {
    /// It passes: ask again soon, here or elsewhere.
    Again,
    /// This node does not come in as it was started: end, and say why.
    End,
}

/// What a node does that was refused so.
pub fn after_refusal(refusal: &Refusal) -> AfterRefusal {
    match refusal.kind {
        RefusalKind::InvalidArgument => AfterRefusal::End,
        RefusalKind::UnknownClass
        | RefusalKind::NotFound
        | RefusalKind::NoTransition
        | RefusalKind::LifeMismatch
        | RefusalKind::RequestIdReused
        | RefusalKind::NotOwner
        | RefusalKind::NotServing
        | RefusalKind::Recovering
        | RefusalKind::InProgress
        | RefusalKind::Closing
        | RefusalKind::Provisioning
        | RefusalKind::NoCapacity
        | RefusalKind::StartFailed
        | RefusalKind::Overloaded
        | RefusalKind::DeadlineExceeded
        | RefusalKind::ConfigStoreAway
        | RefusalKind::NamespaceOff
        | RefusalKind::UnknownNode
        | RefusalKind::Internal => AfterRefusal::Again,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_model::{FieldError, Retry};

    #[test]
    fn a_node_ends_only_when_it_can_never_come_in_as_it_was_started() {
        let wrong = Refusal::from(FieldError::new("cluster", "is another"));
        assert_eq!(after_refusal(&wrong), AfterRefusal::End);
        let away = Refusal::new(RefusalKind::ConfigStoreAway, Retry::Now, "");
        assert_eq!(after_refusal(&away), AfterRefusal::Again);
    }
}
