//! When a cluster is ready: every partition has an owner that serves, and every manager knows
//! every node as READY.

use crate::inspect::{Answers, Ring, join};
use std::collections::BTreeSet;

/// What is still missing, in a sentence; `None` when nothing is.
pub fn missing(answers: &Answers, managers: usize, nodes: &[String]) -> Option<String> {
    let Some(ring) = join(answers) else { return Some("no manager has a View".to_owned()) };
    let silent = ring.managers.iter().find(|it| !it.answers);
    if let Some(it) = silent {
        let error = it.error.as_deref().unwrap_or("no answer");
        return Some(format!("manager {} ({}) does not answer: {error}", it.id, it.number));
    }
    if ring.managers.len() != managers {
        return Some(format!("{} of {managers} managers are in the ring", ring.managers.len()));
    }
    not_serving(&ring).or_else(|| not_ready(answers, nodes))
}

/// The classes that any node offers.
pub fn classes(answers: &Answers) -> BTreeSet<String> {
    let answers = answers.values().filter_map(|it| it.as_ref().ok());
    answers.flat_map(|it| &it.nodes).flat_map(|it| &it.classes).cloned().collect()
}

fn not_serving(ring: &Ring) -> Option<String> {
    ring.partitions.iter().find_map(|part| {
        let owner = part.copies.iter().find(|it| it.number == part.owner);
        let role = owner.and_then(|it| it.role.as_deref()).unwrap_or("unknown to it");
        let text = || format!("partition {} is {role} at its owner {}", part.number, part.owner);
        (role != "serving").then(text)
    })
}

fn not_ready(answers: &Answers, nodes: &[String]) -> Option<String> {
    for (number, answer) in answers {
        let Ok(answer) = answer else { continue };
        for node in nodes {
            let known = answer.nodes.iter().find(|it| it.id == *node);
            let state = known.map_or("not registered", |it| it.state.as_str());
            if state != "READY" {
                return Some(format!("node {node} is {state} at manager {number}"));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_client::v1;

    fn answers(role: &str, node_state: &str) -> Answers {
        let manager =
            |number, id: &str| v1::ManagerEntry { number, id: id.to_owned(), ..Default::default() };
        let part =
            |number| v1::Part { number, owner: number, isr: vec![number], ..Default::default() };
        let view = v1::View {
            m: 10,
            managers: vec![manager(4, "m1"), manager(9, "m2")],
            parts: vec![part(4), part(9)],
            ..Default::default()
        };
        let answer = |number, role: &str| v1::InspectResponse {
            number,
            view: Some(view.clone()),
            parts: vec![v1::PartStats { number, role: role.to_owned(), ..Default::default() }],
            nodes: vec![v1::NodeStats {
                id: "n1".to_owned(),
                state: node_state.to_owned(),
                ..Default::default()
            }],
            requests_waiting: 0,
        };
        [(4, Ok(answer(4, "serving"))), (9, Ok(answer(9, role)))].into()
    }

    #[test]
    fn a_cluster_whose_owners_serve_and_whose_nodes_are_ready_is_ready() {
        let nodes = ["n1".to_owned()];
        assert_eq!(missing(&answers("serving", "READY"), 2, &nodes), None);
    }

    #[test]
    fn what_is_missing_is_named() {
        let nodes = ["n1".to_owned()];
        let why = |answers: &Answers| missing(answers, 2, &nodes).unwrap();
        assert!(why(&answers("syncing", "READY")).contains("partition 9 is syncing"));
        assert!(why(&answers("serving", "JOINING")).contains("node n1 is JOINING"));
        let mut silent = answers("serving", "READY");
        silent.insert(9, Err("refused".to_owned()));
        assert!(why(&silent).contains("manager m2 (9) does not answer: refused"));
        assert!(missing(&answers("serving", "READY"), 2, &["n2".to_owned()]).is_some());
    }
}
