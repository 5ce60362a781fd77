//! Actions of a class: programs in its folder. Listing the folder is the caller's work; what lies there is checked here.
//!
//! ```text
//!  CLASSES/NAME.toml                     the class
//!  CLASSES/NAME/actions/LIFECYCLE        its program for all events of a life cycle
//!  CLASSES/NAME/actions/LIFECYCLE/EVENT  or one for each event: `paid`, or `billing?paid`
//! ```

use super::source::Mistakes;
use rota_model::life::LIFE_CYCLES_MAX;
use std::collections::{BTreeMap, BTreeSet};

/// Longest name of a life cycle or of an event.
const NAME_CHARACTERS_MAX: usize = 64;

/// Most programs for events of one life cycle.
const EVENTS_MAX: usize = 256;

/// Life cycles that a class has without a program: each is told by fields of its own.
const RESERVED: [&str; 6] =
    ["idle", "max_life", "start_timeout", "close_grace", "restart", "health"];

/// Of a class without actions.
pub(super) static NO_ACTIONS: ActionFolder = ActionFolder { files: Vec::new() };

/// What lies in the folder of a class's actions.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct ActionFolder {
    /// Each entry, in order of path.
    pub files: Vec<ActionFile>,
}

/// An entry of the folder.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ActionFile {
    /// Its path below `actions`, by its names.
    pub path: Vec<String>,
    /// What was found there.
    pub found: FoundAction,
}

/// What an entry of a folder of actions is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FoundAction {
    /// A file that may be run, with the digest of its content.
    Program([u8; 32]),
    /// A folder without anything in it.
    EmptyFolder,
    /// A file that nobody may run.
    NotExecutable,
    /// A link that leads out of the class's folder.
    LeadsOut,
    /// A folder where only files may be.
    TooDeep,
    /// It cannot be read, or is no file; why.
    Unusable(String),
}

impl ActionFolder {
    /// The name and the digest of each program, in order.
    pub(super) fn programs(&self) -> impl Iterator<Item = (String, &[u8; 32])> {
        self.files.iter().filter_map(|file| match &file.found {
            FoundAction::Program(digest) => Some((file.path.join("/"), digest)),
            FoundAction::EmptyFolder
            | FoundAction::NotExecutable
            | FoundAction::LeadsOut
            | FoundAction::TooDeep
            | FoundAction::Unusable(_) => None,
        })
    }

    /// The life cycles that have a program, each with the events that have one; none: one for all events.
    pub(super) fn life_cycles(
        &self,
        mistakes: &mut Mistakes,
    ) -> BTreeMap<String, BTreeSet<String>> {
        let mut cycles: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for ActionFile { path, found } in &self.files {
            let field = format!("actions/{}", path.join("/"));
            if let Some(problem) = problem_of(path, found) {
                mistakes.add(field, problem);
                continue;
            }
            let mut names = path.iter().cloned();
            let Some(cycle) = names.next() else { continue };
            cycles.entry(cycle).or_default().extend(names.next());
        }
        if cycles.len() > LIFE_CYCLES_MAX {
            let problem =
                format!("has {} life cycles; the limit is {LIFE_CYCLES_MAX}", cycles.len());
            mistakes.add("actions", problem);
        }
        for (name, _) in cycles.iter().filter(|(_, events)| events.len() > EVENTS_MAX) {
            let problem = format!("has programs for more than {EVENTS_MAX} events");
            mistakes.add(format!("actions/{name}"), problem);
        }
        cycles
    }
}

fn problem_of(path: &[String], found: &FoundAction) -> Option<String> {
    let names = match path {
        [cycle] => life_cycle_problem(cycle),
        [cycle, event] => life_cycle_problem(cycle).or_else(|| event_problem(event)),
        _ => Some("lies too deep: an action is a file LIFECYCLE or LIFECYCLE/EVENT".to_owned()),
    };
    names.or_else(|| match found {
        FoundAction::Program(_) => None,
        FoundAction::EmptyFolder => Some("is a folder without a program".to_owned()),
        FoundAction::NotExecutable => Some("is not executable: chmod +x".to_owned()),
        FoundAction::LeadsOut => Some("is a link that leads out of the class's folder".to_owned()),
        FoundAction::TooDeep => Some("is a folder; it must be a file for one event".to_owned()),
        FoundAction::Unusable(why) => Some(format!("cannot be used: {why}")),
    })
}

/// Whether that may be the name of a life cycle or of an event.
pub fn is_action_name(name: &str) -> bool {
    let of_name = |it: u8| it.is_ascii_alphanumeric() || b"_-.".contains(&it);
    (1..=NAME_CHARACTERS_MAX).contains(&name.len())
        && name.bytes().all(of_name)
        && name.as_bytes()[0].is_ascii_alphanumeric()
}

/// What is wrong with the name of a life cycle.
pub(super) fn life_cycle_problem(name: &str) -> Option<String> {
    if RESERVED.contains(&name) {
        let known = RESERVED.join(", ");
        return Some(format!("has a reserved name: {known} are told by fields of life"));
    }
    (!is_action_name(name)).then(|| form(name))
}

fn event_problem(name: &str) -> Option<String> {
    let is_one = match name.split_once('?') {
        Some((cycle, event)) => is_action_name(cycle) && is_action_name(event),
        None => is_action_name(name),
    };
    (!is_one).then(|| form(name))
}

fn form(name: &str) -> String {
    format!(
        "has the name {name:?}; a name has 1 to {NAME_CHARACTERS_MAX} characters of a to z, A to Z, 0 to 9, _, - \
         and ., and begins with a letter or digit"
    )
}
