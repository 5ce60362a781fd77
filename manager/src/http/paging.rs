//! Pages of what one manager knows as a whole: in order of names, from the one after the token on.

use super::call::Call;
use super::links::encoded;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rota_model::{NAME_BYTES_MAX, PAGE_SIZE_MAX};
use serde_json::{Value, json};

/// The names of its fields.
pub const SIZE: &str = "page_size";
/// `next_page_token` of the page before.
pub const TOKEN: &str = "page_token";

/// Where a page begins and how long it may be.
#[derive(Debug)]
pub struct Paging {
    /// The name after which it begins; empty: at the start.
    pub after: String,
    size: usize,
    /// Only what has this name.
    pub id: Option<String>,
}

impl Paging {
    /// What a call says of it: `page_size`, `page_token` and `id`.
    pub fn of(call: &mut Call) -> Self {
        let size = call.number::<u32>(SIZE).unwrap_or(100);
        if !(1..=PAGE_SIZE_MAX).contains(&size) {
            call.wrong(SIZE, format!("is {size}; it must be 1 to {PAGE_SIZE_MAX}"));
        }
        let token = call.text(TOKEN);
        let decoded = URL_SAFE_NO_PAD.decode(&token).ok();
        let after = decoded.and_then(|it| String::from_utf8(it).ok()).unwrap_or_else(|| {
            call.wrong(TOKEN, "is garbled");
            String::new()
        });
        let size = usize::try_from(size).unwrap_or(usize::MAX).max(1);
        let id = call.given("id");
        if let Some(length) = id.as_ref().map(String::len).filter(|it| *it > NAME_BYTES_MAX) {
            let problem = format!("is {length} bytes long; the limit is {NAME_BYTES_MAX}");
            call.wrong("id", problem);
        }
        Self { after, size, id }
    }

    /// So many after the token tell the whole page, and that there is another one.
    pub fn enough(&self) -> usize {
        self.size.saturating_add(1)
    }

    /// The page of what is there, and the token of the next one; empty: that was all. `name` gives the name of an
    /// item.
    pub fn page<T>(&self, mut all: Vec<T>, name: impl Fn(&T) -> &str) -> (Vec<T>, String) {
        all.retain(|item| {
            let name = name(item);
            name > self.after.as_str() && self.id.as_deref().is_none_or(|id| id == name)
        });
        all.sort_by(|a, b| name(a).cmp(name(b)));
        let more = all.len() > self.size;
        all.truncate(self.size);
        let last = all.last().filter(|_| more);
        let token = last.map(|it| URL_SAFE_NO_PAD.encode(name(it))).unwrap_or_default();
        (all, token)
    }

    /// The links of a page of that list.
    pub fn links(&self, list: &str, next: &str) -> Value {
        links(list, &[(SIZE, self.size.to_string())], next)
    }
}

/// The links of a page: its list, and the next page.
pub fn links(list: &str, query: &[(&str, String)], next: &str) -> Value {
    let mut links = json!({"self": list});
    if !next.is_empty() {
        let fields = query.iter().filter(|it| !it.1.is_empty());
        let fields = fields.map(|(name, value)| format!("{name}={}&", encoded(value)));
        let fields: String = fields.collect();
        links["next"] = format!("{list}?{fields}{TOKEN}={}", encoded(next)).into();
    }
    links
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderMap;

    fn page(query: &str) -> (Vec<&'static str>, String) {
        let uri = format!("/v1/x?{query}").parse().unwrap();
        let mut call = Call::new(&uri, &HeaderMap::new()).unwrap();
        let paging = Paging::of(&mut call);
        call.request(()).unwrap();
        paging.page(vec!["c", "a", "b"], |it| it)
    }

    #[test]
    fn pages_follow_each_other_in_order_of_names() {
        let (first, next) = page("page_size=2");
        assert_eq!(first, ["a", "b"]);
        assert_eq!(page(&format!("page_token={next}")), (vec!["c"], String::new()));
        assert_eq!(page("id=b"), (vec!["b"], String::new()));
        assert_eq!(page("page_size=3").1, "");
    }

    #[test]
    fn the_next_page_has_the_same_filter() {
        let links = links("/v1/x", &[("class", "a b".to_owned()), ("node", String::new())], "t");
        assert_eq!(links["next"], "/v1/x?class=a%20b&page_token=t");
    }
}
