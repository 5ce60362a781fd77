//! What a node keeps its programs from, and what it needs for that.
//!
//! ```text
//!  none   the program is the node's own user: it can end its keeper, its agent and the guardian
//!  basic  a user of its own for each live session (users), which owns its working folder alone;
//!         no new privileges; a pid namespace that ends with the keeper (namespace), where the kernel
//!         lets the node make one
//! ```
//!
//! A group of processes in a cgroup would do for the namespace. It waits for limits of memory and
//! processor time, which need one: the namespace works without a delegated subtree, in containers too.

pub mod namespace;
mod reach;
mod users;
pub mod way;

pub use reach::{barrier, file_barrier, program_barrier, program_missing};
pub use users::{User, UserRange, Users};

use anyhow::Context;
use rota_model::Sandbox;
use rota_node::class::{Class, ClassKind, ProgramClass};
use rustix::process::getuid;
use rustix::thread::{CapabilitySet, capabilities};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

/// What the processes of a node need to give programs users of their own, and to end and clear up what
/// belongs to these.
const NEEDED: [(CapabilitySet, &str); 6] = [
    (CapabilitySet::CHOWN, "CHOWN"),
    (CapabilitySet::DAC_OVERRIDE, "DAC_OVERRIDE"),
    (CapabilitySet::FOWNER, "FOWNER"),
    (CapabilitySet::KILL, "KILL"),
    (CapabilitySet::SETGID, "SETGID"),
    (CapabilitySet::SETUID, "SETUID"),
];

/// Where the system looks for programs when nobody says it.
pub const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What a node can do at most.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ability {
    /// Uids for sessions; empty where it cannot give any.
    users: Vec<u32>,
    /// Why it cannot do more than `none`.
    obstacle: Option<String>,
    /// What no class may go below (`--sandbox-min`).
    least: Sandbox,
}

impl Ability {
    /// Of this process with that data folder, which need not be there yet.
    pub fn look(data: &Path, range: UserRange) -> Self {
        let users = range.free();
        let obstacle = lacking().or_else(|| {
            let none = "no uid of --program-users is free on this machine".to_owned();
            if users.is_empty() { Some(none) } else { None }
        });
        let in_the_way = || barrier(data).map(|why| format!("--data: {why}"));
        let obstacle = obstacle.or_else(in_the_way);
        let users = if obstacle.is_none() { users } else { Vec::new() };
        Self { users, obstacle, least: Sandbox::None }
    }

    /// The same, where no class may go below `least`.
    #[must_use]
    pub fn and_no_less_than(self, least: Sandbox) -> Self {
        Self { least, ..self }
    }

    /// The most.
    pub fn best(&self) -> Sandbox {
        if self.obstacle.is_none() { Sandbox::Basic } else { Sandbox::None }
    }

    /// Why it is not more.
    pub fn obstacle(&self) -> Option<&str> {
        self.obstacle.as_deref()
    }

    /// What is wrong with that class here: it asks for more than there is, or for less than it must.
    pub fn mistake_of(&self, class: &Class) -> Option<String> {
        let least = self.least;
        let wanted = program_of(class)?.sandbox?;
        let text = wanted.as_str();
        if wanted > self.best() {
            let why = self.obstacle.as_deref().unwrap_or_default();
            return Some(format!("sandbox is {text:?}, which this node cannot do: {why}"));
        }
        let least_text = least.as_str();
        let refused = format!("sandbox is {text:?}, and --sandbox-min is {least_text}");
        (wanted < least).then_some(refused)
    }

    /// Why a session of that class cannot start as a user of its own; `None` if it can, as far as that can
    /// be seen from here, or if it does not get one.
    pub fn unreachable_of(&self, class: &Class) -> Option<String> {
        let program = program_of(class)?;
        let basic = program.sandbox.unwrap_or(self.best()) == Sandbox::Basic;
        if basic { unreachable_in(program) } else { None }
    }
}

/// What a user that owns nothing cannot run or read of that class: the program, and whatever else of its
/// arguments names a file of this machine.
pub fn unreachable_in(program: &ProgramClass) -> Option<String> {
    let mut texts = program.argv.iter().enumerate().map(|(at, it)| (at, it.as_text()));
    let search = search_of(program);
    let of_text = |at: usize, text: &str| {
        if at == 0 {
            return program_barrier(text, search.as_deref().unwrap_or_default());
        }
        let file = Path::new(text);
        file.is_absolute().then(|| file_barrier(file)).flatten()
    };
    texts.find_map(|(at, text)| Some(format!("argv[{at}]: {}", of_text(at, text?)?)))
}

/// Why the program of that class is not on this machine; `None` if it is, or if that depends on the session.
pub fn missing_of(class: &Class) -> Option<String> {
    let program = program_of(class)?;
    let name = program.argv.first()?.as_text()?;
    Some(format!("argv[0]: {}", program_missing(name, &search_of(program)?)?))
}

/// Why the program of that class is not in the class's own folder, where it should lie; `None` if it is, or lies
/// elsewhere.
pub fn missing_below(class: &Class, folder: &str) -> Option<String> {
    let name = program_of(class)?.argv.first()?.in_class_folder(folder)?;
    Some(format!("argv[0]: {}", program_missing(&name, "")?))
}

/// The `PATH` by which its program is found; `None` if that depends on the session.
fn search_of(program: &ProgramClass) -> Option<String> {
    match program.env.get("PATH") {
        Some(of_class) => of_class.as_text().map(str::to_owned),
        None => Some(std::env::var("PATH").unwrap_or_else(|_| DEFAULT_PATH.to_owned())),
    }
}

fn program_of(class: &Class) -> Option<&ProgramClass> {
    match &class.kind {
        ClassKind::Program(program) => Some(program),
        ClassKind::Machine(_) => None,
    }
}

/// What this process lacks.
fn lacking() -> Option<String> {
    let has = capabilities(None).map_or(CapabilitySet::empty(), |it| it.effective);
    let lacks: Vec<&str> =
        NEEDED.iter().filter(|(it, _)| !has.contains(*it)).map(|(_, name)| *name).collect();
    let (user, names) = (getuid().as_raw(), lacks.join(", "));
    let text =
        format!("it runs as uid {user} and lacks the capabilities {names}: start it as root");
    (!lacks.is_empty()).then_some(text)
}

/// What a node gives its programs.
#[derive(Debug)]
pub struct Sandboxes {
    /// What a class that asks for nothing gets.
    pub best: Sandbox,
    users: Option<Users>,
    /// Whether the kernel lets it make pid namespaces.
    pub pid_namespace: bool,
}

impl Sandboxes {
    /// Nothing.
    #[cfg(test)]
    pub fn none() -> Self {
        Self { best: Sandbox::None, users: None, pid_namespace: false }
    }

    /// Tries what can only be tried. `somewhere` is where in the range the choice of uids begins.
    ///
    /// # Errors
    /// This program cannot be started again.
    pub fn new(ability: &Ability, somewhere: u64) -> anyhow::Result<Self> {
        let users = ability.users.clone();
        let users = (!users.is_empty()).then(|| Users::new(users, somewhere));
        let pid_namespace = users.is_some() && can_make_namespaces()?;
        Ok(Self { best: ability.best(), users, pid_namespace })
    }

    /// The user for a session of that class; `None` where it shares that of the node.
    ///
    /// # Errors
    /// For people: no uid is left.
    pub fn user_for(&self, program: &ProgramClass) -> Result<Option<User>, String> {
        match (program.sandbox, &self.users) {
            (Some(Sandbox::None), _) | (None, None) => Ok(None),
            (Some(Sandbox::Basic), None) => {
                Err("sandbox is \"basic\", which this node cannot do".to_owned())
            }
            (Some(Sandbox::Basic) | None, Some(users)) => {
                let user = users.choose().map_err(|error| format!("no uid for it: {error}"))?;
                Ok(Some(user))
            }
        }
    }
}

/// Whether a first process of a pid namespace comes up here.
fn can_make_namespaces() -> anyhow::Result<bool> {
    // A thread of its own: one that made a namespace starts no further thread.
    let tried = thread::spawn(|| {
        if let Err(error) = namespace::of_next_child() {
            tracing::debug!(%error, "no pid namespace");
            return Ok(false);
        }
        let mut command = Command::new("/proc/self/exe");
        command.arg0("rota-node-agent").args(["first", "--probe"]).env_clear().current_dir("/");
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().map(|status| status.success())
    });
    let tried = tried.join().unwrap_or(Ok(false));
    tried.context("cannot start this program again")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(lines: &str) -> Class {
        let text = format!("name = \"c\"\nkind = \"program\"\n{lines}");
        Class::parse("c.toml", &text).unwrap()
    }

    #[test]
    fn a_class_gets_no_more_than_its_node_can_do_and_no_less_than_it_must() {
        let able = Ability { users: vec![200_000], obstacle: None, least: Sandbox::None };
        let obstacle = Some("it is not root".to_owned());
        let unable = Ability { users: vec![], obstacle, least: Sandbox::None };
        assert_eq!((able.best(), unable.best()), (Sandbox::Basic, Sandbox::None));
        let [free, none, basic] = ["", "sandbox = \"none\"", "sandbox = \"basic\""]
            .map(|line| class(&format!("argv = [\"sh\"]\n{line}")));
        for class in [&free, &none] {
            assert_eq!(unable.mistake_of(class), None);
        }
        let why = unable.mistake_of(&basic).unwrap();
        assert_eq!(why, "sandbox is \"basic\", which this node cannot do: it is not root");
        let strict = able.and_no_less_than(Sandbox::Basic);
        assert_eq!((strict.mistake_of(&free), strict.mistake_of(&basic)), (None, None));
        let why = strict.mistake_of(&none).unwrap();
        assert_eq!(why, "sandbox is \"none\", and --sandbox-min is basic");
    }

    #[test]
    fn files_that_a_user_of_its_own_cannot_reach_are_named_with_their_argument() {
        use std::os::unix::fs::PermissionsExt;
        let home = tempfile::tempdir().unwrap();
        let script = home.path().join("server.py");
        std::fs::write(&script, "").unwrap();
        std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        let class = class(&format!("argv = [\"sh\", \"{}\"]", script.display()));
        let able = Ability { users: vec![200_000], obstacle: None, least: Sandbox::None };
        let why = able.unreachable_of(&class).unwrap();
        assert!(why.starts_with("argv[1]: ") && why.contains("is of mode 0700"), "{why}");
        let unable = Ability { users: vec![], obstacle: Some(String::new()), least: Sandbox::None };
        assert_eq!(unable.unreachable_of(&class), None);
        std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o711)).unwrap();
        assert_eq!(able.unreachable_of(&class), None);
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o600)).unwrap();
        let why = able.unreachable_of(&class).unwrap();
        assert!(why.contains("is of mode 0600, and others cannot read it"), "{why}");
    }
}
