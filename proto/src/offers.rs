//! What nodes offer: amounts, labels, classes and sandboxes.

use crate::v1;
use crate::wire::{WireError, named, optional};
use rota_model::{
    ClassDigest, ClassFacts, ClassName, Disturb, FieldError, LABELS_MAX, LabelName, LabelValue,
    Labels, Needs, NodeLoad, PoolName, Resources, Sandbox,
};
use std::collections::BTreeMap;

impl From<NodeLoad> for v1::NodeLoad {
    fn from(load: NodeLoad) -> Self {
        let NodeLoad { used, offered, kept } = load;
        Self {
            used: used.places,
            places: offered.places,
            used_cpu_millis: used.cpu_millis,
            cpu_millis: offered.cpu_millis,
            used_memory_mib: used.memory_mib,
            memory_mib: offered.memory_mib,
            kept,
        }
    }
}

impl From<v1::NodeLoad> for NodeLoad {
    fn from(load: v1::NodeLoad) -> Self {
        let used = Resources {
            places: load.used,
            cpu_millis: load.used_cpu_millis,
            memory_mib: load.used_memory_mib,
        };
        let offered = Resources {
            places: load.places,
            cpu_millis: load.cpu_millis,
            memory_mib: load.memory_mib,
        };
        NodeLoad { used, offered, kept: load.kept }
    }
}

impl v1::NodeStats {
    /// The largest part that is in use, of 1.
    pub fn load(&self) -> f64 {
        let part = |used: u32, of: u32| f64::from(used) / f64::from(of.max(1));
        let counted = |used, of| if of > 0 { part(used, of) } else { 0.0 };
        part(self.used, self.places)
            .max(counted(self.used_cpu_millis, self.cpu_millis))
            .max(counted(self.used_memory_mib, self.memory_mib))
    }
}

impl From<&ClassFacts> for v1::ClassFacts {
    fn from(it: &ClassFacts) -> Self {
        let pool = it.pool.as_ref().map(|it| it.as_str().to_owned());
        let Needs { weight, cpu_millis, memory_mib, labels } = &it.needs;
        Self {
            pool: pool.unwrap_or_default(),
            weight: *weight,
            cpu_millis: *cpu_millis,
            memory_mib: *memory_mib,
            labels: label_texts(labels),
            reopens: it.reopens,
            disturb: disturb_text(it.disturb),
            opens_on_demand: it.opens_on_demand,
            only_its_pool: it.only_its_pool,
            life: (!it.life.is_default()).then(|| (&*it.life).into()),
        }
    }
}

impl TryFrom<v1::ClassFacts> for ClassFacts {
    type Error = WireError;
    fn try_from(it: v1::ClassFacts) -> Result<Self, WireError> {
        let pool = (!it.pool.is_empty()).then(|| PoolName::parse(&it.pool)).transpose();
        let needs = Needs {
            weight: it.weight.max(1),
            cpu_millis: it.cpu_millis,
            memory_mib: it.memory_mib,
            labels: labels_from("ClassFacts.labels", it.labels)?,
        };
        let checked = needs.check().map_err(|mut mistakes| mistakes.swap_remove(0));
        named("ClassFacts", checked)?;
        let pool = named("ClassFacts.pool", pool)?;
        let (reopens, opens_on_demand) = (it.reopens, it.opens_on_demand);
        let only_its_pool = it.only_its_pool;
        let disturb = disturb_from(&it.disturb)?;
        let life = Box::new(optional(it.life)?.unwrap_or_default());
        Ok(Self { pool, needs, reopens, disturb, opens_on_demand, only_its_pool, life })
    }
}

/// Empty where the class says nothing.
fn disturb_text(it: Disturb) -> String {
    if it.is_default() { String::new() } else { it.as_str().into() }
}

fn disturb_from(text: &str) -> Result<Disturb, WireError> {
    if text.is_empty() {
        return Ok(Disturb::default());
    }
    let unknown = || WireError::new("ClassFacts.disturb", format!("{text:?} is not known"));
    Disturb::parse(text).ok_or_else(unknown)
}

pub(crate) fn label_texts(labels: &Labels) -> BTreeMap<String, String> {
    labels.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

pub(crate) fn labels_from(
    field: &'static str,
    texts: BTreeMap<String, String>,
) -> Result<Labels, WireError> {
    named(field, labels(&texts))
}

/// # Errors
/// The first label that is wrong, or that there are too many.
pub(crate) fn labels(texts: &BTreeMap<String, String>) -> Result<Labels, FieldError> {
    if texts.len() > LABELS_MAX {
        let problem = format!("are {}; the limit is {LABELS_MAX}", texts.len());
        return Err(FieldError::new("labels", problem));
    }
    let read =
        texts.iter().map(|(name, value)| Ok((LabelName::parse(name)?, LabelValue::parse(value)?)));
    read.collect()
}

/// Empty when the node did not say.
pub(crate) fn sandbox_text(it: Option<Sandbox>) -> String {
    it.map(Sandbox::as_str).unwrap_or_default().into()
}

pub(crate) fn sandbox_from(field: &'static str, text: &str) -> Result<Option<Sandbox>, WireError> {
    if text.is_empty() {
        return Ok(None);
    }
    Sandbox::parse(text).map(Some).map_err(|problem| WireError::new(field, problem))
}

/// Those that say something.
pub(crate) fn facts<'a>(
    of: impl IntoIterator<Item = (&'a ClassName, &'a ClassFacts)>,
) -> BTreeMap<String, v1::ClassFacts> {
    let said = of.into_iter().filter(|(_, it)| !it.is_default());
    said.map(|(name, it)| (name.to_string(), it.into())).collect()
}

pub(crate) fn facts_from(
    field: &'static str,
    facts: BTreeMap<String, v1::ClassFacts>,
) -> Result<BTreeMap<ClassName, ClassFacts>, WireError> {
    let read = facts
        .into_iter()
        .map(|(name, it)| Ok((named(field, ClassName::parse(&name))?, ClassFacts::try_from(it)?)));
    read.collect()
}

pub(crate) fn digests<'a>(
    of: impl IntoIterator<Item = (&'a ClassName, ClassDigest)>,
) -> BTreeMap<String, String> {
    of.into_iter().map(|(name, digest)| (name.to_string(), digest.to_string())).collect()
}

pub(crate) fn digests_from(
    field: &'static str,
    texts: BTreeMap<String, String>,
) -> Result<BTreeMap<ClassName, ClassDigest>, WireError> {
    let read = texts.into_iter().map(|(name, text)| {
        let digest =
            ClassDigest::try_from(text).map_err(|problem| WireError::new(field, problem))?;
        Ok((named(field, ClassName::parse(&name))?, digest))
    });
    read.collect()
}
