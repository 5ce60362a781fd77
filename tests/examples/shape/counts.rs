//! Methods, fields, guards, long functions and closures.

use crate::arrows::words;
use crate::macros;
use crate::tree::{Target, Tree, is_test, is_test_item};
use proc_macro2::Span;
use std::collections::{BTreeMap, BTreeSet};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{
    Block, Expr, ExprClosure, ExprLet, ExprMethodCall, ImplItem, ImplItemFn, Item, ItemFn,
    ItemImpl, ItemStruct, Local, Macro, Member, Pat, Signature, TraitItemFn, Type,
};

/// Most lines of a function that count as short, from `fn` to the closing brace.
const LINES_MAX: usize = 70;

/// The inherent methods of one type.
#[derive(Default, PartialEq, Eq, Debug)]
pub struct Methods {
    /// How many, associated functions included.
    pub count: usize,
    /// The files with `impl` blocks.
    pub files: BTreeSet<usize>,
}

/// The inherent methods of each type of a crate, by the file that defines it and its name.
pub fn methods(tree: &Tree) -> BTreeMap<(usize, String), Methods> {
    let mut found = BTreeMap::<_, Methods>::new();
    for (at, module) in tree.modules.iter().enumerate() {
        for item in &module.code {
            if let Item::Impl(block) = item
                && let Some((file, name)) = own_type(tree, at, block)
            {
                let of_type = found.entry((file, name)).or_default();
                of_type.count += block.items.iter().filter(|item| is_method(item)).count();
                of_type.files.insert(module.file);
            }
        }
    }
    found
}

fn is_method(item: &ImplItem) -> bool {
    matches!(item, ImplItem::Fn(function) if !is_test(&function.attrs))
}

/// The type of an inherent block. `None` for the block of a trait.
fn own_type(tree: &Tree, at: usize, block: &ItemImpl) -> Option<(usize, String)> {
    let Type::Path(own) = &*block.self_ty else { return None };
    if block.trait_.is_some() {
        return None;
    }
    let path = words(&own.path);
    let file = match tree.resolve(at, &path) {
        Target::ItemOf(file) => file,
        // A type that a macro makes. It is of this file: no other crate's type can have methods.
        Target::Module(_) | Target::Outside => tree.modules[at].file,
    };
    path.last().map(|name| (file, name.clone()))
}

/// The names and numbers of fields of the structs of a crate.
pub fn structs(tree: &Tree) -> Vec<(String, usize)> {
    let mut found = Structs::default();
    tree.modules.iter().flat_map(|module| &module.code).for_each(|item| found.visit_item(item));
    found.0
}

#[derive(Default)]
struct Structs(Vec<(String, usize)>);

impl<'ast> Visit<'ast> for Structs {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test_item(item) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_struct(&mut self, item: &'ast ItemStruct) {
        self.0.push((item.ident.to_string(), item.fields.len()));
    }
}

/// Places that ask whether an Option named `leading` is there.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Guards {
    /// `let Some(leading) = … else`.
    pub let_else: usize,
    /// `if let Some(leading) = …`.
    pub if_let: usize,
    /// `.leading.as_ref()` and `.leading.as_mut()`, where neither of the others opens it.
    pub as_ref: usize,
}

impl Guards {
    /// All of them.
    pub fn total(self) -> usize {
        self.let_else + self.if_let + self.as_ref
    }
}

/// The guards in a crate, test code left out.
pub fn guards(tree: &Tree) -> Guards {
    let mut finder = GuardFinder::default();
    tree.modules.iter().flat_map(|module| &module.code).for_each(|item| finder.visit_item(item));
    finder.guards
}

#[derive(Default)]
struct GuardFinder {
    guards: Guards,
    /// The value that is looked at belongs to a guard that is counted already.
    is_counted: bool,
}

impl GuardFinder {
    fn value(&mut self, value: &Expr, is_counted: bool) {
        let before = std::mem::replace(&mut self.is_counted, is_counted);
        self.visit_expr(value);
        self.is_counted = before;
    }
}

impl<'ast> Visit<'ast> for GuardFinder {
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

    fn visit_local(&mut self, local: &'ast Local) {
        let Some(init) = &local.init else { return };
        let is_guard = init.diverge.is_some() && opens_leading(&local.pat);
        self.guards.let_else += usize::from(is_guard);
        self.value(&init.expr, is_guard);
        if let Some((_, otherwise)) = &init.diverge {
            self.visit_expr(otherwise);
        }
    }

    fn visit_expr_let(&mut self, condition: &'ast ExprLet) {
        let is_guard = opens_leading(&condition.pat);
        self.guards.if_let += usize::from(is_guard);
        self.value(&condition.expr, is_guard);
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        let opens = call.method == "as_ref" || call.method == "as_mut";
        let is_guard = opens && is_leading(&call.receiver) && !self.is_counted;
        self.guards.as_ref += usize::from(is_guard);
        visit::visit_expr_method_call(self, call);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        macros::body(call).iter().for_each(|statement| Visit::visit_stmt(self, statement));
    }
}

/// `Some(leading)`.
fn opens_leading(pattern: &Pat) -> bool {
    let Pat::TupleStruct(tuple) = pattern else { return false };
    let is_some = tuple.path.segments.last().is_some_and(|last| last.ident == "Some");
    is_some && matches!(tuple.elems.first(), Some(Pat::Ident(name)) if name.ident == "leading")
}

/// A field, or a variable, that is named `leading`.
fn is_leading(value: &Expr) -> bool {
    if let Expr::Field(field) = value {
        return matches!(&field.member, Member::Named(name) if name == "leading");
    }
    matches!(value, Expr::Path(path) if path.path.is_ident("leading"))
}

/// A function with more than 70 lines.
#[derive(PartialEq, Eq, Debug)]
pub struct LongFunction {
    /// Its file, as [`Bodies::count`] was told.
    pub file: String,
    /// Its name.
    pub name: String,
    /// Its lines, from `fn` to the closing brace.
    pub lines: usize,
}

/// Functions and closures of any source text, tests included.
#[derive(Default, PartialEq, Eq, Debug)]
pub struct Bodies {
    file: String,
    /// Functions with a body.
    pub functions: usize,
    /// Those with more than 70 lines.
    pub long: Vec<LongFunction>,
    /// Closures.
    pub closures: usize,
    /// Closures with a parameter that is named `it`.
    pub it_closures: usize,
    /// Where the body of one of them spans more than one line: file and line.
    pub far_it_closures: Vec<String>,
}

impl Bodies {
    /// Counts in a file. Its name is for people.
    pub fn count(&mut self, name: String, file: &syn::File) {
        self.file = name;
        self.visit_file(file);
    }

    fn function(&mut self, signature: &Signature, block: &Block) {
        self.functions += 1;
        let begin = signature.fn_token.span;
        let lines = lines_between(begin, block.brace_token.span.close()) + 1;
        if lines > LINES_MAX {
            let name = signature.ident.to_string();
            self.long.push(LongFunction { file: self.file.clone(), name, lines });
        }
    }
}

impl<'ast> Visit<'ast> for Bodies {
    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        self.function(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        self.function(&function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast TraitItemFn) {
        if let Some(block) = &function.default {
            self.function(&function.sig, block);
        }
        visit::visit_trait_item_fn(self, function);
    }

    fn visit_expr_closure(&mut self, closure: &'ast ExprClosure) {
        self.closures += 1;
        let mut names = ItFinder(false);
        closure.inputs.iter().for_each(|input| names.visit_pat(input));
        if names.0 {
            self.it_closures += 1;
            let body = closure.body.span();
            if lines_between(body, body) > 0 {
                let place = format!("{}:{}", self.file, body.start().line);
                self.far_it_closures.push(place);
            }
        }
        visit::visit_expr_closure(self, closure);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        macros::body(call).iter().for_each(|statement| Visit::visit_stmt(self, statement));
    }
}

/// Whether a pattern binds the name `it`.
struct ItFinder(bool);

impl<'ast> Visit<'ast> for ItFinder {
    fn visit_pat_ident(&mut self, name: &'ast syn::PatIdent) {
        self.0 |= name.ident == "it";
        visit::visit_pat_ident(self, name);
    }
}

/// Ends of lines between the begin of one span and the end of another.
fn lines_between(begin: Span, end: Span) -> usize {
    end.end().line.saturating_sub(begin.start().line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> Tree {
        Tree::of(files).unwrap()
    }

    fn bodies(text: &str) -> Bodies {
        let mut found = Bodies::default();
        found.count("a.rs".to_owned(), &syn::parse_file(text).unwrap());
        found
    }

    #[test]
    fn methods_are_counted_over_all_files_without_traits_and_tests() {
        let tree = tree(&[
            ("lib.rs", "mod a; mod b; pub use a::A;"),
            ("a.rs", "pub struct A; impl A { fn a() {} #[cfg(test)] fn t() {} const C: u8 = 1; }"),
            ("b.rs", "impl crate::A { fn b(&self) {} } impl Clone for crate::A { fn clone() {} }"),
        ]);
        let expected = Methods { count: 2, files: BTreeSet::from([1, 2]) };
        assert_eq!(methods(&tree), BTreeMap::from([((1, "A".to_owned()), expected)]));
    }

    #[test]
    fn types_of_one_name_in_two_files_are_counted_apart() {
        let tree = tree(&[
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "struct A; impl A { fn a() {} }"),
            ("b.rs", "made! { A } impl A { fn a() {} fn b() {} }"),
        ]);
        let counts: Vec<_> = methods(&tree).into_values().map(|found| found.count).collect();
        assert_eq!(counts, [1, 2]);
    }

    #[test]
    fn fields_are_counted_with_and_without_names() {
        let tree = tree(&[("lib.rs", "struct A { a: u8, b: u8 } struct B(u8); struct C;")]);
        let expected = [("A", 2), ("B", 1), ("C", 0)];
        assert_eq!(structs(&tree), expected.map(|(name, fields)| (name.to_owned(), fields)));
    }

    #[test]
    fn each_guard_on_leading_counts_once() {
        let tree = tree(&[(
            "lib.rs",
            "fn f(&mut self) -> Option<u8> {
                let Some(leading) = self.leading.as_mut().filter(|l| l.ok) else { return None };
                if let Some(leading) = &self.leading && leading.ok {}
                let pe = self.leading.as_ref()?.pe;
                assert!(part.leading.as_ref().is_some());
                let Some(other) = self.other.as_ref() else { return None };
            }
            #[cfg(test)] fn t() { x.leading.as_ref(); }",
        )]);
        assert_eq!(guards(&tree), Guards { let_else: 1, if_let: 1, as_ref: 2 });
        assert_eq!(guards(&tree).total(), 4);
    }

    #[test]
    fn a_function_is_long_from_its_seventy_first_line() {
        let of_lines = |lines: usize| format!("/// Text.\nfn f() {{{}}}", "\n".repeat(lines - 1));
        assert_eq!(bodies(&of_lines(70)).long, []);
        let long = LongFunction { file: "a.rs".to_owned(), name: "f".to_owned(), lines: 71 };
        assert_eq!(bodies(&of_lines(71)).long, [long]);
        let inner = format!("trait T {{ fn g(); fn h() {{}} }} impl A {{ {} }}", of_lines(71));
        let found = bodies(&inner);
        assert_eq!((found.functions, found.long.len()), (2, 1));
    }

    #[test]
    fn closures_over_it_are_found_also_in_patterns_and_macros() {
        let text = "fn f() {
            a.map(|it| it.b);
            a.map(|(_, it): (u8, u8)| it.filter(|&it|
                it));
            assert!(a.any(|it| it), \"{}\", b);
            assert!(matches!(a.find(|it| it), Some(x) if x));
            a.map(|item| item);
        }";
        let found = bodies(text);
        assert_eq!((found.closures, found.it_closures), (6, 5));
        assert_eq!(found.far_it_closures, ["a.rs:3"]);
    }
}
