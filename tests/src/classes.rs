//! Class files for a cluster.

use crate::binaries::checkout;
use crate::folder::TestFolder;
use std::path::Path;

/// A folder with these classes alone (name, TOML); gives its path.
pub fn classes_of(folder: &TestFolder, list: &[(&str, &str)]) -> String {
    let classes = folder.path().join("classes");
    std::fs::create_dir_all(&classes).expect("the folder can be made");
    for (name, text) in list {
        let file = classes.join(format!("{name}.toml"));
        std::fs::write(file, text).expect("a file can be written");
    }
    folder.at("classes")
}

/// A folder with the classes that ship and these further ones (name, TOML); gives its path.
pub fn shipped_classes_and(folder: &TestFolder, more: &[(&str, &str)]) -> String {
    let classes = folder.path().join("classes");
    copy_all(&checkout().join("deploy/classes"), &classes);
    classes_of(folder, more)
}

/// The files of a folder, and those below it.
fn copy_all(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("the folder can be made");
    for entry in std::fs::read_dir(from).expect("the folder is there").flatten() {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy_all(&from, &to);
        } else {
            std::fs::copy(from, to).expect("a file can be copied");
        }
    }
}
