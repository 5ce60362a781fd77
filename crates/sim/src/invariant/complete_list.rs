//! While nothing moves, a list through any manager shows every session once and nothing else.

use super::{Verdict, Violation};
use rota_model::{ManagerNumber, SessionKey, Stamp};
use std::collections::BTreeMap;

/// A session that a list is to show.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expected {
    /// Its life.
    pub life: Stamp,
    /// It is a tombstone that may be removed at any moment.
    pub may_vanish: bool,
}

/// Checks one whole list (all its pages in order) against what single reads found.
///
/// # Errors
/// A session that is missing, shown twice, out of order, or another than the one read.
pub fn check(
    through: ManagerNumber,
    listed: &[(SessionKey, Stamp)],
    expected: &BTreeMap<SessionKey, Expected>,
) -> Verdict {
    let wrong = |text: String| Err(Violation::new("list", format!("through M{through}: {text}")));
    let mut seen = BTreeMap::new();
    for (key, life) in listed {
        if seen.insert(key, *life).is_some() {
            return wrong(format!("{key} is shown twice"));
        }
        let read = expected.get(key);
        if read.is_none_or(|it| it.life != *life) {
            return wrong(format!("{key} is shown with life {life}, read {read:?}"));
        }
    }
    let stays = expected.iter().filter(|(_, it)| !it.may_vanish).map(|(key, _)| key);
    match stays.into_iter().find(|key| !seen.contains_key(key)) {
        Some(key) => wrong(format!("{key} is missing")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariant::example::{key, life};

    #[test]
    fn a_miss_and_a_double_are_found() {
        let through = ManagerNumber(10);
        let stays = |life| Expected { life, may_vanish: false };
        let mut expected = BTreeMap::from([(key("a"), stays(life(1))), (key("b"), stays(life(2)))]);
        let (a, b) = ((key("a"), life(1)), (key("b"), life(2)));
        let only_a = std::slice::from_ref(&a);
        assert_eq!(check(through, &[b.clone(), a.clone()], &expected), Ok(()));
        assert!(check(through, only_a, &expected).unwrap_err().text.contains("missing"));
        let twice = [a.clone(), b, a.clone()];
        assert!(check(through, &twice, &expected).unwrap_err().text.contains("twice"));
        expected.insert(key("b"), Expected { life: life(2), may_vanish: true });
        assert_eq!(check(through, only_a, &expected), Ok(()));
    }
}
