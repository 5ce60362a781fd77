//! What is decided about tasks: their queues, how patient the manager is, and what they may reach.

use super::{number, number_u32};
use crate::tasks::{Target, TaskWorld};
use rota_daemon::private::read_secret;
use rota_docstore::checker::CREDENTIAL_BYTES_MAX;
use rota_model::FieldError;
use rota_protocol::TasksConfig;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Each worker is a program or a call at a time, in each partition.
const WORKERS_MAX: u32 = 256;
/// Most repetitions: with the longest delay, some four years of hours.
const RETRIES_MAX: u32 = 100_000;
/// A week.
const DELAY_MS_MAX: u64 = 7 * 24 * 3_600_000;
/// Below this a busy machine ends what would have ended well.
const QUOTA_MS_MIN: u64 = 1_000;
/// A day.
const QUOTA_MS_MAX: u64 = 24 * 3_600_000;
/// Most letters of the name of a program or a target.
const NAME_BYTES_MAX: usize = 64;

/// Options for tasks.
#[derive(clap::Args, Debug, Default)]
#[command(next_help_heading = "Tasks")]
pub struct TaskArguments {
    /// A queue of tasks and its workers in each partition; may be given several times. 0 workers: operations of
    /// that queue are refused. The same at all managers, like all of tasks [default: 0=4, 1=2, 2=1].
    #[arg(long = "task-queue", value_name = "NUMBER=WORKERS")]
    pub queues: Vec<String>,
    /// The queue of an operation; may be given several times [default: queue 0].
    #[arg(long = "task-operation", value_name = "NAME=QUEUE")]
    pub operations: Vec<String>,
    /// After so many repetitions that failed a task is given up [default: 16].
    #[arg(long = "task-retries", value_name = "N")]
    pub retries: Option<String>,
    /// Delay before the first repetition, in milliseconds; each later one is twice the one before [default: 10000].
    #[arg(long = "task-first-delay-ms", value_name = "MS")]
    pub first_delay_ms: Option<String>,
    /// The longest delay, in milliseconds [default: an hour].
    #[arg(long = "task-delay-ms-max", value_name = "MS")]
    pub delay_ms_max: Option<String>,
    /// How long one run of a program, one call, or one cycle of an operation may take, in milliseconds
    /// [default: 300000].
    #[arg(long = "task-quota-ms", value_name = "MS")]
    pub quota_ms: Option<String>,
    /// A program that tasks may run (operation `exec`); may be given several times. It runs as this manager's user
    /// [default: none].
    #[arg(long = "task-program", value_name = "NAME=PATH")]
    pub programs: Vec<String>,
    /// A server that tasks may call (operations `http`, `grpc`); may be given several times. The key in the file F
    /// goes along as a bearer token; the certificates in the file C are trusted besides the usual ones
    /// [default: none].
    #[arg(long = "task-target", value_name = "NAME=URL[,key-file=F][,ca-file=C]")]
    pub targets: Vec<String>,
    /// Program that is told of each task that was given up, as JSON on its standard input [default: the log is].
    #[arg(long = "task-given-up", value_name = "PATH")]
    pub given_up: Option<PathBuf>,
}

/// What is decided about tasks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskOptions {
    /// What decisions go by.
    pub config: TasksConfig,
    /// What tasks may reach.
    pub world: TaskWorld,
}

impl TaskArguments {
    pub(super) fn check(&self, wrong: &mut Vec<FieldError>) -> TaskOptions {
        let mut config = TasksConfig::default();
        self.check_queues(&mut config, wrong);
        self.check_patience(&mut config, wrong);
        let programs = named(&self.programs, "--task-program", "NAME=PATH", program, wrong);
        let targets = "NAME=URL[,key-file=F][,ca-file=C]";
        let targets = named(&self.targets, "--task-target", targets, target, wrong);
        config.programs = programs.keys().cloned().collect();
        config.targets = targets.keys().cloned().collect();
        if let Some(Err(problem)) = self.given_up.as_deref().map(check_program) {
            wrong.push(FieldError::new("--task-given-up", problem));
        }
        let world = TaskWorld { programs, targets, given_up: self.given_up.clone() };
        TaskOptions { config, world }
    }

    fn check_queues(&self, config: &mut TasksConfig, wrong: &mut Vec<FieldError>) {
        let flag = "--task-queue";
        let mut given = BTreeSet::new();
        for text in &self.queues {
            let Some((queue, workers)) = text.split_once('=') else {
                wrong.push(FieldError::new(flag, format!("is {text:?}, not NUMBER=WORKERS")));
                continue;
            };
            let queue = queue_number(flag, queue, wrong);
            let workers = number_u32(flag, workers, 0, WORKERS_MAX, wrong);
            if !given.insert(queue) {
                wrong.push(FieldError::new(flag, format!("names queue {queue} twice")));
            }
            let workers = usize::try_from(workers).expect("it is below 300");
            config.queues.queues.insert(queue, workers);
        }
        let flag = "--task-operation";
        for text in &self.operations {
            let Some((name, queue)) = text.split_once('=').filter(|it| !it.0.is_empty()) else {
                wrong.push(FieldError::new(flag, format!("is {text:?}, not NAME=QUEUE")));
                continue;
            };
            let queue = queue_number(flag, queue, wrong);
            if !config.queues.queues.contains_key(&queue) {
                let remedy = format!("give it workers with --task-queue {queue}=N");
                let problem =
                    format!("gives {name:?} queue {queue}, which has no workers: {remedy}");
                wrong.push(FieldError::new(flag, problem));
            }
            if config.queue_of.insert(name.to_owned(), queue).is_some() {
                wrong.push(FieldError::new(flag, format!("names {name:?} twice")));
            }
        }
    }

    fn check_patience(&self, config: &mut TasksConfig, wrong: &mut Vec<FieldError>) {
        let patience = &mut config.patience;
        if let Some(text) = &self.retries {
            patience.retries = number_u32("--task-retries", text, 0, RETRIES_MAX, wrong);
        }
        if let Some(text) = &self.first_delay_ms {
            patience.first_ms = number("--task-first-delay-ms", text, 1, DELAY_MS_MAX, wrong);
        }
        if let Some(text) = &self.delay_ms_max {
            patience.most_ms = number("--task-delay-ms-max", text, 1, DELAY_MS_MAX, wrong);
        }
        if patience.first_ms > patience.most_ms {
            let (first, most) = (patience.first_ms, patience.most_ms);
            let problem = format!("is {first}; it must be at most --task-delay-ms-max ({most})");
            wrong.push(FieldError::new("--task-first-delay-ms", problem));
        }
        if let Some(text) = &self.quota_ms {
            let (low, high) = (QUOTA_MS_MIN, QUOTA_MS_MAX);
            config.quota_ms = number("--task-quota-ms", text, low, high, wrong);
        }
        // A run that another manager began is still under way for as long as its quota.
        config.queues.lost_ms = config.queues.lost_ms.max(3 * config.quota_ms);
    }
}

fn queue_number(flag: &str, text: &str, wrong: &mut Vec<FieldError>) -> u8 {
    let queue = number(flag, text, 0, u8::MAX.into(), wrong);
    u8::try_from(queue).expect("number() keeps to a range of u8")
}

/// Reads each NAME=VALUE of a flag.
fn named<T>(
    all: &[String],
    flag: &str,
    form: &str,
    read: impl Fn(&str) -> Result<T, String>,
    wrong: &mut Vec<FieldError>,
) -> BTreeMap<String, T> {
    let mut known = BTreeMap::new();
    for text in all {
        let is_name = |name: &str| {
            let fits = |it: u8| it.is_ascii_alphanumeric() || b"-_.".contains(&it);
            (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(fits)
        };
        let problem = match text.split_once('=') {
            None => format!("is {text:?}, not {form}"),
            Some((name, _)) if !is_name(name) => {
                format!(
                    "has the name {name:?}; it must be 1 to {NAME_BYTES_MAX} of a-z A-Z 0-9 - _ ."
                )
            }
            Some((name, _)) if known.contains_key(name) => format!("names {name:?} twice"),
            Some((name, value)) => match read(value) {
                Ok(value) => {
                    known.insert(name.to_owned(), value);
                    continue;
                }
                Err(problem) => format!("{name}: {problem}"),
            },
        };
        wrong.push(FieldError::new(flag, problem));
    }
    known
}

fn program(path: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(path);
    check_program(&path).map(|()| path)
}

fn check_program(path: &Path) -> Result<(), String> {
    let shown = path.display();
    if !path.is_absolute() {
        return Err(format!("names {shown}; give the whole path, from the root on"));
    }
    let found = std::fs::metadata(path).map_err(|it| format!("names {shown}: {it}"))?;
    if !found.is_file() {
        return Err(format!("names {shown}, which is no file"));
    }
    if found.permissions().mode() & 0o111 == 0 {
        return Err(format!("names {shown}, which nobody may run: chmod +x {shown}"));
    }
    Ok(())
}

fn target(text: &str) -> Result<Target, String> {
    let mut parts = text.split(',');
    let url = parts.next().unwrap_or_default();
    let (mut key, mut ca) = (None, None);
    for part in parts {
        match part.split_once('=') {
            Some(("key-file", file)) if key.is_none() => {
                let secret = read_secret("key-file", Path::new(file), CREDENTIAL_BYTES_MAX);
                key = Some(secret.map_err(|it| it.to_string())?);
            }
            Some(("ca-file", file)) if ca.is_none() => {
                let read = std::fs::read(file);
                ca = Some(read.map_err(|it| format!("ca-file names {file}: {it}"))?);
            }
            _ => return Err(format!("has {part:?}; it must be one key-file=F or one ca-file=C")),
        }
    }
    Target::new(url, key, ca)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use rota_protocol::outside::Patience;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        tasks: TaskArguments,
    }

    fn check(line: &[&str]) -> (TaskOptions, Vec<String>) {
        let all = ["rota-manager"].iter().chain(line);
        let mut wrong = Vec::new();
        let options =
            Line::try_parse_from(all).expect("clap takes any text").tasks.check(&mut wrong);
        (options, wrong.iter().map(ToString::to_string).collect())
    }

    fn told(line: &[&str]) -> String {
        let wrong = check(line).1;
        assert_eq!(wrong.len(), 1, "{line:?}: {wrong:?}");
        wrong[0].clone()
    }

    #[test]
    fn without_a_flag_tasks_reach_nothing_outside() {
        let (options, wrong) = check(&[]);
        assert_eq!((options.config, wrong), (TasksConfig::default(), vec![]));
        assert_eq!(options.world, TaskWorld::default());
    }

    #[test]
    fn queues_patience_programs_and_targets_are_taken() {
        let folder = tempfile::tempdir().unwrap();
        let key = folder.path().join("key");
        std::fs::write(&key, " secret\n").unwrap();
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
        let target =
            format!("--task-target=shop=http://127.0.0.1:8/base,key-file={}", key.display());
        let mut line = vec!["--task-queue", "0=9", "--task-queue", "7=3", "--task-queue", "2=0"];
        line.extend(["--task-operation", "bill=7", "--task-retries", "2"]);
        line.extend(["--task-first-delay-ms", "5", "--task-delay-ms-max", "50"]);
        line.extend(["--task-quota-ms", "600000", "--task-program", "sh=/bin/sh", &target]);
        line.extend(["--task-given-up", "/bin/cat"]);
        let (TaskOptions { config, world }, wrong) = check(&line);
        assert_eq!(wrong, Vec::<String>::new());
        assert_eq!(config.queues.queues, [(0, 9), (1, 2), (2, 0), (7, 3)].into());
        assert_eq!(config.queue_of, [("bill".to_owned(), 7)].into());
        assert_eq!(config.patience, Patience { first_ms: 5, most_ms: 50, retries: 2 });
        assert_eq!((config.quota_ms, config.queues.lost_ms), (600_000, 1_800_000));
        assert_eq!(
            (config.programs, config.targets),
            (["sh".into()].into(), ["shop".into()].into())
        );
        assert_eq!(world.programs["sh"], Path::new("/bin/sh"));
        assert_eq!(world.given_up.as_deref(), Some(Path::new("/bin/cat")));
        assert!(!format!("{:?}", world.targets).contains("secret"), "{:?}", world.targets);
    }

    #[test]
    fn each_mistake_names_its_flag_and_what_to_do() {
        for (line, parts) in [
            (["--task-queue", "4"], ["--task-queue is \"4\"", "NUMBER=WORKERS"]),
            (["--task-queue", "256=1"], ["--task-queue is 256", "[0, 255]"]),
            (["--task-queue", "1=257"], ["--task-queue is 257", "[0, 256]"]),
            (["--task-operation", "=1"], ["--task-operation is \"=1\"", "NAME=QUEUE"]),
            (
                ["--task-operation", "bill=9"],
                ["--task-operation gives \"bill\"", "--task-queue 9=N"],
            ),
            (["--task-retries", "many"], ["--task-retries is \"many\"", "not a whole number"]),
            (["--task-delay-ms-max", "9999"], ["--task-first-delay-ms is 10000", "(9999)"]),
            (["--task-quota-ms", "999"], ["--task-quota-ms is 999", "[1000, 86400000]"]),
            (["--task-program", "/bin/sh"], ["--task-program is \"/bin/sh\"", "NAME=PATH"]),
            (["--task-program", "a b=/bin/sh"], ["--task-program has the name \"a b\"", "0-9"]),
            (["--task-program", "sh=sh"], ["--task-program sh: names sh", "the whole path"]),
            (
                ["--task-program", "sh=/no/such"],
                ["--task-program sh: names /no/such", "No such file"],
            ),
            (["--task-program", "sh=/bin"], ["--task-program sh: names /bin", "no file"]),
            (["--task-program", "sh=/etc/passwd"], ["--task-program sh: names", "chmod +x"]),
            (["--task-given-up", "cat"], ["--task-given-up names cat", "the whole path"]),
            (["--task-target", "shop"], ["--task-target is \"shop\"", "NAME=URL"]),
            (["--task-target", "s=ftp://a"], ["--task-target s:", "http:// or https://"]),
            (["--task-target", "s=http://a:b@c"], ["--task-target s:", "key-file=F"]),
            (["--task-target", "s=http://a/?b"], ["--task-target s:", "query"]),
            (["--task-target", "s=http://a/#b"], ["--task-target s:", "fragment"]),
            (["--task-target", "s=http://a,key=b"], ["--task-target s:", "one key-file=F"]),
            (["--task-target", "s=http://a,key-file=/no"], ["--task-target s:", "cannot be read"]),
            (["--task-target", "s=http://a,ca-file=/no"], ["--task-target s:", "No such file"]),
            (
                ["--task-target", "s=https://a,ca-file=/etc/passwd"],
                ["--task-target s:", "no certificate"],
            ),
        ] {
            let told = told(&line);
            assert!(parts.iter().all(|it| told.contains(it)), "{parts:?} in {told:?}");
        }
        let twice = ["--task-program", "a=/bin/sh", "--task-program", "a=/bin/cat"];
        assert!(told(&twice).contains("names \"a\" twice"));
    }

    #[test]
    fn a_key_is_not_sent_in_the_open_beyond_this_machine() {
        let folder = tempfile::tempdir().unwrap();
        let key = folder.path().join("key");
        std::fs::write(&key, "secret").unwrap();
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
        let target = |url: &str| format!("t={url},key-file={}", key.display());
        for url in
            ["http://127.0.0.1:7", "http://localhost", "http://[::1]:7", "https://shop.example"]
        {
            assert_eq!(check(&["--task-target", &target(url)]).1, Vec::<String>::new(), "{url}");
        }
        let text = told(&["--task-target", &target("http://shop.example")]);
        assert!(text.contains("https://"), "{text}");
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(told(&["--task-target", &target("https://a")]).contains("chmod 0600"));
    }
}
