//! Addresses that others are told: `host:port`.

use core::net::Ipv6Addr;
use std::fmt;

/// Where something is reached: a name or an IP address, and a port. Written with an IPv6 address in
/// brackets, and read so only.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Address {
    host: String,
    port: u16,
}

fn is_name(host: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    !host.is_empty() && host.bytes().all(fits)
}

impl Address {
    /// The port of a host, which is given without brackets; `None` when it is no host.
    pub fn new(host: &str, port: u16) -> Option<Self> {
        let is_host = is_name(host) || host.parse::<Ipv6Addr>().is_ok();
        (is_host && port > 0).then(|| Self { host: host.to_owned(), port })
    }

    /// Reads `host:port`; `None` when it is something else.
    pub fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let inside = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        // A sign is no part of a port.
        let port = port.bytes().all(|it| it.is_ascii_digit()).then(|| port.parse().ok())??;
        match inside {
            Some(inside) => inside.parse::<Ipv6Addr>().ok().and_then(|_| Self::new(inside, port)),
            None => is_name(host).then(|| Self::new(host, port))?,
        }
    }

    /// Without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Never 0.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&join(&self.host, self.port))
    }
}

/// A host, which is known to be one, with a port; an IPv6 address gets its brackets.
pub fn join(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_written_as_it_was_read() {
        for text in ["127.0.0.1:80", "node.example:1", "a_b-c:65535", "[::1]:7400"] {
            assert_eq!(Address::parse(text).unwrap().to_string(), text);
        }
        let parsed = Address::parse("[::1]:7400").unwrap();
        assert_eq!((parsed.host(), parsed.port()), ("::1", 7400));
        assert_eq!(Address::new("::1", 80).unwrap().to_string(), "[::1]:80");
    }

    #[test]
    fn what_nobody_could_reach_is_no_address() {
        for text in [
            "",
            "a",
            ":80",
            "a:",
            "a:0",
            "a:65536",
            "a:+1",
            "a b:1",
            "a/b:1",
            "u@a:1",
            "::1:80",
            "[::1]",
            "[a]:1",
            "[]:1",
            "http://a:1",
            "a:1/",
            "ä:1",
        ] {
            assert_eq!(Address::parse(text), None, "{text}");
        }
        assert_eq!((Address::new("", 1), Address::new("[::1]", 1)), (None, None));
    }
}
