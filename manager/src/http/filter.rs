//! Filters: which sessions a list or a watch has.

use super::call::Call;
use super::error::Failed;
use super::shown::{state, state_names};
use rota_model::{FieldError, Refusal};
use rota_proto::refusal::refusal;
use rota_proto::v1;
use std::collections::BTreeMap;
use tonic::Status;

/// Where the sessions of a list are.
pub enum Within {
    /// Everywhere.
    Ring,
    /// In a namespace.
    Namespace(String),
    /// On a node; the path of its list, and the stable numbers of its sessions.
    Node { id: String, list: String, numbers: Numbers },
}

/// The stable numbers of a node's sessions, by namespace and id.
pub type Numbers = BTreeMap<(String, String), u64>;

/// The filter that a call and its path say, and the fields of it that the next page has as well.
pub fn filter(call: &mut Call, within: &Within) -> (v1::Filter, Vec<(&'static str, String)>) {
    let mut names = Vec::new();
    for given in call.all("state") {
        names.extend(given.split(',').map(str::to_owned));
    }
    let mut states = Vec::new();
    for name in &names {
        match state(name) {
            Some(state) => states.push(state.into()),
            None => {
                let known = state_names().join(", ");
                call.wrong("state", format!("is {name:?}; it must be one of {known}"));
            }
        }
    }
    let class = call.text("class");
    let mut same = vec![("state", names.join(",")), ("class", class.clone())];
    let (mut node_id, mut namespace) = (String::new(), String::new());
    if let Within::Node { id, .. } = within {
        node_id.clone_from(id);
    } else {
        node_id = call.text("node");
        same.push(("node", node_id.clone()));
    }
    if let Within::Namespace(name) = within {
        namespace.clone_from(name);
    } else {
        namespace = call.text("namespace");
        same.push(("namespace", namespace.clone()));
    }
    (v1::Filter { states, node_id, class, namespace }, same)
}

/// A refusal of who asked with a filter: its fields have the names of the query.
pub fn refused(status: Status) -> Failed {
    let told = refusal(&status);
    if !told.fields.iter().any(|it| it.field.starts_with("filter.")) {
        return status.into();
    }
    let by_query = |error: FieldError| {
        let field = match error.field.as_str() {
            "filter.node_id" => "node",
            "filter.states" => "state",
            "filter.info_prefix" => "info",
            other => other.strip_prefix("filter.").unwrap_or(other),
        };
        FieldError::new(field, error.problem)
    };
    Refusal::invalid(told.fields.into_iter().map(by_query).collect()).into()
}

#[cfg(test)]
mod tests {
    use super::super::call::tests::fields as fields_of;
    use super::*;

    #[test]
    fn mistakes_of_a_filter_have_the_names_of_the_query() {
        let fields = ["filter.node_id", "filter.class", "filter.states", "page_token"];
        let fields = fields.map(|it| FieldError::new(it, "is wrong")).to_vec();
        let failed = refused(rota_proto::refusal::status(&Refusal::invalid(fields)));
        assert!(!failed.json()["error"]["message"].as_str().unwrap().contains("filter"));
        assert_eq!(fields_of(failed), ["node", "class", "state", "page_token"]);
        let plain = refused(Status::unavailable("filter.node_id"));
        assert_eq!(plain.json()["error"]["message"], "filter.node_id");
    }
}
