//! Where a cluster lives in Consul: an agent, and a prefix of keys and names.

use rota_model::FieldError;
use std::fmt;

/// How such an address begins.
pub const SCHEME: &str = "consul://";

/// The prefix where none is given.
const PREFIX: &str = "rota";

/// Longest prefix, in bytes: well below Consul's limit of 512 for a key.
const PREFIX_BYTES_MAX: usize = 100;

/// `consul://HOST:PORT/PREFIX`: the HTTP address of an agent, and what the names of this cluster
/// begin with. Two clusters with one Consul need two prefixes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConsulAddress {
    authority: String,
    prefix: String,
}

impl ConsulAddress {
    /// Reads `consul://HOST:PORT` or `consul://HOST:PORT/PREFIX`; the prefix is letters, digits
    /// and hyphens in parts between slashes, at most 100 bytes, `rota` when it is left out.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, FieldError> {
        let wrong = |problem: String| FieldError::new("consul address", problem);
        let Some(rest) = text.strip_prefix(SCHEME) else {
            return Err(wrong(format!("is {text:?}; it must be {SCHEME}HOST:PORT/PREFIX")));
        };
        let (authority, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if authority.contains('@') {
            // It is not repeated: it may stand in a log.
            let problem = "has something before @, and every user of this machine sees the command line: \
                           a token is taken from the file that CONSUL_HTTP_TOKEN_FILE names, or from \
                           CONSUL_HTTP_TOKEN";
            return Err(wrong(problem.to_owned()));
        }
        let parsed: Result<http::uri::Authority, _> = authority.parse();
        let is_good = parsed
            .is_ok_and(|it| it.port_u16().is_some_and(|port| port != 0) && !it.host().is_empty());
        if !is_good {
            return Err(wrong(format!("has {authority:?} where HOST:PORT must stand")));
        }
        let prefix = if prefix.is_empty() { PREFIX } else { prefix };
        let is_part = |part: &str| {
            !part.is_empty() && part.chars().all(|it| it.is_ascii_alphanumeric() || it == '-')
        };
        if !prefix.split('/').all(is_part) {
            return Err(wrong(format!(
                "has prefix {prefix:?}; it must be letters, digits and hyphens, in parts between \
                 single slashes"
            )));
        }
        if prefix.len() > PREFIX_BYTES_MAX {
            let length = prefix.len();
            return Err(wrong(format!(
                "has a prefix of {length} bytes; the limit is {PREFIX_BYTES_MAX}"
            )));
        }
        Ok(Self { authority: authority.to_owned(), prefix: prefix.to_owned() })
    }

    /// `HOST:PORT` of the agent's HTTP.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// The key that holds the state.
    pub fn state_key(&self) -> String {
        format!("{}/state", self.prefix)
    }

    /// The key of a mark; its parts may be any text.
    pub(super) fn mark_key(&self, parts: &[&str]) -> String {
        let parts: Vec<String> = parts.iter().map(|it| in_a_path(it)).collect();
        format!("{}/{}", self.prefix, parts.join("/"))
    }

    /// The name of a service of this cluster. Names of services go into DNS: no slashes.
    pub(super) fn service_name(&self, kind: &str) -> String {
        format!("{}-{kind}", self.prefix.replace('/', "-"))
    }
}

/// A text in characters that every path may hold. Different texts stay different.
pub(super) fn in_a_path(text: &str) -> String {
    let mut path = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.".contains(&byte) {
            path.push(char::from(byte));
        } else {
            path.push_str(&format!(":{byte:02x}"));
        }
    }
    path
}

impl fmt::Display for ConsulAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}", self.authority, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_an_agent_and_a_prefix() {
        let address = ConsulAddress::parse("consul://127.0.0.1:8500/prod/ring-1").unwrap();
        assert_eq!(address.authority(), "127.0.0.1:8500");
        assert_eq!(address.state_key(), "prod/ring-1/state");
        assert_eq!(address.service_name("manager"), "prod-ring-1-manager");
        assert_eq!(ConsulAddress::parse(&address.to_string()), Ok(address));
        let short = ConsulAddress::parse("consul://[::1]:8500").unwrap();
        assert_eq!(short.to_string(), "consul://[::1]:8500/rota");
    }

    #[test]
    fn what_is_no_address_is_refused_with_the_part_that_is_wrong() {
        for (text, words) in [
            ("127.0.0.1:8500", "consul://HOST:PORT/PREFIX"),
            ("consul://", "HOST:PORT must stand"),
            ("consul://host", "\"host\""),
            ("consul://host:0", "HOST:PORT"),
            ("consul://me:secret@host:1", "CONSUL_HTTP_TOKEN_FILE"),
            ("consul://host:1/a//b", "single slashes"),
            ("consul://host:1/a b", "prefix \"a b\""),
            ("consul://host:1/a/", "single slashes"),
        ] {
            let error = ConsulAddress::parse(text).unwrap_err();
            assert!(error.problem.contains(words), "{text}: {error}");
            assert!(!error.problem.contains("secret"), "it may stand in a log: {error}");
        }
        let long = format!("consul://host:1/{}", "x".repeat(101));
        assert!(ConsulAddress::parse(&long).unwrap_err().problem.contains("the limit is 100"));
    }
}
