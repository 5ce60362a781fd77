//! Imports between the files of the wire: one that is not used is a warning for everybody who makes
//! stubs of them.

use crate::{content, expect_none, tracked};

/// Code without comments.
fn code(text: &str) -> String {
    text.lines().map(|it| it.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|it: char| !it.is_alphanumeric() && it != '_')
}

/// Names of the messages and enumerations of a file.
fn defined(text: &str) -> Vec<String> {
    let lines = text.lines().map(str::trim);
    let names = lines.filter_map(|it| it.strip_prefix("message ").or(it.strip_prefix("enum ")));
    names.filter_map(|it| words(it).next()).map(str::to_owned).collect()
}

/// Imports of a file of which it uses nothing.
fn unused(text: &str, read: impl Fn(&str) -> String) -> Vec<String> {
    let text = code(text);
    let imports = text.lines().filter_map(|it| it.strip_prefix("import \"")?.strip_suffix("\";"));
    let is_unused = |import: &&str| {
        let there = defined(&code(&read(import)));
        !words(&text).any(|word| there.iter().any(|it| it == word))
    };
    imports.filter(is_unused).map(str::to_owned).collect()
}

#[test]
fn no_file_of_the_wire_imports_what_it_does_not_use() {
    let files = tracked();
    let protos: Vec<&String> = files.iter().filter(|it| it.ends_with(".proto")).collect();
    assert!(protos.len() > 3, "{protos:?}");
    let mistakes = protos.iter().flat_map(|path| {
        let of = unused(&content(path), |import| content(&format!("proto/{import}")));
        of.into_iter().map(move |import| format!("{path} imports {import} and uses nothing of it"))
    });
    expect_none(&mistakes.collect::<Vec<_>>());
}

#[test]
fn an_import_that_is_not_used_is_found() {
    let there = |_: &str| "message Used {\n}\nenum Kind {\n}".to_owned();
    let using =
        |line: &str| unused(&format!("import \"a.proto\";\nmessage M {{\n  {line}\n}}"), there);
    assert_eq!(using("Used one = 1;"), Vec::<String>::new());
    assert_eq!(using("repeated Kind all = 1;"), Vec::<String>::new());
    assert_eq!(using("uint32 one = 1; // Used"), ["a.proto"]);
}
