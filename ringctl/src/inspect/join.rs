//! Joins what every manager said into one picture.

use rota_client::v1;
use rota_model::{ManagerNumber, ManagerStatus, NodeId, SlotId};
use rota_ring::PartitionEntry;
use serde::Serialize;
use std::borrow::Borrow;
use std::collections::BTreeMap;

/// Each manager's answer by its number, or why there is none.
pub type Answers = BTreeMap<u32, Result<v1::InspectResponse, String>>;

/// The whole picture. The JSON document of `ringctl inspect`.
#[derive(Serialize, PartialEq, Debug, Default)]
pub struct Ring {
    pub cluster: String,
    /// Epoch of the newest View that was found; everything about owners and copies is from it.
    pub epoch: u64,
    pub slots: u32,
    pub replicas: u32,
    pub managers_max: u32,
    pub managers: Vec<Manager>,
    pub partitions: Vec<Partition>,
    pub nodes: Vec<Node>,
    /// Who joins or leaves just now.
    pub transition: Option<Transition>,
}

/// A change of who is in the ring.
#[derive(Serialize, PartialEq, Debug, Default)]
pub struct Transition {
    /// join or leave.
    pub kind: String,
    pub number: u32,
    /// Epoch in which it began.
    pub since: u64,
}

/// A reserved number.
#[derive(Serialize, PartialEq, Debug, Default)]
pub struct Manager {
    pub number: u32,
    pub id: String,
    /// By its id, so it stays when it takes another number of the ring; `null` while nobody who answered knows it.
    pub stable_number: Option<u64>,
    /// By which the stable number is kept.
    pub uuid: Option<String>,
    pub status: String,
    pub grpc: String,
    pub http: String,
    pub incarnation: u64,
    /// Whether it answered.
    pub answers: bool,
    /// Why it did not.
    pub error: Option<String>,
    /// Epoch of its own View.
    pub epoch: Option<u64>,
    pub requests_waiting: Option<u64>,
    /// How and since when it does not reach the config store; `null` while it does, or says nothing.
    pub config_store_error: Option<String>,
}

impl Manager {
    /// It is no part of the ring any more, and nobody expects it to answer.
    pub fn has_left(&self) -> bool {
        self.status == ManagerStatus::Left.as_str()
    }
}

/// A partition.
#[derive(Serialize, PartialEq, Debug, Default)]
pub struct Partition {
    /// The number that ends it, and its home.
    pub number: u32,
    pub first_slot: u32,
    pub last_slot: u32,
    pub slots: u32,
    /// Part of the ring, 0 to 1.
    pub share: f64,
    pub home: u32,
    pub owner: u32,
    /// active or recovering.
    pub state: String,
    /// While it is being found again, since no copy is known to be complete: why.
    pub loss: Option<String>,
    /// What was found when that happened last, if it ever did.
    pub recovered: Option<String>,
    pub pe: u64,
    /// The in-sync set, and whoever else knows of the partition.
    pub copies: Vec<Copy>,
    /// By state, as the owner counts, tombstones included. Empty when it did not answer.
    pub sessions: BTreeMap<String, u64>,
    /// Sessions that wait for a node, by pool, as the owner counts.
    pub waiting: BTreeMap<String, u64>,
}

/// What one manager knows of a partition.
#[derive(Serialize, PartialEq, Debug, Default)]
pub struct Copy {
    pub number: u32,
    pub in_sync: bool,
    /// `None` when it did not answer.
    pub role: Option<String>,
    /// Entries behind the owner, as the owner counts.
    pub lag: Option<u64>,
    /// Newest entry, `pe:seq`.
    pub last: Option<String>,
    pub committed: Option<String>,
    /// Equal for equal content, as text since it has 64 bits.
    pub digest: Option<String>,
}

/// A node.
#[derive(Serialize, PartialEq, Debug, Default)]
pub struct Node {
    pub id: String,
    /// Within its pool; `null` while nobody who answered knows it.
    pub stable_number: Option<u64>,
    /// By which the stable number is kept.
    pub uuid: Option<String>,
    pub address: String,
    pub pool: String,
    pub state: String,
    /// What operators want of it, also while it is LOST or REMOVED: empty, cordoned, drained or
    /// replaced.
    pub wish: String,
    /// When what runs on a drained node is closed, in ms since 1970; `null`: never.
    pub closes_at_ms: Option<u64>,
    /// Of a drained node: it ends as soon as it runs nothing.
    pub retires: bool,
    /// How many of its sessions scale-in must not end.
    pub kept: u32,
    /// As text since it has 64 bits.
    pub boot: String,
    /// Sessions that have not ended and run or are to run there, as the owners that answered say.
    pub sessions: u64,
    /// Places, as the node said last.
    pub used: u32,
    pub places: u32,
    /// Processors in thousandths that sessions take, and that there are; 0: not counted.
    pub used_cpu_millis: u32,
    pub cpu_millis: u32,
    /// Memory in MiB that sessions take, and that there is; 0: not counted.
    pub used_memory_mib: u32,
    pub memory_mib: u32,
    /// The largest part that is in use: of places, CPU and memory.
    pub load: f64,
    /// What it is, as its operator says.
    pub labels: BTreeMap<String, String>,
    pub classes: Vec<String>,
    /// Which texts of these it has, as far as it told.
    pub digests: BTreeMap<String, String>,
    /// The best that it can keep a program from: none or basic; empty when it did not say.
    pub sandbox: String,
}

/// The newest View in the answers.
pub fn newest_view(answers: &Answers) -> Option<&v1::View> {
    let views = answers.values().filter_map(|it| it.as_ref().ok()?.view.as_ref());
    views.max_by_key(|it| it.epoch)
}

/// Joins the answers; `None` when none has a View.
pub fn join(answers: &Answers) -> Option<Ring> {
    let view = newest_view(answers)?;
    Some(Ring {
        cluster: view.cluster.clone(),
        epoch: view.epoch,
        slots: view.m,
        replicas: view.r,
        managers_max: view.managers_max,
        managers: view.managers.iter().map(|it| manager(it, answers)).collect(),
        partitions: view.parts.iter().map(|it| partition(it, view, answers)).collect(),
        nodes: nodes(view, answers),
        transition: view.transition.as_ref().map(|transition| Transition {
            kind: transition.kind.clone(),
            number: transition.number,
            since: transition.since,
        }),
    })
}

fn manager(entry: &v1::ManagerEntry, answers: &Answers) -> Manager {
    let answer = answers.get(&entry.number);
    let heard = answer.and_then(|it| it.as_ref().ok());
    let error = match answer {
        Some(Ok(_)) => None,
        Some(Err(error)) => Some(error.clone()),
        None => Some("it was not asked: it is new in a View that came meanwhile".to_owned()),
    };
    let (stable_number, uuid) = numbered(answers, |response| {
        let mut managers = response.view.iter().flat_map(|it| &it.managers);
        let same = managers.find(|it| it.number == entry.number && it.id == entry.id);
        same.map(|it| (it.stable_number, &*it.uuid))
    });
    Manager {
        number: entry.number,
        id: entry.id.clone(),
        stable_number,
        uuid,
        status: entry.status.clone(),
        grpc: entry.grpc.clone(),
        http: entry.http.clone(),
        incarnation: entry.incarnation,
        answers: heard.is_some(),
        error,
        epoch: heard.and_then(|it| Some(it.view.as_ref()?.epoch)),
        requests_waiting: heard.map(|it| it.requests_waiting),
        config_store_error: heard
            .map(|it| it.config_store_error.clone())
            .filter(|it| !it.is_empty()),
    }
}

/// A stable number and its UUID, as the first manager says that knows it.
fn numbered(
    answers: &Answers,
    of: impl Fn(&v1::InspectResponse) -> Option<(u64, &str)>,
) -> (Option<u64>, Option<String>) {
    let mut told = answers.values().filter_map(|it| of(it.as_ref().ok()?));
    let known = told.find(|(number, _)| *number > 0);
    known.map(|(number, uuid)| (number, uuid.to_owned())).unzip()
}

/// What it means that those managers do without the config store, of so many that answer.
pub fn without_config_store(managers: &[impl Borrow<str>], answering: usize) -> Option<String> {
    if managers.is_empty() {
        return None;
    }
    let names = managers.join(", ");
    Some(if managers.len() < answering {
        format!(
            "without the config store: {names}; the others have it. What they own serves on while it is \
             complete"
        )
    } else {
        format!(
            "without the config store: {names}. Complete partitions serve on; nobody takes over, joins or \
             leaves, and no node comes or is declared lost, before it answers them again"
        )
    })
}

/// What a manager says of a partition, if it answered and knows of it.
pub fn stats_of(answers: &Answers, manager: u32, part: u32) -> Option<&v1::PartitionStats> {
    let answer = answers.get(&manager)?.as_ref().ok()?;
    answer.parts.iter().find(|it| it.number == part)
}

/// Sessions of each pool that wait for a node, for people.
pub fn waiting_text(waiting: &BTreeMap<String, u64>) -> String {
    let each = waiting.iter().map(|(pool, count)| format!("{count} in pool {pool}"));
    each.collect::<Vec<_>>().join(", ")
}

/// Whether that is the role of who answers for the partition.
pub fn serves(stats: &v1::PartitionStats) -> bool {
    matches!(stats.role.as_str(), "serving" | "wedged")
}

fn partition(part: &v1::Part, view: &v1::View, answers: &Answers) -> Partition {
    let slots = match part.number.checked_sub(part.first_slot) {
        Some(between) => between + 1,
        None => view.m - part.first_slot + part.number + 1,
    };
    let owner = stats_of(answers, part.owner, part.number);
    let others = view.managers.iter().map(|it| it.number).filter(|number| {
        let role = stats_of(answers, *number, part.number).map(|it| it.role.as_str());
        !part.isr.contains(number) && !matches!(role, None | Some("idle" | ""))
    });
    let copy = |number: u32| copy(number, part, owner, answers);
    let told = PartitionEntry::try_from(part.clone()).ok().and_then(|it| it.account());
    let is_recovering = part.state == "recovering";
    Partition {
        number: part.number,
        first_slot: part.first_slot,
        last_slot: part.number,
        slots,
        share: f64::from(slots) / f64::from(view.m.max(1)),
        home: part.number,
        owner: part.owner,
        state: part.state.clone(),
        loss: told.clone().filter(|_| is_recovering),
        recovered: told.filter(|_| !is_recovering),
        pe: part.pe,
        copies: part.isr.iter().copied().chain(others).map(copy).collect(),
        sessions: owner.map(|it| it.sessions.clone()).unwrap_or_default(),
        waiting: owner.map(|it| it.waiting.clone()).unwrap_or_default(),
    }
}

fn copy(
    number: u32,
    part: &v1::Part,
    owner: Option<&v1::PartitionStats>,
    answers: &Answers,
) -> Copy {
    let own = stats_of(answers, number, part.number);
    Copy {
        number,
        in_sync: part.isr.contains(&number),
        role: own.map(|it| it.role.clone()),
        lag: owner.and_then(|it| it.lag.get(&number).copied()),
        last: own.map(|it| format!("{}:{}", it.last_pe, it.last_seq)),
        committed: own.map(|it| format!("{}:{}", it.committed_pe, it.committed_seq)),
        digest: own.map(|it| format!("{:016x}", it.digest)),
    }
}

/// Who owns the slot of a node, and therefore hears of it first.
fn owner_of_node(view: &v1::View, node: &str) -> Option<u32> {
    let slot: SlotId = rota_ring::slot_of_node(&NodeId::parse(node).ok()?, view.m);
    let owners: BTreeMap<ManagerNumber, u32> =
        view.parts.iter().map(|it| (ManagerNumber(it.number), it.owner)).collect();
    owners.get(&rota_ring::place::home(&owners, slot)?).copied()
}

/// Each node once: as its owner sees it, else as whoever answered.
fn nodes(view: &v1::View, answers: &Answers) -> Vec<Node> {
    let mut nodes: BTreeMap<&str, &v1::NodeStats> = BTreeMap::new();
    for (number, answer) in answers {
        let Ok(answer) = answer else { continue };
        for node in &answer.nodes {
            let owned_here = owner_of_node(view, &node.id) == Some(*number);
            if owned_here || !nodes.contains_key(node.id.as_str()) {
                nodes.insert(&node.id, node);
            }
        }
    }
    let owned = view.parts.iter().filter_map(|it| stats_of(answers, it.owner, it.number));
    let owned: Vec<&v1::PartitionStats> = owned.collect();
    let on_node = |id: &str| owned.iter().filter_map(|it| it.on_nodes.get(id)).sum();
    let number_of = |node: &v1::NodeStats| {
        numbered(answers, |response| {
            let same =
                response.nodes.iter().find(|it| (&it.id, &it.pool) == (&node.id, &node.pool));
            same.map(|it| (it.stable_number, &*it.uuid))
        })
    };
    let shown = |node: &v1::NodeStats| Node {
        id: node.id.clone(),
        stable_number: number_of(node).0,
        uuid: number_of(node).1,
        address: node.address.clone(),
        pool: node.pool.clone(),
        state: node.state.clone(),
        wish: node.wish.clone(),
        closes_at_ms: node.closes_at_ms,
        retires: node.retires,
        kept: node.kept,
        boot: node.boot.to_string(),
        sessions: on_node(&node.id),
        used: node.used,
        places: node.places,
        used_cpu_millis: node.used_cpu_millis,
        cpu_millis: node.cpu_millis,
        used_memory_mib: node.used_memory_mib,
        memory_mib: node.memory_mib,
        load: node.load(),
        labels: node.labels.clone(),
        classes: node.classes.clone(),
        digests: node.class_digests.clone(),
        sandbox: node.sandbox.clone(),
    };
    nodes.into_values().map(shown).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Three managers of which the last is silent and the first lost its partition to the second.
    pub fn answers() -> Answers {
        let entry = |number: u32, id: &str| v1::ManagerEntry {
            number,
            id: id.to_owned(),
            grpc: format!("127.0.0.1:{}", 7400 + number % 10),
            status: "ACTIVE".to_owned(),
            incarnation: 1,
            ..Default::default()
        };
        let part = |number, first_slot, owner, isr: &[u32]| v1::Part {
            number,
            first_slot,
            owner,
            isr: isr.to_vec(),
            state: "active".to_owned(),
            pe: 4,
            recovered: None,
            loss: None,
            stamps_above: None,
        };
        let view = |epoch| v1::View {
            cluster: "dev".to_owned(),
            epoch,
            m: 1024,
            r: 2,
            managers_max: 100,
            managers: vec![entry(340, "m1"), entry(681, "m2"), entry(1022, "m3")],
            parts: vec![
                part(340, 1023, 681, &[681, 1022]),
                part(681, 341, 681, &[681, 1022, 340]),
                part(1022, 682, 1022, &[1022, 340, 681]),
            ],
            transition: (epoch == 5).then(|| v1::RingTransition {
                kind: "join".to_owned(),
                number: 340,
                since: 5,
            }),
        };
        let stats = |number, role: &str| v1::PartitionStats {
            number,
            role: role.to_owned(),
            last_pe: 4,
            last_seq: 9,
            sessions: [("READY".to_owned(), 5)].into(),
            lag: [(1022, 3)].into(),
            ..Default::default()
        };
        let node = |used| v1::NodeStats {
            id: "n1".to_owned(),
            state: "READY".to_owned(),
            used,
            places: 10,
            ..Default::default()
        };
        let first = v1::InspectResponse {
            number: 340,
            view: Some(view(4)),
            parts: vec![stats(340, "learning"), stats(681, "copy")],
            nodes: vec![node(1)],
            ..Default::default()
        };
        let second = v1::InspectResponse {
            number: 681,
            view: Some(view(5)),
            parts: vec![stats(340, "serving"), stats(681, "serving")],
            nodes: vec![node(2)],
            requests_waiting: 7,
            config_store_error: "for 2.0 s: refused".to_owned(),
            ..Default::default()
        };
        [(340, Ok(first)), (681, Ok(second)), (1022, Err("refused".to_owned()))].into()
    }

    #[test]
    fn owners_and_copies_are_of_the_newest_view() {
        let ring = join(&answers()).unwrap();
        assert_eq!((ring.epoch, ring.slots, ring.replicas), (5, 1024, 2));
        let first = &ring.partitions[0];
        assert_eq!((first.slots, first.home, first.owner), (342, 340, 681));
        let copies: Vec<(u32, bool, Option<&str>)> =
            first.copies.iter().map(|it| (it.number, it.in_sync, it.role.as_deref())).collect();
        let expected =
            [(681, true, Some("serving")), (1022, true, None), (340, false, Some("learning"))];
        assert_eq!(copies, expected);
        assert_eq!(first.copies[1].lag, Some(3));
        assert_eq!(first.sessions["READY"], 5);
    }

    #[test]
    fn a_stable_number_is_what_the_first_says_that_knows_it() {
        let mut answers = answers();
        let node = &join(&answers).unwrap().nodes[0];
        assert_eq!((node.stable_number, node.uuid.as_deref()), (None, None));
        if let Some(Ok(second)) = answers.get_mut(&681) {
            (second.nodes[0].stable_number, second.nodes[0].uuid) = (7, "v".to_owned());
            let manager = &mut second.view.as_mut().unwrap().managers[0];
            (manager.stable_number, manager.uuid) = (2, "u".to_owned());
        }
        let ring = join(&answers).unwrap();
        let node = &ring.nodes[0];
        assert_eq!((node.stable_number, node.uuid.as_deref()), (Some(7), Some("v")));
        let known: Vec<_> = ring.managers.iter().map(|it| it.stable_number).collect();
        assert_eq!(known, [Some(2), None, None]);
    }

    #[test]
    fn a_silent_manager_is_shown_as_such() {
        let ring = join(&answers()).unwrap();
        let silent = &ring.managers[2];
        assert!(!silent.answers);
        assert_eq!(silent.error.as_deref(), Some("refused"));
        assert!(ring.partitions[2].sessions.is_empty());
    }

    #[test]
    fn shares_add_up_to_the_whole_ring() {
        let ring = join(&answers()).unwrap();
        let sum: u32 = ring.partitions.iter().map(|it| it.slots).sum();
        assert_eq!(sum, 1024);
    }

    #[test]
    fn a_node_is_shown_once_as_its_owner_sees_it() {
        let ring = join(&answers()).unwrap();
        let view = answers()[&681].clone().unwrap().view.unwrap();
        let used = match owner_of_node(&view, "n1").unwrap() {
            681 => 2,
            _ => 1,
        };
        assert_eq!(ring.nodes.len(), 1);
        assert_eq!(ring.nodes[0].used, used);
    }

    #[test]
    fn without_a_view_there_is_no_ring() {
        assert_eq!(join(&Answers::new()), None);
    }
}
