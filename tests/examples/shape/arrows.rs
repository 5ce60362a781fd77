//! Which file of a crate names items of which other file, and the biggest circle of such files.

use crate::macros;
use crate::tree::{Target, Tree, imports, is_test, is_test_item};
use std::collections::BTreeSet;
use syn::ext::IdentExt;
use syn::visit::{self, Visit};
use syn::{Attribute, ImplItemFn, Item, ItemUse, Macro, Path, Visibility};

/// For each file of a crate, the other files whose items it names.
pub type Arrows = Vec<BTreeSet<usize>>;

/// The paths that make an arrow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Paths {
    /// Those that begin with `crate`, `super` or `self`, and what they import.
    FromTop,
    /// Also those that lead from a module to its own modules.
    All,
}

/// The arrows between the files of a crate, test code left out.
///
/// `mod` and `pub use` are none: who names an item through a re-export points at the file that
/// defines the item. A private `use` of an item is one, and so is each path in the code.
pub fn arrows(tree: &Tree, paths: Paths) -> Arrows {
    let mut arrows = vec![BTreeSet::new(); tree.files.len()];
    for (at, module) in tree.modules.iter().enumerate() {
        let mut namer = Namer { tree, paths, at, files: BTreeSet::new() };
        module.code.iter().for_each(|item| namer.visit_item(item));
        namer.files.remove(&module.file);
        arrows[module.file].append(&mut namer.files);
    }
    arrows
}

/// Collects the files whose items a module names.
struct Namer<'a> {
    tree: &'a Tree,
    paths: Paths,
    at: usize,
    files: BTreeSet<usize>,
}

impl Namer<'_> {
    fn name(&mut self, path: &[String]) {
        if self.paths == Paths::FromTop && !self.tree.leads_from_top(self.at, path) {
            return;
        }
        if let Target::ItemOf(file) = self.tree.resolve(self.at, path) {
            self.files.insert(file);
        }
    }
}

impl<'ast> Visit<'ast> for Namer<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test_item(item) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        if !is_test(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let is_private = matches!(item.vis, Visibility::Inherited);
        if is_private && item.leading_colon.is_none() {
            imports(&item.tree).iter().for_each(|import| self.name(&import.path));
        }
    }

    fn visit_path(&mut self, path: &'ast Path) {
        if path.leading_colon.is_none() {
            self.name(&words(path));
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        self.visit_path(&call.path);
        macros::paths(call.tokens.clone()).iter().for_each(|path| self.name(path));
        macros::body(call).iter().for_each(|statement| Visit::visit_stmt(self, statement));
    }

    /// `pub(super)` names no item.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    /// `derive` names what other crates make.
    fn visit_attribute(&mut self, _: &'ast Attribute) {}
}

/// The segments of a path, without their generic arguments.
pub fn words(path: &Path) -> Vec<String> {
    path.segments.iter().map(|segment| segment.ident.unraw().to_string()).collect()
}

/// The biggest set of files that all reach each other (the biggest strongly connected component).
/// Empty if there is no circle: a file alone is none.
pub fn biggest_cycle(arrows: &Arrows) -> Vec<usize> {
    let reached: Vec<_> = (0..arrows.len()).map(|file| reach(arrows, file)).collect();
    let circle = |file: usize| -> Vec<usize> {
        reached[file].iter().copied().filter(|other| reached[*other].contains(&file)).collect()
    };
    let mut biggest = Vec::new();
    for found in (0..arrows.len()).map(circle) {
        if found.len() > biggest.len() {
            biggest = found;
        }
    }
    biggest
}

/// Every file that one or more arrows lead to from a file.
fn reach(arrows: &Arrows, from: usize) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(file) = open.pop() {
        open.extend(arrows[file].iter().copied().filter(|next| reached.insert(*next)));
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of the files in the biggest circle of a crate with these files.
    fn cycle_of(files: &[(&str, &str)]) -> Vec<String> {
        cycle_by(Paths::FromTop, files)
    }

    fn cycle_by(paths: Paths, files: &[(&str, &str)]) -> Vec<String> {
        let tree = Tree::of(files).unwrap();
        let cycle = biggest_cycle(&arrows(&tree, paths));
        cycle.into_iter().map(|file| tree.files[file].path.display().to_string()).collect()
    }

    const NONE: [&str; 0] = [];

    #[test]
    fn two_files_that_name_each_other_are_a_cycle() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", "use crate::b::B; pub struct A(B);"),
            ("b.rs", "pub struct B; fn f() { crate::a::A::new(); }"),
            ("c.rs", "use crate::a::A; use super::b::B;"),
        ];
        assert_eq!(cycle_of(&files), ["a.rs", "b.rs"]);
    }

    #[test]
    fn a_parent_that_only_declares_and_re_exports_is_in_no_cycle() {
        let files = [
            ("lib.rs", "mod a; mod b; pub use a::A; pub use b::*;"),
            ("a.rs", "use crate::B; pub struct A;"),
            ("b.rs", "pub struct B; pub struct C;"),
        ];
        assert_eq!(cycle_of(&files), NONE);
    }

    #[test]
    fn re_exports_and_globs_lead_to_the_file_that_defines() {
        let files = [
            ("lib.rs", "mod a; mod room; pub use room::*;"),
            ("a.rs", "use crate::Door; pub struct A;"),
            ("room/mod.rs", "mod door; mod key; pub use door::Door as Door; pub use key::Key;"),
            ("room/door.rs", "use super::*; pub struct Door(Key);"),
            ("room/key.rs", "pub struct Key; fn f(_: &dyn Fn(crate::a::A)) {}"),
        ];
        assert_eq!(cycle_of(&files), ["a.rs", "room/door.rs", "room/key.rs"]);
    }

    #[test]
    fn a_path_of_a_parent_to_its_own_module_counts_only_among_all_paths() {
        let files = [
            ("lib.rs", "mod a; use a::go; pub struct Root; fn f() { go(); a::go() }"),
            ("a.rs", "use super::Root; pub fn go() {}"),
        ];
        assert_eq!(cycle_of(&files), NONE);
        assert_eq!(cycle_by(Paths::All, &files), ["lib.rs", "a.rs"]);
    }

    #[test]
    fn an_item_reached_through_an_imported_module_or_glob_makes_an_arrow() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", "use crate::b; pub struct A(b::B);"),
            ("b.rs", "use super::c::*; pub struct B(C);"),
            ("c.rs", "use crate as top; pub struct C; fn f(_: top::a::A) {}"),
        ];
        assert_eq!(cycle_of(&files), ["a.rs", "b.rs", "c.rs"]);
    }

    #[test]
    fn an_impl_block_elsewhere_points_at_the_file_of_its_type() {
        let files = [
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "pub struct A(crate::b::B);"),
            ("b.rs", "use crate::a; pub struct B; impl a::A { fn f(&self) {} }"),
        ];
        assert_eq!(cycle_of(&files), ["a.rs", "b.rs"]);
    }

    #[test]
    fn test_code_and_other_crates_make_no_arrow() {
        let files = [
            ("lib.rs", "mod a; mod b; #[cfg(test)] mod missing; pub use other::Other;"),
            ("a.rs", "pub struct A; pub use ::b::B; use crate::b::{self, B as Bee};"),
            ("b.rs", "pub struct B; use crate::Other; #[cfg(test)] mod tests { use crate::a::A; }"),
        ];
        assert_eq!(cycle_of(&files), NONE);
    }

    #[test]
    fn names_inside_macros_and_names_made_by_macros_make_arrows() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", "name! { A } fn f(b: u8) -> bool { matches!(b, crate::b::B if b::<u8>()) }"),
            ("b.rs", "pub const B: u8 = 1; macro_rules! m { () => { $crate::c::C } }"),
            ("c.rs", "use crate::a::A; pub struct C;"),
        ];
        assert_eq!(cycle_of(&files), ["a.rs", "b.rs", "c.rs"]);
    }

    #[test]
    fn re_exports_in_a_circle_end() {
        let files = [
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "pub use crate::b::*; pub use crate::b::X; use super::b::Missing;"),
            ("b.rs", "pub use crate::a::*; pub use crate::a::X; use super::a::Missing;"),
        ];
        assert_eq!(cycle_of(&files).len(), 2);
    }
}
