//! Class files: programs.

use super::command::{Piece, Template};
use super::given;
use super::source::{Fields, Mistakes};
use super::times::{Span, read_time};
use super::{KeptOutput, KillMode, Limits, ProgramClass, ReadyWhen, StopSignal};
use rota_model::life::START_TIMEOUT_MS_MAX;
use rota_model::{GRACE_MS_MAX, Sandbox};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

pub(super) const FIELDS: [&str; 14] = [
    "argv",
    "env",
    "port",
    "ports",
    "ready",
    "start_timeout",
    "grace",
    "stop_signal",
    "kill_mode",
    "options",
    "sandbox",
    "limits",
    "output_kept",
    "output_kept_kib",
];

/// Thousandths of a processor; the kernel gives out hundredths.
const CPU_MILLIS: RangeInclusive<u32> = 10..=1_000_000;
/// With less, hardly any program comes up.
pub(super) const MEMORY_MIB: RangeInclusive<u32> = 8..=1_000_000_000;
const PROCESSES: RangeInclusive<u32> = 1..=4_000_000;

/// Most further ports.
const PORTS_MAX: usize = 16;
/// Longest name of one.
const PORT_NAME_MAX: usize = 32;

/// Most arguments.
const ARGV_MAX: usize = 1_000;
const START_TIMEOUT_MS: Span =
    Span { default: 10_000, min: 100, max: START_TIMEOUT_MS_MAX, text: "100ms to 10m" };
const GRACE_MS: Span = Span { default: 5_000, min: 0, max: GRACE_MS_MAX, text: "0s to 5m" };

const OUTPUT_KEPT_MS: Span =
    Span { default: 86_400_000, min: 0, max: 30 * 86_400_000, text: "0s to 30d" };
/// How much of each output is kept at the ring.
const OUTPUT_KEPT_KIB: RangeInclusive<u32> = 1..=1_024;
const OUTPUT_KEPT_KIB_DEFAULT: u32 = 64;

pub(super) fn read_program(fields: &mut Fields, mistakes: &mut Mistakes) -> Option<ProgramClass> {
    let argv = read_argv(fields, mistakes);
    let env = read_env(fields, mistakes);
    let ports = read_ports(fields, mistakes);
    let port = fields.optional_bool("port", mistakes);
    let ready = read_ready(fields, mistakes);
    let start_timeout_ms = read_time(fields, "start_timeout", &START_TIMEOUT_MS, mistakes);
    let grace_ms = read_time(fields, "grace", &GRACE_MS, mistakes);
    let stop_signal = read_stop_signal(fields, mistakes);
    let kill_mode = fields.optional_text("kill_mode", mistakes);
    let kill_mode = kill_mode.map_or(Ok(KillMode::Group), |it| KillMode::parse(&it));
    let kill_mode = kill_mode.map_err(|problem| mistakes.add("kill_mode", problem));
    let options = fields.optional_bool("options", mistakes).unwrap_or(false);
    let sandbox = read_sandbox(fields, mistakes);
    let limits = read_limits(fields, mistakes);
    let kept_output = read_kept_output(fields, mistakes);
    let (ready, stop_signal, kill_mode) = (ready?, stop_signal?, kill_mode.ok()?);
    refuse_unlisted(&argv, &env, &ports, mistakes);
    let mentioned = argv.iter().chain(env.values()).any(|it| it.mentions(&Piece::Port));
    let asked = mentioned || ready == ReadyWhen::Port;
    if port == Some(false) && asked {
        let problem = "is false, but ready waits for the port, or argv or env holds {port}";
        mistakes.add("port", problem);
    }
    let port = port.unwrap_or(asked);
    Some(ProgramClass {
        argv,
        env,
        port,
        ports,
        ready,
        start_timeout_ms,
        grace_ms,
        stop_signal,
        kill_mode,
        options,
        sandbox,
        limits,
        kept_output,
    })
}

/// What is kept of its output; `0s`: nothing.
fn read_kept_output(fields: &mut Fields, mistakes: &mut Mistakes) -> Option<KeptOutput> {
    let keep_ms = read_time(fields, "output_kept", &OUTPUT_KEPT_MS, mistakes);
    let kib = fields.optional_number("output_kept_kib", OUTPUT_KEPT_KIB, mistakes);
    (keep_ms > 0).then_some(KeptOutput { keep_ms, kib: kib.unwrap_or(OUTPUT_KEPT_KIB_DEFAULT) })
}

/// What the processes of a session may use at most.
fn read_limits(fields: &mut Fields, mistakes: &mut Mistakes) -> Limits {
    let Some(mut table) = fields.optional_table("limits", mistakes) else {
        return Limits::default();
    };
    let limits = Limits {
        memory_mib: table.optional_number("memory_mib", MEMORY_MIB, mistakes),
        cpu_millis: table.optional_number("cpu_millis", CPU_MILLIS, mistakes),
        processes: table.optional_number("processes", PROCESSES, mistakes),
    };
    table.finish("memory_mib, cpu_millis, processes", mistakes);
    limits
}

/// Names of the further ports; each becomes part of the name of a variable.
fn read_ports(fields: &mut Fields, mistakes: &mut Mistakes) -> BTreeSet<String> {
    let mut ports = BTreeSet::new();
    for (at, name) in fields.optional_texts("ports", mistakes).into_iter().enumerate() {
        let path = format!("ports[{at}]");
        let is_word =
            name.bytes().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'_');
        if name.is_empty() || name.len() > PORT_NAME_MAX || !is_word {
            let problem = format!(
                "is {name:?}; a name has 1 to {PORT_NAME_MAX} characters: a to z, 0 to 9 and _"
            );
            mistakes.add(path, problem);
        } else if !ports.insert(name.clone()) {
            mistakes.add(path, format!("is {name:?} a second time"));
        }
    }
    if ports.len() > PORTS_MAX {
        mistakes.add("ports", format!("has {} names; the limit is {PORTS_MAX}", ports.len()));
    }
    ports
}

fn refuse_unlisted(
    argv: &[Template],
    env: &BTreeMap<String, Template>,
    ports: &BTreeSet<String>,
    mistakes: &mut Mistakes,
) {
    let used: BTreeSet<&str> =
        argv.iter().chain(env.values()).flat_map(Template::named_ports).collect();
    for name in used.into_iter().filter(|it| !ports.contains(*it)) {
        mistakes.add("ports", format!("does not list {name:?}, which {{port.{name}}} uses"));
    }
}

/// With or without the SIG of its name.
fn read_stop_signal(fields: &mut Fields, mistakes: &mut Mistakes) -> Option<StopSignal> {
    let Some(text) = fields.optional_text("stop_signal", mistakes) else {
        return Some(StopSignal::Term);
    };
    let name = text.strip_prefix("SIG").unwrap_or(&text);
    let signal = match name {
        "KILL" => Err("is \"KILL\", which asks nobody; grace = \"0s\" kills at once".to_owned()),
        name => StopSignal::parse(name),
    };
    signal.map_err(|problem| mistakes.add("stop_signal", problem)).ok()
}

fn read_sandbox(fields: &mut Fields, mistakes: &mut Mistakes) -> Option<Sandbox> {
    let text = fields.optional_text("sandbox", mistakes)?;
    let sandbox = Sandbox::parse(&text);
    sandbox.map_err(|problem| mistakes.add("sandbox", problem)).ok()
}

pub(super) fn template(path: String, text: &str, mistakes: &mut Mistakes) -> Option<Template> {
    if text.contains('\0') {
        mistakes.add(path, "has a NUL byte");
        return None;
    }
    match Template::parse(text) {
        Ok(template) => Some(template),
        Err(problem) => {
            mistakes.add(path, problem);
            None
        }
    }
}

/// A program and its arguments, in the field `argv`.
pub(super) fn read_argv(fields: &mut Fields, mistakes: &mut Mistakes) -> Vec<Template> {
    let path = fields.path("argv");
    if !fields.has("argv") {
        mistakes.add(path, "is missing");
        return Vec::new();
    }
    if fields.is_empty_list("argv") {
        mistakes.add(&path, "is empty; its first item is the program");
    }
    let texts = fields.optional_texts("argv", mistakes);
    let read = texts.iter().enumerate();
    let argv: Vec<Option<Template>> =
        read.map(|(at, text)| template(format!("{path}[{at}]"), text, mistakes)).collect();
    if texts.len() > ARGV_MAX {
        mistakes.add(&path, format!("has {} items; the limit is {ARGV_MAX}", texts.len()));
    }
    if let Some(Some(program)) = argv.first()
        && program.is_empty()
    {
        mistakes.add(format!("{path}[0]"), "is empty; it is the program");
    }
    given::refuse_arguments(&path, &argv, mistakes);
    argv.into_iter().flatten().collect()
}

fn read_env(fields: &mut Fields, mistakes: &mut Mistakes) -> BTreeMap<String, Template> {
    let mut env = BTreeMap::new();
    for (name, text) in fields.optional_text_table("env", mistakes) {
        let path = format!("env.{name}");
        if name.is_empty() || name.contains(['=', '\0']) {
            mistakes.add(&path, "is no name for a variable: empty, or with = or NUL");
        }
        if let Some(template) = template(path, &text, mistakes) {
            env.insert(name, template);
        }
    }
    given::refuse_variables(&env, mistakes);
    env
}

fn read_ready(fields: &mut Fields, mistakes: &mut Mistakes) -> Option<ReadyWhen> {
    const FORM: &str = "must be { port = true } or { line = \"text\" }";
    if !fields.has("ready") {
        return Some(ReadyWhen::Port);
    }
    let mut ready = fields.optional_table("ready", mistakes)?;
    let port = ready.optional_bool("port", mistakes);
    let line = ready.optional_text("line", mistakes);
    ready.finish("port, line", mistakes);
    match (port, line) {
        (Some(true), None) => Some(ReadyWhen::Port),
        (None, Some(line)) if !line.is_empty() && !line.contains('\n') => {
            Some(ReadyWhen::Line(line))
        }
        (None, Some(_)) => {
            mistakes.add("ready.line", "must be a text of at least one character, on one line");
            None
        }
        (Some(_), Some(_)) | (Some(false), None) | (None, None) => {
            mistakes.add("ready", FORM);
            None
        }
    }
}
