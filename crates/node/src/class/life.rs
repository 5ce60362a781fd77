//! Class files: how long a session lives, what comes after it, and which life cycles it has.

use super::actions::{ActionFolder, life_cycle_problem};
use super::command::{Piece, Template};
use super::program::{MEMORY_MIB, read_argv};
use super::source::{Fields, Mistakes, a};
use super::times::{Span, optional_time, read_time};
use super::{ClassKind, Health, HealthCheck, ProgramClass};
use rota_model::GRACE_MS_MAX;
use rota_model::life::{
    ACTION_RETRIES_MAX, ACTION_TIMEOUT_MS_MAX, Handler, IDLE_MS_MIN, LIFE_CYCLES_MAX, LIFE_MS_MAX,
    LifeFacts, RESTARTS_MAX, Restarts, START_TIMEOUT_MS_MAX,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use toml::Value;

const FIELDS: &str = "idle, idle_max, idle_connections, max_life, max_life_max, start_timeout_max, \
                      close_grace_max, restart, health, cycles";

/// Those that only programs have.
const OF_PROGRAMS: [&str; 4] =
    ["idle_connections", "start_timeout_max", "close_grace_max", "health"];

const LIFE: Span = Span { default: 0, min: IDLE_MS_MIN, max: LIFE_MS_MAX, text: "1s to 366d" };
const START: Span = Span { default: 0, min: 100, max: START_TIMEOUT_MS_MAX, text: "100ms to 10m" };
const GRACE: Span = Span { default: 0, min: 0, max: GRACE_MS_MAX, text: "0s to 5m" };

const DAY_MS: u64 = 86_400_000;
const TIMES: RangeInclusive<u32> = 1..=RESTARTS_MAX;
const TIMES_USUAL: u32 = 5;
const DELAY: Span = Span { default: 1_000, min: 100, max: DAY_MS, text: "100ms to 1d" };
const DELAY_MAX: Span = Span { default: 60_000, min: 100, max: DAY_MS, text: "100ms to 1d" };
const STEADY: Span = Span { default: 600_000, min: 1_000, max: LIFE_MS_MAX, text: "1s to 366d" };

const HOUR_MS: u64 = 3_600_000;
const EVERY: Span = Span { default: 10_000, min: 100, max: HOUR_MS, text: "100ms to 1h" };
const CHECK_TIMEOUT: Span = Span { default: 2_000, min: 10, max: 60_000, text: "10ms to 1m" };
const AFTER: Span = Span { default: 0, min: 0, max: HOUR_MS, text: "0s to 1h" };
const FAILURES: RangeInclusive<u32> = 1..=1_000;
const FAILURES_USUAL: u32 = 3;
const PATH_BYTES_MAX: usize = 2_000;

const RETRIES: RangeInclusive<u32> = 0..=ACTION_RETRIES_MAX;
const RETRIES_USUAL: u32 = 5;
const ACTION_TIMEOUT: Span =
    Span { default: 30_000, min: 100, max: ACTION_TIMEOUT_MS_MAX, text: "100ms to 1h" };

/// What a class says of the lives of its sessions.
pub(super) struct Life {
    /// What managers decide by.
    pub(super) facts: LifeFacts,
    /// How a session is looked after.
    pub(super) health: Option<Health>,
    /// Connections count as use.
    pub(super) idle_connections: bool,
    /// Memory of actions, by life cycle.
    pub(super) action_memory_mib: BTreeMap<String, u32>,
}

/// Reads the table `life` of a class of that kind, if its kind is known.
pub(super) fn read_life(
    table: Option<Fields>,
    kind: Option<&ClassKind>,
    actions: &ActionFolder,
    mistakes: &mut Mistakes,
) -> Life {
    let mut table = table.unwrap_or_else(|| Fields::new("life", toml::Table::new()));
    let programs = actions.life_cycles(mistakes);
    let program = match kind {
        Some(ClassKind::Program(program)) => Some(&**program),
        Some(ClassKind::Machine(_)) => {
            refuse_for_machines(&mut table, &programs, mistakes);
            None
        }
        None => None,
    };
    let idle_connections = table.optional_bool("idle_connections", mistakes) == Some(true);
    if idle_connections && program.is_some_and(|it| !it.port) {
        mistakes.add("life.idle_connections", "is true, and the class has no port");
    }
    let health = read_health(&mut table, program, mistakes);
    let mut facts = read_facts(&mut table, program, mistakes);
    let mut action_memory_mib = BTreeMap::new();
    facts.life_cycles = read_cycles(&mut table, programs, &mut action_memory_mib, mistakes);
    table.finish(FIELDS, mistakes);
    Life { facts, health, idle_connections, action_memory_mib }
}

fn refuse_for_machines(
    table: &mut Fields,
    programs: &BTreeMap<String, BTreeSet<String>>,
    mistakes: &mut Mistakes,
) {
    for name in OF_PROGRAMS {
        if table.take(name).is_some() {
            mistakes.add(table.path(name), "is a field of kind \"program\"");
        }
    }
    for name in programs.keys() {
        let problem = "is an action, and the class is a machine, whose life cycles are mark_only";
        mistakes.add(format!("actions/{name}"), problem);
    }
}

fn read_facts(
    table: &mut Fields,
    program: Option<&ProgramClass>,
    mistakes: &mut Mistakes,
) -> LifeFacts {
    let mut time = |name: &str, span: &Span| optional_time(table, name, span, mistakes);
    let (idle_ms, idle_max_ms) = (time("idle", &LIFE), time("idle_max", &LIFE));
    let (max_life_ms, max_life_max_ms) = (time("max_life", &LIFE), time("max_life_max", &LIFE));
    let start_max = time("start_timeout_max", &START);
    let grace_max = time("close_grace_max", &GRACE);
    let (start, grace) = (program.map(|it| it.start_timeout_ms), program.map(|it| it.grace_ms));
    let pairs = [
        ("idle_max", idle_max_ms, "life.idle", idle_ms),
        ("max_life_max", max_life_max_ms, "life.max_life", max_life_ms),
        ("start_timeout_max", start_max, "start_timeout", start),
        ("close_grace_max", grace_max, "grace", grace),
    ];
    for (name, most, other, own) in pairs {
        if let (Some(most), Some(own)) = (most, own)
            && most < own
        {
            let problem = format!("is {most} ms; it must be at least {other} ({own} ms)");
            mistakes.add(table.path(name), problem);
        }
    }
    LifeFacts {
        idle_ms,
        idle_max_ms,
        max_life_ms,
        max_life_max_ms,
        start_timeout_max_ms: start_max.or(start),
        close_grace_max_ms: grace_max.or(grace),
        restarts: read_restarts(table, mistakes),
        life_cycles: BTreeMap::new(),
    }
}

fn read_restarts(table: &mut Fields, mistakes: &mut Mistakes) -> Option<Restarts> {
    let mut table = table.optional_table("restart", mistakes)?;
    let times = table.optional_number("times", TIMES, mistakes).unwrap_or(TIMES_USUAL);
    let delay_ms = read_time(&mut table, "delay", &DELAY, mistakes);
    let most = optional_time(&mut table, "delay_max", &DELAY_MAX, mistakes);
    if most.is_some_and(|it| it < delay_ms) {
        mistakes.add(table.path("delay_max"), format!("must be at least delay ({delay_ms} ms)"));
    }
    let delay_max_ms = most.unwrap_or(DELAY_MAX.default.max(delay_ms));
    let steady_ms = read_time(&mut table, "steady", &STEADY, mistakes);
    table.finish("times, delay, delay_max, steady", mistakes);
    Some(Restarts { times, delay_ms, delay_max_ms, steady_ms })
}

fn read_health(
    table: &mut Fields,
    program: Option<&ProgramClass>,
    mistakes: &mut Mistakes,
) -> Option<Health> {
    let mut table = table.optional_table("health", mistakes)?;
    let check = read_check(&mut table, program, mistakes);
    let every_ms = read_time(&mut table, "every", &EVERY, mistakes);
    let timeout_ms = read_time(&mut table, "timeout", &CHECK_TIMEOUT, mistakes);
    let failures = table.optional_number("failures", FAILURES, mistakes);
    let after_ms = read_time(&mut table, "after", &AFTER, mistakes);
    table.finish("port, http, argv, every, timeout, failures, after", mistakes);
    let failures = failures.unwrap_or(FAILURES_USUAL);
    Some(Health { check: check?, every_ms, timeout_ms, failures, after_ms })
}

fn read_check(
    table: &mut Fields,
    program: Option<&ProgramClass>,
    mistakes: &mut Mistakes,
) -> Option<HealthCheck> {
    let path = table.here().to_owned();
    let path = path.as_str();
    let given = ["port", "http", "argv"].into_iter().filter(|it| table.has(it)).count();
    let argv = if table.has("argv") { read_argv(table, mistakes) } else { Vec::new() };
    let port = table.optional_bool("port", mistakes);
    let http = table.optional_text("http", mistakes);
    if given != 1 || port == Some(false) {
        mistakes.add(path, "must have exactly one of port = true, http = \"/path\" and argv");
        return None;
    }
    let needs_port = port.is_some() || http.is_some() || mentions_port(&argv);
    if needs_port && program.is_some_and(|it| !it.port) {
        mistakes.add(path, "asks for the port, and the class has none: port = true");
    }
    refuse_unlisted(&argv, program, mistakes);
    if port.is_some() {
        return Some(HealthCheck::Port);
    }
    let Some(http) = http else { return Some(HealthCheck::Program(argv)) };
    let fits = http.bytes().all(|it| it.is_ascii_graphic() && it != b'#');
    if !http.starts_with('/') || !fits || http.len() > PATH_BYTES_MAX {
        let problem = format!(
            "is {http:?}; it must be a path that begins with /, at most {PATH_BYTES_MAX} bytes of ASCII, without \
             spaces and #"
        );
        mistakes.add(table.path("http"), problem);
    }
    Some(HealthCheck::Http(http))
}

fn mentions_port(argv: &[Template]) -> bool {
    argv.iter().any(|it| it.mentions(&Piece::Port))
}

fn refuse_unlisted(argv: &[Template], program: Option<&ProgramClass>, mistakes: &mut Mistakes) {
    let Some(program) = program else { return };
    let used: BTreeSet<&str> = argv.iter().flat_map(Template::named_ports).collect();
    for name in used.into_iter().filter(|it| !program.ports.contains(*it)) {
        let problem = format!("uses {{port.{name}}}, which ports does not list");
        mistakes.add("life.health.argv", problem);
    }
}

/// The life cycles that the table declares, and those that only have a program.
fn read_cycles(
    table: &mut Fields,
    mut programs: BTreeMap<String, BTreeSet<String>>,
    memory_mib: &mut BTreeMap<String, u32>,
    mistakes: &mut Mistakes,
) -> BTreeMap<String, Handler> {
    let mut cycles = BTreeMap::new();
    let declared = table.optional_table("cycles", mistakes);
    for (name, value) in declared.into_iter().flat_map(Fields::rest) {
        let path = format!("life.cycles.{name}");
        if let Some(problem) = life_cycle_problem(&name) {
            mistakes.add(&path, problem);
        }
        let Value::Table(fields) = value else {
            mistakes.add(&path, format!("is {}; it must be a table", a(&value)));
            continue;
        };
        let events = programs.remove(&name);
        let Cycle { handler, memory_mib: mib } =
            read_cycle(Fields::new(&path, fields), events, mistakes);
        memory_mib.extend(mib.map(|it| (name.clone(), it)));
        cycles.extend(handler.map(|it| (name, it)));
    }
    let undeclared = programs.into_iter().map(|(name, events)| {
        let (retries, timeout_ms) = (RETRIES_USUAL, ACTION_TIMEOUT.default);
        (name, Handler::Action { events, retries, timeout_ms })
    });
    cycles.extend(undeclared);
    if cycles.len() > LIFE_CYCLES_MAX {
        let problem = format!("are {}; the limit is {LIFE_CYCLES_MAX}", cycles.len());
        mistakes.add("life.cycles", problem);
    }
    cycles
}

/// What a class says of a life cycle.
struct Cycle {
    /// `None`: that is wrong.
    handler: Option<Handler>,
    /// Of its actions.
    memory_mib: Option<u32>,
}

/// `events`: those that have a program of the class's folder; `None` when there is no program.
fn read_cycle(
    mut table: Fields,
    events: Option<BTreeSet<String>>,
    mistakes: &mut Mistakes,
) -> Cycle {
    let path = table.here().to_owned();
    let mark = table.optional_bool("mark_only", mistakes).unwrap_or_default();
    let runs = ["retries", "timeout", "memory_mib"].into_iter().any(|it| table.has(it));
    let retries = table.optional_number("retries", RETRIES, mistakes).unwrap_or(RETRIES_USUAL);
    let timeout_ms = read_time(&mut table, "timeout", &ACTION_TIMEOUT, mistakes);
    let memory_mib = table.optional_number("memory_mib", MEMORY_MIB, mistakes);
    table.finish("mark_only, retries, timeout, memory_mib", mistakes);
    let handler = match (mark, events) {
        (true, None) if !runs => Some(Handler::Mark),
        (true, None) => {
            let problem =
                "is mark_only: nothing runs, so it has no retries, no timeout and no memory_mib";
            mistakes.add(path, problem);
            None
        }
        (true, Some(_)) => {
            mistakes.add(path, "is mark_only, and the class's folder has a program for it");
            None
        }
        (false, Some(events)) => Some(Handler::Action { events, retries, timeout_ms }),
        (false, None) => {
            let problem = "has no program in the class's folder (actions), and is not mark_only";
            mistakes.add(path, problem);
            None
        }
    };
    Cycle { handler, memory_mib }
}
