//! The state and the requests as JSON: what goes over the wire and what stands in the file.

use bytes::Bytes;
use rota_model::{ClusterName, Epoch};
use rota_ring::view::VIEW_FORMATS;
use rota_ring::{Change, ConfigState, Dropped, NodeReg, View};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Format of the state's JSON.
pub const STATE_FORMAT: u32 = 1;

/// Largest request body that a store reads, in bytes. A View of 100 managers needs about 40 KiB.
pub const REQUEST_BYTES_MAX: usize = 4 << 20;

/// Largest answer that a client reads, in bytes: some 200,000 nodes.
pub const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Body of `POST /v1/cas`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CasBody {
    /// The cluster that the sender means; another cluster's store refuses.
    pub cluster: ClusterName,
    /// What to write.
    pub change: Change,
}

#[derive(Serialize)]
struct StateOut<'a> {
    format: u32,
    cluster: &'a ClusterName,
    index: u64,
    view: Option<&'a View>,
    nodes: Vec<&'a NodeReg>,
    #[serde(skip_serializing_if = "Dropped::is_none")]
    dropped: Dropped,
}

#[derive(Deserialize)]
struct StateIn {
    format: u32,
    cluster: ClusterName,
    index: u64,
    view: Option<Arc<View>>,
    nodes: Vec<NodeReg>,
    #[serde(default)]
    dropped: Dropped,
}

/// Only the formats, for a message that says more than the name of a field that moved.
#[derive(Deserialize)]
struct Formats {
    format: u32,
    view: Option<ViewFormat>,
}

#[derive(Deserialize)]
struct ViewFormat {
    format: u32,
}

/// The state as JSON: `{format, cluster, index, view, nodes, dropped}`, nodes by id.
pub fn state_to_json(cluster: &ClusterName, state: &ConfigState) -> Bytes {
    let out = StateOut {
        format: STATE_FORMAT,
        cluster,
        index: state.index,
        view: state.view.as_deref(),
        nodes: state.nodes.values().collect(),
        dropped: state.dropped,
    };
    let json = serde_json::to_vec(&out).expect("strings, numbers and number-keyed maps serialise");
    Bytes::from(json)
}

/// Reads what [`state_to_json`] wrote and checks it.
///
/// # Errors
/// What is wrong, in words: another format, another cluster, a View that breaks its rules, a node
/// twice, or the place where the JSON ends to make sense.
pub fn state_from_json(cluster: &ClusterName, json: &[u8]) -> Result<ConfigState, String> {
    let mut state: StateIn = serde_json::from_slice(json).map_err(|error| foreign(json, &error))?;
    if state.format != STATE_FORMAT {
        return Err(format_text(state.format));
    }
    if state.cluster != *cluster {
        return Err(format!(
            "it belongs to cluster {:?}, this process to {cluster:?}",
            state.cluster
        ));
    }
    if let Some(view) = &state.view {
        view.check().map_err(|error| error.to_string())?;
        if view.cluster != *cluster {
            return Err(format!("its View is of cluster {:?}, not {cluster:?}", view.cluster));
        }
    }
    let mut nodes = BTreeMap::new();
    for reg in std::mem::take(&mut state.nodes) {
        if let Some(twice) = nodes.insert(reg.node.clone(), reg) {
            return Err(format!("node {} is there twice", twice.node));
        }
    }
    let StateIn { index, view, dropped, .. } = state;
    Ok(ConfigState { index, view, nodes, dropped })
}

fn format_text(found: u32) -> String {
    format!("the state has format {found}; this build reads format {STATE_FORMAT}")
}

/// Names a state that does not parse: by its format when that is the reason.
fn foreign(json: &[u8], error: &serde_json::Error) -> String {
    match serde_json::from_slice::<Formats>(json) {
        Ok(Formats { format, .. }) if format != STATE_FORMAT => format_text(format),
        Ok(Formats { view: Some(ViewFormat { format }), .. })
            if !VIEW_FORMATS.contains(&format) =>
        {
            rota_ring::ViewError::Format(format).to_string()
        }
        Ok(_) | Err(_) => format!("its JSON does not parse: {error}"),
    }
}

/// How far a store was. Epochs count first: one that went back, and was written since, may have a later index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Floor {
    pub epoch: Epoch,
    pub index: u64,
}

impl Floor {
    /// That of a store that holds this.
    pub fn of(state: &ConfigState) -> Self {
        Self { epoch: state.epoch(), index: state.index }
    }
}

/// Refuses a state of a store that has acknowledged a later one.
pub(crate) fn not_older(state: ConfigState, floor: Floor) -> Result<ConfigState, String> {
    let now = Floor::of(&state);
    if now >= floor {
        return Ok(state);
    }
    let (from, to) = match now.index < floor.index {
        true => (format!("index {}", floor.index), now.index.to_string()),
        false => (format!("epoch {}", floor.epoch), now.epoch.to_string()),
    };
    Err(format!(
        "its state went back from {from} to {to}: it was restored from a backup, or written by hand"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_model::{
        BootId, ClassDigest, ClassFacts, ClassName, ClusterTimes, ManagerId, ManagerNumber, Needs,
        NodeId, NodeState, Nonce, PoolName, Sandbox,
    };
    use rota_ring::{Claim, NodeWish, Spares};

    const TIMES: ClusterTimes =
        ClusterTimes { renew_ms: 1, lease_term_ms: 3, lease_kill_ms: 4, node_lost_ms: 5 };

    fn cluster() -> ClusterName {
        ClusterName::parse("ring \"one\"").unwrap()
    }

    fn state(managers: u32) -> ConfigState {
        let numbers: Vec<_> = (0..managers)
            .map(|n| (ManagerNumber(n * 10), ManagerId::parse(&format!("m{n}")).unwrap()))
            .collect();
        let view = View::found(cluster(), 1024, 2, 100, &numbers).unwrap();
        let node = NodeId::parse("n1").unwrap();
        let reg = NodeReg {
            node: node.clone(),
            boot: BootId(u64::MAX),
            unproven: None,
            address: "127.0.0.1:1".into(),
            pool: PoolName::default_pool(),
            offers: rota_model::Resources { places: 4, cpu_millis: 4_000, memory_mib: 512 },
            labels: [rota_model::parse_label("zone=a").unwrap()].into(),
            classes: vec![ClassName::parse("builtin").unwrap()],
            digests: BTreeMap::from([(ClassName::parse("builtin").unwrap(), ClassDigest(7))]),
            facts: BTreeMap::from([(
                ClassName::parse("builtin").unwrap(),
                ClassFacts {
                    pool: Some(PoolName::default_pool()),
                    needs: Needs { weight: 2, memory_mib: 9, ..Needs::default() },
                    reopens: true,
                    disturb: rota_model::Disturb::Never,
                    opens_on_demand: true,
                    only_its_pool: true,
                    life: Default::default(),
                },
            )]),
            sandbox: Some(Sandbox::Basic),
            renew_ms: 3_000,
            state: NodeState::Ready,
            wish: NodeWish::default(),
            revision: 1,
        };
        let nodes = BTreeMap::from([(node, reg)]);
        ConfigState { index: 7, view: Some(Arc::new(view)), nodes, dropped: Dropped::default() }
    }

    #[test]
    fn what_operators_want_of_a_node_survives_the_wire_and_is_not_written_when_it_is_nothing() {
        let json = state_to_json(&cluster(), &state(1));
        assert!(!String::from_utf8_lossy(&json).contains("wish"));
        let drained =
            |closes_at_ms, spares, retires| NodeWish::Drained { closes_at_ms, spares, retires };
        let usual = drained(None, Spares::Never, false);
        let shrunk = drained(Some(u64::MAX), Spares::AllButAlways, true);
        let replaced = NodeWish::Replaced { closes_after_ms: Some(5), spares: Spares::Nobody };
        for wish in [NodeWish::Cordoned, usual, shrunk, replaced] {
            let mut before = state(1);
            before.nodes.values_mut().for_each(|it| it.wish = wish);
            let json = state_to_json(&cluster(), &before);
            assert_eq!(state_from_json(&cluster(), &json), Ok(before));
        }
    }

    #[test]
    fn what_a_node_offers_stands_among_the_other_fields_without_what_it_did_not_say() {
        let node = state(1).nodes.into_values().next().unwrap();
        let all = NodeReg { digests: BTreeMap::new(), facts: BTreeMap::new(), ..node };
        let places = NodeReg { offers: rota_model::Resources::of_places(4), ..all.clone() };
        let text = |offers: &str| {
            let (boot, classes) = (u64::MAX, r#"["builtin"],"sandbox":"basic","renew_ms":3000"#);
            format!(
                r#"{{"node":"n1","boot":{boot},"address":"127.0.0.1:1","pool":"default",{offers},"labels":{{"zone":"a"}},"classes":{classes},"state":"READY","revision":1}}"#
            )
        };
        let said = r#""places":4,"cpu_millis":4000,"memory_mib":512"#;
        for (reg, text) in [(all, text(said)), (places, text(r#""places":4"#))] {
            assert_eq!(serde_json::to_string(&reg).unwrap(), text);
            assert_eq!(serde_json::from_str::<NodeReg>(&text).unwrap(), reg);
        }
        let none = text("\"cpu_millis\":1");
        let error = serde_json::from_str::<NodeReg>(&none).unwrap_err().to_string();
        assert!(error.contains("missing field `places`"), "{error}");
    }

    #[test]
    fn a_state_survives_the_wire_also_with_a_hundred_managers() {
        for managers in [1, 3, 100] {
            let before = state(managers);
            let json = state_to_json(&cluster(), &before);
            assert_eq!(state_from_json(&cluster(), &json), Ok(before));
            assert!(json.len() < 64 << 10, "{} bytes", json.len());
        }
        let empty = ConfigState::default();
        assert_eq!(state_from_json(&cluster(), &state_to_json(&cluster(), &empty)), Ok(empty));
    }

    #[test]
    fn a_view_is_written_as_builds_before_the_first_join_read_it_until_somebody_joins() {
        let before = state(3);
        let text = String::from_utf8(state_to_json(&cluster(), &before).to_vec()).unwrap();
        assert!(!text.contains("transition") && !text.contains("splits"), "{text}");
        let claim = Claim {
            number: ManagerNumber(15),
            id: ManagerId::parse("new").unwrap(),
            grpc: "127.0.0.1:2".into(),
            http: String::new(),
            held: Vec::new(),
            taken: None,
            nonce: Nonce(7),
            disk: BTreeMap::new(),
            force_lost: false,
            times: TIMES,
            peer_times: rota_model::PeerTimes { heartbeat_ms: 1, suspect_ms: 4 },
        };
        let joined = before.view.as_ref().unwrap().joined(&claim).unwrap();
        let split = joined.split(ManagerNumber(15)).unwrap();
        let after = ConfigState { view: Some(Arc::new(split)), ..before };
        let json = state_to_json(&cluster(), &after);
        assert_eq!(state_from_json(&cluster(), &json), Ok(after));
        let text = String::from_utf8(json.to_vec()).unwrap();
        // A build that would lose what is under way refuses the View by its format.
        assert!(text.contains("\"view\":{\"format\":2,"), "{text}");
        let first = text.replacen("\"view\":{\"format\":2,", "\"view\":{\"format\":1,", 1);
        let error = state_from_json(&cluster(), first.as_bytes()).unwrap_err();
        assert!(error.contains("neither transition nor splits"), "{error}");
    }

    #[test]
    fn a_view_that_tells_where_stamps_begin_has_a_format_that_earlier_builds_refuse() {
        let before = state(3);
        let mut view = (**before.view.as_ref().unwrap()).clone();
        let part = view.parts.values_mut().next().unwrap();
        part.stamps_above = Some(rota_model::Stamp::from_epoch_ms(17));
        view.format = rota_ring::view::least_format(&view.parts, None);
        let after = ConfigState { view: Some(Arc::new(view)), ..before };
        let json = state_to_json(&cluster(), &after);
        assert_eq!(state_from_json(&cluster(), &json), Ok(after));
        let text = String::from_utf8(json.to_vec()).unwrap();
        assert!(text.contains("\"view\":{\"format\":3,"), "{text}");
        let second = text.replacen("\"view\":{\"format\":3,", "\"view\":{\"format\":2,", 1);
        let error = state_from_json(&cluster(), second.as_bytes()).unwrap_err();
        assert!(error.contains("format 2 has no stamps_above"), "{error}");
    }

    fn changed(from: &str, to: &str) -> String {
        let text = String::from_utf8(state_to_json(&cluster(), &state(3)).to_vec()).unwrap();
        assert!(text.contains(from), "{text}");
        state_from_json(&cluster(), text.replacen(from, to, 1).as_bytes()).unwrap_err()
    }

    #[test]
    fn a_view_of_before_it_held_the_managers_times_is_read_and_written_as_it_was() {
        let before = state(3);
        let json = state_to_json(&cluster(), &before);
        let text = String::from_utf8(json.to_vec()).unwrap();
        assert!(!text.contains("\"times\"") && !text.contains("lost_ms"), "{text}");
        let view = View { times: Some(TIMES), ..(**before.view.as_ref().unwrap()).clone() };
        let after = ConfigState { view: Some(Arc::new(view)), ..before };
        let json = state_to_json(&cluster(), &after);
        assert_eq!(state_from_json(&cluster(), &json), Ok(after));
        let text = String::from_utf8(json.to_vec()).unwrap();
        assert!(text.contains("\"node_lost_ms\":5"), "{text}");
        assert!(text.contains("\"view\":{\"format\":1,"), "earlier builds read it: {text}");
    }

    #[test]
    fn another_format_is_named_even_when_its_fields_differ() {
        assert!(changed("{\"format\":1", "{\"format\":2").contains("state has format 2"));
        assert!(changed("\"index\":7", "\"index\":\"x\"").contains("does not parse"));
        let other =
            changed("\"view\":{\"format\":1,\"cluster\"", "\"view\":{\"format\":9,\"ring\"");
        assert!(other.contains("View has format 9"), "{other}");
    }

    #[test]
    fn a_view_that_breaks_its_rules_is_named() {
        let broken = changed("\"m\":1024", "\"m\":0");
        assert!(broken.contains("the View is broken"), "{broken}");
    }

    #[test]
    fn a_state_of_another_cluster_is_refused() {
        let json = state_to_json(&cluster(), &state(3));
        let other = ClusterName::parse("other").unwrap();
        assert!(state_from_json(&other, &json).unwrap_err().contains("belongs to cluster"));
    }

    #[test]
    fn a_cas_body_survives_the_wire() {
        let view = (*state(3).view.unwrap()).clone();
        let change = Change { expect_epoch: Some(Epoch(0)), view: Some(view), node: None };
        let body = CasBody { cluster: cluster(), change };
        let json = serde_json::to_vec(&body).unwrap();
        assert_eq!(serde_json::from_slice::<CasBody>(&json).unwrap(), body);
    }
}
