//! While nothing moves, a list through any manager shows every session once and nothing else.

use super::{Verdict, Violation};
use rota_model::{ManagerNumber, SessionKey, Stamp};
use std::collections::BTreeMap;

/// Checks one whole list (all its pages in order) against what single reads found.
///
/// # Errors
/// A session that is missing, shown twice, out of order, or another than the one read.
pub fn check(
    through: ManagerNumber,
    listed: &[(SessionKey, Stamp)],
    expected: &BTreeMap<SessionKey, Stamp>,
) -> Verdict {
    let wrong = |text: String| Err(Violation::new("list", format!("through M{through}: {text}")));
    let mut seen = BTreeMap::new();
    for (key, life) in listed {
        if seen.insert(key, *life).is_some() {
            return wrong(format!("{key} is shown twice"));
        }
        if expected.get(key) != Some(life) {
            return wrong(format!("{key} is shown with life {life}, read {:?}", expected.get(key)));
        }
    }
    match expected.keys().find(|key| !seen.contains_key(key)) {
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
        let expected = BTreeMap::from([(key("a"), life(1)), (key("b"), life(2))]);
        let (a, b) = ((key("a"), life(1)), (key("b"), life(2)));
        let check = |list: &[(SessionKey, Stamp)]| check(through, list, &expected);
        assert_eq!(check(&[b.clone(), a.clone()]), Ok(()));
        assert!(check(std::slice::from_ref(&a)).unwrap_err().text.contains("missing"));
        assert!(check(&[a.clone(), b, a]).unwrap_err().text.contains("twice"));
    }
}
