//! Where the programs are that the tests start.

use std::path::{Path, PathBuf};

/// A program of the workspace, from the folder that this test was built into
/// (`target/PROFILE/deps/TEST` beside `target/PROFILE/PROGRAM`). Fails with the command that builds
/// it when it is not there.
pub fn binary(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own program");
    let folder = test.parent().and_then(Path::parent).expect("a test lies in target/PROFILE/deps");
    let found = folder.join(name);
    assert!(
        found.is_file(),
        "{} is not built; run `cargo build --profile ci --workspace --all-targets` first \
         (deploy/test does), or the same for another profile",
        found.display()
    );
    found
}

/// The root of the checkout.
pub fn checkout() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("tests/ lies in the checkout").to_path_buf()
}
