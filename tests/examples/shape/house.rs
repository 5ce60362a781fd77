//! How many files of a crate may import each other in a circle, and where `it` may stand for something.

use crate::report::Shape;
use std::path::Path;

/// Most files of the biggest circle of a crate. With more, nobody understands one of them without all the others.
const FILES_MAX: usize = 6;

/// Crates that have a bigger circle, and its files: it may become smaller, and then this is lowered.
const LEFT: &[(&str, usize)] = &[];

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
fn a_circle_above_its_limit_is_found_and_one_below_what_is_listed_too() {
    let files = |count: usize| vec!["a.rs".to_owned(); count];
    let left = [("big", 8)];
    let found = |name: &str, count: usize| mistake(name, &files(count), &left).is_some();
    assert_eq!([5, 6, 7].map(|count| found("small", count)), [false, false, true]);
    assert_eq!([7, 8, 9].map(|count| found("big", count)), [true, false, true]);
}
