//! Which node somebody waits for who hears nothing, as managers know.

use super::show::{Shown, ShownNode};
use crate::inspect::{Ring, ask, join};
use rota_client::{Client, v1};
use std::time::Duration;

/// How long managers may take to tell.
const WAIT: Duration = Duration::from_secs(2);

/// What is waited for.
pub struct Awaited<'a> {
    pub namespace: &'a str,
    pub id: &'a str,
    /// 0: the newest.
    pub life: u64,
    /// Empty: the one where the life ran.
    pub node: &'a str,
}

/// What managers know of the node that is waited for; `None`: nothing.
pub async fn whom(client: &Client, it: &Awaited<'_>) -> Option<String> {
    let (namespace, id) = (it.namespace.to_owned(), it.id.to_owned());
    let get = v1::GetRequest { namespace, id, stale_ok: true };
    let (session, answers) = tokio::join!(client.get(get, WAIT), ask(client, WAIT));
    let session = session.ok().and_then(|it| it.session);
    let ring = answers.ok().and_then(|it| join(&it)).unwrap_or_default();
    told(it, session.as_ref().map(Shown::of).as_ref(), &ring)
}

fn told(it: &Awaited<'_>, session: Option<&Shown>, ring: &Ring) -> Option<String> {
    let of_life = session.filter(|shown| it.life == 0 || shown.life == it.life);
    let of_life = of_life.map(|shown| &shown.node);
    let of_node = of_life.filter(|node| it.node.is_empty() || node.id == it.node);
    let id = of_node.map_or(it.node, |node| &node.id);
    if !id.is_empty() {
        return Some(of(id, of_node, ring));
    }
    let lost = ring.nodes.iter().filter(|it| it.state == "LOST").map(|it| it.id.as_str());
    let lost: Vec<&str> = lost.collect();
    let of = match it.life {
        0 => format!("no record tells the node of {}", it.id),
        life => format!("no record tells the node of life {life}"),
    };
    (!lost.is_empty()).then(|| match lost.as_slice() {
        [one] => format!("{of}; node {one} is LOST and may keep its output"),
        all => format!("{of}; nodes {} are LOST and may keep its output", all.join(", ")),
    })
}

/// A node, and since when it is silent.
fn of(id: &str, node: Option<&ShownNode>, ring: &Ring) -> String {
    let known = ring.nodes.iter().find(|it| it.id == id);
    let state = node.map(|it| it.state.as_str()).filter(|it| !it.is_empty());
    // The owner of the session may be without a node that others hear.
    let state = match known.map(|it| it.state.as_str()) {
        Some(gone @ ("LOST" | "REMOVED")) => gone,
        told => state.or(told).unwrap_or("not registered"),
    };
    let heard = node.and_then(|it| it.unheard_ms).filter(|_| !matches!(state, "LOST" | "REMOVED"));
    let heard = heard.map(|ms| {
        let seconds = Duration::from_millis(ms).as_secs_f64();
        format!(", and its owner heard it {seconds:.1} s ago")
    });
    format!("node {id} is {state}{}", heard.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::Node;

    fn ring(nodes: &[(&str, &str)]) -> Ring {
        let node = |(id, state): &(&str, &str)| Node {
            id: (*id).to_owned(),
            state: (*state).to_owned(),
            ..Node::default()
        };
        Ring { nodes: nodes.iter().map(node).collect(), ..Ring::default() }
    }

    fn session(state: &str, unheard_ms: Option<u64>) -> Shown {
        Shown::of(&v1::Session {
            life: 7,
            node_id: "n1".to_owned(),
            node_state: state.to_owned(),
            node_unheard_ms: unheard_ms,
            ..Default::default()
        })
    }

    fn awaited<'a>(life: u64, node: &'a str) -> Awaited<'a> {
        Awaited { namespace: "default", id: "a", life, node }
    }

    #[test]
    fn a_silent_node_is_named_with_the_time_since_it_was_heard() {
        let ring = ring(&[("n1", "READY"), ("n2", "READY")]);
        let silent = session("UNREACHABLE", Some(3_240));
        let text = "node n1 is UNREACHABLE, and its owner heard it 3.2 s ago";
        assert_eq!(told(&awaited(0, ""), Some(&silent), &ring).as_deref(), Some(text));
        assert_eq!(told(&awaited(7, "n1"), Some(&silent), &ring).as_deref(), Some(text));
        let other = told(&awaited(0, "n2"), Some(&silent), &ring);
        assert_eq!(other.as_deref(), Some("node n2 is READY"));
        let never = told(&awaited(0, "n3"), None, &ring);
        assert_eq!(never.as_deref(), Some("node n3 is not registered"));
    }

    #[test]
    fn a_node_that_is_lost_is_named_also_when_no_record_tells_where_the_life_ran() {
        let ring = ring(&[("n1", "LOST"), ("n2", "READY")]);
        let ended = session("", None);
        let text = "node n1 is LOST";
        assert_eq!(told(&awaited(7, ""), Some(&ended), &ring).as_deref(), Some(text));
        let earlier = told(&awaited(3, ""), Some(&ended), &ring);
        let text = "no record tells the node of life 3; node n1 is LOST and may keep its output";
        assert_eq!(earlier.as_deref(), Some(text));
        assert_eq!(told(&awaited(3, ""), Some(&ended), &Ring::default()), None);
    }
}
