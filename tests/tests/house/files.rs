//! Files that fit into a head.

use crate::{content, expect_none, tracked};

/// Most lines of a Rust file, not counting its `mod tests`.
const LINES_MAX: usize = 600;

/// Lines of a file without its inline test modules: those behind `#[cfg(test)]`, up to the
/// closing brace in the first column.
fn lines_without_tests(code: &str) -> usize {
    let mut lines = code.lines().peekable();
    let mut count = 0;
    while let Some(line) = lines.next() {
        let begins_tests = line == "#[cfg(test)]"
            && lines.peek().is_some_and(|it| it.starts_with("mod ") && it.ends_with('{'));
        if begins_tests {
            lines.by_ref().find(|it| *it == "}");
        } else {
            count += 1;
        }
    }
    count
}

fn too_long(path: &str, code: &str) -> Option<String> {
    let lines = lines_without_tests(code);
    (lines > LINES_MAX).then(|| format!("{path}: {lines} lines; the limit is {LINES_MAX}"))
}

#[test]
fn no_rust_file_is_longer_than_its_limit() {
    let files = tracked().into_iter().filter(|it| it.ends_with(".rs"));
    let mistakes: Vec<_> = files.filter_map(|it| too_long(&it, &content(&it))).collect();
    expect_none(&mistakes);
}

#[test]
fn a_long_file_is_found_and_its_tests_do_not_count() {
    let code = "fn f() {}\n".repeat(600);
    let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "    // x\n".repeat(600));
    assert_eq!(too_long("a.rs", &format!("{code}{tests}")), None);
    let longer = format!("{code}{tests}\n");
    let expected = Some("a.rs: 601 lines; the limit is 600".to_owned());
    assert_eq!(too_long("a.rs", &longer), expected);
}

/// Files beside a `main.rs` of tests that it does not name: nobody builds them.
fn unnamed<'a>(main: &str, code: &str, files: impl Iterator<Item = &'a str>) -> Vec<String> {
    let folder = main.strip_suffix("main.rs").unwrap_or(main);
    let beside = files.filter_map(|it| it.strip_prefix(folder)?.strip_suffix(".rs"));
    let modules = beside.map(|it| it.strip_suffix("/mod").unwrap_or(it));
    let modules = modules.filter(|it| !it.contains('/') && *it != "main");
    let is_named = |module: &str| code.lines().any(|it| it.trim() == format!("mod {module};"));
    modules.filter(|it| !is_named(it)).map(|it| format!("{main} does not name {it}")).collect()
}

#[test]
fn a_program_of_tests_names_every_file_beside_it() {
    let files = tracked();
    let mains = files.iter().filter(|it| it.contains("tests/") && it.ends_with("/main.rs"));
    let all = |main: &String| unnamed(main, &content(main), files.iter().map(String::as_str));
    let mistakes: Vec<_> = mains.flat_map(all).collect();
    expect_none(&mistakes);
}

#[test]
fn a_file_that_no_program_of_tests_names_is_found() {
    let files = ["a/tests/main.rs", "a/tests/b.rs", "a/tests/c/mod.rs", "a/tests/c/d.rs", "a/e.rs"];
    let found = |code: &str| unnamed("a/tests/main.rs", code, files.into_iter());
    assert_eq!(found("mod b;\n    mod c;\n"), Vec::<String>::new());
    assert_eq!(found("mod b;\n"), ["a/tests/main.rs does not name c"]);
}
