//! The way to a session's working folder: a user of its own passes through, and sees and reads nothing.

use anyhow::Context;
use rota_daemon::private::make_way;
use rota_model::Sandbox;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Others pass through and read nothing.
const PASSABLE: u32 = 0o711;
/// A folder and a file that are their owner's alone.
const SHUT: (u32, u32) = (0o700, 0o600);

/// Makes the data folder, and what is missing above it.
///
/// # Errors
/// Which folder cannot be made.
pub fn make(data: &Path, best: Sandbox) -> anyhow::Result<()> {
    let made = match best {
        Sandbox::None => fs::create_dir_all(data),
        Sandbox::Basic => make_way(data),
    };
    made.with_context(|| format!("cannot make the data folder {}", data.display()))
}

/// Gives a data folder that is a node's the rights that it needs, and no more; also one of an earlier
/// version, or one that somebody copied.
///
/// # Errors
/// What cannot be changed: it belongs to another user.
pub fn open(data: &Path, best: Sandbox) -> anyhow::Result<()> {
    for entry in fs::read_dir(data).context("cannot read the data folder")?.flatten() {
        if entry.file_type().is_ok_and(|it| it.is_file()) {
            set_mode(&entry.path(), SHUT.1)?;
        }
    }
    let mode = if best == Sandbox::None { SHUT.0 } else { PASSABLE };
    set_mode(&data.join("sessions"), mode)?;
    set_mode(data, mode)
}

/// What has its mode already is left alone: `boots` goes by when one of these files was changed last.
fn set_mode(path: &Path, mode: u32) -> anyhow::Result<()> {
    let set = fs::metadata(path).and_then(|found| {
        let is_so = found.permissions().mode() & 0o7777 == mode;
        if is_so { Ok(()) } else { fs::set_permissions(path, Permissions::from_mode(mode)) }
    });
    match set {
        // The guardian of an earlier agent may have removed it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        set => set.with_context(|| format!("cannot set the rights of {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn others_pass_through_a_data_folder_only_where_programs_have_users_of_their_own() {
        let root = tempfile::tempdir().unwrap();
        for (best, expected) in [(Sandbox::Basic, 0o711), (Sandbox::None, 0o700)] {
            let data = root.path().join(best.as_str()).join("n1");
            make(&data, best).unwrap();
            fs::create_dir(data.join("sessions")).unwrap();
            fs::write(data.join("lease"), "1 2").unwrap();
            fs::set_permissions(data.join("lease"), Permissions::from_mode(0o644)).unwrap();
            open(&data, best).unwrap();
            assert_eq!([mode(&data), mode(&data.join("sessions"))], [expected; 2]);
            assert_eq!(mode(&data.join("lease")), 0o600);
        }
        assert_eq!(mode(&root.path().join("basic")), 0o711);
    }
}
