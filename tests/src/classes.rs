//! Class files for a cluster.

use crate::binaries::checkout;
use crate::folder::TestFolder;

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
    std::fs::create_dir_all(&classes).expect("the folder can be made");
    let shipped = std::fs::read_dir(checkout().join("deploy/classes"));
    for entry in shipped.expect("deploy/classes is there").flatten() {
        std::fs::copy(entry.path(), classes.join(entry.file_name())).expect("a file can be copied");
    }
    classes_of(folder, more)
}
