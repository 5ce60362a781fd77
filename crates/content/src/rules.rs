//! `content.toml`: which fileset a file belongs to, by where it lies and by its extension.

use crate::category::FilesetName;
use crate::path::FilePath;
use crate::tree::Fileset;
use rota_model::{FieldError, Labels, PoolName};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// The file of rules, at the root of the content. It is no part of the content.
pub const RULES_FILE: &str = "content.toml";
/// Longest text of it, in bytes.
pub const RULES_BYTES_MAX: usize = 64 * 1024;
/// Most filesets.
const FILESETS_MAX: usize = 64;
/// Most folders, extensions and pools of one.
const LISTED_MAX: usize = 1_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    #[serde(default)]
    fileset: Vec<FilesetText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FilesetText {
    category: String,
    #[serde(default)]
    under: Vec<String>,
    #[serde(default)]
    extensions: Vec<String>,
    #[serde(default = "yes")]
    eager: bool,
    #[serde(default)]
    pools: Vec<String>,
    #[serde(default)]
    labels: Labels,
}

fn yes() -> bool {
    true
}

/// What one fileset takes.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Rule {
    name: FilesetName,
    /// Without any: wherever a file lies.
    under: Vec<FilePath>,
    /// Without any: whatever its extension.
    extensions: BTreeSet<String>,
}

impl Rule {
    fn takes(&self, path: &FilePath) -> bool {
        let here = self.under.is_empty() || self.under.iter().any(|it| path.is_under(it));
        let is_kind = self.extensions.is_empty()
            || path.extension().is_some_and(|it| self.extensions.contains(it));
        here && is_kind
    }
}

/// The filesets of a repository.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rules {
    rules: Vec<Rule>,
    filesets: BTreeMap<FilesetName, Fileset>,
    /// As it was written.
    text: String,
}

impl Default for Rules {
    /// One fileset with all files, which every node downloads.
    fn default() -> Self {
        let name = FilesetName::default_name();
        let filesets = BTreeMap::from([(name, Fileset::for_everybody())]);
        Self { rules: Vec::new(), filesets, text: String::new() }
    }
}

impl Rules {
    /// Reads the file of rules.
    ///
    /// # Errors
    /// All mistakes, each with its field.
    pub fn parse(text: &str) -> Result<Self, Vec<FieldError>> {
        let whole = |problem: String| vec![FieldError::new(RULES_FILE, problem)];
        if text.len() > RULES_BYTES_MAX {
            return Err(whole(format!("has {} bytes; the limit is {RULES_BYTES_MAX}", text.len())));
        }
        let written = text.to_owned();
        let text: Text = toml::from_str(text).map_err(|it| whole(it.to_string()))?;
        if text.fileset.len() > FILESETS_MAX {
            let count = text.fileset.len();
            return Err(whole(format!("has {count} filesets; the limit is {FILESETS_MAX}")));
        }
        let (mut rules, mut mistakes) = (Self { text: written, ..Self::default() }, Vec::new());
        let mut named = BTreeSet::new();
        for (at, fileset) in text.fileset.into_iter().enumerate() {
            let place = format!("fileset[{at}]");
            let told =
                |it: FieldError| FieldError::new(format!("{place}.{}", it.field), it.problem);
            match rule(fileset) {
                Ok((rule, _)) if !named.insert(rule.name.clone()) => {
                    let problem = format!("{} is described twice", rule.name);
                    mistakes.push(told(FieldError::new("category", problem)));
                }
                Ok((rule, fileset)) => rules.take(rule, fileset),
                Err(wrong) => mistakes.extend(wrong.into_iter().map(told)),
            }
        }
        if mistakes.is_empty() { Ok(rules) } else { Err(mistakes) }
    }

    fn take(&mut self, rule: Rule, fileset: Fileset) {
        self.filesets.insert(rule.name.clone(), fileset);
        if rule.name != FilesetName::default_name() {
            self.rules.push(rule);
        }
    }

    /// The fileset of a file.
    ///
    /// # Errors
    /// Two filesets take it.
    pub fn fileset_of(&self, path: &FilePath) -> Result<FilesetName, FieldError> {
        let mut taken = self.rules.iter().filter(|it| it.takes(path));
        match (taken.next(), taken.next()) {
            (None, _) => Ok(FilesetName::default_name()),
            (Some(rule), None) => Ok(rule.name.clone()),
            (Some(one), Some(other)) => {
                let problem = format!(
                    "{path:?} belongs to two filesets, {} and {}: change `under` or `extensions` of one",
                    one.name, other.name
                );
                Err(FieldError::new(RULES_FILE, problem))
            }
        }
    }

    /// The text of the file; empty where there is none.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The filesets by name, with what is said of each.
    pub fn filesets(&self) -> &BTreeMap<FilesetName, Fileset> {
        &self.filesets
    }
}

fn rule(text: FilesetText) -> Result<(Rule, Fileset), Vec<FieldError>> {
    let mut mistakes = Vec::new();
    let name = FilesetName::parse(&text.category).map_err(|it| mistakes.push(it)).ok();
    let mut under = Vec::new();
    for folder in &text.under {
        match FilePath::parse(folder.strip_suffix('/').unwrap_or(folder)) {
            Ok(path) => under.push(path),
            Err(it) => mistakes.push(FieldError::new("under", it.problem)),
        }
    }
    for extension in &text.extensions {
        if extension.is_empty() || extension.contains(['.', '/']) {
            let problem =
                format!("has {extension:?}; write what follows the last point, as \"png\"");
            mistakes.push(FieldError::new("extensions", problem));
        }
    }
    let mut pools = BTreeSet::new();
    for pool in &text.pools {
        match PoolName::parse(pool) {
            Ok(name) => drop(pools.insert(name)),
            Err(it) => mistakes.push(FieldError::new("pools", it.problem)),
        }
    }
    for (field, count) in [
        ("under", text.under.len()),
        ("extensions", text.extensions.len()),
        ("pools", text.pools.len()),
    ] {
        if count > LISTED_MAX {
            let problem = format!("has {count} entries; the limit is {LISTED_MAX}");
            mistakes.push(FieldError::new(field, problem));
        }
    }
    let is_default = text.category == FilesetName::default_name().as_str();
    let takes_nothing = text.under.is_empty() && text.extensions.is_empty();
    if is_default && !takes_nothing {
        let problem =
            "is \"default\", which has what no other takes: leave out `under` and `extensions`";
        mistakes.push(FieldError::new("category", problem));
    }
    if !is_default && takes_nothing {
        mistakes.push(FieldError::new("under", "is missing: say `under`, `extensions` or both"));
    }
    match name {
        Some(name) if mistakes.is_empty() => {
            let extensions = text.extensions.into_iter().collect();
            let fileset = Fileset { eager: text.eager, pools, labels: text.labels, commit: None };
            Ok((Rule { name, under, extensions }, fileset))
        }
        _ => Err(mistakes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> FilePath {
        FilePath::parse(text).unwrap()
    }

    #[test]
    fn a_file_belongs_to_the_fileset_that_takes_its_place_and_extension() {
        let rules = Rules::parse(
            r#"
            [[fileset]]
            category = "media"
            under = ["notes/media/", "shop"]
            extensions = ["png", "jpg"]
            eager = false
            pools = ["gpu"]
            labels = { zone = "eu" }
            [[fileset]]
            category = "modules"
            extensions = ["wasm"]
            [[fileset]]
            category = "default"
            eager = false
            "#,
        )
        .unwrap();
        let of = |text: &str| rules.fileset_of(&path(text)).unwrap().to_string();
        assert_eq!(of("notes/media/a.png"), "media");
        assert_eq!(of("shop/x/y.jpg"), "media");
        assert_eq!(of("shop/x/y.txt"), "default");
        assert_eq!(of("a.png"), "default");
        assert_eq!(of("shop/a.wasm"), "modules");
        let media = &rules.filesets()[&FilesetName::parse("media").unwrap()];
        assert!(!media.eager && media.pools.len() == 1 && media.labels.len() == 1);
        assert!(!rules.filesets()[&FilesetName::default_name()].eager);
        assert!(Rules::default().filesets()[&FilesetName::default_name()].eager);
        assert!(
            rules.text().contains("category = \"media\"") && Rules::default().text().is_empty()
        );
    }

    #[test]
    fn a_file_that_two_filesets_take_is_told_with_both() {
        let text = r#"
            fileset = [
                { category = "a", under = ["x"] },
                { category = "b", extensions = ["png"] },
            ]"#;
        let rules = Rules::parse(text).unwrap();
        let error = rules.fileset_of(&path("x/y.png")).unwrap_err().to_string();
        assert!(error.contains("two filesets, a and b"), "{error}");
    }

    #[test]
    fn every_mistake_is_told_with_its_field() {
        let text = r#"
            fileset = [
                { category = "A", under = ["../x"] },
                { category = "b" },
                { category = "c", extensions = [".png"], pools = [""] },
                { category = "c", extensions = ["png"] },
                { category = "c", extensions = ["jpg"] },
                { category = "default", under = ["x"] },
            ]"#;
        let mistakes = Rules::parse(text).unwrap_err();
        let fields: Vec<&str> = mistakes.iter().map(|it| &*it.field).collect();
        let expected = [
            "fileset[0].category",
            "fileset[0].under",
            "fileset[1].under",
            "fileset[2].pools",
            "fileset[2].extensions",
            "fileset[4].category",
            "fileset[5].category",
        ];
        let (mut fields, mut expected) = (fields, expected);
        fields.sort_unstable();
        expected.sort_unstable();
        assert_eq!(fields, expected, "{mistakes:?}");
        let unknown = Rules::parse("fileset = [{ category = \"a\", bogus = 1 }]").unwrap_err();
        assert!(unknown[0].to_string().contains("bogus"), "{unknown:?}");
    }
}
