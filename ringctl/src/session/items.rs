//! Life-cycle items as people enter them.

use crate::failure::UsageMistake;
use crate::task::at::now;
use rota_lifecycle::{LifeItem, Managed};
use rota_model::{FieldError, Stamp};

/// Items with absolute times: the same ones, however often a call is sent. All mistakes are told, each with its place
/// among several items.
pub fn absolute(items: &[String]) -> anyhow::Result<Vec<String>> {
    let (now, mut mistakes) = (now(), Vec::new());
    let read = items.iter().enumerate().filter_map(|(at, text)| {
        let place = if items.len() > 1 { format!(" (item {})", at + 1) } else { String::new() };
        let told = |it: FieldError| format!("--life {text:?}{place}: {}", it.problem);
        let item = LifeItem::parse_entry(text, now);
        item.map_err(|it| mistakes.push(told(it))).ok().map(|it| it.to_string())
    });
    let read: Vec<String> = read.collect();
    if mistakes.is_empty() { Ok(read) } else { Err(UsageMistake(mistakes.join("\n")).into()) }
}

/// The life cycles of a session that begins with these items which wait for each other: each group as "a, b".
pub fn cycles(items: &[String], begin: Stamp) -> Vec<String> {
    let items = items.iter().filter_map(|it| LifeItem::parse(it).ok());
    let mut managed = Managed::new(begin);
    match managed.begin(begin, items.collect(), begin) {
        Ok(()) => managed.cycles().iter().map(|it| it.join(", ")).collect(),
        // Whoever opens with such items is refused.
        Err(_) => Vec::new(),
    }
}

/// What a person is told of life cycles that wait for each other.
pub fn cycle_warning(cycle: &str) -> String {
    format!("warning: life cycles wait for each other, and none can fire by itself: {cycle}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_from_now_on_become_absolute_and_a_mistake_names_its_column() {
        let items = ["a b@+2s", "c d@261128000000000", "e f?g"].map(str::to_owned);
        let read = absolute(&items).unwrap();
        assert!(read[0].starts_with("a b@20") && read[0].ends_with('Z'), "{read:?}");
        assert_eq!(&read[1..], &items[1..]);
        let wrong = absolute(&["a b@soon".to_owned()]).unwrap_err().to_string();
        assert!(wrong.starts_with("--life \"a b@soon\": column 5"), "{wrong}");
        let several = ["a b@soon", "c d", "e"].map(str::to_owned);
        let told = absolute(&several).unwrap_err().to_string();
        let told: Vec<&str> = told.lines().collect();
        assert!(told[0].starts_with("--life \"a b@soon\" (item 1): column 5"), "{told:?}");
        assert!(told[1].starts_with("--life \"e\" (item 3): column 2"), "{told:?}");
        assert_eq!(told.len(), 2);
    }

    #[test]
    fn items_that_wait_for_each_other_are_found_ahead_of_an_answer() {
        let of = |items: &[&str]| {
            let items: Vec<String> = items.iter().map(|it| (*it).to_owned()).collect();
            cycles(&items, now())
        };
        assert_eq!(of(&["a x?y", "x a?z"]), ["a, x"]);
        assert_eq!(of(&["a x?y", "x y@261128000000000"]), [""; 0]);
        assert_eq!(of(&["a x?y", "a x?y"]), [""; 0]);
    }
}
