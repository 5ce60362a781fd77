//! What the pages show is what is there, and they stay short enough to be read.

use crate::{content, expect_none, tracked};
use std::collections::BTreeSet;

const README: &str = "README.md";

/// Most lines of a page.
const BUDGETS: &[(&str, usize)] = &[(README, 180), ("ARCHITECTURE.md", 300)];

/// Most words of a sentence on the pages that have a budget.
const WORDS_MAX: usize = 45;

/// Digits in a row from which on a number is taken for a seed.
const SEED_DIGITS: usize = 7;

/// Endings of files that a page names, whether or not they begin at the root.
const ENDINGS: &[&str] = &[".rs", ".md", ".toml", ".proto", ".hcl", ".service"];

/// A page and its text.
struct Page {
    path: String,
    text: String,
}

impl Page {
    fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }

    /// The lines outside of fenced blocks; those inside are empty, so that lines keep their numbers.
    fn prose(&self) -> Vec<&str> {
        let mut fenced = false;
        let mut lines = Vec::new();
        for line in self.text.lines() {
            let is_fence = line.trim_start().starts_with("```");
            fenced ^= is_fence;
            lines.push(if fenced || is_fence { "" } else { line });
        }
        lines
    }

    /// Measurements, seeds and history live there.
    fn may_have_seeds(&self) -> bool {
        self.path == "docs/performance.md" || self.path.starts_with("docs/decisions/")
    }
}

/// Pages for users and for those who change Rota. The CHANGELOG is history.
fn pages() -> Vec<Page> {
    let roots = [README, "ARCHITECTURE.md", "CONTRIBUTING.md"];
    let is_page = |path: &String| {
        roots.contains(&path.as_str()) || (path.starts_with("docs/") && path.ends_with(".md"))
    };
    let paths = tracked().into_iter().filter(is_page);
    paths.map(|path| Page { text: content(&path), path }).collect()
}

/// The files of a checkout.
struct Files {
    all: BTreeSet<String>,
}

impl Files {
    fn of(paths: &[&str]) -> Self {
        Self { all: paths.iter().map(|path| (*path).to_owned()).collect() }
    }

    /// Whether it is a file or a folder, from the root.
    fn has(&self, path: &str) -> bool {
        let folder = format!("{}/", path.trim_end_matches('/'));
        self.all.contains(path) || self.all.iter().any(|file| file.starts_with(&folder))
    }

    /// Whether a folder somewhere has that name (`rpc/`).
    fn has_folder_named(&self, name: &str) -> bool {
        let inner = format!("/{name}");
        self.all.iter().any(|file| file.starts_with(name) || file.contains(&inner))
    }

    /// Whether a file somewhere has that name.
    fn has_file_named(&self, name: &str) -> bool {
        self.all.iter().any(|file| file.rsplit('/').next() == Some(name))
    }
}

/// What stands between backticks.
fn code_spans(prose: &str) -> Vec<&str> {
    prose.split('`').skip(1).step_by(2).map(str::trim).collect()
}

/// Where links lead to.
fn link_targets(prose: &str) -> Vec<&str> {
    let after = prose.split("](").skip(1);
    after.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target).collect()
}

fn looks_like_a_path(span: &str) -> bool {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "_.-/".contains(letter);
    !span.starts_with('/') && !span.is_empty() && span.chars().all(fits)
}

/// Whether a span that looks like a path names nothing.
fn leads_nowhere(span: &str, files: &Files) -> bool {
    let ends_as_file = ENDINGS.iter().any(|ending| span.ends_with(ending));
    match span.split_once('/') {
        Some((first, _)) if files.has(first) => !files.has(span),
        Some(_) if span.ends_with('/') => !files.has_folder_named(span),
        Some(_) => ends_as_file,
        None => span.ends_with(".rs") && !files.has_file_named(span),
    }
}

/// A link's path from the root, without its anchor.
fn resolved(page: &str, target: &str) -> String {
    let path = target.split('#').next().unwrap_or(target);
    if path.is_empty() {
        return page.to_owned();
    }
    let folder = page.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            ".." => {
                parts.pop();
            }
            "." | "" => {}
            other => parts.push(other),
        }
    }
    parts.join("/")
}

/// The anchor that a heading gets.
fn anchor_of(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
    kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

/// Whether the link names a heading that its page does not have. `others` are all pages.
fn lacks_anchor(page: &str, target: &str, others: &[Page]) -> bool {
    let Some((_, anchor)) = target.split_once('#') else { return false };
    let path = resolved(page, target);
    let headings = others.iter().filter(|other| other.path == path);
    let mut headings = headings.flat_map(Page::prose).filter(|line| line.starts_with('#'));
    !headings.any(|heading| anchor_of(heading) == anchor)
}

/// Paths and links of a page that lead nowhere.
fn lost_ways(page: &Page, files: &Files, others: &[Page]) -> Vec<String> {
    let prose = page.prose().join("\n");
    let spans = code_spans(&prose).into_iter().filter(|span| looks_like_a_path(span));
    let spans = spans.filter(|span| leads_nowhere(span, files));
    let links = link_targets(&prose).into_iter().filter(|target| !target.starts_with("http"));
    let links = links.filter(|target| {
        !files.has(&resolved(&page.path, target)) || lacks_anchor(&page.path, target, others)
    });
    spans.chain(links).map(|lost| format!("{}: {lost} is not there", page.path)).collect()
}

fn has_seed(line: &str) -> bool {
    line.split(|letter: char| !letter.is_ascii_digit()).any(|digits| digits.len() >= SEED_DIGITS)
}

fn has_commit(line: &str) -> bool {
    line.split(|letter: char| !letter.is_ascii_alphanumeric()).any(|word| {
        let is_hex =
            word.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        let is_mixed = word.bytes().any(|byte| byte.is_ascii_digit())
            && word.bytes().any(|byte| byte.is_ascii_lowercase());
        (7..=40).contains(&word.len()) && is_hex && is_mixed
    })
}

/// Lines with a seed or a commit, where none belongs.
fn history(page: &Page) -> Vec<String> {
    if page.may_have_seeds() {
        return Vec::new();
    }
    let numbered = page.prose().into_iter().zip(1..);
    let found = numbered.filter(|(line, _)| has_seed(line) || has_commit(line));
    found.map(|(line, number)| format!("{}:{number}: {}", page.path, line.trim())).collect()
}

/// What follows the mark of an item of a list.
fn list_item(line: &str) -> Option<&str> {
    let after_digits = line.trim_start_matches(|letter: char| letter.is_ascii_digit());
    let is_numbered = after_digits.len() < line.len();
    let numbered = after_digits.strip_prefix(". ").filter(|_| is_numbered);
    numbered.or_else(|| line.strip_prefix("* ")).or_else(|| line.strip_prefix("- "))
}

/// Paragraphs, items of lists and cells of tables, each as one text.
fn paragraphs(page: &Page) -> Vec<String> {
    let mut texts = vec![String::new()];
    for line in page.prose() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            texts.push(String::new());
        } else if line.starts_with('|') {
            texts.extend(line.split('|').map(str::to_owned));
            texts.push(String::new());
        } else if let Some(item) = list_item(line) {
            texts.push(item.to_owned());
        } else if let Some(text) = texts.last_mut() {
            text.push(' ');
            text.push_str(line);
        }
    }
    texts
}

/// The sentences of a text, each as its words.
fn sentences(text: &str) -> Vec<Vec<&str>> {
    let mut all = vec![Vec::new()];
    for word in text.split_whitespace() {
        if let Some(sentence) = all.last_mut()
            && word.contains(char::is_alphanumeric)
        {
            sentence.push(word);
        }
        if word.ends_with(['.', '!', '?']) {
            all.push(Vec::new());
        }
    }
    all
}

fn long_sentences(page: &Page) -> Vec<String> {
    let mut mistakes = Vec::new();
    for paragraph in paragraphs(page) {
        let long = sentences(&paragraph).into_iter().filter(|words| words.len() > WORDS_MAX);
        mistakes.extend(long.map(|words| {
            let beginning = words[..8].join(" ");
            format!("{}: {} words from {beginning:?} on", page.path, words.len())
        }));
    }
    mistakes
}

fn too_long(page: &Page) -> Option<String> {
    let (_, most) = BUDGETS.iter().find(|(path, _)| *path == page.path)?;
    let lines = page.text.lines().count();
    (lines > *most).then(|| format!("{}: {lines} lines; the limit is {most}", page.path))
}

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

#[test]
fn the_first_pages_keep_to_their_lines_and_their_sentences_are_short() {
    let all = pages();
    let first = all.iter().filter(|page| BUDGETS.iter().any(|(path, _)| *path == page.path));
    let first: Vec<&Page> = first.collect();
    assert_eq!(first.len(), BUDGETS.len(), "each page with a budget is there");
    let mut mistakes: Vec<String> = first.iter().filter_map(|page| too_long(page)).collect();
    mistakes.extend(first.iter().flat_map(|page| long_sentences(page)));
    expect_none(&mistakes);
}

#[test]
fn every_path_and_every_link_of_a_page_leads_somewhere() {
    let (files, all) = (Files { all: tracked().into_iter().collect() }, pages());
    let mistakes: Vec<_> = all.iter().flat_map(|page| lost_ways(page, &files, &all)).collect();
    expect_none(&mistakes);
}

#[test]
fn seeds_and_commits_stand_where_measurements_and_decisions_do() {
    let mistakes: Vec<_> = pages().iter().flat_map(history).collect();
    expect_none(&mistakes);
}

#[test]
fn a_page_that_is_too_long_and_a_sentence_that_is_are_found() {
    let page = |text: &str| Page::new(README, text);
    assert_eq!(too_long(&page(&"x\n".repeat(180))), None);
    assert!(too_long(&page(&"x\n".repeat(181))).is_some());
    let words = |count: usize| "word ".repeat(count);
    assert_eq!(long_sentences(&page(&format!("{}end.\n", words(44)))), Vec::<String>::new());
    for text in [
        format!("{}\nend.", words(45)),
        format!("* {}\n  end.", words(45)),
        format!("1. {} end", words(45)),
        format!("| a | {} end |", words(45)),
    ] {
        assert_eq!(long_sentences(&page(&text)).len(), 1, "{text}");
    }
    let apart = format!("{}\n\n{}\n* {}\n", words(40), words(40), words(40));
    assert_eq!(long_sentences(&page(&apart)), Vec::<String>::new());
    let fenced = format!("```text\n{}\n```\n", words(60));
    assert_eq!(long_sentences(&page(&fenced)), Vec::<String>::new());
}

#[test]
fn a_path_and_a_link_that_lead_nowhere_are_found() {
    let files = Files::of(&["README.md", "docs/a.md", "manager/src/rpc/list.rs"]);
    let ways = |path: &str, text: &str| {
        let page = Page::new(path, text);
        let others = [Page::new("docs/a.md", "# A\n\n## What limits `an` open\n")];
        lost_ways(&page, &files, &others).len()
    };
    for fine in [
        "`manager/src/rpc/list.rs`, `manager/src`, `rpc/`, `list.rs`, `a / b`, `/etc/x.rs`",
        "`shop/cart-7`, `std::fs`, `127.0.0.1:7400`, [a](a.md), [b](../README.md), [c](../manager)",
        "[a](a.md#what-limits-an-open) and [far](https://example.org/x)",
        "```text\n`manager/src/gone.rs`\n```",
    ] {
        assert_eq!(ways("docs/b.md", fine), 0, "{fine}");
    }
    for lost in [
        "`manager/src/gone.rs`",
        "`src/lib.rs`",
        "`gone.rs`",
        "`gone/`",
        "[a](gone.md)",
        "[b](README.md)",
        "[c](a.md#gone)",
    ] {
        assert_eq!(ways("docs/b.md", lost), 1, "{lost}");
    }
}

#[test]
fn a_seed_and_a_commit_are_found_and_amounts_are_not() {
    let found = |path: &str, text: &str| history(&Page::new(path, text)).len();
    for seed in ["seed 1070014189 shows", "before that (5954ff0)"] {
        assert_eq!(found("docs/a.md", seed), 1, "{seed}");
        assert_eq!(found("docs/performance.md", seed), 0, "{seed}");
        assert_eq!(found("docs/decisions/001-a.md", seed), 0, "{seed}");
    }
    for amount in ["1,000,000 sessions", "200000-265535", "defaced", "```\n261122231039143\n```"] {
        assert_eq!(found("docs/a.md", amount), 0, "{amount}");
    }
}
