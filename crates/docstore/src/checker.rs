//! Who asks, and who decides whether they may.

use rota_model::FieldError;
use rota_model::ids::no_turn;
use std::fmt;

/// Longest account, in bytes: it becomes a part of keys.
pub const ACCOUNT_BYTES_MAX: usize = 128;
/// Longest key and admin property, in bytes.
pub const CREDENTIAL_BYTES_MAX: usize = 1_024;

/// Who asks. Keys are not printed.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Credentials {
    /// The account; empty when the caller names none.
    pub account: String,
    /// The account's password, token or the like.
    pub key: String,
    /// A key to the privileges of an administrator.
    pub admin: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hidden = |it: &str| if it.is_empty() { "none" } else { "given" };
        f.debug_struct("Credentials")
            .field("account", &self.account)
            .field("key", &hidden(&self.key))
            .field("admin", &hidden(&self.admin))
            .finish()
    }
}

impl Credentials {
    pub(crate) fn check_limits(&self) -> Result<(), FieldError> {
        let Credentials { account, key, admin } = self;
        let texts = [
            ("account", account, ACCOUNT_BYTES_MAX),
            ("key", key, CREDENTIAL_BYTES_MAX),
            ("admin", admin, CREDENTIAL_BYTES_MAX),
        ];
        for (field, text, bytes_max) in texts {
            let length = text.len();
            if length > bytes_max {
                let problem = format!("is {length} bytes long; the limit is {bytes_max}");
                return Err(FieldError::new(field, problem));
            }
        }
        match account.find(char::is_control) {
            Some(at) => {
                Err(FieldError::new("account", format!("has a control character at byte {at}")))
            }
            None => no_turn("account", account),
        }
    }
}

/// Decides whether who asks may run an operation. Called before any work, for every request. A manager does
/// nothing else meanwhile, so it must take microseconds: whatever is slow, as a hash of a password, belongs
/// to where accounts are kept.
pub trait Checker: Send + Sync {
    /// `operation` names the operation, or what else is asked for: whoever drives a store says which
    /// names those are. `Err` says why not; the caller gets it as the message of an S exception, so it must not
    /// tell more than the caller may know. Compare keys in constant time.
    fn check(&self, who: &Credentials, space: &str, operation: &str) -> Result<(), String>;
}

/// Lets everyone do everything: for stores that are guarded elsewhere.
#[derive(Clone, Copy, Debug, Default)]
pub struct Anyone;

impl Checker for Anyone {
    fn check(&self, _: &Credentials, _: &str, _: &str) -> Result<(), String> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_that_does_something_to_what_shows_it_is_refused() {
        let check = |account: &str| {
            let (account, key, admin) = (account.to_owned(), String::new(), String::new());
            Credentials { account, key, admin }.check_limits().map_err(|it| it.field)
        };
        assert_eq!(check("Zoë, שלום"), Ok(()));
        for wrong in ["a\0", "a\u{1b}[2J", "a\u{202e}b"] {
            assert_eq!(check(wrong), Err("account".to_owned()), "{wrong:?}");
        }
    }
}
