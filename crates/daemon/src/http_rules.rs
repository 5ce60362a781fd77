//! Which requests a listener for HTTP takes: not those that a page of somebody else makes.
//!
//! A browser on this machine reaches what listens on loopback. So a foreign page could ask with any
//! method (its `Origin` tells), or have its own name lead here (the `Host` tells).

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, Method, StatusCode, header};
use std::net::IpAddr;
use std::sync::Arc;

/// The names under which a listener is asked, beside IP addresses and `localhost`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HttpNames {
    names: Arc<[String]>,
}

impl HttpNames {
    /// These (`--http-name`), and this machine's own name.
    pub fn new(given: &[String]) -> Self {
        let own = rustix::system::uname();
        let own = own.nodename().to_string_lossy().into_owned();
        let names = given.iter().chain([&own]).map(|it| it.to_ascii_lowercase());
        Self { names: names.filter(|it| !it.is_empty()).collect() }
    }

    fn has(&self, name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        let is_local = name == "localhost" || name.ends_with(".localhost");
        let is_address = name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
        is_local || is_address || self.names.contains(&name)
    }
}

/// Without the port.
fn name_of(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|it| it.is_ascii_digit()) => name,
        Some(_) | None => host,
    }
}

type Problem = (StatusCode, String);

fn check(names: &HttpNames, method: &Method, headers: &HeaderMap) -> Result<(), Problem> {
    let told = |name: HeaderName| headers.get(name).map(|it| it.to_str().unwrap_or("unreadable"));
    // Browsers always send it; a tool that does not is no browser.
    let host = told(header::HOST);
    if let Some(host) = host.filter(|it| !names.has(name_of(it))) {
        let name = name_of(host);
        let text = format!(
            "this listener is not asked as {name:?}; ask it by its IP address, or start it with \
             --http-name {name}"
        );
        return Err((StatusCode::MISDIRECTED_REQUEST, text));
    }
    let is_foreign = |origin: &str| {
        let (_, of) = origin.split_once("://").unwrap_or(("", origin));
        Some(of) != host
    };
    if let Some(origin) = told(header::ORIGIN).filter(|it| is_foreign(it)) {
        return Err((StatusCode::FORBIDDEN, format!("a page of {origin:?} may not ask here")));
    }
    let fetch = |name: &'static str| told(HeaderName::from_static(name));
    // A link that is followed shows its page to nobody but the reader. A frame would be part of the foreign page.
    let is_page = matches!(fetch("sec-fetch-dest"), None | Some("document"));
    let is_link = *method == Method::GET && fetch("sec-fetch-mode") == Some("navigate") && is_page;
    if fetch("sec-fetch-site") == Some("cross-site") && !is_link {
        return Err((StatusCode::FORBIDDEN, "a page of another site may not ask here".to_owned()));
    }
    let kind = told(header::CONTENT_TYPE).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if *method == Method::POST && !kind.eq_ignore_ascii_case("application/json") {
        let text = format!("the content type is {kind:?}; it must be application/json");
        return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
    }
    Ok(())
}

/// Refuses what must not be answered.
pub(crate) async fn refuse_foreign(
    State(names): State<HttpNames>,
    request: Request,
    next: Next,
) -> Response {
    match check(&names, request.method(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err((status, text)) => (status, text + "\n").into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(method: Method, headers: &[(&'static str, &'static str)]) -> u16 {
        let named = HttpNames::new(&["Rota.Example".to_owned()]);
        let headers = headers.iter().map(|(name, value)| {
            (HeaderName::from_static(name), http::HeaderValue::from_static(value))
        });
        match check(&named, &method, &headers.collect()) {
            Ok(()) => 200,
            Err((status, _)) => status.as_u16(),
        }
    }

    #[test]
    fn addresses_and_own_names_are_taken() {
        for host in
            ["127.0.0.1:7400", "[::1]:7400", "localhost", "a.localhost:1", "rota.example:80"]
        {
            assert_eq!(asked(Method::GET, &[("host", host)]), 200, "{host}");
        }
        assert_eq!(asked(Method::GET, &[]), 200);
    }

    #[test]
    fn a_foreign_name_that_leads_here_is_refused_with_the_flag() {
        assert_eq!(asked(Method::GET, &[("host", "evil.example:7400")]), 421);
        let headers = [(header::HOST, http::HeaderValue::from_static("evil.example:7400"))];
        let names = HttpNames::default();
        let (_, text) = check(&names, &Method::GET, &headers.into_iter().collect()).unwrap_err();
        assert!(text.contains("--http-name evil.example"), "{text}");
    }

    #[test]
    fn a_foreign_page_is_refused_and_the_own_one_is_not() {
        let host = ("host", "127.0.0.1:7400");
        let asks = |origin| asked(Method::GET, &[host, ("origin", origin)]);
        assert_eq!(asks("https://evil.example"), 403);
        assert_eq!(asks("null"), 403);
        assert_eq!(asks("http://127.0.0.1:7401"), 403);
        assert_eq!(asks("http://127.0.0.1:7400"), 200);
        assert_eq!(asked(Method::GET, &[host, ("sec-fetch-site", "cross-site")]), 403);
        let link = [host, ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")];
        assert_eq!(asked(Method::GET, &link), 200);
        assert_eq!(asked(Method::POST, &link), 403);
    }

    #[test]
    fn a_link_of_a_foreign_page_leads_here_and_a_frame_does_not() {
        let link = [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")];
        let to = |kind| asked(Method::GET, &[link[0], link[1], ("sec-fetch-dest", kind)]);
        assert_eq!((asked(Method::GET, &link), to("document")), (200, 200));
        for kind in ["iframe", "frame", "embed", "object", ""] {
            assert_eq!(to(kind), 403, "{kind:?}");
        }
    }

    #[test]
    fn a_form_cannot_change_anything() {
        for kind in ["text/plain", "application/x-www-form-urlencoded", ""] {
            assert_eq!(asked(Method::POST, &[("content-type", kind)]), 415, "{kind}");
        }
        let kind = ("content-type", "application/json; charset=utf-8");
        assert_eq!(asked(Method::POST, &[kind]), 200);
    }
}
