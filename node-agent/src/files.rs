//! Files that need not be there.

use std::fs;
use std::io;
use std::path::Path;

/// Removes a file or a link, if it is there.
///
/// # Errors
/// It cannot be removed.
pub fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
