//! Class files: the common part and machines.

use super::actions::{ActionFolder, NO_ACTIONS};
use super::life;
use super::source::{ClassMistake, Fields, Mistakes, text_of};
use super::{Class, ClassKind, MachineClass, program};
use rota_model::text::misleads;
use rota_model::{
    ATTRIBUTES_BYTES_MAX, ClassDigest, ClassFacts, ClassName, ClassText, Disturb, LABELS_MAX,
    LabelName, LabelValue, Labels, NAME_BYTES_MAX, Needs, PLACES_MAX, PoolName,
};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use toml::Value;

/// Most states of a machine, and most events.
pub(super) const STATES_MAX: usize = 1_000;

/// How much CPU or memory a class may name.
const AMOUNT: RangeInclusive<u32> = 1..=1_000_000_000;

const COMMON_FIELDS: [&str; 10] = [
    "name",
    "kind",
    "attributes",
    "pool",
    "other_pools",
    "needs",
    "on_node_loss",
    "disturb",
    "open_on_demand",
    "life",
];
const MACHINE_FIELDS: [&str; 6] =
    ["states", "initial", "final", "events", "transitions", "report_states"];

/// Checks the texts of several class files, each with its name. All mistakes of all files are
/// listed; two files with one class are a mistake of the second.
pub fn parse_classes<'a>(
    files: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<BTreeMap<ClassName, Class>, Vec<ClassMistake>> {
    parse_classes_with(files, &BTreeMap::new())
}

/// The same, of classes with actions: what lies in the folder of each class, by the folder's name.
///
/// # Errors
/// All mistakes of all files.
pub fn parse_classes_with<'a>(
    files: impl IntoIterator<Item = (&'a str, &'a str)>,
    actions: &BTreeMap<String, ActionFolder>,
) -> Result<BTreeMap<ClassName, Class>, Vec<ClassMistake>> {
    let mut classes = BTreeMap::new();
    // Of files with other mistakes too: two of one name are a mistake all the same.
    let mut names: BTreeMap<ClassName, &str> = BTreeMap::new();
    let mut mistakes = Vec::new();
    for (file, text) in files {
        let (name, class) = read_file(file, text, actions);
        if let Some(name) = name {
            if let Some(first) = names.get(&name) {
                mistakes.push(ClassMistake {
                    file: file.to_owned(),
                    field: "name".into(),
                    problem: format!("is {name}, which stands in {first} already"),
                });
            } else {
                names.insert(name, file);
            }
        }
        match class {
            Ok(class) => {
                classes.insert(class.name.clone(), class);
            }
            Err(list) => mistakes.extend(list),
        }
    }
    if mistakes.is_empty() { Ok(classes) } else { Err(mistakes) }
}

pub(super) fn parse_class(file: &str, text: &str) -> Result<Class, Vec<ClassMistake>> {
    read_file(file, text, &BTreeMap::new()).1
}

/// The name is given whatever else is wrong, if it can be read.
fn read_file(
    file: &str,
    text: &str,
    actions: &BTreeMap<String, ActionFolder>,
) -> (Option<ClassName>, Result<Class, Vec<ClassMistake>>) {
    let mut mistakes = Mistakes::of(file);
    let table = match text.parse::<toml::Table>() {
        Ok(table) => table,
        Err(error) => {
            mistakes.add("", format!("is not TOML: {}", error.to_string().trim_end()));
            return (None, Err(mistakes.into_list()));
        }
    };
    let mut fields = Fields::new("", table);
    let name = fields
        .text("name", &mut mistakes)
        .and_then(|it| mistakes.checked("name", ClassName::parse_new(&it)));
    let actions = name.as_ref().and_then(|it| actions.get(it.as_str())).unwrap_or(&NO_ACTIONS);
    let digest = digest_of(text, actions);
    let class = read_class(fields, name.clone(), (digest, actions), &mut mistakes);
    match class {
        Some(class) if mistakes.is_empty() => (name, Ok(class)),
        Some(_) | None => (name, Err(mistakes.into_list())),
    }
}

fn read_class(
    mut fields: Fields,
    name: Option<ClassName>,
    (digest, actions): (ClassDigest, &ActionFolder),
    mistakes: &mut Mistakes,
) -> Option<Class> {
    let life = fields.optional_table("life", mistakes);
    let attributes = fields.optional_text_table("attributes", mistakes);
    let bytes: usize = attributes.iter().map(|(key, value)| key.len() + value.len()).sum();
    if bytes > ATTRIBUTES_BYTES_MAX {
        let problem = format!("hold {bytes} bytes; the limit is {ATTRIBUTES_BYTES_MAX}");
        mistakes.add("attributes", problem);
    }
    let mut text = ClassText { digest, facts: read_facts(&mut fields, mistakes) };
    let kind = match fields.text("kind", mistakes).as_deref() {
        Some("machine") => read_machine_only(fields, mistakes),
        Some("program") => read_program_only(fields, mistakes),
        Some(other) => {
            mistakes.add("kind", format!("is {other:?}; it must be \"machine\" or \"program\""));
            look_at_the_rest(fields, mistakes);
            None
        }
        None => {
            look_at_the_rest(fields, mistakes);
            None
        }
    };
    let life::Life { facts, health, idle_connections, action_memory_mib } =
        life::read_life(life, kind.as_ref(), actions, mistakes);
    text.facts.life = Box::new(facts);
    let attributes = attributes.into_iter().collect();
    let (name, kind) = (name?, kind?);
    Some(Class { name, text, attributes, kind, health, idle_connections, action_memory_mib })
}

/// What managers decide by.
fn read_facts(fields: &mut Fields, mistakes: &mut Mistakes) -> ClassFacts {
    let pool = fields.optional_text("pool", mistakes);
    let names_pool = pool.is_some();
    let pool = pool.and_then(|it| mistakes.checked("pool", PoolName::parse_new(&it)));
    let reopens = match fields.optional_text("on_node_loss", mistakes).as_deref() {
        Some("reopen") => true,
        Some("lost") | None => false,
        Some(other) => {
            let problem = format!("is {other:?}; it must be \"lost\" or \"reopen\"");
            mistakes.add("on_node_loss", problem);
            false
        }
    };
    let disturb = fields.optional_text("disturb", mistakes);
    let disturb = disturb.and_then(|text| {
        let known = Disturb::parse(&text);
        if known.is_none() {
            let problem =
                format!("is {text:?}; it must be \"never\", \"on_upgrade\" or \"always\"");
            mistakes.add("disturb", problem);
        }
        known
    });
    let disturb = disturb.unwrap_or_default();
    let opens_on_demand = fields.optional_bool("open_on_demand", mistakes).unwrap_or_default();
    let only_its_pool = fields.optional_bool("other_pools", mistakes) == Some(false);
    if only_its_pool && !names_pool {
        mistakes.add("other_pools", "is false, and there is no pool: name the only one".to_owned());
    }
    let needs = read_needs(fields, mistakes);
    ClassFacts {
        pool,
        needs,
        reopens,
        disturb,
        opens_on_demand,
        only_its_pool,
        life: Default::default(),
    }
}

/// What a session needs of its node.
fn read_needs(fields: &mut Fields, mistakes: &mut Mistakes) -> Needs {
    let Some(mut table) = fields.optional_table("needs", mistakes) else {
        return Needs::default();
    };
    let needs = Needs {
        weight: table.optional_number("weight", 1..=PLACES_MAX, mistakes).unwrap_or(1),
        cpu_millis: table.optional_number("cpu_millis", AMOUNT, mistakes).unwrap_or(0),
        memory_mib: table.optional_number("memory_mib", AMOUNT, mistakes).unwrap_or(0),
        labels: read_labels(&mut table, mistakes),
    };
    table.finish("weight, cpu_millis, memory_mib, labels", mistakes);
    needs
}

fn read_labels(table: &mut Fields, mistakes: &mut Mistakes) -> Labels {
    let path = table.path("labels");
    let texts = table.optional_text_table("labels", mistakes);
    if texts.len() > LABELS_MAX {
        mistakes.add(&path, format!("are {}; the limit is {LABELS_MAX}", texts.len()));
    }
    let texts = texts.into_iter().filter_map(|(name, value)| {
        let field = format!("{path}.{name}");
        let name = mistakes.checked(&field, LabelName::parse_new(&name))?;
        Some((name, mistakes.checked(&field, LabelValue::parse_new(&value))?))
    });
    texts.collect()
}

/// That of the text; where there are actions, of the text and of each action's name and content. So a changed action
/// is a changed class.
fn digest_of(text: &str, actions: &ActionFolder) -> ClassDigest {
    let mut hash = Sha256::new_with_prefix(text);
    for (name, content) in actions.programs() {
        hash.update([0]);
        hash.update(name);
        hash.update([0]);
        hash.update(content);
    }
    let [a, b, c, d, e, f, g, h, ..] = <[u8; 32]>::from(hash.finalize());
    ClassDigest(u64::from_be_bytes([a, b, c, d, e, f, g, h]))
}

fn read_machine_only(mut fields: Fields, mistakes: &mut Mistakes) -> Option<ClassKind> {
    refuse_foreign(&mut fields, &program::FIELDS, "program", mistakes);
    let machine = read_machine(&mut fields, mistakes);
    fields.finish(&known(&MACHINE_FIELDS), mistakes);
    machine.map(|it| ClassKind::Machine(Arc::new(it)))
}

fn read_program_only(mut fields: Fields, mistakes: &mut Mistakes) -> Option<ClassKind> {
    refuse_foreign(&mut fields, &MACHINE_FIELDS, "machine", mistakes);
    let program = program::read_program(&mut fields, mistakes);
    fields.finish(&known(&program::FIELDS), mistakes);
    program.map(|it| ClassKind::Program(Arc::new(it)))
}

/// Lists what is wrong with the other fields of a class without a right kind. Fields of one kind
/// only are read as that kind's; of a mixture, or of none, only unknown names are told.
fn look_at_the_rest(mut fields: Fields, mistakes: &mut Mistakes) {
    let machine = MACHINE_FIELDS.iter().any(|name| fields.has(name));
    let program = program::FIELDS.iter().any(|name| fields.has(name));
    match (machine, program) {
        (true, false) => drop(read_machine_only(fields, mistakes)),
        (false, true) => drop(read_program_only(fields, mistakes)),
        (true, true) | (false, false) => {
            let either: Vec<&str> = MACHINE_FIELDS.into_iter().chain(program::FIELDS).collect();
            for name in &either {
                fields.take(name);
            }
            fields.finish(&known(&either), mistakes);
        }
    }
}

fn known(own: &[&str]) -> String {
    let all: Vec<&str> = COMMON_FIELDS.iter().chain(own).copied().collect();
    all.join(", ")
}

fn refuse_foreign(fields: &mut Fields, names: &[&str], kind: &str, mistakes: &mut Mistakes) {
    for name in names {
        if fields.take(name).is_some() {
            mistakes.add(*name, format!("is a field of kind \"{kind}\"; a class has one kind"));
        }
    }
}

/// Names of states or events, with their indices.
struct Names {
    list: Vec<String>,
    index: BTreeMap<String, usize>,
}

impl Names {
    fn read(field: &str, list: Vec<String>, mistakes: &mut Mistakes) -> Self {
        let mut index = BTreeMap::new();
        for (at, name) in list.iter().enumerate() {
            let path = format!("{field}[{at}]");
            if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(misleads) {
                let limit = NAME_BYTES_MAX;
                mistakes.add(
                    path,
                    format!(
                        "must be 1 to {limit} bytes without control characters, also of direction"
                    ),
                );
            } else if index.contains_key(name) {
                mistakes.add(path, format!("is {name:?} again"));
                continue;
            }
            index.insert(name.clone(), at);
        }
        if list.len() > STATES_MAX {
            mistakes.add(field, format!("has {} names; the limit is {STATES_MAX}", list.len()));
        }
        Self { list, index }
    }

    fn find(&self, name: &str, path: &str, what: &str, mistakes: &mut Mistakes) -> Option<usize> {
        let found = self.index.get(name).copied();
        if found.is_none() {
            mistakes.add(path, format!("is {name:?}, which is not one of the {what}"));
        }
        found
    }
}

fn read_machine(fields: &mut Fields, mistakes: &mut Mistakes) -> Option<MachineClass> {
    let states = Names::read("states", fields.optional_texts("states", mistakes), mistakes);
    let events = Names::read("events", fields.optional_texts("events", mistakes), mistakes);
    if states.list.is_empty() {
        mistakes.add("states", "is missing or empty; a machine has at least one state");
    }
    let initial = fields
        .text("initial", mistakes)
        .and_then(|it| states.find(&it, "initial", "states", mistakes));
    let mut finals = vec![false; states.list.len()];
    for (at, name) in fields.optional_texts("final", mistakes).iter().enumerate() {
        let path = format!("final[{at}]");
        let Some(state) = states.find(name, &path, "states", mistakes) else {
            continue;
        };
        if finals[state] {
            mistakes.add(path, format!("is {name:?} again"));
        } else if initial == Some(state) {
            mistakes.add(path, format!("is {name:?}, the initial state: it would end at once"));
        }
        finals[state] = true;
    }
    let transitions = read_transitions(fields, &states, &events, &finals, mistakes);
    let report_states = fields.optional_bool("report_states", mistakes).unwrap_or(true);
    let (states, events, initial) = (states.list, events.list, initial?);
    Some(MachineClass { states, initial, finals, events, transitions, report_states })
}

fn read_transitions(
    fields: &mut Fields,
    states: &Names,
    events: &Names,
    finals: &[bool],
    mistakes: &mut Mistakes,
) -> BTreeMap<(usize, usize), usize> {
    let mut transitions = BTreeMap::new();
    let mut used = BTreeSet::new();
    for (at, item) in fields.optional_list("transitions", mistakes).into_iter().enumerate() {
        let path = format!("transitions[{at}]");
        let Value::Table(table) = item else {
            mistakes.add(path, "must be a table { from, event, to }");
            continue;
        };
        let mut item = Fields::new(&path, table);
        let from = read_from(&mut item, states, finals, mistakes);
        let event = item
            .text("event", mistakes)
            .and_then(|it| events.find(&it, &item.path("event"), "events", mistakes));
        let to = item
            .text("to", mistakes)
            .and_then(|it| states.find(&it, &item.path("to"), "states", mistakes));
        item.finish("from, event, to", mistakes);
        used.extend(event);
        let (Some(event), Some(to)) = (event, to) else {
            continue;
        };
        for from in from {
            if transitions.insert((from, event), to).is_some() {
                let (state, event) = (&states.list[from], &events.list[event]);
                let problem = format!("is a second transition from {state:?} on {event:?}");
                mistakes.add(&path, problem);
            }
        }
    }
    for (name, at) in &events.index {
        if !used.contains(at) {
            mistakes.add(format!("events[{at}]"), format!("is {name:?}, which no transition uses"));
        }
    }
    transitions
}

/// `from` is one state or a list of states.
fn read_from(
    item: &mut Fields,
    states: &Names,
    finals: &[bool],
    mistakes: &mut Mistakes,
) -> Vec<usize> {
    let path = item.path("from");
    let names = match item.take("from") {
        None => {
            mistakes.add(&path, "is missing");
            return Vec::new();
        }
        Some(Value::Array(list)) => list,
        Some(one) => vec![one],
    };
    if names.is_empty() {
        mistakes.add(&path, "is an empty list");
    }
    let mut found = Vec::new();
    for name in names {
        let Some(name) = text_of(name, &path, mistakes) else {
            continue;
        };
        let Some(state) = states.find(&name, &path, "states", mistakes) else {
            continue;
        };
        if finals[state] {
            mistakes.add(&path, format!("is {name:?}, a final state: nothing leads on from it"));
        }
        found.push(state);
    }
    found
}
