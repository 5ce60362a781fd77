//! Pools: what operators say of them, and what they are shown.

use crate::documents::exception::invalid;
use crate::mistakes::Mistakes;
use crate::offers::{digests, digests_from, facts, facts_from, label_texts, labels};
use crate::v1;
use crate::wire::{WireError, named};
use rota_docstore::Exception;
use rota_messages::Numbered;
use rota_model::items::Orders;
use rota_model::{
    ClassName, ClassText, Cron, FieldError, InForce, Kept, LoadLimit, NodeId, Policy, PoolName,
    PoolSchedule, PoolSettings, ProvisionerName, Stamp,
};
use std::collections::BTreeMap;

/// A pool as operators see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolState {
    /// Its name.
    pub name: PoolName,
    /// What was said of it.
    pub settings: PoolSettings,
    /// Version of its description; `None`: nobody described it.
    pub version: Option<Stamp>,
    /// The text that counts of each class that its nodes have or had.
    pub texts: BTreeMap<ClassName, ClassText>,
    /// What is there.
    pub load: PoolLoad,
    /// What was ordered and has not come; or why that is not known.
    pub orders: Result<Orders, String>,
    /// What is odd about the settings; empty: nothing.
    pub warning: String,
    /// Its stable number; `None` while the manager that answers knows none.
    pub numbered: Option<Numbered>,
    /// What its schedules have set; `None`: it has none.
    pub in_force: Option<InForce>,
}

/// The nodes of a pool, as one manager knows them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PoolLoad {
    /// Nodes that are not gone.
    pub nodes: u32,
    /// Those of them that are READY.
    pub ready_nodes: u32,
    /// Places of all of them.
    pub places: u64,
    /// Places that are used.
    pub used_places: u64,
}

/// A pool to describe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CreatePool {
    /// Its name.
    pub name: PoolName,
    /// What is said of it.
    pub settings: PoolSettings,
}

/// What to change of a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetPool {
    /// Its name.
    pub name: PoolName,
    /// The new settings.
    pub settings: PoolSettings,
    /// The names of those that count; none: all.
    pub fields: Vec<String>,
    /// It is described if it was not.
    pub allow_missing: bool,
}

/// Checks the name of a pool.
pub fn name(text: &str) -> Result<PoolName, Exception> {
    PoolName::parse(text).map_err(|it| invalid(vec![FieldError::new("name", it.problem)]))
}

/// Checks a description.
pub fn create(request: v1::CreatePoolRequest) -> Result<CreatePool, Exception> {
    let mut mistakes = Mistakes::default();
    let name = mistakes.note_in("name", PoolName::parse_new(&request.name));
    let settings = settings(request.settings.unwrap_or_default(), &mut mistakes);
    let wrong = match &name {
        Some(name) => settings.mistakes_of(name),
        None => settings.mistakes(),
    };
    for mistake in wrong {
        mistakes.note::<()>(Err(mistake));
    }
    mistakes.all(name.map(|name| CreatePool { name, settings }))
}

/// Checks a change. Whether the settings fit together is known only with those that stay.
pub fn set(request: v1::SetPoolRequest) -> Result<SetPool, Exception> {
    let mut mistakes = Mistakes::default();
    let name = mistakes.note_in("name", PoolName::parse_new(&request.name));
    let settings = settings(request.settings.unwrap_or_default(), &mut mistakes);
    for (at, field) in request.fields.iter().enumerate() {
        if !PoolSettings::FIELDS.contains(&field.as_str()) {
            let known = PoolSettings::FIELDS.join(", ");
            let problem = format!("is {field:?}, no field of a pool; there are {known}");
            mistakes.note::<()>(Err(FieldError::new(format!("fields[{at}]"), problem)));
        }
    }
    let (fields, allow_missing) = (request.fields, request.allow_missing);
    mistakes.all(name.map(|name| SetPool { name, settings, fields, allow_missing }))
}

fn settings(wire: v1::PoolSettings, mistakes: &mut Mistakes) -> PoolSettings {
    let load_limit = wire.load_limit.and_then(|it| mistakes.note(LoadLimit::parse(it)));
    let below = wire.scale_in_below.and_then(|share| {
        let read = LoadLimit::parse(share);
        mistakes.note(read.map_err(|it| FieldError::new("scale_in_below", it.problem)))
    });
    let policy = mistakes.given("policy", &wire.policy, Policy::parse);
    let provisioner = mistakes.given("provisioner", &wire.provisioner, ProvisionerName::parse_new);
    PoolSettings {
        description: wire.description,
        provisioner: provisioner.flatten(),
        places: wire.places,
        load_limit,
        policy: policy.flatten().unwrap_or_default(),
        min_nodes: wire.min_nodes,
        max_nodes: wire.max_nodes,
        warm_places: wire.warm_places,
        warm_nodes: wire.warm_nodes,
        scale_in_delay_s: wire.scale_in_delay_s,
        scale_in_below: below,
        namespaces: mistakes.namespaces("namespaces", &wire.namespaces),
        labels: mistakes.note(labels(&wire.labels)).unwrap_or_default(),
        cpu_millis: wire.cpu_millis,
        memory_mib: wire.memory_mib,
        schedules: wire
            .schedules
            .iter()
            .enumerate()
            .map(|(at, it)| schedule(at, it, mistakes))
            .collect(),
    }
}

/// The schedule with that place in the list.
fn schedule(place: usize, wire: &v1::PoolSchedule, mistakes: &mut Mistakes) -> PoolSchedule {
    let at = mistakes.note_in(&format!("schedules[{place}].at"), Cron::parse(&wire.at));
    let v1::PoolSchedule { min_nodes, warm_places, warm_nodes, .. } = *wire;
    // One with a wrong text keeps its place in the list, so that the others are told with theirs.
    PoolSchedule { at: at.unwrap_or_default(), min_nodes, warm_places, warm_nodes }
}

impl From<&PoolSchedule> for v1::PoolSchedule {
    fn from(it: &PoolSchedule) -> Self {
        let PoolSchedule { at, min_nodes, warm_places, warm_nodes } = *it;
        Self { at: at.to_string(), min_nodes, warm_places, warm_nodes }
    }
}

impl From<Kept> for v1::PoolKept {
    fn from(it: Kept) -> Self {
        let Kept { min_nodes, warm_places, warm_nodes } = it;
        Self { min_nodes, warm_places, warm_nodes }
    }
}

impl From<v1::PoolKept> for Kept {
    fn from(it: v1::PoolKept) -> Self {
        let v1::PoolKept { min_nodes, warm_places, warm_nodes } = it;
        Self { min_nodes, warm_places, warm_nodes }
    }
}

impl From<InForce> for v1::PoolInForce {
    fn from(it: InForce) -> Self {
        let number = |it: Option<Stamp>| it.map_or(0, Stamp::as_u64);
        Self {
            kept: Some(it.kept.into()),
            min_since: number(it.min_since),
            warm_since: number(it.warm_since),
            next_at: number(it.next.map(|it| it.0)),
            next: it.next.map(|it| it.1.into()),
        }
    }
}

/// A stamp; `None` for 0.
fn moment(field: &'static str, number: u64) -> Result<Option<Stamp>, WireError> {
    let stamp = (number > 0).then(|| crate::documents::document::stamp(field, number));
    stamp.transpose()
}

impl TryFrom<v1::PoolInForce> for InForce {
    type Error = WireError;
    fn try_from(it: v1::PoolInForce) -> Result<Self, WireError> {
        let next = moment("PoolInForce.next_at", it.next_at)?;
        Ok(Self {
            kept: it.kept.unwrap_or_default().into(),
            min_since: moment("PoolInForce.min_since", it.min_since)?,
            warm_since: moment("PoolInForce.warm_since", it.warm_since)?,
            next: next.map(|at| (at, it.next.unwrap_or_default().into())),
        })
    }
}

impl From<&PoolSettings> for v1::PoolSettings {
    fn from(it: &PoolSettings) -> Self {
        let provisioner = it.provisioner.as_ref().map(|it| it.as_str().to_owned());
        Self {
            description: it.description.clone(),
            provisioner: provisioner.unwrap_or_default(),
            places: it.places,
            load_limit: it.load_limit.map(LoadLimit::share),
            policy: it.policy.as_str().to_owned(),
            min_nodes: it.min_nodes,
            max_nodes: it.max_nodes,
            warm_places: it.warm_places,
            warm_nodes: it.warm_nodes,
            scale_in_delay_s: it.scale_in_delay_s,
            scale_in_below: it.scale_in_below.map(LoadLimit::share),
            namespaces: it.namespaces.iter().map(|it| it.as_str().to_owned()).collect(),
            labels: label_texts(&it.labels),
            cpu_millis: it.cpu_millis,
            memory_mib: it.memory_mib,
            schedules: it.schedules.iter().map(Into::into).collect(),
        }
    }
}

impl From<&CreatePool> for v1::CreatePoolRequest {
    fn from(it: &CreatePool) -> Self {
        Self { name: it.name.as_str().into(), settings: Some((&it.settings).into()) }
    }
}

impl From<&SetPool> for v1::SetPoolRequest {
    fn from(it: &SetPool) -> Self {
        Self {
            name: it.name.as_str().into(),
            settings: Some((&it.settings).into()),
            fields: it.fields.clone(),
            allow_missing: it.allow_missing,
        }
    }
}

impl From<&PoolState> for v1::PoolInfo {
    fn from(it: &PoolState) -> Self {
        let PoolLoad { nodes, ready_nodes, places, used_places } = it.load;
        let orders = it.orders.clone().unwrap_or_default();
        Self {
            name: it.name.as_str().into(),
            settings: Some((&it.settings).into()),
            version: it.version.map_or(0, Stamp::as_u64),
            nodes,
            ready_nodes,
            places,
            used_places,
            ordered: orders.ordered.iter().map(|it| it.as_str().into()).collect(),
            class_digests: digests(it.texts.iter().map(|(name, it)| (name, it.digest))),
            class_facts: facts(it.texts.iter().map(|(name, it)| (name, &it.facts))),
            failure: orders.failure,
            end_failure: orders.end_failure,
            orders_unknown: it.orders.as_ref().err().cloned(),
            warning: it.warning.clone(),
            stable_number: it.numbered.as_ref().map_or(0, |it| it.number),
            uuid: it.numbered.as_ref().map(|it| it.uuid.clone()).unwrap_or_default(),
            in_force: it.in_force.map(Into::into),
        }
    }
}

impl TryFrom<v1::PoolInfo> for PoolState {
    type Error = WireError;
    fn try_from(it: v1::PoolInfo) -> Result<Self, WireError> {
        let mut mistakes = Mistakes::default();
        let settings = settings(it.settings.unwrap_or_default(), &mut mistakes);
        let settings = mistakes.found(Some(settings)).map_err(|mut it| it.swap_remove(0));
        let version = moment("PoolInfo.version", it.version)?;
        let ordered = it.ordered.iter().map(|it| named("PoolInfo.ordered", NodeId::parse(it)));
        let ordered = ordered.collect::<Result<_, _>>()?;
        let mut facts = facts_from("PoolInfo.class_facts", it.class_facts)?;
        let digests = digests_from("PoolInfo.class_digests", it.class_digests)?;
        let texts = digests.into_iter().map(|(name, digest)| {
            let facts = facts.remove(&name).unwrap_or_default();
            (name, ClassText { digest, facts })
        });
        let texts = texts.collect();
        let (failure, end_failure) = (it.failure, it.end_failure);
        let orders = Orders { ordered, failure, end_failure, ..Orders::default() };
        Ok(Self {
            name: named("PoolInfo.name", PoolName::parse(&it.name))?,
            settings: named("PoolInfo.settings", settings)?,
            version,
            texts,
            load: PoolLoad {
                nodes: it.nodes,
                ready_nodes: it.ready_nodes,
                places: it.places,
                used_places: it.used_places,
            },
            orders: it.orders_unknown.map_or(Ok(orders), Err),
            warning: it.warning,
            numbered: numbered(it.stable_number, it.uuid),
            in_force: it.in_force.map(InForce::try_from).transpose()?,
        })
    }
}

/// A stable number and its UUID; `None` for 0.
pub(crate) fn numbered(number: u64, uuid: String) -> Option<Numbered> {
    (number > 0).then_some(Numbered { number, uuid })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_model::{ClassDigest, ClassFacts, Namespace};

    fn full() -> PoolSettings {
        PoolSettings {
            description: "for shops".into(),
            provisioner: Some(ProvisionerName::parse("process").unwrap()),
            places: 10,
            load_limit: LoadLimit::of_permille(750),
            policy: Policy::Spread,
            min_nodes: 1,
            max_nodes: 9,
            warm_places: 0,
            warm_nodes: 2,
            scale_in_delay_s: 600,
            scale_in_below: LoadLimit::of_permille(250),
            namespaces: vec![Namespace::parse("shop").unwrap()],
            labels: [rota_model::parse_label("zone=a").unwrap()].into(),
            cpu_millis: 500,
            memory_mib: 64,
            schedules: ["D0600 min=5 warm=20places", "H25 warm=2nodes"]
                .map(|it| PoolSchedule::parse(it).unwrap())
                .to_vec(),
        }
    }

    #[test]
    fn pools_and_requests_about_them_come_back_as_they_went() {
        let name = PoolName::parse("small").unwrap();
        let asked = CreatePool { name: name.clone(), settings: full() };
        assert_eq!(create((&asked).into()).unwrap(), asked);
        let fields = vec!["places".to_owned()];
        let asked = SetPool { name, settings: full(), fields, allow_missing: true };
        assert_eq!(set((&asked).into()).unwrap(), asked);
        let orders = Orders {
            ordered: vec![NodeId::parse("small-1-0").unwrap()],
            failure: "no such program".into(),
            end_failure: "no such container".into(),
            ..Orders::default()
        };
        let load = PoolLoad { nodes: 3, ready_nodes: 2, places: 30, used_places: 7 };
        let named = ClassFacts { pool: Some(asked.name.clone()), ..ClassFacts::default() };
        let texts = BTreeMap::from([
            (ClassName::parse("a").unwrap(), ClassDigest(1).into()),
            (ClassName::parse("b").unwrap(), ClassText { digest: ClassDigest(2), facts: named }),
        ]);
        for (version, orders) in
            [(None, Ok(orders)), (Some(Stamp::MIN.next()), Err("its owner is away".to_owned()))]
        {
            let settings = full();
            let name = asked.name.clone();
            let texts = texts.clone();
            let numbered =
                version.map(|_| Numbered { number: 3, uuid: "74f30be0-3151-11e6".into() });
            let warning = "odd".into();
            let in_force = version.and_then(|_| settings.in_force(Stamp::MIN));
            let state = PoolState {
                name,
                settings,
                version,
                texts,
                load,
                orders,
                warning,
                numbered,
                in_force,
            };
            assert_eq!(PoolState::try_from(v1::PoolInfo::from(&state)).unwrap(), state);
        }
    }

    #[test]
    fn every_mistake_about_a_pool_is_told() {
        let wrong = v1::PoolSettings {
            load_limit: Some(1.5),
            policy: "fast".into(),
            provisioner: "\n".into(),
            places: 3,
            namespaces: vec!["a/b".into()],
            labels: [("zone".into(), String::new())].into(),
            schedules: ["H00", "D2500"]
                .map(|it| v1::PoolSchedule { at: it.into(), ..Default::default() })
                .to_vec(),
            ..v1::PoolSettings::default()
        };
        let fields = |refused: Exception| {
            let told = refused.details().fields.iter().map(|it| it.field.clone());
            told.collect::<Vec<_>>()
        };
        let request = v1::CreatePoolRequest { name: String::new(), settings: Some(wrong.clone()) };
        let told = fields(create(request).unwrap_err());
        assert_eq!(
            told,
            [
                "name",
                "load_limit",
                "policy",
                "provisioner",
                "namespaces[0]",
                "label's value",
                "schedules[1].at",
                "places",
                "schedules"
            ]
        );
        let request = v1::SetPoolRequest {
            name: "p".into(),
            settings: Some(wrong),
            fields: vec!["places".into(), "size".into()],
            allow_missing: false,
        };
        let told = fields(set(request).unwrap_err());
        assert_eq!(
            told,
            [
                "load_limit",
                "policy",
                "provisioner",
                "namespaces[0]",
                "label's value",
                "schedules[1].at",
                "fields[1]"
            ]
        );
    }
}
