//! Who may be let in: the one rule of every listener.

use rota_model::FieldError;
use std::net::SocketAddr;

/// Refuses an address that other machines can reach, unless `--insecure-bind` was given: nothing
/// is encrypted yet, and nobody is asked who they are. `flag` names the option in the mistake.
pub fn may_listen(flag: &str, address: SocketAddr, insecure_bind: bool) -> Result<(), FieldError> {
    if address.ip().is_loopback() || insecure_bind {
        return Ok(());
    }
    let problem = format!(
        "is {address}, which other machines can reach, where nothing is encrypted and nobody is \
         asked who they are: use a loopback address, or add --insecure-bind"
    );
    Err(FieldError::new(flag, problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_is_taken_without_the_flag() {
        for address in ["127.0.0.1:0", "127.9.9.9:7", "[::1]:7"] {
            assert_eq!(may_listen("--listen", address.parse().unwrap(), false), Ok(()));
        }
        for address in ["0.0.0.0:0", "192.0.2.1:7", "[::]:7"] {
            let address = address.parse().unwrap();
            let mistake = may_listen("--listen", address, false).unwrap_err();
            assert_eq!(mistake.field, "--listen");
            assert!(mistake.problem.contains("--insecure-bind"), "{mistake}");
            assert_eq!(may_listen("--listen", address, true), Ok(()));
        }
    }
}
