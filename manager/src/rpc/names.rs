//! Request ids for callers that gave none: random once per process, then counted.

use rota_model::RequestId;
use std::sync::atomic::{AtomicU64, Ordering};
use uuid::Uuid;

/// Makes request ids. Two processes never make the same one.
#[derive(Debug)]
pub struct FreshNames {
    run: u64,
    next: AtomicU64,
}

impl FreshNames {
    /// A maker of its own.
    pub fn new() -> Self {
        let (run, _) = Uuid::new_v4().as_u64_pair();
        Self { run, next: AtomicU64::new(1) }
    }

    /// The next id.
    pub fn next(&self) -> RequestId {
        RequestId::given_by_manager(self.run, self.next.fetch_add(1, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_names_are_the_same() {
        let (a, b) = (FreshNames::new(), FreshNames::new());
        let mut names = vec![a.next(), a.next(), b.next(), b.next()];
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 4);
        assert!(names.iter().all(RequestId::is_given_by_manager));
        assert!(names.iter().all(|it| RequestId::parse(it.as_str()).as_ref() == Ok(it)));
    }
}
