//! The rules of the house, checked: arrows between crates and rooms, purity, manifests, pages, length of files,
//! words. Each check also has a violating example made by hand, which it must find.

/// So that `test(house)` names all of them.
#[path = "."]
mod house {
    mod arrows;
    mod files;
    mod manifests;
    mod pages;
    mod protos;
    mod purity;
    mod rooms;
    mod simulator;
    mod words;
}

use std::path::PathBuf;
use std::process::Command;

/// The root of the checkout.
fn root() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("tests/ lies in the checkout").to_path_buf()
}

/// What a command printed.
fn printed_by(command: &mut Command) -> String {
    let output = command.current_dir(root()).output().expect("the command starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).expect("the command prints UTF-8")
}

/// `cargo metadata`, without asking any network.
fn metadata(arguments: &[&str]) -> serde_json::Value {
    let mut cargo = Command::new(env!("CARGO"));
    let text =
        printed_by(cargo.args(["metadata", "--format-version", "1", "--offline"]).args(arguments));
    serde_json::from_str(&text).expect("cargo prints JSON")
}

/// Paths of the files that git tracks (and that still exist), relative to the root.
fn tracked() -> Vec<String> {
    let list = printed_by(Command::new("git").args(["ls-files", "-z"]));
    let exists = |path: &&str| !path.is_empty() && root().join(path).is_file();
    list.split('\0').filter(exists).map(Into::into).collect()
}

/// The content of a file; bytes that are no text are replaced.
fn content(path: &str) -> String {
    let bytes = std::fs::read(root().join(path)).expect("a tracked file can be read");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Fails with every mistake that was found.
fn expect_none(mistakes: &[String]) {
    assert!(mistakes.is_empty(), "{} mistake(s):\n{}", mistakes.len(), mistakes.join("\n"));
}
