//! The session that this process belongs to: a program, or an action, of a session runs `ringctl`.

use crate::failure::UsageMistake;

/// The life that a command means: the one that is given, else that of the session to which this process belongs, if
/// `namespace` and `id` are that session's. 0: whichever lives.
pub fn life_meant(given: u64, namespace: &str, id: &str) -> anyhow::Result<u64> {
    if given > 0 {
        return Ok(given);
    }
    Ok(own_life(namespace, id, |name| std::env::var(name).ok())?.unwrap_or_default())
}

/// The life of the session that this process belongs to, if `namespace` and `id` are that session's.
fn own_life(
    namespace: &str,
    id: &str,
    variable: impl Fn(&str) -> Option<String>,
) -> anyhow::Result<Option<u64>> {
    let is_other = |name: &str, own: &str| variable(name).is_some_and(|it| it != own);
    let Some(life) = variable("ROTA_LIFE").filter(|it| !it.is_empty()) else { return Ok(None) };
    if is_other("ROTA_SESSION", id) || is_other("ROTA_NAMESPACE", namespace) {
        return Ok(None);
    }
    let wrong = |_| UsageMistake(format!("ROTA_LIFE is {life:?}; a life is a number of 15 digits"));
    Ok(Some(life.parse().map_err(wrong)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_changes_its_own_life_and_any_life_of_other_sessions() {
        let with = |life: &str, namespace: &str, id: &str| {
            let all = [("ROTA_LIFE", life), ("ROTA_SESSION", "a"), ("ROTA_NAMESPACE", "default")];
            own_life(namespace, id, |name| {
                all.into_iter().find(|it| it.0 == name).map(|it| it.1.to_owned())
            })
        };
        assert_eq!(with("261122152849840", "default", "a").unwrap(), Some(261_122_152_849_840));
        assert_eq!(with("261122152849840", "default", "b").unwrap(), None);
        assert_eq!(with("261122152849840", "other", "a").unwrap(), None);
        assert!(with("x", "default", "a").unwrap_err().to_string().contains("ROTA_LIFE is \"x\""));
        assert_eq!(own_life("default", "a", |_| None).unwrap(), None);
    }
}
