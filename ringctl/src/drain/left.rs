//! What the managers say of a node that is drained.

use crate::inspect::{Answers, newest_view, serves, stats_of};
use rota_client::{Client, v1};
use std::time::Duration;

/// How long managers may take to tell whether a class has sessions on a node.
const LIST_WAIT: Duration = Duration::from_secs(2);

/// What all of them together say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Look {
    /// So many sessions are left there; and the classes of the node whose sessions are only waited for.
    Left(u64, Vec<String>),
    /// None is, and none comes: every owner knows that it is drained, or gone. Its state.
    Empty(String),
    /// It is not to be drained any more. Its state.
    TakenBack(String),
    /// Not everybody could be asked; why.
    Unsure(String),
}

/// Sessions that have not ended and run or are to run on a node, as the owners of all partitions say; or why
/// that is not known.
pub fn count(answers: &Answers, node: &str) -> Result<u64, String> {
    let view = newest_view(answers).ok_or("no manager has a View")?;
    let of_part = |part: &v1::Part| {
        let stats = stats_of(answers, part.owner, part.number).filter(|it| serves(it));
        let (number, owner) = (part.number, part.owner);
        let stats =
            stats.ok_or_else(|| format!("partition {number}: its owner {owner} is silent"))?;
        Ok(stats.on_nodes.get(node).copied().unwrap_or(0))
    };
    view.parts.iter().map(of_part).sum()
}

/// Classes of a node whose sessions a drain does not close.
pub fn waits_for(node: &v1::NodeStats) -> Vec<String> {
    let spared = |it: &v1::ClassFacts| node.spares == "never" && it.disturb == "never";
    let classes = node.class_facts.iter().filter(|(_, it)| spared(it));
    classes.map(|(name, _)| name.clone()).collect()
}

/// Those of the classes of which a session has not ended on a node. All, where nobody can tell.
pub async fn there(client: &Client, node: &str, classes: Vec<String>) -> Vec<String> {
    let mut there = Vec::new();
    for class in classes {
        let sessions = client.list_first(of_class(node, &class), 1, LIST_WAIT).await;
        if sessions.is_ok_and(|it| it.sessions.is_empty()) {
            continue;
        }
        there.push(class);
    }
    there
}

fn of_class(node: &str, class: &str) -> v1::ListRequest {
    use v1::SessionState::{Closing, Pending, Ready, Starting};
    let states = [Pending, Starting, Ready, Closing].map(Into::into).into();
    v1::ListRequest {
        filter: Some(v1::Filter { states, ..v1::Filter::default() }),
        // A name in quotes, with the escapes of the filter language.
        r#where: format!("node = {node:?} and class = {class:?}"),
        ..v1::ListRequest::default()
    }
}

/// Joins the answers: each owner says what it has on the node, and whether it places more there.
pub fn look(answers: &Answers, node: &str) -> Look {
    let Some(view) = newest_view(answers) else {
        return Look::Unsure("no manager has a View".to_owned());
    };
    let heard: Vec<&v1::InspectResponse> =
        answers.values().filter_map(|it| it.as_ref().ok()).collect();
    let of_node =
        |answer: &v1::InspectResponse| answer.nodes.iter().find(|it| it.id == node).cloned();
    let known: Vec<v1::NodeStats> = heard.iter().filter_map(|it| of_node(it)).collect();
    if let Some(other) = known.first().filter(|_| known.iter().all(|it| it.wish != "drained")) {
        return Look::TakenBack(other.state.clone());
    }
    let (mut left, mut unsure, mut state) = (0, None, String::new());
    for part in &view.parts {
        let (number, owner) = (part.number, part.owner);
        let mut doubt = |why: &str| {
            unsure.get_or_insert_with(|| format!("partition {number}: its owner {owner} {why}"));
        };
        let Some(Ok(answer)) = answers.get(&owner) else {
            doubt("does not answer");
            continue;
        };
        let Some(stats) = stats_of(answers, owner, number).filter(|it| serves(it)) else {
            doubt("does not serve yet");
            continue;
        };
        left += stats.on_nodes.get(node).copied().unwrap_or(0);
        match of_node(answer) {
            Some(known) if known.wish == "drained" => state = known.state,
            Some(_) | None => doubt("has not heard of the drain yet"),
        }
    }
    match unsure {
        Some(why) => Look::Unsure(why),
        None if left > 0 => Look::Left(left, known.first().map(waits_for).unwrap_or_default()),
        None => Look::Empty(state),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(number: u32, on_node: u64, wish: &str) -> (u32, Result<v1::InspectResponse, String>) {
        let part = |number| v1::Part { number, owner: number, ..Default::default() };
        let view = v1::View { epoch: 3, parts: vec![part(1), part(2)], ..Default::default() };
        let stats = v1::PartitionStats {
            number,
            role: "serving".to_owned(),
            on_nodes: [("n".to_owned(), on_node)].into(),
            ..Default::default()
        };
        let state = if wish == "drained" { "DRAINING" } else { "READY" };
        let node = v1::NodeStats {
            id: "n".to_owned(),
            state: state.to_owned(),
            wish: wish.to_owned(),
            spares: "never".to_owned(),
            class_facts: ["match", "http"].map(|it| (it.to_owned(), facts(it))).into(),
            ..Default::default()
        };
        let (parts, nodes) = (vec![stats], vec![node]);
        let view = Some(view);
        let answer = v1::InspectResponse { number, view, parts, nodes, ..Default::default() };
        (number, Ok(answer))
    }

    #[test]
    fn names_are_quoted_for_the_filter_language() {
        let request = of_class("n 1", "a\"b\\c");
        assert_eq!(request.r#where, r#"node = "n 1" and class = "a\"b\\c""#);
    }

    fn facts(class: &str) -> v1::ClassFacts {
        let disturb = if class == "match" { "never" } else { "" };
        v1::ClassFacts { disturb: disturb.to_owned(), ..Default::default() }
    }

    fn seen(one: (u64, &str), two: (u64, &str)) -> Look {
        look(&[answer(1, one.0, one.1), answer(2, two.0, two.1)].into(), "n")
    }

    #[test]
    fn it_is_empty_when_every_owner_has_nothing_there_and_knows_that_it_is_drained() {
        assert_eq!(seen((2, "drained"), (3, "drained")), Look::Left(5, vec!["match".to_owned()]));
        assert_eq!(seen((0, "drained"), (0, "drained")), Look::Empty("DRAINING".to_owned()));
        let late = seen((0, "drained"), (0, ""));
        assert!(
            matches!(&late, Look::Unsure(why) if why.contains("owner 2 has not heard")),
            "{late:?}"
        );
        assert_eq!(seen((0, ""), (0, "cordoned")), Look::TakenBack("READY".to_owned()));
    }

    #[test]
    fn sessions_of_a_node_are_counted_when_all_owners_tell() {
        let both = [answer(1, 2, ""), answer(2, 3, "")].into();
        assert_eq!((count(&both, "n"), count(&both, "other")), (Ok(5), Ok(0)));
        let one = [answer(1, 2, ""), (2, Err("refused".to_owned()))].into();
        assert!(count(&one, "n").unwrap_err().contains("owner 2 is silent"));
    }

    #[test]
    fn an_owner_that_is_silent_or_does_not_serve_leaves_it_open() {
        let silent = [answer(1, 0, "drained"), (2, Err("refused".to_owned()))].into();
        assert!(matches!(look(&silent, "n"), Look::Unsure(why) if why.contains("does not answer")));
        let (number, mut answer) = answer(2, 0, "drained");
        answer.as_mut().unwrap().parts[0].role = "syncing".to_owned();
        let syncing = [self::answer(1, 0, "drained"), (number, answer)].into();
        assert!(matches!(look(&syncing, "n"), Look::Unsure(why) if why.contains("does not serve")));
        assert!(matches!(look(&Answers::new(), "n"), Look::Unsure(_)));
    }
}
