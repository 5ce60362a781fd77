//! Words that have no place in the project: they speak of how it was made and on which machine,
//! or name hosts that users may not have.

use crate::{content, expect_none, tracked};

/// A needle. Each is written in pieces, so that this file does not hold it.
struct Needle {
    text: &'static str,
    /// Must stand alone, not inside a longer word.
    alone: bool,
    /// Upper and lower case differ.
    exact: bool,
}

const fn word(text: &'static str) -> Needle {
    Needle { text, alone: true, exact: false }
}

const fn piece(text: &'static str) -> Needle {
    Needle { text, alone: false, exact: false }
}

const NEEDLES: &[Needle] = &[
    Needle { text: concat!("A", "I"), alone: true, exact: true },
    word(concat!("L", "LM")),
    word(concat!("G", "PT")),
    word(concat!("hel", "per")),
    word(concat!("hel", "pers")),
    word(concat!("assis", "tant")),
    word(concat!("assis", "tants")),
    word(concat!("chat", "bot")),
    word(concat!("co", "pilot")),
    piece(concat!("anth", "ropic")),
    piece(concat!("open", "ai")),
    piece(concat!("cla", "ude")),
    piece(concat!("language", " model")),
    piece(concat!("artificial", " intelligence")),
    piece(concat!("coding", " agent")),
    piece(concat!("coding", " session")),
    piece(concat!("work", " session")),
    piece(concat!("session of", " work")),
    piece(concat!("work", "place")),
    piece(concat!("co-authored", "-by")),
    piece(concat!("/wo", "rk/")),
    piece(concat!("../sha", "red")),
    piece(concat!("index.crates", ".io")),
    piece(concat!("static.crates", ".io")),
    piece(concat!("py", "pi.org")),
    piece(concat!("python", "hosted.org")),
    piece(concat!("npm", "js.org")),
    piece(concat!("deb.deb", "ian.org")),
    piece(concat!("proxy.go", "lang.org")),
];

/// Written by cargo, with names of packages that we did not choose.
const NOT_OURS: [&str; 1] = ["Cargo.lock"];

fn is_in_word(it: char) -> bool {
    it.is_alphanumeric()
}

fn holds(line: &str, lower: &str, needle: &Needle) -> bool {
    let text = if needle.exact { needle.text.to_owned() } else { needle.text.to_lowercase() };
    let line = if needle.exact { line } else { lower };
    let stands_alone = |at: usize| {
        let before = line[..at].chars().next_back();
        let after = line[at + text.len()..].chars().next();
        !before.is_some_and(is_in_word) && !after.is_some_and(is_in_word)
    };
    line.match_indices(&text).any(|(at, _)| !needle.alone || stands_alone(at))
}

/// What is found in each line, with its place. The name of the file counts as its line 0.
fn mistakes_of<'a>(
    path: &'a str,
    text: &'a str,
    found_in: impl Fn(&'a str) -> Vec<&'a str>,
) -> Vec<String> {
    let lines = std::iter::once(path).chain(text.lines()).enumerate();
    let found =
        lines.flat_map(|(number, line)| found_in(line).into_iter().map(move |it| (number, it)));
    found.map(|(number, it)| format!("{path}:{number}: {it:?}")).collect()
}

fn unwanted_words(path: &str, text: &str) -> Vec<String> {
    mistakes_of(path, text, |line| {
        let lower = line.to_lowercase();
        let found = NEEDLES.iter().filter(|needle| holds(line, &lower, needle));
        found.map(|needle| needle.text).collect()
    })
}

#[test]
fn no_tracked_file_has_an_unwanted_word() {
    let files = tracked().into_iter().filter(|it| !NOT_OURS.contains(&it.as_str()));
    let mistakes: Vec<_> = files.flat_map(|it| unwanted_words(&it, &content(&it))).collect();
    expect_none(&mistakes);
}

#[test]
fn every_unwanted_word_is_found_also_in_capitals_and_in_names_of_files() {
    for needle in NEEDLES {
        let text = format!("fine\nsee {} here\n", needle.text);
        assert_eq!(unwanted_words("a", &text), [format!("a:2: {:?}", needle.text)]);
        if !needle.exact {
            assert_eq!(unwanted_words("a", &text.to_uppercase()).len(), 1, "{:?}", needle.text);
        }
        assert_eq!(unwanted_words(&format!("a.{}.md", needle.text), "").len(), 1);
    }
}

#[test]
fn longer_words_that_contain_an_unwanted_one_are_fine() {
    let fine = "MAIL, DETAIL, hai, ai: failed; a shelperd, GPTs";
    assert_eq!(unwanted_words("a", fine), Vec::<String>::new());
}

/// Names that gave way to the field's terms (docs/glossary.md). Each stood for something that has another name now. One
/// of small letters is found in names of types, too.
const GONE: &[&str] = &[
    concat!("coun", "cil"),
    concat!("cond", "emned"),
    concat!("err", "and"),
    concat!("let", "_go"),
    concat!("Hold", "ings"),
    concat!("she", "lf"),
    concat!("cen", "sus"),
    concat!("Part", "Meta"),
    concat!("Sync", "Taken"),
    concat!("Prom", "ised"),
    concat!("dh", "op"),
];

fn names_of(line: &str) -> impl Iterator<Item = &str> {
    line.split(|it: char| !it.is_alphanumeric() && it != '_').filter(|it| !it.is_empty())
}

/// `RingTask` as `ring_task`.
fn snake(name: &str) -> String {
    let parts = name.char_indices().map(|(at, letter)| {
        let begins = letter.is_uppercase() && at > 0;
        format!("{}{}", if begins { "_" } else { "" }, letter.to_lowercase())
    });
    parts.collect()
}

fn is_gone(name: &str) -> bool {
    let padded = format!("_{name}_{}_", snake(name));
    let is_part =
        |it: &str| padded.contains(&format!("_{it}_")) || padded.contains(&format!("_{it}s_"));
    GONE.iter().any(|gone| is_part(gone))
}

fn gone_names(path: &str, text: &str) -> Vec<String> {
    mistakes_of(path, text, |line| names_of(line).filter(|name| is_gone(name)).collect())
}

#[test]
fn no_name_stands_for_what_has_a_term_of_the_field() {
    let files = tracked().into_iter().filter(|it| it.ends_with(".rs") || it.ends_with(".proto"));
    let mistakes: Vec<_> = files.flat_map(|it| gone_names(&it, &content(&it))).collect();
    expect_none(&mistakes);
}

#[test]
fn names_that_are_gone_are_found_alone_in_longer_names_and_in_names_of_files() {
    for gone in GONE {
        let text = format!("fine\nlet x = {gone}::new();\n");
        assert_eq!(gone_names("a", &text), [format!("a:2: {gone:?}")]);
    }
    let longer = format!("fn begin_{}(self)", GONE[2]);
    assert_eq!(gone_names("a", &longer).len(), 1);
    assert_eq!(gone_names(&format!("src/{}s/mod.rs", GONE[2]), "").len(), 1);
    let kind = format!("struct {}{}Begun", GONE[2][..1].to_uppercase(), &GONE[2][1..]);
    assert_eq!(gone_names("a", &kind).len(), 1);
    assert_eq!(gone_names("a", "SessionCounts, promised, lets_go"), Vec::<String>::new());
}
