//! The modules of one crate, and which file defines a name.

use anyhow::{Context, Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use syn::ext::IdentExt;
use syn::{Attribute, Expr, ExprLit, Ident, Item, ItemMod, Lit, Meta, UseTree};

/// Reads a source file. `None` if there is no such file.
pub type Read<'a> = &'a dyn Fn(&Path) -> Option<String>;

/// Most imports that are followed from a name to its definition.
const HOPS_MAX: usize = 8;

/// A source file.
pub struct File {
    /// Where it lies.
    pub path: PathBuf,
    /// Its lines, tests and comments included.
    pub lines: usize,
}

/// A name that a `use` brings into a module.
pub struct Import {
    /// The path, one word for each segment.
    pub path: Vec<String>,
    /// The name that it gets. `None`: a glob, which brings every name at the path.
    name: Option<String>,
}

/// A module, without its test code.
pub struct Module {
    parent: Option<usize>,
    /// The place of its file in [`Tree::files`].
    pub file: usize,
    children: BTreeMap<String, usize>,
    items: BTreeSet<String>,
    imports: Vec<Import>,
    /// Its items. Its own modules stand in [`Tree::modules`] instead.
    pub code: Vec<Item>,
}

/// What a path names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// A module, by its place in [`Tree::modules`].
    Module(usize),
    /// An item, by the place of its file in [`Tree::files`].
    ItemOf(usize),
    /// Something of another crate, or a local name.
    Outside,
}

/// The modules of one crate, from the roots of its library and of its programs.
#[derive(Default)]
pub struct Tree {
    /// Its files. A file that two roots share stands here once.
    pub files: Vec<File>,
    /// Its modules.
    pub modules: Vec<Module>,
}

impl Tree {
    /// Reads every file that the roots reach through `mod`.
    ///
    /// Fails if a file is missing or is not valid Rust.
    pub fn load(roots: &[PathBuf], read: Read<'_>) -> Result<Self> {
        let mut tree = Self::default();
        for root in roots {
            let text = read(root).with_context(|| format!("{} is missing", root.display()))?;
            let folder = root.parent().unwrap_or(Path::new("")).to_path_buf();
            tree.add_file(root.clone(), &text, &folder, None, read)?;
        }
        Ok(tree)
    }

    fn add_file(
        &mut self,
        path: PathBuf,
        text: &str,
        folder: &Path,
        parent: Option<usize>,
        read: Read<'_>,
    ) -> Result<usize> {
        let parsed =
            syn::parse_file(text).with_context(|| format!("{} is not Rust", path.display()))?;
        let known = self.files.iter().position(|file| file.path == path);
        let file = known.unwrap_or_else(|| {
            self.files.push(File { path, lines: text.lines().count() });
            self.files.len() - 1
        });
        let items = if is_test(&parsed.attrs) { Vec::new() } else { parsed.items };
        self.add_module(file, items, folder, parent, read)
    }

    fn add_module(
        &mut self,
        file: usize,
        items: Vec<Item>,
        folder: &Path,
        parent: Option<usize>,
        read: Read<'_>,
    ) -> Result<usize> {
        let at = self.modules.len();
        let mut modules = Vec::new();
        let mut module = Module {
            parent,
            file,
            children: BTreeMap::new(),
            items: BTreeSet::new(),
            imports: Vec::new(),
            code: Vec::new(),
        };
        for item in items.into_iter().filter(|item| !is_test_item(item)) {
            if let Item::Mod(child) = item {
                modules.push(child);
            } else {
                module.add(item);
            }
        }
        self.modules.push(module);
        for child in modules {
            let name = child.ident.unraw().to_string();
            let child = self.add_child(child, at, folder, read)?;
            self.modules[at].children.insert(name, child);
        }
        Ok(at)
    }

    fn add_child(
        &mut self,
        child: ItemMod,
        parent: usize,
        folder: &Path,
        read: Read<'_>,
    ) -> Result<usize> {
        let name = child.ident.unraw().to_string();
        let inner = folder.join(&name);
        let file = self.modules[parent].file;
        if let Some((_, items)) = child.content {
            return self.add_module(file, items, &inner, Some(parent), read);
        }
        let here = self.files[file].path.parent().unwrap_or(Path::new(""));
        let places = match named_path(&child.attrs) {
            // Its own modules lie beside it.
            Some(path) => {
                let path = here.join(path);
                vec![(path.clone(), path.parent().unwrap_or(here).to_path_buf())]
            }
            None => vec![
                (folder.join(format!("{name}.rs")), inner.clone()),
                (inner.join("mod.rs"), inner),
            ],
        };
        for (path, inner) in places {
            if let Some(text) = read(&path) {
                return self.add_file(path, &text, &inner, Some(parent), read);
            }
        }
        bail!("module {name} of {} has no file", self.files[file].path.display())
    }

    /// What a path names that stands in the module `at`.
    pub fn resolve(&self, at: usize, path: &[String]) -> Target {
        self.resolve_within(at, path, HOPS_MAX)
    }

    /// Whether a path leads from the top: it begins with `crate`, `super` or `self`, or with a name
    /// that such a path imports. Other paths lead to the module's own modules, or out of the crate.
    pub fn leads_from_top(&self, at: usize, path: &[String]) -> bool {
        self.leads_from_top_within(at, path, HOPS_MAX)
    }

    fn leads_from_top_within(&self, at: usize, path: &[String], hops: usize) -> bool {
        let Some(first) = path.first() else { return false };
        if matches!(first.as_str(), "crate" | "super" | "self") {
            return true;
        }
        let module = &self.modules[at];
        if hops == 0 || module.children.contains_key(first) || module.items.contains(first) {
            return false;
        }
        let brings = |import: &&Import| match &import.name {
            Some(name) => name == first,
            None => self.is_in_glob(at, import, first),
        };
        let mut imports = module.imports.iter().filter(brings);
        imports.any(|import| self.leads_from_top_within(at, &import.path, hops - 1))
    }

    fn is_in_glob(&self, at: usize, glob: &Import, name: &str) -> bool {
        let from = self.resolve(at, &glob.path);
        matches!(from, Target::Module(from) if self.lookup(from, name, true, HOPS_MAX).is_some())
    }

    fn resolve_within(&self, at: usize, path: &[String], hops: usize) -> Target {
        let Some((first, rest)) = path.split_first() else { return Target::Module(at) };
        let start = match first.as_str() {
            "crate" => Some(self.root(at)),
            "self" => Some(at),
            "super" => self.modules[at].parent,
            name => match self.lookup(at, name, rest.is_empty(), hops) {
                Some(Target::Module(module)) => Some(module),
                found => return found.unwrap_or(Target::Outside),
            },
        };
        start.map_or(Target::Outside, |module| self.resolve_inside(module, rest, hops))
    }

    /// Follows the rest of a path from a module. A name that the module does not show is one that
    /// a macro makes there.
    fn resolve_inside(&self, module: usize, rest: &[String], hops: usize) -> Target {
        let mut module = module;
        let mut rest = rest;
        while let Some((name, after)) = rest.split_first() {
            let found = match name.as_str() {
                "super" => self.modules[module].parent.map(Target::Module),
                name => self.lookup(module, name, after.is_empty(), hops),
            };
            match found {
                Some(Target::Module(next)) => module = next,
                Some(found) => return found,
                None => return Target::ItemOf(self.modules[module].file),
            }
            rest = after;
        }
        Target::Module(module)
    }

    /// What a name means in a module: its own items and modules, then imports, then globs. As the
    /// last segment of a path, a name that an item and a module share means the item.
    fn lookup(&self, at: usize, name: &str, is_last: bool, hops: usize) -> Option<Target> {
        let module = &self.modules[at];
        let child = module.children.get(name).copied().map(Target::Module);
        let item = module.items.contains(name).then_some(Target::ItemOf(module.file));
        let own = if is_last { item.or(child) } else { child.or(item) };
        if own.is_some() || hops == 0 {
            return own;
        }
        let mut named = module.imports.iter().filter(|import| import.name.as_deref() == Some(name));
        if let Some(import) = named.next() {
            return Some(self.resolve_within(at, &import.path, hops - 1));
        }
        let mut globs = module.imports.iter().filter(|import| import.name.is_none());
        globs.find_map(|glob| match self.resolve_within(at, &glob.path, hops - 1) {
            Target::Module(from) if from != at => self.lookup(from, name, is_last, hops - 1),
            Target::Module(_) | Target::ItemOf(_) | Target::Outside => None,
        })
    }

    fn root(&self, at: usize) -> usize {
        let mut at = at;
        while let Some(parent) = self.modules[at].parent {
            at = parent;
        }
        at
    }
}

impl Module {
    fn add(&mut self, item: Item) {
        if let Item::Use(import) = &item {
            self.imports.extend(imports(&import.tree));
        }
        self.items.extend(parts(&item).1.map(|name| name.unraw().to_string()));
        self.code.push(item);
    }
}

/// Every name that a `use` brings.
pub fn imports(tree: &UseTree) -> Vec<Import> {
    let mut found = Vec::new();
    add_imports(tree, &[], &mut found);
    found
}

fn add_imports(tree: &UseTree, before: &[String], found: &mut Vec<Import>) {
    let with = |name: &Ident| [before, &[name.unraw().to_string()]].concat();
    // `{self}` names the path before it.
    let path_to = |name: &Ident| if name == "self" { before.to_vec() } else { with(name) };
    match tree {
        UseTree::Path(path) => add_imports(&path.tree, &with(&path.ident), found),
        UseTree::Name(leaf) => {
            let path = path_to(&leaf.ident);
            found.push(Import { name: path.last().cloned(), path });
        }
        UseTree::Rename(leaf) => {
            let name = Some(leaf.rename.unraw().to_string());
            found.push(Import { path: path_to(&leaf.ident), name });
        }
        UseTree::Glob(_) => found.push(Import { path: before.to_vec(), name: None }),
        UseTree::Group(group) => {
            group.items.iter().for_each(|tree| add_imports(tree, before, found));
        }
    }
}

/// What `#[path = "…"]` says.
fn named_path(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| {
        let Meta::NameValue(pair) = &attribute.meta else { return None };
        let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = &pair.value else { return None };
        pair.path.is_ident("path").then(|| text.value())
    })
}

/// Whether an item is compiled for tests only.
pub fn is_test_item(item: &Item) -> bool {
    is_test(parts(item).0)
}

/// Whether attributes say that something is compiled for tests only.
pub fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) if list.path.is_ident("cfg") => {
            let text = list.tokens.to_string();
            let mut words = text.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
            let mut all = words.clone();
            words.any(|word| word == "test") && !all.any(|word| word == "not" || word == "any")
        }
        Meta::List(_) | Meta::NameValue(_) => false,
    })
}

/// The attributes of an item, and the name that it defines in its module.
fn parts(item: &Item) -> (&[Attribute], Option<&Ident>) {
    match item {
        Item::Const(item) => (&item.attrs[..], Some(&item.ident)),
        Item::Enum(item) => (&item.attrs[..], Some(&item.ident)),
        Item::ExternCrate(item) => (&item.attrs[..], None),
        Item::Fn(item) => (&item.attrs[..], Some(&item.sig.ident)),
        Item::ForeignMod(item) => (&item.attrs[..], None),
        Item::Impl(item) => (&item.attrs[..], None),
        Item::Macro(item) => (&item.attrs[..], item.ident.as_ref()),
        Item::Mod(item) => (&item.attrs[..], Some(&item.ident)),
        Item::Static(item) => (&item.attrs[..], Some(&item.ident)),
        Item::Struct(item) => (&item.attrs[..], Some(&item.ident)),
        Item::Trait(item) => (&item.attrs[..], Some(&item.ident)),
        Item::TraitAlias(item) => (&item.attrs[..], Some(&item.ident)),
        Item::Type(item) => (&item.attrs[..], Some(&item.ident)),
        Item::Union(item) => (&item.attrs[..], Some(&item.ident)),
        Item::Use(item) => (&item.attrs[..], None),
        Item::Verbatim(_) => (&[], None),
        _ => (&[], None),
    }
}

#[cfg(test)]
impl Tree {
    /// A crate from names and texts of files. The first is the root.
    pub fn of(files: &[(&str, &str)]) -> Result<Self> {
        let read = |path: &Path| {
            let found = files.iter().find(|(name, _)| Path::new(name) == path);
            found.map(|(_, text)| (*text).to_owned())
        };
        Self::load(&[PathBuf::from(files[0].0)], &read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(tree: &Tree) -> Vec<String> {
        tree.files.iter().map(|file| file.path.display().to_string()).collect()
    }

    #[test]
    fn modules_are_found_where_rust_finds_them() {
        let tree = Tree::of(&[
            ("lib.rs", "mod a; mod b { mod c; } #[path = \"x/d.rs\"] mod d;"),
            ("a/mod.rs", "mod e;"),
            ("a/e.rs", ""),
            ("b/c.rs", "mod f;"),
            ("b/c/f.rs", "#![cfg(test)] mod missing;"),
            ("x/d.rs", "mod g;"),
            ("x/g.rs", "#[cfg(all(unix, test))] mod missing; #[cfg(not(test))] mod h {}"),
        ]);
        let expected = ["lib.rs", "a/mod.rs", "a/e.rs", "b/c.rs", "b/c/f.rs", "x/d.rs", "x/g.rs"];
        assert_eq!(names(&tree.unwrap()), expected);
    }

    #[test]
    fn a_module_without_a_file_is_named_in_the_error() {
        let error = Tree::of(&[("lib.rs", "mod gone;")]).err().unwrap();
        assert_eq!(error.to_string(), "module gone of lib.rs has no file");
    }

    #[test]
    fn a_file_that_is_not_rust_is_named_in_the_error() {
        let error = Tree::of(&[("lib.rs", "fn {")]).err().unwrap();
        assert_eq!(error.to_string(), "lib.rs is not Rust");
    }
}
