//! Resources as JSON. Each field is called as `ringctl -o json` calls it; `links` is added.

use super::links;
use rota_proto::v1;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A reserved number of the ring, and who has it.
#[derive(Serialize, Debug)]
pub struct Manager {
    pub number: u32,
    pub id: String,
    /// `null` while the manager that answers knows none.
    pub stable_number: Option<u64>,
    pub uuid: Option<String>,
    pub status: String,
    pub grpc: String,
    pub http: String,
    pub incarnation: u64,
    pub links: Value,
}

/// A node.
#[derive(Serialize, Debug)]
pub struct Node {
    pub id: String,
    pub stable_number: Option<u64>,
    pub uuid: Option<String>,
    pub address: String,
    pub pool: String,
    pub state: String,
    pub wish: String,
    pub closes_at_ms: Option<u64>,
    pub retires: bool,
    pub kept: u32,
    /// As text since it has 64 bits.
    pub boot: String,
    pub used: u32,
    pub places: u32,
    pub used_cpu_millis: u32,
    pub cpu_millis: u32,
    pub used_memory_mib: u32,
    pub memory_mib: u32,
    pub load: f64,
    pub labels: BTreeMap<String, String>,
    pub classes: Vec<String>,
    pub digests: BTreeMap<String, String>,
    pub sandbox: String,
    pub links: Value,
}

/// A pool.
#[derive(Serialize, Debug)]
pub struct Pool {
    pub name: String,
    pub stable_number: Option<u64>,
    pub uuid: Option<String>,
    pub description: String,
    pub provisioner: Option<String>,
    pub places: u32,
    pub load_limit: Option<f64>,
    pub policy: String,
    pub min_nodes: u32,
    pub max_nodes: u32,
    pub warm_places: u32,
    pub warm_nodes: u32,
    pub scale_in_delay_s: u32,
    pub scale_in_below: Option<f64>,
    pub namespaces: Vec<String>,
    pub labels: BTreeMap<String, String>,
    pub cpu_millis: u32,
    pub memory_mib: u32,
    pub schedules: Vec<PoolSchedule>,
    pub in_force: Option<PoolInForce>,
    pub version: Option<u64>,
    pub nodes: u32,
    pub ready_nodes: u32,
    pub used_places: u64,
    pub all_places: u64,
    /// `null` while its owner cannot be asked.
    pub ordered: Option<Vec<String>>,
    pub failure: Option<String>,
    pub end_failure: Option<String>,
    pub warning: Option<String>,
    pub classes: BTreeMap<String, PoolClass>,
    pub described: bool,
    pub links: Value,
}

/// A schedule of a pool.
#[derive(Serialize, Debug)]
pub struct PoolSchedule {
    pub at: String,
    pub min_nodes: Option<u32>,
    pub warm_places: Option<u32>,
    pub warm_nodes: Option<u32>,
}

/// What schedules have set by now. Moments are stamps.
#[derive(Serialize, Debug)]
pub struct PoolInForce {
    pub min_nodes: u32,
    pub min_since: Option<u64>,
    pub warm_places: u32,
    pub warm_nodes: u32,
    pub warm_since: Option<u64>,
    pub next: Option<PoolNext>,
}

/// What schedules set next.
#[derive(Serialize, Debug)]
pub struct PoolNext {
    pub at: u64,
    pub min_nodes: u32,
    pub warm_places: u32,
    pub warm_nodes: u32,
}

/// What counts of a class in a pool.
#[derive(Serialize, Debug)]
pub struct PoolClass {
    pub digest: String,
    pub pool: Option<String>,
    pub weight: u32,
    pub cpu_millis: u32,
    pub memory_mib: u32,
    pub labels: BTreeMap<String, String>,
    pub on_node_loss: &'static str,
    pub disturb: String,
    pub open_on_demand: bool,
    pub other_pools: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_life_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restarts: Option<u32>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub life_cycles: BTreeMap<String, &'static str>,
}

/// A session.
#[derive(Serialize, Debug)]
pub struct Session {
    pub id: String,
    pub namespace: String,
    pub class: String,
    pub attributes: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub attributes_digest: String,
    pub pool: String,
    pub state: String,
    pub reason: String,
    pub detail: String,
    pub exit: Option<Value>,
    pub address: String,
    pub node: SessionNode,
    pub owner: u32,
    pub epoch: u64,
    pub life: u64,
    pub version: u64,
    pub machine_state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_life_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restarts: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart_at: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_actions: Option<u32>,
    /// Only in the answer to a get.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stale: Option<bool>,
    /// Only below the node where it has that number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stable_number: Option<u64>,
    pub links: Value,
}

/// How the life cycles of a session stand.
#[derive(Serialize, Debug)]
pub struct LifeShown {
    /// `null` when the session is forgotten and its history is not.
    pub session: Option<Session>,
    pub items: Vec<LifeItem>,
    pub history: Vec<LifeItem>,
    pub cycles: Vec<String>,
    pub next_at: Option<u64>,
    pub last_fired: BTreeMap<String, u64>,
    pub links: Value,
}

/// A life-cycle item. Moments are stamps.
#[derive(Serialize, Debug)]
pub struct LifeItem {
    pub text: String,
    pub life_cycle: String,
    pub fired_at: Option<u64>,
    pub skipped: bool,
    pub due_at: Option<u64>,
    pub waits_for: Option<String>,
    pub running: bool,
    pub failures: u32,
    pub code: Option<String>,
    pub report: Option<String>,
    pub task: Option<String>,
    pub task_state: Option<String>,
    pub retry_at: Option<u64>,
    pub moved_at: Option<u64>,
}

/// The node of a session.
#[derive(Serialize, Debug)]
pub struct SessionNode {
    pub id: String,
    pub address: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unheard_ms: Option<u64>,
}

fn number(it: u64) -> Option<u64> {
    (it > 0).then_some(it)
}

fn text(it: String) -> Option<String> {
    (!it.is_empty()).then_some(it)
}

/// The printed form of an enum of the wire; empty for the one that stands for nothing.
/// A name of an enum without what all of its names begin with; empty: none is said.
pub fn without_prefix(name: &str, prefix: &str) -> String {
    match name.strip_prefix(prefix).unwrap_or(name) {
        "UNSPECIFIED" => String::new(),
        rest => rest.to_owned(),
    }
}

impl Manager {
    /// As an answer of `Inspect` names it.
    pub fn of(it: v1::ManagerEntry) -> Self {
        Self {
            links: json!({"self": links::manager(&it.id, it.stable_number)}),
            number: it.number,
            id: it.id,
            stable_number: number(it.stable_number),
            uuid: text(it.uuid),
            status: it.status,
            grpc: it.grpc,
            http: it.http,
            incarnation: it.incarnation,
        }
    }
}

impl Node {
    /// As an answer of `Inspect` shows it. `nodes`: the path of the list that has it.
    pub fn of(it: v1::NodeStats, nodes: &str) -> Self {
        let own = links::node(nodes, &it.id, it.stable_number);
        let pool = nodes.strip_suffix("/nodes").unwrap_or(nodes);
        let mut links = json!({"self": own, "pool": pool});
        if !own.contains('?') {
            links["sessions"] = format!("{own}/sessions").into();
        }
        Self {
            load: it.load(),
            links,
            id: it.id,
            stable_number: number(it.stable_number),
            uuid: text(it.uuid),
            address: it.address,
            pool: it.pool,
            state: it.state,
            wish: it.wish,
            closes_at_ms: it.closes_at_ms,
            retires: it.retires,
            kept: it.kept,
            boot: it.boot.to_string(),
            used: it.used,
            places: it.places,
            used_cpu_millis: it.used_cpu_millis,
            cpu_millis: it.cpu_millis,
            used_memory_mib: it.used_memory_mib,
            memory_mib: it.memory_mib,
            labels: it.labels.into_iter().collect(),
            classes: it.classes,
            digests: it.class_digests.into_iter().collect(),
            sandbox: it.sandbox,
        }
    }
}

impl PoolSchedule {
    fn of(it: v1::PoolSchedule) -> Self {
        let v1::PoolSchedule { at, min_nodes, warm_places, warm_nodes } = it;
        Self { at, min_nodes, warm_places, warm_nodes }
    }
}

impl PoolInForce {
    fn of(it: &v1::PoolInForce) -> Self {
        let v1::PoolKept { min_nodes, warm_places, warm_nodes } = it.kept.unwrap_or_default();
        let next = it.next.filter(|_| it.next_at > 0).map(|next| {
            let v1::PoolKept { min_nodes, warm_places, warm_nodes } = next;
            PoolNext { at: it.next_at, min_nodes, warm_places, warm_nodes }
        });
        let (min_since, warm_since) = (number(it.min_since), number(it.warm_since));
        Self { min_nodes, min_since, warm_places, warm_nodes, warm_since, next }
    }
}

impl PoolClass {
    fn of(digest: String, facts: Option<&v1::ClassFacts>) -> Self {
        let facts = facts.cloned().unwrap_or_default();
        let life = facts.life.unwrap_or_default();
        Self {
            digest,
            pool: text(facts.pool),
            // A class that says nothing takes one place.
            weight: facts.weight.max(1),
            cpu_millis: facts.cpu_millis,
            memory_mib: facts.memory_mib,
            labels: facts.labels.into_iter().collect(),
            disturb: text(facts.disturb).unwrap_or_else(|| "on_upgrade".to_owned()),
            on_node_loss: if facts.reopens { "reopen" } else { "lost" },
            open_on_demand: facts.opens_on_demand,
            other_pools: !facts.only_its_pool,
            idle_ms: life.idle_ms,
            max_life_ms: life.max_life_ms,
            restarts: life.restarts.map(|it| it.times),
            life_cycles: life.life_cycles.iter().map(life_cycle).collect(),
        }
    }
}

/// A life cycle of a class, and who acts when its events fire.
fn life_cycle((name, it): (&String, &v1::life_facts::Handler)) -> (String, &'static str) {
    (name.clone(), if it.mark { "mark" } else { "program" })
}

impl Pool {
    /// As the service of pools shows it.
    pub fn of(it: v1::PoolInfo) -> Self {
        let settings = it.settings.unwrap_or_default();
        let own = links::pool(&it.name, it.stable_number);
        let mut links = json!({"self": own});
        if let Some(nodes) = links::nodes(&it.name, it.stable_number) {
            links["nodes"] = nodes.into();
        }
        let facts = it.class_facts;
        let classes = it.class_digests.into_iter();
        let classes = classes.map(|(name, digest)| {
            let class = PoolClass::of(digest, facts.get(&name));
            (name, class)
        });
        Self {
            links,
            name: it.name,
            stable_number: number(it.stable_number),
            uuid: text(it.uuid),
            description: settings.description,
            provisioner: text(settings.provisioner),
            places: settings.places,
            load_limit: settings.load_limit,
            policy: settings.policy,
            min_nodes: settings.min_nodes,
            max_nodes: settings.max_nodes,
            warm_places: settings.warm_places,
            warm_nodes: settings.warm_nodes,
            scale_in_delay_s: settings.scale_in_delay_s,
            scale_in_below: settings.scale_in_below,
            namespaces: settings.namespaces,
            labels: settings.labels.into_iter().collect(),
            cpu_millis: settings.cpu_millis,
            memory_mib: settings.memory_mib,
            schedules: settings.schedules.into_iter().map(PoolSchedule::of).collect(),
            in_force: it.in_force.as_ref().map(PoolInForce::of),
            version: number(it.version),
            nodes: it.nodes,
            ready_nodes: it.ready_nodes,
            used_places: it.used_places,
            all_places: it.places,
            ordered: it.orders_unknown.is_none().then_some(it.ordered),
            failure: text(it.failure),
            end_failure: text(it.end_failure),
            warning: text(it.warning),
            classes: classes.collect(),
            described: it.version > 0,
        }
    }
}

fn exit(exit: v1::Exit) -> Option<Value> {
    Some(match exit.how? {
        v1::exit::How::Code(code) => json!({"code": code}),
        v1::exit::How::Signal(signal) => json!({"signal": signal}),
        v1::exit::How::FinalState(state) => json!({"final_state": state}),
    })
}

impl Session {
    /// As the service of sessions shows it.
    pub fn of(it: v1::Session) -> Self {
        let (state, reason) = (it.state().as_str_name(), it.reason().as_str_name());
        let link = |verb| links::session(&it.namespace, &it.id, verb);
        Self {
            links: json!({
                "self": link(""),
                "open": link(":open"),
                "close": link(":close"),
                "send": link(":send"),
                "keepalive": link(":keepalive"),
                "update": link(":update"),
                "life": link("/life"),
                "watch": link(":watch"),
            }),
            state: without_prefix(state, "SESSION_STATE_"),
            reason: without_prefix(reason, "REASON_"),
            id: it.id,
            namespace: it.namespace,
            class: it.class,
            attributes: it.attributes.into_iter().collect(),
            attributes_digest: it.attributes_digest,
            pool: it.pool,
            detail: it.detail,
            exit: it.exit.and_then(exit),
            address: it.address,
            node: SessionNode {
                id: it.node_id,
                address: it.node_address,
                state: it.node_state,
                unheard_ms: it.node_unheard_ms,
            },
            owner: it.owner,
            epoch: it.epoch,
            life: it.life,
            version: it.version,
            machine_state: it.machine_state,
            idle_ms: it.idle_ms,
            max_life_ms: it.max_life_ms,
            restarts: (it.restarts > 0).then_some(it.restarts),
            restart_at: number(it.restart_at),
            failed_actions: (it.failed_actions > 0).then_some(it.failed_actions),
            stale: None,
            stable_number: None,
        }
    }
}

impl Session {
    /// With its number on its node. `list`: the path of the list of that node's sessions.
    pub fn numbered(mut self, number: Option<u64>, list: &str) -> Self {
        if let Some(number) = number {
            self.links["on_node"] = format!("{list}/{number}").into();
        }
        Self { stable_number: number, ..self }
    }
}

impl LifeItem {
    fn of(it: v1::LifeItem) -> Self {
        Self {
            text: it.text,
            life_cycle: it.life_cycle,
            fired_at: number(it.fired_at),
            skipped: it.skipped,
            due_at: number(it.due_at),
            waits_for: text(it.waits_for),
            running: it.running,
            failures: it.failures,
            code: text(it.code),
            report: text(it.report),
            task: text(it.task),
            task_state: text(it.task_state),
            retry_at: number(it.retry_at),
            moved_at: number(it.moved_at),
        }
    }
}

impl LifeShown {
    /// As the service of sessions shows it, with its own path and that of the session.
    pub fn of(it: v1::Life, own: &str, session: &str) -> Self {
        Self {
            session: it.session.map(Session::of),
            items: it.items.into_iter().map(LifeItem::of).collect(),
            history: it.history.into_iter().map(LifeItem::of).collect(),
            cycles: it.cycles,
            next_at: number(it.next_at),
            last_fired: it.last_fired,
            links: json!({"self": own, "session": session}),
        }
    }
}

/// The printed form of an outcome.
pub fn outcome(it: v1::Outcome) -> String {
    without_prefix(it.as_str_name(), "OUTCOME_")
}

/// The state of that printed form.
pub fn state(name: &str) -> Option<v1::SessionState> {
    v1::SessionState::from_str_name(&format!("SESSION_STATE_{name}"))
        .filter(|it| *it != v1::SessionState::Unspecified)
}

/// The printed forms of all states.
pub fn state_names() -> Vec<String> {
    let states = (0..).map_while(|number| v1::SessionState::try_from(number).ok());
    let names = states.map(|it| without_prefix(it.as_str_name(), "SESSION_STATE_"));
    names.filter(|it| !it.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_is_read_as_it_is_printed() {
        let names = state_names();
        assert_eq!((names.len(), &*names[0], &*names[6]), (7, "PENDING", "LOST"));
        for name in names {
            assert_eq!(without_prefix(state(&name).unwrap().as_str_name(), "SESSION_STATE_"), name);
        }
        assert_eq!((state("UNSPECIFIED"), state("ready")), (None, None));
    }
}
