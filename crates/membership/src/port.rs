//! What every config store offers: a linearizable read, one compare-and-set, a blocking query.

use rota_model::{Epoch, FieldError};
use rota_ring::{Change, ConfigState};
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// Longest time that a blocking query stays at a store; a longer wait is cut to this.
pub const WAIT_MAX: Duration = Duration::from_secs(60);

/// A call to a store on its way. Dropping it does not take back what was sent.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Why a store did not answer as asked.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StoreError {
    /// No connection, or it broke.
    #[error("the config store cannot be reached: {0}")]
    Unreachable(String),
    /// No answer within this time.
    #[error("the config store did not answer within {} ms", .0.as_millis())]
    Timeout(Duration),
    /// It answered with something that no config store may hold.
    #[error("the config store holds what cannot be used: {0}")]
    Broken(String),
    /// It said no; its status and reason.
    #[error("the config store refused: {0}")]
    Refused(String),
}

/// The outcome of a compare-and-set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CasReply {
    /// Written. A state that holds the change, or one that came after it.
    Done(ConfigState),
    /// Certainly not written: an expectation did not hold. A state in which it does not.
    Conflict(ConfigState),
    /// Perhaps written, now or later: only a read can tell, and while the old value stands, the
    /// request may still be under way.
    Unknown(StoreError),
}

/// Linearizable configuration: the View and the node registry.
pub trait ConfigStore: Send + Sync + 'static {
    /// The state at some moment between call and answer, with every write acknowledged before.
    fn read(&self) -> StoreFuture<'_, Result<ConfigState, StoreError>>;

    /// Applies `change` as [`Change::apply`] does, all of it or nothing.
    fn cas(&self, change: Change) -> StoreFuture<'_, CasReply>;

    /// Answers as soon as the index is above `after_index`, or with the state as it is when `wait`
    /// (at most [`WAIT_MAX`]) has passed. A state below `after_index` is answered at once: that
    /// store has lost something, and who asks must see it.
    fn next(
        &self,
        after_index: u64,
        wait: Duration,
    ) -> StoreFuture<'_, Result<ConfigState, StoreError>>;
}

/// Checks what a change must satisfy whatever the store holds.
///
/// # Errors
/// The first field that is wrong: a change that writes nothing, a View without the epoch that it
/// replaces or with another than the next one, a View that breaks its own rules, a node entry
/// whose revision is not the next one.
pub fn check_change(change: &Change) -> Result<(), FieldError> {
    if change.view.is_none() && change.node.is_none() {
        return Err(FieldError::new("change", "writes neither a View nor a node"));
    }
    if let Some(view) = &change.view {
        let Some(expected) = change.expect_epoch else {
            return Err(FieldError::new("expect_epoch", "must be given with a View"));
        };
        if expected.0.checked_add(1).map(Epoch) != Some(view.epoch) {
            let found = view.epoch;
            return Err(FieldError::new(
                "view.epoch",
                format!("is {found}; after expect_epoch {expected} it must be one more"),
            ));
        }
        view.check().map_err(|error| FieldError::new("view", format!("is refused: {error}")))?;
    }
    if let Some(node) = &change.node
        && node.expect_revision.checked_add(1) != Some(node.to.revision)
    {
        let (found, expected) = (node.to.revision, node.expect_revision);
        return Err(FieldError::new(
            "node.to.revision",
            format!("is {found}; after expect_revision {expected} it must be one more"),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_model::{ClusterName, ManagerId, ManagerNumber};
    use rota_ring::View;

    fn view() -> View {
        let cluster = ClusterName::parse("c").unwrap();
        let numbers = [(ManagerNumber(0), ManagerId::parse("a").unwrap())];
        View::found(cluster, 8, 1, 10, &numbers).unwrap()
    }

    #[test]
    fn a_change_that_writes_nothing_is_refused() {
        let nothing = Change { expect_epoch: Some(Epoch(3)), view: None, node: None };
        assert_eq!(check_change(&nothing).unwrap_err().field, "change");
    }

    #[test]
    fn a_view_must_name_the_epoch_that_it_replaces_and_be_the_next() {
        assert_eq!(check_change(&Change::view(view())), Ok(()));
        let blind = Change { expect_epoch: None, view: Some(view()), node: None };
        assert_eq!(check_change(&blind).unwrap_err().field, "expect_epoch");
        let skipping = Change { expect_epoch: Some(Epoch(5)), view: Some(view()), node: None };
        assert_eq!(check_change(&skipping).unwrap_err().field, "view.epoch");
        let last = Change { expect_epoch: Some(Epoch(u64::MAX)), view: Some(view()), node: None };
        assert_eq!(check_change(&last).unwrap_err().field, "view.epoch");
    }

    #[test]
    fn a_view_that_breaks_its_own_rules_is_refused() {
        let mut broken = view();
        broken.parts.clear();
        let error = check_change(&Change::view(broken)).unwrap_err();
        assert!(error.field == "view" && error.problem.contains("no partitions"), "{error}");
    }
}
