//! Texts of the form `host:port`.

use std::net::Ipv6Addr;

/// Joins a host and a port; an IPv6 address gets its brackets.
pub fn join(host: &str, port: u16) -> String {
    if host.parse::<Ipv6Addr>().is_ok() {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_host_is_put_in_brackets() {
        assert_eq!(join("::1", 80), "[::1]:80");
        assert_eq!(join("127.0.0.1", 80), "127.0.0.1:80");
        assert_eq!(join("node.example", 80), "node.example:80");
    }
}
