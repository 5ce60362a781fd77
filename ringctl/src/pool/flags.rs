//! The settings of a pool as flags.

use super::OneArguments;
use crate::failure::UsageMistake;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use rota_client::pools::{CreatePool, SetPool};
use rota_model::{
    FieldError, LabelName, LabelValue, LoadLimit, Namespace, Policy, PoolSchedule, PoolSettings,
    ProvisionerName, parse_label,
};

/// What is given where a setting may be taken away.
const NONE: &str = "none";

/// A value, or that there is none.
#[derive(Clone, PartialEq, Eq, Debug)]
struct OrNone<T>(Option<T>);

/// What is said of a pool. A setting that is not given keeps its default in `pool create`, and stays as it is
/// in `pool set`.
#[derive(Args, Debug)]
pub struct SettingFlags {
    /// A sentence for people, or `none`.
    #[arg(long, value_name = "TEXT|none", value_parser = description)]
    description: Option<String>,
    /// Who starts nodes: a provisioner that managers were started with, as `process`. With `none`, nodes come by
    /// themselves, and the settings of those that are started go, too.
    #[arg(long, value_name = "NAME|none", value_parser = provisioner)]
    provisioner: Option<OrNone<ProvisionerName>>,
    /// Places of each node that is started; needed with a provisioner.
    #[arg(long, value_name = "COUNT|none", value_parser = number)]
    places: Option<u32>,
    /// Load at which a node takes no more sessions, 0.001 to 1. With `none`, as managers were started.
    #[arg(long, value_name = "SHARE|none", value_parser = load_limit)]
    load_limit: Option<OrNone<LoadLimit>>,
    /// Which of the nodes with room is chosen: the most loaded one (pack, the default) or the least loaded
    /// one (spread).
    #[arg(long, value_parser = PossibleValuesParser::new(Policy::ALL.map(Policy::as_str))
          .try_map(|it| Policy::parse(&it)))]
    policy: Option<Policy>,
    /// So many nodes are kept, whether they are needed or not.
    #[arg(long, value_name = "COUNT|none", value_parser = number)]
    min_nodes: Option<u32>,
    /// More nodes are never started; needed with a provisioner.
    #[arg(long, value_name = "COUNT|none", value_parser = number)]
    max_nodes: Option<u32>,
    /// So many places are kept free, so that an open need not wait for a node.
    #[arg(long, value_name = "COUNT|none", value_parser = number)]
    warm_places: Option<u32>,
    /// As much room as so many empty nodes have is kept free; instead of --warm-places.
    #[arg(long, value_name = "COUNT|none", value_parser = number)]
    warm_nodes: Option<u32>,
    /// A node that was started is ended when it was not needed for so long: nothing ran there. With `none`, never.
    #[arg(long = "scale-in-delay", value_name = "TIME|none", value_parser = delay)]
    scale_in_delay_s: Option<u32>,
    /// A node is not needed below this load, too, if all that runs there says disturb = "always"; that is closed
    /// then. With `none`, only while nothing runs there.
    #[arg(long, value_name = "SHARE|none", value_parser = load_limit)]
    scale_in_below: Option<OrNone<LoadLimit>>,
    /// A namespace whose sessions may run there; may be given several times. With `none`, those of all
    /// namespaces.
    #[arg(long = "namespace", value_name = "NAMESPACE|none", value_parser = namespace)]
    namespaces: Vec<OrNone<Namespace>>,
    /// A label of each node that is started; may be given several times. Those that are given are all: others go.
    /// With `none`, nodes have none.
    #[arg(long = "label", value_name = "NAME=VALUE|none", value_parser = label)]
    labels: Vec<OrNone<(LabelName, LabelValue)>>,
    /// Processors of each node that is started, in thousandths. With `none`, those of its machine.
    #[arg(long, value_name = "COUNT|none", value_parser = number)]
    cpu_millis: Option<u32>,
    /// Memory of each node that is started, in MiB. With `none`, that of its machine.
    #[arg(long, value_name = "COUNT|none", value_parser = number)]
    memory_mib: Option<u32>,
    /// What is kept from each moment of a cron text (UTC) on: `D0600 min=5 warm=20places`, `D2000 min=0 warm=none`.
    /// May be given 16 times. Those that are given are all: others go. With `none`, there are none.
    #[arg(long = "schedule", value_name = "TEXT|none", value_parser = schedule)]
    schedules: Vec<OrNone<PoolSchedule>>,
    /// There are no schedules: the same as `--schedule none`.
    #[arg(long, conflicts_with = "schedules")]
    no_schedules: bool,
}

fn or_none<T>(
    text: &str,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<OrNone<T>, String> {
    if text == NONE {
        return Ok(OrNone(None));
    }
    parse(text).map(|it| OrNone(Some(it)))
}

fn description(text: &str) -> Result<String, String> {
    Ok(or_none(text, |it| Ok(it.to_owned()))?.0.unwrap_or_default())
}

fn provisioner(text: &str) -> Result<OrNone<ProvisionerName>, String> {
    or_none(text, |it| ProvisionerName::parse_new(it).map_err(|error| error.problem))
}

fn number(text: &str) -> Result<u32, String> {
    let whole =
        |it: &str| it.parse().map_err(|error| format!("{error}; it is a whole number or `{NONE}`"));
    Ok(or_none(text, whole)?.0.unwrap_or_default())
}

/// Whole seconds.
fn delay(text: &str) -> Result<u32, String> {
    let seconds = |length: &str| {
        let time = crate::length_of_time::length_of_time(length)?;
        let is_whole = time.subsec_nanos() == 0 && !time.is_zero();
        let seconds = u32::try_from(time.as_secs()).ok().filter(|_| is_whole);
        seconds.ok_or_else(|| format!("it is whole seconds, as 90s or 10m, or `{NONE}`"))
    };
    Ok(or_none(text, seconds)?.0.unwrap_or_default())
}

fn load_limit(text: &str) -> Result<OrNone<LoadLimit>, String> {
    or_none(text, |word| {
        let share: f64 =
            word.parse().map_err(|_| format!("it is a number from 0.001 to 1, or `{NONE}`"))?;
        LoadLimit::parse(share).map_err(|error| error.problem)
    })
}

fn namespace(text: &str) -> Result<OrNone<Namespace>, String> {
    or_none(text, crate::namespace::namespace)
}

fn label(text: &str) -> Result<OrNone<(LabelName, LabelValue)>, String> {
    or_none(text, |it| parse_label(it).map_err(|error| error.to_string()))
}

fn schedule(text: &str) -> Result<OrNone<PoolSchedule>, String> {
    or_none(text, |it| PoolSchedule::parse(it).map_err(|error| error.to_string()))
}

impl SettingFlags {
    /// The settings, with the default of each that is not given.
    fn settings(&self) -> PoolSettings {
        PoolSettings {
            description: self.description.clone().unwrap_or_default(),
            provisioner: self.provisioner.clone().and_then(|it| it.0),
            places: self.places.unwrap_or_default(),
            load_limit: self.load_limit.as_ref().and_then(|it| it.0),
            policy: self.policy.unwrap_or_default(),
            min_nodes: self.min_nodes.unwrap_or_default(),
            max_nodes: self.max_nodes.unwrap_or_default(),
            warm_places: self.warm_places.unwrap_or_default(),
            warm_nodes: self.warm_nodes.unwrap_or_default(),
            scale_in_delay_s: self.scale_in_delay_s.unwrap_or_default(),
            scale_in_below: self.scale_in_below.as_ref().and_then(|it| it.0),
            namespaces: self.namespaces.iter().filter_map(|it| it.0.clone()).collect(),
            labels: self.labels.iter().filter_map(|it| it.0.clone()).collect(),
            cpu_millis: self.cpu_millis.unwrap_or_default(),
            memory_mib: self.memory_mib.unwrap_or_default(),
            schedules: self.schedules.iter().filter_map(|it| it.0).collect(),
        }
    }

    /// The names of the settings that are given.
    fn given(&self) -> Vec<String> {
        let given = [
            ("description", self.description.is_some()),
            ("provisioner", self.provisioner.is_some()),
            ("places", self.places.is_some()),
            ("load_limit", self.load_limit.is_some()),
            ("policy", self.policy.is_some()),
            ("min_nodes", self.min_nodes.is_some()),
            ("max_nodes", self.max_nodes.is_some()),
            ("warm_places", self.warm_places.is_some()),
            ("warm_nodes", self.warm_nodes.is_some()),
            ("scale_in_delay_s", self.scale_in_delay_s.is_some()),
            ("scale_in_below", self.scale_in_below.is_some()),
            ("namespaces", !self.namespaces.is_empty()),
            ("labels", !self.labels.is_empty()),
            ("cpu_millis", self.cpu_millis.is_some()),
            ("memory_mib", self.memory_mib.is_some()),
            ("schedules", !self.schedules.is_empty() || self.no_schedules),
        ];
        // What means nothing without a provisioner goes with it.
        let goes = self.provisioner.as_ref().is_some_and(|it| it.0.is_none());
        let of_growth = PoolSettings::OF_GROWTH;
        let given = given.into_iter().filter(|it| it.1 || (goes && of_growth.contains(&it.0)));
        given.map(|it| it.0.to_owned()).collect()
    }

    /// What does not fit together whatever the pool is like.
    fn contradictions(&self) -> Vec<FieldError> {
        let namespaces = is_both(&self.namespaces).then_some(("namespaces", "namespace"));
        let labels = is_both(&self.labels).then_some(("labels", "label"));
        let schedules = is_both(&self.schedules).then_some(("schedules", "schedule"));
        let mistake = |(field, noun): (&str, &str)| {
            let problem = format!("is `{NONE}` and a {noun}; give one or the other");
            FieldError::new(field, problem)
        };
        let names = || self.labels.iter().filter_map(|it| it.0.as_ref()).map(|(name, _)| name);
        let twice = names().find(|name| names().filter(|it| it == name).count() > 1);
        let twice = twice.map(|it| FieldError::new("labels", format!("gives {it} twice")));
        let both = namespaces.into_iter().chain(labels).chain(schedules);
        both.map(mistake).chain(twice).collect()
    }
}

/// Whether values are given, and that there is none.
fn is_both<T>(given: &[OrNone<T>]) -> bool {
    given.iter().any(|it| it.0.is_none()) && given.iter().any(|it| it.0.is_some())
}

/// The pool to describe; every mistake is told under its flag.
pub fn create(name: &OneArguments, flags: &SettingFlags) -> Result<CreatePool, UsageMistake> {
    let settings = flags.settings();
    let mut wrong = flags.contradictions();
    wrong.extend(settings.mistakes_of(&name.name));
    none_wrong(&wrong)?;
    Ok(CreatePool { name: name.name.clone(), settings })
}

/// What to change. Whether it fits what stays is known to managers only.
pub fn set(name: &OneArguments, flags: &SettingFlags) -> Result<SetPool, UsageMistake> {
    none_wrong(&flags.contradictions())?;
    let (name, settings, fields) = (name.name.clone(), flags.settings(), flags.given());
    Ok(SetPool { name, settings, fields, allow_missing: false })
}

fn none_wrong(mistakes: &[FieldError]) -> Result<(), UsageMistake> {
    if mistakes.is_empty() {
        return Ok(());
    }
    let told = mistakes.iter().map(|it| format!("{} {}", flag(&it.field), it.problem));
    Err(UsageMistake(told.collect::<Vec<_>>().join("; ")))
}

/// The flag of a field.
fn flag(field: &str) -> String {
    match field {
        "namespaces" => "--namespace".to_owned(),
        "labels" => "--label".to_owned(),
        "scale_in_delay_s" => "--scale-in-delay".to_owned(),
        "schedules" => "--schedule".to_owned(),
        of_schedule if of_schedule.starts_with("schedules[") => {
            format!("--schedule: {of_schedule}")
        }
        other => format!("--{}", other.replace('_', "-")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{PoolArguments, PoolCommand};
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn parsed(line: &[&str]) -> PoolCommand {
        let line = [&["ringctl", "pool"], line].concat();
        let Command::Pool(PoolArguments { command, .. }) =
            Cli::try_parse_from(line).unwrap().command
        else {
            panic!("another command")
        };
        command
    }

    fn created(line: &[&str]) -> Result<CreatePool, UsageMistake> {
        let PoolCommand::Create(it) = parsed(&[&["create", "small"], line].concat()) else {
            panic!("another command")
        };
        create(&it.one, &it.flags)
    }

    fn changed(line: &[&str]) -> Result<SetPool, UsageMistake> {
        let PoolCommand::Set(it) = parsed(&[&["set", "small"], line].concat()) else {
            panic!("another command")
        };
        set(&it.one, &it.flags)
    }

    const ALL: [&str; 36] = [
        "--description",
        "for shops",
        "--provisioner",
        "process",
        "--places",
        "10",
        "--load-limit",
        "0.75",
        "--policy",
        "spread",
        "--min-nodes",
        "1",
        "--max-nodes",
        "9",
        "--warm-places",
        "3",
        "--namespace",
        "shop",
        "--namespace",
        "lab",
        "--label",
        "zone=a",
        "--label",
        "gpu=yes",
        "--scale-in-delay",
        "10m",
        "--scale-in-below",
        "0.25",
        "--cpu-millis",
        "500",
        "--memory-mib",
        "64",
        "--schedule",
        "D0600 min=5 warm=20places",
        "--schedule",
        "D2000 min=0 warm=none",
    ];

    #[test]
    fn a_pool_is_described_by_its_flags() {
        let CreatePool { name, settings } = created(&ALL).unwrap();
        let expected = PoolSettings {
            description: "for shops".into(),
            provisioner: Some(ProvisionerName::parse("process").unwrap()),
            places: 10,
            load_limit: LoadLimit::of_permille(750),
            policy: Policy::Spread,
            min_nodes: 1,
            max_nodes: 9,
            warm_places: 3,
            warm_nodes: 0,
            scale_in_delay_s: 600,
            scale_in_below: LoadLimit::of_permille(250),
            namespaces: ["shop", "lab"].map(|it| Namespace::parse(it).unwrap()).to_vec(),
            labels: ["gpu=yes", "zone=a"].map(|it| parse_label(it).unwrap()).into(),
            cpu_millis: 500,
            memory_mib: 64,
            schedules: ["D0600 min=5 warm=20places", "D2000 min=0 warm=none"]
                .map(|it| PoolSchedule::parse(it).unwrap())
                .to_vec(),
        };
        assert_eq!((name.as_str(), settings), ("small", expected));
        assert_eq!(created(&[]).unwrap().settings, PoolSettings::default());
    }

    #[test]
    fn each_flag_of_a_change_names_its_field_and_no_other_is_named() {
        let all = [&ALL[..], &["--warm-nodes", "2"]].concat();
        assert_eq!(changed(&all).unwrap().fields, PoolSettings::FIELDS);
        let set = changed(&["--max-nodes", "7", "--policy", "pack"]).unwrap();
        assert_eq!((set.fields, set.settings.max_nodes), (flags(&["policy", "max_nodes"]), 7));
        assert!(!set.allow_missing);
    }

    fn flags(names: &[&str]) -> Vec<String> {
        names.iter().map(|it| (*it).to_owned()).collect()
    }

    #[test]
    fn none_takes_a_setting_away() {
        let fields: Vec<&str> =
            PoolSettings::FIELDS.into_iter().filter(|it| *it != "policy").collect();
        let line: Vec<String> = fields.iter().flat_map(|it| [flag(it), NONE.to_owned()]).collect();
        let set = changed(&line.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
        assert_eq!((set.fields, set.settings), (flags(&fields), PoolSettings::default()));
        let set = changed(&["--no-schedules"]).unwrap();
        assert_eq!((set.fields, set.settings), (flags(&["schedules"]), PoolSettings::default()));
    }

    #[test]
    fn every_mistake_is_told_with_its_flag_before_anything_is_sent() {
        let told = created(&["--min-nodes", "2", "--namespace", "none", "--namespace", "a"]);
        assert_eq!(
            told.unwrap_err().0,
            "--namespace is `none` and a namespace; give one or the other; --min-nodes is 2, and \
             max_nodes is 0: it must not be above that; --min-nodes starts nothing without a \
             provisioner: name one, or leave this out"
        );
        let told = changed(&["--namespace", "none", "--namespace", "a"]).unwrap_err();
        assert!(told.0.starts_with("--namespace is"), "{told}");
        let told = changed(&["--label", "none", "--label", "a=b"]).unwrap_err();
        assert_eq!(told.0, "--label is `none` and a label; give one or the other");
        let told = changed(&["--label", "a=b", "--label", "a=c"]).unwrap_err();
        assert_eq!(told.0, "--label gives a twice");
        let told = changed(&["--schedule", "none", "--schedule", "H00 min=1"]).unwrap_err();
        assert_eq!(told.0, "--schedule is `none` and a schedule; give one or the other");
        let grown = ["--provisioner", "process", "--places", "1", "--max-nodes", "2"];
        let schedules = ["--schedule", "H00 min=1", "--schedule", "H30 min=3"];
        let told = created(&[&grown[..], &schedules].concat()).unwrap_err();
        assert_eq!(
            told.0,
            "--schedule: schedules[1].min_nodes is 3, and max_nodes is 2: it must not be above that"
        );
    }

    #[test]
    fn a_value_that_is_none_of_its_flag_is_a_usage_mistake() {
        for (line, says) in [
            (&["set", "small"][..], "--policy"),
            (&["set", "small", "--places", "many"], "it is a whole number or `none`"),
            (&["set", "small", "--load-limit", "80"], "it must be 0.001 to 1"),
            (&["set", "small", "--load-limit", "all"], "a number from 0.001 to 1, or `none`"),
            (&["set", "small", "--policy", "fast"], "[possible values: pack, spread]"),
            (&["set", "small", "--policy", "none"], "[possible values: pack, spread]"),
            (&["create", "small", "--provisioner", "a\nb"], "control character"),
            (&["create", "small", "--namespace", "a/b"], "slash"),
            (&["set", "small", "--schedule", "D2500 min=5"], "at column 2: the hour is 25"),
            (&["set", "small", "--no-schedules", "--schedule", "none"], "cannot be used with"),
            (&["create", "a\u{202e}b"], "turns the direction of writing"),
        ] {
            let error = Cli::try_parse_from([&["ringctl", "pool"], line].concat()).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}
