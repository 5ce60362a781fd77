//! What a process's data folder may be called.

use rota_model::FieldError;
use std::path::Path;

/// Longest path of a data folder in bytes. The system takes paths of up to 4,095, and the names of
/// what stands in the folder need room too.
pub const DATA_BYTES_MAX: usize = 3_072;

/// Refuses a path that is empty or too long. `flag` names the option in the mistake.
pub fn may_hold_data(flag: &str, folder: &Path) -> Result<(), FieldError> {
    match folder.as_os_str().len() {
        0 => Err(FieldError::new(flag, "is empty; it must name a folder")),
        1..=DATA_BYTES_MAX => Ok(()),
        bytes => {
            let problem = format!("is {bytes} bytes long; the limit is {DATA_BYTES_MAX}");
            Err(FieldError::new(flag, problem))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_is_empty_or_too_long_is_refused_with_the_limit() {
        let check =
            |text: &str| may_hold_data("--data", Path::new(text)).map_err(|it| it.to_string());
        assert_eq!(check("d"), Ok(()));
        assert_eq!(check(&"d".repeat(DATA_BYTES_MAX)), Ok(()));
        assert!(check("").unwrap_err().contains("must name a folder"));
        let long = check(&"d".repeat(DATA_BYTES_MAX + 1)).unwrap_err();
        assert!(long.contains("3073 bytes") && long.contains("the limit is 3072"), "{long}");
    }
}
