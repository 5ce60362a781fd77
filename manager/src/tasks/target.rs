//! A server that tasks may call.

use super::http::HttpClients;
use reqwest::Url;
use std::fmt;
use std::net::IpAddr;

/// A server that tasks may call, with its key and the certificates that are trusted besides the usual ones.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    url: Url,
    key: Option<String>,
    ca: Option<Vec<u8>>,
}

/// Without the key.
impl fmt::Debug for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Target({}, has_key: {})", self.url, self.key.is_some())
    }
}

impl Target {
    /// Checks the URL, its key and its certificates (PEM).
    ///
    /// # Errors
    /// What is wrong, and what to do.
    pub fn new(url: &str, key: Option<String>, ca: Option<Vec<u8>>) -> Result<Self, String> {
        let has = |why: &str| Err(format!("has the URL {url:?}, {why}"));
        let parsed = match Url::parse(url) {
            Ok(parsed) => parsed,
            Err(error) => return has(&format!("which does not read: {error}")),
        };
        if !["http", "https"].contains(&parsed.scheme()) || !parsed.has_host() {
            return has("which must begin with http:// or https:// and name a host");
        }
        if !parsed.username().is_empty() || parsed.password().is_some() {
            let form = "NAME=URL,key-file=F";
            return Err(format!("has a URL with a user: a key stands in a file, {form}"));
        }
        if parsed.query().is_some() || parsed.fragment().is_some() {
            return has("whose query or fragment belongs into the path of each task");
        }
        if let Some(key) = &key {
            if !is_safe(&parsed) {
                return has("which would show the key to the network; take https://");
            }
            if key.bytes().any(|it| !it.is_ascii_graphic()) {
                return Err("has a key that is no visible ASCII without spaces".to_owned());
            }
        }
        if let Some(ca) = &ca {
            let has_one = String::from_utf8_lossy(ca).contains("-----BEGIN CERTIFICATE-----");
            if !has_one {
                return Err("has a ca-file with no certificate in the form of PEM".to_owned());
            }
        }
        let target = Self { url: parsed, key, ca };
        HttpClients::client(&target).map_err(|it| format!("cannot be called: {it}"))?;
        Ok(target)
    }

    /// The URL below which tasks call.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// The key.
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// Certificates that are trusted besides the usual ones.
    pub fn ca(&self) -> Option<&[u8]> {
        self.ca.as_deref()
    }

    /// The URL of a path below it; `None`: the path leads elsewhere.
    pub fn below(&self, path: &str) -> Option<Url> {
        let base = self.url.as_str().trim_end_matches('/');
        let joined = Url::parse(&format!("{base}{path}")).ok()?;
        let base_path = self.url.path().trim_end_matches('/');
        let rest = joined.path().strip_prefix(base_path)?;
        let is_below = rest.starts_with('/') && joined.origin() == self.url.origin();
        is_below.then_some(joined)
    }
}

/// Whether a key may go there: it is encrypted, or stays on this machine.
fn is_safe(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let ip = host.trim_matches(['[', ']']).parse::<IpAddr>();
    url.scheme() == "https" || host == "localhost" || ip.is_ok_and(|it| it.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_joined_to_the_url_and_stays_below_it() {
        for (url, path, joined) in [
            ("http://a:8/", "/", "http://a:8/"),
            ("http://a:8", "/b?c=d", "http://a:8/b?c=d"),
            ("https://a/base/", "/b", "https://a/base/b"),
            ("https://a/base", "/", "https://a/base/"),
            ("https://a/base", "//b", "https://a/base//b"),
        ] {
            let target = Target::new(url, None, None).unwrap();
            assert_eq!(target.below(path).map(String::from).as_deref(), Some(joined));
        }
        let target = Target::new("http://a/base", None, None).unwrap();
        for path in ["/../c", "/%2e%2e/c", "@b/", "x/", ".b/"] {
            assert_eq!(target.below(path), None, "{path}");
        }
    }
}
