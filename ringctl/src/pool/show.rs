//! Pools as they are shown.

use super::schedules::{ShownInForce, ShownSchedule};
use crate::inspect::{short_digest, stable_number};
use crate::output::{pairs, plain_table};
use comfy_table::Table;
use rota_client::pools::PoolState;
use rota_model::{ClassText, Handler, Labels, LoadLimit, Stamp};
use serde::Serialize;
use std::collections::BTreeMap;

/// Most characters of a failure in a list.
const FAILURE_CHARS_MAX: usize = 60;

/// A pool.
#[derive(Serialize, PartialEq, Debug)]
pub struct Shown {
    pub name: String,
    /// None while the manager that answers knows none.
    pub stable_number: Option<u64>,
    /// By which the stable number is kept.
    pub uuid: Option<String>,
    pub description: String,
    /// None: nodes come by themselves.
    pub provisioner: Option<String>,
    /// Of each node that is started.
    pub places: u32,
    /// None: as managers were started.
    pub load_limit: Option<f64>,
    pub policy: &'static str,
    pub min_nodes: u32,
    pub max_nodes: u32,
    pub warm_places: u32,
    pub warm_nodes: u32,
    /// 0: nodes are never ended.
    pub scale_in_delay_s: u32,
    /// None: only a node on which nothing runs is ended.
    pub scale_in_below: Option<f64>,
    /// None of them: all.
    pub namespaces: Vec<String>,
    /// Of each node that is started.
    pub labels: BTreeMap<String, String>,
    /// Of each node that is started; 0: as its machine has.
    pub cpu_millis: u32,
    pub memory_mib: u32,
    /// What is kept from moments on.
    pub schedules: Vec<ShownSchedule>,
    /// None: it has no schedules.
    pub in_force: Option<ShownInForce>,
    /// Of its description; none when nobody described it.
    pub version: Option<u64>,
    /// Nodes that are not gone.
    pub nodes: u32,
    pub ready_nodes: u32,
    pub used_places: u64,
    /// Places of all nodes.
    pub all_places: u64,
    /// Nodes that have not come; none when its owner could not be asked.
    pub ordered: Option<Vec<String>>,
    /// Why the last order started nothing.
    pub failure: Option<String>,
    /// Why what is left of a node could not be ended.
    pub end_failure: Option<String>,
    /// What is odd about the settings.
    pub warning: Option<String>,
    /// By name, the text that counts of each class that its nodes have or had.
    pub classes: BTreeMap<String, ShownClass>,
    pub described: bool,
}

/// What counts of a class.
#[derive(Serialize, PartialEq, Eq, Debug)]
pub struct ShownClass {
    /// As the SHA-256 of its file begins.
    pub digest: String,
    /// Where opens go that name no pool; none: `default`.
    pub pool: Option<String>,
    /// What a session takes of its node: places, thousandths of a processor, MiB of memory.
    pub weight: u32,
    pub cpu_millis: u32,
    pub memory_mib: u32,
    /// Labels that its node must have.
    pub labels: BTreeMap<String, String>,
    /// What becomes of a session whose node is lost: `lost` or `reopen`.
    pub on_node_loss: &'static str,
    /// Which orders may end a session: `never`, `on_upgrade` or `always`.
    pub disturb: &'static str,
    /// Whether a gateway that asks for the route of a session may open it.
    pub open_on_demand: bool,
    /// Whether an open may name another pool.
    pub other_pools: bool,
    /// In ms; left out: its sessions are never closed for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_life_ms: Option<u64>,
    /// How often in a row a session is started again after a bad end; left out: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restarts: Option<u32>,
    /// Its life cycles: `mark`, or `program`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub life_cycles: BTreeMap<String, &'static str>,
}

impl ShownClass {
    fn of(text: &ClassText) -> Self {
        let pool = text.facts.pool.as_ref().map(ToString::to_string);
        let needs = &text.facts.needs;
        Self {
            digest: text.digest.to_string(),
            pool,
            weight: needs.weight,
            cpu_millis: needs.cpu_millis,
            memory_mib: needs.memory_mib,
            labels: texts(&needs.labels),
            on_node_loss: if text.facts.reopens { "reopen" } else { "lost" },
            disturb: text.facts.disturb.as_str(),
            open_on_demand: text.facts.opens_on_demand,
            other_pools: !text.facts.only_its_pool,
            idle_ms: text.facts.life.idle_ms,
            max_life_ms: text.facts.life.max_life_ms,
            restarts: text.facts.life.restarts.map(|it| it.times),
            life_cycles: text.facts.life.life_cycles.iter().map(life_cycle).collect(),
        }
    }
}

/// A life cycle, and who acts when its events fire.
fn life_cycle((name, handler): (&String, &Handler)) -> (String, &'static str) {
    let acts = match handler {
        Handler::Mark => "mark",
        Handler::Action { .. } => "program",
    };
    (name.clone(), acts)
}

impl Shown {
    /// Of a pool.
    pub fn of(state: &PoolState) -> Self {
        let (it, load, orders) = (&state.settings, &state.load, state.orders.as_ref().ok());
        let ordered = |nodes: &[_]| nodes.iter().map(ToString::to_string).collect();
        Self {
            name: state.name.as_str().to_owned(),
            stable_number: state.numbered.as_ref().map(|it| it.number),
            uuid: state.numbered.as_ref().map(|it| it.uuid.clone()),
            description: it.description.clone(),
            provisioner: it.provisioner.as_ref().map(|it| it.as_str().to_owned()),
            places: it.places,
            load_limit: it.load_limit.map(LoadLimit::share),
            policy: it.policy.as_str(),
            min_nodes: it.min_nodes,
            max_nodes: it.max_nodes,
            warm_places: it.warm_places,
            warm_nodes: it.warm_nodes,
            scale_in_delay_s: it.scale_in_delay_s,
            scale_in_below: it.scale_in_below.map(LoadLimit::share),
            namespaces: it.namespaces.iter().map(|it| it.as_str().to_owned()).collect(),
            labels: texts(&it.labels),
            cpu_millis: it.cpu_millis,
            memory_mib: it.memory_mib,
            schedules: it.schedules.iter().map(ShownSchedule::of).collect(),
            in_force: state.in_force.as_ref().map(ShownInForce::of),
            version: state.version.map(Stamp::as_u64),
            nodes: load.nodes,
            ready_nodes: load.ready_nodes,
            used_places: load.used_places,
            all_places: load.places,
            ordered: orders.map(|it| ordered(&it.ordered)),
            failure: orders.map(|it| it.failure.clone()).filter(|it| !it.is_empty()),
            end_failure: orders.map(|it| it.end_failure.clone()).filter(|it| !it.is_empty()),
            warning: Some(state.warning.clone()).filter(|it| !it.is_empty()),
            classes: (state.texts.iter())
                .map(|(name, it)| (name.to_string(), ShownClass::of(it)))
                .collect(),
            described: state.version.is_some(),
        }
    }
}

/// `pool list`.
#[derive(Serialize, PartialEq, Debug)]
pub struct ShownAll {
    pub pools: Vec<Shown>,
}

/// `pool delete`.
#[derive(Serialize, PartialEq, Eq, Debug)]
pub struct Deleted {
    pub name: String,
    /// False: it was not described.
    pub existed: bool,
}

/// What was deleted, for a person.
pub fn deleted(it: &Deleted) -> String {
    let name = &it.name;
    if it.existed {
        format!("deleted pool {name}\n")
    } else {
        format!("pool {name} was not described\n")
    }
}

/// `2/3 +2 ordered`: READY, there, and on their way.
fn nodes(it: &Shown) -> String {
    let (there, ordered) = (format!("{}/{}", it.ready_nodes, it.nodes), it.ordered.as_deref());
    match ordered.unwrap_or_default().len() {
        0 => there,
        count => format!("{there} +{count} ordered"),
    }
}

/// `1-9`, and `1-9 (5 now)` where a schedule has set the minimum.
fn bounds(it: &Shown) -> String {
    let own = format!("{}-{}", it.min_nodes, it.max_nodes);
    match &it.in_force {
        Some(by) if by.min_since.is_some() => format!("{own} ({} now)", by.min_nodes),
        Some(_) | None => own,
    }
}

/// What deserves a look.
fn note(it: &Shown) -> String {
    let is_full = it.provisioner.is_some() && it.nodes >= it.max_nodes;
    match it.failure.as_ref().or(it.end_failure.as_ref()).or(it.warning.as_ref()) {
        Some(trouble) => shortened(trouble),
        None if is_full => "max_nodes reached".to_owned(),
        None if !it.described => "not described".to_owned(),
        None if it.ordered.is_none() => "orders not known".to_owned(),
        None => String::new(),
    }
}

/// The beginning of a text, on one line.
fn shortened(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(FAILURE_CHARS_MAX) {
        Some((at, _)) => format!("{}...", &line[..at]),
        None => line,
    }
}

/// All of them, one a row.
pub fn many(all: &[Shown]) -> Table {
    let mut table = plain_table([
        "NAME",
        "STABLE_NUMBER",
        "PROVISIONER",
        "NODES",
        "MIN-MAX",
        "PLACES",
        "LOAD_LIMIT",
        "POLICY",
        "NOTE",
    ]);
    for it in all {
        let grows = it.provisioner.is_some();
        table.add_row([
            it.name.clone(),
            stable_number(it.stable_number),
            it.provisioner.clone().unwrap_or_else(|| "-".to_owned()),
            nodes(it),
            if grows { bounds(it) } else { "-".to_owned() },
            format!("{}/{}", it.used_places, it.all_places),
            it.load_limit.map_or_else(|| "-".to_owned(), |it| it.to_string()),
            it.policy.to_owned(),
            note(it),
        ]);
    }
    table
}

/// A number; 0 is written as `pool set` takes it.
fn number(it: u32) -> String {
    if it == 0 { "none".to_owned() } else { it.to_string() }
}

/// Names, or what it means that there are none.
fn names(all: &[String], none: &str) -> String {
    if all.is_empty() { none.to_owned() } else { all.join(", ") }
}

#[expect(clippy::cast_precision_loss, reason = "a percentage")]
fn load(it: &Shown) -> String {
    if it.all_places == 0 {
        return "-".to_owned();
    }
    format!("{:.0}%", 100.0 * it.used_places as f64 / it.all_places as f64)
}

/// Each class with the beginning of its digest, as `node list` writes it, its pool, what it needs, and whether lost
/// sessions are opened again.
fn classes(it: &Shown) -> String {
    let each = it.classes.iter().map(|(name, class)| {
        let goes = class.pool.as_ref().map_or_else(String::new, |it| format!(" -> {it}"));
        let reopens = if class.on_node_loss == "reopen" { " (reopens)" } else { "" };
        let disturb = match class.disturb {
            "on_upgrade" => String::new(),
            other => format!(" (disturb {other})"),
        };
        let (needs, lives) = (needs(class), lives(class));
        format!("{name} {}{goes}{needs}{reopens}{disturb}{lives}", short_digest(&class.digest))
    });
    each.collect::<Vec<_>>().join(", ")
}

/// How long sessions of a class live, and their life cycles.
fn lives(it: &ShownClass) -> String {
    let time = |what: &str, ms: Option<u64>| {
        let time = ms.map(|ms| humantime::format_duration(std::time::Duration::from_millis(ms)));
        time.map(|it| format!("{what} {it}"))
    };
    let all = [
        time("idle", it.idle_ms),
        time("max_life", it.max_life_ms),
        it.restarts.map(|it| format!("restarts {it}")),
        (!it.life_cycles.is_empty()).then(|| {
            format!("life cycles {}", it.life_cycles.keys().cloned().collect::<Vec<_>>().join(" "))
        }),
    ];
    let all: Vec<String> = all.into_iter().flatten().collect();
    if all.is_empty() { String::new() } else { format!(" ({})", all.join(", ")) }
}

/// What a class needs beyond one place.
fn needs(it: &ShownClass) -> String {
    let amounts =
        [(it.weight, 1, "places"), (it.cpu_millis, 0, "cpu_millis"), (it.memory_mib, 0, "MiB")];
    let amounts = amounts.into_iter().filter(|(amount, usual, _)| amount > usual);
    let amounts = amounts.map(|(amount, _, unit)| format!("{amount} {unit}"));
    let all: Vec<String> = amounts.chain(pairs(&it.labels)).collect();
    if all.is_empty() { String::new() } else { format!(" (needs {})", all.join(", ")) }
}

/// Empty for none.
fn amount(number: u32, unit: &str) -> String {
    if number > 0 { format!("{number} {unit}") } else { String::new() }
}

/// When nodes are ended.
fn scale_in(it: &Shown) -> String {
    match (it.scale_in_delay_s, it.scale_in_below) {
        _ if it.provisioner.is_none() => String::new(),
        (0, _) => "never".to_owned(),
        (delay_s, None) => format!("after {delay_s} s empty"),
        (delay_s, Some(below)) => {
            format!(
                "after {delay_s} s below a load of {below} (only disturb = \"always\" runs there)"
            )
        }
    }
}

fn texts(labels: &Labels) -> BTreeMap<String, String> {
    labels.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

fn texts_of<'a>(all: impl Iterator<Item = &'a String>) -> String {
    all.map(String::as_str).collect::<Vec<_>>().join("; ")
}

/// One of them, one property a row.
pub fn one(it: &Shown) -> Table {
    let mut table = plain_table(["NAME", &it.name]);
    let provisioner = it.provisioner.clone();
    let limit = it.load_limit.map(|it| it.to_string());
    let ordered = it.ordered.as_ref().map(|it| names(it, "none"));
    let version = it.version.map(|it| it.to_string());
    let rows = [
        ("stable number", stable_number(it.stable_number)),
        ("UUID", it.uuid.clone().unwrap_or_default()),
        ("description", it.description.clone()),
        ("provisioner", provisioner.unwrap_or_else(|| "none: nodes come by themselves".to_owned())),
        ("places of a new node", number(it.places)),
        ("load limit", limit.unwrap_or_else(|| "as managers were started".to_owned())),
        ("policy", it.policy.to_owned()),
        ("min nodes", number(it.min_nodes)),
        ("max nodes", number(it.max_nodes)),
        ("warm places", number(it.warm_places)),
        ("warm nodes", if it.warm_nodes > 0 { it.warm_nodes.to_string() } else { String::new() }),
        ("schedules", texts_of(it.schedules.iter().map(|it| &it.text))),
        ("in force", texts_of(it.in_force.iter().map(|it| &it.now_text))),
        ("next", texts_of(it.in_force.iter().map(|it| &it.next_text))),
        ("scale-in", scale_in(it)),
        ("namespaces", names(&it.namespaces, "all")),
        ("labels of a new node", names(&pairs(&it.labels), "")),
        ("CPU of a new node", amount(it.cpu_millis, "thousandths")),
        ("memory of a new node", amount(it.memory_mib, "MiB")),
        ("nodes", format!("{}, of which {} READY", it.nodes, it.ready_nodes)),
        ("places used", format!("{} of {}", it.used_places, it.all_places)),
        ("load", load(it)),
        ("nodes ordered", ordered.unwrap_or_else(|| "not known".to_owned())),
        ("failure of the last order", it.failure.clone().unwrap_or_default()),
        ("failure of the last end", it.end_failure.clone().unwrap_or_default()),
        ("warning", it.warning.clone().unwrap_or_default()),
        ("classes", classes(it)),
        ("version", version.unwrap_or_else(|| "not described".to_owned())),
    ];
    for (property, value) in rows.into_iter().filter(|(_, value)| !value.is_empty()) {
        table.add_row([property.to_owned(), value]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::{Format, Out};
    use rota_client::v1;
    use rota_model::items::Orders;
    use rota_model::{Policy, PoolSettings, ProvisionerName};

    fn small() -> PoolState {
        let settings = PoolSettings {
            description: "for shops".into(),
            provisioner: Some(ProvisionerName::parse("process").unwrap()),
            places: 10,
            load_limit: LoadLimit::of_permille(750),
            policy: Policy::Spread,
            min_nodes: 1,
            max_nodes: 9,
            scale_in_delay_s: 60,
            scale_in_below: LoadLimit::of_permille(250),
            ..PoolSettings::default()
        };
        let it = v1::PoolInfo {
            name: "small".into(),
            settings: Some((&settings).into()),
            version: Stamp::MIN.next().as_u64(),
            nodes: 3,
            ready_nodes: 2,
            places: 30,
            used_places: 7,
            ordered: vec!["small-1-0".into(), "small-1-1".into()],
            class_digests: [("big".to_owned(), format!("{:016x}", 255))].into(),
            class_facts: [("big".to_owned(), big())].into(),
            stable_number: 4,
            uuid: "7a".into(),
            ..Default::default()
        };
        it.try_into().unwrap()
    }

    fn big() -> v1::ClassFacts {
        v1::ClassFacts {
            pool: "gpu".into(),
            weight: 3,
            memory_mib: 64,
            labels: [("zone".to_owned(), "a".to_owned())].into(),
            disturb: "never".to_owned(),
            ..Default::default()
        }
    }

    /// Nodes say that they are of it.
    fn found() -> PoolState {
        let name = "lab".to_owned();
        let it = v1::PoolInfo { name, nodes: 1, ready_nodes: 1, ..Default::default() };
        it.try_into().unwrap()
    }

    fn failing(failure: &str) -> PoolState {
        let orders = Orders { failure: failure.to_owned(), ..Orders::default() };
        PoolState { orders: Ok(orders), ..small() }
    }

    fn unknown() -> PoolState {
        PoolState { orders: Err("its owner is away".to_owned()), ..small() }
    }

    fn drawn(table: &Table) -> String {
        let (mut out, written) = Out::captured(Format::Table);
        out.table(table).unwrap();
        written.text()
    }

    #[test]
    fn a_list_tells_what_is_there_what_is_ordered_and_what_is_wrong() {
        let failure =
            failing("cannot start \"rota-node-agent\":\nNo such file or directory (os error 2)");
        let all = [found(), small(), failure, unknown()].map(|it| Shown::of(&it));
        assert_eq!(
            drawn(&many(&all)),
            "NAME   STABLE_NUMBER  PROVISIONER  NODES           MIN-MAX  PLACES  LOAD_LIMIT  POLICY  NOTE\n\
             lab    -              -            1/1             -        0/0     -           pack    \
             not described\n\
             small  4              process      2/3 +2 ordered  1-9      7/30    0.75        spread\n\
             small  4              process      2/3             1-9      7/30    0.75        spread  \
             cannot start \"rota-node-agent\": No such file or directory (o...\n\
             small  4              process      2/3             1-9      7/30    0.75        spread  \
             orders not known\n"
        );
    }

    #[test]
    fn one_pool_is_shown_with_all_of_its_settings() {
        assert_eq!(
            drawn(&one(&Shown::of(&failing("no such program")))),
            "NAME                       small\n\
             stable number              4\n\
             UUID                       7a\n\
             description                for shops\n\
             provisioner                process\n\
             places of a new node       10\n\
             load limit                 0.75\n\
             policy                     spread\n\
             min nodes                  1\n\
             max nodes                  9\n\
             warm places                none\n\
             scale-in                   after 60 s below a load of 0.25 (only disturb = \"always\" runs there)\n\
             namespaces                 all\n\
             nodes                      3, of which 2 READY\n\
             places used                7 of 30\n\
             load                       23%\n\
             nodes ordered              none\n\
             failure of the last order  no such program\n\
             classes                    big 00000000 -> gpu (needs 3 places, 64 MiB, zone=a) (disturb never)\n\
             version                    101000000001\n"
        );
        let orders = Orders { end_failure: "no such container".to_owned(), ..Orders::default() };
        let shown = Shown::of(&PoolState { orders: Ok(orders), ..small() });
        let text = drawn(&one(&shown));
        assert!(text.contains("failure of the last end  no such container"), "{text}");
        assert_eq!(note(&shown), "no such container");
        let text = drawn(&one(&Shown::of(&small())));
        assert!(text.contains("small-1-0, small-1-1") && !text.contains("failure"), "{text}");
        assert!(drawn(&one(&Shown::of(&unknown()))).contains("not known"));
        let text = drawn(&one(&Shown::of(&found())));
        assert!(text.contains("none: nodes come by themselves"), "{text}");
        assert!(text.contains("not described") && text.contains("as managers were"), "{text}");
    }

    #[test]
    fn a_pool_is_printed_with_exactly_these_fields_in_this_order() {
        let text = serde_json::to_string(&Shown::of(&small())).unwrap();
        assert_eq!(
            text,
            "{\"name\":\"small\",\"stable_number\":4,\"uuid\":\"7a\",\"description\":\"for shops\",\"provisioner\":\"process\",\"places\":10,\
             \"load_limit\":0.75,\"policy\":\"spread\",\"min_nodes\":1,\"max_nodes\":9,\"warm_places\":0,\"warm_nodes\":0,\
             \"scale_in_delay_s\":60,\"scale_in_below\":0.25,\"namespaces\":[],\"labels\":{},\"cpu_millis\":0,\"memory_mib\":0,\"schedules\":[],\"in_force\":null,\"version\":101000000001,\"nodes\":3,\"ready_nodes\":2,\"used_places\":7,\
             \"all_places\":30,\"ordered\":[\"small-1-0\",\"small-1-1\"],\"failure\":null,\"end_failure\":null,\
             \"warning\":null,\"classes\":{\"big\":{\"digest\":\"00000000000000ff\",\"pool\":\"gpu\",\
             \"weight\":3,\"cpu_millis\":0,\"memory_mib\":64,\"labels\":{\"zone\":\"a\"},\"on_node_loss\":\"lost\",\"disturb\":\"never\",\"open_on_demand\":false,\"other_pools\":true}},\
             \"described\":true}"
        );
        let names: serde_json::Value = serde_json::from_str(&text).unwrap();
        for field in PoolSettings::FIELDS {
            assert!(names.get(field).is_some(), "{field}");
        }
    }

    #[test]
    fn schedules_are_shown_with_what_they_have_set_and_what_comes_next() {
        let mut pool = small();
        pool.settings.schedules = ["D0600 min=5", "D2000 min=0"]
            .map(|it| rota_model::PoolSchedule::parse(it).unwrap())
            .to_vec();
        let noon = Stamp::parse(261_127_120_000_000).unwrap();
        pool.in_force = pool.settings.in_force(noon);
        let shown = Shown::of(&pool);
        let text = drawn(&one(&shown));
        for line in [
            "schedules             D0600 min=5; D2000 min=0\n",
            "in force              min 5 since 2026-11-27T06:00:00Z, warm none as the pool says\n",
            "next                  min 0, warm none from 2026-11-27T20:00:00Z on\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
        let json = serde_json::to_value(&shown).unwrap();
        assert_eq!(json["schedules"][0]["min_nodes"], 5);
        assert_eq!(json["schedules"][0]["warm_places"], serde_json::Value::Null);
        assert_eq!(json["in_force"]["min_since"], 261_127_060_000_000_u64);
        let row = drawn(&many(&[shown]));
        assert!(row.contains("1-9 (5 now)"), "{row}");
    }

    #[test]
    fn what_is_not_known_is_null_and_what_is_not_there_is_an_empty_list() {
        let text = serde_json::to_string(&Shown::of(&unknown())).unwrap();
        assert!(text.contains("\"ordered\":null,\"failure\":null"), "{text}");
        let text = serde_json::to_string(&Shown::of(&found())).unwrap();
        assert!(text.contains("\"version\":null") && text.contains("\"ordered\":[]"), "{text}");
        assert!(text.ends_with("\"described\":false}"), "{text}");
    }
}
