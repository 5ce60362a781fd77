//! What `ringctl apply` changes, and how it says so.

use super::file::Wanted;
use rota_client::pools::PoolState;
use rota_model::{PoolSchedule, PoolSettings};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What is done to a pool.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// It was not described.
    Created,
    /// It was described in another way.
    Changed,
    /// It was described in this very way.
    Unchanged,
}

/// A setting that changes; null stands for its default.
#[derive(Serialize, PartialEq, Debug)]
pub struct Change {
    pub field: &'static str,
    pub from: Value,
    pub to: Value,
}

/// A pool of the file.
#[derive(Serialize, PartialEq, Debug)]
pub struct Step {
    pub name: String,
    pub action: Action,
    /// None of a pool that is created.
    pub changes: Vec<Change>,
}

/// `apply`.
#[derive(Serialize, PartialEq, Debug)]
pub struct Plan {
    pub dry_run: bool,
    /// In order of their names.
    pub pools: Vec<Step>,
}

/// What to do so that pools are as wanted.
pub fn steps(wanted: &Wanted, there: &[PoolState]) -> Vec<Step> {
    let steps = wanted.iter().map(|(name, settings)| {
        let described = there.iter().find(|it| it.name == *name && it.version.is_some());
        let changes = described.map(|it| changes(&it.settings, settings));
        let action = match &changes {
            None => Action::Created,
            Some(changes) if changes.is_empty() => Action::Unchanged,
            Some(_) => Action::Changed,
        };
        let name = name.as_str().to_owned();
        Step { name, action, changes: changes.unwrap_or_default() }
    });
    steps.collect()
}

fn changes(from: &PoolSettings, to: &PoolSettings) -> Vec<Change> {
    let fields = |it| serde_json::to_value(it).expect("settings are texts, numbers and lists");
    // A field with its default is left out, but for the policy.
    let (mut from, mut to) = (fields(from), fields(to));
    let changes = PoolSettings::FIELDS.into_iter().map(|field| {
        let (from, to) = (&mut from[field], &mut to[field]);
        Change { field, from: from.take(), to: to.take() }
    });
    changes.filter(|it| it.from != it.to).collect()
}

impl Step {
    /// For people: what was done, or what would be.
    pub fn told(&self, dry_run: bool) -> String {
        let changes = self.changes.iter();
        let changes =
            changes.map(|it| format!("{} {} -> {}", it.field, short(&it.from), short(&it.to)));
        let changes = changes.collect::<Vec<_>>().join(", ");
        let done = match (self.action, dry_run) {
            (Action::Created, false) => "created".to_owned(),
            (Action::Created, true) => "would be created".to_owned(),
            (Action::Changed, false) => changes,
            (Action::Changed, true) => format!("would change {changes}"),
            (Action::Unchanged, _) => "unchanged".to_owned(),
        };
        format!("pool {}: {done}\n", self.name)
    }
}

/// A setting in a sentence; quotes only around a text of several words.
fn short(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) if !text.contains(char::is_whitespace) => text.clone(),
        Value::Array(all) => all.iter().map(short).collect::<Vec<_>>().join(" and "),
        Value::Object(_) => match PoolSchedule::deserialize(value) {
            Ok(schedule) => format!("\"{schedule}\""),
            Err(_) => value.to_string(),
        },
        Value::String(_) | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_client::v1;
    use rota_model::{LoadLimit, Namespace, Policy, PoolName, ProvisionerName, Stamp};

    fn name(text: &str) -> PoolName {
        PoolName::parse(text).unwrap()
    }

    fn grown() -> PoolSettings {
        PoolSettings {
            provisioner: Some(ProvisionerName::parse("process").unwrap()),
            places: 10,
            max_nodes: 5,
            ..PoolSettings::default()
        }
    }

    fn state(text: &str, settings: &PoolSettings, version: u64) -> PoolState {
        let (name, settings) = (text.to_owned(), Some(settings.into()));
        v1::PoolInfo { name, settings, version, ..Default::default() }.try_into().unwrap()
    }

    fn example() -> Vec<Step> {
        let wanted = PoolSettings {
            description: "for shops".into(),
            provisioner: None,
            load_limit: LoadLimit::of_permille(800),
            policy: Policy::Spread,
            namespaces: ["a", "b"].map(|it| Namespace::parse(it).unwrap()).to_vec(),
            ..PoolSettings::default()
        };
        let wanted = [
            ("new", grown()),
            ("found", PoolSettings::default()),
            ("same", grown()),
            ("other", wanted),
        ];
        let version = Stamp::MIN.as_u64();
        let there = [
            state("found", &PoolSettings::default(), 0),
            state("same", &grown(), version),
            state("other", &grown(), version),
            state("elsewhere", &grown(), version),
        ];
        let wanted = wanted.into_iter().map(|(text, settings)| (name(text), settings)).collect();
        steps(&wanted, &there)
    }

    #[test]
    fn pools_are_created_changed_or_left_as_they_are_in_order_of_their_names() {
        let told: String = example().iter().map(|it| it.told(false)).collect();
        assert_eq!(
            told,
            "pool found: created\n\
             pool new: created\n\
             pool other: description none -> \"for shops\", provisioner process -> none, \
             places 10 -> none, load_limit none -> 0.8, policy pack -> spread, max_nodes 5 -> none, \
             namespaces none -> a and b\n\
             pool same: unchanged\n"
        );
    }

    #[test]
    fn a_dry_run_says_what_would_be_done() {
        let told: Vec<String> = example().iter().map(|it| it.told(true)).collect();
        assert_eq!(told[0], "pool found: would be created\n");
        assert!(told[2].starts_with("pool other: would change description none -> "), "{told:?}");
        assert_eq!(told[3], "pool same: unchanged\n");
    }

    #[test]
    fn schedules_that_change_are_told_as_flags_write_them() {
        let schedules = |texts: &[&str]| {
            let schedules = texts.iter().map(|it| PoolSchedule::parse(it).unwrap()).collect();
            PoolSettings { schedules, ..grown() }
        };
        let wanted = schedules(&["D0600 min=5 warm=20places", "D2000 min=0 warm=none"]);
        let there = [state("small", &schedules(&["D0600 min=5"]), Stamp::MIN.as_u64())];
        let steps = steps(&[(name("small"), wanted)].into(), &there);
        assert_eq!(
            steps[0].told(true),
            "pool small: would change schedules \"D0600 min=5\" -> \"D0600 min=5 warm=20places\" and \
             \"D2000 min=0 warm=none\"\n"
        );
    }

    #[test]
    fn a_plan_is_printed_with_exactly_these_fields_in_this_order() {
        let wanted = PoolSettings { places: 20, policy: Policy::Spread, ..grown() };
        let wanted = [(name("new"), grown()), (name("small"), wanted)].into();
        let there = [state("small", &grown(), Stamp::MIN.as_u64())];
        let plan = Plan { dry_run: true, pools: steps(&wanted, &there) };
        assert_eq!(
            serde_json::to_string(&plan).unwrap(),
            "{\"dry_run\":true,\"pools\":[{\"name\":\"new\",\"action\":\"created\",\"changes\":[]},\
             {\"name\":\"small\",\"action\":\"changed\",\"changes\":[\
             {\"field\":\"places\",\"from\":10,\"to\":20},\
             {\"field\":\"policy\",\"from\":\"pack\",\"to\":\"spread\"}]}]}"
        );
    }
}
