//! Whether a user that owns nothing can get to a file.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Execution by others, which of a folder means passing through it.
const BY_OTHERS: u32 = 0o001;

const READ_BY_OTHERS: u32 = 0o004;

/// Execution by its owner, its group or others.
const BY_ANYBODY: u32 = 0o111;

/// Why a session's user cannot pass through that folder; `None` if it can. What is not there yet is made
/// by the node, and counts as passable. `path` is absolute or in the working folder.
pub fn barrier(path: &Path) -> Option<String> {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    // Of what is there, links are followed as the kernel will.
    let existing = absolute.ancestors().find_map(|it| it.canonicalize().ok())?;
    let folders: Vec<&Path> = existing.ancestors().collect();
    folders.into_iter().rev().find_map(closed)
}

fn closed(folder: &Path) -> Option<String> {
    let mode = fs::metadata(folder).ok()?.permissions().mode();
    let shown = folder.display();
    (mode & BY_OTHERS == 0).then(|| {
        format!(
            "{shown} is of mode {:04o}, and others cannot pass through it: chmod o+x {shown}",
            mode & 0o7777
        )
    })
}

/// Why a session's user cannot read that file, or pass through that folder; `None` if it can, or if nothing is
/// there. `path` is absolute.
pub fn file_barrier(path: &Path) -> Option<String> {
    let there = fs::metadata(path).ok()?;
    if there.is_dir() {
        return barrier(path);
    }
    let mode = there.mode() & 0o7777;
    let shown = path.display();
    let unreadable = || {
        let is_so = there.is_file() && mode & READ_BY_OTHERS == 0;
        is_so.then(|| {
            format!("{shown} is of mode {mode:04o}, and others cannot read it: chmod o+r {shown}")
        })
    };
    barrier(path.parent()?).or_else(unreadable)
}

/// Why a session's user cannot run the program; `None` if it can or if it is not there at all. `name` is
/// the first item of an `argv`: a path, or a name that `search` (a `PATH`) leads to.
pub fn program_barrier(name: &str, search: &str) -> Option<String> {
    let mut first = None;
    for candidate in candidates(name, search) {
        let Some(there) = fs::metadata(&candidate).ok().filter(Metadata::is_file) else { continue };
        match program_closed(&candidate, &there) {
            // The system looks further after one that may not be run.
            Some(why) => drop(first.get_or_insert(why)),
            None => return None,
        }
    }
    first
}

/// Why there is no program of that name; `None` if there is one, or if that cannot be seen from here: a path
/// that begins in the session's folder is made later. Name and `search` as in [`program_barrier`].
pub fn program_missing(name: &str, search: &str) -> Option<String> {
    let is_path = name.contains('/');
    if is_path && !Path::new(name).is_absolute() {
        return None;
    }
    let may_be_run = |path: &PathBuf| match fs::metadata(path) {
        Ok(there) => there.is_file() && there.mode() & BY_ANYBODY != 0,
        // Whoever may see more than this process may find it there.
        Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
    };
    if candidates(name, search).iter().any(may_be_run) {
        return None;
    }
    Some(match fs::metadata(name).is_ok() && is_path {
        true => format!("{name} is no program: it is no file, or nobody may run it"),
        false if is_path => format!("{name} is not there"),
        false => format!("{name} is in no folder of PATH ({search})"),
    })
}

/// Where the system looks for a program.
fn candidates(name: &str, search: &str) -> Vec<PathBuf> {
    if name.contains('/') {
        vec![PathBuf::from(name)]
    } else {
        std::env::split_paths(search).map(|it| it.join(name)).collect()
    }
}

fn program_closed(path: &Path, there: &Metadata) -> Option<String> {
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty())?;
    // A link may lead elsewhere, and both folders are passed.
    let target = path.canonicalize().ok()?;
    let way = barrier(folder).or_else(|| barrier(target.parent()?));
    let shown = path.display();
    if let Some(why) = way {
        return Some(format!("{shown} cannot be reached: {why}, or put the program elsewhere"));
    }
    // The interpreter of a script reads it, as the user that runs it.
    let needed = if is_script(path) { BY_OTHERS | READ_BY_OTHERS } else { BY_OTHERS };
    (there.mode() & needed != needed)
        .then(|| format!("{shown} cannot be run by others: chmod o+rx {shown}"))
}

fn is_script(path: &Path) -> bool {
    let mut begin = [0; 2];
    File::open(path).and_then(|mut it| it.read_exact(&mut begin)).is_ok() && begin == *b"#!"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn the_first_folder_that_others_cannot_pass_is_named() {
        let root = tempfile::tempdir().unwrap();
        let (home, data) = (root.path().join("home"), root.path().join("home/data"));
        fs::create_dir_all(&data).unwrap();
        for (path, mode) in [(root.path(), 0o711), (home.as_path(), 0o750), (&data, 0o755)] {
            set_mode(path, mode);
        }
        let why = barrier(&data.join("not/there/yet")).unwrap();
        let shown = home.canonicalize().unwrap();
        assert!(why.starts_with(&format!("{} is of mode 0750", shown.display())), "{why}");
        set_mode(&home, 0o711);
        assert_eq!(barrier(&data.join("not/there/yet")), None);
    }

    #[test]
    fn a_program_is_found_as_the_system_finds_it() {
        let root = tempfile::tempdir().unwrap();
        set_mode(root.path(), 0o711);
        let [shut, open] = ["shut", "open"].map(|name| root.path().join(name));
        for (folder, mode) in [(&shut, 0o700), (&open, 0o711)] {
            fs::create_dir(folder).unwrap();
            fs::write(folder.join("tool"), "#!/bin/sh\n").unwrap();
            set_mode(&folder.join("tool"), 0o755);
            set_mode(folder, mode);
        }
        let both = format!("{}:{}", shut.display(), open.display());
        assert_eq!(program_barrier("tool", &both), None);
        let why = program_barrier("tool", shut.to_str().unwrap()).unwrap();
        assert!(why.contains("shut is of mode 0700"), "{why}");
        let path = open.join("tool");
        assert_eq!(program_barrier(path.to_str().unwrap(), ""), None);
        set_mode(&path, 0o750);
        let why = program_barrier(path.to_str().unwrap(), "").unwrap();
        assert!(why.contains("cannot be run by others"), "{why}");
        // Its interpreter reads it.
        set_mode(&path, 0o711);
        assert!(program_barrier(path.to_str().unwrap(), "").is_some());
        fs::write(&path, b"\x7fELF").unwrap();
        assert_eq!(program_barrier(path.to_str().unwrap(), ""), None);
        assert_eq!(program_barrier("no-such-tool", &both), None);
    }
}
