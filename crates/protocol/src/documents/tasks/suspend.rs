//! What administrators order about whole queues, in the namespace for configuration: `queue.suspend`,
//! `queue.resume`. Every manager learns it with the descriptions of namespaces, and it outlives all of them.

use crate::documents::administer::{beside_spaces, configured};
use crate::documents::tasks::about;
use crate::documents::write::answer_once;
use crate::ports::slots::CONFIGURATION;
use rota_docstore::space::{SPACE_CLASS, Suspended};
use rota_docstore::{
    About, Description, Exception, FieldError, Namespace, Operation, Place, Transaction, Wanted,
    codes,
};
use serde::Deserialize;

/// Which tasks.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Which {
    /// Those of this namespace; left out: of all.
    namespace: Option<Namespace>,
    /// Those of this queue; left out: of all.
    queue: Option<u8>,
}

impl Which {
    /// The namespace whose description says it: for all that is the one for configuration.
    fn described(&self) -> &str {
        self.namespace.as_ref().map_or(CONFIGURATION, Namespace::as_str)
    }
}

/// What is suspended after a change.
fn changed(
    Suspended { mut all, mut queues }: Suspended,
    queue: Option<u8>,
    starts: bool,
) -> Result<Suspended, FieldError> {
    match (queue, starts) {
        (None, false) => all = true,
        (None, true) => (all, queues) = (false, Default::default()),
        (Some(queue), false) => drop(queues.insert(queue)),
        (Some(_), true) if all => {
            let problem = "is one of all, which are suspended: resume all of them";
            return Err(FieldError::new("queue", problem));
        }
        (Some(queue), true) => drop(queues.remove(&queue)),
    }
    Ok(Suspended { all, queues })
}

fn change(transaction: &mut Transaction<'_>, which: &Which, starts: bool) -> Result<(), Exception> {
    let document = transaction.name(SPACE_CLASS, which.described())?;
    let beside = beside_spaces(transaction)?;
    if let Some(done) = transaction.repeated::<Suspended>(&beside)? {
        return transaction.answer_json(&done);
    }
    let edited = transaction.current(&document)?;
    if !edited.exists() && edited.version().is_some() && !starts {
        let problem = format!("{} was deleted; create it first", which.described());
        return Err(Exception::of_field(codes::NAMESPACE, FieldError::new("namespace", problem)));
    }
    let found = edited.one::<Description>()?.unwrap_or_default();
    // One that is suspended may have gone since, and goes on.
    if let Some(queue) = which.queue.filter(|queue| !found.suspended.queues.contains(queue)) {
        transaction.check_queue(queue)?;
    }
    let suspended = changed(found.suspended.clone(), which.queue, starts)?;
    if suspended != found.suspended {
        let edited = transaction.current(&document)?;
        edited.ensure();
        edited.put_one(&Description { suspended: suspended.clone(), ..found })?;
    }
    answer_once(transaction, &beside, &suspended)
}

fn wanted(space: &Namespace, which: &Which) -> Result<Vec<Wanted>, Exception> {
    configured(space, SPACE_CLASS, ("namespace", which.described()))
}

fn check(which: &Which) -> Result<(), Exception> {
    if which.namespace.as_ref().is_some_and(|it| it.as_str() == CONFIGURATION) {
        let problem = format!("is {CONFIGURATION:?}; leave it out to mean all namespaces");
        return Err(Exception::of_field(codes::INVALID, FieldError::new("namespace", problem)));
    }
    Ok(())
}

/// Starts no task of a queue or namespace, until it is resumed.
pub(crate) struct QueueSuspend(Which);

impl Operation for QueueSuspend {
    const NAME: &'static str = "queue.suspend";
    const PLACE: Place = Place::Inline;
    type Parameters = Which;

    fn about() -> About {
        about::QUEUE_SUSPEND
    }

    fn new(which: Which) -> Result<Self, Exception> {
        check(&which)?;
        Ok(Self(which))
    }

    fn documents(&self, space: &Namespace) -> Result<Vec<Wanted>, Exception> {
        wanted(space, &self.0)
    }

    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
        change(transaction, &self.0, false)
    }
}

/// Lets a queue or namespace go on.
pub(crate) struct QueueResume(Which);

impl Operation for QueueResume {
    const NAME: &'static str = "queue.resume";
    const PLACE: Place = Place::Inline;
    type Parameters = Which;

    fn about() -> About {
        about::QUEUE_RESUME
    }

    fn new(which: Which) -> Result<Self, Exception> {
        check(&which)?;
        Ok(Self(which))
    }

    fn documents(&self, space: &Namespace) -> Result<Vec<Wanted>, Exception> {
        wanted(space, &self.0)
    }

    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
        change(transaction, &self.0, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_suspended_one_by_one_or_all_together() {
        let of = |all, queues: &[u8]| Suspended { all, queues: queues.iter().copied().collect() };
        let none = Suspended::default();
        assert_eq!(changed(none.clone(), Some(2), false), Ok(of(false, &[2])));
        assert_eq!(changed(of(false, &[1, 2]), Some(2), true), Ok(of(false, &[1])));
        assert_eq!(changed(of(false, &[1]), None, false), Ok(of(true, &[1])));
        assert_eq!(changed(of(true, &[1]), None, true), Ok(none));
        let refused = changed(of(true, &[]), Some(1), true).unwrap_err().to_string();
        assert_eq!(refused, "queue is one of all, which are suspended: resume all of them");
        assert!(of(true, &[]).stops(7) && of(false, &[7]).stops(7) && !of(false, &[7]).stops(6));
    }
}
