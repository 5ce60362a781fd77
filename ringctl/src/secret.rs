//! Keys that a command is given: in a file that nobody else can read, or in the environment. Never on the
//! command line, which every user of the machine sees.

use crate::failure::UsageMistake;
use clap::Args;
use rota_daemon::private::{read_secret, secret_on_the_line};
use std::path::PathBuf;

/// Longest key, in bytes.
const KEY_BYTES_MAX: usize = 1024;

/// The administrator's key.
#[derive(Args, Debug, Default)]
pub struct AdminKey {
    /// File with the administrator's key, where managers have one. Nobody else may be able to read it.
    /// ROTA_ADMIN_KEY has the key itself instead.
    #[arg(long, global = true, value_name = "FILE")]
    admin_key_file: Option<PathBuf>,
    /// Refused: a command line is no place for a secret.
    #[arg(long, global = true, hide = true, allow_hyphen_values = true)]
    admin_key: Option<String>,
}

/// The key of the account that asks.
#[derive(Args, Debug, Default)]
pub struct AccountKey {
    /// File with the account's key. Nobody else may be able to read it. ROTA_KEY has the key itself instead.
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Refused: a command line is no place for a secret.
    #[arg(long, hide = true, allow_hyphen_values = true)]
    key: Option<String>,
}

impl AdminKey {
    /// The key; empty when none is given.
    pub fn get(&self) -> Result<String, UsageMistake> {
        let flags = ("--admin-key", "--admin-key-file", "ROTA_ADMIN_KEY");
        chosen(flags, self.admin_key.is_some(), self.admin_key_file.as_ref(), variable)
    }
}

impl AccountKey {
    /// The key; empty when none is given.
    pub fn get(&self) -> Result<String, UsageMistake> {
        let flags = ("--key", "--key-file", "ROTA_KEY");
        chosen(flags, self.key.is_some(), self.key_file.as_ref(), variable)
    }
}

/// A variable that says something else than text is told when the key is refused.
fn variable(name: &str) -> Option<String> {
    std::env::var_os(name).map(|it| it.to_string_lossy().into_owned())
}

fn chosen(
    (flag, file_flag, name): (&str, &str, &str),
    on_the_line: bool,
    file: Option<&PathBuf>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<String, UsageMistake> {
    if on_the_line {
        return Err(UsageMistake(secret_on_the_line(flag, file_flag, Some(name)).to_string()));
    }
    match file {
        Some(file) => read_secret(file_flag, file, KEY_BYTES_MAX)
            .map_err(|mistake| UsageMistake(mistake.to_string())),
        None => Ok(variable(name).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;

    const FLAGS: (&str, &str, &str) = ("--key", "--key-file", "ROTA_KEY");

    #[test]
    fn a_key_on_the_command_line_is_refused_with_what_to_give_instead() {
        let told = chosen(FLAGS, true, None, |_| None).unwrap_err().0;
        assert!(told.contains("give --key-file FILE, or set ROTA_KEY"), "{told}");
    }

    #[test]
    fn a_file_goes_before_the_environment_and_nobody_else_may_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        write(&file, "sesame\n").unwrap();
        set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        let of_variable = |_: &str| Some("barley".to_owned());
        assert_eq!(chosen(FLAGS, false, Some(&file), of_variable).unwrap(), "sesame");
        assert_eq!(chosen(FLAGS, false, None, of_variable).unwrap(), "barley");
        assert_eq!(chosen(FLAGS, false, None, |_| None).unwrap(), "");
        set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        let told = chosen(FLAGS, false, Some(&file), of_variable).unwrap_err().0;
        assert!(told.contains("chmod 0600"), "{told}");
    }
}
