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
