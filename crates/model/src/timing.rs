//! The rule that every set of time limits obeys.

use crate::refusal::FieldError;

/// Checks that each limit, in milliseconds, is above 0 and below another. An entry is the name and
/// the value (with its safety factor) of the lower one, then those of the higher one. Gives every
/// entry that does not hold.
pub fn times_out_of_order(order: &[(&str, u64, &str, u64)]) -> Vec<FieldError> {
    let wrong = order.iter().filter(|(_, low, _, high)| *low == 0 || low >= high);
    wrong
        .map(|(low_name, low, high_name, high)| {
            let problem = format!(
                "is too long: {low} ms (with its safety factor) must be above 0 and below \
                 {high_name} ({high} ms)"
            );
            FieldError::new(*low_name, problem)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_and_limits_that_do_not_grow_are_named() {
        let order = [("a", 1, "b", 2), ("b", 2, "c", 2), ("d", 0, "e", 9)];
        let mistakes = times_out_of_order(&order);
        let fields: Vec<&str> = mistakes.iter().map(|it| it.field.as_str()).collect();
        assert_eq!(fields, ["b", "d"]);
        assert!(mistakes[0].problem.contains("below c (2 ms)"), "{mistakes:?}");
    }
}
