//! S1: at most one live instance of a session id, over all nodes, by the nodes' own logs.

use super::{Verdict, Violation};
use crate::ledger::Instance;
use rota_model::SessionKey;
use std::collections::BTreeMap;

/// Checks all executions of a run.
///
/// # Errors
/// Two executions of one id that overlap in time.
pub fn check(instances: &[Instance]) -> Verdict {
    let mut by_key: BTreeMap<&SessionKey, Vec<&Instance>> = BTreeMap::new();
    for instance in instances {
        by_key.entry(&instance.key).or_default().push(instance);
    }
    for list in by_key.values_mut() {
        list.sort_by_key(|it| it.from_us);
        for pair in list.windows(2) {
            let [first, second] = pair else { continue };
            if first.to.is_none_or(|(to_us, _)| to_us > second.from_us) {
                return Err(Violation::new("S1", overlap(first, second)));
            }
        }
    }
    Ok(())
}

fn overlap(first: &Instance, second: &Instance) -> String {
    let line = |instance: &Instance| {
        let until =
            instance.to.map_or("still running".into(), |(us, why)| format!("to {us} us {why:?}"));
        format!(
            "{} on {} {:?} token {} from {} us {until}",
            instance.key, instance.node, instance.boot, instance.token, instance.from_us
        )
    };
    format!("two instances at once: {}; {}", line(first), line(second))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariant::example::{instance, token};

    #[test]
    fn two_instances_at_once_are_found() {
        let one = instance("y", "n0", token(1, 1), 100, Some(300));
        let two = instance("y", "n1", token(1, 2), 200, None);
        assert_eq!(check(&[one.clone(), two]).unwrap_err().rule, "S1");
        let later = instance("y", "n1", token(1, 2), 300, None);
        let other = instance("z", "n1", token(1, 3), 200, None);
        assert_eq!(check(&[one, later, other]), Ok(()));
    }

    #[test]
    fn an_instance_inside_a_longer_one_is_found() {
        let long = instance("y", "n0", token(1, 1), 0, None);
        let short = instance("y", "n1", token(1, 2), 10, Some(20));
        assert!(check(&[short, long]).is_err());
    }
}
