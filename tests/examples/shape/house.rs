//! How big circles of files, types and structs may be, and where `it` may stand for something.

use crate::report::Shape;
use std::path::Path;

/// Most files of the biggest circle of a crate. With more, nobody understands one of them without all the others.
const FILES_MAX: usize = 6;

/// Crates that have a bigger circle, and its files: it may become smaller, and then this is lowered.
const LEFT: &[(&str, usize)] = &[];

/// A type with more methods, or in more files, has a second concern that can be a value of its own.
const METHODS_MAX: usize = 60;
const TYPE_FILES_MAX: usize = 8;

/// Crates that decide, or hold what is decided about: none of their structs has over 16 fields.
const PURE: &[&str] = &[
    "rota-content",
    "rota-docstore",
    "rota-ids",
    "rota-lifecycle",
    "rota-messages",
    "rota-model",
    "rota-node",
    "rota-placement",
    "rota-protocol",
    "rota-ring",
    "rota-search",
    "rota-sim",
    "rota-tasks",
];

/// Structs of these that are plain settings, and may have more.
const SETTINGS: &[&str] = &["Bounds", "Setup", "Sizes", "Timing"];

/// What is wrong with the biggest circle of a crate, if anything is.
fn mistake(name: &str, files: &[String], left: &[(&str, usize)]) -> Option<String> {
    let count = files.len();
    let known = left.iter().find(|(other, _)| *other == name).map(|(_, count)| *count);
    match known {
        Some(known) if count < known => {
            Some(format!("{name}: {known} files are listed as left, and {count} are; list those"))
        }
        Some(_) | None if count > known.unwrap_or(FILES_MAX) => {
            let limit = known.unwrap_or(FILES_MAX);
            let all = files.join(", ");
            Some(format!("{name}: {count} files in a circle; the limit is {limit}: {all}"))
        }
        Some(_) | None => None,
    }
}

fn shape() -> Shape {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    Shape::of(here.parent().unwrap()).unwrap()
}

#[test]
fn a_closure_of_several_lines_names_what_it_is_about() {
    assert_eq!(shape().far_it_closures(), [""; 0]);
}

#[test]
fn no_crate_has_a_bigger_circle_of_files_than_its_limit() {
    let shape = shape();
    let mistakes = shape.cycles().filter_map(|(name, files)| mistake(name, files, LEFT));
    assert_eq!(mistakes.collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn no_type_has_so_many_methods_or_files_that_it_must_have_two_concerns() {
    let shape = shape();
    let is_too_big = |methods: usize, files: usize| methods > METHODS_MAX || files > TYPE_FILES_MAX;
    let found = shape.big_types().filter(|(.., methods, files)| is_too_big(*methods, *files));
    assert_eq!(found.collect::<Vec<_>>(), []);
    assert!(shape.big_types().count() > 10, "they are counted");
}

#[test]
fn no_struct_of_a_pure_crate_has_over_16_fields_unless_it_is_plain_settings() {
    let shape = shape();
    let pure = shape.wide_structs().filter(|(name, _)| PURE.contains(name));
    let (settings, wide): (Vec<_>, Vec<_>) = pure.partition(|(_, it)| SETTINGS.contains(it));
    assert_eq!(wide, []);
    assert_eq!(settings.len(), SETTINGS.len(), "{settings:?}");
}

#[test]
fn a_circle_above_its_limit_is_found_and_one_below_what_is_listed_too() {
    let files = |count: usize| vec!["a.rs".to_owned(); count];
    let left = [("big", 8)];
    let found = |name: &str, count: usize| mistake(name, &files(count), &left).is_some();
    assert_eq!([5, 6, 7].map(|count| found("small", count)), [false, false, true]);
    assert_eq!([7, 8, 9].map(|count| found("big", count)), [true, false, true]);
}
