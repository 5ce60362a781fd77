//! Where the programs of a cluster are, and where its classes.

use anyhow::{Context, bail};
use std::path::{Path, PathBuf};

/// The manager.
pub const MANAGER: &str = "rota-manager";
/// The node-agent.
pub const NODE_AGENT: &str = "rota-node-agent";
/// The config store.
pub const CONFIG_STORE: &str = "rota-config-store";

/// Looks in ROTA_BIN_DIR, then beside this program, then in PATH.
pub fn program(name: &str) -> anyhow::Result<PathBuf> {
    let given = std::env::var_os("ROTA_BIN_DIR").map(PathBuf::from);
    let beside = std::env::current_exe().ok().and_then(|it| it.parent().map(Path::to_owned));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> =
        given.into_iter().chain(beside.clone()).chain(std::env::split_paths(&path)).collect();
    if let Some(found) = find(name, &folders) {
        return Ok(found);
    }
    let beside = beside.unwrap_or_default();
    bail!("{name} is neither in ROTA_BIN_DIR nor beside ringctl ({}) nor in PATH", beside.display())
}

fn find(name: &str, folders: &[PathBuf]) -> Option<PathBuf> {
    folders.iter().map(|it| it.join(name)).find(|it| it.is_file())
}

/// The class files that come with Rota: `deploy/classes` of the checkout that this program was
/// built in, or `share/rota/classes` beside its `bin`.
pub fn shipped_classes() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let candidates = program.ancestors().skip(1).take(5);
    let both = candidates.flat_map(|it| [it.join("deploy/classes"), it.join("share/rota/classes")]);
    both.into_iter().find(|it| it.is_dir())
}

/// State machines that need no program: they are there wherever ringctl is.
const BUILT_IN: [(&str, &str); 3] = [
    ("builtin.toml", include_str!("../../../deploy/classes/builtin.toml")),
    ("counter.toml", include_str!("../../../deploy/classes/counter.toml")),
    ("traffic-light.toml", include_str!("../../../deploy/classes/traffic-light.toml")),
];

/// Puts the class files that this program carries into a folder that has none.
pub fn fill_with_classes(folder: &Path) -> anyhow::Result<()> {
    if has_classes(folder) {
        return Ok(());
    }
    let write = || {
        std::fs::create_dir_all(folder)?;
        BUILT_IN.iter().try_for_each(|(name, text)| std::fs::write(folder.join(name), text))
    };
    write().with_context(|| format!("cannot write class files into {}", folder.display()))
}

/// Whether a folder has class files.
pub fn has_classes(folder: &Path) -> bool {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|it| it.path()).any(|it| it.extension().is_some_and(|it| it == "toml"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_files_are_those_that_end_in_toml() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!has_classes(&folder.path().join("none")));
        std::fs::write(folder.path().join("README.md"), "").unwrap();
        assert!(!has_classes(folder.path()));
        std::fs::write(folder.path().join("counter.toml"), "").unwrap();
        assert!(has_classes(folder.path()));
    }

    #[test]
    fn a_folder_gets_the_built_in_classes_only_when_it_has_none() {
        let folder = tempfile::tempdir().unwrap();
        let classes = folder.path().join("classes");
        fill_with_classes(&classes).unwrap();
        assert_eq!(std::fs::read_dir(&classes).unwrap().count(), BUILT_IN.len());
        let own = tempfile::tempdir().unwrap();
        std::fs::write(own.path().join("mine.toml"), "").unwrap();
        fill_with_classes(own.path()).unwrap();
        assert_eq!(std::fs::read_dir(own.path()).unwrap().count(), 1);
    }

    #[test]
    fn the_first_folder_that_has_the_program_wins() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let folders = [first.path().to_owned(), second.path().to_owned()];
        assert_eq!(find("p", &folders), None);
        std::fs::write(second.path().join("p"), "").unwrap();
        assert_eq!(find("p", &folders), Some(second.path().join("p")));
        std::fs::write(first.path().join("p"), "").unwrap();
        assert_eq!(find("p", &folders), Some(first.path().join("p")));
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = program("rota-no-such-program").unwrap_err().to_string();
        assert!(error.contains("rota-no-such-program") && error.contains("PATH"), "{error}");
    }
}
