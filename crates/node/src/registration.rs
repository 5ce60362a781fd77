//! What a node does when managers refuse its registration.

use rota_model::{Refusal, RefusalKind, Retry};

/// What follows from a refusal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AfterRefusal {
    /// It passes: ask again soon, here or elsewhere.
    Again,
    /// Another boot of this node is registered, and this one's folder does not prove that it is over.
    /// If nothing of it lives it is declared lost soon: ask again soon, and give up when this goes on
    /// for so long, because then it lives.
    Wait {
        /// How long, in milliseconds.
        patience_ms: u64,
    },
    /// This boot is over before it began: make a new one, with a higher number.
    BootAnew,
    /// This node does not come in as it was started: end, and say why.
    End,
}

/// As many times what a manager advises may pass until a boot that does not live was declared lost: the
/// count begins anew with each new owner, and some are replaced meanwhile.
const ADVICES: u64 = 3;

/// The advice of a manager that gives none.
const ADVICE_MS: u64 = 20_000;

/// What a node does that was refused so.
pub fn after_refusal(refusal: &Refusal) -> AfterRefusal {
    match refusal.kind {
        RefusalKind::InvalidArgument => AfterRefusal::End,
        RefusalKind::BootUnproven => {
            let advised_ms = match refusal.retry {
                Retry::AfterMs(ms) => ms,
                Retry::Never | Retry::WhenChanged | Retry::Now | Retry::AtOwner(_) => ADVICE_MS,
            };
            AfterRefusal::Wait { patience_ms: advised_ms.saturating_mul(ADVICES) }
        }
        RefusalKind::UnknownNode => AfterRefusal::BootAnew,
        RefusalKind::UnknownClass
        | RefusalKind::NotFound
        | RefusalKind::NoTransition
        | RefusalKind::LifeMismatch
        | RefusalKind::VersionMismatch
        | RefusalKind::RequestIdReused
        | RefusalKind::NotOwner
        | RefusalKind::NotServing
        | RefusalKind::Recovering
        | RefusalKind::InProgress
        | RefusalKind::Closing
        | RefusalKind::Provisioning
        | RefusalKind::NoCapacity
        | RefusalKind::StartFailed
        | RefusalKind::Closed
        | RefusalKind::Overloaded
        | RefusalKind::DeadlineExceeded
        | RefusalKind::ConfigStoreAway
        | RefusalKind::NamespaceOff
        | RefusalKind::Internal => AfterRefusal::Again,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_model::FieldError;

    #[test]
    fn a_node_ends_only_when_it_can_never_come_in_as_it_was_started() {
        let wrong = Refusal::from(FieldError::new("cluster", "is another"));
        assert_eq!(after_refusal(&wrong), AfterRefusal::End);
        let away = Refusal::new(RefusalKind::ConfigStoreAway, Retry::Now, "");
        assert_eq!(after_refusal(&away), AfterRefusal::Again);
    }

    #[test]
    fn a_node_waits_for_the_verdict_over_another_boot_and_gives_a_boot_up_that_is_over() {
        let unproven = |retry| Refusal::new(RefusalKind::BootUnproven, retry, "");
        let wait = after_refusal(&unproven(Retry::AfterMs(7_000)));
        assert_eq!(wait, AfterRefusal::Wait { patience_ms: 21_000 });
        let wait = after_refusal(&unproven(Retry::Now));
        assert_eq!(wait, AfterRefusal::Wait { patience_ms: 60_000 });
        let over = Refusal::new(RefusalKind::UnknownNode, Retry::Never, "");
        assert_eq!(after_refusal(&over), AfterRefusal::BootAnew);
    }
}
