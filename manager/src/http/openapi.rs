//! `/v1/openapi.json`: the description of the tree. A file, so that it can be read as it is served.

use axum::http::header;
use axum::response::IntoResponse;

const TEXT: &str = include_str!("openapi.json");

/// The description.
pub async fn show() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], TEXT)
}

#[cfg(test)]
mod tests {
    use super::super::paths::routes;
    use super::*;
    use serde_json::Value;
    use std::collections::BTreeSet;

    /// The path of a route by which this one is answered.
    fn route_of(path: &str) -> &str {
        match path.rsplit_once("}:") {
            Some((parameter, _)) => &path[..=parameter.len()],
            None => path,
        }
    }

    #[test]
    fn every_route_is_described_and_everything_described_is_a_route() {
        let document: Value = serde_json::from_str(TEXT).unwrap();
        let paths = document["paths"].as_object().unwrap();
        let described: BTreeSet<&str> = paths.keys().map(|it| route_of(it)).collect();
        let all = routes();
        let routed: BTreeSet<&str> = all.iter().map(|it| it.0).collect();
        assert_eq!(described, routed);
    }

    #[test]
    fn every_name_of_an_operation_is_one_of_its_own() {
        let document: Value = serde_json::from_str(TEXT).unwrap();
        let operations = document["paths"].as_object().unwrap().values();
        let operations = operations.flat_map(|it| it.as_object().unwrap().values());
        let names: Vec<&str> = operations.map(|it| it["operationId"].as_str().unwrap()).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    }
}
