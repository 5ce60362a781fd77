//! What a process keeps is its user's alone, whoever starts it and whatever the umask was.

use rota_model::FieldError;
use rustix::fs::Mode;
use rustix::process::{getuid, umask};
use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::Path;

/// Everything that a group and others may do.
const OTHERS: u32 = 0o077;
/// What a group may do beside reading, and everything that others may do.
const BEYOND_READING: u32 = 0o037;
/// A folder, and a file, that are their owner's alone.
const FOLDER: u32 = 0o700;
const FILE: u32 = 0o600;
/// Others pass through and read nothing.
const WAY: u32 = 0o711;

/// Longest file with a secret that is read, in bytes. The secret in it may be surrounded by space.
const SECRET_FILE_BYTES_MAX: u64 = 64 * 1024;

/// From here on the files and folders that this process and its children make are its user's alone. The
/// first thing that a process does.
pub fn keep_private() {
    umask(Mode::RWXG | Mode::RWXO);
}

/// Shuts a data folder that is this process's: also one that somebody made for it, that was copied, or that
/// an earlier version left open. Then everything in it is shut, too.
///
/// # Errors
/// What belongs to another user cannot be changed.
pub fn shut_folder(folder: &Path) -> io::Result<()> {
    if mode(&fs::metadata(folder)?) & OTHERS == 0 {
        return Ok(());
    }
    shut_contents(folder)?;
    // Last: a start that is cut short before does it again.
    fs::set_permissions(folder, Permissions::from_mode(FOLDER))
}

fn shut_contents(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let (path, kind) = entry.and_then(|it| Ok((it.path(), it.file_type()?)))?;
        if kind.is_dir() {
            fs::set_permissions(&path, Permissions::from_mode(FOLDER))?;
            shut_contents(&path)?;
        } else if kind.is_file() {
            fs::set_permissions(&path, Permissions::from_mode(FILE))?;
        }
    }
    Ok(())
}

/// Makes a folder, and what is missing above it, that leads to folders of nodes: the users that a node gives
/// to its sessions pass through, and see and read nothing. What is there stays as it is.
///
/// # Errors
/// It cannot be made.
pub fn make_way(folder: &Path) -> io::Result<()> {
    let missing: Vec<&Path> =
        folder.ancestors().take_while(|it| !it.as_os_str().is_empty() && !it.exists()).collect();
    fs::DirBuilder::new().recursive(true).mode(WAY).create(folder)?;
    // Without the umask.
    missing.into_iter().try_for_each(|it| fs::set_permissions(it, Permissions::from_mode(WAY)))
}

/// Takes from others what they may do with such a folder beside passing through.
///
/// # Errors
/// It belongs to another user.
pub fn shut_way(folder: &Path) -> io::Result<()> {
    let found = mode(&fs::metadata(folder)?);
    if found & OTHERS & !WAY == 0 {
        return Ok(());
    }
    fs::set_permissions(folder, Permissions::from_mode(found & WAY))
}

fn mode(of: &Metadata) -> u32 {
    of.permissions().mode() & 0o7777
}

/// Reads a secret of 1 to `bytes_max` bytes from a file that nobody else can read; space around it is left
/// out. `flag` is the option or variable that names the file.
///
/// # Errors
/// Field `flag`: the file cannot be read, others can read it, or the secret has another length.
pub fn read_secret(flag: &str, path: &Path, bytes_max: usize) -> Result<String, FieldError> {
    let wrong = |problem: String| {
        FieldError::new(flag, format!("names {}, which {problem}", path.display()))
    };
    let unreadable = |error: io::Error| wrong(format!("cannot be read: {error}"));
    let file = File::open(path).map_err(unreadable)?;
    let found = file.metadata().map_err(unreadable)?;
    if found.is_dir() {
        return Err(wrong("is a folder; name a file in it".to_owned()));
    }
    if is_open(&found, getuid().as_raw()) {
        let (mode, shown) = (mode(&found), path.display());
        let problem =
            format!("others than its owner can read (mode {mode:04o}): chmod 0600 {shown}");
        return Err(wrong(problem));
    }
    let mut text = String::new();
    file.take(SECRET_FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
    let secret = text.trim();
    if text.len() as u64 > SECRET_FILE_BYTES_MAX || !(1..=bytes_max).contains(&secret.len()) {
        let bytes = secret.len();
        return Err(wrong(format!(
            "holds a secret of {bytes} bytes; it must have 1 to {bytes_max}"
        )));
    }
    Ok(secret.to_owned())
}

/// Whether others than those who should can read a file with a secret. Root gives one to a service's user
/// by its group.
fn is_open(file: &Metadata, own_user: u32) -> bool {
    let is_given = file.uid() == 0 && own_user != 0;
    mode(file) & if is_given { BEYOND_READING } else { OTHERS } != 0
}

/// Refuses a secret that stands on the command line. `flag` takes it no more; `file_flag` names a file that
/// has it, and `variable` is that of the environment, if there is one.
pub fn secret_on_the_line(flag: &str, file_flag: &str, variable: Option<&str>) -> FieldError {
    let variable = variable.map(|it| format!(", or set {it}")).unwrap_or_default();
    let problem = format!(
        "has a secret, and every user of this machine sees the command line: give {file_flag} FILE{variable}"
    );
    FieldError::new(flag, problem)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn of(path: &Path) -> u32 {
        mode(&fs::metadata(path).unwrap())
    }

    fn open(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_folder_that_was_open_is_shut_with_all_that_is_in_it_and_no_link_is_followed() {
        let root = tempfile::tempdir().unwrap();
        let (folder, elsewhere) = (root.path().join("data"), root.path().join("elsewhere"));
        fs::create_dir_all(folder.join("below")).unwrap();
        for file in [&folder.join("a"), &folder.join("below/b"), &elsewhere] {
            fs::write(file, "x").unwrap();
            open(file, 0o644);
        }
        symlink(&elsewhere, folder.join("link")).unwrap();
        [&folder, &folder.join("below")].into_iter().for_each(|it| open(it, 0o755));
        shut_folder(&folder).unwrap();
        assert_eq!([of(&folder), of(&folder.join("below"))], [0o700; 2]);
        assert_eq!([of(&folder.join("a")), of(&folder.join("below/b"))], [0o600; 2]);
        assert_eq!(of(&elsewhere), 0o644);
    }

    #[test]
    fn a_way_to_nodes_lets_others_pass_and_read_nothing() {
        let root = tempfile::tempdir().unwrap();
        let (fresh, old, shut) =
            (root.path().join("a/b"), root.path().join("old"), root.path().join("shut"));
        [(&old, 0o755), (&shut, 0o700)].into_iter().for_each(|(path, mode)| {
            fs::create_dir(path).unwrap();
            open(path, mode);
        });
        [&fresh, &old, &shut].into_iter().for_each(|it| make_way(it).unwrap());
        assert_eq!([of(&fresh), of(fresh.parent().unwrap()), of(&old)], [0o711, 0o711, 0o755]);
        [&fresh, &old, &shut].into_iter().for_each(|it| shut_way(it).unwrap());
        assert_eq!([of(&fresh), of(&old)], [0o711; 2]);
        assert_eq!(of(&shut), 0o700, "who shut it meant that");
    }

    #[test]
    fn a_secret_that_others_can_read_is_refused_with_what_mends_it() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("key");
        fs::write(&file, "  sesame\n").unwrap();
        for mode in [0o644, 0o640, 0o604, 0o620] {
            open(&file, mode);
            let told = read_secret("--key-file", &file, 100).unwrap_err().to_string();
            let remedy = format!("chmod 0600 {}", file.display());
            assert!(told.starts_with("--key-file names ") && told.ends_with(&remedy), "{told}");
        }
        for mode in [0o600, 0o400] {
            open(&file, mode);
            assert_eq!(read_secret("--key-file", &file, 100).unwrap(), "sesame");
        }
        let told = read_secret("--key-file", &file, 5).unwrap_err().to_string();
        assert!(told.contains("a secret of 6 bytes; it must have 1 to 5"), "{told}");
        let told = read_secret("--key-file", &root.path().join("none"), 5).unwrap_err();
        assert!(told.problem.contains("cannot be read"), "{told}");
        let told = read_secret("--key-file", root.path(), 5).unwrap_err();
        assert!(told.problem.ends_with("is a folder; name a file in it"), "{told}");
    }

    #[test]
    fn a_secret_on_the_line_is_refused_with_where_it_belongs() {
        let told = secret_on_the_line("--key", "--key-file", Some("ROTA_KEY")).to_string();
        assert!(told.contains("give --key-file FILE, or set ROTA_KEY"), "{told}");
    }
}
