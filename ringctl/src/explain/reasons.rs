//! The reasons: which rule made it so, from the View, the managers' answers and the record.

use super::{Copy, Explained, Node, Owner, Partition};
use crate::inspect::{Partition as Seen, Ring};
use crate::session::Shown;
use rota_model::{ManagerNumber, NodeState, SessionKey};
use rota_ring::{PartitionState, View, slot_of_session};

/// Joins what is known. `session`: the record, none, or why nobody could say.
pub fn explain(
    key: &SessionKey,
    view: &View,
    ring: &Ring,
    session: Result<Option<Shown>, String>,
) -> Explained {
    let slot = slot_of_session(key, view.m);
    let (home, part) = view.part_of(slot);
    let range = view.range(home);
    let seen = ring.partitions.iter().find(|it| it.number == home.0);
    let session_why = match &session {
        Ok(Some(shown)) => why_in_state(shown),
        Ok(None) => {
            let lost = match part.recovered {
                Some(_) => ", or ended before the partition was found again from the nodes",
                None => "",
            };
            let waits = match seen.is_some_and(|it| !it.waiting.is_empty()) {
                true => ", or waits for a node",
                false => "",
            };
            format!(
                "no session of that id is known: it was never opened, or ended so long ago that its \
                 record is gone{lost}{waits}"
            )
        }
        Err(error) => format!("nobody could say: {error}"),
    };
    let session_known = session.is_ok();
    let session = session.ok().flatten();
    let status = |number| view.managers.get(&number).map_or("unknown", |it| it.status.as_str());
    Explained {
        id: key.id.as_str().to_owned(),
        namespace: key.namespace.as_str().to_owned(),
        placed_by: rota_ring::place::together(key.id.as_str()).to_owned(),
        slot: slot.0,
        slots: view.m,
        view_epoch: view.epoch.0,
        partition: Partition {
            home: home.0,
            home_status: status(home).to_owned(),
            first_slot: range.first.0,
            last_slot: range.last.0,
            state: if part.state == PartitionState::Active { "active" } else { "recovering" }
                .to_owned(),
            recovered: part.recovered.map(|it| it.to_string()),
            epoch: part.pe.0,
            waiting: seen.map(|it| it.waiting.clone()).unwrap_or_default(),
        },
        owner: Owner {
            number: part.owner.0,
            grpc: view.managers.get(&part.owner).map(|it| it.grpc.clone()).unwrap_or_default(),
            role: seen.and_then(|it| role_of(it, part.owner)),
            why: why_owner(view, home, seen.and_then(|it| role_of(it, part.owner)).as_deref()),
        },
        copies: copies(view, home, seen),
        node: session.as_ref().and_then(|it| node(it, ring)),
        session,
        session_known,
        session_why,
    }
}

fn role_of(seen: &Seen, number: ManagerNumber) -> Option<String> {
    seen.copies.iter().find(|it| it.number == number.0)?.role.clone()
}

fn why_owner(view: &View, home: ManagerNumber, role: Option<&str>) -> String {
    let (_, part) = view.part_of(rota_model::SlotId(home.0));
    if part.state == PartitionState::Recovering {
        return part.account().unwrap_or_default();
    }
    if role == Some("recovering") {
        return "it has seen that its disk lacks what was acknowledged, and answers nobody: it asks for \
                the partition to be found again from the nodes"
            .to_owned();
    }
    if part.owner == home {
        return "it is the home, and holds every committed write".to_owned();
    }
    let is_up = view.is_up(home);
    let held = match (is_up, part.has(home)) {
        (true, true) => "holds every committed write again, and takes over next",
        (true, false) => "does not hold every committed write (yet)",
        (false, _) => "is not active",
    };
    format!(
        "manager {home}, the home, {held}; this is the first in ring order that was in sync when the \
         owner was chosen"
    )
}

/// In ring order: members of the in-sync set, others that hold something, and who should.
fn copies(view: &View, home: ManagerNumber, seen: Option<&Seen>) -> Vec<Copy> {
    let (_, part) = view.part_of(rota_model::SlotId(home.0));
    let wanted = view.wanted(home);
    let all = view.ring_from(home).filter_map(|number| {
        let own = seen.and_then(|it| it.copies.iter().find(|it| it.number == number.0));
        let in_sync = part.has(number);
        if !in_sync && own.is_none() && !wanted.contains(&number) {
            return None;
        }
        let role = own.and_then(|it| it.role.clone());
        let why = why_copy(view, number, wanted.contains(&number), in_sync, role.as_deref());
        Some(Copy { number: number.0, in_sync, role, lag: own.and_then(|it| it.lag), why })
    });
    all.collect()
}

fn why_copy(
    view: &View,
    number: ManagerNumber,
    is_wanted: bool,
    in_sync: bool,
    role: Option<&str>,
) -> String {
    let copies = view.r + 1;
    match (is_wanted, in_sync) {
        (true, true) => format!("one of the first {copies} active managers from the home on"),
        (false, true) => {
            "it stands in for a copy that is missing, or is left over until the others are complete"
                .to_owned()
        }
        (true, false) => format!(
            "it should hold a copy: {}",
            match role {
                Some("learning") => "it is being copied to",
                Some(_) => "what it holds is not complete",
                None => "nothing was copied yet",
            }
        ),
        (false, false) if view.managers.get(&number).is_some_and(|it| !it.serves()) => {
            "it is down; what its disk holds is old".to_owned()
        }
        (false, false) => "left over: it is dropped soon".to_owned(),
    }
}

fn why_in_state(shown: &Shown) -> String {
    let detail =
        if shown.detail.is_empty() { String::new() } else { format!(": {}", shown.detail) };
    let text = match shown.state.as_str() {
        "PENDING" | "STARTING" => {
            "its owner asked the node for it, and waits for a definite answer"
        }
        "READY" => "its node answered that it runs",
        "CLOSING" => "its node has not answered yet that nothing of it runs any more",
        "CLOSED" => "it has ended in good order; its record stays until nobody needs it any more",
        "FAILED" => "it did not become ready, or ended by itself and not well",
        "LOST" if shown.reason == "REOPENING" => {
            "its class has it opened again, as a new life, when a node has room"
        }
        "LOST" => "its node was declared lost before it could say what became of it",
        _ => "",
    };
    let told = if shown.machine_state.is_empty() {
        String::new()
    } else {
        format!(" (its machine is in {})", shown.machine_state)
    };
    let doubt = match shown.node.doubt() {
        none if none.is_empty() => String::new(),
        some => format!("; node {}: {some}, so it may have ended", shown.node.id),
    };
    format!("{text}{told}{detail}{doubt}")
}

fn node(session: &Shown, ring: &Ring) -> Option<Node> {
    if session.node.id.is_empty() {
        return None;
    }
    let known = ring.nodes.iter().find(|it| it.id == session.node.id);
    let load = known.map(|it| format!("it has {} of {} places in use now; ", it.used, it.places));
    let why = format!(
        "{}a life keeps its node: when it began, that was the node of pool {} with room below the load \
         limit that the pool's policy chose",
        load.unwrap_or_default(),
        session.pool
    );
    Some(Node {
        id: session.node.id.clone(),
        address: known.map_or(session.node.address.clone(), |it| it.address.clone()),
        state: known.map(|it| it.state.clone()).map(|it| seen_by_owner(session, it)),
        why,
    })
}

/// A node may be out of reach for the owner of a session and not for the owner of the node.
fn seen_by_owner(session: &Shown, state: String) -> String {
    let is_out =
        session.node.state == NodeState::Unreachable.as_str() && state == NodeState::Ready.as_str();
    if is_out { session.node.state.clone() } else { state }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring_example::ring;
    use rota_model::{Namespace, SessionId};
    use rota_ring::FoundAgain;

    /// Three managers, r = 1, all in sync where they should be.
    fn view() -> View {
        let mut view = ring(1, &[(100, "a"), (400, "b"), (900, "c")]);
        for number in [100, 400, 900].map(ManagerNumber) {
            let missing = view
                .wanted(number)
                .into_iter()
                .filter(|it| !view.parts.get(&number).is_some_and(|part| part.has(*it)));
            let missing: Vec<_> = missing.filter_map(|it| view.member(it)).collect();
            view = view.with_members(number, &missing).unwrap_or(view);
        }
        view
    }

    /// An id of partition 400.
    fn key(view: &View) -> SessionKey {
        let key = |n: u32| {
            SessionKey::new(Namespace::default_space(), SessionId::parse(&n.to_string()).unwrap())
        };
        let mut keys = (0..).map(key);
        keys.find(|it| view.home(slot_of_session(it, view.m)).0 == 400).unwrap()
    }

    #[test]
    fn the_home_owns_what_is_its_own() {
        let view = view();
        let told = explain(&key(&view), &view, &Ring::default(), Ok(None));
        assert_eq!((told.partition.home, told.owner.number), (400, 400));
        assert!((101..=400).contains(&told.slot) && told.slots == 1024);
        assert!(told.owner.why.starts_with("it is the home"), "{told:?}");
        let copies: Vec<_> = told.copies.iter().map(|it| (it.number, it.in_sync)).collect();
        assert_eq!(copies, [(400, true), (900, true)]);
        assert!(told.session_why.contains("never opened"));
        assert!(told.text().contains("session   none\n"), "{}", told.text());
        assert!(told.text().contains("owner     manager 400 at b:1"), "{}", told.text());
    }

    #[test]
    fn after_a_take_over_the_reason_names_the_home_and_the_missing_copy() {
        let view = view();
        let view = view.without(&[view.member(ManagerNumber(400)).unwrap()]).unwrap();
        let told = explain(&key(&view), &view, &Ring::default(), Err("too late".to_owned()));
        assert_eq!((told.owner.number, told.partition.home_status.as_str()), (900, "DOWN"));
        assert!(told.owner.why.contains("manager 400, the home, is not active"), "{told:?}");
        let copies: Vec<_> = told.copies.iter().map(|it| (it.number, it.in_sync)).collect();
        assert_eq!(copies, [(900, true), (100, false)]);
        assert!(told.copies[1].why.contains("nothing was copied yet"), "{told:?}");
        assert!(told.session_why.contains("too late"));
        assert!(told.text().contains("session   unknown\n"), "{}", told.text());
    }

    #[test]
    fn a_partition_that_is_found_again_is_told_with_the_cause_while_it_recovers_and_after() {
        let view = view();
        let me = view.member(ManagerNumber(400)).unwrap();
        let during = view.given_up(ManagerNumber(400), me).unwrap();
        let told = explain(&key(&view), &during, &Ring::default(), Ok(None));
        assert!(told.owner.why.starts_with("a node knew of a later attempt"), "{told:?}");
        assert!(told.owner.why.contains("found again from the nodes"), "{told:?}");
        let found = FoundAgain { sessions: 12, ..FoundAgain::default() };
        let after = during.recovered(ManagerNumber(400), me, found).unwrap();
        let told = explain(&key(&view), &after, &Ring::default(), Ok(None));
        assert!(told.owner.why.starts_with("it is the home"), "{told:?}");
        assert!(told.text().contains("12 sessions were found running"), "{}", told.text());
        assert!(told.session_why.contains("before the partition was found again"), "{told:?}");
    }

    #[test]
    fn an_owner_that_has_halted_is_not_said_to_hold_everything() {
        let view = view();
        let why = why_owner(&view, ManagerNumber(400), Some("recovering"));
        assert!(why.contains("lacks what was acknowledged"), "{why}");
    }

    #[test]
    fn ids_with_braces_are_placed_by_what_is_inside() {
        let view = view();
        let id = SessionId::parse("{room-1}seat-4").unwrap();
        let key = SessionKey::new(Namespace::default_space(), id);
        let told = explain(&key, &view, &Ring::default(), Ok(None));
        assert_eq!(told.placed_by, "room-1");
        assert!(told.text().contains("\"room-1\", the part in braces"));
    }
}
