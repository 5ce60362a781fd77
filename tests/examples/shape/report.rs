//! Reads a workspace, and puts its figures together.

use crate::arrows::{Paths, arrows, biggest_cycle};
use crate::counts::{Bodies, Guards, LongFunction, guards, methods, structs};
use crate::tree::Tree;
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Types with at most so many methods, in at most so many files, are not listed.
const METHODS_MAX: usize = 30;
const FILES_MAX: usize = 8;
/// Structs with at most so many fields are not listed.
const FIELDS_MAX: usize = 16;
/// Where guards on an absent leader are counted.
const GUARDED: [&str; 2] = ["rota-protocol", "rota-replication"];

/// The figures of a workspace.
#[derive(Serialize)]
pub struct Shape {
    crates: Vec<CrateShape>,
    types: Vec<BigType>,
    structs_over_16_fields: Vec<WideStruct>,
    guards_on_leading: usize,
    functions_over_70: usize,
    readme_lines: usize,
    architecture_lines: usize,
    it_closures: ItClosures,
    #[serde(skip)]
    guards: Guards,
    #[serde(skip)]
    bodies: Bodies,
}

/// The sources of one crate: its library and its programs.
#[derive(Serialize)]
struct CrateShape {
    name: String,
    files: usize,
    lines: usize,
    /// Files of the biggest circle; 0 if there is none.
    biggest_cycle: usize,
    /// The same if also paths from a module to its own modules count.
    #[serde(skip)]
    biggest_of_all_paths: usize,
    /// The files of the biggest circle.
    #[serde(skip)]
    cycle: Vec<String>,
}

/// A type with many methods.
#[derive(Serialize)]
struct BigType {
    name: String,
    methods: usize,
    files: usize,
    #[serde(skip)]
    crate_name: String,
}

/// A struct with many fields.
#[derive(Serialize)]
struct WideStruct {
    #[serde(rename = "crate")]
    crate_name: String,
    name: String,
    fields: usize,
}

/// Closures with a parameter that is named `it`.
#[derive(Serialize)]
struct ItClosures {
    total: usize,
    /// Those whose body spans more than one line.
    far: usize,
}

/// What `cargo metadata` tells of a workspace.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
    targets: Vec<PackageTarget>,
}

#[derive(Deserialize)]
struct PackageTarget {
    kind: Vec<String>,
    src_path: PathBuf,
}

impl Shape {
    /// Reads the workspace in a folder.
    ///
    /// Fails if cargo does not know it, or if a source file is missing or is not valid Rust.
    pub fn of(root: &Path) -> Result<Self> {
        let root = &root.canonicalize().with_context(|| unreadable(root))?;
        let packages = packages(root)?;
        let mut shape = Self {
            crates: Vec::new(),
            types: Vec::new(),
            structs_over_16_fields: Vec::new(),
            guards_on_leading: 0,
            functions_over_70: 0,
            readme_lines: lines(&root.join("README.md"))?,
            architecture_lines: lines(&root.join("ARCHITECTURE.md"))?,
            it_closures: ItClosures { total: 0, far: 0 },
            guards: Guards::default(),
            bodies: Bodies::default(),
        };
        for package in packages {
            shape.add_package(root, &package)?;
        }
        shape.types.sort_by_key(|shown| Reverse(shown.methods));
        shape.structs_over_16_fields.sort_by_key(|shown| Reverse(shown.fields));
        shape.guards_on_leading = shape.guards.total();
        shape.functions_over_70 = shape.bodies.long.len();
        let bodies = &shape.bodies;
        let far = bodies.far_it_closures.len();
        shape.it_closures = ItClosures { total: bodies.it_closures, far };
        Ok(shape)
    }

    fn add_package(&mut self, root: &Path, package: &Package) -> Result<()> {
        let folder = package.manifest_path.parent().unwrap_or(Path::new(""));
        let tree = Tree::load(&package.roots(), &|path| std::fs::read_to_string(path).ok())?;
        self.add_crate(&package.name, folder, &tree);
        for path in sources(folder)? {
            let text = read(&path)?;
            let file = syn::parse_file(&text)
                .with_context(|| format!("{} is not Rust", path.display()))?;
            self.bodies.count(within(root, &path), &file);
        }
        Ok(())
    }

    fn add_crate(&mut self, name: &str, folder: &Path, tree: &Tree) {
        let cycle = biggest_cycle(&arrows(tree, Paths::FromTop));
        self.crates.push(CrateShape {
            name: name.to_owned(),
            files: tree.files.len(),
            lines: tree.files.iter().map(|file| file.lines).sum(),
            biggest_cycle: cycle.len(),
            biggest_of_all_paths: biggest_cycle(&arrows(tree, Paths::All)).len(),
            cycle: cycle.iter().map(|file| within(folder, &tree.files[*file].path)).collect(),
        });
        let big = methods(tree)
            .into_iter()
            .filter(|(_, found)| found.count > METHODS_MAX || found.files.len() > FILES_MAX);
        self.types.extend(big.map(|((_, type_name), found)| BigType {
            name: type_name,
            methods: found.count,
            files: found.files.len(),
            crate_name: name.to_owned(),
        }));
        let wide = structs(tree).into_iter().filter(|(_, fields)| *fields > FIELDS_MAX);
        self.structs_over_16_fields.extend(wide.map(|(struct_name, fields)| WideStruct {
            crate_name: name.to_owned(),
            name: struct_name,
            fields,
        }));
        if GUARDED.contains(&name) {
            let found = guards(tree);
            self.guards.let_else += found.let_else;
            self.guards.if_let += found.if_let;
            self.guards.as_ref += found.as_ref;
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_crates(f)?;
        self.write_lists(f)?;
        self.write_sums(f)
    }
}

impl Shape {
    /// Where a closure of several lines has a parameter `it`, for the test that there is none.
    #[cfg(test)]
    pub fn far_it_closures(&self) -> &[String] {
        &self.bodies.far_it_closures
    }

    /// The files of the biggest circle of each crate that has one.
    pub fn cycles(&self) -> impl Iterator<Item = (&str, &[String])> {
        let all = self.crates.iter().map(|shown| (shown.name.as_str(), shown.cycle.as_slice()));
        all.filter(|(_, files)| !files.is_empty())
    }

    /// Types with many methods: crate, name, how many, in how many files.
    #[cfg(test)]
    pub fn big_types(&self) -> impl Iterator<Item = (&str, &str, usize, usize)> {
        let all = self.types.iter();
        all.map(|it| (it.crate_name.as_str(), it.name.as_str(), it.methods, it.files))
    }

    /// Structs with many fields: crate and name.
    #[cfg(test)]
    pub fn wide_structs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.structs_over_16_fields.iter().map(|it| (it.crate_name.as_str(), it.name.as_str()))
    }

    fn write_crates(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [title, files, lines] = ["CRATE", "FILES", "LINES"];
        writeln!(
            f,
            "{title:<20} {files:>6} {lines:>7} {:>14} {:>10}",
            "BIGGEST CYCLE", "ALL PATHS"
        )?;
        for shown in &self.crates {
            let CrateShape { name, files, lines, biggest_cycle, biggest_of_all_paths, .. } = shown;
            write!(f, "{name:<20} {files:>6} {lines:>7} {biggest_cycle:>14}")?;
            writeln!(f, " {biggest_of_all_paths:>10}")?;
        }
        for (name, files) in self.cycles() {
            writeln!(f, "\nBiggest cycle of {name}:\n  {}", files.join("\n  "))?;
        }
        Ok(())
    }

    fn write_lists(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n{:<24} {:<18} {:>7} {:>6}", "TYPE", "CRATE", "METHODS", "FILES")?;
        for BigType { name, methods, files, crate_name } in &self.types {
            writeln!(f, "{name:<24} {crate_name:<18} {methods:>7} {files:>6}")?;
        }
        writeln!(f, "\n{:<24} {:<18} {:>7}", "STRUCT", "CRATE", "FIELDS")?;
        for WideStruct { crate_name, name, fields } in &self.structs_over_16_fields {
            writeln!(f, "{name:<24} {crate_name:<18} {fields:>7}")?;
        }
        writeln!(f, "\n{:<43} {:>7} FILE", "FUNCTION", "LINES")?;
        for LongFunction { file, name, lines } in &self.bodies.long {
            writeln!(f, "{name:<43} {lines:>7} {file}")?;
        }
        Ok(())
    }

    fn write_sums(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Guards { let_else, if_let, as_ref } = self.guards;
        let Bodies { functions, closures, .. } = self.bodies;
        let ItClosures { total, far } = self.it_closures;
        write!(f, "\nguards on `leading`: {}", self.guards_on_leading)?;
        writeln!(f, " (let else {let_else}, if let {if_let}, as_ref {as_ref})")?;
        writeln!(f, "functions over 70 lines: {} of {functions}", self.functions_over_70)?;
        writeln!(f, "closures over `it`: {total} of {closures}; longer than a line: {far}")?;
        writeln!(f, "README: {} lines", self.readme_lines)?;
        writeln!(f, "ARCHITECTURE: {} lines", self.architecture_lines)
    }
}

impl Package {
    /// The root files of its library and of its programs.
    fn roots(&self) -> Vec<PathBuf> {
        let is_root = |kind: &String| matches!(kind.as_str(), "lib" | "bin" | "proc-macro");
        let roots = self.targets.iter().filter(|target| target.kind.iter().any(is_root));
        roots.map(|target| target.src_path.clone()).collect()
    }
}

/// The packages of a workspace, by name. Cargo asks no network for it.
fn packages(root: &Path) -> Result<Vec<Package>> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--no-deps", "--offline", "--format-version", "1", "--manifest-path"]);
    let output = cargo.arg(root.join("Cargo.toml")).output().context("cargo does not start")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo metadata failed: {errors}");
    let metadata: Metadata =
        serde_json::from_slice(&output.stdout).context("cargo metadata printed no JSON")?;
    let mut packages = metadata.packages;
    packages.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(packages)
}

/// Every Rust file under a folder. Folders of other packages and of build output are left out.
fn sources(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let entries = std::fs::read_dir(folder).with_context(|| unreadable(folder))?;
    for entry in entries {
        let path = entry.with_context(|| unreadable(folder))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            let is_left_out =
                name.starts_with('.') || name == "target" || path.join("Cargo.toml").exists();
            if !is_left_out {
                found.extend(sources(&path)?);
            }
        } else if name.ends_with(".rs") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// A path as seen from a folder.
fn within(folder: &Path, path: &Path) -> String {
    path.strip_prefix(folder).unwrap_or(path).display().to_string()
}

fn lines(path: &Path) -> Result<usize> {
    Ok(read(path)?.lines().count())
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| unreadable(path))
}

fn unreadable(path: &Path) -> String {
    format!("{} cannot be read", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn write(root: &Path, name: &str, text: &str) {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// A workspace of one crate with two files in a circle, a wide struct and a big type.
    fn workspace() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let manifest = "[workspace]\n[package]\nname = \"rota-protocol\"\nedition = \"2024\"\n";
        let fields: String = (0..17).map(|n| format!("f{n}: u8,")).collect();
        let methods: String = (0..31).map(|n| format!("fn m{n}() {{}}\n")).collect();
        let guard = "fn f() { let Some(leading) = &x.leading else { return }; }";
        write(root, "Cargo.toml", manifest);
        write(root, "README.md", "One.\nTwo.\n");
        write(root, "ARCHITECTURE.md", "One.\n");
        write(root, "src/lib.rs", "mod a;\nmod b;\n");
        write(
            root,
            "src/a.rs",
            &format!("use crate::b::B;\nstruct A {{ {fields} b: B }}\n{guard}"),
        );
        write(root, "src/b.rs", &format!("pub struct B(crate::a::A);\nimpl B {{\n{methods}}}\n"));
        write(root, "tests/far.rs", "fn t() { x(|it| it\n.y()) }");
        folder
    }

    #[test]
    fn the_figures_of_a_small_workspace_are_as_counted_by_hand() {
        let folder = workspace();
        let shape = Shape::of(folder.path()).unwrap();
        let expected = json!({
            "crates": [{ "name": "rota-protocol", "files": 3, "lines": 39, "biggest_cycle": 2 }],
            "types": [{ "name": "B", "methods": 31, "files": 1 }],
            "structs_over_16_fields": [{ "crate": "rota-protocol", "name": "A", "fields": 18 }],
            "guards_on_leading": 1,
            "functions_over_70": 0,
            "readme_lines": 2,
            "architecture_lines": 1,
            "it_closures": { "total": 1, "far": 1 },
        });
        assert_eq!(serde_json::to_value(&shape).unwrap(), expected);
        let text = shape.to_string();
        assert!(
            text.contains("Biggest cycle of rota-protocol:\n  src/a.rs\n  src/b.rs\n"),
            "{text}"
        );
    }

    #[test]
    fn a_page_that_is_missing_is_named_in_the_error() {
        let folder = workspace();
        std::fs::remove_file(folder.path().join("README.md")).unwrap();
        let error = Shape::of(folder.path()).err().unwrap();
        assert!(error.to_string().ends_with("README.md cannot be read"), "{error}");
    }
}
