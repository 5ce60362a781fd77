//! The folders of classes: which actions lie in them, and where one is when it is to be run.

use rota_node::class::{ActionFile, ActionFolder, FoundAction, is_action_name};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The folder of actions in that of a class.
const ACTIONS: &str = "actions";

/// Most entries of one folder that are looked at. More than that a class cannot have, and is told so.
const ENTRIES_MAX: usize = 1_000;

/// Read at once of an action's content.
const PART_BYTES: usize = 64 * 1024;

/// What lies in the folder of each class, by the folder's name.
///
/// # Errors
/// The folder of all classes cannot be read.
pub fn list(classes: &Path) -> io::Result<BTreeMap<String, ActionFolder>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(classes)? {
        let entry = entry?;
        let (name, actions) = (entry.file_name(), entry.path().join(ACTIONS));
        if let Some(name) = name.to_str()
            && actions.is_dir()
        {
            all.insert(name.to_owned(), actions_of(&entry.path(), &actions));
        }
    }
    Ok(all)
}

fn actions_of(class: &Path, actions: &Path) -> ActionFolder {
    let mut files = Vec::new();
    let look = || -> io::Result<(PathBuf, Vec<(String, PathBuf)>)> {
        Ok((class.canonicalize()?, entries(actions)?))
    };
    match look() {
        Ok((root, found)) => {
            for (name, path) in found {
                look_at(&root, vec![name], &path, &mut files);
            }
        }
        Err(error) => {
            let (path, found) = (Vec::new(), FoundAction::Unusable(error.to_string()));
            files.push(ActionFile { path, found });
        }
    }
    files.sort();
    ActionFolder { files }
}

/// Name and path of each entry, in order of name.
fn entries(folder: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)?.take(ENTRIES_MAX) {
        let entry = entry?;
        found.push((entry.file_name().to_string_lossy().into_owned(), entry.path()));
    }
    found.sort();
    Ok(found)
}

fn look_at(root: &Path, path: Vec<String>, at: &Path, files: &mut Vec<ActionFile>) {
    let found = match at.canonicalize() {
        Err(error) => FoundAction::Unusable(error.to_string()),
        Ok(real) if !real.starts_with(root) => FoundAction::LeadsOut,
        Ok(real) if real.is_dir() && path.len() > 1 => FoundAction::TooDeep,
        Ok(real) if real.is_dir() => match entries(&real) {
            Err(error) => FoundAction::Unusable(error.to_string()),
            Ok(inside) if inside.is_empty() => FoundAction::EmptyFolder,
            Ok(inside) => {
                for (name, below) in inside {
                    look_at(root, [&path[..], &[name]].concat(), &below, files);
                }
                return;
            }
        },
        Ok(real) => file(&real),
    };
    files.push(ActionFile { path, found });
}

fn file(path: &Path) -> FoundAction {
    let look = || -> io::Result<Option<[u8; 32]>> {
        // Whatever is no file, a pipe for one, is never opened.
        let metadata = fs::metadata(path)?;
        if !metadata.is_file() {
            return Err(io::Error::other("it is no file"));
        }
        if metadata.permissions().mode() & 0o111 == 0 {
            return Ok(None);
        }
        let (mut file, mut hash, mut part) =
            (File::open(path)?, Sha256::new(), vec![0; PART_BYTES]);
        loop {
            match file.read(&mut part)? {
                0 => return Ok(Some(hash.finalize().into())),
                count => hash.update(&part[..count]),
            }
        }
    };
    match look() {
        Ok(Some(digest)) => FoundAction::Program(digest),
        Ok(None) => FoundAction::NotExecutable,
        Err(error) => FoundAction::Unusable(error.to_string()),
    }
}

/// The program of a class for an event of a life cycle, as the class's folder has it now.
///
/// # Errors
/// Why there is none that can be run.
pub fn action(classes: &Path, class: &str, cycle: &str, event: &str) -> Result<PathBuf, String> {
    let is_event = event.split('?').all(is_action_name) && event.split('?').count() <= 2;
    let is_folder = !class.is_empty() && !class.contains('/') && class != "." && class != "..";
    if !is_folder || !is_action_name(cycle) || !is_event {
        return Err(format!("class {class} has no action {cycle} for {event:?}"));
    }
    let (folder, none) = (classes.join(class), |error: io::Error| {
        format!("action {cycle} of class {class}: {error}")
    });
    let root = folder.canonicalize().map_err(none)?;
    let all = root.join(ACTIONS).join(cycle).canonicalize().map_err(none)?;
    let program = if all.is_dir() { all.join(event).canonicalize().map_err(none)? } else { all };
    let metadata = fs::metadata(&program).map_err(none)?;
    if !program.starts_with(&root) || !metadata.is_file() {
        return Err(format!(
            "action {cycle} of class {class} leads out of its folder or is no file"
        ));
    }
    if metadata.permissions().mode() & 0o111 == 0 {
        return Err(format!("action {cycle} of class {class} is not executable"));
    }
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn program(path: &Path, mode: u32) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn scene() -> tempfile::TempDir {
        let classes = tempfile::tempdir().unwrap();
        let actions = classes.path().join("shop/actions");
        program(&actions.join("billing/paid"), 0o755);
        program(&actions.join("billing/stock?gone"), 0o755);
        program(&actions.join("mail"), 0o755);
        program(&actions.join("idle-note"), 0o644);
        program(&classes.path().join("elsewhere"), 0o755);
        symlink(classes.path().join("elsewhere"), actions.join("out")).unwrap();
        symlink("mail", actions.join("post")).unwrap();
        symlink("nowhere", actions.join("broken")).unwrap();
        fs::create_dir_all(actions.join("deep/er/est")).unwrap();
        fs::create_dir_all(actions.join("empty")).unwrap();
        classes
    }

    #[test]
    fn the_folder_of_a_class_is_listed_with_what_each_entry_is() {
        let classes = scene();
        let all = list(classes.path()).unwrap();
        assert_eq!(all.keys().collect::<Vec<_>>(), ["shop"]);
        let shown: Vec<String> = all["shop"]
            .files
            .iter()
            .map(|file| {
                let what = match &file.found {
                    FoundAction::Program(_) => "program",
                    FoundAction::EmptyFolder => "empty",
                    FoundAction::NotExecutable => "not executable",
                    FoundAction::LeadsOut => "out",
                    FoundAction::TooDeep => "deep",
                    FoundAction::Unusable(_) => "unusable",
                };
                format!("{} {what}", file.path.join("/"))
            })
            .collect();
        let expected = [
            "billing/paid program",
            "billing/stock?gone program",
            "broken unusable",
            "deep/er deep",
            "empty empty",
            "idle-note not executable",
            "mail program",
            "out out",
            "post program",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn the_class_that_ships_with_an_action_has_it() {
        let classes = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/classes"));
        let read = crate::settings::read_classes(classes).unwrap();
        let name = rota_model::ClassName::parse("notes").unwrap();
        let cycles = &read[&name].text.facts.life.life_cycles;
        assert_eq!(cycles.keys().collect::<Vec<_>>(), ["reminder"]);
        assert!(action(classes, "notes", "reminder", "note").is_ok());
    }

    #[test]
    fn an_action_is_found_by_life_cycle_and_event_and_never_outside_of_its_class() {
        let classes = scene();
        let find = |class, cycle, event| action(classes.path(), class, cycle, event);
        assert!(find("shop", "billing", "paid").unwrap().ends_with("shop/actions/billing/paid"));
        assert!(find("shop", "billing", "stock?gone").is_ok() && find("shop", "mail", "x").is_ok());
        for (class, cycle, event) in [
            ("shop", "billing", "sent"),
            ("shop", "idle-note", "x"),
            ("shop", "out", "x"),
            ("shop", "..", "x"),
            ("shop", "mail", "../x"),
            ("..", "mail", "x"),
            ("shop/../shop", "mail", "x"),
            ("other", "mail", "x"),
        ] {
            assert!(find(class, cycle, event).is_err(), "{class} {cycle} {event}");
        }
    }
}
