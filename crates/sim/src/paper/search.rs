//! Breadth-first search over all states that can be reached, so the first way to a broken promise is
//! a shortest one. States are kept whole and compared by value: no hash decides anything.

use std::collections::BTreeMap;

/// What a search came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Searched {
    /// States that were reached.
    pub states: usize,
    /// Whether that is all of them, up to the broken one.
    pub exhausted: bool,
    /// The steps of a shortest way to a broken state, in words.
    pub trace: Option<Vec<String>>,
}

/// Searches from `start` until a state `is_broken`, at most `states_max` states. `next` gives the
/// steps that are possible in a state: what happens, in words, and the state after it.
pub fn search<S: Clone + Ord>(
    start: &S,
    states_max: usize,
    next: impl Fn(&S) -> Vec<(String, S)>,
    is_broken: impl Fn(&S) -> bool,
) -> Searched {
    let mut known = BTreeMap::from([(start.clone(), 0)]);
    // By number: the state, the one before it, and the step between.
    let mut order = vec![(start.clone(), 0, String::new())];
    let mut at = 0;
    while let Some((state, ..)) = order.get(at) {
        if is_broken(state) {
            let trace = Some(way_to(&order, at));
            return Searched { states: order.len(), exhausted: true, trace };
        }
        for (step, after) in next(&state.clone()) {
            if known.contains_key(&after) {
                continue;
            }
            if order.len() >= states_max {
                return Searched { states: order.len(), exhausted: false, trace: None };
            }
            known.insert(after.clone(), order.len());
            order.push((after, at, step));
        }
        at += 1;
    }
    Searched { states: order.len(), exhausted: true, trace: None }
}

fn way_to<S>(order: &[(S, usize, String)], mut at: usize) -> Vec<String> {
    let mut steps = Vec::new();
    while let Some((_, before, step)) = order.get(at).filter(|_| at > 0) {
        steps.push(step.clone());
        at = *before;
    }
    steps.reverse();
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From a number one may add 1 or double it.
    fn grow(number: &u32) -> Vec<(String, u32)> {
        let all = [("one more", number + 1), ("twice", number * 2)];
        let small = all.into_iter().filter(|(_, it)| *it <= 100);
        small.map(|(step, it)| (step.to_string(), it)).collect()
    }

    #[test]
    fn the_way_that_is_found_is_a_shortest_one() {
        let searched = search(&1, 1_000, grow, |it| *it == 10);
        let trace = searched.trace.unwrap();
        assert_eq!(trace.len(), 4, "1, 2, 4, 5, 10: {trace:?}");
        assert_eq!(trace.last().unwrap(), "twice");
    }

    #[test]
    fn without_a_broken_state_every_state_is_seen() {
        let searched = search(&1, 1_000, grow, |_| false);
        assert_eq!(searched, Searched { states: 100, exhausted: true, trace: None });
    }

    #[test]
    fn a_search_that_is_too_small_says_so() {
        assert!(!search(&1, 50, grow, |_| false).exhausted);
    }
}
