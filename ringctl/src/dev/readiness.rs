//! When a cluster is ready: its own managers answer, every partition has an owner that serves, and
//! every manager knows every node as READY. Managers that joined later are not its own: they may be
//! away, as long as nobody needs what they hold.

use crate::inspect::{Answers, Manager, Ring, join, newest_view};
use rota_model::ManagerNumber;
use rota_ring::View;
use std::collections::BTreeSet;

/// What is still missing, in a sentence; `None` when nothing is.
/// `own`: numbers of the managers that were started.
pub fn missing(answers: &Answers, own: &[u32], nodes: &[String]) -> Option<String> {
    let Some(ring) = join(answers) else { return Some("no manager has a View".to_owned()) };
    if let Some(it) = away(&ring).find(|it| own.contains(&it.number)) {
        let error = it.error.as_deref().unwrap_or("no answer");
        return Some(format!("manager {} ({}) does not answer: {error}", it.id, it.number));
    }
    let there = |number: &u32| ring.managers.iter().any(|it| it.number == *number);
    if let Some(number) = own.iter().find(|it| !there(it)) {
        return Some(format!("manager {number} is not in the ring"));
    }
    not_serving(&ring).or_else(|| not_ready(answers, nodes))
}

/// What is not yet as it will be at rest, by the newest View: `own` managers up, each partition owned by its
/// home, or by the next one that is up, with every copy that is wanted in sync, and nobody who joins or
/// leaves; and no manager holds a copy still that is to be dropped.
pub fn not_at_rest(answers: &Answers, own: &[u32]) -> Option<String> {
    let Some(view) = newest_view(answers) else { return Some("no manager has a View".to_owned()) };
    match View::try_from(view.clone()) {
        Ok(view) => unrest(&view, own).or_else(|| surplus(answers)),
        Err(error) => Some(format!("the View cannot be read: {error}")),
    }
}

fn unrest(view: &View, own: &[u32]) -> Option<String> {
    if let Some(number) = own.iter().find(|it| !view.is_up(ManagerNumber(**it))) {
        return Some(format!("manager {number} is not up"));
    }
    if let Some(under_way) = view.transition {
        return Some(format!("number {} joins or leaves", under_way.number()));
    }
    view.parts.iter().find_map(|(number, part)| {
        let wanted = view.wanted(*number);
        let copies = wanted.iter().filter(|it| part.has(**it)).count();
        let text = format!(
            "partition {number} is owned by {} and has {copies} of {} copies in sync",
            part.owner,
            wanted.len()
        );
        (wanted.first() != Some(&part.owner) || copies < wanted.len()).then_some(text)
    })
}

fn surplus(answers: &Answers) -> Option<String> {
    let answers = answers.iter().filter_map(|(manager, it)| Some((manager, it.as_ref().ok()?)));
    let mut parts =
        answers.flat_map(|(manager, it)| it.parts.iter().map(move |part| (manager, part)));
    let (manager, part) = parts.find(|(_, part)| part.role == "former copy")?;
    Some(format!("manager {manager} has not dropped its former copy of partition {}", part.number))
}

/// The managers of others that do not answer, and what to do about them, in a sentence.
pub fn silent(answers: &Answers, own: &[u32]) -> Option<String> {
    let ring = join(answers)?;
    let others = away(&ring).filter(|it| !own.contains(&it.number));
    let names: Vec<String> = others.map(|it| format!("{} ({})", it.id, it.number)).collect();
    let is_away = |owner: u32| away(&ring).any(|it| it.number == owner && !own.contains(&owner));
    let theirs = ring.partitions.iter().filter(|it| is_away(it.owner));
    let theirs: Vec<String> = theirs.map(|it| it.number.to_string()).collect();
    let waits = match theirs.as_slice() {
        [] => "they may hold the last copy of something, and then this waits for them".to_owned(),
        some => format!("partition {} waits for them", some.join(", ")),
    };
    (!names.is_empty()).then(|| {
        format!(
            "managers that joined later do not answer: {}. Start each with its own command line: {waits}",
            names.join(", ")
        )
    })
}

/// Members that do not answer; one that has left is none.
fn away(ring: &Ring) -> impl Iterator<Item = &Manager> {
    ring.managers.iter().filter(|it| !it.answers && !it.has_left())
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
    use crate::ring_example::{claim, ring};
    use rota_client::v1;

    fn answers(role: &str, node_state: &str) -> Answers {
        let manager = |number, id: &str, status: &str| v1::ManagerEntry {
            number,
            id: id.to_owned(),
            status: status.to_owned(),
            ..Default::default()
        };
        let part =
            |number| v1::Part { number, owner: number, isr: vec![number], ..Default::default() };
        let view = v1::View {
            m: 10,
            managers: vec![
                manager(4, "m1", "ACTIVE"),
                manager(5, "m3", "DOWN"),
                manager(7, "m4", "LEFT"),
                manager(9, "m2", "ACTIVE"),
            ],
            parts: vec![part(4), part(9)],
            ..Default::default()
        };
        let answer = |number, role: &str| v1::InspectResponse {
            number,
            view: Some(view.clone()),
            parts: vec![v1::PartitionStats { number, role: role.to_owned(), ..Default::default() }],
            nodes: vec![v1::NodeStats {
                id: "n1".to_owned(),
                state: node_state.to_owned(),
                ..Default::default()
            }],
            ..Default::default()
        };
        [(4, Ok(answer(4, "serving"))), (9, Ok(answer(9, role)))].into()
    }

    #[test]
    fn a_copy_that_is_to_be_dropped_is_no_rest() {
        let told = |role| {
            let mut answers = answers(role, "READY");
            for answer in answers.values_mut().flatten() {
                answer.view = Some((&ring(0, &[(4, "m1"), (9, "m2")])).into());
            }
            not_at_rest(&answers, &[4, 9])
        };
        assert_eq!(told("serving"), None);
        let told = told("former copy").unwrap();
        assert_eq!(told, "manager 9 has not dropped its former copy of partition 9");
    }

    #[test]
    fn a_cluster_whose_owners_serve_and_whose_nodes_are_ready_is_ready() {
        let nodes = ["n1".to_owned()];
        assert_eq!(missing(&answers("serving", "READY"), &[4, 9], &nodes), None);
    }

    #[test]
    fn a_ring_is_at_rest_when_homes_own_and_every_wanted_copy_is_in_sync() {
        let both = ring(0, &[(100, "a"), (400, "b")]);
        assert_eq!(unrest(&both, &[100, 400]), None);
        assert_eq!(unrest(&both, &[100, 250]).unwrap(), "manager 250 is not up");
        let joining = both.joined(&claim(250, "new")).unwrap();
        assert_eq!(unrest(&joining, &[]).unwrap(), "number 250 joins or leaves");
        let split = joining.split(ManagerNumber(250)).unwrap().released().unwrap();
        let told = unrest(&split, &[]).unwrap();
        assert_eq!(told, "partition 250 is owned by 400 and has 0 of 1 copies in sync");
    }

    /// The same ring, where that one owns the second partition.
    fn owned_by(owner: u32) -> Answers {
        let mut answers = answers("serving", "READY");
        for answer in answers.values_mut().flatten() {
            answer.view.as_mut().unwrap().parts[1].owner = owner;
        }
        answers
    }

    #[test]
    fn members_of_others_that_do_not_answer_are_named_and_those_that_left_are_not() {
        let answers = answers("serving", "READY");
        let told = silent(&answers, &[4, 9]).unwrap();
        assert!(told.contains("m3 (5)") && !told.contains("m4"), "{told}");
        assert!(told.contains("may hold the last copy"), "{told}");
        let told = silent(&owned_by(5), &[4, 9]).unwrap();
        assert!(told.ends_with("partition 9 waits for them"), "{told}");
        assert_eq!(silent(&answers, &[4, 5, 9]), None);
        assert!(missing(&answers, &[4, 5, 9], &[]).unwrap().contains("manager m3 (5) does not"));
        assert!(missing(&answers, &[4, 6, 9], &[]).unwrap().contains("6 is not in the ring"));
    }

    #[test]
    fn what_is_missing_is_named() {
        let nodes = ["n1".to_owned()];
        let why = |answers: &Answers| missing(answers, &[4, 9], &nodes).unwrap();
        assert!(why(&answers("syncing", "READY")).contains("partition 9 is syncing"));
        assert!(why(&answers("serving", "JOINING")).contains("node n1 is JOINING"));
        let mut silent = answers("serving", "READY");
        silent.insert(9, Err("refused".to_owned()));
        assert!(why(&silent).contains("manager m2 (9) does not answer: refused"));
        assert!(missing(&answers("serving", "READY"), &[4, 9], &["n2".to_owned()]).is_some());
    }
}
