//! Life-cycle items as people enter them.

use crate::failure::UsageMistake;
use crate::task::at::now;
use rota_lifecycle::LifeItem;

/// Items with absolute times: the same ones, however often a call is sent.
pub fn absolute(items: &[String]) -> anyhow::Result<Vec<String>> {
    let now = now();
    let read = items.iter().map(|text| {
        let item = LifeItem::parse_entry(text, now).map(|it| it.to_string());
        item.map_err(|it| UsageMistake(format!("--life {text:?}: {}", it.problem)).into())
    });
    read.collect()
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
    }
}
