//! Every crate inherits lints, versions and package fields from the root.

use crate::{content, expect_none, tracked};
use toml::{Table, Value};

/// Package fields that stand in the root only.
const INHERITED: [&str; 5] = ["version", "edition", "rust-version", "license", "publish"];
const DEPENDENCIES: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];

fn inherits(value: Option<&Value>) -> bool {
    value.and_then(|it| it.get("workspace")).and_then(Value::as_bool) == Some(true)
}

/// Dependencies of one table (the manifest, or one of its targets) that name a version, a path or
/// a source of their own.
fn own_versions(path: &str, table: &Table) -> Vec<String> {
    let mut mistakes = Vec::new();
    for section in DEPENDENCIES {
        for (name, value) in table.get(section).and_then(Value::as_table).into_iter().flatten() {
            if !inherits(Some(value)) {
                mistakes.push(format!("{path}: {section}.{name} is not `workspace = true`"));
            }
        }
    }
    mistakes
}

fn manifest_mistakes(path: &str, text: &str) -> Vec<String> {
    let manifest: Table = match text.parse() {
        Ok(manifest) => manifest,
        Err(error) => return vec![format!("{path}: {error}")],
    };
    let mut mistakes = own_versions(path, &manifest);
    for target in manifest.get("target").and_then(Value::as_table).into_iter().flatten() {
        mistakes.extend(own_versions(path, target.1.as_table().unwrap_or(&Table::new())));
    }
    if !inherits(manifest.get("lints")) {
        mistakes.push(format!("{path}: [lints] is not `workspace = true`"));
    }
    for field in INHERITED {
        if !inherits(manifest.get("package").and_then(|it| it.get(field))) {
            mistakes.push(format!("{path}: package.{field} is not `workspace = true`"));
        }
    }
    mistakes
}

#[test]
fn every_crate_inherits_lints_versions_and_package_fields() {
    let manifests = tracked().into_iter().filter(|it| it.ends_with("/Cargo.toml"));
    let mistakes: Vec<_> = manifests.flat_map(|it| manifest_mistakes(&it, &content(&it))).collect();
    expect_none(&mistakes);
}

#[test]
fn a_manifest_with_its_own_versions_or_lints_is_found() {
    let text = r#"
        [package]
        name = "x"
        version = "0.2.0"
        edition.workspace = true
        rust-version.workspace = true
        license.workspace = true
        publish.workspace = true
        [dependencies]
        serde = "1"
        rota-model.workspace = true
        tokio = { workspace = true, features = ["fs"] }
        [target.'cfg(unix)'.dev-dependencies]
        rota-ring = { path = "../ring" }
        [lints.rust]
        unsafe_code = "allow"
    "#;
    let expected = [
        "x: dependencies.serde is not `workspace = true`",
        "x: dev-dependencies.rota-ring is not `workspace = true`",
        "x: [lints] is not `workspace = true`",
        "x: package.version is not `workspace = true`",
    ];
    assert_eq!(manifest_mistakes("x", text), expected);
}
