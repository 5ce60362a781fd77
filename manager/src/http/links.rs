//! Paths of resources. What is numbered has its number in them, and what is not has its name.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// What stands for itself in a path and in a query.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A text as part of a path or a query.
pub fn encoded(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

/// Whether a text can be a part of a path. Who follows a link takes these two away, however they are encoded.
fn fits_a_path(text: &str) -> bool {
    !matches!(text, "" | "." | "..")
}

/// Whether a part of a path is a number and not a name.
pub fn is_number(part: &str) -> bool {
    !part.is_empty() && part.bytes().all(|it| it.is_ascii_digit())
}

/// A pool: by its name, or by its number where its name would be taken for one, or does not fit.
fn pool_part(name: &str, number: u64) -> Option<String> {
    if fits_a_path(name) && !is_number(name) {
        return Some(encoded(name));
    }
    (number > 0).then(|| number.to_string())
}

/// What has a number: by that, or by its name while nobody knows the number.
fn numbered_part(name: &str, number: u64) -> Option<String> {
    if number > 0 {
        return Some(number.to_string());
    }
    pool_part(name, number)
}

/// Of a list: those of one name.
fn by_id(list: &str, id: &str) -> String {
    format!("{list}?id={}", encoded(id))
}

/// A manager.
pub fn manager(id: &str, number: u64) -> String {
    let list = "/v1/managers";
    numbered_part(id, number).map_or_else(|| by_id(list, id), |it| format!("{list}/{it}"))
}

/// A pool.
pub fn pool(name: &str, number: u64) -> String {
    let list = "/v1/pools";
    pool_part(name, number).map_or_else(|| by_id(list, name), |it| format!("{list}/{it}"))
}

/// The nodes of a pool; `None` while no path leads to the pool.
pub fn nodes(name: &str, number: u64) -> Option<String> {
    Some(format!("/v1/pools/{}/nodes", pool_part(name, number)?))
}

/// A node in the list of the nodes of its pool.
pub fn node(nodes: &str, id: &str, number: u64) -> String {
    numbered_part(id, number).map_or_else(|| by_id(nodes, id), |it| format!("{nodes}/{it}"))
}

/// A session, without and with a verb after it.
pub fn session(namespace: &str, id: &str, verb: &str) -> String {
    let (space, name) = (encoded(namespace), encoded(id));
    if fits_a_path(namespace) && fits_a_path(id) {
        return format!("/v1/namespaces/{space}/sessions/{name}{verb}");
    }
    format!("/v1/session{verb}?namespace={space}&id={name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_leads_to_what_has_one_and_a_name_to_the_rest() {
        assert_eq!(manager("m1", 2), "/v1/managers/2");
        assert_eq!(manager("m1", 0), "/v1/managers/m1");
        assert_eq!(manager("17", 0), "/v1/managers?id=17");
        assert_eq!(pool("a b/c", 3), "/v1/pools/a%20b%2Fc");
        assert_eq!(pool("17", 3), "/v1/pools/3");
        assert_eq!(pool("..", 3), "/v1/pools/3");
        let nodes = nodes("default", 1).unwrap();
        assert_eq!(node(&nodes, "n1", 4), "/v1/pools/default/nodes/4");
        assert_eq!(node(&nodes, "4", 0), "/v1/pools/default/nodes?id=4");
    }

    #[test]
    fn an_id_that_does_not_fit_a_path_stands_in_the_query() {
        assert_eq!(session("default", "a:b", ""), "/v1/namespaces/default/sessions/a%3Ab");
        assert_eq!(session("default", "a", ":open"), "/v1/namespaces/default/sessions/a:open");
        assert_eq!(session("default", "..", ":open"), "/v1/session:open?namespace=default&id=..");
    }
}
