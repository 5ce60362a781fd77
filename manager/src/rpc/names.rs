//! Request ids for callers that gave none: random once per process, then counted.

use rota_model::RequestId;
use std::sync::atomic::{AtomicU64, Ordering};
use uuid::Uuid;

/// Makes request ids. Two processes never make the same one.
#[derive(Debug)]
pub struct FreshNames {
    prefix: String,
    next: AtomicU64,
}

impl FreshNames {
    /// A maker with a random prefix.
    pub fn new() -> Self {
        Self { prefix: Uuid::new_v4().simple().to_string(), next: AtomicU64::new(1) }
    }

    /// The next id.
    pub fn next(&self) -> RequestId {
        let count = self.next.fetch_add(1, Ordering::Relaxed);
        RequestId::parse(&format!("{}-{count}", self.prefix))
            .expect("hexadecimal digits and a number are a short name")
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
    }
}
