//! A test's own folder.

use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A folder that no other test has. It is removed at the end, unless the test failed: then it
/// stays, and its path is printed.
#[derive(Debug)]
pub struct TestFolder {
    path: PathBuf,
}

impl TestFolder {
    /// Makes one below the system's folder for temporary files.
    #[expect(clippy::new_without_default, reason = "it makes something on disk")]
    pub fn new() -> Self {
        let made = tempfile::Builder::new().prefix("rota-test-").tempdir();
        let path = made.expect("a temporary folder can be made").keep();
        // Programs see the path without links, and so do we.
        let path = path.canonicalize().expect("the folder was just made");
        Self { path }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path below it, as text for a command line.
    pub fn at(&self, below: &str) -> String {
        self.path.join(below).to_str().expect("the path is UTF-8").to_owned()
    }

    /// Writes a file below it that nobody else can read, as keys must be. Gives its path.
    pub fn secret(&self, below: &str, text: &str) -> String {
        let mut file = std::fs::File::options();
        let mut file = file
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(self.path.join(below))
            .expect("the file can be written");
        file.write_all(text.as_bytes()).expect("the file can be written");
        self.at(below)
    }

    /// Writes a program of the shell below it, in a folder that is made. Gives its path.
    pub fn script(&self, below: &str, text: &str) -> String {
        let path = self.path.join(below);
        let above = path.parent().expect("it is below the folder");
        std::fs::create_dir_all(above).expect("the test's folder takes it");
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("the test's folder takes it");
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&path, executable).expect("it is our own");
        self.at(below)
    }
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the test's folder was kept: {}", self.path.display());
            return;
        }
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            eprintln!("cannot remove {}: {error}", self.path.display());
        }
    }
}
