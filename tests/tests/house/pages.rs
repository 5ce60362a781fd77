//! What the pages show is what is there.

use crate::{content, expect_none, tracked};

const README: &str = "README.md";

/// The blocks of a page that are fenced with that language.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("```{language}\n");
    let after = page.split(fence.as_str()).skip(1);
    after.map(|rest| rest.split("```").next().unwrap_or(rest)).collect()
}

/// A class in a page that no shipped file is equal to.
fn strange_class(block: &str, shipped: &[String]) -> Option<String> {
    let known = shipped.iter().any(|it| it == block);
    (!known).then(|| format!("{README} shows a class that deploy/classes does not have:\n{block}"))
}

#[test]
fn each_class_that_the_readme_shows_is_a_file_that_ships() {
    let files = tracked().into_iter().filter(|it| it.starts_with("deploy/classes/"));
    let shipped: Vec<String> = files.map(|it| content(&it)).collect();
    let page = content(README);
    let shown = blocks(&page, "toml");
    assert!(!shown.is_empty(), "{README} shows a class");
    let mistakes: Vec<_> = shown.iter().filter_map(|it| strange_class(it, &shipped)).collect();
    expect_none(&mistakes);
}

#[test]
fn a_class_that_differs_from_its_file_is_found() {
    let page = "text\n```toml\nname = \"a\"\n```\nmore\n```console\n$ x\n```\n";
    assert_eq!(blocks(page, "toml"), ["name = \"a\"\n"]);
    assert_eq!(strange_class("name = \"a\"\n", &["name = \"a\"\n".to_owned()]), None);
    assert!(
        strange_class("name = \"a\"\n", &["name = \"a\"\ngrace = \"2s\"\n".to_owned()]).is_some()
    );
}
