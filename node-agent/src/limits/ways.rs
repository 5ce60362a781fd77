//! By what the machine can hold programs to a limit.

use rustix::fs::getxattr;
use std::fs;
use std::path::{Path, PathBuf};

/// Where all hierarchies of control groups are mounted.
const ROOT: &str = "/sys/fs/cgroup";

/// The group of version 2 into which an agent goes itself, so that its own group may have others below.
const OWN: &str = "agent";

/// What a kernel calls its controllers.
pub const CONTROLLERS: [&str; 3] = ["memory", "pids", "cpu"];

/// Groups of one hierarchy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hierarchy {
    /// The group of this process, below which others are made.
    pub folder: PathBuf,
    /// 1 or 2: files have other names.
    pub version: u8,
}

/// Where each limit is enforced; `None`: by no group.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ways {
    /// Memory.
    pub memory: Option<Hierarchy>,
    /// How many processes.
    pub pids: Option<Hierarchy>,
    /// Processors.
    pub cpu: Option<Hierarchy>,
}

impl Ways {
    /// Tries what this machine has.
    pub fn look() -> Self {
        let Ok(groups) = fs::read_to_string("/proc/self/cgroup") else { return Self::default() };
        if let Some(ways) = delegated(&groups) {
            return ways;
        }
        let of = |controller: &str| version_1(&groups, controller).filter(may_make_groups);
        let [memory, pids, cpu] = CONTROLLERS.map(of);
        Self { memory, pids, cpu }
    }

    /// All three by groups of version 2 below that folder.
    #[cfg(test)]
    pub fn of_version_2(folder: PathBuf) -> Self {
        let all = Some(Hierarchy { folder, version: 2 });
        Self { memory: all.clone(), pids: all.clone(), cpu: all }
    }

    /// Every hierarchy, once each.
    pub fn hierarchies(&self) -> Vec<&Hierarchy> {
        let mut all: Vec<&Hierarchy> =
            [&self.memory, &self.pids, &self.cpu].into_iter().flatten().collect();
        all.dedup();
        all
    }

    /// For people.
    pub fn shown(&self) -> String {
        let by = |way: &Option<Hierarchy>, else_by: &str| match way {
            Some(it) => format!("control groups, version {}", it.version),
            None => else_by.to_owned(),
        };
        format!(
            "memory_mib by {}; processes by {}; cpu_millis by {}",
            by(&self.memory, "RLIMIT_AS of each process"),
            by(&self.pids, "RLIMIT_NPROC of its own user"),
            by(&self.cpu, "nothing")
        )
    }
}

/// The group of this process in version 2, if its manager (systemd: `Delegate=`) left it to this process. This process
/// goes into a group below: the kernel wants processes in leaves only.
fn delegated(groups: &str) -> Option<Ways> {
    let folder = Path::new(ROOT).join(own_of_version_2(groups)?);
    let is_delegated = ["user.delegate", "trusted.delegate"].iter().any(|name| {
        let mut value = [0u8; 8];
        getxattr(&folder, *name, &mut value[..]).is_ok_and(|length| value[..length] == *b"1")
    });
    if !is_delegated {
        return None;
    }
    let leaf = folder.join(OWN);
    fs::create_dir_all(&leaf).ok()?;
    fs::write(leaf.join("cgroup.procs"), "0").ok()?;
    let there = fs::read_to_string(folder.join("cgroup.controllers")).ok()?;
    let [memory, pids, cpu] = CONTROLLERS.map(|name| {
        let is_there = there.split_whitespace().any(|it| it == name);
        let given = is_there.then(|| fs::write(folder.join("cgroup.subtree_control"), format!("+{name}")));
        if let Some(Err(error)) = &given {
            tracing::warn!(%error, controller = name, group = %folder.display(), "cannot be given on");
        }
        let is_given = given.is_some_and(|it| it.is_ok());
        is_given.then(|| Hierarchy { folder: folder.clone(), version: 2 })
    });
    Some(Ways { memory, pids, cpu })
}

/// The group that was left to this process, which may be in the one below already.
fn own_of_version_2(groups: &str) -> Option<&str> {
    let own = groups.lines().find_map(|it| it.strip_prefix("0::/"))?;
    let above = own.strip_suffix(OWN).and_then(|it| it.strip_suffix('/'));
    Some(above.unwrap_or(own))
}

/// The group of this process in the hierarchy of a controller of version 1.
fn version_1(groups: &str, controller: &str) -> Option<Hierarchy> {
    let (hierarchy, path) = groups.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (names, path) = rest.split_once(":/")?;
        names.split(',').any(|it| it == controller).then_some((names, path))
    })?;
    let folders = [hierarchy, controller].map(|it| Path::new(ROOT).join(it).join(path));
    let folder = folders.into_iter().find(|it| it.is_dir())?;
    Some(Hierarchy { folder, version: 1 })
}

fn may_make_groups(hierarchy: &Hierarchy) -> bool {
    let folder = hierarchy.folder.join(format!("rota-try-{}", std::process::id()));
    let made = fs::create_dir(&folder).is_ok();
    // It was made a moment ago, and is empty.
    made && fs::remove_dir(&folder).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hierarchy_is_named_once_and_people_see_what_holds() {
        let ways = Ways::of_version_2("/x".into());
        assert_eq!(ways.hierarchies().len(), 1);
        assert!(ways.shown().starts_with("memory_mib by control groups, version 2; "));
        let none = Ways::default();
        assert_eq!(none.hierarchies().len(), 0);
        assert!(none.shown().ends_with("; cpu_millis by nothing"), "{}", none.shown());
    }

    #[test]
    fn the_group_of_an_agent_is_the_one_above_its_leaf() {
        let own = |path: &str| own_of_version_2(&format!("0::{path}\n")).map(str::to_owned);
        assert_eq!(own("/system.slice/node.service/agent").unwrap(), "system.slice/node.service");
        assert_eq!(own("/system.slice/node.service").unwrap(), "system.slice/node.service");
        assert_eq!(own("/my-agent").unwrap(), "my-agent");
        assert_eq!(own_of_version_2("4:memory:/x\n"), None);
    }

    #[test]
    fn a_controller_is_found_in_the_list_of_groups_of_this_process() {
        let groups = "5:cpu,cpuacct:/\n4:memory:/a/b\n0::/c\n";
        assert_eq!(version_1(groups, "pids"), None);
        // Whether its folder is there depends on the machine.
        let found = version_1("4:memory:/\n", "memory");
        assert_eq!(found.is_some(), Path::new("/sys/fs/cgroup/memory").is_dir());
    }
}
